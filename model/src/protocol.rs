//! The model itself: what may happen next in a state, and what it leads to.

use crate::bounds::Bounds;
use crate::calm::Verified;
use crate::environment::Happening;
use crate::functions::Step as FunctionStep;
use crate::numbers::{self, START_MS, STEP_MS};
use crate::product::{self, Known};
use crate::properties;
use crate::repairs::Repairs;
use crate::requests::Transit;
use crate::state::{CONNECTIONS, Ending, Event, Process, SESSIONS, Set, SlowLook, State, WORKERS, Worker, bit, insert};
use crate::store::{Marks, Row, Store, Witness};
use crate::worker::Step as WorkerStep;
use leasehold::decide::lease_time::Now;
use leasehold::decide::timing::Timing;
use stateright::{Model, Property};
use std::sync::Arc;

/// How a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// Sent, landed and answered in one step.
    Fast,
    /// It lands later, or never; so does its answer.
    Slow,
}

/// One thing that happens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A worker does something.
    Worker(u8, WorkerStep),
    /// A function does something.
    Function(FunctionStep),
    /// Something becomes of a request under way.
    Request(Transit),
    /// Anything else: time, people, faults.
    Happens(Happening),
}

/// The protocol within bounds, with its repairs or without some.
#[derive(Clone, Debug)]
pub struct Protocol {
    /// What may happen, and how often.
    pub bounds: Bounds,
    /// What is repaired.
    pub repairs: Repairs,
    /// The protocol's numbers.
    pub timing: Timing,
    /// States that are known to end well.
    pub verified: Arc<Verified>,
}

impl Protocol {
    /// The protocol with all its repairs.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        let timing = Timing { scope: bounds.scope, ..numbers::timing() };
        Self { bounds, repairs: Repairs::default(), timing, verified: Arc::default() }
    }

    /// The same without some of its repairs.
    #[must_use]
    pub fn without(mut self, take_out: impl FnOnce(&mut Repairs)) -> Self {
        take_out(&mut self.repairs);
        self
    }

    /// All connections.
    pub(crate) fn connections(&self) -> std::ops::Range<u8> {
        0..self.bounds.connections
    }

    /// Lease time, in ms.
    pub(crate) fn lease_time_ms(&self, state: &State) -> u32 {
        START_MS + u32::from(state.step) * STEP_MS + state.extra_ms
    }

    /// Lease time as functions know it.
    pub(crate) fn now(&self, state: &State) -> Now {
        numbers::now(self.lease_time_ms(state), 0)
    }

    /// Lease time as a worker knows it.
    pub(crate) fn worker_now(&self, state: &State, p: u8) -> Now {
        numbers::now(self.lease_time_ms(state), self.bounds.clock_error_ms[usize::from(p)])
    }

    /// A consistent read of an owner's session.
    pub(crate) fn known(&self, state: &State, owner: Option<u8>) -> Known {
        let Some(owner) = owner else { return Known::NotNeeded };
        match state.store.session(owner) {
            Some(row) => Known::Session(Box::new(product::session(owner, &row))),
            None if self.repairs.missing_owner_is_over => Known::Gone,
            None => Known::NotNeeded,
        }
    }

    /// Indexes follow at once where they do not lag.
    fn index(&self, state: &mut State) {
        if !self.bounds.index_lags {
            state.store.index = state.store.rows;
        }
    }

    fn first_state(&self) -> State {
        let row = Row { epoch: Some(0), expires_ms: Some(0), ..Row::written_by_hand(0) };
        let store = Store {
            rows: [None; CONNECTIONS],
            index: [None; CONNECTIONS],
            sessions: [None; SESSIONS],
            marks: [Marks::default(); SESSIONS],
            last_look_ms: START_MS,
            grace_until_ms: 0,
            witness: Witness::default(),
        };
        let mut state = State {
            step: 0,
            extra_ms: 0,
            away_since: None,
            store,
            workers: [0, 1].map(Worker::unborn),
            requests: Vec::new(),
            claims: 0,
            delayed_claims: [None; CONNECTIONS],
            events: Vec::new(),
            looks: Vec::<SlowLook>::new(),
            next_session: WORKERS as u8,
            budget: self.bounds.budget,
        };
        for p in 0..self.bounds.workers {
            self.begin(&mut state, p, p);
        }
        for c in self.connections() {
            if self.bounds.written_by_hand {
                state.store.put_row(c, Row::written_by_hand(0));
                insert(&mut state.events, Event { connection: c, old_owner: None });
            } else {
                state.store.put_row(c, row);
                state.claims |= bit(c);
            }
            if self.bounds.owned_at_first {
                self.work(&mut state, 0, WorkerStep::Claim(c, Way::Fast));
                self.work(&mut state, 0, WorkerStep::Open(c, Way::Fast));
            }
        }
        self.index(&mut state);
        state.store.index = state.store.rows;
        state
    }

    /// A worker's session is registered, and its lease begins.
    fn begin(&self, state: &mut State, p: u8, session: u8) {
        let expires_ms = numbers::ms(self.worker_now(state, p).upper_ms + self.timing.lease_ms);
        state.store.register(session, expires_ms, &self.repairs);
        let step = state.step;
        state.workers[usize::from(p)] = Worker::begun(session, step);
    }
}

impl Worker {
    /// No process.
    #[must_use]
    pub fn unborn(session: u8) -> Self {
        Self { process: Process::Dead, ..Self::begun(session, 0) }
    }

    /// A process with a new session.
    #[must_use]
    pub fn begun(session: u8, step: u8) -> Self {
        Self {
            process: Process::Running,
            session,
            renewed: step,
            heartbeat: 0,
            ending: Ending::No,
            to_look: 0,
            marks: None,
            gave_up: 0,
            slots: Default::default(),
        }
    }

    /// What it holds.
    #[must_use]
    pub fn held(&self) -> Set {
        let mut held = 0;
        for (c, slot) in self.slots.iter().enumerate() {
            held |= Set::from(slot.held.is_some()) << c;
        }
        held
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.first_state()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for p in 0..self.bounds.workers {
            self.worker_steps(state, p, actions);
        }
        self.function_steps(state, actions);
        self.transits(state, actions);
        self.happenings(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let done = match action {
            Action::Worker(p, step) => self.work(&mut state, p, step),
            Action::Function(step) => self.function(&mut state, &step),
            Action::Request(transit) => self.transit(&mut state, &transit),
            Action::Happens(happening) => self.happen(&mut state, happening),
        };
        self.index(&mut state);
        (done && state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        self.bounds.properties.iter().map(|promise| properties::property(*promise)).collect()
    }
}
