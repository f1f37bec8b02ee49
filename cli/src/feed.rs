//! `leasehold feed`: an upstream as a process of its own, with a log that can be asked over HTTP. What the log says is the truth of a run:
//! which messages there were, which sockets, when.

use crate::failure::Failure;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use clap::Args;
use leasehold::clock::{SharedClock, SystemClock};
use leasehold_local::feed::records::{ChannelRecords, FeedRecords, Handshake};
use leasehold_local::feed::{ChannelSettings, DropHow, Feed, FeedSettings, Scope};
use leasehold_local::trial::cast::can_replay;
use serde::Serialize;
use serde_json::{Value, json};
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Mutex;

/// An upstream to try things with: a WebSocket server with a log of its own.
///
/// Each id has a channel at /feed/ID that sends one message an interval from its first client on, whether or not anyone is connected:
/// {"id":"ID","seq":N,"payload":"ID-N","sent_at_ms":T}. A client that says what it has (?from=N) gets what came after it first. An id that
/// begins with live- neither replays nor numbers its messages.
///
/// The first line on standard output names both addresses: {"feed":"ws://…","control":"http://…"}. At the control address: GET /log,
/// GET /sockets, POST /channels/ID/start, POST /channels/ID/stop, POST /start and POST /stop (every channel; sockets stay open), and
/// POST /drop (a reset for every socket). It asks nobody who they are: let it listen where only you can reach it.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// Where the WebSocket server listens
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Where the control API listens
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:0")]
    control: SocketAddr,
    /// Milliseconds between two messages of a channel
    #[arg(long, value_name = "MS", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=86_400_000))]
    interval_ms: u64,
    /// Messages that a channel keeps for clients that resume
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    history: u32,
}

/// A longer id has no channel, as in the feed itself.
const MAX_ID_BYTES: usize = 256;

/// What the control API works on.
#[derive(Debug)]
struct Control {
    feed: Feed,
    clock: SharedClock,
    /// Copies of the whole log are large: one at a time.
    copying: Mutex<()>,
}

type Shared = State<Arc<Control>>;

/// Runs it until SIGTERM or Ctrl-C.
///
/// # Errors
/// When an address cannot be listened on, or the first line cannot be written.
pub async fn run(arguments: &Arguments) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::Failed(format!("the feed does not start: {error}"));
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let clock: SharedClock = Arc::new(SystemClock);
    let feed = Feed::start(listen(arguments.listen).await?, clock.clone(), settings(arguments)).map_err(failed)?;
    let listener = listen(arguments.control).await?;
    let control = listener.local_addr().map_err(failed)?;
    let first_line = json!({ "feed": format!("ws://{}", feed.address()), "control": format!("http://{control}") });
    writeln!(std::io::stdout(), "{first_line}").map_err(Failure::from)?;
    let router = router(Control { feed: feed.clone(), clock, copying: Mutex::default() });
    let ended = tokio::select! {
        _ = tokio::signal::ctrl_c() => Ok(()),
        _ = terminate.recv() => Ok(()),
        served = axum::serve(listener, router) => served.map_err(|error| Failure::Failed(format!("the control API ended: {error}"))),
    };
    feed.stop().await;
    ended
}

async fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(|error| {
        Failure::Failed(format!("{address} cannot be listened on ({error}): choose another address or port"))
    })
}

fn settings(arguments: &Arguments) -> FeedSettings {
    let interval_ms = arguments.interval_ms;
    let mut settings = FeedSettings::with_channels(move |id| ChannelSettings {
        interval_ms,
        replay: can_replay(id),
        numbered: can_replay(id),
        ..ChannelSettings::default()
    });
    settings.history_messages = usize::try_from(arguments.history).unwrap_or(usize::MAX);
    settings
}

fn router(control: Control) -> Router {
    Router::new()
        .route("/log", get(log))
        .route("/sockets", get(sockets))
        .route("/channels/{id}/start", post(start_channel))
        .route("/channels/{id}/stop", post(stop_channel))
        .route("/start", post(async |State(control): Shared| set_all(&control, true)))
        .route("/stop", post(async |State(control): Shared| set_all(&control, false)))
        .route("/drop", post(drop_sockets))
        .fallback(async || refusal(StatusCode::NOT_FOUND, NO_SUCH_PATH))
        .method_not_allowed_fallback(async || refusal(StatusCode::METHOD_NOT_ALLOWED, OTHER_METHOD))
        .with_state(Arc::new(control))
}

const NO_SUCH_PATH: &str =
    "there is no such path: try /log, /sockets, /channels/ID/start, /channels/ID/stop, /start, /stop or /drop";
const OTHER_METHOD: &str =
    "that method does nothing here: /log and /sockets are read with GET, everything else is done with POST";

fn refusal(status: StatusCode, why: &str) -> Response {
    (status, Json(json!({ "error": why }))).into_response()
}

/// The whole log as it is answered.
#[derive(Serialize)]
struct LogDocument {
    /// Now by the clock of the log.
    now_ms: u64,
    /// Now by the wall clock, in which messages say when they were sent.
    wall_ms: u64,
    channels: Vec<ChannelDocument>,
    handshakes: Vec<Handshake>,
    handshakes_forgotten: u64,
}

#[derive(Serialize)]
struct ChannelDocument {
    numbered: bool,
    replay: bool,
    #[serde(flatten)]
    records: ChannelRecords,
}

impl LogDocument {
    fn new(records: FeedRecords, clock: &SharedClock) -> Self {
        let channel = |records: ChannelRecords| {
            let can_replay = can_replay(&records.id);
            ChannelDocument { numbered: can_replay, replay: can_replay, records }
        };
        Self {
            now_ms: clock.mono_ms(),
            wall_ms: clock.wall_ms(),
            channels: records.channels.into_iter().map(channel).collect(),
            handshakes: records.handshakes,
            handshakes_forgotten: records.handshakes_forgotten,
        }
    }
}

async fn log(State(control): Shared) -> Response {
    let _one_at_a_time = control.copying.lock().await;
    let (feed, clock) = (control.feed.clone(), control.clock.clone());
    // A large log takes a while, and the sockets go on meanwhile.
    let copy = tokio::task::spawn_blocking(move || serde_json::to_vec(&LogDocument::new(feed.log().records(), &clock)));
    match copy.await {
        Ok(Ok(document)) => ([(CONTENT_TYPE, "application/json")], document).into_response(),
        Ok(Err(error)) => {
            refusal(StatusCode::INTERNAL_SERVER_ERROR, &format!("the log cannot be written down: {error}"))
        }
        Err(error) => refusal(StatusCode::INTERNAL_SERVER_ERROR, &format!("the log cannot be copied: {error}")),
    }
}

async fn sockets(State(control): Shared) -> Json<Value> {
    let by_channel = control.feed.open_by_channel();
    Json(json!({ "open": by_channel.values().sum::<usize>(), "by_channel": by_channel }))
}

async fn start_channel(State(control): Shared, Path(id): Path<String>) -> Response {
    set_channel(&control, &id, true)
}

async fn stop_channel(State(control): Shared, Path(id): Path<String>) -> Response {
    set_channel(&control, &id, false)
}

fn set_channel(control: &Control, id: &str, started: bool) -> Response {
    if id.len() > MAX_ID_BYTES || id.contains('/') {
        return refusal(StatusCode::BAD_REQUEST, "an id is 256 bytes at most and has no slash: nothing was changed");
    }
    if !control.feed.set_started(id, started) {
        return refusal(StatusCode::SERVICE_UNAVAILABLE, "there are too many channels already: start the feed anew");
    }
    Json(json!({ "id": id, "started": started })).into_response()
}

fn set_all(control: &Control, started: bool) -> Json<Value> {
    Json(json!({ "channels": control.feed.set_all_started(started), "started": started }))
}

async fn drop_sockets(State(control): Shared) -> Json<Value> {
    Json(json!({ "dropped": control.feed.drop_sockets(Scope::All, &DropHow::Reset) }))
}
