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
}

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
