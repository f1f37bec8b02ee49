//! What a worker counts, and what it has right now.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Counters since the process started, by name. They travel with every renewal.
#[derive(Debug, Default)]
pub struct Counters {
    counts: Mutex<BTreeMap<&'static str, u64>>,
}

impl Counters {
    /// Adds one.
    pub fn add(&self, name: &'static str) {
        self.add_many(name, 1);
    }

    /// Adds several.
    pub fn add_many(&self, name: &'static str, count: u64) {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_default() += count;
    }

    /// All of them.
    #[must_use]
    pub fn snapshot(&self) -> BTreeMap<&'static str, u64> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What there is right now.
#[derive(Debug)]
pub struct Gauges {
    /// Connections held.
    pub held: AtomicU64,
    /// Sockets open.
    pub connected: AtomicU64,
    /// Acquires under way.
    pub acquiring: AtomicU64,
    /// Lag of the event loop, in ms.
    pub loop_lag_ms: AtomicU64,
    /// When the event loop last ran (monotonic clock, ms).
    pub loop_ran_ms: AtomicU64,
    /// The session was asked to drain.
    pub draining: AtomicBool,
    /// No claims before this moment (monotonic clock, ms): the store throttles.
    pub pause_until_ms: AtomicU64,
    /// The highest epoch that this process has tried to write, but for those far ahead of lease time.
    last_epoch: AtomicU64,
}

/// An epoch further ahead of lease time than this, in ms, was written by hand: two estimates of lease time differ by seconds, and each
/// acquire adds one.
const EPOCH_AHEAD_MS: u64 = 60_000;

impl Gauges {
    /// Of a process that starts at `now_ms` (monotonic clock): until its event loop is measured, it counts as having run then.
    #[must_use]
    pub fn starting_at(now_ms: u64) -> Self {
        Self {
            held: AtomicU64::new(0),
            connected: AtomicU64::new(0),
            acquiring: AtomicU64::new(0),
            loop_lag_ms: AtomicU64::new(0),
            loop_ran_ms: AtomicU64::new(now_ms),
            draining: AtomicBool::new(false),
            pause_until_ms: AtomicU64::new(0),
            last_epoch: AtomicU64::new(0),
        }
    }

    /// This epoch, or the one above the last of this process if that is higher: no two acquires of a process share one, so that owner and epoch
    /// never repeat, not even on a row that is deleted and made again while the estimate of lease time narrows. `now_ms` is lease time.
    ///
    /// An epoch that somebody wrote far ahead is this row's alone: it lifts no other row's.
    #[must_use]
    pub fn epoch_above_all(&self, epoch: u64, now_ms: u64) -> u64 {
        if epoch > now_ms.saturating_add(EPOCH_AHEAD_MS) {
            return epoch;
        }
        let mut last = self.last_epoch.load(Ordering::Acquire);
        loop {
            let next = epoch.max(last + 1);
            match self.last_epoch.compare_exchange_weak(last, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return next,
                Err(now) => last = now,
            }
        }
    }
}

/// Counts something up for as long as it lives.
#[derive(Debug)]
pub struct Counted<'a>(&'a AtomicU64);

impl<'a> Counted<'a> {
    /// One more, until dropped.
    #[must_use]
    pub fn new(gauge: &'a AtomicU64) -> Self {
        gauge.fetch_add(1, Ordering::Relaxed);
        Self(gauge)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_acquires_of_a_process_share_an_epoch() {
        let gauges = Gauges::starting_at(0);
        // The upper end of lease time may fall when the estimate narrows.
        let epochs = [52_100, 52_010, 52_010, 60_000].map(|epoch| gauges.epoch_above_all(epoch, 52_000));
        assert_eq!(epochs, [52_100, 52_101, 52_102, 60_000]);
    }

    #[test]
    fn an_epoch_far_ahead_lifts_no_other_rows() {
        let gauges = Gauges::starting_at(0);
        for far in [1_000 + EPOCH_AHEAD_MS + 1, (1 << 42) - 1] {
            assert_eq!(gauges.epoch_above_all(far, 1_000), far);
        }
        assert_eq!(gauges.epoch_above_all(1_000, 1_000), 1_000);
    }
}
