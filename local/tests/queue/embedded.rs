//! What only the embedded queue has: its HTTP answers, its bounds, its snapshots, its repeatability.

use crate::kit::*;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::http::HttpResponse;
use leasehold_local::clock::VirtualClock;
use leasehold_local::engine::clients;
use leasehold_local::queue::{EmbeddedSqs, QueueLimits, RestoreError};
use serde_json::{Value, json};
use std::sync::Arc;

fn body(response: &HttpResponse) -> Value {
    serde_json::from_slice(response.body().bytes().unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn every_answer_carries_the_virtual_date_and_a_request_id() {
    let (queues, _) = embedded();
    seconds(61).await;
    let good = queues.answer(Some("AmazonSQS.ListQueues"), b"{}").await;
    let bad = queues.answer(Some("AmazonSQS.GetQueueUrl"), br#"{"QueueName":"none"}"#).await;
    for response in [&good, &bad] {
        assert_eq!(response.headers().get("date"), Some("Wed, 01 Jan 2025 00:01:01 GMT"));
        assert_eq!(response.headers().get("content-type"), Some("application/x-amz-json-1.0"));
    }
    assert_ne!(good.headers().get("x-amzn-requestid").unwrap(), bad.headers().get("x-amzn-requestid").unwrap());
}

#[tokio::test(start_paused = true)]
async fn errors_are_in_the_form_of_aws() {
    // The form in the section "error responses" of the migration to the JSON protocol.
    let (queues, _) = embedded();
    let response = queues.answer(Some("AmazonSQS.GetQueueUrl"), br#"{"QueueName":"none"}"#).await;
    assert_eq!(response.status().as_u16(), 400);
    assert_eq!(body(&response)["__type"], "com.amazonaws.sqs#QueueDoesNotExist");
    let query_error = response.headers().get("x-amzn-query-error");
    assert_eq!(query_error, Some("AWS.SimpleQueueService.NonExistentQueue;Sender"));
}

#[tokio::test(start_paused = true)]
async fn malformed_requests_are_refused() {
    let (queues, sqs) = embedded();
    let url = standard_queue(&sqs, &[]).await;
    let operations = [
        "CreateQueue",
        "DeleteQueue",
        "GetQueueUrl",
        "GetQueueAttributes",
        "SetQueueAttributes",
        "PurgeQueue",
        "SendMessage",
        "SendMessageBatch",
        "ReceiveMessage",
        "DeleteMessage",
        "DeleteMessageBatch",
        "ChangeMessageVisibility",
        "ChangeMessageVisibilityBatch",
        "StartMessageMoveTask",
        "CancelMessageMoveTask",
        "ListMessageMoveTasks",
        "TagQueue",
        "Nonsense",
    ];
    let queue_url_of_a_number = br#"{"QueueUrl":1,"QueueName":2,"SourceArn":3,"TaskHandle":4}"#;
    for operation in operations {
        for bad in [&b"{"[..], b"[]", b"7", b"\"text\"", b"\xff", b"{}", b"null", queue_url_of_a_number] {
            let response = queues.answer(Some(&format!("AmazonSQS.{operation}")), bad).await;
            assert_eq!(response.status().as_u16(), 400, "{operation} {bad:?}");
        }
    }
    for bad in [
        json!({"Entries": [7]}),
        json!({"Entries": [{}]}),
        json!({"MessageBody": {"a": 1}}),
        json!({"MessageBody": null}),
    ] {
        let mut request = bad.clone();
        request["QueueUrl"] = json!(url);
        for operation in ["SendMessage", "SendMessageBatch", "DeleteMessageBatch"] {
            let response = queues.answer(Some(&format!("AmazonSQS.{operation}")), request.to_string().as_bytes()).await;
            assert_eq!(response.status().as_u16(), 400, "{operation} {request}");
        }
    }
    for target in [None, Some(""), Some("DynamoDB_20120810.GetItem")] {
        assert_eq!(queues.answer(target, b"{}").await.status().as_u16(), 400);
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_throttles_its_senders_until_there_is_room() {
    let clock = VirtualClock::starting_at(START_MS);
    let limits = QueueLimits { max_messages: 2, max_bytes: 1_000 };
    let queues = EmbeddedSqs::new(Arc::new(clock)).with_limits(limits);
    let sqs = clients::sqs(queues, Some(clock));
    let url = standard_queue(&sqs, &[]).await;
    send(&sqs, &url, "1").await;
    send(&sqs, &url, "2").await;
    assert_eq!(code(sqs.send_message().queue_url(&url).message_body("3").send().await), "RequestThrottled");
    delete(&sqs, &url, &receive(&sqs, &url, 1).await[0]).await;
    let long = sqs.send_message().queue_url(&url).message_body("x".repeat(1_000)).send().await;
    assert_eq!(code(long), "RequestThrottled");
    send(&sqs, &url, "3").await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_long_poll_takes_no_message() {
    let (_, sqs) = embedded();
    let url = standard_queue(&sqs, &[]).await;
    let polled = tokio::time::timeout(std::time::Duration::from_secs(5), poll(&sqs, &url, 20)).await;
    assert!(polled.is_err());
    send(&sqs, &url, "x").await;
    assert_eq!(receive(&sqs, &url, 1).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn deleting_a_queue_ends_its_long_polls() {
    let (_, sqs) = embedded();
    let url = standard_queue(&sqs, &[]).await;
    let deletion = async {
        seconds(1).await;
        sqs.delete_queue().queue_url(&url).send().await.unwrap();
    };
    let (polled, ()) = tokio::join!(sqs.receive_message().queue_url(&url).wait_time_seconds(20).send(), deletion);
    assert!(polled.unwrap_err().as_service_error().unwrap().is_queue_does_not_exist());
}

/// What a program saves that stops after `fill`, read by another that starts `away_s` later.
async fn restarted(queues: &EmbeddedSqs, away_s: u64) -> (EmbeddedSqs, Client) {
    let text = queues.snapshot().to_string();
    seconds(away_s).await;
    let clock = VirtualClock::starting_at(START_MS + away_s * 1_000);
    let restored = EmbeddedSqs::new(Arc::new(clock));
    restored.restore(serde_json::from_str(&text).unwrap()).unwrap();
    (restored.clone(), clients::sqs(restored, Some(clock)))
}

#[tokio::test(start_paused = true)]
async fn messages_survive_a_restart_and_come_back_when_their_visibility_ends() {
    let (queues, sqs) = embedded();
    let url = create(&sqs, "claims", &[("VisibilityTimeout", "30")]).await;
    send(&sqs, &url, "in flight").await;
    let message = receive(&sqs, &url, 1).await.remove(0);
    sqs.send_message().queue_url(&url).message_body("delayed").delay_seconds(20).send().await.unwrap();
    send(&sqs, &url, "visible").await;

    let (_, sqs) = restarted(&queues, 10).await;
    assert_eq!(bodies(&receive(&sqs, &url, 10).await), ["visible"]);
    seconds(10).await;
    assert_eq!(bodies(&receive(&sqs, &url, 10).await), ["delayed"]);
    seconds(9).await;
    assert!(receive(&sqs, &url, 10).await.is_empty());
    // Receipt handles stay good.
    delete(&sqs, &url, &message).await;
    seconds(1).await;
    assert_eq!(bodies(&receive(&sqs, &url, 10).await), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn deduplication_and_order_survive_a_restart() {
    let (queues, sqs) = embedded();
    let url = create(&sqs, "scaling.fifo", &[("FifoQueue", "true")]).await;
    send_to_group(&sqs, &url, "g", "1").await;
    receive(&sqs, &url, 1).await;
    send_to_group(&sqs, &url, "g", "2").await;

    let (_, sqs) = restarted(&queues, 20).await;
    send_to_group(&sqs, &url, "g", "1").await;
    assert!(receive(&sqs, &url, 10).await.is_empty(), "the group is in flight");
    seconds(10).await;
    assert_eq!(bodies(&receive(&sqs, &url, 10).await), ["1", "2"]);
    seconds(271).await;
    send_to_group(&sqs, &url, "g", "1").await;
    assert_eq!(attribute(&sqs, &url, "ApproximateNumberOfMessages").await.unwrap(), "3");
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_cannot_be_read_changes_nothing() {
    let (queues, sqs) = embedded();
    let url = create(&sqs, "claims", &[]).await;
    assert!(matches!(queues.restore(json!({"version": 2})), Err(RestoreError::Version(2))));
    assert!(matches!(queues.restore(json!([])), Err(RestoreError::Malformed(_))));
    send(&sqs, &url, "x").await;
    let snapshot = queues.snapshot();
    queues.restore(snapshot.clone()).unwrap();
    assert_eq!(queues.snapshot(), snapshot);
}

#[tokio::test(start_paused = true)]
async fn the_base_url_starts_urls_and_two_runs_are_alike() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let clock = VirtualClock::starting_at(START_MS);
        let queues = EmbeddedSqs::new(Arc::new(clock)).with_base_url("http://127.0.0.1:9324/");
        let sqs = clients::sqs(queues.clone(), Some(clock));
        let url = create(&sqs, "claims", &[]).await;
        assert_eq!(url, "http://127.0.0.1:9324/000000000000/claims");
        assert_eq!(url, queues.url_of("claims"));
        send(&sqs, &url, "x").await;
        let message = receive(&sqs, &url, 1).await.remove(0);
        runs.push((handle(&message).to_owned(), queues.snapshot()));
    }
    assert_eq!(runs[0], runs[1]);
}
