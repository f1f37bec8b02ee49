//! Time as an argument: the only place that reads a clock of the machine.
//!
//! Pure code takes numbers, adapters and loops take a [`Clock`]; `main` builds a [`SystemClock`], tests a virtual one.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The two clocks a process has. Neither is ever compared with another machine's.
pub trait Clock: Debug + Send + Sync + 'static {
    /// Milliseconds on a monotonic clock that goes on while the machine is suspended (`CLOCK_BOOTTIME`).
    fn mono_ms(&self) -> u64;

    /// The machine's wall clock in milliseconds since the Unix epoch. It is reported and alarmed, and decides nothing.
    fn wall_ms(&self) -> u64;
}

/// How clocks are handed around.
pub type SharedClock = Arc<dyn Clock>;

/// The machine's real clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn mono_ms(&self) -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        millis(now.tv_sec, now.tv_nsec)
    }

    // Through the standard library, as the AWS SDK reads it: whoever shifts the wall clock of a process shifts both.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the machine's clock")]
    fn wall_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

fn millis(seconds: i64, nanoseconds: i64) -> u64 {
    let seconds = u64::try_from(seconds).unwrap_or(0);
    let nanoseconds = u64::try_from(nanoseconds).unwrap_or(0);
    seconds * 1_000 + nanoseconds / 1_000_000
}
