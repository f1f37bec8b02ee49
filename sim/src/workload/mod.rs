//! What the world does with the product: people edit rows, upstreams send, close and refuse.
//!
//! - [`edits`]: hand edits of rows
//! - [`feeds`]: the upstreams; [`sockets`]: how workers reach them

pub mod edits;
pub mod feeds;
pub mod sockets;

pub use edits::{Edit, Editor};
pub use feeds::Feeds;
