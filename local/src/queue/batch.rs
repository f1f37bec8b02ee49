//! Batches: what makes the whole fail, and how single entries fail.

use super::error::SqsError;
use super::limits;
use super::message_operations::{change_visibility_one, delete_one, send_one};
use super::protocol::{BatchRequest, ReceiptRequest, SendEntry, required};
use super::store::Store;
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(super) fn send(store: &mut Store, now_ms: u64, request: BatchRequest<SendEntry>) -> Result<Value, SqsError> {
    let url = required(request.queue_url, "QueueUrl")?;
    store.queue_at(&url)?;
    let entries = request.entries.unwrap_or_default();
    let ids = check_ids(entries.iter().map(|entry| entry.id.as_deref()))?;
    let sent = entries.iter().map(|entry| entry.message.size_bytes()).sum();
    if sent > limits::MAX_MESSAGE_BYTES {
        return Err(SqsError::BatchTooLong { limit: limits::MAX_MESSAGE_BYTES, sent });
    }
    let mut answer = Answer::default();
    for (id, entry) in ids.into_iter().zip(entries) {
        answer.add(id, send_one(store, now_ms, &url, entry.message));
    }
    Ok(answer.into_value())
}

pub(super) fn delete(store: &mut Store, now_ms: u64, request: BatchRequest<ReceiptRequest>) -> Result<Value, SqsError> {
    each_receipt(store, now_ms, request, delete_one)
}

pub(super) fn change_visibility(
    store: &mut Store,
    now_ms: u64,
    request: BatchRequest<ReceiptRequest>,
) -> Result<Value, SqsError> {
    each_receipt(store, now_ms, request, change_visibility_one)
}

type ReceiptOperation = fn(&mut Store, u64, &str, &ReceiptRequest) -> Result<Value, SqsError>;

fn each_receipt(
    store: &mut Store,
    now_ms: u64,
    request: BatchRequest<ReceiptRequest>,
    operation: ReceiptOperation,
) -> Result<Value, SqsError> {
    let url = required(request.queue_url, "QueueUrl")?;
    store.queue_at(&url)?;
    let entries = request.entries.unwrap_or_default();
    let ids = check_ids(entries.iter().map(|entry| entry.id.as_deref()))?;
    let mut answer = Answer::default();
    for (id, entry) in ids.into_iter().zip(&entries) {
        answer.add(id, operation(store, now_ms, &url, entry));
    }
    Ok(answer.into_value())
}

/// Checks number and ids of a batch's entries; returns the ids in order.
fn check_ids<'a>(ids: impl Iterator<Item = Option<&'a str>>) -> Result<Vec<String>, SqsError> {
    let ids: Vec<String> = ids.map(|id| id.unwrap_or_default().to_owned()).collect();
    if ids.is_empty() {
        return Err(SqsError::EmptyBatch);
    }
    if ids.len() > limits::MAX_BATCH {
        return Err(SqsError::TooManyEntries(ids.len()));
    }
    let mut known = BTreeSet::new();
    for id in &ids {
        let allowed = id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
        if id.is_empty() || id.len() > 80 || !allowed {
            return Err(SqsError::InvalidBatchEntryId);
        }
        if !known.insert(id) {
            return Err(SqsError::IdsNotDistinct(id.clone()));
        }
    }
    Ok(ids)
}

/// A batch succeeds even if each of its entries failed.
#[derive(Default)]
struct Answer {
    successful: Vec<Value>,
    failed: Vec<Value>,
}

impl Answer {
    fn add(&mut self, id: String, outcome: Result<Value, SqsError>) {
        match outcome {
            Ok(mut value) => {
                value["Id"] = json!(id);
                self.successful.push(value);
            }
            Err(error) => self.failed.push(json!({
                "Id": id,
                "Code": error.query_code(),
                "Message": error.to_string(),
                "SenderFault": !matches!(error, SqsError::Throttled(_)),
            })),
        }
    }

    fn into_value(self) -> Value {
        json!({"Successful": self.successful, "Failed": self.failed})
    }
}
