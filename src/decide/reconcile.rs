//! What a run of reconcile does, decided from what it has read.
//!
//! - [`silence`]: who is fenced, and who is only suspected
//! - [`over`]: what becomes of the connections and the rows of sessions that are over
//! - [`sweep`]: what no index shows
//! - [`unreadable`]: what becomes of sessions whose rows cannot be read
//! - [`turns`]: how claims are spread over time

pub mod over;
pub mod silence;
pub mod sweep;
pub mod turns;
pub mod unreadable;

pub use over::{IndexRow, Keep};
pub use silence::{Evidence, Look, Looks, SessionAction, look};
pub use turns::{Turns, some_of};
