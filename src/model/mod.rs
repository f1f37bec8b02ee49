//! The stored format, in one place: ids, rows, messages, claims.
//!
//! Rows are [`serde_dynamo::Item`]s, which both the AWS SDK and stream events convert to, so the format is read by one code path.

pub mod claim;
pub mod connection;
pub mod fields;
pub mod hash;
pub mod ids;
pub mod message;
pub mod session;
pub mod spec;

pub use claim::Claim;
pub use connection::{Connection, DesiredState, Lease, ObservedState, Progress};
pub use fields::RowError;
pub use ids::{ConnectionId, IdError, SessionId};
pub use message::{Feed, MessageKey, Series};
pub use serde_dynamo::{AttributeValue, Item};
pub use session::{Marks, Session, SessionState, Suspicion};
pub use spec::Spec;
