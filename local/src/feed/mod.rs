//! An upstream: a WebSocket server whose own log is the truth of a run.
//!
//! Each id has a channel at `/feed/{id}` that emits one message per interval while it is *started*, whether or not anyone
//! is connected: `{"id":"<id>","seq":N,"payload":"<id>-N","sent_at_ms":T}` (T by the machine's wall clock). A client that
//! says what it has (`?from=N`, the header `x-resume-from: N`, or a first text message `{"resume":N}`) gets every kept
//! message after it, in order, then live ones; others get live ones. A resume message that comes later than
//! `resume_wait_ms` goes back too, so that some messages arrive twice.
//!
//! - [`settings`]: intervals, replay, numbering, all bounds
//! - [`behaviour`]: refusals, silence, delays, pauses, limits: set while the feed runs
//! - [`records`], [`log`]: what happened; [`analysis`]: what it means
//! - `server`, `request`: handshakes; `socket`: one socket; `channel`: one channel; `registry`: the open sockets
//!
//! Times in the log are those at which the feed saw something. A feed that is short of CPU sees ends and openings late, and
//! may see them in another order: an overlap of a few milliseconds on a loaded machine is such a delay.
pub mod analysis;
pub mod behaviour;
mod channel;
pub mod log;
pub mod records;
mod registry;
mod request;
mod server;
pub mod settings;
mod socket;

pub use behaviour::{Behaviour, DropHow, OnHandshake, Scope};
pub use log::FeedLog;
pub use settings::{ChannelSettings, FeedSettings};

use leasehold::clock::SharedClock;
use log::lock;
use server::Server;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::Message;

/// The handle of a running feed. It runs until [`Feed::stop`] or the end of the runtime, not until the handle is dropped.
#[derive(Clone, Debug)]
pub struct Feed {
    server: Arc<Server>,
    address: SocketAddr,
}

impl Feed {
    /// Serves on `listener`. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// If the listener has no local address.
    pub fn start(listener: TcpListener, clock: SharedClock, settings: FeedSettings) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        let server = Arc::new(Server {
            clock,
            log: Arc::new(FeedLog::new(settings.log)),
            settings,
            channels: Mutex::default(),
            registry: Mutex::default(),
            behaviours: watch::Sender::default(),
            stopped: watch::Sender::new(false),
            origin: Instant::now(),
        });
        tokio::spawn(server::accept_loop(Arc::clone(&server), listener));
        Ok(Self { server, address })
    }

    /// Where the feed listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of a channel. The id goes into the path as it is: letters, digits and `-._~:@` are safe, at most 256 bytes.
    #[must_use]
    pub fn url(&self, id: &str) -> String {
        format!("ws://{}/feed/{id}", self.address)
    }

    /// The log, which may be read at any time.
    #[must_use]
    pub fn log(&self) -> Arc<FeedLog> {
        Arc::clone(&self.server.log)
    }

    /// Starts or stops a channel. One that was never told starts with its first client.
    /// Returns whether the channel exists (there may be too many: [`FeedSettings::max_channels`]).
    pub fn set_started(&self, id: &str, started: bool) -> bool {
        let channel = self.server.channel(id);
        channel.map(|channel| channel.set_started(started)).is_some()
    }

    /// Starts or stops every channel that there is. One that is named later starts with its first client all the same.
    /// Returns how many channels there are.
    pub fn set_all_started(&self, started: bool) -> usize {
        let channels: Vec<_> = lock(&self.server.channels).values().cloned().collect();
        for channel in &channels {
            channel.set_started(started);
        }
        channels.len()
    }

    /// Emits one message now, started or not. Returns as [`Self::set_started`].
    pub fn emit(&self, id: &str) -> bool {
        let channel = self.server.channel(id);
        channel.map(|channel| channel.emit(false)).is_some()
    }

    /// The channel numbers on from `first_seq` and forgets what it kept, as an upstream that lost its history.
    /// Payload ids stay unique (`<id>-r1-N` after the first reset). Returns as [`Self::set_started`].
    pub fn reset_sequence(&self, id: &str, first_seq: u64) -> bool {
        let channel = self.server.channel(id);
        channel.map(|channel| channel.reset_sequence(first_seq)).is_some()
    }

    /// How a channel, or every channel without a behaviour of its own, behaves from now on.
    pub fn set_behaviour(&self, scope: Scope<'_>, behaviour: Behaviour) {
        self.server.behaviours.send_modify(|behaviours| Arc::make_mut(behaviours).set(scope, behaviour));
    }

    /// Forgets the channel's own behaviour; for [`Scope::All`] forgets every behaviour.
    pub fn clear_behaviour(&self, scope: Scope<'_>) {
        self.server.behaviours.send_modify(|behaviours| Arc::make_mut(behaviours).clear(scope));
    }

    /// Drops open sockets; returns how many were told to end.
    pub fn drop_sockets(&self, scope: Scope<'_>, how: &DropHow) -> usize {
        lock(&self.server.registry).end(scope, how, false)
    }

    /// Sends a text that is no message of the channel, even while paused. Returns how many sockets had room for it.
    /// It is in no log.
    pub fn send_text(&self, scope: Scope<'_>, text: &str) -> usize {
        lock(&self.server.registry).send_raw(scope, &Message::text(text))
    }

    /// As [`Self::send_text`], with a binary message (at most 4 MiB).
    pub fn send_binary(&self, scope: Scope<'_>, bytes: &[u8]) -> usize {
        lock(&self.server.registry).send_raw(scope, &Message::binary(bytes.to_vec()))
    }

    /// Open sockets now.
    #[must_use]
    pub fn open_sockets(&self, scope: Scope<'_>) -> usize {
        let registry = lock(&self.server.registry);
        match scope {
            Scope::All => registry.open_sockets(),
            Scope::Channel(id) => registry.open_on(id),
        }
    }

    /// Open sockets now of each channel that has any.
    #[must_use]
    pub fn open_by_channel(&self) -> BTreeMap<Arc<str>, usize> {
        lock(&self.server.registry).open_by_channel()
    }

    /// Stops channels, closes the listener, and closes every socket with code 1001. Takes twice the grace time at most.
    pub async fn stop(&self) {
        self.server.stop().await;
    }
}
