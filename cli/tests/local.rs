//! `leasehold local` with real processes on loopback: used from another terminal, ended, started again.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use leasehold::clock::{SharedClock, SystemClock};
use leasehold_local::feed::{ChannelSettings, Feed, FeedSettings, Scope};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(60);

fn leasehold(state: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.arg("--state-dir").arg(state).kill_on_drop(true);
    command
}

async fn run(state: &Path, arguments: &[&str]) -> Output {
    leasehold(state).args(arguments).output().await.unwrap()
}

async fn json(state: &Path, arguments: &[&str]) -> Value {
    let output = run(state, arguments).await;
    serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
}

async fn start_local(state: &Path) -> Child {
    let child = leasehold(state).args(["local", "--workers", "1"]).stdout(Stdio::null()).spawn().unwrap();
    eventually("the local system answers", async || run(state, &["list", "--json"]).await.status.success()).await;
    child
}

async fn end(mut local: Child) {
    let pid = Pid::from_raw(i32::try_from(local.id().unwrap()).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let status = timeout(PATIENCE, local.wait()).await.expect("SIGTERM is heard").unwrap();
    assert_eq!(status.code(), Some(0));
}

async fn eventually(what: &str, is: impl AsyncFn() -> bool) {
    let waiting = async {
        while !is().await {
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}"));
}

async fn feed() -> Feed {
    let clock: SharedClock = Arc::new(SystemClock);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let channel = ChannelSettings { interval_ms: 100, ..ChannelSettings::default() };
    Feed::start(listener, clock, FeedSettings::same_for_all(channel)).unwrap()
}

async fn stored(state: &Path) -> Vec<u64> {
    let document = json(state, &["messages", "my-feed", "--json", "--from-start", "--limit", "1000"]).await;
    let messages = document["messages"].as_array().cloned().unwrap_or_default();
    messages.iter().filter_map(|message| message["seq"].as_u64()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_system_survives_a_restart_and_its_connections_go_on_where_they_were() {
    let directory = TempDir::new().unwrap();
    let state = directory.path();
    let feed = feed().await;
    let local = start_local(state).await;
    let url = feed.url("my-feed");
    let resume = ["--resume-query", "from={last_seq}", "--sequence-pointer", "/seq"];
    let start = [["start", "my-feed", "--url", &url].as_slice(), resume.as_slice()].concat();
    let output = run(state, &start).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    eventually("messages are stored", async || stored(state).await.len() > 5).await;
    let row = json(state, &["get", "my-feed", "--json"]).await;
    assert_eq!(row["observed_state"], "CONNECTED", "{row}");

    let second = leasehold(state).arg("local").output().await.unwrap();
    assert!(
        String::from_utf8_lossy(&second.stderr).contains("runs already"),
        "a second one on the same files is refused"
    );

    end(local).await;
    eventually("the worker's socket is closed", async || feed.open_sockets(Scope::All) == 0).await;
    let output = run(state, &["list"]).await;
    assert_eq!(output.status.code(), Some(3), "nobody answers now");

    let local = start_local(state).await;
    let before = stored(state).await;
    eventually("messages go on", async || stored(state).await.len() > before.len() + 5).await;
    let after = stored(state).await;
    let wanted: Vec<u64> = (after[0]..after[0] + after.len() as u64).collect();
    assert_eq!(after, wanted, "each once, in order, with no gap over the restart");

    let output = run(state, &["stop", "my-feed"]).await;
    assert!(output.status.success());
    eventually("the socket is closed", async || feed.open_sockets(Scope::All) == 0).await;
    end(local).await;
    feed.stop().await;
}
