//! What a seed stands for: a configuration, and all that is done to it, up front and as data.
//!
//! - [`config`]: how the cluster is set up
//! - [`step`]: what can be done to it
//! - [`plan`]: the schedule

pub mod config;
pub mod plan;
pub mod step;

pub use config::Config;
pub use plan::Plan;
pub use step::{Step, Target, Timed};

use leasehold::decide::scope::LeaseScope;
use leasehold::decide::timing::Rules;

/// How seeds become cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Virtual minutes of one case, two at least; settling at its end may take longer.
    pub minutes: u64,
    /// Faults reach beyond what the protocol allows for.
    pub beyond: bool,
    /// The protocol's rules: all, but for tests that show that the simulation notices when one is missing.
    pub rules: Rules,
    /// What is leased; `None`: one or the other, seed by seed.
    pub scope: Option<LeaseScope>,
}

impl Default for Options {
    fn default() -> Self {
        Self { minutes: 10, beyond: false, rules: Rules::default(), scope: None }
    }
}
