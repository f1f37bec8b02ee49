//! The worker over real loopback sockets and in real time: what the connector in memory cannot show.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use leasehold::clock::{Clock, SystemClock};
use leasehold::model::ObservedState;
use leasehold_local::feed::analysis::overlaps;
use leasehold_local::feed::records::SocketEnd;
use leasehold_local::feed::{Behaviour, ChannelSettings, DropHow, Feed, FeedSettings, OnHandshake, Scope};
use leasehold_tests::cluster::{Cluster, Worker, WorkerClock, eventually, numbered, pass_ms, s};
use leasehold_worker::connector::NetConnector;
use std::sync::Arc;

const CONNECTIONS: usize = 10;

async fn feed(interval_ms: u64) -> Feed {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let channel = ChannelSettings { interval_ms, resume_wait_ms: 0, ..ChannelSettings::default() };
    Feed::start(listener, Arc::new(SystemClock), FeedSettings::same_for_all(channel)).unwrap()
}

fn worker(cluster: &Cluster, name: &str) -> Worker {
    let clock = WorkerClock::new(cluster.world.time);
    cluster.worker_through(name, NetConnector::new(Arc::new(SystemClock)), clock, |settings| {
        settings.backoff.base_ms = 50;
        settings.ping_interval_ms = 300;
        settings.pong_timeout_ms = 300;
        settings.timing.heartbeat_ms = 500;
    })
}

fn id(number: usize) -> String {
    format!("c{number}")
}

async fn start(cluster: &Cluster, feed: &Feed, id: &str) {
    let [pointer, resume] = numbered();
    cluster.start_with(id, &[pointer, resume, ("ws_url", s(&feed.url(id)))]).await;
}

/// Handshakes, messages, every way in which a socket can end, and a hand-over: each message is stored once, and no two sockets are open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_real_sockets_drops_and_a_handover_lose_and_repeat_nothing() {
    let cluster = Cluster::new().await;
    let feed = feed(20).await;
    let old = worker(&cluster, "old");
    for number in 0..CONNECTIONS {
        start(&cluster, &feed, &id(number)).await;
    }
    let all_open = async || feed.open_sockets(Scope::All) == CONNECTIONS;
    eventually("all are open", 5_000, all_open).await;
    let drops = [
        DropHow::Reset,
        DropHow::Eof,
        DropHow::Close { code: 1012, reason: "restart".into() },
        DropHow::Close { code: 1001, reason: String::new() },
    ];
    for how in drops {
        pass_ms(100).await;
        assert_eq!(feed.drop_sockets(Scope::All, &how), CONNECTIONS, "{how:?}");
        eventually("all end", 2_000, async || feed.open_sockets(Scope::All) < CONNECTIONS).await;
        eventually("all are open again", 5_000, all_open).await;
    }
    let _new = worker(&cluster, "new");
    pass_ms(300).await;
    old.terminate();
    old.ended().await.unwrap();
    eventually("the other worker has them", 3_000, all_open).await;
    pass_ms(200).await;
    for number in 0..CONNECTIONS {
        feed.set_started(&id(number), false);
    }
    pass_ms(300).await;
    let records = feed.log().records();
    // The feed sees ends and openings a little late where the machine is busy.
    let twice = overlaps(&records, SystemClock.mono_ms());
    assert!(twice.iter().all(|overlap| overlap.total_ms < 50), "{twice:?}");
    for number in 0..CONNECTIONS {
        let id = id(number);
        let channel = records.channel(&id).unwrap();
        let emitted = channel.emitted.last().unwrap().seq;
        let from = cluster.numbers(&id).await[0];
        assert_eq!(cluster.numbers(&id).await, (from..=emitted).collect::<Vec<_>>(), "{id}");
        assert!(channel.sockets.len() >= 6, "{id}");
    }
}

/// RFC 6455, section 7.1.2: a closing handshake; section 5.5.2: a ping is answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quiet_socket_is_kept_by_pings_and_a_stop_closes_it_by_handshake() {
    let cluster = Cluster::new().await;
    let feed = feed(3_600_000).await;
    let worker = worker(&cluster, "w");
    start(&cluster, &feed, "a").await;
    eventually("it is open", 5_000, async || feed.open_sockets(Scope::All) == 1).await;
    pass_ms(1_500).await;
    assert_eq!(worker.count("connect_attempts"), 1, "pings are answered");
    cluster.change("a", "desired_state", Some(s("STOPPED"))).await;
    eventually("it is free", 3_000, async || cluster.row("a").await.lease.owner.is_none()).await;
    let sockets = feed.log().channel_records("a").unwrap().sockets;
    assert_eq!(sockets.len(), 1);
    let end = sockets[0].end.clone().unwrap();
    assert!(matches!(end, SocketEnd::CloseFrame { code: Some(1000) }), "{end:?}");
    assert_eq!(worker.count("closes_timed_out"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_over_real_sockets_are_told_by_their_status_and_code() {
    let cluster = Cluster::new().await;
    let feed = feed(3_600_000).await;
    let cases = [
        ("a", OnHandshake::Refuse { status: 403, retry_after_s: None }, ObservedState::Parked, "answered with 403"),
        (
            "b",
            OnHandshake::Refuse { status: 429, retry_after_s: Some(60) },
            ObservedState::Backoff,
            "429, retry after 60 s",
        ),
        (
            "c",
            OnHandshake::CloseAfterOpen { code: 1008, reason: "no".into() },
            ObservedState::Parked,
            "closed with 1008",
        ),
    ];
    let _worker = worker(&cluster, "w");
    for (id, on_handshake, ..) in &cases {
        feed.set_behaviour(
            Scope::Channel(id),
            Behaviour { on_handshake: on_handshake.clone(), ..Behaviour::default() },
        );
        start(&cluster, &feed, id).await;
    }
    for (id, _, state, reason) in cases {
        eventually("the row tells", 8_000, async || cluster.row(id).await.observed_state == state).await;
        let told = cluster.row(id).await.reason.unwrap_or_default();
        assert!(told.ends_with(reason), "{id}: {told}");
    }
}
