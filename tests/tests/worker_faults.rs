//! What breaks inside a worker, or is refused to it for good, is noticed and repaired, and costs others nothing.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use aws_sdk_dynamodb::types::AttributeValue;
use leasehold::model::connection::EPOCH_END;
use leasehold::model::{ObservedState, SessionState};
use leasehold_local::faults::{Call, Fault};
use leasehold_tests::cluster::{
    Cluster, Worker, acquired, eventually, is_acquire, is_renewal, no_faults, numbered, pass_ms, s,
};
use leasehold_tests::connector::What;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A plan that panics once, in the task that sends the first request that `is` it.
fn panic_once(is: fn(&Call<'_>) -> bool) -> impl Fn(&Call<'_>) -> Option<Fault> + Send + Sync + 'static {
    let done = AtomicBool::new(false);
    move |call| {
        assert!(!is(call) || done.swap(true, Ordering::Relaxed), "the test breaks this task");
        None
    }
}

/// A refusal that the same request meets again: the role has no permission.
fn denied() -> Fault {
    Fault::Throttle("AccessDeniedException")
}

fn ends(call: &Call<'_>) -> bool {
    call.operation == "UpdateItem" && call.request.to_string().contains("\"ENDED\"")
}

fn compares(call: &Call<'_>) -> bool {
    call.operation == "Query" && call.request["IndexName"] == "by_owner"
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_panics_is_replaced_and_its_connection_is_open_again() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker("w");
    cluster.connected("b").await;
    // The row is owned by then, and no socket is open yet.
    worker.break_with(panic_once(|call| call.operation == "Query" && call.request["IndexName"].is_null()));
    cluster.start("a").await;
    eventually("the row is owned", 2_000, async || cluster.row("a").await.lease.owner.is_some()).await;
    eventually("the socket opens", 8_000, async || cluster.upstreams.open_now("a") == 1).await;
    assert_eq!(worker.count("slots_panicked"), 1);
    assert_eq!((cluster.upstreams.opens("a").len(), cluster.upstreams.opens("b").len()), (1, 1));
    // Nothing waits for what has panicked.
    let session = cluster.session(&worker).await.id;
    cluster.fence(&session).await;
    eventually("a new session owns both", 20_000, async || {
        cluster.upstreams.open_now("a") == 1
            && cluster.upstreams.open_now("b") == 1
            && cluster.row("a").await.lease.owner.is_some_and(|owner| owner != session)
    })
    .await;
}

/// Breaks one task of a worker's session, and expects a new session that holds the connection.
async fn expect_a_new_session(task: &str, break_it: impl AsyncFn(&Cluster, &Worker)) {
    let cluster = Cluster::new().await;
    let worker = cluster.worker("w");
    cluster.connected("a").await;
    let session = cluster.session(&worker).await.id;
    break_it(&cluster, &worker).await;
    eventually(&format!("without its {task} the session ends"), 70_000, async || {
        cluster.world.session(&session).await.state == SessionState::Ended
    })
    .await;
    let ended_ms = cluster.now_ms();
    eventually("a new one holds the connection", 5_000, async || cluster.upstreams.opens("a").len() == 2).await;
    let gone = cluster.upstreams.events("a", |what| *what == What::Gone).remove(0);
    assert!(gone.at_ms <= ended_ms, "{task}: the socket is dropped before the session ends");
    assert_eq!(cluster.upstreams.most_at_once("a"), 1, "{task}");
    assert_eq!(worker.count("session_tasks_ended"), 1, "{task}");
    pass_ms(120_000).await;
    assert_eq!(cluster.sessions(&worker).await.len(), 2, "{task}: the new session stays");
}

#[tokio::test(start_paused = true)]
async fn a_keeper_that_panics_ends_its_session_and_a_new_one_begins() {
    expect_a_new_session("keeper", async |_, worker| {
        worker.break_with(panic_once(|call| is_renewal(call.operation, call.request)));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_taker_of_claims_that_panics_ends_its_session_and_a_new_one_begins() {
    expect_a_new_session("claims", async |_, worker| {
        worker.queue_faults.set_plan(Arc::new(panic_once(|call| call.operation == "ReceiveMessage")));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_comparison_that_panics_ends_its_session_and_a_new_one_begins() {
    expect_a_new_session("compare", async |_, worker| worker.break_with(panic_once(compares))).await;
}

#[tokio::test(start_paused = true)]
async fn a_reader_of_marks_that_panics_ends_its_session_and_a_new_one_begins() {
    expect_a_new_session("converge", async |cluster, worker| {
        worker.break_with(panic_once(|call| {
            call.operation == "UpdateItem" && call.request["Key"].to_string().contains("#marks")
        }));
        cluster.change("a", "headers", None).await;
    })
    .await;
}

/// The acquire landed, every answer was lost, and the claim went to a worker that saw a live owner and deleted it.
#[tokio::test(start_paused = true)]
async fn an_acquire_whose_answers_were_all_lost_is_taken_up_without_a_claim() {
    let cluster = Cluster::new().await;
    // With room for one, no poll is under way while that one is being taken.
    let worker = cluster.worker_with("w", |settings| settings.capacity = 1);
    cluster.registered(&worker).await;
    worker.break_with(|call| is_acquire(call.operation, call.request).then_some(Fault::LostAfter));
    cluster.start("a").await;
    eventually("the claim is received", 5_000, async || worker.count("claims_received") == 1).await;
    worker.queue_faults.set_plan(Arc::new(|call| (call.operation == "ReceiveMessage").then_some(Fault::LostBefore)));
    eventually("the claim is given back", 15_000, async || worker.count("claims_given_back") == 1).await;
    assert!(cluster.row("a").await.lease.owner.is_some());
    worker.repair();
    eventually("its socket opens", 5_000, async || cluster.upstreams.open_now("a") == 1).await;
    assert_eq!(worker.count("claims_received"), 1);
}

/// An acquire that lands late leaves the row under an epoch that nobody holds.
#[tokio::test(start_paused = true)]
async fn a_row_that_names_its_owner_under_another_epoch_is_acquired_anew() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker("w");
    cluster.connected("a").await;
    let epoch = cluster.row("a").await.lease.epoch.unwrap() + 5;
    cluster.change("a", "lease_epoch", Some(AttributeValue::N(epoch.to_string()))).await;
    eventually("it is open under a higher epoch", 8_000, async || {
        cluster.upstreams.opens("a").len() == 2 && cluster.row("a").await.lease.epoch > Some(epoch)
    })
    .await;
    assert_eq!((worker.count("connections_lost"), cluster.upstreams.most_at_once("a")), (1, 1));
}

/// SIGTERM while a registration is under way: no session may come to life after its process is gone.
#[tokio::test(start_paused = true)]
async fn a_worker_that_is_stopped_while_it_registers_leaves_no_session_behind() {
    let late = Fault::LandLate { answer_after: Duration::from_secs(60), apply_after: Duration::from_millis(1_500) };
    for fault in [Fault::DelayAnswer(Duration::from_millis(900)), late] {
        let cluster = Cluster::new().await;
        let worker = cluster.worker("w");
        let (told, plan_fault) = (Arc::new(AtomicBool::new(false)), fault.clone());
        let sent = told.clone();
        worker.break_with(move |call| {
            let registers = call.operation == "PutItem";
            sent.fetch_or(registers, Ordering::Relaxed);
            registers.then(|| plan_fault.clone())
        });
        eventually("the registration is sent", 2_000, async || told.load(Ordering::Relaxed)).await;
        worker.terminate();
        eventually("it stops", 9_000, async || worker.is_over()).await;
        pass_ms(5_000).await;
        let sessions = cluster.sessions(&worker).await;
        let states: Vec<_> = sessions.iter().map(|session| session.state).collect();
        assert_eq!(states, [SessionState::Ended], "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_may_not_be_ended_is_tried_with_back_off() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker("w");
    let session = cluster.registered(&worker).await.id;
    let tries = Arc::new(AtomicU32::new(0));
    let count = tries.clone();
    worker.break_with(move |call| {
        ends(call).then(|| {
            count.fetch_add(1, Ordering::Relaxed);
            denied()
        })
    });
    cluster.fence(&session).await;
    pass_ms(120_000).await;
    let tries = tries.load(Ordering::Relaxed);
    assert!((3..=30).contains(&tries), "{tries} tries in 2 min");
    worker.repair();
    eventually("a new session begins", 40_000, async || cluster.session(&worker).await.id != session).await;
}

/// A permission that is missing hardly comes back within a second, but an attempt is made shortly before the deadline.
#[tokio::test(start_paused = true)]
async fn renewals_that_are_refused_for_good_are_tried_seldom_and_once_more_before_the_deadline() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker("w");
    cluster.connected("a").await;
    eventually("a renewal has been made", 6_000, async || worker.count("renewals") == 1).await;
    let renewed_ms = cluster.now_ms();
    let tries = Arc::new(Mutex::new(Vec::new()));
    let note = tries.clone();
    worker.break_with(move |call| {
        is_renewal(call.operation, call.request).then(|| {
            note.lock().unwrap().push(call.now_ms);
            denied()
        })
    });
    pass_ms(14_200).await;
    assert_eq!(cluster.upstreams.open_now("a"), 0, "the deadline has passed");
    let tries: Vec<u64> = tries.lock().unwrap().iter().map(|at_ms| at_ms - renewed_ms).collect();
    assert!((4..=14).contains(&tries.len()), "{tries:?}");
    assert!(tries.iter().any(|after_ms| (13_000..14_000).contains(after_ms)), "{tries:?}");
    worker.repair();
    eventually("it goes on under the same session", 5_000, async || cluster.upstreams.open_now("a") == 1).await;
    assert_eq!(cluster.sessions(&worker).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_comparison_that_fails_is_made_again_within_seconds() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker("w");
    let session = cluster.registered(&worker).await.id;
    worker.break_with(|call| compares(call).then_some(Fault::LostBefore));
    // Nobody tells the worker of this row.
    let owned = [("lease_owner", session.as_str()), ("lease_epoch", "5"), ("ws_url", "wss://feed.example/a")];
    cluster.world.put("a", &[&owned[..], &[("desired_state", "STARTED")]].concat()).await;
    eventually("a comparison fails", 70_000, async || worker.count("comparisons_failed") == 1).await;
    worker.repair();
    eventually("the row is found", 8_000, async || cluster.upstreams.open_now("a") == 1).await;
}

/// SIGTERM while an acquire is under way: the row is taken, nothing is opened, and the next owner hears of it.
#[tokio::test(start_paused = true)]
async fn an_acquire_under_way_at_sigterm_opens_nothing_and_is_claimed_for_others() {
    let cluster = Cluster::new().await;
    let old = cluster.worker("old");
    cluster.registered(&old).await;
    old.break_with(|call| {
        is_acquire(call.operation, call.request).then_some(Fault::DelayAnswer(Duration::from_millis(700)))
    });
    cluster.start("a").await;
    eventually("the acquire is applied", 2_000, async || !cluster.writes(acquired).is_empty()).await;
    let _new = cluster.worker("new");
    old.terminate();
    eventually("the other worker owns it", 3_000, async || cluster.upstreams.open_now("a") == 1).await;
    let workers: Vec<String> = cluster
        .upstreams
        .events("a", |what| matches!(what, What::Attempt { .. }))
        .into_iter()
        .map(|event| event.worker)
        .collect();
    assert_eq!(workers, ["new"]);
}

/// An item may have 400 KB, names and values in UTF-8 together (DynamoDB Developer Guide, "Quotas").
const ITEM_BYTES: usize = 400 * 1024;

/// A stamped row that has `room` bytes to spare.
async fn start_large(cluster: &Cluster, id: &str, room: usize) {
    let row: &[(&str, String)] = &[
        ("Pk", format!("CONN#{id}")),
        ("desired_state", "STARTED".into()),
        ("ws_url", format!("wss://feed.example/{id}")),
    ];
    let texts: usize = row.iter().map(|(name, value)| name.len() + value.len()).sum();
    // Two numbers: a byte for each two digits and one more. A list has 3 bytes, and one for each element.
    let numbers = ("lease_epoch".len() + 2) + ("lease_expires_at_ms".len() + 2);
    let list = "on_open".len() + 3 + 1;
    let greeting = "x".repeat(ITEM_BYTES - texts - numbers - list - room);
    cluster.start_with(id, &[("on_open", AttributeValue::L(vec![s(&greeting)]))]).await;
}

/// The acquire would make the row too large: it can never succeed.
#[tokio::test(start_paused = true)]
async fn a_row_that_is_too_large_to_be_acquired_is_reported_and_holds_nobody_up() {
    // With room for the fault, and without.
    for (room, state) in [(80, ObservedState::Parked), (20, ObservedState::Pending)] {
        let cluster = Cluster::new().await;
        let worker = cluster.worker("w");
        cluster.registered(&worker).await;
        start_large(&cluster, "large", room).await;
        cluster.connected("b").await;
        eventually("it is noticed", 5_000, async || worker.count("acquires_refused") == 1).await;
        pass_ms(60_000).await;
        assert_eq!(worker.count("acquires_refused"), 1, "its claim is gone");
        let row = cluster.row("large").await;
        assert_eq!((row.lease.owner, row.observed_state), (None, state), "room {room}");
        if state == ObservedState::Parked {
            assert_eq!(row.reason.as_deref(), Some("too large to be acquired"));
        }
        // Claimed again, as reconcile does: said once.
        let writes = cluster.row_writes("large").len();
        cluster.claim("large").await;
        eventually("it is noticed again", 5_000, async || worker.count("acquires_refused") == 2).await;
        pass_ms(1_000).await;
        assert_eq!(cluster.row_writes("large").len(), writes);
        assert_eq!(cluster.upstreams.opens("b").len(), 1);
        // Made smaller, it is acquired with the next claim.
        cluster.change("large", "on_open", None).await;
        cluster.claim("large").await;
        eventually("its socket opens", 5_000, async || cluster.upstreams.open_now("large") == 1).await;
        assert_eq!(cluster.row("large").await.reason, None);
    }
}

/// Somebody wrote the highest epoch that can be read, and another a year ahead.
#[tokio::test(start_paused = true)]
async fn an_epoch_far_ahead_is_its_own_rows_fault_and_lifts_no_others() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker("w");
    cluster.registered(&worker).await;
    let year_ms = cluster.world.now_ms() + 365 * 86_400_000;
    for (id, epoch) in [("last", EPOCH_END - 1), ("year", year_ms)] {
        cluster.start_with(id, &[("lease_epoch", AttributeValue::N(epoch.to_string()))]).await;
    }
    eventually("one is refused, the other taken", 5_000, async || {
        worker.count("acquires_refused") == 1 && cluster.upstreams.open_now("year") == 1
    })
    .await;
    assert_eq!(cluster.row("year").await.lease.epoch, Some(year_ms + 1));
    cluster.connected("b").await;
    assert!(cluster.row("b").await.lease.epoch.unwrap() < cluster.world.now_ms() + 60_000);
    let row = cluster.row("last").await;
    assert_eq!((row.lease.owner, row.observed_state), (None, ObservedState::Parked));
    assert!(row.reason.unwrap().starts_with("no epoch can follow"));
    pass_ms(30_000).await;
    assert!(cluster.world.take_claims().await.is_empty(), "its claim is gone");
}

/// A claim that is given back for a refusal that can pass is not lost.
#[tokio::test(start_paused = true)]
async fn an_acquire_that_is_denied_is_tried_again_with_its_claim() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker("w");
    cluster.registered(&worker).await;
    worker.break_with(|call| is_acquire(call.operation, call.request).then(denied));
    cluster.start("a").await;
    pass_ms(20_000).await;
    assert_eq!((worker.count("acquires_refused"), cluster.upstreams.attempts("a")), (0, 0));
    worker.faults.set_plan(no_faults());
    eventually("it is open", 15_000, async || cluster.upstreams.open_now("a") == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_panics_during_a_shutdown_does_not_delay_it_and_is_claimed() {
    let cluster = Cluster::new().await;
    let old = cluster.worker("old");
    cluster.connected_with("a", &numbered()).await;
    // Its look at the row breaks it just before SIGTERM.
    old.break_with(panic_once(|call| call.operation == "GetItem" && call.names("Pk", "CONN#a")));
    cluster.change("a", "headers", None).await;
    eventually("it panics", 6_000, async || old.count("slots_panicked") == 1).await;
    let _new = cluster.worker("new");
    old.terminate();
    eventually("the other worker owns it", 3_000, async || cluster.upstreams.open_now("a") == 1).await;
    assert_eq!(cluster.upstreams.opens("a")[1].worker, "new");
    assert_eq!(cluster.upstreams.most_at_once("a"), 1);
}
