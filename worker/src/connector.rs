//! What opens sockets. Tests replace it; everything behind it is the real worker.

use futures_util::future::BoxFuture;
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use leasehold::clock::SharedClock;
use leasehold::decide::outcome::{End, retry_after_ms};
use std::pin::Pin;
use std::sync::Arc;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue, header};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};
use url::Url;

/// What is to be opened.
#[derive(Clone)]
pub struct Open {
    /// The URL, with the resume point in it.
    pub url: Url,
    /// Headers of the handshake.
    pub headers: Vec<(String, String)>,
    /// Offered subprotocols.
    pub subprotocols: Vec<String>,
    /// A larger message ends the socket.
    pub max_message_bytes: usize,
}

/// What travels over a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A whole text message.
    Text(String),
    /// A whole binary message.
    Binary(Vec<u8>),
    /// A ping; received ones are answered by the socket.
    Ping,
    /// A pong.
    Pong,
    /// The end, with a code if there is one.
    Close(Option<u16>),
}

/// An open socket. Reading is cancellation safe: a half-read frame stays in it.
pub trait FrameSocket: Stream<Item = Result<Frame, End>> + Sink<Frame, Error = End> + Send {}
impl<T: Stream<Item = Result<Frame, End>> + Sink<Frame, Error = End> + Send> FrameSocket for T {}

/// An open socket.
pub type Socket = Pin<Box<dyn FrameSocket>>;

/// What opens sockets.
pub trait Connector: Send + Sync + 'static {
    /// Opens one. Dropping the future gives the attempt up.
    fn open(&self, open: Open) -> BoxFuture<'static, Result<Socket, End>>;
}

/// The real one: tokio-tungstenite, with TLS by rustls and the system's root certificates.
#[derive(Clone, Debug)]
pub struct NetConnector {
    clock: SharedClock,
}

impl NetConnector {
    /// Opens real sockets. The clock only serves to read a Retry-After that is a date.
    #[must_use]
    pub fn new(clock: SharedClock) -> Arc<Self> {
        Arc::new(Self { clock })
    }
}

impl Connector for NetConnector {
    fn open(&self, open: Open) -> BoxFuture<'static, Result<Socket, End>> {
        let clock = self.clock.clone();
        Box::pin(async move {
            let request = request(&open)?;
            let size = Some(open.max_message_bytes);
            let config = WebSocketConfig::default().max_message_size(size).max_frame_size(size);
            let opened = tokio_tungstenite::connect_async_tls_with_config(request, Some(config), true, None).await;
            match opened {
                Ok((stream, _)) => {
                    let socket = stream
                        .map(|message| message.map(frame).map_err(|error| end(&error)))
                        .sink_map_err(|error: Error| end(&error))
                        .with(|frame| std::future::ready(Ok::<_, End>(message(frame))));
                    Ok(Box::pin(socket) as Socket)
                }
                Err(Error::Http(response)) => Err(End::Status {
                    status: response.status().as_u16(),
                    retry_after_ms: response
                        .headers()
                        .get(header::RETRY_AFTER)
                        .and_then(|value| retry_after_ms(value.to_str().ok()?, clock.wall_ms())),
                }),
                Err(error) => Err(end(&error)),
            }
        })
    }
}

fn request(open: &Open) -> Result<tokio_tungstenite::tungstenite::handshake::client::Request, End> {
    let refuse = |what: String| End::Failed(format!("the request cannot be made: {what}"));
    // The error could quote the URL, which may carry a secret.
    let mut request = open.url.as_str().into_client_request().map_err(|_| refuse("the URL is not usable".into()))?;
    for (name, value) in &open.headers {
        let parsed = HeaderName::try_from(name.as_str()).ok().zip(HeaderValue::try_from(value.as_str()).ok());
        let (header, value) = parsed.ok_or_else(|| refuse(format!("header {name} is not usable")))?;
        request.headers_mut().insert(header, value);
    }
    if !open.subprotocols.is_empty() {
        let value = HeaderValue::try_from(open.subprotocols.join(", "))
            .map_err(|_| refuse("the subprotocols are not usable".into()))?;
        request.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, value);
    }
    Ok(request)
}

fn frame(message: Message) -> Frame {
    match message {
        Message::Text(text) => Frame::Text(text.as_str().to_owned()),
        Message::Binary(bytes) => Frame::Binary(bytes.to_vec()),
        Message::Pong(_) => Frame::Pong,
        Message::Close(close) => Frame::Close(close.map(|close| close.code.into())),
        // Raw frames are never returned while reading.
        Message::Ping(_) | Message::Frame(_) => Frame::Ping,
    }
}

fn message(frame: Frame) -> Message {
    match frame {
        Frame::Text(text) => Message::text(text),
        Frame::Binary(bytes) => Message::binary(bytes),
        Frame::Ping => Message::Ping(Vec::new().into()),
        Frame::Pong => Message::Pong(Vec::new().into()),
        Frame::Close(code) => {
            Message::Close(code.map(|code| CloseFrame { code: CloseCode::from(code), reason: "".into() }))
        }
    }
}

fn end(error: &Error) -> End {
    match error {
        Error::ConnectionClosed | Error::AlreadyClosed => End::Closed(None),
        Error::Protocol(error) => End::Protocol(error.to_string()),
        Error::Capacity(error) => End::Protocol(error.to_string()),
        Error::Utf8(_) => End::Protocol("a text message is not UTF-8".into()),
        Error::Io(error) => End::Failed(format!("the connection failed: {}", error.kind())),
        Error::Tls(error) => End::Failed(format!("TLS failed: {error}")),
        _ => End::Failed("the handshake failed".into()),
    }
}
