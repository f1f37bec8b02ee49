//! The functions over indexes that lag and keys that take 1,000 writes a second.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use aws_sdk_dynamodb::types::AttributeValue;
use leasehold::decide::acquire::{Acquire, Expected};
use leasehold::model::{ConnectionId, SessionId};
use leasehold_local::engine::{EmbeddedDynamo, clients};
use leasehold_local::faults::{Call, Faulty, StaleIndexes, WriteLimit};
use leasehold_local::stack;
use leasehold_tests::{ONE_MINUTE_MS, World};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A deployment whose indexes show what was true `lag_ms` ago, and a client for what tests write themselves.
async fn world_behind(lag_ms: u64) -> (World, aws_sdk_dynamodb::Client) {
    let mut world = World::new().await;
    world.engine = EmbeddedDynamo::memory(world.clock.clone()).unwrap();
    let lag = Arc::new(AtomicU64::new(lag_ms));
    let layer = StaleIndexes::new(world.engine.clone(), world.clock.clone(), lag).unwrap();
    world.faults = Faulty::new(layer, world.clock.clone(), Arc::new(|_| None));
    let dynamo = clients::dynamodb(world.faults.clone(), Some(world.time));
    let sqs = clients::sqs(world.queues.clone(), Some(world.time));
    world.urls = stack::create(&dynamo, &sqs, &world.names).await.unwrap();
    (world, dynamo)
}

fn text(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

async fn put(client: &aws_sdk_dynamodb::Client, id: &str, desired_state: &str) {
    let request = client.put_item().table_name("leasehold-connections").item("Pk", text(&format!("CONN#{id}")));
    let request = request.item("desired_state", text(desired_state)).item("ws_url", text("wss://example.com/feed"));
    request.send().await.unwrap();
}

async fn set_state(client: &aws_sdk_dynamodb::Client, id: &str, desired_state: &str) {
    let request = client.update_item().table_name("leasehold-connections").key("Pk", text(&format!("CONN#{id}")));
    let request =
        request.update_expression("SET desired_state = :s").expression_attribute_values(":s", text(desired_state));
    request.send().await.unwrap();
}

/// Takes a STARTED row from whoever has it.
async fn take(world: &World, id: &str, owner: &SessionId) {
    let row = world.row(id).await;
    let epoch = row.lease.epoch.unwrap_or(0).max(world.now_ms()) + 1;
    let expected = Expected { owner: row.lease.owner, epoch: row.lease.epoch, expired_by_ms: None };
    let acquire = Acquire { expected, epoch, expires_at_ms: None, owners: vec![] };
    let id = ConnectionId::new(id).unwrap();
    assert!(world.store().acquire(&id, owner, &acquire, world.now_ms()).await.unwrap().is_applied());
}

async fn claimed(world: &World) -> BTreeSet<String> {
    world.take_claims().await.into_keys().collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// AWS, "Using Global Secondary Indexes": an index follows its table some time later.
#[tokio::test(start_paused = true)]
async fn rows_that_by_owner_shows_late_are_claimed_and_reaped_once_it_shows_them_and_nobody_elses_are() {
    let (world, client) = world_behind(5_000).await;
    let (w1, w2) = (world.register("w1", None).await, world.register("w2", None).await);
    for id in ["started", "stopped", "moved", "restarted"] {
        put(&client, id, "STARTED").await;
        take(&world, id, &w1).await;
    }
    for id in ["stopped", "moved", "restarted"] {
        set_state(&client, id, "STOPPED").await;
    }
    world.table().end(&w1, "test", world.now_ms()).await.unwrap();
    let answer = world.tick().await;
    assert_eq!((&answer["claimed"], &answer["reaped"]), (&json!(0), &json!(0)), "the index shows nothing yet");
    world.pass(6).await;
    // The index shows these as stopped rows of w1 still: one is somebody else's by now, the other is wanted again.
    for id in ["moved", "restarted"] {
        set_state(&client, id, "STARTED").await;
    }
    take(&world, "moved", &w2).await;
    set_state(&client, "moved", "STOPPED").await;
    assert!(world.renew(&w2).await);
    world.pass(4).await;
    let mut found = BTreeSet::new();
    for _ in 0..4 {
        world.tick().await;
        found.append(&mut claimed(&world).await);
        assert!(world.renew(&w2).await);
        world.pass(10).await;
    }
    assert_eq!(found, set(&["restarted", "started"]));
    assert_eq!(world.row("moved").await.lease.owner, Some(w2), "not reaped");
    assert_eq!(world.row("restarted").await.lease.owner, Some(w1.clone()), "not reaped");
    assert_eq!(world.row("stopped").await.lease.owner, None);
    assert!(world.table().session(&w1).await.unwrap().is_some(), "an index that seemed empty removes nobody");
}

#[tokio::test(start_paused = true)]
async fn free_rows_that_by_expiry_shows_late_are_claimed_once_it_shows_them() {
    let (world, client) = world_behind(5_000).await;
    let w1 = world.register("w1", None).await;
    for number in 0..20 {
        let id = format!("c{number}");
        put(&client, &id, "STARTED").await;
        assert!(world.store().stamp(&ConnectionId::new(id).unwrap(), 0).await.unwrap().is_applied());
    }
    assert_eq!(world.tick().await["unowned"], 0);
    let mut found = BTreeSet::new();
    for _ in 0..3 {
        world.pass(10).await;
        assert!(world.renew(&w1).await);
        world.tick().await;
        found.append(&mut claimed(&world).await);
    }
    assert_eq!(found, (0..20).map(|number| format!("c{number}")).collect());
}

/// Starts so many rows at once, where an index key takes so many writes a second. Returns how often the SDK tried again, and how
/// often Lambda had to send a record again.
async fn burst(rows: usize, units_per_second: u32) -> (u64, usize) {
    let mut world = World::new().await;
    let limit = WriteLimit::new(world.engine.clone(), world.clock.clone(), units_per_second).unwrap();
    let retried = Arc::new(AtomicU64::new(0));
    let counter = retried.clone();
    let count = move |call: &Call<'_>| {
        counter.fetch_add(u64::from(call.attempt > 1), Ordering::Relaxed);
        None
    };
    world.faults = Faulty::new(limit, world.clock.clone(), Arc::new(count));
    for number in 0..rows {
        world.put_minimal(&format!("c{number}"), "STARTED").await;
    }
    let mut batches = Vec::new();
    let mut records = 0;
    while records < rows {
        let batch = world.changes().await;
        records += batch["Records"].as_array().unwrap().len();
        batches.push(batch);
    }
    let (mut found, mut failed) = (BTreeSet::new(), 0);
    for mut batch in batches {
        // As Lambda does it: what is named as failed is sent again, until nothing is.
        while !batch["Records"].as_array().unwrap().is_empty() {
            let answer = world.desired_state().handle(batch.clone()).await.unwrap();
            found.append(&mut claimed(&world).await);
            let failures = &answer["batchItemFailures"];
            let named = |record: &Value| {
                let number = &record["dynamodb"]["SequenceNumber"];
                failures.as_array().unwrap().iter().any(|failure| failure["itemIdentifier"] == *number)
            };
            batch["Records"].as_array_mut().unwrap().retain(named);
            failed += batch["Records"].as_array().unwrap().len();
        }
    }
    assert_eq!(found.len(), rows, "each is claimed");
    for number in 0..rows {
        assert_eq!(world.row(&format!("c{number}")).await.lease.epoch, Some(0));
    }
    (retried.load(Ordering::Relaxed), failed)
}

/// AWS, "Best practices for designing and using partition keys effectively": 1,000 write units a second for a partition. All
/// stamped STARTED rows are under one key of `by_expiry`.
#[tokio::test(start_paused = true)]
async fn a_burst_of_starts_beyond_what_an_index_key_takes_is_stamped_and_claimed_with_retries() {
    let (retried, _) = burst(1_500, WriteLimit::DYNAMODB).await;
    assert!(retried > 0, "the limit was never reached");
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_throttled_for_longer_comes_back_as_a_failed_record_and_is_claimed_in_the_end() {
    let (_, failed) = burst(100, 5).await;
    assert!(failed > 0, "the limit was never reached");
}

/// The same for what reconcile frees: an index key of STOPPED rows.
#[tokio::test(start_paused = true)]
async fn a_reap_that_is_throttled_is_reported_and_done_by_the_next_runs() {
    const ROWS: usize = 120;
    let (mut world, w1) = (World::new().await, SessionId::new("w1"));
    world.register("w1", None).await;
    for number in 0..ROWS {
        let id = format!("c{number}");
        world.put_minimal(&id, "STARTED").await;
        take(&world, &id, &w1).await;
        world.set(&id, "desired_state", "STOPPED").await;
    }
    world.table().end(&w1, "test", world.now_ms()).await.unwrap();
    let limit = WriteLimit::new(world.engine.clone(), world.clock.clone(), 20).unwrap();
    world.faults = Faulty::new(limit, world.clock.clone(), Arc::new(|_| None));
    let event = json!({ "Records": [{ "messageId": "1", "body": leasehold_reconcile::tick_body() }] });
    let mut reported = 0;
    for _ in 0..30 {
        let outcome = world.reconcile().handle(event.clone(), ONE_MINUTE_MS).await;
        reported += u64::from(outcome.is_err());
        world.pass(10).await;
    }
    assert!(reported > 0, "the limit was never reached, or nobody said so");
    for number in 0..ROWS {
        let row = world.row(&format!("c{number}")).await;
        assert_eq!((row.lease.owner, row.lease.expires_at_ms), (None, Some(0)), "c{number}");
    }
}
