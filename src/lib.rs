//! The shared library of Leasehold: what the worker, the functions, the command and the tests have in common.
//!
//! | module | what is in it |
//! | --- | --- |
//! | [`model`] | the stored format: ids, rows, messages, claims |
//! | [`decide`] | pure decisions: (snapshot, now, rng) -> actions; no I/O, no clock, no async |
//! | [`aws`] | the only users of the AWS SDK: reads snapshots, applies actions |
//! | [`settings`] | environment variables, read once in `main` |
//! | [`logging`] | JSON lines without secrets |
//! | [`clock`] | the two clocks a process has |

pub mod aws;
pub mod clock;
pub mod decide;
pub mod logging;
pub mod model;
pub mod settings;
