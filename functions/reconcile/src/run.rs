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
use std::collections::{BTreeMap, BTreeSet};

/// What is kept of the remaining time for the answer, in ms.
const RESERVE_MS: u64 = 2_000;

/// So many rows are remembered by a run; of more, some may be claimed twice.
const MAX_SEEN: usize = 200_000;

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
    /// As [`leasehold::decide::reconcile::Look::store_may_have_been_away`].
    pub store_may_have_been_away: bool,
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
    /// STARTED rows of over sessions, and those that nobody owns, that this run saw, each once, and whether this run claims it. Where rows
    /// are leased by themselves, both indexes show those of a dead worker.
    seen: BTreeMap<ConnectionId, bool>,
    /// Those beyond what is remembered.
    more: u64,
}

impl Pending {
    /// Notes a row that an index shows, and whether it is claimed. Returns whether nobody has claimed it before, in this run.
    pub(crate) fn see(&mut self, id: &ConnectionId, claimed: bool) -> bool {
        if let Some(before) = self.seen.get_mut(id) {
            return !std::mem::replace(before, *before || claimed);
        }
        if self.seen.len() == MAX_SEEN {
            self.more += 1;
        } else {
            self.seen.insert(id.clone(), claimed);
        }
        true
    }

    /// How many rows there are.
    pub(crate) fn rows(&self) -> u64 {
        self.seen.len() as u64 + self.more
    }
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

    /// Sends claims at once. Returns whether all were sent.
    pub(crate) async fn claim(&mut self, part: &'static str, ids: &[ConnectionId], why: &str) -> bool {
        if ids.is_empty() {
            return true;
        }
        for id in ids {
            tracing::info!(event = "claim", connection = %id, why);
        }
        let outcome = self.function.claims.send_claims(ids, 0).await;
        let sent = self.note(part, outcome).is_some();
        if sent {
            self.summary.claimed += ids.len() as u64;
        }
        sent
    }

    /// Reads the sessions of these rows' owners, as far as they are not known yet.
    pub(crate) async fn learn(&mut self, owners: &mut Owners, rows: &[(ConnectionId, Row)]) -> bool {
        let wanted = rows.iter().filter_map(|(_, row)| row.owner().cloned()).collect();
        let outcome = owners.learn(&self.store, wanted).await;
        self.note("read owners", outcome).is_some()
    }
}
