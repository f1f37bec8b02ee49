//! Faults of the functions that rows, runs and pages can bring about: nothing starves, sticks or is taken back.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use aws_sdk_dynamodb::types::AttributeValue;
use leasehold::aws::sessions::{Load, Memory};
use leasehold::decide::acquire::{Acquire, Expected};
use leasehold::decide::lease_time::Now;
use leasehold::model::{ConnectionId, SessionId, SessionState};
use leasehold_local::faults::Fault;
use leasehold_tests::{ONE_MINUTE_MS, World};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

fn id(text: &str) -> ConnectionId {
    ConnectionId::new(text).unwrap()
}

/// A STARTED row that `owner` took.
async fn owned(world: &World, name: &str, owner: &SessionId) {
    world.put_minimal(name, "STARTED").await;
    let expected = Expected { owner: None, epoch: None, expired_by_ms: Some(world.now_ms()) };
    let acquire = Acquire { expected, epoch: world.now_ms(), expires_at_ms: None, owners: vec![] };
    assert!(world.table().acquire(&id(name), owner, &acquire, world.now_ms()).await.unwrap().is_applied());
}

async fn free(world: &World, name: &str) {
    world.put_minimal(name, "STARTED").await;
    assert!(world.table().stamp(&id(name), 0).await.unwrap().is_applied());
}

/// Sets one attribute of an item of `sessions` by hand.
async fn set_session(world: &World, key: &str, name: &str, value: AttributeValue) {
    let request = world.dynamo().update_item().table_name(&world.names.tables.sessions);
    let request = request.key("session_id", AttributeValue::S(key.to_owned())).update_expression("SET #n = :v");
    let request = request.expression_attribute_names("#n", name).expression_attribute_values(":v", value);
    request.send().await.unwrap();
}

fn text(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

fn tick_event() -> Value {
    json!({ "Records": [{ "messageId": "1", "body": leasehold_reconcile::tick_body() }] })
}

async fn minute(world: &World) -> Value {
    world.reconcile().handle(json!({}), ONE_MINUTE_MS).await.unwrap()
}

fn names(claims: std::collections::BTreeMap<String, u64>) -> BTreeSet<String> {
    claims.into_keys().collect()
}

#[tokio::test(start_paused = true)]
async fn every_row_of_a_session_that_is_over_for_long_has_its_turn() {
    let world = World::new().await;
    let w1 = world.register("w1", None).await;
    let mut expected = BTreeSet::new();
    for number in 0..30 {
        owned(&world, &format!("c{number}"), &w1).await;
        expected.insert(format!("c{number}"));
    }
    world.table().end(&w1, "test", world.now_ms()).await.unwrap();
    world.pass(660).await;
    // The sweep finds rows as well, an hour later in a large table: here it is away.
    world.break_with(Arc::new(|call| {
        let sweeps = call.operation == "Scan" && call.target == Some("leasehold-connections");
        sweeps.then_some(Fault::Throttle("AccessDeniedException"))
    }));
    world.tick().await;
    world.take_claims().await;
    let mut claimed = BTreeSet::new();
    for run in 0..60 * 6 {
        let event = if run % 6 == 0 { json!({}) } else { tick_event() };
        let outcome = world.reconcile().handle(event, ONE_MINUTE_MS).await;
        assert_eq!(outcome.is_err(), run % 6 == 0, "only the sweep fails: {outcome:?}");
        claimed.append(&mut names(world.take_claims().await));
        world.pass(10).await;
    }
    assert_eq!(claimed, expected);
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_row_was_broken_by_hand_is_fenced_a_lease_later_and_its_rows_are_claimed() {
    for (name, value) in [("heartbeat", text("seven")), ("session_state", text("active"))] {
        let world = World::new().await;
        let (w1, w2) = (world.register("w1", None).await, world.register("w2", None).await);
        owned(&world, "a", &w1).await;
        world.tick().await;
        set_session(&world, "w1", name, value).await;
        let renewal = world.table().renew(&w1, 9, world.now_ms(), &Load::default()).await.unwrap();
        assert!(!renewal.is_applied(), "it cannot renew");
        world.live(&[&w2], 30).await;
        assert!(world.take_claims().await.is_empty(), "its sockets may be open for a lease");
        world.live(&[&w2], 20).await;
        let session = world.session(&w1).await;
        assert_eq!(session.state, SessionState::Fenced);
        assert!(session.over_reason.unwrap().starts_with(&format!("its row cannot be read: {name} is")));
        assert_eq!(names(world.take_claims().await), BTreeSet::from(["a".to_owned()]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_repairs_its_row_by_renewing_is_not_fenced() {
    let world = World::new().await;
    let w1 = world.register("w1", None).await;
    world.tick().await;
    set_session(&world, "w1", "lease_expires_at_ms", text("soon")).await;
    assert_eq!(world.tick().await["bad_sessions"], 1);
    let expires_at_ms = world.now_ms() + world.timing.lease_ms;
    assert!(world.table().renew(&w1, 1, expires_at_ms, &Load::default()).await.unwrap().is_applied());
    world.live(&[&w1], 60).await;
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_over_needs_no_lease_for_its_rows_to_be_claimed() {
    let world = World::new().await;
    let w1 = world.register("w1", None).await;
    owned(&world, "a", &w1).await;
    world.table().end(&w1, "test", world.now_ms()).await.unwrap();
    set_session(&world, "w1", "heartbeat", text("seven")).await;
    assert_eq!(world.tick().await["claimed"], 1);
}

#[tokio::test(start_paused = true)]
async fn rows_of_over_sessions_wait_while_the_queue_holds_enough_claims_but_not_those_of_one_fenced_just_now() {
    let world = World::new().await;
    let task = "arn:aws:ecs:us-east-1:123456789012:task/leasehold/c13b4cb40f1f4fe4a2971f76ae5a47ad";
    let (w1, w2) = (world.register("w1", None).await, world.register("w2", Some(task)).await);
    owned(&world, "a", &w1).await;
    owned(&world, "b", &w2).await;
    free(&world, "c").await;
    world.table().end(&w1, "test", world.now_ms()).await.unwrap();
    // The first look claims what the end left behind.
    world.tick().await;
    world.take_claims().await;
    let others: Vec<ConnectionId> = (0..5).map(|number| id(&format!("x{number}"))).collect();
    world.queue(&world.urls.claims).send_claims(&others, 0).await.unwrap();
    world.pass(30).await;
    assert_eq!(world.tick().await["claimed"], 0);
    world.pass(30).await;
    let mut report: Value = serde_json::from_str(include_str!("../../events/ecs-task-stopped.json")).unwrap();
    report["detail"]["containers"][0]["exitCode"] = json!(137);
    let answer = world.reconcile().handle(report, ONE_MINUTE_MS).await.unwrap();
    assert_eq!((&answer["fenced"], &answer["claimed"]), (&json!(1), &json!(1)));
    assert!(world.take_claims().await.contains_key("b"));
    world.pass(30).await;
    assert_eq!(world.tick().await["claimed"], 3);
    assert_eq!(names(world.take_claims().await), ["a", "b", "c"].map(str::to_owned).into());
    // As many claims as there are rows of both kinds are not too many.
    world.queue(&world.urls.claims).send_claims(&others[..3], 0).await.unwrap();
    world.pass(30).await;
    assert_eq!(world.tick().await["claimed"], 3);
}

#[tokio::test(start_paused = true)]
async fn a_slower_run_takes_no_look_and_no_grace_back() {
    let world = World::new().await;
    let (store, timing) = (world.table(), world.timing);
    let now = Now { lower_ms: world.now_ms(), upper_ms: world.now_ms() + 2_000 };
    let ms = now.lower_ms;
    let later = Memory { last_look_ms: ms, last_minute_ms: ms, grace_until_ms: ms + 20_000, ..Memory::default() };
    store.remember_look(&later).await.unwrap();
    // A request may land minutes late; AWS refuses those whose signature is older than 15 minutes.
    for late_ms in [1_000, 60_000, 900_000] {
        for grace_ms in [0, 10_000] {
            let (last_look_ms, last_minute_ms) = (ms - late_ms, ms - late_ms);
            let grace_until_ms = (ms - late_ms + grace_ms) * u64::from(grace_ms > 0);
            let slower = Memory { last_look_ms, last_minute_ms, grace_until_ms, ..Memory::default() };
            store.remember_look(&slower).await.unwrap();
            assert_eq!(store.memory().await.unwrap(), later, "{late_ms} ms late");
        }
    }
    // A time that cannot be is no reason to remember nothing for years.
    let years = AttributeValue::N((ms * 2).to_string());
    for name in ["last_look_ms", "last_minute_ms", "grace_until_ms"] {
        set_session(&world, "#reconcile", name, years.clone()).await;
    }
    minute(&world).await;
    let memory = store.memory().await.unwrap().without_impossible_times(now, &timing);
    assert!(memory.last_look_ms >= ms && memory.last_minute_ms >= ms, "{memory:?}");
}

#[tokio::test(start_paused = true)]
async fn the_sweep_goes_on_after_a_page_that_keeps_failing_and_comes_back_to_it() {
    let world = World::new().await;
    // A page of a scan is 1 MB at most.
    let padding = "x".repeat(300_000);
    for number in 0..12 {
        let attributes = [("desired_state", "STARTED"), ("ws_url", "wss://example.com/"), ("tags", &padding)];
        world.put(&format!("c{number}"), &attributes).await;
    }
    let page = world.table().scan_connections(None).await.unwrap();
    let first = leasehold::model::fields::string(&page.items[0], "Pk").unwrap().unwrap();
    let failing = first.clone();
    world.break_with(Arc::new(move |call| {
        (call.operation == "UpdateItem" && call.names("Pk", &failing)).then_some(Fault::LostBefore)
    }));
    for run in 1..=3 {
        assert!(world.reconcile().handle(json!({}), ONE_MINUTE_MS).await.is_err(), "it is reported in run {run}");
        world.pass(60).await;
    }
    for number in 0..12 {
        let name = format!("c{number}");
        let stamped = world.row(&name).await.lease.epoch.is_some();
        assert_eq!(stamped, id(&name).pk() != first, "{name}");
    }
    world.repair();
    for _ in 0..12 {
        minute(&world).await;
    }
    let name = ConnectionId::from_pk(&first).unwrap();
    assert_eq!(world.row(name.as_str()).await.lease.epoch, Some(0));
}

#[tokio::test(start_paused = true)]
async fn a_free_row_that_is_stamped_years_ahead_is_claimed_within_minutes() {
    let world = World::new().await;
    let years = (world.now_ms() * 2).to_string();
    for (name, state) in [("a", "STARTED"), ("b", "STOPPED")] {
        world.put_minimal(name, state).await;
        world.set(name, "lease_epoch", "7").await;
        world.set(name, "lease_expires_at_ms", &years).await;
    }
    assert_eq!(minute(&world).await["stamped"], 2);
    for name in ["a", "b"] {
        let lease = world.row(name).await.lease;
        assert!(lease.expires_at_ms.unwrap() <= world.now_ms() + 80_000, "{lease:?}");
        assert_eq!(lease.epoch, Some(7), "the epoch stays");
    }
    world.pass(80).await;
    assert_eq!(names(world.take_claims().await), BTreeSet::from(["a".to_owned()]));
    assert_eq!(minute(&world).await["stamped"], 0);
}

/// The year 2109 in ms: no epoch that is made of the time would ever rise above such a one again.
#[tokio::test(start_paused = true)]
async fn a_row_with_an_epoch_beyond_all_times_is_refused_by_itself_and_says_why() {
    let world = World::new().await;
    free(&world, "good").await;
    free(&world, "bad").await;
    world.set("bad", "lease_epoch", "4398046511104").await;
    let answer = minute(&world).await;
    assert_eq!((&answer["bad_rows"], &answer["faults"]), (&json!(1), &json!(1)));
    let item = world.table().connection(&id("bad")).await.unwrap().unwrap();
    let reason = leasehold::model::fields::string(&item, "reason").unwrap().unwrap();
    assert!(reason.starts_with("lease_epoch is 4398046511104: it must be a number below 2^42"), "{reason}");
    assert!(world.take_claims().await.contains_key("good"));
}

#[tokio::test(start_paused = true)]
async fn marks_with_a_broken_version_mean_everything_and_can_be_removed() {
    let world = World::new().await;
    let w1 = world.register("w1", None).await;
    let store = world.table();
    for version in [text("three"), AttributeValue::N("-1".into()), AttributeValue::N("0.5".into())] {
        store.mark(&w1, &[id("a")]).await.unwrap();
        set_session(&world, "w1#marks", "marks_version", version).await;
        let marks = world.marks(&w1).await;
        assert!(marks.resync && marks.version > 0, "{marks:?}");
        // Added after it was read: not removed with it.
        store.mark(&w1, &[id("b")]).await.unwrap();
        assert!(!store.remove_marks(&w1, marks.version).await.unwrap().is_applied());
        let marks = world.marks(&w1).await;
        assert!(store.remove_marks(&w1, marks.version).await.unwrap().is_applied());
        assert!(world.marks(&w1).await.is_empty());
    }
    store.mark(&w1, &[id("c")]).await.unwrap();
    assert_eq!(world.marks(&w1).await.ids, [id("c")]);
}

#[test]
fn the_functions_do_not_ask_for_a_table_that_they_do_not_use() {
    let lookup = |name: &str| match name {
        "CONNECTIONS_TABLE" | "SESSIONS_TABLE" => Some(name.to_lowercase()),
        name if name.ends_with("_URL") => Some("https://sqs.eu-west-1.amazonaws.com/1/q".to_owned()),
        _ => None,
    };
    assert!(leasehold_desired_state::Settings::parse(&lookup).is_ok());
    assert!(leasehold_reconcile::Settings::parse(&lookup).is_ok());
}

/// awslabs/amazon-dynamodb-lock-client #44, #93: readers that remember nothing restart their timer with every read.
#[tokio::test(start_paused = true)]
async fn a_function_without_memory_recovers_a_dead_owners_connections() {
    let world = World::new().await;
    let (w1, w2) = (world.register("w1", None).await, world.register("w2", None).await);
    owned(&world, "a", &w2).await;
    for second in 1..=60 {
        world.pass(1).await;
        if second % 5 == 0 {
            assert!(world.renew(&w1).await);
        }
        if second % 10 == 0 {
            let forget = world.dynamo().delete_item().table_name(&world.names.tables.sessions);
            forget.key("session_id", text("#reconcile")).send().await.unwrap();
            world.tick().await;
        }
    }
    assert_eq!(world.session(&w2).await.state, SessionState::Fenced);
    assert!(world.take_claims().await.contains_key("a"));
}

/// svroonland/zio-kinesis PR 1083: expired work was left alone because every worker held as much as the others.
#[tokio::test(start_paused = true)]
async fn work_without_an_owner_is_claimed_although_the_fleet_looks_balanced() {
    let world = World::new().await;
    let (w1, w2) = (world.register("w1", None).await, world.register("w2", None).await);
    let w3 = world.register("w3", None).await;
    for (name, owner) in [("a", &w1), ("b", &w2), ("c", &w3)] {
        owned(&world, name, owner).await;
        let load = Load { capacity: 9, held: 1, connected: 1, ..Load::default() };
        let expires_at_ms = world.now_ms() + world.timing.lease_ms;
        assert!(world.table().renew(owner, 1, expires_at_ms, &load).await.unwrap().is_applied());
    }
    free(&world, "free").await;
    world.tick().await;
    assert_eq!(names(world.take_claims().await), BTreeSet::from(["free".to_owned()]));
    world.live(&[&w1, &w2], 40).await;
    assert_eq!(names(world.take_claims().await), BTreeSet::from(["c".to_owned(), "free".to_owned()]));
}
