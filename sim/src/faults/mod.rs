//! What goes wrong.
//!
//! - [`Kind`]: everything, by name
//! - [`spells`]: what is wrong right now
//! - [`weather`]: what is wrong on one way to AWS; [`line`]: that way
//! - [`functions`]: what is wrong with events and invocations

pub mod functions;
pub mod kind;
pub mod line;
pub mod spells;
pub mod weather;

pub use kind::Kind;
pub use spells::{Spell, Spells};
