//! Operations on messages, one by one.

use super::digest::{Receipt, md5_of_attributes, md5_of_body};
use super::error::SqsError;
use super::limits;
use super::message::{Message, Outgoing};
use super::protocol::{ReceiptRequest, ReceiveRequest, SendRequest, required};
use super::redrive_policy::arn_of;
use super::store::Store;
use serde_json::{Map, Value, json};

/// `SenderId` of every message: there is one account and no IAM.
const SENDER: &str = "AIDALOCAL";

pub(super) fn send(store: &mut Store, now_ms: u64, request: SendRequest) -> Result<Value, SqsError> {
    send_one(store, now_ms, &required(request.queue_url, "QueueUrl")?, request.message)
}

/// Sends a message; answers with the members that `SendMessage` and a batch's entry share.
pub(super) fn send_one(store: &mut Store, now_ms: u64, url: &str, message: Outgoing) -> Result<Value, SqsError> {
    let mut answer = Map::new();
    answer.insert("MD5OfMessageBody".into(), json!(md5_of_body(message.body.as_deref().unwrap_or_default())));
    if let Some(md5) = md5_of_attributes(message.attributes.iter().flatten()) {
        answer.insert("MD5OfMessageAttributes".into(), json!(md5));
    }
    if let Some(md5) = md5_of_attributes(message.system_attributes.iter().flatten()) {
        answer.insert("MD5OfMessageSystemAttributes".into(), json!(md5));
    }
    let sent = store.send(now_ms, url, message)?;
    answer.insert("MessageId".into(), json!(sent.message_id));
    if let Some(number) = sent.sequence_number {
        answer.insert("SequenceNumber".into(), json!(number));
    }
    Ok(Value::Object(answer))
}

pub(super) fn delete(store: &mut Store, now_ms: u64, request: ReceiptRequest) -> Result<Value, SqsError> {
    let url = required(request.queue_url.clone(), "QueueUrl")?;
    delete_one(store, now_ms, &url, &request)
}

pub(super) fn delete_one(store: &mut Store, now_ms: u64, url: &str, entry: &ReceiptRequest) -> Result<Value, SqsError> {
    let queue = store.queue_at(url)?;
    let handle = required(entry.receipt_handle.as_deref(), "ReceiptHandle")?;
    let receipt = Receipt::from_handle(handle, &queue.state.name)?;
    queue.state.delete(now_ms, &receipt)?;
    // In a FIFO queue this may open the group.
    queue.arrivals.notify_waiters();
    Ok(json!({}))
}

pub(super) fn change_visibility(store: &mut Store, now_ms: u64, request: ReceiptRequest) -> Result<Value, SqsError> {
    let url = required(request.queue_url.clone(), "QueueUrl")?;
    change_visibility_one(store, now_ms, &url, &request)
}

pub(super) fn change_visibility_one(
    store: &mut Store,
    now_ms: u64,
    url: &str,
    entry: &ReceiptRequest,
) -> Result<Value, SqsError> {
    let queue = store.queue_at(url)?;
    let handle = required(entry.receipt_handle.as_deref(), "ReceiptHandle")?;
    let receipt = Receipt::from_handle(handle, &queue.state.name)?;
    let asked = required(entry.visibility_timeout, "VisibilityTimeout")?;
    queue.state.change_visibility(
        now_ms,
        &receipt,
        in_range(asked, "VisibilityTimeout", 0, limits::MAX_VISIBILITY_S)?,
    )?;
    // It may be visible now, or earlier than a poll has reckoned.
    queue.arrivals.notify_waiters();
    Ok(json!({}))
}

/// A receive whose parameters were checked.
#[derive(Clone, Debug)]
pub(super) struct CheckedReceive {
    pub url: String,
    pub max: usize,
    pub visibility_s: Option<u64>,
    /// The queue's default when absent.
    pub wait_s: Option<u64>,
    system_names: Vec<String>,
    attribute_names: Vec<String>,
}

impl CheckedReceive {
    pub fn new(request: ReceiveRequest) -> Result<Self, SqsError> {
        let max = request.max_number_of_messages.unwrap_or(1);
        let max = in_range(max, "MaxNumberOfMessages", 1, limits::MAX_BATCH as u64)?;
        let visibility_s = request.visibility_timeout;
        let visibility_s =
            visibility_s.map(|s| in_range(s, "VisibilityTimeout", 0, limits::MAX_VISIBILITY_S)).transpose()?;
        let wait_s = request.wait_time_seconds;
        let mut system_names = request.message_system_attribute_names.unwrap_or_default();
        system_names.extend(request.attribute_names.unwrap_or_default());
        Ok(Self {
            url: required(request.queue_url, "QueueUrl")?,
            max: usize::try_from(max).unwrap_or(1),
            visibility_s,
            wait_s: wait_s.map(|s| in_range(s, "WaitTimeSeconds", 0, limits::MAX_WAIT_S)).transpose()?,
            system_names,
            attribute_names: request.message_attribute_names.unwrap_or_default(),
        })
    }

    /// Takes what is there now.
    pub fn take(&self, store: &mut Store, now_ms: u64) -> Result<Vec<Value>, SqsError> {
        let messages = store.receive(now_ms, &self.url, self.max, self.visibility_s)?;
        let queue = store.queue_at(&self.url)?.state.name.clone();
        Ok(messages.iter().map(|message| self.show(message, &queue)).collect())
    }

    fn show(&self, message: &Message, queue: &str) -> Value {
        let receipt = Receipt { queue: queue.to_owned(), number: message.number, receive: message.receives_here };
        let mut shown = json!({
            "MessageId": message.id,
            "ReceiptHandle": receipt.to_handle(),
            "Body": message.body,
            "MD5OfBody": md5_of_body(&message.body),
        });
        let mut system = system_attributes(message, queue.ends_with(".fifo"));
        if !self.system_names.iter().any(|name| name == "All") {
            system.retain(|name, _| self.system_names.contains(name));
        }
        if !system.is_empty() {
            shown["Attributes"] = Value::Object(system);
        }
        let wanted: Vec<_> = message.attributes.iter().filter(|(name, _)| self.wants(name)).collect();
        if let Some(md5) = md5_of_attributes(wanted.iter().copied()) {
            shown["MD5OfMessageAttributes"] = json!(md5);
            shown["MessageAttributes"] = wanted.iter().map(|(name, value)| ((*name).clone(), json!(value))).collect();
        }
        shown
    }

    fn wants(&self, name: &str) -> bool {
        self.attribute_names.iter().any(|wanted| match wanted.strip_suffix(".*") {
            Some(prefix) => name.starts_with(prefix),
            None => wanted == "All" || wanted == name,
        })
    }
}

fn system_attributes(message: &Message, fifo: bool) -> Map<String, Value> {
    let mut system = Map::new();
    let mut put = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            system.insert(name.to_owned(), Value::String(value));
        }
    };
    put("SenderId", Some(SENDER.to_owned()));
    put("SentTimestamp", Some(message.sent_ms.to_string()));
    put("ApproximateReceiveCount", Some(message.receive_count.to_string()));
    put("ApproximateFirstReceiveTimestamp", message.first_received_ms.map(|ms| ms.to_string()));
    put("MessageGroupId", message.group_id.clone());
    put("MessageDeduplicationId", message.deduplication_id.clone());
    put("SequenceNumber", fifo.then(|| message.sequence_number()));
    put("DeadLetterQueueSourceArn", message.dead_letter_source.as_deref().map(arn_of));
    put("AWSTraceHeader", message.system_attributes.get("AWSTraceHeader").and_then(|value| value.string_value.clone()));
    system
}

fn in_range(value: i64, parameter: &str, min: u64, max: u64) -> Result<u64, SqsError> {
    match u64::try_from(value) {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err(SqsError::invalid(value, parameter, &format!("must be between {min} and {max}, if provided."))),
    }
}
