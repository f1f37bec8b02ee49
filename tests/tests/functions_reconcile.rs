//! `reconcile` on the embedded engine and virtual time.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use leasehold::aws::Store;
use leasehold::aws::queues::Queue;
use leasehold::aws::sdk::DynamoClients;
use leasehold::decide::acquire::{Acquire, Expected};
use leasehold::decide::scope::LeaseScope;
use leasehold::model::{ConnectionId, SessionId, SessionState};
use leasehold_local::engine::clients;
use leasehold_local::faults::{Call, Fault, Faulty, SmallPages};
use leasehold_reconcile::Reconcile;
use leasehold_tests::{ONE_MINUTE_MS, World};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The task of the sample event.
const TASK: &str = "arn:aws:ecs:us-east-1:123456789012:task/leasehold/c13b4cb40f1f4fe4a2971f76ae5a47ad";

/// A row that `owner` took.
async fn owned(world: &World, id: &str, owner: &SessionId, desired_state: &str) {
    world.put_minimal(id, "STARTED").await;
    let connection = ConnectionId::new(id).unwrap();
    let expected = Expected { owner: None, epoch: None, expired_by_ms: Some(world.now_ms()) };
    let acquire = Acquire { expected, epoch: world.now_ms(), expires_at_ms: None, owners: vec![] };
    assert!(world.table().acquire(&connection, owner, &acquire, world.now_ms()).await.unwrap().is_applied());
    world.set(id, "desired_state", desired_state).await;
}

/// A row that is stamped and free.
async fn free(world: &World, id: &str) {
    world.put_minimal(id, "STARTED").await;
    assert!(world.table().stamp(&ConnectionId::new(id).unwrap(), 0).await.unwrap().is_applied());
}

async fn minute(world: &World) -> Value {
    world.reconcile().handle(json!({}), ONE_MINUTE_MS).await.unwrap()
}

fn claims(ids: &[&str]) -> BTreeMap<String, u64> {
    ids.iter().map(|id| ((*id).to_owned(), 1)).collect()
}

/// A report of the task's end.
fn report(exit_code: Option<i64>) -> Value {
    let mut event: Value = serde_json::from_str(include_str!("../../events/ecs-task-stopped.json")).unwrap();
    event["detail"]["containers"][0]["exitCode"] = json!(exit_code);
    event
}

#[tokio::test(start_paused = true)]
async fn a_dead_worker_of_three_is_fenced_within_its_lease_the_skew_and_an_interval_and_its_rows_are_claimed_at_once() {
    let world = World::new().await;
    let (w1, w2, w3) =
        (world.register("w1", None).await, world.register("w2", None).await, world.register("w3", None).await);
    for id in ["a", "b", "c", "d", "e"] {
        owned(&world, id, &w3, "STARTED").await;
    }
    owned(&world, "stopped", &w3, "STOPPED").await;
    world.tick().await;
    world.live(&[&w1, &w2], 20).await;
    assert_eq!(world.session(&w3).await.state, SessionState::Active);
    world.live(&[&w1, &w2], 13).await;
    let session = world.session(&w3).await;
    assert_eq!(session.state, SessionState::Fenced);
    assert!(session.over_reason.unwrap().contains("expired"));
    assert_eq!(world.take_claims().await, claims(&["a", "b", "c", "d", "e"]));
    let stopped = world.row("stopped").await;
    assert_eq!((stopped.lease.owner, stopped.lease.expires_at_ms), (None, Some(0)));
}

/// DynamoDB is away for two lease times, processes run on.
#[tokio::test(start_paused = true)]
async fn an_outage_of_the_store_for_two_leases_fences_nobody() {
    for fleet in [vec!["w1"], vec!["w1", "w2", "w3"]] {
        let world = World::new().await;
        let mut sessions = Vec::new();
        for id in fleet {
            sessions.push(world.register(id, None).await);
        }
        let ids: Vec<&SessionId> = sessions.iter().collect();
        world.live(&ids, 30).await;
        world.break_with(Arc::new(|_| Some(Fault::Http500)));
        for _ in 0..4 {
            world.pass(10).await;
            assert!(world.reconcile().handle(json!({}), ONE_MINUTE_MS).await.is_err());
        }
        world.repair();
        assert_eq!(world.tick().await["all_silent"], true);
        // One comes back at once, the others a little later.
        assert!(world.renew(ids[0]).await);
        world.tick().await;
        world.pass(4).await;
        for id in &ids {
            assert!(world.renew(id).await, "{id} is not fenced");
        }
        world.live(&ids, 60).await;
    }
}

/// aws/containers-roadmap #324: a task is reported as stopped before its container is.
#[tokio::test(start_paused = true)]
async fn a_task_report_fences_at_once_and_one_without_exit_codes_does_not() {
    let world = World::new().await;
    let (w1, w2) = (world.register("w1", Some(TASK)).await, world.register("w2", None).await);
    owned(&world, "a", &w1, "STARTED").await;
    let function = world.reconcile();
    function.handle(report(None), ONE_MINUTE_MS).await.unwrap();
    assert_eq!(world.session(&w1).await.state, SessionState::Active);
    let answer = function.handle(report(Some(137)), ONE_MINUTE_MS).await.unwrap();
    assert_eq!((&answer["fenced"], &answer["claimed"]), (&json!(1), &json!(1)));
    assert_eq!(world.session(&w1).await.state, SessionState::Fenced);
    assert_eq!(world.session(&w2).await.state, SessionState::Active);
    assert_eq!(world.take_claims().await, claims(&["a"]));
}

#[tokio::test(start_paused = true)]
async fn a_session_that_renews_between_the_look_and_the_fence_is_not_fenced() {
    let world = World::new().await;
    let (w1, w2) = (world.register("w1", Some(TASK)).await, world.register("w2", None).await);
    let renewing = (world.table(), w1.clone(), world.now_ms() + 25_000);
    world.break_with(Arc::new(move |call| {
        let fences = call.operation == "UpdateItem" && call.names("session_id", "w1");
        let (store, id, expires_at_ms) = renewing.clone();
        if fences {
            // The renewal lands first.
            tokio::spawn(async move { store.renew(&id, 1, expires_at_ms, &Default::default()).await });
        }
        fences.then_some(Fault::Delay(std::time::Duration::from_millis(100)))
    }));
    let answer = world.reconcile().handle(report(Some(0)), ONE_MINUTE_MS).await.unwrap();
    assert_eq!(answer["fenced"], 0);
    assert_eq!((world.session(&w1).await.state, world.session(&w1).await.heartbeat), (SessionState::Active, 1));
    assert_eq!(world.session(&w2).await.state, SessionState::Active);
}

/// An acquire that lands after its sender was fenced.
#[tokio::test(start_paused = true)]
async fn a_row_that_comes_to_name_a_session_that_is_over_is_claimed_at_one_of_the_next_looks() {
    let world = World::new().await;
    let (w1, w2) = (world.register("w1", None).await, world.register("w2", None).await);
    world.tick().await;
    world.table().end(&w1, "test", world.now_ms()).await.unwrap();
    world.live(&[&w2], 60).await;
    owned(&world, "late", &w1, "STARTED").await;
    assert!(world.take_claims().await.is_empty());
    world.live(&[&w2], 31).await;
    assert_eq!(world.take_claims().await, claims(&["late"]));
}

/// Without any row of a session, and without an index, the sweep finds it.
#[tokio::test(start_paused = true)]
async fn the_sweep_finds_rows_of_sessions_that_have_no_row() {
    let world = World::new().await;
    owned(&world, "a", &SessionId::new("never-was"), "STARTED").await;
    owned(&world, "b", &SessionId::new("never-was"), "STOPPED").await;
    let answer = minute(&world).await;
    assert_eq!((&answer["claimed"], &answer["reaped"], &answer["swept_pages"]), (&json!(1), &json!(1), &json!(1)));
    assert_eq!(world.take_claims().await, claims(&["a"]));
    assert_eq!(world.row("b").await.lease.owner, None);
}

/// Every event lost: the schedule alone finds a row that was written by hand.
#[tokio::test(start_paused = true)]
async fn the_sweep_stamps_a_row_ahead_and_it_is_claimed_when_it_is_free() {
    let world = World::new().await;
    world.put_minimal("a", "STARTED").await;
    assert_eq!(minute(&world).await["stamped"], 1);
    let free_at_ms = world.row("a").await.lease.expires_at_ms.unwrap();
    assert!(free_at_ms >= world.now_ms() + world.timing.unknown_ms());
    assert!(world.take_claims().await.is_empty());
    world.pass(80).await;
    assert_eq!(world.take_claims().await, claims(&["a"]), "the delayed claim");
    world.tick().await;
    assert_eq!(world.take_claims().await, claims(&["a"]), "and the index shows it");
}

/// Work without an owner is always claimed (svroonland/zio-kinesis PR 1083).
#[tokio::test(start_paused = true)]
async fn unowned_rows_are_claimed_every_thirty_seconds_while_nobody_takes_them() {
    let world = World::new().await;
    let w1 = world.register("w1", None).await;
    for number in 0..40 {
        free(&world, &format!("c{number}")).await;
    }
    world.tick().await;
    world.take_claims().await;
    world.live(&[&w1], 30).await;
    let taken = world.take_claims().await;
    assert_eq!(taken.len(), 40);
    assert!(taken.values().all(|count| *count == 1), "{taken:?}");
}

#[tokio::test(start_paused = true)]
async fn nothing_more_is_claimed_while_the_queue_holds_more_claims_than_there_are_rows() {
    let world = World::new().await;
    free(&world, "a").await;
    let ids: Vec<ConnectionId> = (0..3).map(|number| ConnectionId::new(format!("x{number}")).unwrap()).collect();
    world.queue(&world.urls.claims).send_claims(&ids, 0).await.unwrap();
    assert_eq!(world.tick().await["claimed"], 0);
    world.take_claims().await;
    world.pass(31).await;
    assert_eq!(world.tick().await["claimed"], 1);
}

/// awslabs/aws-lambda-rust-runtime #1064: a schedule input made by hand, without `detail-type`, failed.
#[tokio::test(start_paused = true)]
async fn a_minute_sends_the_ticks_of_the_rest_of_it_and_any_event_means_a_minute() {
    let world = World::new().await;
    for event in [json!({}), json!({ "detail-type": "Scheduled Event" }), json!({ "by": "hand" })] {
        let answer = world.reconcile().handle(event, ONE_MINUTE_MS).await.unwrap();
        assert_eq!((&answer["minute"], &answer["failed"]), (&json!(true), &json!(0)));
        let mut ticks = Vec::new();
        for _ in 0..6 {
            ticks.push(world.take(&world.urls.ticks).await.len());
            world.pass(10).await;
        }
        assert_eq!(ticks, [0, 1, 1, 1, 1, 1]);
    }
}

/// One record that cannot be decoded (oxbow #8).
#[tokio::test(start_paused = true)]
async fn bad_ticks_are_deleted_and_never_come_back() {
    let world = World::new().await;
    let function = world.reconcile();
    let bad = json!({ "Records": [{ "messageId": "1", "body": "hello" }, { "messageId": "", "body": 5 }] });
    let answer = function.handle(bad, ONE_MINUTE_MS).await.unwrap();
    assert_eq!(answer, json!({ "batchItemFailures": [], "bad_ticks": 2 }));
    let mixed = json!({ "Records": [{ "body": "hello" }, { "body": "{\"kind\":\"tick\"}" }] });
    let answer = function.handle(mixed, ONE_MINUTE_MS).await.unwrap();
    assert_eq!(
        (&answer["batchItemFailures"], &answer["bad_ticks"], &answer["minute"]),
        (&json!([]), &json!(1), &json!(false))
    );
}

#[tokio::test(start_paused = true)]
async fn a_part_that_fails_does_not_stop_the_others_but_is_reported() {
    let world = World::new().await;
    let (w1, _) = (world.register("w1", Some(TASK)).await, world.register("w2", None).await);
    free(&world, "a").await;
    owned(&world, "b", &w1, "STARTED").await;
    world.break_with(Arc::new(|call| (call.request["IndexName"] == "by_owner").then_some(Fault::Http500)));
    let error = world.reconcile().handle(report(Some(0)), ONE_MINUTE_MS).await.unwrap_err();
    assert!(error.to_string().contains("read by_owner"), "{error}");
    assert_eq!(world.session(&w1).await.state, SessionState::Fenced);
    assert_eq!(world.take_claims().await, claims(&["a"]));
    world.repair();
    world.pass(31).await;
    world.tick().await;
    assert!(world.take_claims().await.contains_key("b"), "the next looks come back to it");
}

#[tokio::test(start_paused = true)]
async fn a_run_without_time_stops_between_pages_and_the_next_one_goes_on() {
    let world = World::new().await;
    world.put_minimal("a", "STARTED").await;
    let answer = world.reconcile().handle(json!({}), 1_000).await.unwrap();
    assert_eq!((&answer["swept_pages"], &answer["cut_short"]), (&json!(0), &json!(2)));
    assert_eq!(minute(&world).await["stamped"], 1);
}

/// A dead worker with twenty connections, pages of four, a second a page: the run that fences has time for three.
#[tokio::test(start_paused = true)]
async fn claims_for_a_dead_worker_go_on_where_the_last_run_ended() {
    let world = World::new().await;
    let (w1, w2) = (world.register("w1", None).await, world.register("w2", None).await);
    let ids: Vec<String> = (10..30).map(|number| format!("c{number}")).collect();
    for id in &ids {
        owned(&world, id, &w2, "STARTED").await;
    }
    world.live(&[&w1], 20).await;
    world.pass(5).await;
    assert!(world.renew(&w1).await);
    let slow = Fault::Delay(Duration::from_secs(1));
    world.break_with(Arc::new(move |call| (call.request["IndexName"] == "by_owner").then(|| slow.clone())));
    let config = clients::dynamodb_config(SmallPages::new(world.faults.clone(), 4), Some(world.time));
    let store = Store::new(DynamoClients::new(config, world.clock.clone()), world.names.tables.clone());
    let function = Reconcile { store, ..world.reconcile() };
    let tick = json!({ "Records": [{ "messageId": "1", "body": leasehold_reconcile::tick_body() }] });

    let answer = function.handle(tick.clone(), 4_500).await.unwrap();
    assert_eq!((&answer["fenced"], &answer["claimed"]), (&json!(1), &json!(12)), "{answer}");
    let mut claimed = world.take_claims().await;
    assert_eq!(world.session(&w2).await.unclaimed_from.as_deref(), Some("CONN#c21"));

    // Nobody waits for a turn: the ticks of the same ten seconds claim the rest.
    let answer = function.handle(tick, ONE_MINUTE_MS).await.unwrap();
    assert_eq!((&answer["claimed"], &answer["cut_short"]), (&json!(8), &json!(0)), "{answer}");
    claimed.extend(world.take_claims().await);
    let once: Vec<(String, u64)> = ids.into_iter().map(|id| (id, 1)).collect();
    assert_eq!(claimed, BTreeMap::from_iter(once));
    assert_eq!(world.session(&w2).await.unclaimed_from, None);
}

/// SQS is away while a dead worker's rows are claimed.
#[tokio::test(start_paused = true)]
async fn claims_that_could_not_be_sent_are_sent_by_the_next_run() {
    let world = World::new().await;
    let (w1, w2) = (world.register("w1", None).await, world.register("w2", None).await);
    let ids = ["a", "b", "c", "d"];
    for id in ids {
        owned(&world, id, &w2, "STARTED").await;
    }
    world.live(&[&w1, &w2], 20).await;
    world.take_claims().await;
    world.table().end(&w2, "shut down", world.now_ms()).await.unwrap();
    let away = Arc::new(|call: &Call<'_>| (call.operation == "SendMessageBatch").then_some(Fault::Http500));
    let sqs = Faulty::new(world.queues.clone(), world.clock.clone(), away);
    let claims_away = Queue::new(clients::sqs_config(sqs, Some(world.time)), &world.urls.claims);
    let function = Reconcile { claims: claims_away, ..world.reconcile() };
    let tick = json!({ "Records": [{ "messageId": "1", "body": leasehold_reconcile::tick_body() }] });
    assert!(function.handle(tick, ONE_MINUTE_MS).await.is_err());
    assert_eq!(world.session(&w2).await.unclaimed_from.as_deref(), Some(""), "the place stays");
    world.tick().await;
    assert_eq!(world.take_claims().await, claims(&ids), "at once, not at their turns");
    assert_eq!(world.session(&w2).await.unclaimed_from, None);
}

/// A row whose own lease ends at `expires_at_ms`.
async fn leased(world: &World, id: &str, owner: &SessionId, expires_at_ms: u64) {
    owned(world, id, owner, "STARTED").await;
    world.set(id, "lease_expires_at_ms", &expires_at_ms.to_string()).await;
}

/// Where rows are leased by themselves, both indexes show those of a dead worker.
#[tokio::test(start_paused = true)]
async fn a_row_that_both_indexes_show_is_claimed_once_a_turn_and_counted_once() {
    let world = World::of(LeaseScope::Connection).await;
    let (w1, w2) = (world.register("w1", None).await, world.register("w2", None).await);
    for id in ["a", "b"] {
        leased(&world, id, &w2, world.now_ms() + 20_000).await;
    }
    world.tick().await;
    world.table().end(&w2, "test", world.now_ms()).await.unwrap();
    world.live(&[&w1], 30).await;
    world.take_claims().await;
    world.live(&[&w1], 30).await;
    assert_eq!(world.take_claims().await, claims(&["a", "b"]), "each once in thirty seconds");
    let others: Vec<ConnectionId> = (0..3).map(|number| ConnectionId::new(format!("x{number}")).unwrap()).collect();
    world.queue(&world.urls.claims).send_claims(&others, 0).await.unwrap();
    world.live(&[&w1], 30).await;
    assert_eq!(world.take_claims().await, claims(&["x0", "x1", "x2"]), "three in the queue are more than two rows");
}

/// Ticks queue down: only the minute's schedule runs.
#[tokio::test(start_paused = true)]
async fn a_row_whose_lease_is_past_is_found_though_looks_are_a_minute_apart() {
    let world = World::of(LeaseScope::Connection).await;
    let w1 = world.register("w1", None).await;
    leased(&world, "a", &w1, world.now_ms()).await;
    for look in 0..3 {
        for _ in 0..12 {
            world.pass(5).await;
            assert!(world.renew(&w1).await);
        }
        world.tick().await;
        let expected: &[&str] = if look == 0 { &[] } else { &["a"] };
        assert_eq!(world.take_claims().await, claims(expected), "look {look}");
    }
}

/// A page of the index holds thousands of rows, and time is looked at within it.
#[tokio::test(start_paused = true)]
async fn a_page_of_many_rows_is_left_where_the_time_ends_and_the_sweep_repeats_none_of_its_claims() {
    let world = World::new().await;
    let (w1, w2) = (world.register("w1", None).await, world.register("w2", None).await);
    let epoch = world.now_ms().to_string();
    for number in 1_000..2_005 {
        let lease = [("lease_owner", "w2"), ("lease_epoch", epoch.as_str()), ("observed_state", "CONNECTED")];
        let spec = [("desired_state", "STARTED"), ("ws_url", "wss://example.com/feed")];
        world.put(&format!("c{number}"), &[spec.as_slice(), &lease].concat()).await;
    }
    world.live(&[&w1], 20).await;
    world.pass(5).await;
    assert!(world.renew(&w1).await);
    let slow = Fault::Delay(Duration::from_secs(1));
    world.break_with(Arc::new(move |call| (call.request["IndexName"] == "by_owner").then(|| slow.clone())));
    let answer = world.reconcile().handle(json!({}), 2_900).await.unwrap();
    assert_eq!(answer["claimed"], 1_000, "{answer}");
    assert_eq!(world.session(&w2).await.unclaimed_from.as_deref(), Some("CONN#c1999"));
    let answer = minute(&world).await;
    assert_eq!((&answer["claimed"], &answer["swept_pages"]), (&json!(5), &json!(1)), "{answer}");
    assert!(world.take_claims().await.values().all(|claims| *claims == 1));
}

#[tokio::test(start_paused = true)]
async fn the_sweep_goes_on_where_the_last_run_ended_and_learns_the_size_of_the_table() {
    let world = World::new().await;
    // A page of a scan is 1 MB at most.
    let padding = "x".repeat(300_000);
    for number in 0..12 {
        let attributes = [("desired_state", "STARTED"), ("ws_url", "wss://example.com/"), ("tags", &padding)];
        world.put(&format!("c{number}"), &attributes).await;
    }
    let answer = world.reconcile().handle(json!({}), ONE_MINUTE_MS).await.unwrap();
    let memory = world.table().memory().await.unwrap();
    assert_eq!((&answer["stamped"], memory.sweep_from), (&json!(12), None));
    assert_eq!(answer["swept_pages"], memory.table_pages);
    assert!(memory.table_pages >= 3, "{} pages", memory.table_pages);
    // From now on as many pages a run as make the table in an hour: one.
    assert_eq!(minute(&world).await["swept_pages"], 1);
    let memory = world.table().memory().await.unwrap();
    assert!(memory.sweep_from.is_some() && memory.sweep_pages == 1, "{memory:?}");
}

#[tokio::test(start_paused = true)]
async fn the_sweep_marks_a_live_owner_that_does_not_know_of_its_row() {
    let world = World::new().await;
    let w1 = world.register("w1", None).await;
    owned(&world, "a", &w1, "STARTED").await;
    owned(&world, "b", &w1, "STOPPED").await;
    minute(&world).await;
    assert_eq!(world.marks(&w1).await.ids, [ConnectionId::new("b").unwrap()]);
    world.live(&[&w1], 125).await;
    minute(&world).await;
    assert_eq!(world.marks(&w1).await.ids.len(), 2, "a is CONNECTING for two minutes");
}

/// A bad row is refused by itself.
#[tokio::test(start_paused = true)]
async fn the_sweep_says_on_a_bad_row_what_is_wrong_and_goes_on() {
    let world = World::new().await;
    world.put("bad", &[("ws_url", "wss://example.com/")]).await;
    world.put_minimal("good", "STARTED").await;
    let answer = minute(&world).await;
    assert_eq!((&answer["bad_rows"], &answer["faults"], &answer["stamped"]), (&json!(1), &json!(1), &json!(1)));
    let item = world.table().connection(&ConnectionId::new("bad").unwrap()).await.unwrap().unwrap();
    let reason = leasehold::model::fields::string(&item, "reason").unwrap().unwrap();
    assert_eq!(reason, "desired_state is missing: it must be STARTED or STOPPED");
    assert_eq!(minute(&world).await["faults"], 0, "it says so already");
}

#[tokio::test(start_paused = true)]
async fn a_session_goes_after_a_day_and_two_empty_looks() {
    let world = World::new().await;
    let (w1, w2) = (world.register("w1", None).await, world.register("w2", None).await);
    owned(&world, "a", &w1, "STOPPED").await;
    world.table().end(&w1, "test", world.now_ms()).await.unwrap();
    world.pass(86_400 + 10).await;
    assert_eq!(minute(&world).await["reaped"], 1);
    assert_eq!(minute(&world).await["removed"], 0);
    world.pass(599).await;
    assert_eq!(minute(&world).await["removed"], 0);
    world.pass(5).await;
    assert_eq!(minute(&world).await["removed"], 1);
    assert_eq!(world.table().session(&w1).await.unwrap(), None);
    assert!(world.table().session(&w2).await.unwrap().is_some());
}

/// The tables are throttled for a minute; nobody restarts anything.
#[tokio::test(start_paused = true)]
async fn a_throttled_table_leaves_nothing_behind() {
    let world = World::new().await;
    let (w1, w2) = (world.register("w1", None).await, world.register("w2", None).await);
    owned(&world, "a", &w1, "STARTED").await;
    free(&world, "b").await;
    world.tick().await;
    world.take_claims().await;
    world.table().end(&w1, "test", world.now_ms()).await.unwrap();
    world.break_with(Arc::new(|_| Some(Fault::Throttle("ProvisionedThroughputExceededException"))));
    for _ in 0..6 {
        world.pass(10).await;
        assert!(world.reconcile().handle(json!({}), ONE_MINUTE_MS).await.is_err());
        world.renew(&w2).await;
    }
    world.repair();
    world.live(&[&w2], 31).await;
    let taken = world.take_claims().await;
    assert!(taken.contains_key("a") && taken.contains_key("b"), "{taken:?}");
}

/// A worker ends its session, and neither the answer to that nor its claims arrive.
#[tokio::test(start_paused = true)]
async fn the_next_look_claims_all_rows_of_a_session_that_ended_without_claims() {
    let world = World::new().await;
    let (ended, live) = (world.register("w1", None).await, world.register("w2", None).await);
    for id in ["a", "b", "c", "d"] {
        owned(&world, id, &ended, "STARTED").await;
    }
    world.live(&[&ended, &live], 20).await;
    world.take_claims().await;
    world.table().end(&ended, "shut down", world.now_ms()).await.unwrap();
    world.live(&[&live], 10).await;
    assert_eq!(world.take_claims().await, claims(&["a", "b", "c", "d"]), "not only those that have their turn");
    world.live(&[&live], 30).await;
    assert_eq!(world.take_claims().await, claims(&["a", "b", "c", "d"]), "and later each in its turn");
}
