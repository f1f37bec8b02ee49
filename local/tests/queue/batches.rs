//! Batches. Facts: API reference of SendMessageBatch, DeleteMessageBatch, ChangeMessageVisibilityBatch.

use crate::kit::*;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{
    ChangeMessageVisibilityBatchRequestEntry as HideEntry, DeleteMessageBatchRequestEntry as DeleteEntry,
    SendMessageBatchRequestEntry as SendEntry,
};

fn entry(id: &str, body: &str) -> SendEntry {
    SendEntry::builder().id(id).message_body(body).build().unwrap()
}

fn entries(count: usize) -> Vec<SendEntry> {
    (0..count).map(|n| entry(&format!("e{n}"), &format!("body {n}"))).collect()
}

pub async fn a_batch_sends_receives_and_deletes_ten(sqs: &Client) {
    let url = standard_queue(sqs, &[("VisibilityTimeout", "1")]).await;
    let sent = sqs.send_message_batch().queue_url(&url).set_entries(Some(entries(10))).send().await.unwrap();
    assert_eq!((sent.successful().len(), sent.failed().len()), (10, 0));
    // MD5 of "body 0".
    assert_eq!(sent.successful()[0].md5_of_message_body(), "2c2f1edb5aac06c6c201d1fe8916de7d");
    let messages = receive(sqs, &url, 10).await;
    assert_eq!(messages.len(), 10);
    let mut request = sqs.delete_message_batch().queue_url(&url);
    for (n, message) in messages.iter().enumerate() {
        request =
            request.entries(DeleteEntry::builder().id(format!("{n}")).receipt_handle(handle(message)).build().unwrap());
    }
    assert_eq!(request.send().await.unwrap().successful().len(), 10);
    seconds(1).await;
    assert!(receive(sqs, &url, 10).await.is_empty());
}

pub async fn bad_entries_fail_alone(sqs: &Client) {
    let url = standard_queue(sqs, &[]).await;
    let late = SendEntry::builder().id("late").message_body("x").delay_seconds(901).build().unwrap();
    let request = sqs.send_message_batch().queue_url(&url).entries(entry("good", "good")).entries(late);
    let sent = request.entries(entry("bell", "\u{7}")).send().await.unwrap();
    assert_eq!(sent.successful()[0].id(), "good");
    let failed: Vec<_> = sent.failed().iter().map(|f| (f.id(), f.code(), f.sender_fault())).collect();
    assert_eq!(failed, [("late", "InvalidParameterValue", true), ("bell", "InvalidMessageContents", true)]);
    assert_eq!(bodies(&receive(sqs, &url, 10).await), ["good"]);
    let bad = DeleteEntry::builder().id("bad").receipt_handle("nonsense").build().unwrap();
    let deleted = sqs.delete_message_batch().queue_url(&url).entries(bad).send().await.unwrap();
    assert_eq!(deleted.failed()[0].code(), "ReceiptHandleIsInvalid");
}

pub async fn an_empty_batch_is_refused(sqs: &Client) {
    let url = standard_queue(sqs, &[]).await;
    let refused = sqs.send_message_batch().queue_url(&url).set_entries(Some(Vec::new())).send().await;
    assert!(refused.unwrap_err().as_service_error().unwrap().is_empty_batch_request());
}

pub async fn more_than_ten_entries_are_refused(sqs: &Client) {
    let url = standard_queue(sqs, &[]).await;
    let refused = sqs.send_message_batch().queue_url(&url).set_entries(Some(entries(11))).send().await;
    assert!(refused.unwrap_err().as_service_error().unwrap().is_too_many_entries_in_batch_request());
    assert!(receive(sqs, &url, 10).await.is_empty());
}

pub async fn repeated_ids_are_refused(sqs: &Client) {
    let url = standard_queue(sqs, &[]).await;
    let request = sqs.send_message_batch().queue_url(&url).entries(entry("a", "1")).entries(entry("a", "2"));
    assert!(request.send().await.unwrap_err().as_service_error().unwrap().is_batch_entry_ids_not_distinct());
}

pub async fn malformed_ids_are_refused(sqs: &Client) {
    let url = standard_queue(sqs, &[]).await;
    for id in ["", "a b", "é", &"x".repeat(81)] {
        let refused = sqs.send_message_batch().queue_url(&url).entries(entry(id, "x")).send().await;
        assert!(refused.unwrap_err().as_service_error().unwrap().is_invalid_batch_entry_id(), "{id}");
    }
}

pub async fn a_batch_of_more_than_a_mebibyte_is_refused(sqs: &Client) {
    let url = standard_queue(sqs, &[]).await;
    let half = "x".repeat(524_288);
    let request = sqs.send_message_batch().queue_url(&url).entries(entry("a", &half)).entries(entry("b", &half));
    request.clone().send().await.unwrap();
    let refused = request.entries(entry("c", "x")).send().await;
    assert!(refused.unwrap_err().as_service_error().unwrap().is_batch_request_too_long());
}

pub async fn visibility_changes_in_batches(sqs: &Client) {
    let url = standard_queue(sqs, &[("VisibilityTimeout", "5")]).await;
    send(sqs, &url, "one").await;
    send(sqs, &url, "two").await;
    let messages = receive(sqs, &url, 10).await;
    let change = |id: &str, n: usize, seconds: i32| {
        let entry = HideEntry::builder().id(id).receipt_handle(handle(&messages[n]));
        entry.visibility_timeout(seconds).build().unwrap()
    };
    let request = sqs.change_message_visibility_batch().queue_url(&url).entries(change("up", 0, 0));
    let request = request.entries(change("long", 1, 100)).entries(change("beyond", 1, 43_201));
    let changed = request.send().await.unwrap();
    assert_eq!((changed.successful().len(), changed.failed()[0].id()), (2, "beyond"));
    assert_eq!(bodies(&receive(sqs, &url, 10).await), ["one"]);
    seconds(99).await;
    assert_eq!(bodies(&receive(sqs, &url, 10).await), ["one"]);
    seconds(1).await;
    assert_eq!(bodies(&receive(sqs, &url, 10).await), ["two"]);
}
