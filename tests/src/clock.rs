//! The clocks of one worker.

use leasehold::clock::Clock;
use leasehold_local::clock::VirtualClock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The clocks of one worker: its wall clock may be wrong, and both may stand still, as they look to a process that is suspended: it
/// sees no time pass until it runs again.
#[derive(Debug)]
pub struct WorkerClock {
    time: VirtualClock,
    wall_offset_ms: AtomicI64,
    frozen: Mutex<Option<(u64, u64)>>,
}

impl WorkerClock {
    /// A right clock.
    pub fn new(time: VirtualClock) -> Arc<Self> {
        Self::off_by(time, 0)
    }

    /// A wall clock that is so many ms ahead.
    pub fn off_by(time: VirtualClock, wall_offset_ms: i64) -> Arc<Self> {
        Arc::new(Self { time, wall_offset_ms: AtomicI64::new(wall_offset_ms), frozen: Mutex::default() })
    }

    pub(crate) fn freeze(&self) {
        let now = (self.mono_ms(), self.wall_ms());
        *self.frozen.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    }

    pub(crate) fn thaw(&self) {
        *self.frozen.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn frozen(&self) -> Option<(u64, u64)> {
        *self.frozen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for WorkerClock {
    fn mono_ms(&self) -> u64 {
        self.frozen().map_or_else(|| self.time.mono_ms(), |(mono_ms, _)| mono_ms)
    }

    fn wall_ms(&self) -> u64 {
        if let Some((_, wall_ms)) = self.frozen() {
            return wall_ms;
        }
        self.time.wall_ms().saturating_add_signed(self.wall_offset_ms.load(Ordering::Relaxed))
    }
}
