//! Every end of a socket leads to a decision, and every wish to the right socket.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use aws_sdk_dynamodb::types::AttributeValue;
use leasehold::decide::outcome::End;
use leasehold::model::ObservedState;
use leasehold_local::faults::Fault;
use leasehold_tests::cluster::{Cluster, eventually, map, no_faults, numbered, pass_ms, s};
use leasehold_tests::connector::{Answer, Script, What};
use leasehold_worker::connector::Frame;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn answers(answers: &[Answer]) -> Script {
    Script { answers: answers.to_vec(), ..Script::default() }
}

async fn state(cluster: &Cluster, id: &str) -> (ObservedState, Option<String>) {
    let row = cluster.row(id).await;
    (row.observed_state, row.reason)
}

/// vector #23992: a pong time-out ended the source, and the process stayed up with nothing running.
#[tokio::test(start_paused = true)]
async fn a_peer_that_answers_no_ping_is_left_and_tried_again() {
    let cluster = Cluster::new().await;
    let _worker = cluster.worker("w");
    cluster.upstreams.script("a", Script { pongs: false, closes: false, ..Script::default() });
    cluster.connected("a").await;
    // A ping after 20 s of silence, 10 s for its answer.
    pass_ms(29_000).await;
    assert_eq!(cluster.upstreams.opens("a").len(), 1);
    eventually("it is opened again", 4_000, async || cluster.upstreams.opens("a").len() == 2).await;
    assert_eq!(cluster.upstreams.most_at_once("a"), 1);
}

/// openalgo #1419: a quiet but healthy feed was reconnected in a loop.
#[tokio::test(start_paused = true)]
async fn a_quiet_peer_that_answers_pings_stays_connected() {
    let cluster = Cluster::new().await;
    let _worker = cluster.worker("w");
    cluster.connected("a").await;
    pass_ms(600_000).await;
    assert_eq!(cluster.upstreams.attempts("a"), 1);
    assert!(cluster.upstreams.events("a", |what| *what == What::Pinged).len() >= 25);
}

/// vector #23992 again: whatever ends an attempt or a socket, there is a next one.
#[tokio::test(start_paused = true)]
async fn after_every_kind_of_end_the_connection_is_tried_again() {
    let cluster = Cluster::new().await;
    let _worker = cluster.worker("w");
    let refusals = [
        Answer::Refuse(End::Failed("connection refused".into())),
        Answer::Refuse(End::Protocol("nonsense".into())),
        Answer::Refuse(End::Status { status: 503, retry_after_ms: None }),
        Answer::Refuse(End::Status { status: 301, retry_after_ms: None }),
        Answer::Silence,
        Answer::AcceptThenClose(1000),
        Answer::AcceptThenClose(1006),
        Answer::AcceptThenClose(1012),
        Answer::Accept,
    ];
    cluster.upstreams.script("a", answers(&refusals));
    cluster.start("a").await;
    eventually("all ends are tried through", 120_000, async || cluster.upstreams.attempts("a") == refusals.len()).await;
    let ends = [Ok(Frame::Close(None)), Ok(Frame::Close(Some(1001))), Err(End::Failed("broken pipe".into()))];
    for (count, end) in ends.into_iter().enumerate() {
        eventually("it is open", 60_000, async || cluster.upstreams.open_now("a") == 1).await;
        pass_ms(11_000).await;
        match end {
            Ok(frame) => cluster.upstreams.send("a", &frame),
            Err(end) => cluster.upstreams.end("a", &end),
        }
        let expected = refusals.len() + count + 1;
        eventually("there is a next attempt", 2_000, async || cluster.upstreams.attempts("a") == expected).await;
    }
    assert_eq!(cluster.upstreams.most_at_once("a"), 1);
}

/// rapidpro #6836, sockette #70: permanent refusals were retried for ever. They end parked, and visible, until the spec changes.
#[tokio::test(start_paused = true)]
async fn a_permanent_refusal_parks_with_its_reason_until_the_spec_changes() {
    let refusals = [
        (Answer::Refuse(End::Status { status: 401, retry_after_ms: None }), "the handshake was answered with 401"),
        (Answer::AcceptThenClose(1008), "the peer closed with 1008"),
    ];
    for (refusal, reason) in refusals {
        let cluster = Cluster::new().await;
        let _worker = cluster.worker("w");
        cluster.upstreams.script("a", answers(&[refusal, Answer::Accept]));
        cluster.start("a").await;
        let parked = (ObservedState::Parked, Some(reason.to_owned()));
        eventually("it is parked", 7_000, async || state(&cluster, "a").await == parked).await;
        pass_ms(300_000).await;
        assert_eq!(cluster.upstreams.attempts("a"), 1);
        assert!(cluster.row("a").await.lease.owner.is_some(), "the owner keeps it");
        cluster.change("a", "headers", Some(map(&[("authorization", "Bearer new")]))).await;
        let connected = (ObservedState::Connected, None);
        eventually("the new spec is tried", 12_000, async || state(&cluster, "a").await == connected).await;
    }
}

/// MetaMask core #6861, destinygg/chat-gui #872: handshake then close 1013 made hundreds of handshakes a second.
#[tokio::test(start_paused = true)]
async fn an_open_that_does_not_last_resets_no_backoff() {
    let cluster = Cluster::new().await;
    let _worker = cluster.worker("w");
    cluster.upstreams.script("a", answers(&[Answer::AcceptThenClose(1013)]));
    cluster.start("a").await;
    pass_ms(600_000).await;
    // Full jitter up to 30 s: an attempt each 15 s on average after the first few.
    let attempts = cluster.upstreams.attempts("a");
    assert!((15..=80).contains(&attempts), "{attempts} attempts in ten minutes");
    let writes = cluster.row_writes("a").len();
    assert!(writes <= 122, "the status is written at most every 5 s: {writes} writes");
}

/// bar-lobby #715: a 429 left the state at CONNECTING, and later retries said "already connected".
#[tokio::test(start_paused = true)]
async fn a_429_is_visible_and_tried_again_after_the_time_that_it_names() {
    let cluster = Cluster::new().await;
    let _worker = cluster.worker("w");
    let refusal = Answer::Refuse(End::Status { status: 429, retry_after_ms: Some(30_000) });
    cluster.upstreams.script("a", answers(&[refusal, Answer::Accept]));
    cluster.start("a").await;
    let reason = "the handshake was answered with 429, retry after 30 s".to_owned();
    let backoff = (ObservedState::Backoff, Some(reason));
    eventually("the row says so", 3_000, async || state(&cluster, "a").await == backoff).await;
    pass_ms(26_000).await;
    assert_eq!(cluster.upstreams.attempts("a"), 1, "not before");
    eventually("it is connected", 10_000, async || state(&cluster, "a").await == (ObservedState::Connected, None))
        .await;
    let events = cluster.upstreams.events("a", |what| matches!(what, What::Attempt { .. }));
    assert!(events[1].at_ms - events[0].at_ms >= 30_000);
}

/// CAMEL-25582: a slow handshake led to 20 sockets, and it reconnected after stop.
#[tokio::test(start_paused = true)]
async fn one_attempt_at_a_time_and_a_stop_ends_a_handshake_under_way() {
    let cluster = Cluster::new().await;
    let _worker = cluster.worker("w");
    cluster.upstreams.script("a", answers(&[Answer::Silence]));
    cluster.start("a").await;
    pass_ms(60_000).await;
    assert!((3..=6).contains(&cluster.upstreams.attempts("a")), "{}", cluster.upstreams.attempts("a"));
    assert_eq!(cluster.upstreams.most_at_once("a"), 1);
    eventually("an attempt is under way", 30_000, async || {
        let gone = cluster.upstreams.events("a", |what| *what == What::GivenUp).len();
        cluster.upstreams.attempts("a") == gone + 1
    })
    .await;
    cluster.change("a", "desired_state", Some(s("STOPPED"))).await;
    eventually("it is given up and free", 7_000, async || cluster.row("a").await.lease.owner.is_none()).await;
    let attempts = cluster.upstreams.attempts("a");
    assert_eq!(cluster.upstreams.events("a", |what| *what == What::GivenUp).len(), attempts);
    pass_ms(120_000).await;
    assert_eq!(cluster.upstreams.attempts("a"), attempts, "nothing follows");
}

/// shellshare #178: the peer accepted TCP and said nothing; SIGTERM was ignored meanwhile.
#[tokio::test(start_paused = true)]
async fn sigterm_interrupts_a_handshake() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker("w");
    cluster.upstreams.script("a", answers(&[Answer::Silence]));
    cluster.start("a").await;
    eventually("an attempt is under way", 3_000, async || cluster.upstreams.attempts("a") == 1).await;
    worker.terminate();
    let told_ms = cluster.now_ms();
    worker.ended().await.unwrap();
    assert!(cluster.now_ms() - told_ms < 500, "{}", cluster.now_ms() - told_ms);
}

/// The promise for STOPPED: closed within 10 s, politely, and free.
#[tokio::test(start_paused = true)]
async fn a_stopped_connection_is_closed_within_10_s_and_free() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker("w");
    let ids: Vec<String> = (0..20).map(|number| format!("c{number}")).collect();
    for id in &ids {
        cluster.connected(id).await;
    }
    for (number, id) in ids.iter().enumerate() {
        pass_ms(137 * number as u64).await;
        let since_ms = cluster.now_ms();
        cluster.change(id, "desired_state", Some(s("STOPPED"))).await;
        eventually("it is closed", 10_000, async || cluster.upstreams.open_now(id) == 0).await;
        eventually("it is free", 1_000, async || cluster.row(id).await.lease.owner.is_none()).await;
        assert!(cluster.now_ms() - since_ms < 7_000, "{} ms", cluster.now_ms() - since_ms);
        let row = cluster.row(id).await;
        assert_eq!((row.lease.expires_at_ms, row.observed_state), (Some(0), ObservedState::Stopped));
        assert!(row.lease.epoch.is_some(), "the epoch stays");
        assert_eq!(row.owners.len(), 1);
        assert_eq!(cluster.upstreams.events(id, |what| *what == What::ClosedByWorker).len(), 1);
    }
    pass_ms(6_000).await;
    assert_eq!(cluster.session(&worker).await.held, 0);
    let session = cluster.session(&worker).await.id;
    assert!(cluster.world.marks(&session).await.is_empty(), "the marks are removed");
}

/// Promise 7: a connection whose requests fail holds no other's marks up.
#[tokio::test(start_paused = true)]
async fn a_connection_that_cannot_be_released_delays_no_other_stop() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker("w");
    cluster.connected("a").await;
    cluster.connected("b").await;
    worker.break_with(|call| (call.operation == "UpdateItem" && call.names("Pk", "CONN#a")).then_some(Fault::Http500));
    cluster.change("a", "desired_state", Some(s("STOPPED"))).await;
    eventually("it is closed", 7_000, async || cluster.upstreams.open_now("a") == 0).await;
    // Looked at while its release is being tried.
    cluster.change("a", "desired_state", Some(s("STOPPED"))).await;
    pass_ms(12_000).await;
    cluster.change("b", "desired_state", Some(s("STOPPED"))).await;
    eventually("the other one is closed", 10_000, async || cluster.upstreams.open_now("b") == 0).await;
}

/// A spec that changes is opened anew, and no message of one URL goes under the series of another.
#[tokio::test(start_paused = true)]
async fn a_changed_url_is_opened_and_its_messages_get_keys_of_their_own() {
    for numbers in [true, false] {
        let cluster = Cluster::new().await;
        let _worker = cluster.worker("w");
        if numbers {
            cluster.connected_with("a", &numbered()).await;
        } else {
            cluster.connected("a").await;
        }
        let mut expected = 0;
        for url in ["a", "b", "a", "b?x=1"] {
            let path = url.split('?').next().unwrap();
            if expected > 0 {
                cluster.change("a", "ws_url", Some(s(&format!("wss://feed.example/{url}")))).await;
                cluster.change("a", "spec_changed", Some(AttributeValue::Bool(true))).await;
                let opens = cluster.upstreams.opens(path).len();
                eventually("the new URL is opened", 10_000, async || {
                    cluster.upstreams.open_now(path) == 1 && cluster.upstreams.opens(path).len() > opens
                })
                .await;
                pass_ms(100).await;
            }
            cluster.upstreams.publish(path, 1..=5);
            expected += 5;
            eventually("all are stored", 2_000, async || cluster.messages("a").await.len() >= expected).await;
            pass_ms(100).await;
            assert_eq!(cluster.messages("a").await.len(), expected, "{url}: no two under one key");
        }
        pass_ms(6_000).await;
        assert!(!cluster.item("a").await.contains_key("spec_changed"), "the owner removes the flag");
        assert_eq!(cluster.writes(leasehold_tests::cluster::acquired).len(), 4, "each spec under an epoch of its own");
    }
}

/// A change of a header alone goes on in the same series, behind what is stored.
#[tokio::test(start_paused = true)]
async fn a_changed_header_reconnects_and_resumes() {
    let cluster = Cluster::new().await;
    let _worker = cluster.worker("w");
    cluster.connected_with("a", &numbered()).await;
    cluster.upstreams.publish("a", 1..=5);
    pass_ms(100).await;
    cluster.change("a", "headers", Some(map(&[("x-token", "new")]))).await;
    eventually("it is opened anew", 7_000, async || cluster.upstreams.opens("a").len() == 2).await;
    let attempts = cluster.upstreams.events("a", |what| matches!(what, What::Attempt { .. }));
    let What::Attempt { query, headers } = &attempts[1].what else { panic!("{attempts:?}") };
    assert_eq!((query.as_str(), headers.as_slice()), ("from=5", &[("x-token".to_owned(), "new".to_owned())][..]));
}

/// Rows that people write by hand are refused one by one, with a reason, and concern nobody else.
#[tokio::test(start_paused = true)]
async fn a_bad_spec_is_parked_with_a_reason_and_others_are_not_concerned() {
    let cases: [(&str, AttributeValue, &str); 5] = [
        ("ws_url", s("http://feed.example/"), "ws_url is of scheme \"http\""),
        ("ws_url", AttributeValue::N("7".into()), "ws_url is of type N"),
        ("headers", s("authorization: x"), "headers is of type S: it must be a map of strings"),
        ("on_open", map(&[("a", "b")]), "on_open is of type M"),
        ("sequence_pointer", s("seq"), "sequence_pointer is \"seq\": it must be a JSON pointer"),
    ];
    let cluster = Cluster::new().await;
    let _worker = cluster.worker("w");
    for (number, (attribute, value, _)) in cases.iter().enumerate() {
        cluster.start_with(&format!("bad{number}"), &[(*attribute, value.clone())]).await;
    }
    cluster.connected("good").await;
    for (number, (_, _, reason)) in cases.iter().enumerate() {
        let id = format!("bad{number}");
        eventually("it is parked", 7_000, async || state(&cluster, &id).await.0 == ObservedState::Parked).await;
        let told = state(&cluster, &id).await.1.unwrap_or_default();
        assert!(told.starts_with(reason), "{told}");
        assert_eq!(cluster.upstreams.attempts(&id), 0);
    }
    // Corrected, it is opened; stopped, it is released.
    cluster.change("bad0", "ws_url", Some(s("wss://feed.example/bad0"))).await;
    eventually("the corrected one is open", 7_000, async || cluster.upstreams.open_now("bad0") == 1).await;
    cluster.change("bad1", "desired_state", Some(s("STOPPED"))).await;
    eventually("the stopped one is free", 7_000, async || cluster.row("bad1").await.lease.owner.is_none()).await;
    assert_eq!(cluster.upstreams.opens("good").len(), 1);
}

/// The same while the connection is held: the socket is closed.
#[tokio::test(start_paused = true)]
async fn a_held_connection_whose_row_turns_bad_is_closed_with_a_reason() {
    let cluster = Cluster::new().await;
    let _worker = cluster.worker("w");
    for id in ["url", "wish", "type", "good"] {
        cluster.connected(id).await;
    }
    cluster.change("url", "ws_url", Some(s("ws://"))).await;
    cluster.change("wish", "desired_state", Some(s("RUNNING"))).await;
    cluster.change("type", "last_seq", Some(s("many"))).await;
    eventually("their sockets are closed", 10_000, async || {
        ["url", "wish", "type"].iter().all(|id| cluster.upstreams.open_now(id) == 0)
    })
    .await;
    pass_ms(6_000).await;
    let (parked, reason) = state(&cluster, "url").await;
    assert_eq!(parked, ObservedState::Parked);
    assert!(reason.unwrap_or_default().starts_with("ws_url is no URL"));
    let (stopped, reason) = state(&cluster, "wish").await;
    assert_eq!(stopped, ObservedState::Stopped);
    assert_eq!(reason.as_deref(), Some("desired_state is \"RUNNING\": it must be STARTED or STOPPED"));
    let item = cluster.item("type").await;
    let text = |name| leasehold::model::fields::string(&item, name).unwrap().unwrap_or_default();
    assert_eq!(text("observed_state"), "PARKED");
    assert!(text("reason").starts_with("last_seq is of type S"), "{}", text("reason"));
    assert_eq!(cluster.upstreams.opens("good").len(), 1);
    // Corrected, it is found by the comparison of the next minute.
    cluster.change("type", "last_seq", None).await;
    eventually("it is open again", 70_000, async || cluster.upstreams.open_now("type") == 1).await;
}

/// oxbow #8: one invalid body stalled the queue.
#[tokio::test(start_paused = true)]
async fn a_claim_that_is_none_is_counted_and_deleted() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker("w");
    let claims = cluster.world.queue(&cluster.world.urls.claims);
    for body in ["hello", "{}", "{\"connection_id\": 7}", "{\"connection_id\": \"a b\"}", "[]"] {
        claims.send(body, 0).await.unwrap();
    }
    cluster.claim("no-such-row").await;
    cluster.connected("a").await;
    eventually("they are gone", 3_000, async || claims.depth().await.unwrap() == 0).await;
    assert_eq!(worker.count("bad_claims"), 5);
    assert_eq!(worker.count("claims_no_op"), 1);
}

/// A row that is removed, or overwritten by hand, under its owner: the socket is dropped when the owner is told.
#[tokio::test(start_paused = true)]
async fn a_removed_or_overwritten_row_loses_its_socket() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker("w");
    cluster.connected("removed").await;
    cluster.connected("overwritten").await;
    let session = cluster.session(&worker).await.id;
    cluster.world.delete("removed").await;
    cluster
        .world
        .put("overwritten", &[("desired_state", "STARTED"), ("ws_url", "wss://feed.example/overwritten")])
        .await;
    for id in ["removed", "overwritten"] {
        cluster.world.table().mark(&session, &[leasehold::model::ConnectionId::new(id).unwrap()]).await.unwrap();
    }
    eventually("both are closed", 7_000, async || {
        cluster.upstreams.open_now("removed") + cluster.upstreams.open_now("overwritten") == 0
    })
    .await;
    pass_ms(6_000).await;
    assert_eq!(cluster.session(&worker).await.held, 0);
    assert!(cluster.world.marks(&session).await.is_empty());
}

/// A lost mark of an answer that never came: the owner's own comparison finds the row within a minute.
#[tokio::test(start_paused = true)]
async fn a_row_that_names_the_session_and_is_not_held_is_acquired_anew_by_the_comparison() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker("w");
    let session = cluster.registered(&worker).await.id;
    cluster.world.put("a", &[("desired_state", "STARTED"), ("ws_url", "wss://feed.example/a")]).await;
    cluster.world.set("a", "lease_owner", session.as_str()).await;
    cluster.world.set("a", "lease_epoch", "5").await;
    eventually("it is open", 61_000, async || cluster.upstreams.open_now("a") == 1).await;
    assert!(cluster.row("a").await.lease.epoch > Some(5));
}

/// A mark that comes while earlier ones are acted on: they are removed only if their version is still the one that was read.
#[tokio::test(start_paused = true)]
async fn a_mark_that_comes_while_others_are_acted_on_is_not_lost() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker("w");
    cluster.connected("a").await;
    cluster.connected("b").await;
    let read = Arc::new(AtomicBool::new(false));
    let note = read.clone();
    worker.break_with(move |call| {
        let slow = call.operation == "GetItem" && call.names("Pk", "CONN#a");
        slow.then(|| note.store(true, Ordering::Relaxed))?;
        Some(Fault::DelayAnswer(Duration::from_millis(1_500)))
    });
    cluster.change("a", "desired_state", Some(s("STOPPED"))).await;
    eventually("the first mark is acted on", 7_000, async || read.load(Ordering::Relaxed)).await;
    cluster.change("b", "desired_state", Some(s("STOPPED"))).await;
    eventually("both are closed", 10_000, async || {
        cluster.upstreams.open_now("a") + cluster.upstreams.open_now("b") == 0
    })
    .await;
    pass_ms(10_000).await;
    let session = cluster.session(&worker).await.id;
    assert!(cluster.world.marks(&session).await.is_empty());
}

/// A queue that is away costs no connection anything, and claims are taken again when it is back.
#[tokio::test(start_paused = true)]
async fn an_outage_of_the_queue_delays_claims_and_nothing_else() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker("w");
    cluster.connected("a").await;
    worker.queue_faults.set_plan(Arc::new(|_| Some(Fault::Http500)));
    pass_ms(21_000).await;
    cluster.start("b").await;
    pass_ms(120_000).await;
    assert_eq!(cluster.upstreams.attempts("b"), 0);
    worker.queue_faults.set_plan(no_faults());
    eventually("the claim is taken", 35_000, async || cluster.upstreams.open_now("b") == 1).await;
    assert_eq!(cluster.upstreams.opens("a").len(), 1);
    assert_eq!(cluster.sessions(&worker).await.len(), 1);
}

/// More marks than are listed become one `resync`: everything that is held is looked at.
#[tokio::test(start_paused = true)]
async fn many_stops_at_once_are_all_closed() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker("w");
    let ids: Vec<String> = (0..250).map(|number| format!("c{number}")).collect();
    for id in &ids {
        cluster.start(id).await;
    }
    eventually("all are open", 30_000, async || ids.iter().all(|id| cluster.upstreams.open_now(id) == 1)).await;
    let session = cluster.session(&worker).await.id;
    for id in ids.iter().skip(1) {
        cluster.world.set(id, "desired_state", "STOPPED").await;
    }
    let ids: Vec<_> = ids.into_iter().map(|id| leasehold::model::ConnectionId::new(id).unwrap()).collect();
    cluster.world.table().mark(&session, &ids).await.unwrap();
    assert!(cluster.world.marks(&session).await.resync);
    eventually("all but one are closed and free", 10_000, async || {
        worker.gauges.held.load(Ordering::Relaxed) == 1 && cluster.row("c249").await.lease.owner.is_none()
    })
    .await;
    assert_eq!(cluster.upstreams.open_now("c0"), 1);
    pass_ms(6_000).await;
    assert!(cluster.world.marks(&session).await.is_empty());
    assert_eq!(worker.count("renewals_failed"), 0);
}
