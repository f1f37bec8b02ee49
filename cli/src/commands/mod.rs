//! The commands of an operator: each reads or writes rows, and prints.

pub mod assemble;
pub mod get;
pub mod list;
pub mod messages;
pub mod start;
pub mod stop;
pub mod view;
pub mod workers;

use leasehold::aws::Store;
use leasehold::model::ConnectionId;

/// Reads the id of a connection on the command line.
///
/// # Errors
/// What an id is made of.
pub fn connection_id(text: &str) -> Result<ConnectionId, String> {
    ConnectionId::new(text).map_err(|error| error.to_string())
}

/// Lease time after an answer, for ages: its lower end, and this machine's clock where an answer carried no date.
#[must_use]
pub fn now_ms(store: &Store) -> u64 {
    store.time().now().map_or_else(|| store.time().clock().wall_ms(), |now| now.lower_ms)
}
