//! One socket after its handshake. The read half is polled at all times, so that the peer's end is seen when it happens.

use super::behaviour::{Behaviours, DropHow};
use super::channel::{Channel, Next};
use super::records::{OurReason, SocketEnd, SocketId, Written};
use super::registry::{EndOrder, Orders};
use super::request::resume_message;
use super::settings::FeedSettings;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use leasehold::clock::SharedClock;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::frame::CloseFrame;
use tokio_tungstenite::tungstenite::{Bytes, Error, Message};

type Incoming = Option<Result<Message, Error>>;

/// Longest reason that fits a close frame: 125 bytes less the code (RFC 6455, section 5.5).
const MAX_REASON_BYTES: usize = 123;

/// Why a socket's loop ended.
#[derive(Debug)]
enum Ending {
    /// The peer ended it: nothing is left to be said but the answer to a close frame.
    Peer(SocketEnd),
    /// The feed ends it.
    Ours(OurReason, DropHow),
}

/// What a socket is made of.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) id: SocketId,
    pub(super) channel: Arc<Channel>,
    pub(super) clock: SharedClock,
    pub(super) settings: FeedSettings,
    pub(super) behaviours: watch::Receiver<Arc<Behaviours>>,
    /// Where it is in the channel.
    pub(super) position: u64,
    /// The request named a position, or the channel does not replay: no message can change it.
    pub(super) positioned: bool,
}

impl Socket {
    /// Runs the socket to its end. The log has the end when this returns.
    pub(super) async fn run(self, stream: WebSocketStream<TcpStream>, orders: Orders, close_at_once: Option<DropHow>) {
        let (channel, clock, id) = (Arc::clone(&self.channel), Arc::clone(&self.clock), self.id);
        let grace = Duration::from_millis(self.settings.close_grace_ms);
        let mut session = Session::new(self, stream, orders);
        let ending = match close_at_once {
            Some(how) => Ending::Ours(OurReason::AfterOpen, how),
            None => session.serve().await,
        };
        match ending {
            Ending::Peer(end) => {
                let closing = matches!(end, SocketEnd::CloseFrame { .. });
                channel.log.closed(id, end, clock.mono_ms());
                if closing {
                    session.until_peer_is_gone(grace).await; // reading on sends the answer
                }
            }
            Ending::Ours(reason, how) => {
                session.end(how, grace).await;
                channel.log.closed(id, SocketEnd::Ours(reason), clock.mono_ms());
            }
        }
    }
}

/// A socket at work.
struct Session {
    socket: Socket,
    news: watch::Receiver<u64>,
    sink: SplitSink<WebSocketStream<TcpStream>, Message>,
    stream: SplitStream<WebSocketStream<TcpStream>>,
    orders: Orders,
    /// Until then a first text message with a position is waited for.
    wait_until: Option<Instant>,
    ping_at: Option<Instant>,
}

impl Session {
    fn new(socket: Socket, stream: WebSocketStream<TcpStream>, orders: Orders) -> Self {
        let news = socket.channel.news();
        let now = Instant::now();
        let wait = Duration::from_millis(socket.channel.settings.resume_wait_ms);
        let wait_until = (!socket.positioned).then(|| now + wait);
        let ping_at = socket.settings.ping_interval_ms.map(|ms| now + Duration::from_millis(ms.max(1)));
        let (sink, stream) = stream.split();
        Self { socket, news, sink, stream, orders, wait_until, ping_at }
    }

    /// Sends what there is, waits for more.
    async fn serve(&mut self) -> Ending {
        loop {
            // Marked before looking: what comes after the look wakes the wait.
            self.news.borrow_and_update();
            let paused = self.socket.behaviours.borrow_and_update().of(&self.socket.channel.id).paused;
            let step = if let Ok(raw) = self.orders.raw.try_recv() {
                self.write(raw).await
            } else if paused || self.wait_until.is_some() {
                self.wait().await
            } else {
                match self.socket.channel.next(self.socket.position) {
                    Next::Send(message) => self.write_message(message.payload, Message::Text(message.text)).await,
                    Next::Wait => self.wait().await,
                    Next::Behind => Err(slow()),
                }
            };
            if let Err(ending) = step {
                return ending;
            }
        }
    }

    async fn write_message(&mut self, payload: Arc<str>, message: Message) -> Result<(), Ending> {
        // Before the write: a resume message that is read during it moves the position, and that must stand.
        self.socket.position += 1;
        self.write(message).await?;
        let at_ms = self.socket.clock.mono_ms();
        self.socket.channel.log.written(Written { payload, socket: self.socket.id, at_ms });
        Ok(())
    }

    /// Writes one message while reading on.
    async fn write(&mut self, message: Message) -> Result<(), Ending> {
        let limit = tokio::time::sleep(Duration::from_millis(self.socket.settings.write_timeout_ms));
        let mut limit = std::pin::pin!(limit);
        let mut sent = std::pin::pin!(self.sink.send(message));
        loop {
            tokio::select! {
                biased;
                order = &mut self.orders.end => return Err(ordered(order)),
                incoming = self.stream.next() => take(&mut self.socket, &mut self.wait_until, incoming)?,
                sent = &mut sent => return sent.map_err(|error| failed(&error)),
                () = &mut limit => return Err(slow()),
            }
        }
    }

    /// Until something has changed.
    async fn wait(&mut self) -> Result<(), Ending> {
        let raw = tokio::select! {
            biased;
            order = &mut self.orders.end => return Err(ordered(order)),
            incoming = self.stream.next() => return take(&mut self.socket, &mut self.wait_until, incoming),
            Some(raw) = self.orders.raw.recv() => raw,
            Ok(()) = self.socket.behaviours.changed() => return Ok(()),
            Ok(()) = self.news.changed() => return Ok(()),
            () = at(self.wait_until) => {
                self.wait_until = None;
                return Ok(());
            }
            () = at(self.ping_at) => {
                self.ping_at = self.socket.settings.ping_interval_ms.map(|ms| Instant::now() + Duration::from_millis(ms.max(1)));
                Message::Ping(Bytes::new())
            }
        };
        self.write(raw).await
    }

    /// Reads on until the TCP stream ends, or for the grace time.
    async fn until_peer_is_gone(&mut self, grace: Duration) {
        let gone = async { while let Some(Ok(_)) = self.stream.next().await {} };
        let _ = timeout(grace, gone).await; // a peer that stays is dropped all the same
    }

    async fn end(mut self, how: DropHow, grace: Duration) {
        match how {
            DropHow::Eof => {}
            DropHow::Reset => {
                // With a linger time of zero, closing sends RST instead of FIN.
                if let Ok(whole) = self.sink.reunite(self.stream) {
                    let _ = whole.get_ref().set_zero_linger(); // on failure it is an EOF
                }
            }
            DropHow::Close { code, reason } => {
                let frame = CloseFrame { code: code.into(), reason: cut(&reason).into() };
                let sent = timeout(grace, self.sink.send(Message::Close(Some(frame)))).await;
                if matches!(sent, Ok(Ok(()))) {
                    self.until_peer_is_gone(grace).await;
                }
            }
        }
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// What an incoming message (or the end) means.
fn take(socket: &mut Socket, wait_until: &mut Option<Instant>, incoming: Incoming) -> Result<(), Ending> {
    let message = match incoming {
        Some(Ok(message)) => message,
        Some(Err(error)) => return Err(failed(&error)),
        None => return Err(Ending::Peer(SocketEnd::Eof)),
    };
    match message {
        Message::Close(frame) => {
            let code = frame.map(|frame| u16::from(frame.code));
            Err(Ending::Peer(SocketEnd::CloseFrame { code }))
        }
        Message::Text(text) if !socket.positioned => {
            socket.positioned = true;
            *wait_until = None;
            if let Some(from_seq) = resume_message(&text) {
                let (position, resume) = socket.channel.resume_position(from_seq);
                socket.position = position;
                socket.channel.log.resumed(socket.id, resume);
            }
            Ok(())
        }
        _ => Ok(()), // pings are answered below us, anything else is of no interest
    }
}

fn failed(error: &Error) -> Ending {
    match error {
        Error::Io(error) if error.kind() == ErrorKind::UnexpectedEof => Ending::Peer(SocketEnd::Eof),
        Error::Io(_) => Ending::Peer(SocketEnd::Reset),
        Error::Protocol(ProtocolError::ResetWithoutClosingHandshake)
        | Error::ConnectionClosed
        | Error::AlreadyClosed => Ending::Peer(SocketEnd::Eof),
        other => {
            let how = DropHow::Close { code: 1002, reason: other.to_string() };
            Ending::Ours(OurReason::Protocol, how)
        }
    }
}

fn ordered(order: Result<EndOrder, oneshot::error::RecvError>) -> Ending {
    match order {
        Ok(EndOrder { how, stopping: false }) => Ending::Ours(OurReason::Asked, how),
        Ok(EndOrder { how, stopping: true }) => Ending::Ours(OurReason::Stopped, how),
        Err(_) => Ending::Ours(OurReason::Stopped, DropHow::Eof), // the feed is gone
    }
}

fn slow() -> Ending {
    let how = DropHow::Close { code: 1008, reason: "slow consumer: read faster or resume later".to_owned() };
    Ending::Ours(OurReason::SlowConsumer, how)
}

fn cut(reason: &str) -> &str {
    let mut end = reason.len().min(MAX_REASON_BYTES);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    &reason[..end]
}
