//! Pure decisions: (snapshot, now, rng) -> actions. No I/O, no clock, no async; the lints below and `clippy.toml` say so.
//!
//! - [`timing`]: the numbers of the protocol, and the rules that the demonstration can take out
//! - [`scope`]: what is leased, a worker's session or each row by itself, and all that differs
//! - [`lease_time`]: DynamoDB's clock, estimated from the Date header of its answers
//! - [`renewal`]: what a worker makes of a renewal's answer; its own deadline
//! - [`acquire`]: what a worker does with a claim, a mark, or the answer to an acquire
//! - [`desired`]: what a change of a row asks for
//! - [`reconcile`]: who is fenced, what is claimed, reaped and stamped
//! - [`backoff`]: when to try an upstream again; [`outcome`]: whether to
//! - [`series`]: where a new owner goes on, and under which key a message is stored
//! - [`admission`]: how many claims a worker takes
#![deny(clippy::disallowed_methods, clippy::disallowed_types, clippy::disallowed_macros)]
#![deny(clippy::unused_async, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod acquire;
pub mod admission;
pub mod backoff;
pub mod desired;
pub mod lease_time;
pub mod outcome;
pub mod reconcile;
pub mod renewal;
pub mod scope;
pub mod series;
pub mod timing;
