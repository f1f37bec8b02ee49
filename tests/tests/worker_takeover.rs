//! Connections go from one worker to the next: in order, in time, and never to two at once.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use leasehold::aws::StoreError;
use leasehold::aws::connections::{Observed, Status};
use leasehold::decide::renewal::OnStoreOutage;
use leasehold::decide::timing::Rules;
use leasehold::model::{ConnectionId, ObservedState, SessionState};
use leasehold_local::faults::Fault;
use leasehold_tests::cluster::{Cluster, Worker, acquired, eventually, is_acquire, is_renewal, numbered, pass_ms};
use leasehold_tests::connector::{Script, What};
use leasehold_worker::connector::Frame;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

fn replaying() -> Script {
    Script { replay: Some(0), ..Script::default() }
}

async fn drain(cluster: &Cluster, worker: &Worker) {
    let session = cluster.registered(worker).await.id;
    let request = cluster.world.dynamo().update_item().table_name(&cluster.world.names.tables.sessions);
    let request = request.key("session_id", leasehold_tests::cluster::s(session.as_str()));
    let value = aws_sdk_dynamodb::types::AttributeValue::Bool(true);
    let request = request.update_expression("SET drain = :v").expression_attribute_values(":v", value);
    request.send().await.unwrap();
}

/// amazon-kinesis-client #1452: cleanly stopping workers were still given work.
#[tokio::test(start_paused = true)]
async fn a_draining_worker_gets_no_new_connection() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker("w");
    cluster.connected("old").await;
    drain(&cluster, &worker).await;
    // With the next renewal it knows, while its long poll is under way.
    pass_ms(6_000).await;
    cluster.start("new").await;
    pass_ms(30_000).await;
    assert_eq!(cluster.upstreams.attempts("new"), 0);
    assert_eq!(cluster.upstreams.open_now("old"), 1, "what it has it keeps");
    let _other = cluster.worker("other");
    eventually("another worker takes the claim", 12_000, async || cluster.upstreams.open_now("new") == 1).await;
    assert_eq!(cluster.upstreams.opens("new")[0].worker, "other");
}

/// dapr #9514: the old instance went on working long after the new one started.
#[tokio::test(start_paused = true)]
async fn the_new_owners_socket_opens_after_the_old_one_is_over() {
    let cluster = Cluster::new().await;
    let old = cluster.worker("old");
    cluster.connected("a").await;
    let _new = cluster.worker("new");
    let session = cluster.session(&old).await.id;
    old.cut_off();
    // The claim comes again and again: it proves nothing.
    for _ in 0..12 {
        cluster.claim("a").await;
        pass_ms(2_000).await;
        assert_eq!(cluster.upstreams.opens("a").len(), 1, "nobody takes what is not over");
    }
    cluster.fence(&session).await;
    let fenced_ms = cluster.now_ms();
    cluster.claim("a").await;
    eventually("the new one takes it", 2_000, async || cluster.upstreams.opens("a").len() == 2).await;
    let gone = cluster.upstreams.events("a", |what| *what == What::Gone).remove(0);
    let opened = cluster.upstreams.opens("a").remove(1);
    assert!(gone.at_ms < fenced_ms && fenced_ms <= opened.at_ms, "{gone:?} {fenced_ms} {opened:?}");
    assert_eq!(opened.worker, "new");
}

/// akka #30604: two owners wrote events with equal sequence numbers.
#[tokio::test(start_paused = true)]
async fn a_stale_epochs_writes_are_refused() {
    let cluster = Cluster::new().await;
    let old = cluster.worker("old");
    cluster.connected("a").await;
    let (session, id) = (cluster.session(&old).await.id, ConnectionId::new("a").unwrap());
    let epoch = cluster.row("a").await.lease.epoch.unwrap();
    let new = cluster.worker("new");
    cluster.registered(&new).await;
    old.cut_off();
    pass_ms(24_000).await;
    cluster.fence(&session).await;
    cluster.claim("a").await;
    eventually("the new one takes it", 2_000, async || cluster.upstreams.opens("a").len() == 2).await;
    pass_ms(1_000).await;
    let before = cluster.item("a").await;
    let table = cluster.world.table();
    let observed = Observed { state: ObservedState::Stopped, reason: Some("stale".into()), since_ms: 1 };
    let status = Status { observed: Some(observed), progress: Some(("s".into(), u64::MAX)) };
    let written = table.write_status(&id, &session, epoch, &status, Rules::default()).await.unwrap();
    assert!(!written.is_applied());
    let released = table.release(&id, &session, epoch, &status, &[], Rules::default()).await.unwrap();
    assert!(!released.is_applied());
    // The new owner's session under the old epoch is as stale.
    let new = cluster.session(&new).await.id;
    assert!(!table.release(&id, &new, epoch, &status, &[], Rules::default()).await.unwrap().is_applied());
    assert_eq!(cluster.item("a").await, before);
    assert!(cluster.row("a").await.lease.epoch.unwrap() > epoch);
}

/// amazon-kinesis-client #845: no release at shutdown, up to 40 s without an owner. The order of the shutdown, too.
#[tokio::test(start_paused = true)]
async fn after_sigterm_sockets_close_then_the_session_ends_then_others_own_within_2_s() {
    let cluster = Cluster::new().await;
    let old = cluster.worker("old");
    let ids: Vec<String> = (0..30).map(|number| format!("c{number}")).collect();
    for id in &ids {
        cluster.connected(id).await;
    }
    let session = cluster.session(&old).await.id;
    let _new = cluster.worker("new");
    pass_ms(3_000).await;
    let told_ms = cluster.now_ms();
    old.terminate();
    eventually("all are connected to the other worker", 2_000, async || {
        ids.iter().all(|id| cluster.upstreams.open_now(id) == 1 && cluster.upstreams.opens(id).len() == 2)
    })
    .await;
    let ended = cluster.writes(|write| {
        write.request["Key"]["session_id"]["S"] == session.as_str() && write.answer.to_string().contains("\"ENDED\"")
    });
    assert_eq!(ended.len(), 1);
    for id in &ids {
        let polite = cluster.upstreams.events(id, |what| *what == What::ClosedByWorker);
        assert_eq!(polite.len(), 1, "{id} is closed by handshake");
        let gone = cluster.upstreams.events(id, |what| *what == What::Gone).remove(0);
        let opened = cluster.upstreams.opens(id).remove(1);
        assert!(gone.at_ms <= ended[0].at_ms && ended[0].at_ms <= opened.at_ms, "{id}");
        assert_eq!(cluster.upstreams.most_at_once(id), 1);
    }
    assert!(cluster.now_ms() - told_ms < 2_000);
    assert_eq!(cluster.world.session(&session).await.state, SessionState::Ended);
    old.ended().await.unwrap();
}

/// An upstream that does not answer the closing handshake, and a store that stalls, cost the shutdown its second and no more.
#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_a_second_for_an_upstream_that_does_not_close() {
    let cluster = Cluster::new().await;
    let old = cluster.worker("old");
    cluster.upstreams.script("a", Script { closes: false, ..Script::default() });
    cluster.connected("a").await;
    let _new = cluster.worker("new");
    pass_ms(3_000).await;
    old.terminate();
    eventually("the other worker owns it", 2_000, async || cluster.upstreams.opens("a").len() == 2).await;
    assert_eq!(cluster.upstreams.most_at_once("a"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_without_a_store_ends_in_time() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker("w");
    cluster.connected("a").await;
    worker.cut_off();
    worker.terminate();
    let told_ms = cluster.now_ms();
    worker.ended().await.unwrap();
    // ECS gives 30 s before it kills (stopTimeout's default).
    assert!(cluster.now_ms() - told_ms < 15_000, "{}", cluster.now_ms() - told_ms);
    assert_eq!(cluster.upstreams.open_now("a"), 0);
}

/// SIGTERM while the lease is lost: what was held then is claimed all the same once the session has ended.
#[tokio::test(start_paused = true)]
async fn a_shutdown_after_the_deadline_still_claims_what_was_held() {
    let cluster = Cluster::new().await;
    let old = cluster.worker("old");
    cluster.connected("a").await;
    old.break_with(|call| is_renewal(call.operation, call.request).then_some(Fault::LostBefore));
    eventually("the socket is dropped", 15_000, async || cluster.upstreams.open_now("a") == 0).await;
    let _new = cluster.worker("new");
    pass_ms(500).await;
    old.terminate();
    eventually("the other worker owns it", 3_000, async || cluster.upstreams.open_now("a") == 1).await;
    assert_eq!(cluster.upstreams.opens("a")[1].worker, "new");
}

/// A message that is being stored when SIGTERM comes is stored, and the next owner goes on behind it.
#[tokio::test(start_paused = true)]
async fn a_handover_under_load_loses_and_repeats_nothing() {
    let cluster = Cluster::new().await;
    let old = cluster.worker("old");
    cluster.upstreams.script("a", replaying());
    cluster.connected_with("a", &numbered()).await;
    let _new = cluster.worker("new");
    for number in 1..=500 {
        if number == 200 {
            old.terminate();
        }
        cluster.upstreams.publish("a", [number]);
        pass_ms(7).await;
    }
    eventually("all are stored", 5_000, async || cluster.numbers("a").await.len() >= 500).await;
    assert_eq!(cluster.numbers("a").await, (1..=500).collect::<Vec<_>>(), "each once, under one series");
    assert_eq!(cluster.upstreams.opens("a").len(), 2);
}

/// The promise for a silent death: where the upstream can resume, a failover loses nothing.
#[tokio::test(start_paused = true)]
async fn after_a_failover_the_new_owner_resumes_from_the_newest_stored_message() {
    let cluster = Cluster::new().await;
    let old = cluster.worker("old");
    cluster.upstreams.script("a", replaying());
    cluster.connected_with("a", &numbered()).await;
    cluster.upstreams.publish("a", 1..=40);
    eventually("they are stored", 1_000, async || cluster.numbers("a").await.len() == 40).await;
    let row = cluster.row("a").await;
    assert_eq!(row.progress.last_seq, None, "no checkpoint is due yet: the messages themselves tell");
    let session = cluster.session(&old).await.id;
    let _new = cluster.worker("new");
    old.cut_off();
    cluster.upstreams.publish("a", 41..=60);
    pass_ms(24_000).await;
    cluster.fence(&session).await;
    cluster.claim("a").await;
    eventually("all are stored", 3_000, async || cluster.numbers("a").await.len() == 60).await;
    assert_eq!(cluster.numbers("a").await, (1..=60).collect::<Vec<_>>());
    let attempts = cluster.upstreams.events("a", |what| matches!(what, What::Attempt { .. }));
    assert!(matches!(&attempts[1].what, What::Attempt { query, .. } if query == "from=40"), "{attempts:?}");
}

/// An acquire lands after its sender was fenced: the row names a dead session, and whoever is told takes it.
#[tokio::test(start_paused = true)]
async fn a_row_that_comes_to_name_a_session_that_is_over_is_taken_by_the_next_claim() {
    let cluster = Cluster::new().await;
    let old = cluster.worker("old");
    let session = cluster.registered(&old).await.id;
    let late = Fault::LandLate { answer_after: Duration::from_secs(60), apply_after: Duration::from_secs(40) };
    old.break_with(move |call| is_acquire(call.operation, call.request).then(|| late.clone()));
    cluster.start("a").await;
    pass_ms(1_500).await;
    old.cut_off();
    pass_ms(24_000).await;
    cluster.fence(&session).await;
    cluster.world.take_claims().await;
    eventually("the acquire lands", 20_000, async || cluster.row("a").await.lease.owner == Some(session.clone())).await;
    let _new = cluster.worker("new");
    cluster.claim("a").await;
    eventually("the new one takes it", 3_000, async || cluster.upstreams.open_now("a") == 1).await;
    assert_eq!(cluster.upstreams.most_at_once("a"), 1);
}

#[tokio::test(start_paused = true)]
async fn two_workers_with_the_same_environment_have_different_sessions_and_both_work() {
    let cluster = Cluster::new().await;
    let one = cluster.worker_with("one", |settings| settings.capacity = 5);
    let two = cluster.worker_with("two", |settings| settings.capacity = 5);
    for number in 0..10 {
        cluster.start(&format!("c{number}")).await;
    }
    eventually("both are full", 15_000, async || {
        (0..10).all(|number| cluster.upstreams.open_now(&format!("c{number}")) == 1)
    })
    .await;
    assert_ne!(cluster.session(&one).await.id, cluster.session(&two).await.id);
    pass_ms(6_000).await;
    assert_eq!((cluster.session(&one).await.held, cluster.session(&two).await.held), (5, 5));
    // More than there is room for waits in the queue.
    cluster.start("more").await;
    pass_ms(30_000).await;
    assert_eq!(cluster.upstreams.attempts("more"), 0);
    assert_eq!(cluster.world.queue(&cluster.world.urls.claims).depth().await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_missing_table_ends_the_worker_with_what_is_missing() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker_with("w", |settings| settings.tables.sessions = "no-such-table".into());
    let error = worker.ended().await.unwrap_err();
    assert!(matches!(error, StoreError::Missing { .. }), "{error}");
    assert!(error.to_string().contains("is the stack deployed"), "{error}");
}

/// A store that is away when a worker starts is waited for: ECS would only start the next one.
#[tokio::test(start_paused = true)]
async fn a_worker_that_starts_during_an_outage_registers_when_it_is_over() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker("w");
    worker.cut_off();
    cluster.start("a").await;
    pass_ms(60_000).await;
    assert!(!worker.is_over());
    worker.repair();
    eventually("it works", 40_000, async || cluster.upstreams.open_now("a") == 1).await;
}

/// A claim that lands twice, or for what somebody holds, changes nothing.
#[tokio::test(start_paused = true)]
async fn a_claim_for_a_held_connection_changes_nothing() {
    let cluster = Cluster::new().await;
    let one = cluster.worker("one");
    let two = cluster.worker("two");
    cluster.registered(&one).await;
    cluster.registered(&two).await;
    for _ in 0..20 {
        cluster.claim("a").await;
    }
    cluster.start("a").await;
    for _ in 0..20 {
        cluster.claim("a").await;
    }
    pass_ms(30_000).await;
    assert_eq!(cluster.upstreams.opens("a").len(), 1);
    assert_eq!(cluster.writes(acquired).len(), 1);
    assert_eq!(cluster.world.queue(&cluster.world.urls.claims).depth().await.unwrap(), 0);
}

/// START, STOP, START within a second while an owner holds it: it ends started and owned.
#[tokio::test(start_paused = true)]
async fn a_row_that_is_started_again_while_it_is_released_is_claimed() {
    let cluster = Cluster::new().await;
    let _worker = cluster.worker("w");
    cluster.upstreams.script("a", Script { closes: false, ..Script::default() });
    cluster.connected("a").await;
    cluster.change("a", "desired_state", Some(leasehold_tests::cluster::s("STOPPED"))).await;
    // The closing handshake takes its second: the row is started again meanwhile.
    eventually("it is closing", 6_000, async || {
        !cluster.upstreams.events("a", |what| *what == What::ClosedByWorker).is_empty()
    })
    .await;
    cluster.change("a", "desired_state", Some(leasehold_tests::cluster::s("STARTED"))).await;
    eventually("it is open again", 10_000, async || cluster.upstreams.opens("a").len() == 2).await;
    assert_eq!(cluster.upstreams.most_at_once("a"), 1);
}

/// A row is deleted and made again within a minute: its epoch begins above all that were there, so nothing of the old life is accepted.
#[tokio::test(start_paused = true)]
async fn the_epoch_of_a_row_that_is_made_again_rises_and_its_former_owners_writes_are_refused() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker("w");
    cluster.connected("a").await;
    let (session, id) = (cluster.session(&worker).await.id, ConnectionId::new("a").unwrap());
    let before = cluster.row("a").await.lease.epoch.unwrap();
    cluster.world.delete("a").await;
    cluster.world.table().mark(&session, std::slice::from_ref(&id)).await.unwrap();
    eventually("the socket is dropped", 10_000, async || cluster.upstreams.open_now("a") == 0).await;
    cluster.connected("a").await;
    let after = cluster.row("a").await.lease.epoch.unwrap();
    assert!(after > before, "{after} is not above {before}");
    let status = Status { observed: None, progress: Some(("s".into(), 1)) };
    let table = cluster.world.table();
    let written = table.write_status(&id, &session, before, &status, Rules::default()).await.unwrap();
    assert!(!written.is_applied());
}

/// dynamolock #446, etcd #10811: the holder was cut off, and its writes came through after the take-over.
#[tokio::test(start_paused = true)]
async fn no_later_write_of_a_worker_that_is_cut_off_is_accepted() {
    for policy in [OnStoreOutage::Close, OnStoreOutage::Hold] {
        let cluster = Cluster::new().await;
        let old = cluster.worker_with("old", |settings| {
            settings.on_store_outage = policy;
            settings.checkpoint_interval_ms = 1_000;
            settings.status_interval_ms = 0;
        });
        cluster.connected_with("a", &numbered()).await;
        pass_ms(1_000).await;
        let (session, id) = (cluster.session(&old).await.id, ConnectionId::new("a").unwrap());
        let epoch = cluster.row("a").await.lease.epoch.unwrap();
        let new = cluster.worker_with("new", |settings| settings.checkpoint_interval_ms = 1_000);
        cluster.registered(&new).await;
        // Renewals are lost, and what the owner writes on its row lands 40 s later.
        let (writes, checkpoints) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (count, count_checkpoints) = (writes.clone(), checkpoints.clone());
        old.break_with(move |call| {
            if call.operation != "UpdateItem" {
                return None;
            }
            if !call.names("Pk", "CONN#a") {
                return Some(Fault::LostBefore);
            }
            count.fetch_add(1, Ordering::Relaxed);
            count_checkpoints.fetch_add(u32::from(call.request.to_string().contains("last_seq")), Ordering::Relaxed);
            Some(Fault::LandLate { answer_after: Duration::from_secs(60), apply_after: Duration::from_secs(40) })
        });
        cluster.upstreams.publish("a", 1..=3);
        pass_ms(4_000).await;
        cluster.upstreams.send("a", &Frame::Close(Some(1012)));
        pass_ms(21_000).await;
        assert!(writes.load(Ordering::Relaxed) >= 2, "status and checkpoint are under way");
        assert!(checkpoints.load(Ordering::Relaxed) >= 1, "a checkpoint is among them");
        cluster.fence(&session).await;
        old.cut_off();
        cluster.claim("a").await;
        let fenced = cluster.row_writes("a").len();
        eventually("the new one takes it", 5_000, async || cluster.upstreams.opens("a").len() >= 2).await;
        pass_ms(60_000).await;
        let new = cluster.session(&new).await.id;
        for write in &cluster.row_writes("a")[fenced..] {
            assert_eq!(write.answer["Attributes"]["lease_owner"]["S"], new.as_str(), "{policy:?}: {write:?}");
            let values = write.request["ExpressionAttributeValues"].to_string();
            assert!(acquired(write) || values.contains(new.as_str()), "{policy:?}: {write:?}");
        }
        let before = cluster.item("a").await;
        let observed = Observed { state: ObservedState::Connected, reason: None, since_ms: 1 };
        let state = Status { observed: Some(observed), progress: None };
        let checkpoint = Status { observed: None, progress: Some(("s".into(), u64::MAX)) };
        for status in [state, checkpoint] {
            let written = cluster.world.table().write_status(&id, &session, epoch, &status, Rules::default()).await;
            assert!(!written.unwrap().is_applied(), "{policy:?}: {status:?}");
        }
        assert_eq!(cluster.item("a").await, before);
    }
}
