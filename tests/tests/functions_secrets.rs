//! No secret is logged by the functions. One test: a process has one subscriber.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use aws_sdk_dynamodb::types::AttributeValue;
use leasehold_tests::log::Log;
use leasehold_tests::{ONE_MINUTE_MS, World};
use serde_json::{Value, json};
use std::collections::HashMap;

fn s(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

async fn put(world: &World, id: &str, ws_url: &str, header: (&str, &str)) {
    let headers = AttributeValue::M(HashMap::from([(header.0.to_owned(), s(header.1))]));
    let request = world.dynamo().put_item().table_name(&world.names.tables.connections);
    let request = request.item("Pk", s(&format!("CONN#{id}"))).item("desired_state", s("STARTED"));
    request.item("ws_url", s(ws_url)).item("headers", headers).send().await.unwrap();
}

/// The row's `reason` is shown by tools and logged by functions.
async fn reason(world: &World, id: &str) -> String {
    world.row(id).await.reason.unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn header_values_query_tokens_and_malformed_records_are_never_logged() {
    let log = Log::of_this_process();
    let mut world = World::new().await;
    let url = "wss://user:SECRET1@feed.example/a?token=SECRET2";
    put(&world, "good", url, ("authorization", "Bearer SECRET3")).await;
    put(&world, "pasted", url, ("authorization: Bearer SECRET4", "x")).await;
    put(&world, "unprintable", url, ("authorization", "SECRET5\n")).await;
    put(&world, "bad-url", "wss://user:SECRET6@/?token=SECRET7#SECRET8", ("a", "b")).await;
    let mut event = world.changes().await;
    let mut typed = event["Records"][0].clone();
    typed["dynamodb"]["NewImage"]["headers"] = json!({ "SECRET9": "SECRET10" });
    let mut foreign = event["Records"][0].clone();
    foreign["dynamodb"]["StreamViewType"] = "SECRET11".into();
    let malformed = [typed, foreign, json!("SECRET12"), json!({ "dynamodb": "SECRET13" })];
    event["Records"].as_array_mut().unwrap().extend(malformed);
    let answer = world.desired_state().handle(event).await.unwrap();
    assert_eq!((&answer["batchItemFailures"], &answer["skipped"]), (&json!([]), &json!(4)));
    for id in ["pasted", "unprintable"] {
        let reason = reason(&world, id).await;
        assert!(reason.starts_with("headers is") && !reason.contains("SECRET"), "{reason}");
    }
    assert!(reason(&world, "bad-url").await.starts_with("ws_url is"));
    // The same rows once more, by the sweep.
    let answer: Value = world.reconcile().handle(json!({}), ONE_MINUTE_MS).await.unwrap();
    assert_eq!(answer["failed"], 0);
    let text = log.text();
    for event in ["\"desired_state\"", "\"reconcile\"", "\"bad_record\"", "\"bad_row\"", "\"stamp\""] {
        assert!(text.contains(event), "{event} is logged:\n{text}");
    }
    let leaks: Vec<&str> = text.lines().filter(|line| line.contains("SECRET")).collect();
    assert!(leaks.is_empty(), "{leaks:#?}");
}
