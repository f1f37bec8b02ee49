//! `leasehold feed` as a process of its own: sockets at one address, its log at the other, an orderly end.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use futures_util::StreamExt;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

/// Long for a machine under load; nothing here takes a second by itself.
const PATIENCE: Duration = Duration::from_secs(60);
const INTERVAL: Duration = Duration::from_millis(20);

struct Running {
    process: Child,
    feed: String,
    control: String,
}

async fn start() -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(["feed", "--interval-ms", "20", "--history", "1000"]).kill_on_drop(true);
    let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let line = timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
    let addresses: Value = serde_json::from_str(&line).unwrap();
    let feed = addresses["feed"].as_str().unwrap().to_owned();
    let control = addresses["control"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
    Running { process, feed, control }
}

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

impl Running {
    /// A request to the control API: status and document.
    async fn ask(&self, method: &str, path: &str) -> (u16, Value) {
        let mut tcp = TcpStream::connect(&self.control).await.unwrap();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.control);
        tcp.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        timeout(PATIENCE, tcp.read_to_string(&mut answer)).await.unwrap().unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), serde_json::from_str(body).unwrap())
    }

    async fn log(&self) -> Value {
        let (status, log) = self.ask("GET", "/log").await;
        assert_eq!(status, 200);
        log
    }

    async fn connect(&self, channel: &str) -> Socket {
        connect_async(format!("{}/feed/{channel}", self.feed)).await.unwrap().0
    }
}

async fn next(socket: &mut Socket) -> Value {
    match timeout(PATIENCE, socket.next()).await.unwrap() {
        Some(Ok(Message::Text(text))) => serde_json::from_str(&text).unwrap(),
        other => panic!("a message was to come, not {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_says_what_a_client_got_and_how_its_socket_ended() {
    let running = start().await;
    let mut socket = running.connect("a?from=0").await;
    let first = next(&mut socket).await;
    assert_eq!((&first["seq"], &first["payload"]), (&json!(1), &json!("a-1")));
    assert_eq!(next(&mut socket).await["seq"], 2);
    assert_eq!(running.ask("GET", "/sockets").await, (200, json!({ "open": 1, "by_channel": { "a": 1 } })));
    assert_eq!(running.ask("POST", "/drop").await, (200, json!({ "dropped": 1 })));
    while let Some(Ok(_)) = timeout(PATIENCE, socket.next()).await.unwrap() {}
    let log = timeout(PATIENCE, async {
        loop {
            let log = running.log().await;
            if log["channels"][0]["sockets"][0]["closed_at_ms"].is_u64() {
                return log;
            }
        }
    });
    let log = log.await.unwrap();
    let channel = &log["channels"][0];
    assert_eq!((&channel["id"], &channel["numbered"], &channel["replay"]), (&json!("a"), &json!(true), &json!(true)));
    let emitted = &channel["emitted"][0];
    assert_eq!(
        (&emitted["seq"], &emitted["payload"], &emitted["while_started"]),
        (&json!(1), &json!("a-1"), &json!(true))
    );
    let record = &channel["sockets"][0];
    assert_eq!(record["end"], json!({ "ours": "asked" }));
    assert_eq!(record["resume"], json!({ "from_seq": 0, "trimmed": false }));
    let written = &channel["written"][0];
    assert_eq!((&written["payload"], &written["socket"]), (&json!("a-1"), &record["id"]));
    assert_eq!(log["handshakes"][0]["result"], json!({ "accepted": record["id"] }));
    assert!(log["now_ms"].as_u64() >= record["closed_at_ms"].as_u64());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_begins_with_live_is_not_numbered_and_does_not_replay() {
    let running = start().await;
    assert_eq!(running.ask("POST", "/channels/live-a/start").await.0, 200);
    let emits = async {
        while running.log().await["channels"][0]["emitted"].as_array().is_none_or(Vec::is_empty) {
            sleep(INTERVAL).await;
        }
    };
    timeout(PATIENCE, emits).await.unwrap();
    let mut socket = running.connect("live-a?from=0").await;
    let first = next(&mut socket).await;
    assert_ne!(first["payload"], "live-a-1", "what came before is gone");
    assert_eq!(first.get("seq"), None);
    let log = running.log().await;
    let channel = &log["channels"][0];
    assert_eq!((&channel["numbered"], &channel["replay"]), (&json!(false), &json!(false)));
    assert!(channel["emitted"][0]["seq"].is_u64(), "the log counts all the same");
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_ends_the_messages_of_every_channel_and_leaves_the_sockets_open() {
    let running = start().await;
    let mut sockets = [running.connect("a").await, running.connect("live-b").await];
    for socket in &mut sockets {
        next(socket).await;
    }
    assert_eq!(running.ask("POST", "/stop").await, (200, json!({ "channels": 2, "started": false })));
    let counts = |log: &Value| -> Vec<usize> {
        let channels = log["channels"].as_array().unwrap();
        channels.iter().map(|channel| channel["emitted"].as_array().unwrap().len()).collect()
    };
    let before = counts(&running.log().await);
    sleep(INTERVAL * 10).await;
    assert_eq!(counts(&running.log().await), before);
    assert_eq!(running.ask("GET", "/sockets").await.1["open"], 2);
    assert_eq!(running.ask("POST", "/channels/a/start").await.0, 200);
    let drained = async { while next(&mut sockets[0]).await["seq"].as_u64() <= Some(before[0] as u64) {} };
    timeout(PATIENCE, drained).await.unwrap();
    assert_eq!(counts(&running.log().await)[1], before[1], "the other one stays as it is");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_makes_no_sense_is_answered_with_a_sentence() {
    let running = start().await;
    for (method, path, status) in [("GET", "/logs", 404), ("GET", "/drop", 405), ("POST", "/log", 405)] {
        let (answered, document) = running.ask(method, path).await;
        assert_eq!(answered, status, "{method} {path}");
        assert!(document["error"].as_str().is_some_and(|error| error.contains("/log")), "{document}");
    }
    let (status, document) = running.ask("POST", &format!("/channels/{}/start", "x".repeat(257))).await;
    assert_eq!(status, 400);
    assert!(document["error"].as_str().unwrap().contains("256 bytes"));
    assert_eq!(running.log().await["channels"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_closes_the_sockets_and_ends_the_process_well() {
    let mut running = start().await;
    let mut socket = running.connect("a").await;
    next(&mut socket).await;
    let pid = Pid::from_raw(i32::try_from(running.process.id().unwrap()).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let closed = async {
        while let Some(message) = socket.next().await {
            if let Message::Close(frame) = message.unwrap() {
                return frame.map(|frame| u16::from(frame.code));
            }
        }
        None
    };
    assert_eq!(timeout(PATIENCE, closed).await.unwrap(), Some(1001));
    let status = timeout(PATIENCE, running.process.wait()).await.unwrap().unwrap();
    assert_eq!(status.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_taken_is_said_in_a_sentence() {
    let running = start().await;
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(["feed", "--listen", running.feed.strip_prefix("ws://").unwrap()]).kill_on_drop(true);
    let output = timeout(PATIENCE, command.output()).await.unwrap().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    assert!(String::from_utf8_lossy(&output.stderr).contains("choose another address or port"));
}
