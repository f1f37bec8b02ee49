//! The scope `connection`: each row is leased by itself, the published pattern. What both scopes have in common is tested by all other
//! files, with `LEASE_SCOPE=connection` as well.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use leasehold::decide::renewal::OnStoreOutage;
use leasehold::decide::scope::LeaseScope;
use leasehold::model::{ObservedState, SessionId, SessionState};
use leasehold_local::faults::Fault;
use leasehold_tests::cluster::{Cluster, eventually, is_acquire, is_release, is_row_renewal, pass_ms, s};
use leasehold_tests::connector::What;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

async fn cluster() -> Cluster {
    Cluster::of(LeaseScope::Connection).await
}

/// The rows that the index of expiries shows up to a time.
async fn in_index(cluster: &Cluster, until_ms: u64) -> usize {
    cluster.world.table().by_expiry(until_ms, None).await.unwrap().items.len()
}

#[tokio::test(start_paused = true)]
async fn a_held_rows_expiry_moves_with_each_renewal_and_the_index_with_it() {
    let cluster = cluster().await;
    let _worker = cluster.worker("w");
    cluster.connected("a").await;
    let epoch = cluster.row("a").await.lease.epoch;
    let expiry = async || cluster.row("a").await.lease.expires_at_ms.expect("an owned row has an expiry");
    let first_ms = expiry().await;
    // 20 s from lease time, of which DynamoDB's Date leaves two seconds open.
    assert!((20_000..=22_000).contains(&(first_ms - cluster.world.now_ms())), "{first_ms}");
    for _ in 0..12 {
        let before_ms = expiry().await;
        pass_ms(5_500).await;
        let after_ms = expiry().await;
        assert!(after_ms > before_ms, "renewed within a heartbeat");
        assert_eq!((in_index(&cluster, after_ms - 1).await, in_index(&cluster, after_ms).await), (0, 1));
    }
    assert_eq!(cluster.row("a").await.lease.epoch, epoch, "no renewal is a change of owner");
    assert_eq!(cluster.upstreams.opens("a").len(), 1);
}

/// STOPPED closes within 10 s, and costs no read of a row: the renewal's own answer says it.
#[tokio::test(start_paused = true)]
async fn a_stop_and_a_changed_spec_are_learned_from_the_renewals_own_answer() {
    let cluster = cluster().await;
    let worker = cluster.worker("w");
    cluster.connected("a").await;
    cluster.connected("b").await;
    let reads = Arc::new(AtomicU64::new(0));
    let counted = reads.clone();
    worker.break_with(move |call| {
        let row = call.operation == "GetItem" && call.items().iter().any(|key| key["Pk"].is_object());
        counted.fetch_add(u64::from(row), Ordering::Relaxed);
        None
    });
    pass_ms(30_000).await;
    // Nobody marks anything: these are writes by hand, and no function runs.
    cluster.world.set("a", "desired_state", "STOPPED").await;
    eventually("it is closed and free", 6_500, async || {
        cluster.upstreams.open_now("a") == 0 && cluster.row("a").await.lease.owner.is_none()
    })
    .await;
    assert_eq!(reads.load(Ordering::Relaxed), 0, "no row was read");
    let row = cluster.row("a").await;
    assert_eq!((row.lease.expires_at_ms, row.observed_state), (Some(0), ObservedState::Stopped));
    cluster.world.set("b", "ws_url", "wss://feed.example/other").await;
    eventually("the other URL is open", 7_500, async || cluster.upstreams.open_now("other") == 1).await;
    assert_eq!(cluster.upstreams.open_now("b"), 0);
    assert_eq!(reads.load(Ordering::Relaxed), 1, "only to acquire it anew");
}

/// The stream passes on every write of a row that has the flag.
#[tokio::test(start_paused = true)]
async fn a_renewal_takes_the_flag_of_a_changed_spec_off_the_row() {
    let cluster = cluster().await;
    let _worker = cluster.worker("w");
    cluster.connected("a").await;
    pass_ms(10_000).await;
    let writes = cluster.row_writes("a").len();
    // As a tool sets it whose user gave the same spec once more.
    cluster.world.set("a", "spec_changed", "once-more").await;
    eventually("it is gone", 5_500, async || !cluster.item("a").await.contains_key("spec_changed")).await;
    assert_eq!(cluster.row_writes("a").len(), writes, "by the renewal itself");
    assert_eq!(cluster.upstreams.opens("a").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_row_that_is_overwritten_or_removed_loses_its_socket_with_the_next_renewal() {
    let cluster = cluster().await;
    let _worker = cluster.worker("w");
    cluster.connected("a").await;
    cluster.connected("b").await;
    cluster.world.put("a", &[("desired_state", "STARTED"), ("ws_url", "wss://feed.example/a")]).await;
    cluster.world.delete("b").await;
    eventually("both sockets are gone", 6_500, async || {
        cluster.upstreams.open_now("a") == 0 && cluster.upstreams.open_now("b") == 0
    })
    .await;
    assert_eq!(cluster.row("a").await.lease.owner, None, "and nothing was written to the new row");
}

/// The slot itself is held up by a read that nobody answers.
#[tokio::test(start_paused = true)]
async fn a_lost_row_loses_its_socket_with_the_next_renewal_also_while_its_slot_waits_for_the_store() {
    let cluster = cluster().await;
    let worker = cluster.worker("w");
    cluster.connected("a").await;
    let session = cluster.session(&worker).await.id;
    worker.break_with(|call| {
        let of_row = call.operation == "GetItem" && call.names("Pk", "CONN#a");
        of_row.then_some(Fault::Delay(Duration::from_secs(86_400)))
    });
    let ids = [leasehold::model::ConnectionId::new("a").unwrap()];
    cluster.world.table().mark(&session, &ids).await.unwrap();
    eventually("it looks", 6_000, async || worker.count("marks_read") == 1).await;
    cluster.world.put("a", &[("desired_state", "STARTED"), ("ws_url", "wss://feed.example/a")]).await;
    eventually("the socket is gone", 5_500, async || cluster.upstreams.open_now("a") == 0).await;
}

/// Nobody would look at the row's deadline any more.
#[tokio::test(start_paused = true)]
async fn a_row_whose_renewals_have_ended_by_a_panic_is_let_go_and_acquired_anew() {
    let cluster = cluster().await;
    let worker = cluster.worker("w");
    cluster.connected("a").await;
    let done = AtomicU64::new(0);
    worker.break_with(move |call| {
        let first = is_row_renewal(call.operation, call.request) && done.fetch_add(1, Ordering::Relaxed) == 0;
        assert!(!first, "the test breaks this task");
        None
    });
    eventually("it is open again", 8_000, async || cluster.upstreams.opens("a").len() == 2).await;
    pass_ms(30_000).await;
    assert_eq!((cluster.upstreams.open_now("a"), cluster.upstreams.most_at_once("a")), (1, 1));
    assert_eq!(cluster.upstreams.opens("a").len(), 2, "and renewed from then on");
}

/// The index is throttled: more requests would keep it so.
#[tokio::test(start_paused = true)]
async fn renewals_of_rows_that_are_throttled_become_seldom_and_past_the_deadline_there_is_one_a_heartbeat() {
    let cluster = cluster().await;
    let worker = cluster.worker_with("w", |settings| settings.on_store_outage = OnStoreOutage::Hold);
    let ids: Vec<String> = (0..20).map(|number| format!("c{number}")).collect();
    for id in &ids {
        cluster.connected(id).await;
    }
    pass_ms(10_000).await;
    let sent = Arc::new(AtomicU64::new(0));
    let counted = sent.clone();
    worker.break_with(move |call| {
        let renewal = is_row_renewal(call.operation, call.request);
        // The SDK's own second attempts belong to the first.
        counted.fetch_add(u64::from(renewal && call.attempt == 1), Ordering::Relaxed);
        renewal.then_some(Fault::Throttle("ThrottlingException"))
    });
    pass_ms(15_000).await;
    // About ten attempts a row in as many seconds; at 100 to 500 ms they would be thirty.
    let before = sent.swap(0, Ordering::Relaxed);
    assert!((60..=220).contains(&before), "{before} before the deadline");
    pass_ms(50_000).await;
    let past = sent.swap(0, Ordering::Relaxed);
    assert!((200..=250).contains(&past), "{past} in ten heartbeats of 20 rows");
    worker.repair();
    pass_ms(6_000).await;
    assert!(ids.iter().all(|id| cluster.upstreams.opens(id).len() == 1), "held");
    assert_eq!(worker.count("connections_lost"), 0);
}

/// A lease given back reads as expired at once.
#[tokio::test(start_paused = true)]
async fn at_sigterm_every_row_is_given_back_by_itself_and_reads_as_expired_at_once() {
    let cluster = cluster().await;
    let worker = cluster.worker("w");
    let ids: Vec<String> = (0..30).map(|number| format!("c{number}")).collect();
    for id in &ids {
        cluster.connected(id).await;
    }
    let told_ms = cluster.now_ms();
    worker.terminate();
    worker.ended().await.unwrap();
    assert!(cluster.now_ms() - told_ms < 2_000, "{} ms", cluster.now_ms() - told_ms);
    for id in &ids {
        let row = cluster.row(id).await;
        assert_eq!((row.lease.owner, row.lease.expires_at_ms), (None, Some(0)));
        assert_eq!(row.observed_state, ObservedState::Pending, "it is still wanted");
        let released_ms = cluster.row_writes(id).last().unwrap().at_ms;
        let closed = cluster.upstreams.events(id, |what| *what == What::Gone);
        assert!(closed[0].at_ms <= released_ms, "closed before it was given up");
    }
    assert_eq!(cluster.world.take_claims().await.len(), ids.len(), "whoever gives a row up sends its claim");
}

/// The row was stopped and no renewal has told its owner so.
#[tokio::test(start_paused = true)]
async fn a_row_that_is_stopped_just_before_sigterm_is_left_as_stopped() {
    let cluster = cluster().await;
    let worker = cluster.worker("w");
    cluster.connected("a").await;
    cluster.world.set("a", "desired_state", "STOPPED").await;
    worker.terminate();
    worker.ended().await.unwrap();
    let row = cluster.row("a").await;
    assert_eq!((row.lease.owner, row.lease.expires_at_ms, row.observed_state), (None, Some(0), ObservedState::Stopped));
}

/// Releases that are not answered go on until the session is over for the worker itself, 4 s after SIGTERM.
#[tokio::test(start_paused = true)]
async fn a_session_ends_only_after_its_slots() {
    let cluster = cluster().await;
    let worker = cluster.worker("w");
    cluster.connected("a").await;
    worker.break_with(|call| is_release(call.operation, call.request).then_some(Fault::Delay(Duration::from_secs(10))));
    let told_ms = cluster.now_ms();
    worker.terminate();
    worker.ended().await.unwrap();
    let ends = cluster.writes(|write| write.request.to_string().contains("\"ENDED\""));
    let after_ms = ends[0].at_ms - told_ms;
    // The second release is given up 2 s after it was sent, and that is some time after 2 s.
    assert!((4_050..5_500).contains(&after_ms), "{after_ms} ms");
}

/// The published pattern's way to find orphans: by the index alone, here with every session's end unseen.
#[tokio::test(start_paused = true)]
async fn an_orphan_is_found_through_the_index_and_owned_again_after_its_lease_and_the_skew() {
    let cluster = cluster().await;
    let old = cluster.worker("old");
    cluster.connected("a").await;
    let epoch = cluster.row("a").await.lease.epoch;
    let _new = cluster.worker("new");
    // It renews its session, and nothing else reaches the table: only the row's own lease runs out.
    old.break_with(|call| {
        let of_row = call.items().iter().any(|key| key["Pk"].is_object());
        of_row.then_some(Fault::LostBefore)
    });
    let cut_ms = cluster.now_ms();
    let mut took_ms = None;
    for _ in 0..60 {
        pass_ms(1_000).await;
        cluster.world.tick().await;
        if took_ms.is_none() && cluster.upstreams.opens("a").len() == 2 {
            took_ms = Some(cluster.now_ms() - cut_ms);
        }
    }
    let took_ms = took_ms.expect("it is owned again");
    // A renewal may have been sent just before: its lease of 20 s, the skew of 3 s and 2 s of the Date; then a turn comes within 30 s.
    assert!((15_000..=56_000).contains(&took_ms), "{took_ms} ms");
    assert_eq!(cluster.upstreams.most_at_once("a"), 1, "the old owner had dropped its socket");
    assert!(cluster.row("a").await.lease.epoch > epoch);
    assert_eq!(cluster.session(&old).await.state, SessionState::Active, "nobody was fenced for it");
}

/// A renewal in flight never moves a lease back, nor brings a released one back.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_lands_late_moves_nothing_back() {
    let cluster = cluster().await;
    let worker = cluster.worker("w");
    cluster.connected("a").await;
    let first = Arc::new(AtomicU64::new(0));
    worker.break_with(move |call| {
        let first = is_row_renewal(call.operation, call.request) && first.fetch_add(1, Ordering::Relaxed) == 0;
        first.then_some(Fault::LandLate {
            answer_after: Duration::from_millis(500),
            apply_after: Duration::from_secs(12),
        })
    });
    let mut last_ms = 0;
    for _ in 0..60 {
        pass_ms(500).await;
        let expires_at_ms = cluster.row("a").await.lease.expires_at_ms.unwrap();
        assert!(expires_at_ms >= last_ms, "it went back from {last_ms} to {expires_at_ms}");
        last_ms = expires_at_ms;
    }
    let late = Fault::LandLate { answer_after: Duration::from_millis(500), apply_after: Duration::from_secs(20) };
    worker.break_with(move |call| is_row_renewal(call.operation, call.request).then(|| late.clone()));
    pass_ms(5_500).await;
    worker.terminate();
    worker.ended().await.unwrap();
    pass_ms(30_000).await;
    assert_eq!(cluster.row("a").await.lease.expires_at_ms, Some(0));
}

/// An acquire whose process slept between its decision and its answer: the row's lease runs from the decision.
#[tokio::test(start_paused = true)]
async fn the_lease_of_a_row_is_counted_from_the_decision_to_take_it() {
    let cluster = cluster().await;
    let worker = cluster.worker("w");
    cluster.registered(&worker).await;
    // Not answered for four seconds; renewals of the row are all lost.
    let sent_ms = Arc::new(AtomicU64::new(0));
    let first_ms = sent_ms.clone();
    worker.break_with(move |call| {
        if is_acquire(call.operation, call.request) {
            let _ = first_ms.compare_exchange(0, call.now_ms, Ordering::Relaxed, Ordering::Relaxed);
            let lost = call.now_ms < first_ms.load(Ordering::Relaxed) + 4_000;
            return lost.then_some(Fault::Delay(Duration::from_secs(60)));
        }
        is_row_renewal(call.operation, call.request).then_some(Fault::LostBefore)
    });
    cluster.start("a").await;
    eventually("it is open", 9_000, async || cluster.upstreams.open_now("a") == 1).await;
    let (sent_ms, epoch) = (sent_ms.load(Ordering::Relaxed), cluster.row("a").await.lease.epoch);
    let opened_ms = cluster.now_ms() - sent_ms;
    assert!(opened_ms >= 4_000, "{opened_ms} ms after the acquire was first sent");
    let dropped = || cluster.upstreams.events("a", |what| *what == What::Gone);
    eventually("it is dropped", 15_000, async || !dropped().is_empty()).await;
    let dropped_ms = dropped()[0].at_ms - sent_ms;
    assert!((13_000..=14_200).contains(&dropped_ms), "{dropped_ms} ms after the acquire was first sent");
    eventually("it is acquired anew", 5_000, async || cluster.row("a").await.lease.epoch > epoch).await;
}

/// While a deployment changes from one scope to the other, both kinds of workers run: each row says how its owner leases it.
#[tokio::test(start_paused = true)]
async fn workers_of_both_scopes_take_each_others_rows_and_never_a_live_one() {
    for first in LeaseScope::ALL {
        let cluster = Cluster::of(LeaseScope::ALL.into_iter().find(|scope| *scope != first).unwrap()).await;
        let old = cluster.worker_with("old", |settings| settings.timing.scope = first);
        cluster.connected("a").await;
        let new = cluster.worker("new");
        let owner: Option<SessionId> = cluster.row("a").await.lease.owner;
        for _ in 0..6 {
            pass_ms(10_000).await;
            cluster.claim("a").await;
            cluster.world.tick().await;
        }
        assert_eq!(cluster.row("a").await.lease.owner, owner, "claims do not take it from a live {first:?} owner");
        old.cut_off();
        for _ in 0..6 {
            pass_ms(10_000).await;
            cluster.world.tick().await;
        }
        assert_eq!(cluster.row("a").await.lease.owner, Some(cluster.session(&new).await.id));
        assert_eq!((cluster.upstreams.open_now("a"), cluster.upstreams.most_at_once("a")), (1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_fenced_gives_its_rows_up_before_their_own_leases_end() {
    let cluster = cluster().await;
    // Full, so that it takes no claims.
    let old = cluster.worker_with("old", |settings| settings.capacity = 1);
    cluster.connected("a").await;
    let session = cluster.session(&old).await.id;
    old.cut_off();
    let _new = cluster.worker("new");
    // As after a task report: the process is dead.
    cluster.fence(&session).await;
    cluster.claim("a").await;
    let own_ms = cluster.row("a").await.lease.expires_at_ms.unwrap();
    eventually("another owns it", 5_000, async || cluster.row("a").await.lease.owner != Some(session.clone())).await;
    assert!(cluster.world.now_ms() < own_ms, "long before its own lease ended");
}

/// A slip of a hand must not make a row unrenewable, nor keep it from ever being free.
#[tokio::test(start_paused = true)]
async fn an_expiry_years_ahead_is_written_anew_by_the_next_renewal() {
    let cluster = cluster().await;
    let _worker = cluster.worker("w");
    cluster.connected("a").await;
    cluster
        .change("a", "lease_expires_at_ms", Some(aws_sdk_dynamodb::types::AttributeValue::N("9000000000000".into())))
        .await;
    pass_ms(6_000).await;
    let expires_at_ms = cluster.row("a").await.lease.expires_at_ms.unwrap();
    assert!(expires_at_ms < cluster.world.now_ms() + 23_000, "{expires_at_ms}");
    cluster.change("a", "lease_epoch", Some(s("seven"))).await;
    eventually("a row that cannot be read is dropped", 6_500, async || cluster.upstreams.open_now("a") == 0).await;
}
