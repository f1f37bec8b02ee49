//! Operations on queues: make, find, set, show, purge, tag.

use super::attributes::{COMPUTED, check_names};
use super::error::SqsError;
use super::limits;
use super::protocol::{QueueRequest, required};
use super::redrive_policy::{ACCOUNT, arn_of};
use super::store::Store;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The URL of a queue below a base such as `http://sqs.local`.
#[must_use]
pub fn url_of(base_url: &str, name: &str) -> String {
    format!("{}/{ACCOUNT}/{name}", base_url.trim_end_matches('/'))
}

pub(super) fn create(store: &mut Store, now_ms: u64, base_url: &str, request: QueueRequest) -> Result<Value, SqsError> {
    let name = required(request.queue_name, "QueueName")?;
    let tags = request.tags.unwrap_or_default();
    check_tags(tags.len())?;
    store.create(now_ms, &name, &request.attributes.unwrap_or_default(), tags)?;
    Ok(json!({"QueueUrl": url_of(base_url, &name)}))
}

pub(super) fn delete(store: &mut Store, now_ms: u64, request: QueueRequest) -> Result<Value, SqsError> {
    store.delete_queue(now_ms, &required(request.queue_url, "QueueUrl")?)?;
    Ok(json!({}))
}

pub(super) fn get_url(store: &mut Store, base_url: &str, request: QueueRequest) -> Result<Value, SqsError> {
    let name = required(request.queue_name, "QueueName")?;
    store.queue(&name)?;
    Ok(json!({"QueueUrl": url_of(base_url, &name)}))
}

pub(super) fn list(store: &mut Store, base_url: &str, request: QueueRequest) -> Result<Value, SqsError> {
    let prefix = request.queue_name_prefix.clone().unwrap_or_default();
    let names = store.names().filter(|name| name.starts_with(&prefix)).cloned().collect();
    page("QueueUrls", names, base_url, &request)
}

pub(super) fn list_sources(store: &mut Store, base_url: &str, request: QueueRequest) -> Result<Value, SqsError> {
    let url = required(request.queue_url.as_deref(), "QueueUrl")?;
    let name = store.queue_at(url)?.state.name.clone();
    // The lower-case member is AWS's own.
    page("queueUrls", store.dead_letter_sources(&name), base_url, &request)
}

/// One page of URLs. The token is the last name of the page before.
fn page(member: &str, mut names: Vec<String>, base_url: &str, request: &QueueRequest) -> Result<Value, SqsError> {
    let max = match request.max_results {
        None => 1_000,
        Some(max) => match usize::try_from(max) {
            Ok(max @ 1..=1_000) => max,
            _ => return Err(SqsError::invalid(max, "MaxResults", "must be between 1 and 1000.")),
        },
    };
    if let Some(token) = &request.next_token {
        names.retain(|name| name > token);
    }
    let more = names.len() > max;
    names.truncate(max);
    let urls: Vec<String> = names.iter().map(|name| url_of(base_url, name)).collect();
    let mut answer = json!({member: urls});
    // AWS gives a token only to those who asked for pages.
    if let (true, true, Some(last)) = (more, request.max_results.is_some(), names.last()) {
        answer["NextToken"] = json!(last);
    }
    Ok(answer)
}

pub(super) fn get_attributes(store: &mut Store, now_ms: u64, request: QueueRequest) -> Result<Value, SqsError> {
    let state = &mut store.queue_at(&required(request.queue_url, "QueueUrl")?)?.state;
    let names = request.attribute_names.unwrap_or_default();
    check_names(&names)?;
    let counts = state.counts(now_ms);
    let computed = [
        counts.visible.to_string(),
        counts.not_visible.to_string(),
        counts.delayed.to_string(),
        (state.created_ms / 1_000).to_string(),
        (state.modified_ms / 1_000).to_string(),
        arn_of(&state.name),
    ];
    let mut attributes = state.config.show();
    for (name, value) in COMPUTED.iter().zip(computed) {
        attributes.insert((*name).to_owned(), value);
    }
    if !names.iter().any(|name| name == "All") {
        attributes.retain(|name, _| names.contains(name));
    }
    if attributes.is_empty() {
        return Ok(json!({}));
    }
    Ok(json!({"Attributes": attributes}))
}

pub(super) fn set_attributes(store: &mut Store, now_ms: u64, request: QueueRequest) -> Result<Value, SqsError> {
    let attributes = required(request.attributes, "Attributes")?;
    store.set_attributes(now_ms, &required(request.queue_url, "QueueUrl")?, &attributes)?;
    Ok(json!({}))
}

pub(super) fn purge(store: &mut Store, now_ms: u64, request: QueueRequest) -> Result<Value, SqsError> {
    let state = &mut store.queue_at(&required(request.queue_url, "QueueUrl")?)?.state;
    if state.purge_rests_ms(now_ms) > 0 {
        return Err(SqsError::PurgeQueueInProgress(state.name.clone()));
    }
    state.purge(now_ms);
    Ok(json!({}))
}

pub(super) fn tag(store: &mut Store, request: QueueRequest) -> Result<Value, SqsError> {
    let state = &mut store.queue_at(&required(request.queue_url, "QueueUrl")?)?.state;
    let mut tags: BTreeMap<String, String> = state.tags.clone();
    tags.extend(required(request.tags, "Tags")?);
    check_tags(tags.len())?;
    state.tags = tags;
    Ok(json!({}))
}

pub(super) fn untag(store: &mut Store, request: QueueRequest) -> Result<Value, SqsError> {
    let state = &mut store.queue_at(&required(request.queue_url, "QueueUrl")?)?.state;
    for key in required(request.tag_keys, "TagKeys")? {
        state.tags.remove(&key);
    }
    Ok(json!({}))
}

pub(super) fn list_tags(store: &mut Store, request: QueueRequest) -> Result<Value, SqsError> {
    let state = &store.queue_at(&required(request.queue_url, "QueueUrl")?)?.state;
    Ok(json!({"Tags": state.tags}))
}

fn check_tags(count: usize) -> Result<(), SqsError> {
    if count > limits::MAX_TAGS {
        return Err(SqsError::invalid(count, "Tags", "a queue has at most 50 tags."));
    }
    Ok(())
}
