//! What a feed is told once, at its start. Every bound of the feed is here.

use super::log::LogLimits;
use std::sync::Arc;

/// The largest payload of a channel; a larger setting is cut to this.
pub const MAX_PAYLOAD_BYTES: usize = 1024 * 1024;

/// How one channel behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelSettings {
    /// Time between two messages. At least 1 ms.
    pub interval_ms: u64,
    /// A client that names the last sequence number it has gets every kept message after it, in order, and then live ones.
    pub replay: bool,
    /// Messages carry a `seq`. Without it they still carry their payload id.
    pub numbered: bool,
    /// The sequence number of the first message.
    pub first_seq: u64,
    /// Messages are padded up to about this size (a `pad` field), at most [`MAX_PAYLOAD_BYTES`]. 0: no padding.
    pub payload_bytes: usize,
    /// How long a replaying channel sends nothing to a client that named no position in its request: its first text
    /// message may still be `{"resume":N}`. What is emitted meanwhile is only late, not lost.
    pub resume_wait_ms: u64,
}

impl Default for ChannelSettings {
    fn default() -> Self {
        Self { interval_ms: 1_000, replay: true, numbered: true, first_seq: 1, payload_bytes: 0, resume_wait_ms: 100 }
    }
}

/// The settings of a channel by its id.
pub type ChannelSettingsOf = Arc<dyn Fn(&str) -> ChannelSettings + Send + Sync>;

/// The settings of a feed.
#[derive(Clone)]
pub struct FeedSettings {
    /// Asked once for each id, when the id is first named by a client or by the handle.
    pub channel: ChannelSettingsOf,
    /// How many channels there may be. A request for one more is answered 503.
    pub max_channels: usize,
    /// How many sockets may be open at once. One more is answered 503. (Connections in their handshake, or held
    /// unanswered, have as much room again; beyond that they are reset.)
    pub max_connections: usize,
    /// Messages that a replaying channel keeps. A resume from before them starts at the oldest kept one, and the log
    /// says so.
    pub history_messages: usize,
    /// Messages that a channel without replay keeps: how far a socket may fall behind before it is closed as slow.
    pub live_messages: usize,
    /// A write that takes longer closes the socket as slow.
    pub write_timeout_ms: u64,
    /// How long a request head may take to arrive.
    pub handshake_timeout_ms: u64,
    /// After a close frame of ours: how long the peer has to answer before the socket is dropped.
    pub close_grace_ms: u64,
    /// The feed pings each client this often. `None`: never (pings of clients are always answered).
    pub ping_interval_ms: Option<u64>,
    /// The bounds of the log.
    pub log: LogLimits,
}

impl Default for FeedSettings {
    fn default() -> Self {
        Self::same_for_all(ChannelSettings::default())
    }
}

impl FeedSettings {
    /// Settings where every channel is alike.
    #[must_use]
    pub fn same_for_all(channel: ChannelSettings) -> Self {
        Self::with_channels(move |_| channel.clone())
    }

    /// Settings where `channel` tells how each id behaves.
    pub fn with_channels(channel: impl Fn(&str) -> ChannelSettings + Send + Sync + 'static) -> Self {
        Self {
            channel: Arc::new(channel),
            max_channels: 50_000,
            max_connections: 20_000,
            history_messages: 100_000,
            live_messages: 1_024,
            write_timeout_ms: 10_000,
            handshake_timeout_ms: 10_000,
            close_grace_ms: 1_000,
            ping_interval_ms: None,
            log: LogLimits::default(),
        }
    }
}

impl std::fmt::Debug for FeedSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FeedSettings")
            .field("max_channels", &self.max_channels)
            .field("max_connections", &self.max_connections)
            .field("history_messages", &self.history_messages)
            .field("live_messages", &self.live_messages)
            .finish_non_exhaustive()
    }
}
