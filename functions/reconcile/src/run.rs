//! One run, part by part. A part that fails is counted and does not stop the others.

use crate::{HandlerError, Reconcile, Summary};
use leasehold::aws::apply::apply;
use leasehold::aws::owners::Owners;
use leasehold::aws::sessions::Memory;
use leasehold::aws::{Store, StoreError};
use leasehold::decide::desired::{Plan, Row};
use leasehold::decide::lease_time::Now;
use leasehold::decide::reconcile::{Turns, over};
use leasehold::model::{ConnectionId, Session, SessionId};
use std::collections::BTreeSet;

/// What is kept of the remaining time for the answer, in ms.
const RESERVE_MS: u64 = 2_000;

/// What the look at the sessions leaves to the other parts.
pub(crate) struct Looked {
    /// All sessions; those that were fenced just now are FENCED here too.
    pub sessions: Vec<Session>,
    /// What was remembered before.
    pub memory: Memory,
    /// Which rows may be claimed: those that had their turn since the last look.
    pub turns: Turns,
    /// The same for what only runs of a minute look at: since the last of these.
    pub minute_turns: Turns,
    /// Everybody is silent, or was of late: the store may have been away.
    pub in_doubt: bool,
    /// Lease time at the look.
    pub now: Now,
}

impl Looked {
    /// Whether this run, and the next ones if need be, claim all that this session owned: other claims would only be repeats.
    pub(crate) fn claims_now(&self, owner: &SessionId) -> bool {
        self.sessions.iter().any(|session| session.id == *owner && session.unclaimed_from.is_some())
    }
}

/// Claims that are sent unless the queue holds enough of them.
#[derive(Default)]
pub(crate) struct Pending {
    /// Rows that have their turn: of over sessions, and those that nobody owns.
    pub claims: Vec<ConnectionId>,
    /// All STARTED rows of over sessions that this run saw.
    pub over_rows: u64,
}

/// One run.
pub(crate) struct Run<'a> {
    pub function: &'a Reconcile,
    /// With a lease time of this invocation's own answers.
    pub store: Store,
    pub minute: bool,
    pub summary: Summary,
    pub first_failure: Option<(&'static str, StoreError)>,
    /// What waits for a look at the queue.
    pub pending: Pending,
    ends_ms: u64,
}

impl<'a> Run<'a> {
    pub(crate) fn new(function: &'a Reconcile, minute: bool, remaining_ms: u64) -> Self {
        Self {
            function,
            store: function.store.anew(),
            minute,
            summary: Summary { minute, ..Summary::default() },
            first_failure: None,
            pending: Pending::default(),
            ends_ms: function.clock.mono_ms() + remaining_ms.saturating_sub(RESERVE_MS),
        }
    }

    /// The look comes first, and those who wait longest: connections of sessions that were fenced and that nobody has claimed since.
    pub(crate) async fn run(&mut self, stopped_tasks: &BTreeSet<String>) -> Result<(), HandlerError> {
        let looked = self.look(stopped_tasks).await?;
        let (unclaimed, others) = self.over_sessions(&looked);
        for session in unclaimed.into_iter().chain(others) {
            self.over_session(session, &looked).await;
        }
        self.unowned_rows(&looked).await;
        self.claim_pending(&looked).await;
        if self.minute {
            self.sweep(&looked).await;
        }
        Ok(())
    }

    /// The over sessions that this run looks at: those with unclaimed connections, and the others.
    fn over_sessions<'l>(&mut self, looked: &'l Looked) -> (Vec<&'l Session>, Vec<&'l Session>) {
        let (timing, rules) = (&self.function.timing, self.function.rules);
        let mut all: Vec<&Session> = looked.sessions.iter().collect();
        all.retain(|session| {
            over::is_over(session, looked.now, timing, rules)
                && over::is_looked_at(session, self.minute, looked.now, timing)
        });
        self.summary.over_sessions = all.len() as u64;
        all.into_iter().partition(|session| session.unclaimed_from.is_some())
    }

    /// Whether there is time for another page. If not, the part is cut short and the next run goes on.
    pub(crate) fn has_time(&mut self) -> bool {
        let has_time = self.function.clock.mono_ms() < self.ends_ms;
        if !has_time {
            self.summary.cut_short += 1;
        }
        has_time
    }

    /// Lease time now; the look has made sure that there is one.
    pub(crate) fn now(&self, looked: &Looked) -> Now {
        self.store.time().now().unwrap_or(looked.now)
    }

    /// Takes an outcome's value, or counts and logs its error.
    pub(crate) fn note<T>(&mut self, part: &'static str, outcome: Result<T, StoreError>) -> Option<T> {
        match outcome {
            Ok(value) => Some(value),
            Err(error) => {
                tracing::error!(event = "failed", part, %error, "the next run comes back to it");
                self.summary.failed += 1;
                self.first_failure.get_or_insert((part, error));
                None
            }
        }
    }

    /// Applies plans; returns whether all that can succeed at another time has succeeded.
    pub(crate) async fn apply(&mut self, part: &'static str, plans: &[Plan], now: Now) -> bool {
        let applied = apply(&self.store, &self.function.claims, plans, now).await;
        self.summary.add(&applied);
        let complete = applied.failed.values().all(|error| matches!(error, StoreError::Invalid { .. }));
        for error in applied.failed.into_values() {
            self.note(part, Err::<(), _>(error));
        }
        complete
    }

    /// Sends claims at once.
    pub(crate) async fn claim(&mut self, part: &'static str, ids: &[ConnectionId], why: &str) {
        if ids.is_empty() {
            return;
        }
        for id in ids {
            tracing::info!(event = "claim", connection = %id, why);
        }
        let outcome = self.function.claims.send_claims(ids, 0).await;
        if self.note(part, outcome).is_some() {
            self.summary.claimed += ids.len() as u64;
        }
    }

    /// Reads the sessions of these rows' owners, as far as they are not known yet.
    pub(crate) async fn learn(&mut self, owners: &mut Owners, rows: &[(ConnectionId, Row)]) -> bool {
        let wanted = rows.iter().filter_map(|(_, row)| row.owner().cloned()).collect();
        let outcome = owners.learn(&self.store, wanted).await;
        self.note("read owners", outcome).is_some()
    }
}
