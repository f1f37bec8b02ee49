//! The only users of the AWS SDK: configuration, the table, the queues, the view of ECS.
//!
//! Adapters read snapshots and apply actions; they decide nothing. Every conditional write asks for the item that was there when it is
//! refused, and hands it to a pure decision.

pub mod apply;
pub mod connections;
pub mod date;
pub mod error;
#[cfg(feature = "fleet")]
pub mod fleet;
pub mod messages;
pub mod owners;
pub mod queues;
pub mod sdk;
pub mod sessions;
pub mod store;
pub mod together;
pub mod update;
pub mod user;

pub use error::StoreError;
pub use store::{Store, Tables, Written};
