//! The cluster of one case: processes and the world, each on a runtime of its own, moved together in small steps.
//!
//! - [`lane`]: a runtime whose time the driver moves
//! - [`aws`]: engine and queue, the functions behind their event sources
//! - [`process`]: a worker process
//! - [`driver`]: moves everything and carries out the plan; [`doing`]: each step of the plan

pub mod aws;
mod doing;
pub mod driver;
pub mod lane;
pub mod process;

pub use driver::{Outcome, run};
