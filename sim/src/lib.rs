//! The simulated cluster: real workers, the real functions and the real adapters over the embedded engine and queue, on one virtual time and
//! one seed.
//!
//! - [`case`]: what a seed stands for: a configuration and a schedule, as data
//! - [`workload`]: what people and upstreams do
//! - [`cluster`]: processes and the world, moved together in small steps
//! - [`faults`]: what goes wrong
//! - [`ledger`]: what really happened; [`invariants`]: what must be so
//! - [`campaign`]: many seeds, side by side; [`summary`]: what they came to; [`shrink`]: from a broken promise to a short schedule
//! - [`memory_socket`]: sockets without a network, for tests too
//! - [`time`]: the world's time, and each process's own clocks

pub mod campaign;
pub mod case;
pub mod cluster;
pub mod faults;
pub mod invariants;
pub mod ledger;
pub mod memory_socket;
pub mod shrink;
pub mod summary;
pub mod time;
pub mod workload;

pub use campaign::{Campaign, run_seed, run_seeds};
pub use case::{Options, Plan};
pub use cluster::{Outcome, run};
pub use summary::Summary;
