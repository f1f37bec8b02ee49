//! One virtual time for the world, and each process's own clocks, which may be wrong.

use aws_smithy_async::time::TimeSource;
use leasehold::clock::Clock;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// Fri, 15 Jan 2027 08:00:00 GMT: when every case begins.
pub const EPOCH_MS: u64 = 1_800_000_000_000;

thread_local! {
    /// The step that a runtime of this thread makes: when it began by that runtime's clock, and how long it lasts in world time.
    static STEP: Cell<Option<(Instant, u64)>> = const { Cell::new(None) };
}

/// Tells where in the world's time the code of a step runs. To be called inside of the runtime that makes it.
pub(crate) fn begin_step(world_ms: u64) {
    STEP.set(Some((Instant::now(), world_ms)));
}

/// The step is over.
pub(crate) fn end_step() {
    STEP.set(None);
}

/// The world's time: that of engine, queue, Date headers and of everything that is checked. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct WorldClock {
    step_began_ms: Arc<AtomicU64>,
}

impl WorldClock {
    /// The next step begins.
    pub fn advance(&self, ms: u64) {
        self.step_began_ms.fetch_add(ms, Ordering::Relaxed);
    }

    /// Milliseconds since the case began.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        let in_step = STEP.get().map_or(0, |(began, at_most)| {
            let elapsed = Instant::now().saturating_duration_since(began).as_millis();
            u64::try_from(elapsed).unwrap_or(at_most).min(at_most)
        });
        self.step_began_ms.load(Ordering::Relaxed) + in_step
    }
}

impl Clock for WorldClock {
    fn mono_ms(&self) -> u64 {
        self.now_ms()
    }

    fn wall_ms(&self) -> u64 {
        EPOCH_MS + self.now_ms()
    }
}

impl TimeSource for WorldClock {
    fn now(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(self.wall_ms())
    }
}

/// The clocks of one process. The monotonic one is its runtime's time, so it drifts as that is moved; the wall clock may be off by anything.
#[derive(Debug)]
pub struct ProcessClock {
    started: Instant,
    boot_ms: u64,
    wall_ms: u64,
    wall_offset_ms: AtomicI64,
}

impl ProcessClock {
    /// Clocks that begin now: the monotonic one at `boot_ms`, the wall clock at the world's. To be called inside of the process's runtime.
    #[must_use]
    pub fn starting(world: &WorldClock, boot_ms: u64) -> Self {
        Self { started: Instant::now(), boot_ms, wall_ms: world.wall_ms(), wall_offset_ms: AtomicI64::new(0) }
    }

    /// Moves the wall clock.
    pub fn jump(&self, by_ms: i64) {
        self.wall_offset_ms.fetch_add(by_ms, Ordering::Relaxed);
    }

    fn elapsed_ms(&self) -> u64 {
        let elapsed = Instant::now().saturating_duration_since(self.started);
        u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
    }
}

impl Clock for ProcessClock {
    fn mono_ms(&self) -> u64 {
        self.boot_ms + self.elapsed_ms()
    }

    fn wall_ms(&self) -> u64 {
        let right = self.wall_ms + self.elapsed_ms();
        right.saturating_add_signed(self.wall_offset_ms.load(Ordering::Relaxed))
    }
}
