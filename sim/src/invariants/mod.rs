//! What must always be so, checked at each applied write, at each socket and after each step. Each has a name in plain words.
//!
//! - [`rows`]: owners and epochs; [`sessions`]: leases; [`messages`]: what is stored
//! - [`sockets`]: one at a time
//! - [`timed`]: what must become so within some time; [`calm`]: what must become so when nothing goes wrong any more

pub mod calm;
pub mod messages;
pub mod rows;
pub mod sessions;
pub mod sockets;
pub mod timed;

/// A row changes owner only when its former owner is over.
pub const FENCE_FIRST: &str = "a row changes owner only after its former owner is over";
/// Epochs rise, also over deletion and re-creation.
pub const EPOCHS_RISE: &str = "epochs rise with every change of owner";
/// A pair of owner and epoch never repeats.
pub const PAIRS: &str = "a pair of owner and epoch never repeats";
/// Nobody writes to a row that names another.
pub const OWNER_WRITES: &str = "only its owner writes to an owned row";
/// No write makes a row.
pub const NO_UPSERT: &str = "no write makes a row or a session that is not there";
/// The socket is closed before the lease is given up.
pub const CLOSE_FIRST: &str = "a socket is closed before its lease is given up";
/// A lease never moves back.
pub const LEASE_FORWARD: &str = "a renewal never moves a lease back";
/// What is over stays over.
pub const OVER_IS_OVER: &str = "a session that is over stays as it is";
/// No session is fenced that renewed in time.
pub const NO_FENCE: &str = "no session of a process that ran and was not cut off is fenced";
/// No session is given up that is good.
pub const NOT_GIVEN_UP: &str = "no worker gives up a lease that is good";
/// No row is given up whose own lease is good.
pub const ROW_NOT_GIVEN_UP: &str = "no worker drops a row whose own lease is good";
/// One socket at a time.
pub const ONE_SOCKET: &str = "at most one open socket for a connection";
/// A socket opens under a lease that was taken for it.
pub const FRESH_ACQUIRE: &str = "a socket opens only under an epoch that was acquired after the last doubt";
/// One number, one key.
pub const ONE_KEY: &str = "no number is stored under two keys";
/// In order.
pub const IN_ORDER: &str = "no message is stored before its predecessor";
/// What is stored stays.
pub const STAYS: &str = "a stored message is never changed";
/// The checkpoint follows.
pub const CHECKPOINT: &str = "last_seq never runs ahead of what is stored";
/// STOPPED closes the socket.
pub const STOPPED: &str = "STOPPED closes the socket within 10 s while nothing goes wrong";
/// STOPPED closes the socket, also where requests are slow.
pub const STOPPED_SLOWLY: &str = "STOPPED closes the socket within 30 s while requests are slow at most";
/// A new URL is opened, also where requests are slow.
pub const REOPENED_SLOWLY: &str = "a new URL is opened within 40 s while requests are slow at most";
/// STARTED opens a socket.
pub const STARTED: &str = "STARTED opens a socket within 15 s while nothing goes wrong";
/// Who takes a row works on it.
pub const OPENS: &str = "who acquires a row opens its socket within 12 s, also where answers are lost";
/// Rows of over sessions find an owner.
pub const STRANDED: &str = "a row of an over session is claimed again within 45 s while reconcile and a worker work";
/// It settles.
pub const SETTLES: &str = "when nothing goes wrong any more, everything settles";
/// Nothing is lost.
pub const NOTHING_LOST: &str = "no message that was published for a started row is missing in the end";
