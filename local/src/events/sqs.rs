//! An event source mapping on an SQS queue: "Using Lambda with Amazon SQS" (Lambda Developer Guide).
//!
//! What succeeded is deleted; the rest is left alone and comes again after the visibility time-out, until the queue's own
//! redrive policy moves it. In a FIFO queue a group waits while one of its messages is out, so the order holds; but the
//! mapping deletes whatever the answer does not name: a function must name what it did not get to as well.

use super::answer::{Answer, read_answer};
use super::filter::Filters;
use super::function::{InvokeError, Invoker};
use super::record::region_of;
use super::retry::Backoff;
use super::{Stop, pause, stopped};
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{DeleteMessageBatchRequestEntry, Message, MessageAttributeValue, MessageSystemAttributeName};
use aws_smithy_types::error::display::DisplayErrorContext;
use leasehold::clock::SharedClock;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::{Map, Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// The most messages of a receive and of a batch deletion (SQS).
const MAX_ENTRIES: usize = 10;
/// The longest long poll (SQS), in milliseconds.
const MAX_WAIT_MS: u64 = 20_000;
/// How often a deletion is tried.
const DELETE_ATTEMPTS: u32 = 4;

/// The settings of a mapping on a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SqsSettings {
    /// `BatchSize`: messages an invocation. More than 10 need a window, and FIFO queues take 10 at most.
    pub batch_size: usize,
    /// `MaximumBatchingWindowInSeconds`, in milliseconds; 0 for FIFO queues.
    pub window_ms: u64,
    /// `ScalingConfig.MaximumConcurrency`: invocations side by side. Should be at most the function's own limit, or
    /// throttled messages use their receives up.
    pub max_concurrency: usize,
    /// `FunctionResponseTypes: [ReportBatchItemFailures]`. Without it any answer is a success.
    pub report_item_failures: bool,
    /// After a failed receive or deletion.
    pub backoff: Backoff,
}

impl Default for SqsSettings {
    fn default() -> Self {
        Self {
            batch_size: 10,
            window_ms: 0,
            max_concurrency: 2,
            report_item_failures: true,
            backoff: Backoff { first_ms: 200, most_ms: 20_000 },
        }
    }
}

/// What a mapping counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SqsCounts {
    /// Messages received.
    pub received: u64,
    /// Messages deleted after their function succeeded.
    pub deleted: u64,
    /// Messages deleted because no filter pattern matched.
    pub filtered: u64,
    /// Messages left to come again.
    pub left: u64,
}

/// What a mapping is made of.
pub struct SqsParts {
    /// A client of SQS.
    pub client: Client,
    /// The queue.
    pub queue_url: String,
    /// Its ARN, for the events.
    pub queue_arn: String,
    /// The function.
    pub invoker: Arc<Invoker>,
    /// Which messages are delivered; the others are deleted.
    pub filters: Filters,
    /// The settings.
    pub settings: SqsSettings,
    /// The clock of the batching window.
    pub clock: SharedClock,
    /// Seeds the jitter.
    pub seed: u64,
}

/// A mapping on a queue; clones share it.
#[derive(Clone)]
pub struct SqsSource {
    shared: Arc<Shared>,
}

struct Shared {
    parts: SqsParts,
    rng: Mutex<StdRng>,
    received: AtomicU64,
    deleted: AtomicU64,
    filtered: AtomicU64,
    left: AtomicU64,
}

impl SqsSource {
    /// A mapping with these parts.
    #[must_use]
    pub fn new(parts: SqsParts) -> Self {
        let rng = Mutex::new(StdRng::seed_from_u64(parts.seed));
        let zero = AtomicU64::default;
        let shared = Shared { parts, rng, received: zero(), deleted: zero(), filtered: zero(), left: zero() };
        Self { shared: Arc::new(shared) }
    }

    /// What was counted so far.
    #[must_use]
    pub fn counts(&self) -> SqsCounts {
        SqsCounts {
            received: self.shared.received.load(Ordering::Relaxed),
            deleted: self.shared.deleted.load(Ordering::Relaxed),
            filtered: self.shared.filtered.load(Ordering::Relaxed),
            left: self.shared.left.load(Ordering::Relaxed),
        }
    }

    /// Receives and delivers until `stop`. Invocations that run then are awaited.
    pub async fn run(&self, mut stop: Stop) {
        let permits = Arc::new(Semaphore::new(self.shared.parts.settings.max_concurrency.max(1)));
        let mut deliveries = JoinSet::new();
        let mut failures = 0;
        while !*stop.borrow() {
            // A permit first: what is received but not delivered would run into its visibility time-out.
            let permit = tokio::select! {
                biased;
                permit = Arc::clone(&permits).acquire_owned() => permit,
                () = stopped(&mut stop) => break,
            };
            while deliveries.try_join_next().is_some() {}
            let received = tokio::select! {
                biased;
                received = self.shared.receive_batch() => received,
                () = stopped(&mut stop) => break,
            };
            match received {
                Ok(messages) if messages.is_empty() => failures = 0,
                Ok(messages) => {
                    failures = 0;
                    let shared = Arc::clone(&self.shared);
                    deliveries.spawn(async move {
                        shared.deliver(messages).await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    failures += 1;
                    tracing::warn!(queue = self.shared.parts.queue_url, error, "cannot receive");
                    let wait_ms = self.shared.back_off_ms(failures);
                    if !pause(wait_ms, &mut stop).await {
                        break;
                    }
                }
            }
        }
        while deliveries.join_next().await.is_some() {}
    }
}

impl Shared {
    fn back_off_ms(&self, failures: u32) -> u64 {
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        self.parts.settings.backoff.delay_ms(failures, &mut *rng)
    }

    /// A batch: full, or what came within the window, or of one receive if there is no window.
    async fn receive_batch(&self) -> Result<Vec<Message>, String> {
        let settings = &self.parts.settings;
        let mut batch = self.receive(settings.batch_size, MAX_WAIT_MS).await?;
        let started_ms = self.parts.clock.mono_ms();
        while !batch.is_empty() && batch.len() < settings.batch_size {
            let waited_ms = self.parts.clock.mono_ms().saturating_sub(started_ms);
            let left_ms = settings.window_ms.saturating_sub(waited_ms);
            if left_ms < 1_000 {
                break;
            }
            match self.receive(settings.batch_size - batch.len(), left_ms).await {
                Ok(more) => batch.extend(more),
                // What is there is delivered; the next receive reports the error.
                Err(_) => break,
            }
        }
        Ok(batch)
    }

    async fn receive(&self, at_most: usize, wait_ms: u64) -> Result<Vec<Message>, String> {
        let request = self.parts.client.receive_message().queue_url(&self.parts.queue_url);
        let request = request
            .max_number_of_messages(i32::try_from(at_most.clamp(1, MAX_ENTRIES)).unwrap_or(1))
            .wait_time_seconds(i32::try_from(wait_ms.min(MAX_WAIT_MS) / 1_000).unwrap_or(0))
            .message_system_attribute_names(MessageSystemAttributeName::All)
            .message_attribute_names("All");
        let answer = request.send().await.map_err(|error| DisplayErrorContext(&error).to_string())?;
        let messages = answer.messages.unwrap_or_default();
        self.received.fetch_add(messages.len() as u64, Ordering::Relaxed);
        Ok(messages)
    }

    async fn deliver(&self, messages: Vec<Message>) {
        let (mut matching, mut records, mut unmatched) = (Vec::new(), Vec::new(), Vec::new());
        for message in messages {
            let record = record_json(&message, &self.parts.queue_arn);
            if wanted(&self.parts.filters, &record) {
                matching.push(message);
                records.push(record);
            } else {
                unmatched.push(message);
            }
        }
        self.filtered.fetch_add(unmatched.len() as u64, Ordering::Relaxed);
        self.delete(unmatched).await;
        if matching.is_empty() {
            return;
        }
        let outcome = self.parts.invoker.invoke(json!({"Records": records})).await;
        let identifiers: Vec<String> =
            matching.iter().map(|message| message.message_id().unwrap_or_default().to_owned()).collect();
        let failed = failed_positions(outcome, &identifiers, self.parts.settings.report_item_failures);
        self.left.fetch_add(failed.len() as u64, Ordering::Relaxed);
        let mut succeeded = Vec::new();
        for (position, message) in matching.into_iter().enumerate() {
            if !failed.contains(&position) {
                succeeded.push(message);
            }
        }
        self.deleted.fetch_add(succeeded.len() as u64, Ordering::Relaxed);
        self.delete(succeeded).await;
    }

    async fn delete(&self, messages: Vec<Message>) {
        for chunk in messages.chunks(MAX_ENTRIES) {
            let mut handles: Vec<String> = chunk.iter().filter_map(|message| message.receipt_handle.clone()).collect();
            for attempt in 1..=DELETE_ATTEMPTS {
                handles = self.delete_once(handles).await;
                if handles.is_empty() {
                    break;
                }
                tokio::time::sleep(std::time::Duration::from_millis(self.back_off_ms(attempt))).await;
            }
            if !handles.is_empty() {
                tracing::warn!(queue = self.parts.queue_url, messages = handles.len(), "not deleted: they come again");
            }
        }
    }

    /// Gives back what is still to be deleted: an entry can fail by itself.
    async fn delete_once(&self, handles: Vec<String>) -> Vec<String> {
        let mut entries = Vec::with_capacity(handles.len());
        for (index, handle) in handles.iter().enumerate() {
            let entry = DeleteMessageBatchRequestEntry::builder().id(index.to_string()).receipt_handle(handle).build();
            entries.push(entry.expect("id and receipt handle are set"));
        }
        let request = self.parts.client.delete_message_batch().queue_url(&self.parts.queue_url);
        let Ok(answer) = request.set_entries(Some(entries)).send().await else { return handles };
        let mut failed = Vec::new();
        for failure in answer.failed() {
            // A receipt handle that is refused stays refused.
            if !failure.sender_fault()
                && let Some(handle) = failure.id().parse().ok().and_then(|index: usize| handles.get(index))
            {
                failed.push(handle.clone());
            }
        }
        failed
    }
}

/// The positions of the messages that are left in the queue: PURE.
#[must_use]
pub fn failed_positions(
    outcome: Result<Value, InvokeError>,
    identifiers: &[String],
    report_item_failures: bool,
) -> Vec<usize> {
    let everything = || (0..identifiers.len()).collect();
    match outcome {
        Err(_) => everything(),
        Ok(_) if !report_item_failures => Vec::new(),
        Ok(answer) => match read_answer(&answer, identifiers) {
            Answer::Success => Vec::new(),
            Answer::Partial(failed) => failed,
            Answer::Failure(reason) => {
                tracing::warn!(reason, "the whole batch failed");
                everything()
            }
        },
    }
}

/// Whether the filters let a message through: PURE. "Properly filtering Amazon SQS messages": if a pattern looks into the
/// body, a body that is no JSON does not match.
#[must_use]
pub fn wanted(filters: &Filters, record: &Value) -> bool {
    if !filters.looks_below("body") {
        return filters.matches(record);
    }
    let body = record["body"].as_str().unwrap_or_default();
    let Ok(parsed @ Value::Object(_)) = serde_json::from_str::<Value>(body) else { return false };
    let mut decoded = record.clone();
    decoded["body"] = parsed;
    filters.matches(&decoded)
}

/// A message as Lambda delivers it: "Example Amazon SQS message event".
#[must_use]
pub fn record_json(message: &Message, queue_arn: &str) -> Value {
    let mut attributes = Map::new();
    for (name, value) in message.attributes().into_iter().flatten() {
        attributes.insert(name.as_str().to_owned(), json!(value));
    }
    let mut message_attributes = Map::new();
    for (name, value) in message.message_attributes().into_iter().flatten() {
        message_attributes.insert(name.clone(), attribute_json(value));
    }
    let mut record = json!({
        "messageId": message.message_id(),
        "receiptHandle": message.receipt_handle(),
        "body": message.body().unwrap_or_default(),
        "attributes": attributes,
        "messageAttributes": message_attributes,
        "md5OfBody": message.md5_of_body(),
        "eventSource": "aws:sqs",
        "eventSourceARN": queue_arn,
        "awsRegion": region_of(queue_arn),
    });
    if let Some(digest) = message.md5_of_message_attributes() {
        record["md5OfMessageAttributes"] = json!(digest);
    }
    record
}

fn attribute_json(value: &MessageAttributeValue) -> Value {
    let mut json = json!({"stringListValues": [], "binaryListValues": [], "dataType": value.data_type()});
    if let Some(text) = value.string_value() {
        json["stringValue"] = json!(text);
    }
    if let Some(blob) = value.binary_value() {
        json["binaryValue"] = json!(aws_smithy_types::base64::encode(blob));
    }
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    // The table of "Properly filtering Amazon SQS messages".
    #[test]
    fn a_body_that_is_no_json_does_not_match_a_pattern_that_looks_into_it() {
        let of_body = Filters::from_patterns(&[json!({"body": {"kind": ["tick"]}})]).expect("valid");
        assert!(wanted(&of_body, &json!({"body": "{\"kind\":\"tick\"}"})));
        assert!(!wanted(&of_body, &json!({"body": "{\"kind\":\"signal\"}"})));
        assert!(!wanted(&of_body, &json!({"body": "tick"})));
        let plain = Filters::from_patterns(&[json!({"body": ["tick"]})]).expect("valid");
        assert!(wanted(&plain, &json!({"body": "tick"})));
        assert!(wanted(&Filters::default(), &json!({"body": "anything"})));
    }

    // "Handling errors for an SQS event source": an error of the function leaves the whole batch.
    #[test]
    fn what_is_not_known_to_have_succeeded_stays() {
        let identifiers = ["1".to_owned(), "2".to_owned(), "3".to_owned()];
        let answer = json!({"batchItemFailures": [{"itemIdentifier": "2"}]});
        assert_eq!(failed_positions(Ok(answer.clone()), &identifiers, true), [1]);
        assert!(failed_positions(Ok(answer), &identifiers, false).is_empty());
        assert_eq!(failed_positions(Err(InvokeError::Throttled), &identifiers, true), [0, 1, 2]);
        assert_eq!(
            failed_positions(Ok(json!({"batchItemFailures": [{"itemIdentifier": ""}]})), &identifiers, true),
            [0, 1, 2]
        );
    }
}
