//! A runtime whose time the driver moves.

use crate::time::{begin_step, end_step};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{advance, sleep};

/// One process's runtime: dropping it is SIGKILL, not stepping it is SIGSTOP.
pub struct Lane {
    runtime: Runtime,
    /// Parts per million by which its time runs faster than the world's.
    drift_ppm: i64,
    /// World time that it has lived through.
    world_ms: u64,
    /// Its own time.
    own_ms: u64,
}

impl Lane {
    /// A runtime at its time 0.
    #[must_use]
    pub fn new(drift_ppm: i64) -> Self {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.expect("a runtime of this thread without I/O needs nothing of the system");
        Self { runtime, drift_ppm, world_ms: 0, own_ms: 0 }
    }

    /// Where others may leave tasks for it.
    #[must_use]
    pub fn handle(&self) -> tokio::runtime::Handle {
        self.runtime.handle().clone()
    }

    /// Runs something that needs the runtime, and no time.
    pub fn enter<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(async {
            begin_step(0);
            let out = future.await;
            end_step();
            out
        })
    }

    /// Runs for so much world time.
    pub fn step(&mut self, world_ms: u64) {
        let own_ms = self.own_part(world_ms);
        self.runtime.block_on(async {
            begin_step(world_ms);
            sleep(Duration::from_millis(own_ms)).await;
            end_step();
        });
    }

    /// Wakes after a suspension of so much world time: all timers are found expired at once.
    pub fn wake(&mut self, world_ms: u64) {
        let own_ms = self.own_part(world_ms);
        self.runtime.block_on(async {
            begin_step(0);
            advance(Duration::from_millis(own_ms)).await;
            end_step();
        });
    }

    /// What passes of its own time, in whole milliseconds; what is left over comes later.
    fn own_part(&mut self, world_ms: u64) -> u64 {
        self.world_ms += world_ms;
        let drift = i64::try_from(self.world_ms).unwrap_or(0) * self.drift_ppm / 1_000_000;
        let due_ms = self.world_ms.saturating_add_signed(drift);
        let own_ms = due_ms.saturating_sub(self.own_ms);
        self.own_ms = due_ms;
        own_ms
    }
}
