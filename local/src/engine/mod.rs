//! A real DynamoDB engine behind the AWS SDK, without a socket, and the truth about what it applied.
//!
//! Everything here and in [`crate::faults`] is an `HttpConnector`; layers are put around one another and the outermost
//! one is handed to the SDK by [`clients`] (or by [`ConnectorClient`]) and to other processes by [`crate::front`].
//! The usual order, from the caller inwards: `Faulty`, `StaleIndexes`, `WriteLimit`, `Meter`, `EmbeddedDynamo`.
//!
//! - [`EmbeddedDynamo`]: the engine
//! - [`meter`]: what was applied, and what it cost
//! - [`wire`]: requests and answers of AWS's JSON protocols
//! - [`clients`]: SDK clients over a connector

pub mod clients;
mod dispatch;
mod dynamo;
pub mod meter;
mod records;
pub mod wire;

pub use clients::ConnectorClient;
pub use dynamo::{EmbeddedDynamo, EngineError};
