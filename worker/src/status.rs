//! What an owner writes on its row: on change, coalesced, and the checkpoint when it is due.

use leasehold::aws::connections::{Observed, Status};
use leasehold::model::{MessageKey, ObservedState};

/// What is to be written about one connection, and when.
#[derive(Debug)]
pub struct StatusBook {
    status_interval_ms: u64,
    checkpoint_interval_ms: u64,
    written: (ObservedState, Option<String>),
    current: Observed,
    written_at_ms: Option<u64>,
    checkpoint_at_ms: u64,
    progress: Option<MessageKey>,
    written_progress: Option<MessageKey>,
}

impl StatusBook {
    /// After an acquire, which wrote CONNECTING. `now_ms` is the monotonic clock.
    #[must_use]
    pub fn new(status_interval_ms: u64, checkpoint_interval_ms: u64, since_ms: u64, now_ms: u64) -> Self {
        Self {
            status_interval_ms,
            checkpoint_interval_ms,
            written: (ObservedState::Connecting, None),
            current: Observed { state: ObservedState::Connecting, reason: None, since_ms },
            written_at_ms: None,
            checkpoint_at_ms: now_ms,
            progress: None,
            written_progress: None,
        }
    }

    /// Notes a state; only the last one before a write is written.
    pub fn note(&mut self, observed: Observed) {
        self.current = observed;
    }

    /// Notes how far the sink has acknowledged.
    pub fn progress(&mut self, key: MessageKey) {
        self.progress = Some(key);
    }

    /// The state as it is now.
    #[must_use]
    pub fn current(&self) -> &Observed {
        &self.current
    }

    fn changed(&self) -> bool {
        (self.current.state, &self.current.reason) != (self.written.0, &self.written.1)
    }

    fn moved(&self) -> bool {
        self.progress.is_some() && self.progress != self.written_progress
    }

    /// When the next write is due, on the monotonic clock; `None` when there is nothing to write.
    #[must_use]
    pub fn due_ms(&self) -> Option<u64> {
        let status = self.changed().then(|| self.written_at_ms.map_or(0, |at| at + self.status_interval_ms));
        let checkpoint = self.moved().then(|| self.checkpoint_at_ms + self.checkpoint_interval_ms);
        match (status, checkpoint) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// What a write says now: the state if it changed, and the checkpoint, which costs nothing on top.
    #[must_use]
    pub fn to_write(&self) -> Status {
        let progress = self.progress.as_ref().filter(|_| self.moved());
        Status {
            observed: self.changed().then(|| self.current.clone()),
            progress: progress.and_then(|key| Some((key.series.to_string(), key.number()?))),
        }
    }

    /// A write of [`Self::to_write`] was sent and answered at `now_ms` (monotonic clock).
    pub fn wrote(&mut self, status: &Status, now_ms: u64) {
        if let Some(observed) = &status.observed {
            self.written = (observed.state, observed.reason.clone());
        }
        if status.progress.is_some() {
            self.written_progress = self.progress.clone();
        }
        self.written_at_ms = Some(now_ms);
        self.checkpoint_at_ms = now_ms;
    }

    /// A write failed at `now_ms`: not again before a status interval has passed.
    pub fn failed(&mut self, now_ms: u64) {
        self.written_at_ms = Some(now_ms);
        self.checkpoint_at_ms = (now_ms + self.status_interval_ms).saturating_sub(self.checkpoint_interval_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold::model::Series;

    fn connected() -> Observed {
        Observed { state: ObservedState::Connected, reason: None, since_ms: 1 }
    }

    fn backoff() -> Observed {
        Observed { state: ObservedState::Backoff, reason: Some("down".into()), since_ms: 1 }
    }

    #[test]
    fn the_first_change_is_written_at_once_and_flapping_once_an_interval() {
        let mut book = StatusBook::new(5_000, 300_000, 1, 0);
        assert_eq!(book.due_ms(), None);
        book.note(connected());
        assert_eq!(book.due_ms(), Some(0));
        let status = book.to_write();
        book.wrote(&status, 100);
        book.note(backoff());
        assert_eq!(book.due_ms(), Some(5_100));
        book.note(connected());
        assert_eq!(book.due_ms(), None, "back to what was written: nothing to say");
    }

    #[test]
    fn a_checkpoint_waits_for_its_budget_and_rides_along_with_a_status() {
        let mut book = StatusBook::new(5_000, 300_000, 1, 1_000);
        book.progress(MessageKey { series: Series::from_stored("s"), seq: 9, sub: 0 });
        assert_eq!(book.due_ms(), Some(301_000));
        book.note(connected());
        assert_eq!(book.to_write().progress, Some(("s".into(), 9)));
    }
}
