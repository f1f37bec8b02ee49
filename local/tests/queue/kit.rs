//! Small builders and shorthands.

use aws_sdk_sqs::Client;
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::types::{Message, MessageSystemAttributeName, QueueAttributeName};
use leasehold_local::clock::VirtualClock;
use leasehold_local::engine::clients;
use leasehold_local::queue::EmbeddedSqs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Where virtual time starts: 2025-01-01T00:00:00Z.
pub const START_MS: u64 = 1_735_689_600_000;

/// An embedded SQS on virtual time, and a client of it.
pub fn embedded() -> (EmbeddedSqs, Client) {
    let clock = VirtualClock::starting_at(START_MS);
    let queues = EmbeddedSqs::new(Arc::new(clock));
    let client = clients::sqs(queues.clone(), Some(clock));
    (queues, client)
}

/// A name that no other test of this run uses.
pub fn unused_name(stem: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("{stem}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// A new standard queue with attributes; its URL.
pub async fn standard_queue(sqs: &Client, attributes: &[(&str, &str)]) -> String {
    create(sqs, &unused_name("q"), attributes).await
}

/// A new FIFO queue with attributes; its URL.
pub async fn fifo_queue(sqs: &Client, attributes: &[(&str, &str)]) -> String {
    let all = [&[("FifoQueue", "true")], attributes].concat();
    create(sqs, &format!("{}.fifo", unused_name("q")), &all).await
}

pub async fn create(sqs: &Client, name: &str, attributes: &[(&str, &str)]) -> String {
    let mut request = sqs.create_queue().queue_name(name);
    for (name, value) in attributes {
        request = request.attributes(QueueAttributeName::from(*name), *value);
    }
    request.send().await.unwrap().queue_url.unwrap()
}

pub async fn set(sqs: &Client, url: &str, name: &str, value: &str) {
    sqs.set_queue_attributes().queue_url(url).attributes(QueueAttributeName::from(name), value).send().await.unwrap();
}

pub async fn attribute(sqs: &Client, url: &str, name: &str) -> Option<String> {
    let request = sqs.get_queue_attributes().queue_url(url).attribute_names(QueueAttributeName::from(name));
    request.send().await.unwrap().attributes?.remove(&QueueAttributeName::from(name))
}

pub async fn arn(sqs: &Client, url: &str) -> String {
    attribute(sqs, url, "QueueArn").await.unwrap()
}

pub async fn send(sqs: &Client, url: &str, body: &str) {
    sqs.send_message().queue_url(url).message_body(body).send().await.unwrap();
}

/// Sends to a FIFO queue; the body is the deduplication id too.
pub async fn send_to_group(sqs: &Client, url: &str, group: &str, body: &str) {
    let request = sqs.send_message().queue_url(url).message_body(body).message_group_id(group);
    request.message_deduplication_id(body).send().await.unwrap();
}

/// Receives up to `max` messages with all that can be known of them, without waiting.
pub async fn receive(sqs: &Client, url: &str, max: i32) -> Vec<Message> {
    let request = sqs.receive_message().queue_url(url).max_number_of_messages(max).wait_time_seconds(0);
    let request =
        request.message_system_attribute_names(MessageSystemAttributeName::All).message_attribute_names("All");
    request.send().await.unwrap().messages.unwrap_or_default()
}

/// Waits up to `seconds` for a message.
pub async fn poll(sqs: &Client, url: &str, seconds: i32) -> Vec<String> {
    let answer = sqs.receive_message().queue_url(url).wait_time_seconds(seconds).send().await.unwrap();
    bodies(&answer.messages.unwrap_or_default())
}

pub async fn delete(sqs: &Client, url: &str, message: &Message) {
    sqs.delete_message().queue_url(url).receipt_handle(handle(message)).send().await.unwrap();
}

pub async fn hide(sqs: &Client, url: &str, message: &Message, seconds: i32) {
    let request = sqs.change_message_visibility().queue_url(url).receipt_handle(handle(message));
    request.visibility_timeout(seconds).send().await.unwrap();
}

pub fn handle(message: &Message) -> &str {
    message.receipt_handle().unwrap()
}

pub fn bodies(messages: &[Message]) -> Vec<String> {
    messages.iter().map(|message| message.body().unwrap().to_owned()).collect()
}

pub fn system(message: &Message, name: &str) -> String {
    message.attributes().unwrap()[&MessageSystemAttributeName::from(name)].clone()
}

/// The code of a refusal, as an SDK shows it.
pub fn code<T: std::fmt::Debug, E: ProvideErrorMetadata + std::fmt::Debug>(
    outcome: Result<T, SdkError<E, aws_sdk_sqs::config::http::HttpResponse>>,
) -> String {
    match outcome {
        Err(SdkError::ServiceError(error)) => error.err().code().unwrap_or_default().to_owned(),
        other => panic!("not a refusal: {other:?}"),
    }
}

pub async fn seconds(count: u64) {
    tokio::time::sleep(Duration::from_secs(count)).await;
}
