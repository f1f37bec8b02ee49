//! The worker: holds sockets and renews leases, and nothing else.
//!
//! - [`entry`]: the one way in, for the binary, the demonstration and `leasehold local`
//! - [`settings`]: environment variables; [`health`]: the health check; [`task`]: which ECS task this is
//! - [`run`]: sessions one after the other, until SIGTERM; `ending`: how each of them ends; `stop`: the order to stop, as everybody hears it
//! - [`keeper`]: registers, renews, reads marks, on a runtime of its own; [`guard`]: how far the lease may be trusted right now; `pace`: when
//!   renewals are sent
//! - [`claims`]: takes claims while there is room; [`compare`]: what is held against what the table says
//! - [`supervisor`]: one [`slot`] a connection, which acquires (`acquire`), holds (`hold`, `watch`), and gives up (`release`); `row_keeper`:
//!   renews each row, where rows are leased by themselves
//! - [`driver`]: the socket of a slot, over a [`connector`]; [`writer`]: its messages, in order; [`status`]: what is said of it, seldom

mod acquire;
pub mod claims;
pub mod compare;
pub mod connector;
pub mod context;
pub mod counters;
pub mod driver;
mod ending;
pub mod entry;
pub mod guard;
pub mod health;
mod hold;
pub mod keeper;
mod pace;
mod plain_http;
mod release;
mod row_keeper;
pub mod run;
pub mod settings;
pub mod slot;
pub mod status;
pub mod stop;
pub mod supervisor;
pub mod task;
mod watch;
pub mod writer;
