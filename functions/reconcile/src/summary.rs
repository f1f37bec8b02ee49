//! What a run did.

use leasehold::aws::apply::Applied;
use serde::Serialize;

/// Counts of one run: the answer, and one line of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// It was a run of a whole minute.
    pub minute: bool,
    /// Sessions that are ACTIVE.
    pub active_sessions: u64,
    /// Every ACTIVE session was silent.
    pub all_silent: bool,
    /// The largest deviation of an ACTIVE session's clock from DynamoDB's, in milliseconds: reported, never used.
    pub clock_skew_ms: u64,
    /// Sessions that were fenced.
    pub fenced: u64,
    /// Sessions that became suspect.
    pub suspected: u64,
    /// Suspicions that were cleared.
    pub cleared: u64,
    /// Expiries that were too far ahead.
    pub rewritten: u64,
    /// Sessions whose rows were removed.
    pub removed: u64,
    /// Sessions that are over, and were looked at.
    pub over_sessions: u64,
    /// STARTED rows without an owner, as the index shows them.
    pub unowned: u64,
    /// Claims sent.
    pub claimed: u64,
    /// Rows reaped.
    pub reaped: u64,
    /// Rows stamped.
    pub stamped: u64,
    /// Rows that their owners were asked to look at.
    pub marked: u64,
    /// Rows that now say what is wrong with them.
    pub faults: u64,
    /// Rows that cannot be read.
    pub bad_rows: u64,
    /// Sessions whose rows cannot be read.
    pub bad_sessions: u64,
    /// Messages that were no ticks.
    pub bad_ticks: u64,
    /// Pages swept.
    pub swept_pages: u64,
    /// Pages that the sweep gave up, after they had failed in several runs: it comes back to them in its next round.
    pub given_up_pages: u64,
    /// Parts that had to stop for want of time; the next run goes on.
    pub cut_short: u64,
    /// Parts, or rows, that failed.
    pub failed: u64,
}

impl Summary {
    /// Adds what became of plans.
    pub fn add(&mut self, applied: &Applied) {
        self.claimed += applied.claimed;
        self.reaped += applied.reaped;
        self.stamped += applied.stamped;
        self.marked += applied.marked;
        self.faults += applied.faults;
    }

    /// Writes the line.
    pub fn log(&self) {
        tracing::info!(
            event = "reconcile",
            minute = self.minute,
            active_sessions = self.active_sessions,
            all_silent = self.all_silent,
            clock_skew_ms = self.clock_skew_ms,
            fenced = self.fenced,
            suspected = self.suspected,
            cleared = self.cleared,
            rewritten = self.rewritten,
            removed = self.removed,
            over_sessions = self.over_sessions,
            unowned = self.unowned,
            claimed = self.claimed,
            reaped = self.reaped,
            stamped = self.stamped,
            marked = self.marked,
            faults = self.faults,
            bad_rows = self.bad_rows,
            bad_sessions = self.bad_sessions,
            bad_ticks = self.bad_ticks,
            swept_pages = self.swept_pages,
            given_up_pages = self.given_up_pages,
            cut_short = self.cut_short,
            failed = self.failed,
        );
    }
}
