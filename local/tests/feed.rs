//! The feed over real loopback sockets: what a client sees, and what the log says about it.

use futures_util::{SinkExt, StreamExt};
use leasehold::clock::{Clock, SystemClock};
use leasehold_local::feed::analysis::{arrivals, never_written, overlaps, slow_consumers};
use leasehold_local::feed::records::{ChannelRecords, HandshakeResult, OurReason, Resume, SocketEnd};
use leasehold_local::feed::{Behaviour, ChannelSettings, DropHow, Feed, FeedSettings, OnHandshake, Scope};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

type Client = WebSocketStream<MaybeTlsStream<TcpStream>>;

const DEADLINE: Duration = Duration::from_secs(10);

fn quick() -> ChannelSettings {
    ChannelSettings { interval_ms: 5, resume_wait_ms: 0, ..ChannelSettings::default() }
}

/// A channel that emits only what the test tells it to.
fn by_hand() -> ChannelSettings {
    ChannelSettings { interval_ms: 3_600_000, ..quick() }
}

async fn feed_with(settings: FeedSettings) -> Feed {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    Feed::start(listener, Arc::new(SystemClock), settings).expect("has an address")
}

async fn feed(channel: ChannelSettings) -> Feed {
    feed_with(FeedSettings::same_for_all(channel)).await
}

async fn connect(url: &str) -> Client {
    timeout(DEADLINE, connect_async(url)).await.expect("answers in time").expect("accepts").0
}

async fn next(client: &mut Client) -> Option<Result<Message, Error>> {
    timeout(DEADLINE, client.next()).await.expect("something comes in time")
}

async fn next_json(client: &mut Client) -> Value {
    let message = next(client).await.expect("is open").expect("is whole");
    serde_json::from_str(message.to_text().expect("is text")).expect("is JSON")
}

async fn next_seqs(client: &mut Client, count: usize) -> Vec<u64> {
    let mut seqs = Vec::new();
    for _ in 0..count {
        seqs.push(next_json(client).await["seq"].as_u64().expect("is numbered"));
    }
    seqs
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(DEADLINE, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}

fn records(feed: &Feed, id: &str) -> ChannelRecords {
    feed.log().channel_records(id).expect("somebody named the channel")
}

fn ends(feed: &Feed, id: &str) -> Vec<Option<SocketEnd>> {
    records(feed, id).sockets.into_iter().map(|socket| socket.end).collect()
}

async fn until_ended(feed: &Feed, id: &str) -> SocketEnd {
    until("the socket ends", || matches!(ends(feed, id).first(), Some(Some(_)))).await;
    ends(feed, id).remove(0).expect("ended")
}

#[tokio::test]
async fn a_first_client_starts_the_channel_and_gets_live_messages_in_order() {
    let feed = feed(quick()).await;
    let mut client = connect(&feed.url("a")).await;
    let first = next_json(&mut client).await;
    assert_eq!((&first["id"], &first["seq"], &first["payload"]), (&"a".into(), &1.into(), &"a-1".into()));
    assert!(first["sent_at_ms"].as_u64().expect("is a time") > 1_600_000_000_000);
    assert_eq!(next_seqs(&mut client, 3).await, [2, 3, 4]);

    feed.set_started("a", false);
    let records = records(&feed, "a");
    assert!(records.emitted.iter().all(|message| message.while_started));
    assert_eq!(records.written[0].socket, records.sockets[0].id);
    assert!(records.written.len() >= 3);
    assert!(records.sockets[0].header_names.iter().any(|name| name == "sec-websocket-key"));
}

#[tokio::test]
async fn messages_are_emitted_without_clients_and_replayed_after_the_named_position() {
    let feed = feed(by_hand()).await;
    for _ in 0..5 {
        feed.emit("a");
    }
    let mut by_query = connect(&format!("{}?from=2", feed.url("a"))).await;
    assert_eq!(next_seqs(&mut by_query, 3).await, [3, 4, 5]);

    let mut request = feed.url("a").into_client_request().expect("is a URL");
    request.headers_mut().insert("x-resume-from", "4".parse().expect("is a value"));
    let (mut by_header, _) = connect_async(request).await.expect("accepts");
    feed.emit("a");
    assert_eq!(next_seqs(&mut by_header, 2).await, [5, 6]);
    assert_eq!(next_seqs(&mut by_query, 1).await, [6]);

    let resumes: Vec<_> = records(&feed, "a").sockets.iter().map(|socket| socket.resume).collect();
    assert_eq!(resumes, [2, 4].map(|from_seq| Some(Resume { from_seq, trimmed: false })));
    assert!(!records(&feed, "a").emitted[0].while_started);
}

#[tokio::test]
async fn a_first_message_may_name_the_position_and_nothing_is_sent_before() {
    let feed = feed(ChannelSettings { resume_wait_ms: 60_000, ..by_hand() }).await;
    for _ in 0..3 {
        feed.emit("a");
    }
    let mut client = connect(&feed.url("a")).await;
    feed.emit("a");
    client.send(Message::text(r#"{"resume":1}"#)).await.expect("is open");
    assert_eq!(next_seqs(&mut client, 3).await, [2, 3, 4]);
}

#[tokio::test]
async fn a_client_without_a_position_gets_no_old_messages() {
    let feed = feed(ChannelSettings { resume_wait_ms: 1, ..by_hand() }).await;
    feed.emit("a");
    let mut client = connect(&feed.url("a")).await;
    feed.emit("a");
    assert_eq!(next_seqs(&mut client, 1).await, [2]);
}

#[tokio::test]
async fn a_channel_without_replay_ignores_positions_and_one_without_numbers_sends_none() {
    let feed = feed(ChannelSettings { replay: false, numbered: false, ..by_hand() }).await;
    feed.emit("a");
    let mut client = connect(&format!("{}?from=0", feed.url("a"))).await;
    client.send(Message::text(r#"{"resume":0}"#)).await.expect("is open");
    feed.emit("a");
    let message = next_json(&mut client).await;
    assert_eq!(message["payload"], "a-2");
    assert!(message.get("seq").is_none());
    assert_eq!(records(&feed, "a").sockets[0].resume, None);
    let lost: Vec<String> = never_written(&records(&feed, "a")).iter().map(|lost| lost.payload.to_string()).collect();
    assert_eq!(lost[0], "a-1");
}

#[tokio::test]
async fn a_trimmed_history_starts_at_the_oldest_kept_message_and_says_so() {
    let feed = feed_with(FeedSettings { history_messages: 2, ..FeedSettings::same_for_all(by_hand()) }).await;
    for _ in 0..5 {
        feed.emit("a");
    }
    let mut client = connect(&format!("{}?from=1", feed.url("a"))).await;
    assert_eq!(next_seqs(&mut client, 2).await, [4, 5]);
    assert_eq!(records(&feed, "a").sockets[0].resume, Some(Resume { from_seq: 1, trimmed: true }));
}

#[tokio::test]
async fn refusals_carry_their_status_and_retry_after() {
    let feed = feed(by_hand()).await;
    for (status, retry_after_s) in [(429, Some(3)), (503, None), (401, None)] {
        let on_handshake = OnHandshake::Refuse { status, retry_after_s };
        feed.set_behaviour(Scope::Channel("a"), Behaviour { on_handshake, ..Behaviour::default() });
        let Err(Error::Http(answer)) = connect_async(feed.url("a")).await else {
            panic!("the handshake is refused");
        };
        assert_eq!(answer.status().as_u16(), status);
        let retry_after = answer.headers().get("retry-after").map(|value| value.to_str().expect("is text").to_owned());
        assert_eq!(retry_after, retry_after_s.map(|seconds| seconds.to_string()));
    }
    connect(&feed.url("b")).await; // another channel is served
    feed.clear_behaviour(Scope::Channel("a"));
    connect(&feed.url("a")).await;

    until("all are answered", || feed.log().records().handshakes.iter().all(|one| one.answered_at_ms.is_some())).await;
    let handshakes = feed.log().records().handshakes;
    let refused = handshakes.iter().filter(|handshake| matches!(handshake.result, HandshakeResult::Refused(_)));
    assert_eq!(refused.count(), 3);
    let curve = arrivals(&handshakes, handshakes[0].at_ms, SystemClock.mono_ms() + 1, 60_000);
    assert_eq!((curve[0].attempts, curve[0].accepted), (5, 2));
}

#[tokio::test]
async fn a_silent_feed_accepts_tcp_and_never_answers() {
    let feed = feed(by_hand()).await;
    feed.set_behaviour(Scope::All, Behaviour { on_handshake: OnHandshake::Silence, ..Behaviour::default() });
    assert!(timeout(Duration::from_millis(50), connect_async(feed.url("a"))).await.is_err());
    // The client gave up when its future was dropped.
    until("that is seen", || feed.log().records().handshakes[0].result == HandshakeResult::Silent).await;
    assert!(records(&feed, "a").sockets.is_empty());
}

#[tokio::test]
async fn a_delayed_handshake_opens_late_and_not_at_all_for_a_client_that_is_gone() {
    let feed = feed(by_hand()).await;
    feed.set_behaviour(Scope::All, Behaviour { handshake_delay_ms: 60, ..Behaviour::default() });
    assert!(timeout(Duration::from_millis(10), connect_async(feed.url("a"))).await.is_err());
    let _client = connect(&feed.url("a")).await;
    let handshakes = feed.log().records().handshakes;
    assert_eq!(handshakes[0].result, HandshakeResult::PeerGone);
    assert!(handshakes[1].answered_at_ms.expect("answered") >= handshakes[1].at_ms + 60);
    assert_eq!(records(&feed, "a").sockets.len(), 1);
}

#[tokio::test]
async fn closing_right_after_opening_sends_the_code() {
    let feed = feed(by_hand()).await;
    let on_handshake = OnHandshake::CloseAfterOpen { code: 4001, reason: "go away".to_owned() };
    feed.set_behaviour(Scope::All, Behaviour { on_handshake, ..Behaviour::default() });
    let mut client = connect(&feed.url("a")).await;
    let Some(Ok(Message::Close(Some(frame)))) = next(&mut client).await else {
        panic!("a close frame comes first");
    };
    assert_eq!((u16::from(frame.code), frame.reason.as_str()), (4001, "go away"));
    assert!(next(&mut client).await.is_none());
    assert_eq!(until_ended(&feed, "a").await, SocketEnd::Ours(OurReason::AfterOpen));
}

#[tokio::test]
async fn sockets_are_dropped_by_reset_by_end_of_stream_or_by_close_frame() {
    let feed = feed(by_hand()).await;
    let mut clients = Vec::new();
    for id in ["a", "b", "c", "d"] {
        clients.push(connect(&feed.url(id)).await);
    }
    assert_eq!(feed.drop_sockets(Scope::Channel("a"), &DropHow::Reset), 1);
    assert_eq!(feed.drop_sockets(Scope::Channel("b"), &DropHow::Eof), 1);
    assert_eq!(feed.drop_sockets(Scope::Channel("c"), &DropHow::Close { code: 1012, reason: String::new() }), 1);

    let Some(Err(Error::Io(reset))) = next(&mut clients[0]).await else {
        panic!("a reset is an I/O error");
    };
    assert_eq!(reset.kind(), std::io::ErrorKind::ConnectionReset);
    assert!(matches!(next(&mut clients[1]).await, Some(Err(Error::Protocol(_)))), "no close frame came");
    let Some(Ok(Message::Close(Some(frame)))) = next(&mut clients[2]).await else {
        panic!("a close frame comes");
    };
    assert_eq!(frame.code, CloseCode::Restart);
    assert!(next(&mut clients[2]).await.is_none());

    for id in ["a", "b", "c"] {
        assert_eq!(until_ended(&feed, id).await, SocketEnd::Ours(OurReason::Asked));
    }
    assert_eq!(ends(&feed, "d"), [None]);
    until("places are free again", || feed.open_sockets(Scope::All) == 1).await;
}

#[tokio::test]
async fn the_log_tells_a_close_frame_from_an_end_of_stream_and_from_a_reset() {
    let feed = feed(by_hand()).await;
    let mut closing = connect(&feed.url("a")).await;
    let frame = CloseFrame { code: CloseCode::Away, reason: "".into() };
    closing.close(Some(frame)).await.expect("is open");
    assert_eq!(until_ended(&feed, "a").await, SocketEnd::CloseFrame { code: Some(1001) });
    assert!(matches!(next(&mut closing).await, Some(Ok(Message::Close(_)))), "the close frame is answered");

    drop(connect(&feed.url("b")).await); // as the kernel does for a killed process
    assert_eq!(until_ended(&feed, "b").await, SocketEnd::Eof);

    let reset = connect(&feed.url("c")).await;
    let MaybeTlsStream::Plain(tcp) = reset.get_ref() else {
        panic!("no TLS here");
    };
    tcp.set_zero_linger().expect("is a socket");
    drop(reset);
    assert_eq!(until_ended(&feed, "c").await, SocketEnd::Reset);
}

#[tokio::test]
async fn two_sockets_at_once_show_as_an_overlap_and_a_hand_over_does_not() {
    let feed = feed(by_hand()).await;
    let first = connect(&feed.url("a")).await;
    let second = connect(&feed.url("a")).await;
    let other = connect(&feed.url("b")).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    drop((first, other));
    until("both ends are seen", || feed.open_sockets(Scope::All) == 1).await;
    let _other = connect(&feed.url("b")).await;
    tokio::time::sleep(Duration::from_millis(5)).await;

    let found = overlaps(&feed.log().records(), SystemClock.mono_ms());
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(&*found[0].channel, "a");
    assert!(found[0].total_ms >= 20);
    let both: Vec<u64> = records(&feed, "a").sockets.iter().map(|socket| socket.id).collect();
    assert_eq!(found[0].spans[0].sockets, both);
    drop(second);
}

#[tokio::test]
async fn a_pause_holds_messages_back_and_loses_none() {
    let feed = feed(by_hand()).await;
    let mut client = connect(&feed.url("a")).await;
    feed.set_behaviour(Scope::Channel("a"), Behaviour { paused: true, ..Behaviour::default() });
    // A raw message passes a pause, and shows that the socket has had its turn since.
    feed.emit("a");
    feed.emit("a");
    assert_eq!(feed.send_text(Scope::All, "not JSON"), 1);
    assert_eq!(next(&mut client).await.expect("is open").expect("is whole"), Message::text("not JSON"));
    assert_eq!(feed.send_binary(Scope::Channel("a"), &[0, 255]), 1);
    assert_eq!(next(&mut client).await.expect("is open").expect("is whole"), Message::binary(vec![0, 255]));
    assert!(records(&feed, "a").written.is_empty());
    feed.clear_behaviour(Scope::Channel("a"));
    assert_eq!(next_seqs(&mut client, 2).await, [1, 2]);
}

#[tokio::test]
async fn limits_of_the_feed_and_of_a_channel_are_answered_with_503() {
    let feed = feed(by_hand()).await;
    feed.set_behaviour(Scope::All, Behaviour { max_connections: Some(2), ..Behaviour::default() });
    feed.set_behaviour(Scope::Channel("a"), Behaviour { max_connections: Some(1), ..Behaviour::default() });
    let refused = |id: &'static str| {
        let url = feed.url(id);
        async move { matches!(connect_async(url).await, Err(Error::Http(answer)) if answer.status() == 503) }
    };
    let first = connect(&feed.url("a")).await;
    assert!(refused("a").await);
    let _second = connect(&feed.url("b")).await;
    assert!(refused("b").await);
    drop(first);
    until("the place is free", || feed.open_sockets(Scope::Channel("a")) == 0).await;
    connect(&feed.url("a")).await;
    let too_many = |one: &&_| matches!(one, HandshakeResult::TooMany);
    let results: Vec<HandshakeResult> = feed.log().records().handshakes.iter().map(|one| one.result).collect();
    assert_eq!(results.iter().filter(too_many).count(), 2);
}

#[tokio::test]
async fn a_client_that_does_not_read_is_closed_as_slow() {
    let big = ChannelSettings { payload_bytes: 1024 * 1024, interval_ms: 2, ..quick() };
    let settings = FeedSettings { write_timeout_ms: 100, close_grace_ms: 50, ..FeedSettings::same_for_all(big) };
    let feed = feed_with(FeedSettings { history_messages: 20, ..settings }).await;
    let _client = connect(&feed.url("a")).await; // and never read
    assert_eq!(until_ended(&feed, "a").await, SocketEnd::Ours(OurReason::SlowConsumer));
    assert_eq!(slow_consumers(&feed.log().records()), 1);
    feed.set_started("a", false);
}

#[tokio::test]
async fn pings_are_answered_and_sent() {
    let settings = FeedSettings { ping_interval_ms: Some(10), ..FeedSettings::same_for_all(by_hand()) };
    let feed = feed_with(settings).await;
    let mut client = connect(&feed.url("a")).await;
    client.send(Message::Ping("x".into())).await.expect("is open");
    let (mut pinged, mut ponged) = (false, false);
    while !(pinged && ponged) {
        match next(&mut client).await.expect("is open").expect("is whole") {
            Message::Ping(_) => pinged = true,
            Message::Pong(body) => ponged = body.as_ref() == b"x",
            other => panic!("unexpected {other:?}"),
        }
    }
}

#[tokio::test]
async fn requests_for_nothing_are_refused_and_logged() {
    let feed = feed(by_hand()).await;
    let url = format!("ws://{}/other", feed.address());
    assert!(matches!(connect_async(url).await, Err(Error::Http(answer)) if answer.status() == 404));
    let mut tcp = TcpStream::connect(feed.address()).await.expect("listens");
    tokio::io::AsyncWriteExt::write_all(&mut tcp, b"GET /feed/a HTTP/1.1\r\n\r\n").await.expect("is open");
    let mut answer = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut tcp, &mut answer).await.expect("is text");
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    until("both are logged", || {
        let results: Vec<_> = feed.log().records().handshakes.iter().map(|one| one.result).collect();
        results == [HandshakeResult::NotFound, HandshakeResult::BadRequest]
    })
    .await;
}

#[tokio::test]
async fn stop_closes_sockets_and_the_listener_and_emits_no_more() {
    let feed = feed(quick()).await;
    let mut client = connect(&feed.url("a")).await;
    let reading = tokio::spawn(async move {
        loop {
            if let Message::Close(frame) = next(&mut client).await.expect("a close frame first").expect("is whole") {
                let _ = next(&mut client).await; // answers it
                return frame.map(|frame| u16::from(frame.code));
            }
        }
    });
    until("something is emitted", || !records(&feed, "a").emitted.is_empty()).await;
    feed.stop().await;
    assert_eq!(reading.await.expect("does not panic"), Some(1001));
    assert_eq!(ends(&feed, "a"), [Some(SocketEnd::Ours(OurReason::Stopped))]);
    let emitted = records(&feed, "a").emitted.len();
    until("the listener is closed", || std::net::TcpStream::connect(feed.address()).is_err()).await;
    assert_eq!(records(&feed, "a").emitted.len(), emitted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_clients_get_every_message_of_their_channel_once_and_in_order() {
    let feed = feed(ChannelSettings { interval_ms: 20, ..quick() }).await;
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..500 {
        let url = format!("{}?from=0", feed.url(&format!("c{number}")));
        clients.spawn(async move {
            let mut client = connect(&url).await;
            assert_eq!(next_seqs(&mut client, 10).await, (1..=10).collect::<Vec<u64>>());
        });
    }
    while let Some(client) = clients.join_next().await {
        client.expect("got everything");
    }
    assert_eq!(overlaps(&feed.log().records(), SystemClock.mono_ms()), []);
}
