//! Bounds.

use crate::properties::Promise;
use crate::state::Budget;
use leasehold::decide::scope::LeaseScope;

mod named;

pub use named::{narrow, wide};

/// What may happen within a check, and how often.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// What they are called.
    pub name: &'static str,
    /// What is leased.
    pub scope: LeaseScope,
    /// Workers, alive at first.
    pub workers: u8,
    /// Connections.
    pub connections: u8,
    /// Sessions that may be registered.
    pub sessions: u8,
    /// Time ends after so many steps.
    pub last_step: u8,
    /// Faults and happenings.
    pub budget: Budget,
    /// Whether workers hold their sockets while the store is away.
    pub hold: bool,
    /// Time passes only when everything is done that can be done.
    pub prompt: bool,
    /// Indexes may lag.
    pub index_lags: bool,
    /// ECS reports tasks that are really gone.
    pub task_reports: bool,
    /// Reconcile can ask ECS which tasks run.
    pub fleet_view: bool,
    /// Only workers are cut off when the store is away.
    pub outage_of_workers_only: bool,
    /// So many steps an outage lasts at least.
    pub outage_steps: u8,
    /// A birth's registration may be late.
    pub registrations_are_late: bool,
    /// The first worker has the connections at first.
    pub owned_at_first: bool,
    /// Rows are written by hand at first, and not stamped.
    pub written_by_hand: bool,
    /// How far each worker's lease time is off.
    pub clock_error_ms: [i32; 2],
    /// So many marks fit before all is to be looked at.
    pub most_marks: u32,
    /// What is checked.
    pub properties: Vec<Promise>,
}

/// All that must hold where nothing is named as an exception.
const ALL: [Promise; 9] = [
    Promise::OneWriter,
    Promise::EpochsRise,
    Promise::PairsNeverRepeat,
    Promise::OverStaysOver,
    Promise::OneSocket,
    Promise::EventsRepair,
    Promise::IndexRepairs,
    Promise::SweepRepairs,
    Promise::EverythingRepairs,
];

impl Bounds {
    /// Two workers, one connection that the first one holds, and these faults. Everything is checked.
    #[must_use]
    pub fn named(name: &'static str, last_step: u8, budget: Budget) -> Self {
        Self {
            name,
            scope: LeaseScope::Worker,
            workers: 2,
            connections: 1,
            sessions: 4,
            last_step,
            budget,
            hold: false,
            prompt: false,
            index_lags: false,
            task_reports: false,
            fleet_view: false,
            outage_of_workers_only: false,
            outage_steps: 0,
            registrations_are_late: false,
            owned_at_first: true,
            written_by_hand: false,
            clock_error_ms: [0, 0],
            most_marks: 2,
            properties: ALL.to_vec(),
        }
    }

    /// Without these promises: the named exceptions.
    #[must_use]
    pub fn except(mut self, promises: &[Promise]) -> Self {
        self.properties.retain(|promise| !promises.contains(promise));
        self
    }

    /// With rows that are leased by themselves.
    #[must_use]
    pub fn of_rows(self) -> Self {
        Self { scope: LeaseScope::Connection, ..self }
    }

    /// With these faults.
    #[must_use]
    pub fn with(self, budget: Budget) -> Self {
        Self { budget, ..self }
    }

    /// Only this promise is checked.
    #[must_use]
    pub fn only(self, promise: Promise) -> Self {
        Self { properties: vec![promise], ..self }
    }

    /// With this promise as well.
    #[must_use]
    pub fn and(mut self, promise: Promise) -> Self {
        self.properties.push(promise);
        self
    }
}

/// No faults.
pub const NOTHING: Budget = Budget {
    late_requests: 0,
    doubled: 0,
    slow_looks: 0,
    pauses: 0,
    kills: 0,
    births: 0,
    shutdowns: 0,
    wrong_task_reports: 0,
    stops: 0,
    starts: 0,
    changes: 0,
    overwrites: 0,
    deletes: 0,
    creates: 0,
    lost_events: 0,
    lost_marks: 0,
    lost_claims: 0,
    sweeps: 0,
    removed_sessions: 0,
    outages: 0,
};
