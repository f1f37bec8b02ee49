//! What the log is made of. All times are milliseconds of the feed's monotonic clock.
//!
//! Serialized, the names are those of the fields; a choice is its name in snake case, as `"eof"` or `{"close_frame":{"code":1000}}`.

use serde::Serialize;
use std::net::SocketAddr;
use std::sync::Arc;

/// A socket's number, unique within a feed.
pub type SocketId = u64;

/// One message that a channel emitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Emitted {
    /// The sequence number (also of channels that do not send it).
    pub seq: u64,
    /// The payload id: unique within a feed.
    pub payload: Arc<str>,
    /// When it was emitted.
    pub at_ms: u64,
    /// The channel was started. (Only [`super::Feed::emit`] emits on a channel that is not.)
    pub while_started: bool,
}

/// One message handed to the kernel for one socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Written {
    /// The payload id.
    pub payload: Arc<str>,
    /// The socket.
    pub socket: SocketId,
    /// When the write had ended.
    pub at_ms: u64,
}

/// Why the feed itself ended a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OurReason {
    /// The handle asked for it.
    Asked,
    /// The behaviour was to close after opening.
    AfterOpen,
    /// The client read too slowly.
    SlowConsumer,
    /// The client broke the protocol, or a message was too large to send.
    Protocol,
    /// The feed was stopped.
    Stopped,
}

/// How a socket ended, as the feed saw it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SocketEnd {
    /// The peer sent a close frame, with this code if it had one.
    CloseFrame {
        /// The close code (RFC 6455, section 7.4).
        code: Option<u16>,
    },
    /// The peer's TCP stream ended without a close frame: what the kernel does for a killed process that had read everything.
    Eof,
    /// TCP reset.
    Reset,
    /// The feed ended it.
    Ours(OurReason),
}

/// Where a client asked to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Resume {
    /// The last sequence number that the client says it has.
    pub from_seq: u64,
    /// Some messages after that were not kept any more: the client has missed them.
    pub trimmed: bool,
}

/// One open or closed socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SocketRecord {
    /// Its number.
    pub id: SocketId,
    /// The client's address.
    pub peer: SocketAddr,
    /// Path and query of the request.
    pub target: String,
    /// Names of the request's headers, never their values.
    pub header_names: Vec<String>,
    /// Just before the 101 answer was written.
    pub opened_at_ms: u64,
    /// When the feed saw the end; `None` while open.
    pub closed_at_ms: Option<u64>,
    /// How it ended.
    pub end: Option<SocketEnd>,
    /// The resume position that was honoured, if any (the last one if there were two).
    pub resume: Option<Resume>,
}

/// What became of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HandshakeResult {
    /// Not decided yet.
    Pending,
    /// 101, and the socket that it became.
    Accepted(SocketId),
    /// Refused with this status, because the behaviour says so.
    Refused(u16),
    /// A limit on connections or channels was reached: 503.
    TooMany,
    /// The behaviour was silence: held until the client gave up.
    Silent,
    /// Not a WebSocket request: 400.
    BadRequest,
    /// Not a path of the feed: 404.
    NotFound,
    /// The client went away first.
    PeerGone,
    /// The request did not arrive in time.
    TimedOut,
    /// Reset without a look at it: no room for another TCP connection.
    Overloaded,
    /// The feed was stopped meanwhile.
    Stopped,
}

/// One attempt to connect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Handshake {
    /// When TCP was accepted.
    pub at_ms: u64,
    /// When it was answered (or given up); `None` while pending.
    pub answered_at_ms: Option<u64>,
    /// The channel, once the request named one.
    pub channel: Option<Arc<str>>,
    /// The client's address.
    pub peer: SocketAddr,
    /// What became of it.
    pub result: HandshakeResult,
}

/// A copy of one channel's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChannelRecords {
    /// The channel's id.
    pub id: Arc<str>,
    /// Messages, oldest first.
    pub emitted: Vec<Emitted>,
    /// Writes to sockets, oldest first.
    pub written: Vec<Written>,
    /// Sockets, by the time they opened.
    pub sockets: Vec<SocketRecord>,
    /// Records that the bounds of the log pushed out. Anything but 0 means that an analysis is incomplete.
    pub forgotten: u64,
}

/// A copy of the whole log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FeedRecords {
    /// Channels by id.
    pub channels: Vec<ChannelRecords>,
    /// Attempts to connect, oldest first.
    pub handshakes: Vec<Handshake>,
    /// Attempts that the bound pushed out.
    pub handshakes_forgotten: u64,
}

impl FeedRecords {
    /// The channel with this id.
    #[must_use]
    pub fn channel(&self, id: &str) -> Option<&ChannelRecords> {
        self.channels.iter().find(|channel| &*channel.id == id)
    }
}
