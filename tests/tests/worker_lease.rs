//! A worker keeps its leases whatever happens to single requests, and gives them up in time when it must.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use leasehold::decide::renewal::OnStoreOutage;
use leasehold::decide::scope::LeaseScope;
use leasehold::model::{ObservedState, SessionState};
use leasehold_local::faults::Fault;
use leasehold_tests::cluster::{
    Cluster, WorkerClock, acquired, eventually, is_acquire, is_release, is_renewal, numbered, pass_ms,
};
use leasehold_tests::connector::{Answer, Script, What};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// amazon-kinesis-client #2, dynamolock #280: the retry of a renewal whose answer was lost failed its condition.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_was_applied_and_whose_answer_was_lost_counts() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker("w");
    cluster.connected("a").await;
    let session = cluster.session(&worker).await.id;
    // The first attempt of each renewal; the SDK's own retry then fails the condition.
    worker
        .break_with(|call| (is_renewal(call.operation, call.request) && call.attempt == 1).then_some(Fault::LostAfter));
    pass_ms(60_000).await;
    assert_eq!(cluster.session(&worker).await.id, session, "the session is still the same");
    assert!(worker.count("renewals") >= 10, "{}", worker.count("renewals"));
    assert_eq!((worker.count("renewals_failed"), worker.count("sessions_lost")), (0, 0));
    assert_eq!(cluster.upstreams.opens("a").len(), 1, "its socket was never closed");
}

/// The same where the SDK's retry is lost as well, and the worker has to try again by itself.
#[tokio::test(start_paused = true)]
async fn a_renewal_of_which_no_answer_ever_comes_is_followed_by_one_with_a_higher_number() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker("w");
    cluster.connected("a").await;
    let lost = Arc::new(AtomicU32::new(0));
    let count = lost.clone();
    worker.break_with(move |call| {
        // Two in three requests are applied and not answered.
        let of_these = is_renewal(call.operation, call.request) && count.fetch_add(1, Ordering::Relaxed) % 3 != 2;
        of_these.then_some(Fault::LostAfter)
    });
    pass_ms(60_000).await;
    assert!(worker.count("renewals_failed") > 0);
    assert_eq!(worker.count("sessions_lost"), 0);
    assert_eq!(cluster.upstreams.opens("a").len(), 1);
}

/// amazon-kinesis-client PR 777: the taker did not know that it had won.
#[tokio::test(start_paused = true)]
async fn an_acquire_that_was_applied_and_whose_answer_was_lost_was_won() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker("w");
    cluster.registered(&worker).await;
    let attempts = Arc::new(AtomicU32::new(0));
    let count = attempts.clone();
    // Three times: longer than the SDK's own retries.
    worker.break_with(move |call| {
        let lost = is_acquire(call.operation, call.request) && count.fetch_add(1, Ordering::Relaxed) < 3;
        lost.then_some(Fault::LostAfter)
    });
    cluster.connected("a").await;
    pass_ms(30_000).await;
    assert!(attempts.load(Ordering::Relaxed) >= 4);
    assert_eq!(worker.count("acquires_won_without_answer"), 1);
    assert_eq!(cluster.upstreams.opens("a").len(), 1, "the socket opened once");
    let acquires = cluster.writes(acquired);
    assert_eq!(acquires.len(), 1, "the epoch rose once");
}

/// aws-sdk-java #2667: the SDK's own retry looked like a new request.
#[tokio::test(start_paused = true)]
async fn the_sdks_own_retry_of_an_acquire_raises_the_epoch_once() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker("w");
    cluster.registered(&worker).await;
    let epochs = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = epochs.clone();
    worker.break_with(move |call| {
        if !is_acquire(call.operation, call.request) {
            return None;
        }
        seen.lock().unwrap().push(call.request["ExpressionAttributeValues"].clone());
        (call.attempt == 1).then_some(Fault::LostAfter)
    });
    cluster.connected("a").await;
    let epochs = epochs.lock().unwrap();
    assert_eq!(epochs.len(), 2, "the SDK tried twice");
    assert_eq!(epochs[0], epochs[1], "both requests say the same");
    assert_eq!(cluster.writes(acquired).len(), 1);
    assert_eq!(worker.count("acquires_won_without_answer"), 1);
}

/// tristanls/dynamodb-lock-client #1: a heartbeat in flight brought a released lock back.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_lands_after_the_end_of_its_session_changes_nothing() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker("w");
    cluster.connected("a").await;
    let session = cluster.session(&worker).await.id;
    let late = Fault::LandLate { answer_after: Duration::from_secs(60), apply_after: Duration::from_secs(20) };
    worker.break_with(move |call| is_renewal(call.operation, call.request).then(|| late.clone()));
    eventually("a renewal is on its way", 6_000, async || worker.gauges.loop_ran_ms.load(Ordering::Relaxed) > 5_300)
        .await;
    worker.terminate();
    worker.ended().await.unwrap();
    assert_eq!(cluster.world.session(&session).await.state, SessionState::Ended);
    pass_ms(30_000).await;
    let after = cluster.world.session(&session).await;
    assert_eq!((after.state, after.heartbeat), (SessionState::Ended, 0));
}

/// tristanls/dynamodb-lock-client #21: one failed release skipped all others.
#[tokio::test(start_paused = true)]
async fn a_release_that_fails_holds_no_other_up() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker("w");
    for id in ["a", "b", "c"] {
        cluster.connected(id).await;
    }
    worker.break_with(|call| {
        (is_release(call.operation, call.request) && call.names("Pk", "CONN#a")).then_some(Fault::Http500)
    });
    for id in ["a", "b", "c"] {
        cluster.change(id, "desired_state", Some(leasehold_tests::cluster::s("STOPPED"))).await;
    }
    eventually("the others are free", 7_000, async || {
        cluster.row("b").await.lease.owner.is_none() && cluster.row("c").await.lease.owner.is_none()
    })
    .await;
    assert_eq!(cluster.upstreams.open_now("a"), 0, "its socket is closed all the same");
    assert!(cluster.row("a").await.lease.owner.is_some());
    worker.repair();
    eventually("the release is tried again", 35_000, async || cluster.row("a").await.lease.owner.is_none()).await;
}

/// akkadotnet Akka.Management #3402, pekko-management PR 911: "acquired" was announced before the write was confirmed.
#[tokio::test(start_paused = true)]
async fn a_socket_opens_only_after_a_confirmed_acquire() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker("w");
    cluster.registered(&worker).await;
    worker.break_with(|call| is_acquire(call.operation, call.request).then_some(Fault::LostBefore));
    cluster.start("a").await;
    pass_ms(20_000).await;
    assert_eq!(cluster.upstreams.attempts("a"), 0);
    // Applied, and its answer takes a while: the socket waits for the answer.
    worker.break_with(|call| {
        is_acquire(call.operation, call.request).then_some(Fault::DelayAnswer(Duration::from_millis(900)))
    });
    eventually("the acquire is applied", 20_000, async || cluster.row("a").await.lease.owner.is_some()).await;
    let applied_ms = cluster.writes(acquired)[0].at_ms;
    eventually("the socket opens", 5_000, async || cluster.upstreams.open_now("a") == 1).await;
    let opened_ms = cluster.upstreams.opens("a")[0].at_ms;
    assert!(opened_ms >= applied_ms + 900, "opened at {opened_ms}, applied at {applied_ms}");
}

/// The second half of the same reports: one failed heartbeat gave a lease up.
#[tokio::test(start_paused = true)]
async fn failed_renewals_are_tried_again_until_the_deadline() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker("w");
    cluster.connected("a").await;
    worker.break_with(|call| is_renewal(call.operation, call.request).then_some(Fault::LostBefore));
    // A renewal counts for 14 s, and the last one is 5 s old at most.
    pass_ms(8_000).await;
    worker.repair();
    pass_ms(30_000).await;
    assert!(worker.count("renewals_failed") > 1);
    assert_eq!(cluster.upstreams.opens("a").len(), 1, "the socket stays open");
    assert_eq!(cluster.sessions(&worker).await.len(), 1);
}

/// occurrent #659: expiry was judged by another machine's wall clock.
#[tokio::test(start_paused = true)]
async fn wall_clocks_30_s_apart_make_no_two_owners_and_the_skew_is_reported() {
    let cluster = Cluster::new().await;
    let behind = cluster.worker_on("behind", WorkerClock::off_by(cluster.world.time, -30_000), |_| {});
    cluster.connected("a").await;
    let ahead = cluster.worker_on("ahead", WorkerClock::off_by(cluster.world.time, 30_000), |_| {});
    for _ in 0..10 {
        cluster.claim("a").await;
        pass_ms(3_000).await;
    }
    assert_eq!(cluster.upstreams.opens("a").len(), 1, "the owner stays");
    let (behind_ms, ahead_ms) =
        (cluster.session(&behind).await.clock_skew_ms, cluster.session(&ahead).await.clock_skew_ms);
    assert!((-31_000..=-28_000).contains(&behind_ms), "{behind_ms}");
    assert!((28_000..=31_000).contains(&ahead_ms), "{ahead_ms}");
    // The owner is cut off and fenced as soon as it may be: expired by DynamoDB's clock for longer than the skew.
    let session = cluster.session(&behind).await;
    behind.cut_off();
    eventually("it may be fenced", 30_000, async || {
        let now_ms = cluster.world.now_ms();
        now_ms > cluster.session(&behind).await.lease_expires_at_ms + 3_000
    })
    .await;
    cluster.fence(&session.id).await;
    cluster.claim("a").await;
    eventually("the other one takes over", 2_000, async || cluster.upstreams.opens("a").len() == 2).await;
    assert_eq!(cluster.upstreams.most_at_once("a"), 1, "never two at once");
    assert_eq!(cluster.upstreams.opens("a")[1].worker, "ahead");
}

/// delta-rs PR 153: the lease clock was started after the answer came.
#[tokio::test(start_paused = true)]
async fn the_owner_counts_its_lease_from_before_it_sends() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker("w");
    cluster.connected("a").await;
    let sent_ms = Arc::new(AtomicU64::new(0));
    let note = sent_ms.clone();
    // One renewal is answered 0.9 s after it was sent, and none after it.
    worker.break_with(move |call| {
        if !is_renewal(call.operation, call.request) {
            return None;
        }
        match note.compare_exchange(0, call.now_ms, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Some(Fault::DelayAnswer(Duration::from_millis(900))),
            Err(_) => Some(Fault::LostBefore),
        }
    });
    eventually("the socket is dropped", 30_000, async || cluster.upstreams.open_now("a") == 0).await;
    let lasted_ms = cluster.now_ms() - sent_ms.load(Ordering::Relaxed);
    assert_eq!(worker.count("renewals"), 1, "the slow renewal counts");
    assert!((14_000..=14_150).contains(&lasted_ms), "dropped {lasted_ms} ms after the renewal was sent");
}

/// dynamolock #446, etcd #10811: the network was cut, and the holder kept writing.
#[tokio::test(start_paused = true)]
async fn a_worker_that_is_cut_off_closes_its_sockets_before_its_lease_ends() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker("w");
    let other = cluster.worker_with("other", |settings| settings.capacity = 0);
    cluster.connected_with("a", &numbered()).await;
    cluster.upstreams.publish("a", 1..=3);
    eventually("they are stored", 1_000, async || cluster.numbers("a").await.len() == 3).await;
    let session = cluster.registered(&worker).await;
    cluster.registered(&other).await;
    worker.cut_off();
    let cut_ms = cluster.now_ms();
    eventually("the socket is dropped", 15_000, async || cluster.upstreams.open_now("a") == 0).await;
    let gone = cluster.upstreams.events("a", |what| *what == What::Gone).remove(0);
    let expired = cluster.world.session(&session.id).await.lease_expires_at_ms;
    assert!(gone.at_ms + leasehold_tests::EPOCH_MS < expired, "before the lease ends");
    assert!(gone.at_ms <= cut_ms + 14_100);
    assert!(cluster.upstreams.events("a", |what| *what == What::ClosedByWorker).is_empty(), "no time for a handshake");
    // What arrives from now on is nobody's.
    cluster.upstreams.publish("a", 4..=6);
    pass_ms(20_000).await;
    cluster.fence(&session.id).await;
    let writes = cluster.writes(|_| true).len();
    worker.repair();
    pass_ms(20_000).await;
    let later = cluster.writes(|write| write.request.to_string().contains("CONN#a")).len();
    assert_eq!(cluster.numbers("a").await, [1, 2, 3], "nothing is stored for a lease that is lost: {writes} {later}");
    let sessions = cluster.sessions(&worker).await;
    assert_eq!(sessions[0].state, SessionState::Fenced, "the fenced session stays over");
    assert_eq!(sessions.last().unwrap().state, SessionState::Active, "it starts over under a new id");
}

/// The same with `hold`: an outage of DynamoDB costs nobody a socket.
#[tokio::test(start_paused = true)]
async fn with_hold_the_sockets_stay_and_nothing_is_stored_until_a_renewal_succeeds() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker_with("w", |settings| settings.on_store_outage = OnStoreOutage::Hold);
    cluster.connected_with("a", &numbered()).await;
    let session = cluster.session(&worker).await.id;
    cluster.upstreams.publish("a", 1..=3);
    eventually("they are stored", 1_000, async || cluster.numbers("a").await.len() == 3).await;
    worker.cut_off();
    pass_ms(60_000).await;
    cluster.upstreams.publish("a", 4..=6);
    // The network is back for everything but renewals: even so nothing is stored.
    worker.break_with(|call| is_renewal(call.operation, call.request).then_some(Fault::LostBefore));
    pass_ms(60_000).await;
    assert_eq!(cluster.upstreams.open_now("a"), 1);
    assert_eq!(cluster.numbers("a").await, [1, 2, 3]);
    worker.repair();
    eventually("what was held is stored", 3_000, async || cluster.numbers("a").await == [1, 2, 3, 4, 5, 6]).await;
    assert_eq!(cluster.upstreams.opens("a").len(), 1);
    assert_eq!(cluster.session(&worker).await.id, session);
}

#[tokio::test(start_paused = true)]
async fn with_hold_a_fenced_worker_drops_its_sockets_and_what_it_held() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker_with("w", |settings| settings.on_store_outage = OnStoreOutage::Hold);
    cluster.connected_with("a", &numbered()).await;
    let session = cluster.session(&worker).await.id;
    worker.cut_off();
    pass_ms(30_000).await;
    cluster.upstreams.publish("a", 1..=3);
    cluster.fence(&session).await;
    let epoch = cluster.row("a").await.lease.epoch;
    worker.break_with(|call| (!is_renewal(call.operation, call.request)).then_some(Fault::LostBefore));
    eventually("it hears that it is fenced", 3_000, async || cluster.upstreams.open_now("a") == 0).await;
    worker.repair();
    // It starts over under a new id, and claims what it held.
    eventually("it owns the connection anew", 15_000, async || cluster.upstreams.open_now("a") == 1).await;
    assert!(cluster.row("a").await.lease.epoch > epoch);
    assert!(cluster.numbers("a").await.is_empty(), "what was held under the lost lease is not stored");
    assert_ne!(cluster.session(&worker).await.id, session);
}

#[tokio::test(start_paused = true)]
async fn with_hold_the_sockets_are_dropped_after_hold_max() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker_with("w", |settings| settings.on_store_outage = OnStoreOutage::Hold);
    cluster.connected("a").await;
    worker.cut_off();
    pass_ms(305_000).await;
    assert_eq!(cluster.upstreams.open_now("a"), 1);
    pass_ms(10_000).await;
    assert_eq!(cluster.upstreams.open_now("a"), 0);
    worker.repair();
    eventually("the session is still its own, so the row is acquired anew", 5_000, async || {
        cluster.upstreams.open_now("a") == 1
    })
    .await;
    assert_eq!(cluster.sessions(&worker).await.len(), 1);
}

/// vmware-go-kcl #77, amazon-kinesis-client #639: a throttled lease table left work unowned for good.
#[tokio::test(start_paused = true)]
async fn after_a_minute_of_throttling_everything_is_owned_again() {
    for policy in [OnStoreOutage::Close, OnStoreOutage::Hold] {
        let cluster = Cluster::new().await;
        let worker = cluster.worker_with("w", |settings| settings.on_store_outage = policy);
        let ids: Vec<String> = (0..20).map(|number| format!("c{number}")).collect();
        for id in &ids {
            cluster.connected(id).await;
        }
        worker.break_with(|_| Some(Fault::Throttle("ProvisionedThroughputExceededException")));
        // Started meanwhile.
        cluster.start("late").await;
        pass_ms(60_000).await;
        worker.repair();
        eventually("everything is owned and connected again", 30_000, async || {
            ids.iter().all(|id| cluster.upstreams.open_now(id) == 1) && cluster.upstreams.open_now("late") == 1
        })
        .await;
        let session = cluster.session(&worker).await.id;
        for id in &ids {
            assert_eq!(cluster.row(id).await.lease.owner.as_ref(), Some(&session));
            assert_eq!(cluster.upstreams.most_at_once(id), 1);
        }
        assert!(!worker.is_over(), "no restart");
    }
}

/// Brighter #2810: an index with a handful of key values throttled the table.
#[tokio::test(start_paused = true)]
async fn a_heartbeat_costs_one_write_on_the_table_and_where_rows_are_leased_two_on_an_index_for_each() {
    let cluster = Cluster::new().await;
    let _worker = cluster.worker("w");
    for id in ["a", "b", "c"] {
        cluster.connected(id).await;
    }
    pass_ms(60_000).await;
    let renewals = cluster.meter.totals()["renewal"];
    assert!(renewals.requests >= 12, "{renewals:?}");
    // The session row stays below 1 KB, which is one unit.
    assert_eq!((renewals.table, renewals.index), (renewals.requests as f64, 0.0));
    for id in ["a", "b", "c"] {
        let writes = cluster.row_writes(id).len();
        assert!(writes <= 2, "a row that is held is not written: {writes} writes");
    }
    let of_rows = cluster.meter.totals().get("row_renewal").copied().unwrap_or_default();
    match cluster.world.timing.scope {
        LeaseScope::Worker => assert_eq!(of_rows.requests, 0),
        // Its key in by_expiry changes: one item goes, another comes (AWS, "Using Global Secondary Indexes", write capacity).
        LeaseScope::Connection => {
            assert!(of_rows.requests >= 33, "{of_rows:?}");
            assert_eq!((of_rows.table, of_rows.index), (of_rows.requests as f64, 2.0 * of_rows.requests as f64));
        }
    }
}

/// A session row is removed while its process sleeps; a renewal without `exists` would bring it back.
#[tokio::test(start_paused = true)]
async fn a_session_whose_row_was_removed_starts_over_under_a_new_id() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker("w");
    cluster.connected("a").await;
    let session = cluster.session(&worker).await.id;
    cluster.fence(&session).await;
    cluster.world.table().remove_session(&session).await.unwrap();
    eventually("it has a new session", 10_000, async || {
        cluster.sessions(&worker).await.last().is_some_and(|newest| newest.id != session)
    })
    .await;
    assert_eq!(cluster.world.table().session(&session).await.unwrap(), None, "the old row does not come back");
    eventually("it owns its connection again", 5_000, async || cluster.upstreams.open_now("a") == 1).await;
    assert_eq!(cluster.row("a").await.lease.owner, Some(cluster.session(&worker).await.id));
}

/// A process that was suspended: its clock has gone on, and frames wait in its sockets.
#[tokio::test(start_paused = true)]
async fn a_process_that_slept_past_its_lease_stores_nothing_of_what_it_finds_in_its_sockets() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker("w");
    cluster.connected_with("a", &numbered()).await;
    cluster.upstreams.publish("a", 1..=2);
    eventually("they are stored", 1_000, async || cluster.numbers("a").await.len() == 2).await;
    let session = cluster.session(&worker).await.id;
    worker.suspend();
    pass_ms(30_000).await;
    cluster.fence(&session).await;
    worker.wake();
    cluster.upstreams.publish("a", 3..=4);
    pass_ms(1_000).await;
    assert_eq!(cluster.numbers("a").await, [1, 2]);
    eventually("it owns the connection under a new session", 15_000, async || {
        cluster.row("a").await.lease.owner.is_some_and(|owner| owner != session) && cluster.upstreams.open_now("a") == 1
    })
    .await;
    assert_eq!(cluster.upstreams.most_at_once("a"), 1);
}

/// vector #23992, for a lease that was lost for a moment: the process slept past its deadline, a frame showed it to the socket's task,
/// and then the renewal came through.
#[tokio::test(start_paused = true)]
async fn a_process_that_slept_past_its_deadline_only_is_connected_again() {
    for slept_ms in [14_500, 16_000, 19_000, 25_000] {
        let cluster = Cluster::new().await;
        let worker = cluster.worker("w");
        cluster.connected("a").await;
        worker.suspend();
        pass_ms(slept_ms).await;
        worker.wake();
        for _ in 0..20 {
            cluster.upstreams.send("a", &leasehold_worker::connector::Frame::Text("x".into()));
            pass_ms(20).await;
        }
        // The old session may wait 10 s for a request that was under way, before it ends and a new one begins.
        eventually(&format!("it is connected again after {slept_ms} ms of sleep"), 40_000, async || {
            cluster.upstreams.open_now("a") == 1 && cluster.row("a").await.observed_state == ObservedState::Connected
        })
        .await;
        // And it stays so.
        pass_ms(10_000).await;
        assert_eq!(cluster.upstreams.open_now("a"), 1, "after {slept_ms} ms of sleep");
        let row = cluster.row("a").await;
        assert_eq!(row.lease.owner, Some(cluster.session(&worker).await.id));
        assert_eq!(row.observed_state, ObservedState::Connected);
        assert_eq!(cluster.upstreams.most_at_once("a"), 1);
    }
}

/// A handshake under way when the deadline passes is given up.
#[tokio::test(start_paused = true)]
async fn no_socket_opens_after_the_deadline() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker_with("w", |settings| settings.handshake_timeout_ms = 60_000);
    cluster
        .upstreams
        .script("a", Script { answers: vec![Answer::AcceptAfter(17_000), Answer::Accept], ..Script::default() });
    cluster.registered(&worker).await;
    cluster.start("a").await;
    eventually("an attempt is under way", 2_000, async || cluster.upstreams.attempts("a") == 1).await;
    worker.cut_off();
    pass_ms(19_000).await;
    assert!(cluster.upstreams.opens("a").is_empty());
}

/// Under `hold` a socket that the upstream closes meanwhile is opened again when the lease is sure, and not before.
#[tokio::test(start_paused = true)]
async fn with_hold_no_socket_opens_while_the_lease_is_in_doubt() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker_with("w", |settings| settings.on_store_outage = OnStoreOutage::Hold);
    cluster.connected("a").await;
    worker.cut_off();
    pass_ms(20_000).await;
    cluster.upstreams.send("a", &leasehold_worker::connector::Frame::Close(Some(1012)));
    pass_ms(60_000).await;
    assert_eq!(cluster.upstreams.attempts("a"), 1);
    worker.repair();
    eventually("it is opened again", 5_000, async || cluster.upstreams.open_now("a") == 1).await;
    assert_eq!(cluster.sessions(&worker).await.len(), 1);
}
