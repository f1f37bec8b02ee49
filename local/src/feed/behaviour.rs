//! How the feed misbehaves on request: set while it runs, for all channels or for one.

use std::collections::HashMap;

/// Whom a call of the handle is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'a> {
    /// Every channel, present and future.
    All,
    /// The channel with this id.
    Channel(&'a str),
}

/// What becomes of a handshake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OnHandshake {
    /// It is answered with 101.
    #[default]
    Accept,
    /// It is answered with this status, such as 401, 429 or 503.
    Refuse {
        /// The HTTP status.
        status: u16,
        /// The `Retry-After` header (RFC 9110, section 10.2.3), in seconds.
        retry_after_s: Option<u32>,
    },
    /// TCP is accepted, the request read, and nothing is ever answered.
    Silence,
    /// It is answered with 101, and a close frame with this code and reason follows at once.
    CloseAfterOpen {
        /// The close code (RFC 6455, section 7.4).
        code: u16,
        /// The reason in the close frame, cut to 123 bytes.
        reason: String,
    },
}

/// How a channel (or every channel) behaves. The default is to behave well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Behaviour {
    /// What becomes of a handshake.
    pub on_handshake: OnHandshake,
    /// The answer to a handshake waits this long.
    pub handshake_delay_ms: u64,
    /// Nothing is written to sockets. Messages are still emitted and kept, and written once this ends; a socket that
    /// is further behind by then than the channel keeps is closed as slow.
    pub paused: bool,
    /// Open sockets: of the whole feed in the behaviour of all, of the channel in its own. One more is answered 503.
    pub max_connections: Option<usize>,
}

/// How sockets are dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DropHow {
    /// TCP reset, no close frame.
    Reset,
    /// TCP end of stream, no close frame.
    Eof,
    /// A close frame, then the peer's answer (or the grace time), then the end of the TCP stream.
    Close {
        /// The close code (RFC 6455, section 7.4).
        code: u16,
        /// The reason in the close frame, cut to 123 bytes.
        reason: String,
    },
}

/// All behaviours in force.
#[derive(Clone, Debug, Default)]
pub(super) struct Behaviours {
    all: Behaviour,
    channels: HashMap<String, Behaviour>,
}

impl Behaviours {
    /// The channel's own behaviour if it has one, otherwise that of all.
    pub(super) fn of(&self, channel: &str) -> &Behaviour {
        self.channels.get(channel).unwrap_or(&self.all)
    }

    /// The limit of the whole feed, and the channel's own.
    pub(super) fn limits(&self, channel: &str) -> (Option<usize>, Option<usize>) {
        let own = self.channels.get(channel).and_then(|behaviour| behaviour.max_connections);
        (self.all.max_connections, own)
    }

    pub(super) fn set(&mut self, scope: Scope<'_>, behaviour: Behaviour) {
        match scope {
            Scope::All => self.all = behaviour,
            Scope::Channel(id) => {
                self.channels.insert(id.to_owned(), behaviour);
            }
        }
    }

    /// Forgets the channel's own behaviour; for all, forgets every behaviour.
    pub(super) fn clear(&mut self, scope: Scope<'_>) {
        match scope {
            Scope::All => *self = Self::default(),
            Scope::Channel(id) => {
                self.channels.remove(id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channels_own_behaviour_hides_that_of_all_but_not_the_limit_of_the_feed() {
        let mut behaviours = Behaviours::default();
        behaviours.set(Scope::All, Behaviour { paused: true, max_connections: Some(9), ..Behaviour::default() });
        behaviours.set(Scope::Channel("a"), Behaviour { max_connections: Some(1), ..Behaviour::default() });
        assert!(!behaviours.of("a").paused);
        assert!(behaviours.of("b").paused);
        assert_eq!(behaviours.limits("a"), (Some(9), Some(1)));
        assert_eq!(behaviours.limits("b"), (Some(9), None));
        behaviours.clear(Scope::Channel("a"));
        assert!(behaviours.of("a").paused);
    }
}
