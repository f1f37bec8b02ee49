//! `desired-state` on the embedded engine, with the engine's own stream records.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use leasehold::aws::sessions::Load;
use leasehold::decide::acquire::{Acquire, Expected};
use leasehold::model::{ConnectionId, SessionId};
use leasehold_local::faults::Fault;
use leasehold_tests::World;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

fn none_failed() -> Value {
    json!({ "batchItemFailures": [] })
}

fn claims(ids: &[&str]) -> BTreeMap<String, u64> {
    ids.iter().map(|id| ((*id).to_owned(), 1)).collect()
}

/// Takes a row that is stamped and free, as a worker does.
async fn acquire(world: &World, id: &str, owner: &SessionId) {
    let row = world.row(id).await;
    let now_ms = world.now_ms();
    let expected = Expected { owner: row.lease.owner, epoch: row.lease.epoch, expired_by_ms: None };
    let acquire = Acquire { expected, epoch: now_ms, expires_at_ms: None, owners: vec![] };
    let id = ConnectionId::new(id).unwrap();
    assert!(world.table().acquire(&id, owner, &acquire, now_ms).await.unwrap().is_applied());
}

async fn handle(world: &mut World) -> Value {
    let event = world.changes().await;
    world.desired_state().handle(event).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_row_of_three_attributes_is_stamped_and_claimed_and_our_own_stamp_is_no_work() {
    let mut world = World::new().await;
    world.put_minimal("a", "STARTED").await;
    world.put_minimal("b", "STOPPED").await;
    assert_eq!(handle(&mut world).await, none_failed());
    for id in ["a", "b"] {
        assert_eq!((world.row(id).await.lease.epoch, world.row(id).await.lease.expires_at_ms), (Some(0), Some(0)));
    }
    assert_eq!(world.take_claims().await, claims(&["a"]));
    let stamps = world.changes().await;
    assert_eq!(stamps["Records"].as_array().unwrap().len(), 2);
    world.break_with(Arc::new(|_| Some(Fault::Http500)));
    assert_eq!(world.desired_state().handle(stamps).await.unwrap(), none_failed(), "nothing was read");
}

/// The filter of the mapping is checked again.
#[tokio::test(start_paused = true)]
async fn an_acquire_and_a_renewal_are_no_work() {
    let mut world = World::new().await;
    let w1 = world.register("w1", None).await;
    world.put_minimal("a", "STARTED").await;
    handle(&mut world).await;
    handle(&mut world).await;
    acquire(&world, "a", &w1).await;
    let event = world.changes().await;
    assert_eq!(event["Records"].as_array().unwrap().len(), 1);
    world.break_with(Arc::new(|_| Some(Fault::Http500)));
    assert_eq!(world.desired_state().handle(event).await.unwrap(), none_failed());
}

#[tokio::test(start_paused = true)]
async fn a_stop_marks_the_live_owner_and_reaps_for_one_that_is_over() {
    let mut world = World::new().await;
    let (w1, w2) = (world.register("w1", None).await, world.register("w2", None).await);
    for id in ["a", "b"] {
        world.put_minimal(id, "STARTED").await;
    }
    handle(&mut world).await;
    acquire(&world, "a", &w1).await;
    acquire(&world, "b", &w2).await;
    world.table().end(&w2, "test", world.now_ms()).await.unwrap();
    for id in ["a", "b"] {
        world.set(id, "desired_state", "STOPPED").await;
    }
    world.take_claims().await;
    assert_eq!(handle(&mut world).await, none_failed());
    assert_eq!(world.marks(&w1).await.ids, [ConnectionId::new("a").unwrap()]);
    assert_eq!(world.row("a").await.lease.owner, Some(w1));
    assert_eq!((world.row("b").await.lease.owner, world.row("b").await.lease.expires_at_ms), (None, Some(0)));
    assert!(world.row("b").await.lease.epoch > Some(0), "the epoch stays");
    assert!(world.take_claims().await.is_empty());
}

/// A row overwritten by hand with three attributes while a worker holds it.
#[tokio::test(start_paused = true)]
async fn a_row_overwritten_under_its_owner_is_marked_stamped_ahead_and_claimed_later() {
    let mut world = World::new().await;
    let w1 = world.register("w1", None).await;
    world.put_minimal("a", "STARTED").await;
    handle(&mut world).await;
    acquire(&world, "a", &w1).await;
    world.take_claims().await;
    world.put_minimal("a", "STARTED").await;
    assert_eq!(handle(&mut world).await, none_failed());
    assert_eq!(world.marks(&w1).await.ids, [ConnectionId::new("a").unwrap()]);
    let free_at_ms = world.row("a").await.lease.expires_at_ms.unwrap();
    assert!(free_at_ms >= world.now_ms() + world.timing.overwritten_ms(), "{free_at_ms}");
    assert!(world.take_claims().await.is_empty());
    world.pass(20).await;
    assert_eq!(world.take_claims().await, claims(&["a"]));
}

/// The owner must hear first.
#[tokio::test(start_paused = true)]
async fn an_overwritten_row_is_not_stamped_while_the_mark_fails_and_the_record_comes_back() {
    let mut world = World::new().await;
    let w1 = world.register("w1", None).await;
    world.put_minimal("a", "STARTED").await;
    handle(&mut world).await;
    acquire(&world, "a", &w1).await;
    world.put_minimal("a", "STARTED").await;
    world.put_minimal("b", "STARTED").await;
    let event = world.changes().await;
    world.break_with(Arc::new(|call| call.names("session_id", "w1#marks").then_some(Fault::LostBefore)));
    let answer = world.desired_state().handle(event.clone()).await.unwrap();
    let overwritten = event["Records"]
        .as_array()
        .unwrap()
        .iter()
        .find(|record| record["dynamodb"]["OldImage"]["lease_owner"].is_object());
    let number = overwritten.unwrap()["dynamodb"]["SequenceNumber"].clone();
    let failures = answer["batchItemFailures"].as_array().unwrap();
    assert!(failures.contains(&json!({ "itemIdentifier": number })), "{answer}");
    assert_eq!(world.row("a").await.lease.epoch, None);
    assert_eq!(world.row("b").await.lease.epoch, Some(0), "the other row is not held up");
    world.repair();
    assert_eq!(world.desired_state().handle(event).await.unwrap(), none_failed());
    assert_eq!((world.row("a").await.lease.epoch, world.marks(&w1).await.ids.len()), (Some(0), 1));
}

#[tokio::test(start_paused = true)]
async fn the_owner_of_a_removed_row_is_marked() {
    let mut world = World::new().await;
    let w1 = world.register("w1", None).await;
    world.put_minimal("a", "STARTED").await;
    handle(&mut world).await;
    acquire(&world, "a", &w1).await;
    handle(&mut world).await;
    world.delete("a").await;
    assert_eq!(handle(&mut world).await, none_failed());
    assert_eq!(world.marks(&w1).await.ids, [ConnectionId::new("a").unwrap()]);
}

/// START, STOP, START within a second.
#[tokio::test(start_paused = true)]
async fn start_stop_start_before_any_owner_ends_stamped_and_claimed_once() {
    let mut world = World::new().await;
    world.put_minimal("a", "STARTED").await;
    world.set("a", "desired_state", "STOPPED").await;
    world.set("a", "desired_state", "STARTED").await;
    assert_eq!(handle(&mut world).await, none_failed());
    assert_eq!(world.row("a").await.lease.epoch, Some(0));
    assert_eq!(world.take_claims().await, claims(&["a"]));
}

/// One record that cannot be decoded (oxbow #8); images that are missing look like an empty item.
#[tokio::test(start_paused = true)]
async fn a_record_that_can_never_be_understood_is_counted_and_holds_nobody_up() {
    let mut world = World::new().await;
    world.put_minimal("a", "STARTED").await;
    let mut event = world.changes().await;
    let mut keys_only = event["Records"][0].clone();
    keys_only["dynamodb"]["StreamViewType"] = "KEYS_ONLY".into();
    let mut foreign = event["Records"][0].clone();
    foreign["dynamodb"]["Keys"]["Pk"]["S"] = "ORDER#1".into();
    let good = event["Records"][0].clone();
    event["Records"] = json!([{}, 5, keys_only, foreign, good]);
    let answer = world.desired_state().handle(event).await.unwrap();
    assert_eq!(answer, json!({ "batchItemFailures": [], "skipped": 4 }));
    assert_eq!(world.row("a").await.lease.epoch, Some(0));
}

/// An empty identifier (awsdocs/aws-lambda-developer-guide #320).
#[tokio::test(start_paused = true)]
async fn a_failed_record_without_a_number_fails_the_batch_instead_of_answering_with_an_empty_name() {
    let mut world = World::new().await;
    world.put_minimal("a", "STARTED").await;
    let mut event = world.changes().await;
    event["Records"][0]["dynamodb"]["SequenceNumber"] = "".into();
    world.break_with(Arc::new(|call| (call.operation == "UpdateItem").then_some(Fault::LostBefore)));
    assert!(world.desired_state().handle(event.clone()).await.is_err());
    world.repair();
    assert_eq!(world.desired_state().handle(event).await.unwrap(), none_failed());
}

/// awslabs/aws-lambda-rust-runtime #889: a missing creation time was read as 1970. Whatever it is, nothing is decided by it.
#[tokio::test(start_paused = true)]
async fn the_time_of_a_record_is_not_looked_at() {
    let mut world = World::new().await;
    world.put_minimal("a", "STARTED").await;
    let mut event = world.changes().await;
    event["Records"][0]["dynamodb"]["ApproximateCreationDateTime"] = "yesterday".into();
    assert_eq!(world.desired_state().handle(event).await.unwrap(), none_failed());
    assert_eq!(world.take_claims().await, claims(&["a"]));
}

#[tokio::test(start_paused = true)]
async fn a_bad_url_is_said_on_the_row_once_and_not_claimed() {
    let mut world = World::new().await;
    world.put("a", &[("desired_state", "STARTED"), ("ws_url", "http://example.com/"), ("spec_changed", "yes")]).await;
    handle(&mut world).await;
    let row = world.row("a").await;
    assert!(row.reason.as_deref().unwrap().contains("it must be a ws:// or wss:// URL"), "{row:?}");
    assert!(world.take_claims().await.is_empty());
    // The flag makes our own write look like a change; the row says it all already.
    let answers = [handle(&mut world).await, handle(&mut world).await];
    assert_eq!(answers, [none_failed(), none_failed()]);
    assert_eq!(world.changes().await["Records"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn marks_of_one_batch_are_one_write_for_each_owner() {
    let mut world = World::new().await;
    let w1 = world.register("w1", None).await;
    for number in 0..30 {
        world.put_minimal(&format!("c{number}"), "STARTED").await;
    }
    handle(&mut world).await;
    for number in 0..30 {
        acquire(&world, &format!("c{number}"), &w1).await;
    }
    handle(&mut world).await;
    for number in 0..30 {
        world.set(&format!("c{number}"), "desired_state", "STOPPED").await;
    }
    handle(&mut world).await;
    let marks = world.marks(&w1).await;
    assert_eq!((marks.ids.len(), marks.version), (30, 1));
    assert!(world.table().renew(&w1, 1, world.now_ms(), &Load::default()).await.unwrap().is_applied());
}
