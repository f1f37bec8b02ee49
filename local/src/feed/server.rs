//! Accepting connections and their handshakes.

use super::behaviour::{Behaviours, DropHow, OnHandshake, Scope};
use super::channel::Channel;
use super::log::{FeedLog, lock};
use super::records::{HandshakeResult, SocketRecord};
use super::registry::{Orders, Registry};
use super::request::{self, HeadError};
use super::settings::FeedSettings;
use super::socket::Socket;
use leasehold::clock::SharedClock;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::server::Request;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

/// After a failed accept (no descriptors, most likely).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What all tasks of a feed share.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) clock: SharedClock,
    pub(super) settings: FeedSettings,
    pub(super) log: Arc<FeedLog>,
    pub(super) channels: Mutex<HashMap<Arc<str>, Arc<Channel>>>,
    pub(super) registry: Mutex<Registry>,
    pub(super) behaviours: watch::Sender<Arc<Behaviours>>,
    pub(super) stopped: watch::Sender<bool>,
    pub(super) origin: Instant,
}

/// Ends with the feed.
pub(super) async fn accept_loop(server: Arc<Server>, listener: TcpListener) {
    let mut stopped = server.stopped.subscribe();
    let room = Arc::new(Semaphore::new(server.settings.max_connections.saturating_mul(2).min(Semaphore::MAX_PERMITS)));
    loop {
        let accepted = tokio::select! {
            _ = stopped.wait_for(|&stopped| stopped) => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((tcp, peer)) = accepted else {
            tracing::warn!("the feed cannot accept a connection: raise the limit of open files");
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let attempt = server.log.attempt(peer, server.clock.mono_ms());
        let Ok(place) = Arc::clone(&room).try_acquire_owned() else {
            let _ = tcp.set_zero_linger(); // on failure it is an EOF
            server.log.answered(attempt, None, HandshakeResult::Overloaded, server.clock.mono_ms());
            continue;
        };
        let server = Arc::clone(&server);
        tokio::spawn(async move {
            Arc::clone(&server).connection(tcp, peer, attempt).await;
            drop(place);
        });
    }
}

impl Server {
    /// The channel of this id, made if there is room for it.
    pub(super) fn channel(&self, id: &str) -> Option<Arc<Channel>> {
        let mut channels = lock(&self.channels);
        if let Some(channel) = channels.get(id) {
            return Some(Arc::clone(channel));
        }
        if channels.len() >= self.settings.max_channels {
            return None;
        }
        let id: Arc<str> = Arc::from(id);
        let settings = (self.settings.channel)(&id);
        let keep = if settings.replay { self.settings.history_messages } else { self.settings.live_messages };
        let clock = Arc::clone(&self.clock);
        let channel = Channel::new(Arc::clone(&id), settings, keep, self.log.channel(&id), clock, self.origin);
        let channel = Arc::new(channel);
        channels.insert(id, Arc::clone(&channel));
        Some(channel)
    }

    /// One TCP connection: handshake, then socket.
    async fn connection(self: Arc<Self>, mut tcp: TcpStream, peer: SocketAddr, attempt: u64) {
        let _ = tcp.set_nodelay(true); // without it messages are only slower
        let mut stopped = self.stopped.subscribe();
        let mut id = None;
        let handshake = tokio::select! {
            _ = stopped.wait_for(|&stopped| stopped) => Err(HandshakeResult::Stopped),
            handshake = self.handshake(&mut tcp, peer, &mut id) => handshake,
        };
        let (id_now, at_ms) = (id.clone(), self.clock.mono_ms());
        let opened = match handshake {
            Ok(opened) => opened,
            Err(result) => {
                self.log.answered(attempt, id_now, result, at_ms);
                return;
            }
        };
        self.log.answered(attempt, id_now, HandshakeResult::Accepted(opened.socket.id), at_ms);
        let socket_id = opened.socket.id;
        // Not cancelled by a stop: the socket has a place now, and gets its order to end there. It is a small write to an
        // empty buffer, and if the peer is gone, the first read says so.
        let _ = tcp.write_all(&opened.answer).await;
        let stream = WebSocketStream::from_partially_read(tcp, opened.early, Role::Server, Some(limits())).await;
        opened.socket.run(stream, opened.orders, opened.close_at_once).await;
        lock(&self.registry).close(socket_id);
    }

    /// Reads the request and refuses it or takes a place for it, as the behaviour says. `Err` is what is left to be logged.
    async fn handshake(
        &self,
        tcp: &mut TcpStream,
        peer: SocketAddr,
        channel_id: &mut Option<Arc<str>>,
    ) -> Result<Opened, HandshakeResult> {
        let head_time = Duration::from_millis(self.settings.handshake_timeout_ms);
        let (request, early) = match timeout(head_time, request::read_head(tcp)).await {
            Ok(Ok(head)) => head,
            Ok(Err(HeadError::Bad)) => return Err(refuse(tcp, 400, None, HandshakeResult::BadRequest).await),
            Ok(Err(HeadError::Gone)) => return Err(HandshakeResult::PeerGone),
            Err(_) => return Err(HandshakeResult::TimedOut),
        };
        let Some(id) = request::channel_id(&request) else {
            return Err(refuse(tcp, 404, None, HandshakeResult::NotFound).await);
        };
        let behaviour = self.behaviours.borrow().of(id).clone();
        let Some(channel) = self.channel(id) else {
            return Err(refuse(tcp, 503, None, HandshakeResult::TooMany).await);
        };
        *channel_id = Some(Arc::clone(&channel.id));
        if behaviour.on_handshake == OnHandshake::Silence {
            until_gone(tcp).await;
            return Err(HandshakeResult::Silent);
        }
        let delay = Duration::from_millis(behaviour.handshake_delay_ms);
        if !delay.is_zero() && timeout(delay, until_gone(tcp)).await.is_ok() {
            return Err(HandshakeResult::PeerGone);
        }
        if let OnHandshake::Refuse { status, retry_after_s } = behaviour.on_handshake {
            return Err(refuse(tcp, status, retry_after_s, HandshakeResult::Refused(status)).await);
        }
        let Some(answer) = request::switching_protocols(&request) else {
            return Err(refuse(tcp, 400, None, HandshakeResult::BadRequest).await);
        };
        let Some(mut opened) = self.open(channel, &request, peer) else {
            return Err(refuse(tcp, 503, None, HandshakeResult::TooMany).await);
        };
        if let OnHandshake::CloseAfterOpen { code, reason } = behaviour.on_handshake {
            opened.close_at_once = Some(DropHow::Close { code, reason });
        }
        opened.early = early;
        opened.answer = answer;
        Ok(opened)
    }

    /// Takes a place, starts the channel if it is its first client, and logs the socket as open.
    fn open(&self, channel: Arc<Channel>, request: &Request, peer: SocketAddr) -> Option<Opened> {
        let behaviours = self.behaviours.subscribe();
        let (all, own) = behaviours.borrow().limits(&channel.id);
        let feed_limit = all.unwrap_or(usize::MAX).min(self.settings.max_connections);
        let place = lock(&self.registry).open(&channel.id, feed_limit, own.unwrap_or(usize::MAX));
        let (id, orders) = place?;
        let asked = request::resume_from(request).filter(|_| channel.settings.replay);
        let (position, resume) = match asked {
            Some(from_seq) => {
                let (position, resume) = channel.resume_position(from_seq);
                (position, Some(resume))
            }
            None => (channel.live_position(), None),
        };
        let target = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
        let header_names = request.headers().keys().map(ToString::to_string).collect();
        let opened_at_ms = self.clock.mono_ms();
        let record =
            SocketRecord { id, peer, target, header_names, opened_at_ms, closed_at_ms: None, end: None, resume };
        channel.log.opened(record);
        channel.connected();
        let positioned = resume.is_some() || !channel.settings.replay;
        let (clock, settings) = (Arc::clone(&self.clock), self.settings.clone());
        let socket = Socket { id, channel, clock, settings, behaviours, position, positioned };
        Some(Opened { socket, orders, answer: Vec::new(), early: Vec::new(), close_at_once: None })
    }

    /// Ends everything; waits for sockets to close, at most twice the grace time.
    pub(super) async fn stop(&self) {
        self.stopped.send_replace(true);
        for channel in lock(&self.channels).values() {
            channel.set_started(false);
        }
        let how = DropHow::Close { code: 1001, reason: "the feed stops".to_owned() };
        let mut left_ms = self.settings.close_grace_ms.saturating_mul(2).saturating_add(100);
        loop {
            // Each time again: a handshake may have become a socket meanwhile.
            lock(&self.registry).end(Scope::All, &how, true);
            if lock(&self.registry).open_sockets() == 0 || left_ms == 0 {
                return;
            }
            sleep(Duration::from_millis(5)).await;
            left_ms = left_ms.saturating_sub(5);
        }
    }
}

/// A socket whose place is taken.
struct Opened {
    socket: Socket,
    orders: Orders,
    /// The 101 answer, still to be written.
    answer: Vec<u8>,
    /// Frames that came with the request.
    early: Vec<u8>,
    close_at_once: Option<DropHow>,
}

/// Bounds of one socket. Messages are written one at a time, so the write buffer holds one message at most.
fn limits() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(4 * 1024)
        .write_buffer_size(0)
        .max_write_buffer_size(4 * 1024 * 1024)
        .max_message_size(Some(64 * 1024))
        .max_frame_size(Some(64 * 1024))
}

async fn refuse(
    tcp: &mut TcpStream,
    status: u16,
    retry_after_s: Option<u32>,
    result: HandshakeResult,
) -> HandshakeResult {
    // A peer that is gone needs no answer.
    if tcp.write_all(&request::refusal(status, retry_after_s)).await.is_ok() {
        let _ = tcp.shutdown().await;
    }
    result
}

/// Until the peer has ended. What it sends meanwhile is thrown away: a client has nothing to say before the answer.
async fn until_gone(tcp: &mut TcpStream) {
    let mut scratch = [0; 512];
    while matches!(tcp.read(&mut scratch).await, Ok(1..)) {}
}
