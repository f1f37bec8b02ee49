//! Virtual time: one clock for the product, the SDK, the engine and the queue.

use leasehold::clock::Clock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// A clock that follows tokio's time, which tests pause. Wall and monotonic time move together.
#[derive(Clone, Copy, Debug)]
pub struct VirtualClock {
    started: Instant,
    epoch_ms: u64,
}

impl VirtualClock {
    /// A clock that reads `epoch_ms` (milliseconds since the Unix epoch) now. Must be called inside a tokio runtime.
    #[must_use]
    pub fn starting_at(epoch_ms: u64) -> Self {
        Self { started: Instant::now(), epoch_ms }
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Clock for VirtualClock {
    fn mono_ms(&self) -> u64 {
        self.elapsed_ms()
    }

    fn wall_ms(&self) -> u64 {
        self.epoch_ms + self.elapsed_ms()
    }
}

impl aws_smithy_async::time::TimeSource for VirtualClock {
    fn now(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(self.wall_ms())
    }
}
