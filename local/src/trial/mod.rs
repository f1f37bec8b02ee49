//! A trial of the main job with real processes: something is done to the workers, and the feed's own log says what came of it.
//!
//! - [`cast`]: the system, the feed, the workers
//! - [`steps`]: what can be done to a worker, and how long everything may take to come back
//! - [`sight`]: who holds what, by the feed and by the table
//! - [`observed`]: when each message was stored, as the engine saw it
//! - [`recording`]: all that the verdict needs; [`verdict`]: PURE: what the logs say

pub mod cast;
pub mod observed;
pub mod recording;
pub mod sight;
pub mod steps;
pub mod verdict;

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1_000.0
}
