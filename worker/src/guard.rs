//! How far the lease of a session, or of a row, may be trusted right now: asked before a socket opens, a frame is handled, or anything is stored.

use leasehold::clock::SharedClock;
use leasehold::decide::renewal::{OnStoreOutage, Trust, trust};
use leasehold::decide::timing::{Rules, Timing};
use leasehold::model::ConnectionId;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// The lease of one session, or of one row of it, as the worker itself counts it.
#[derive(Debug)]
pub struct Guard {
    /// Of a row: which, and its session's lease, without which no row's is worth anything.
    row: Option<(ConnectionId, Arc<Guard>)>,
    clock: SharedClock,
    timing: Timing,
    rules: Rules,
    policy: OnStoreOutage,
    renewed_ms: AtomicU64,
    over: AtomicBool,
    noticed: Mutex<Trust>,
    /// Wakes in the order in which tasks began to wait, so that a simulated run can be repeated; a `watch` does not.
    changed: Notify,
}

impl Guard {
    /// A lease whose registration was sent at `renewed_ms` (monotonic clock).
    #[must_use]
    pub fn new(clock: SharedClock, timing: Timing, rules: Rules, policy: OnStoreOutage, renewed_ms: u64) -> Self {
        Self {
            row: None,
            clock,
            timing,
            rules,
            policy,
            renewed_ms: AtomicU64::new(renewed_ms),
            over: AtomicBool::new(false),
            noticed: Mutex::new(Trust::Valid),
            changed: Notify::new(),
        }
    }

    /// The lease of a row by itself, whose expiry was decided at `renewed_ms` (monotonic clock).
    #[must_use]
    pub fn of_row(session: Arc<Self>, id: ConnectionId, renewed_ms: u64) -> Self {
        let clock = session.clock.clone();
        let guard = Self::new(clock, session.timing, session.rules, session.policy, renewed_ms);
        Self { row: Some((id, session)), ..guard }
    }

    /// True for the lease of a row by itself.
    #[must_use]
    pub fn is_of_row(&self) -> bool {
        self.row.is_some()
    }

    /// A renewal succeeded that was sent at `sent_ms`.
    pub fn renewed(&self, sent_ms: u64) {
        self.renewed_ms.fetch_max(sent_ms, Ordering::AcqRel);
        self.refresh();
    }

    /// The session is over, or the row is lost: nothing the session says (of the row) is accepted any more.
    pub fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.refresh();
    }

    /// Judges the lease by the clock, at this very moment.
    #[must_use]
    pub fn trust(&self) -> Trust {
        if self.over.load(Ordering::Acquire) {
            return Trust::StartOver;
        }
        let renewed_ms = self.renewed_ms.load(Ordering::Acquire);
        let own = trust(renewed_ms, self.clock.mono_ms(), self.policy, &self.timing, self.rules);
        self.row.as_ref().map_or(own, |(_, session)| own.max(session.trust()))
    }

    /// For how long the lease is sure if no renewal succeeds any more, in ms; 0 past the deadline.
    #[must_use]
    pub fn until_deadline_ms(&self) -> u64 {
        let deadline_ms = self.renewed_ms.load(Ordering::Acquire) + self.timing.give_up_ms;
        deadline_ms.saturating_sub(self.clock.mono_ms())
    }

    /// True while everything is allowed.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.trust() == Trust::Valid
    }

    /// Judges, and wakes whoever waits for a change.
    pub fn refresh(&self) -> Trust {
        let now = self.trust();
        let last = std::mem::replace(&mut *self.noticed.lock().unwrap_or_else(PoisonError::into_inner), now);
        if last != now {
            match &self.row {
                None => {
                    tracing::info!(event = "lease_trust", from = ?last, to = ?now, "the trust in this session's lease changed");
                }
                Some((id, _)) => {
                    tracing::debug!(event = "row_trust", connection = %id, from = ?last, to = ?now, "the trust in its row's lease changed");
                }
            }
            self.changed.notify_waiters();
        }
        now
    }

    /// Waits until sockets must be dropped.
    pub async fn dropped(&self) {
        self.wait_for(|trust| matches!(trust, Trust::Dropped | Trust::StartOver)).await;
    }

    /// Waits until the session is given up for good.
    pub async fn over(&self) {
        self.wait_for(|trust| trust == Trust::StartOver).await;
    }

    /// Waits until everything is allowed.
    pub async fn valid(&self) {
        self.wait_for(|trust| trust == Trust::Valid).await;
    }

    async fn wait_for(&self, is: impl Fn(Trust) -> bool) {
        // A session's own lease has no other above it.
        let above = self.row.as_ref().map_or(&self.changed, |(_, session)| &session.changed);
        loop {
            let (mut above, mut changed) = (pin!(above.notified()), pin!(self.changed.notified()));
            // Before looking, so that what comes between looking and waiting wakes us.
            above.as_mut().enable();
            changed.as_mut().enable();
            // The clock decides, not the last notice: a process that was suspended reads the clock before anybody could notify it.
            if is(self.trust()) {
                return;
            }
            tokio::select! {
                biased;
                () = above => {}
                () = changed => {}
            }
        }
    }
}
