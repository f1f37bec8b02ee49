//! The SQS JSON protocol: what requests and answers look like.

use super::error::SqsError;
use super::message::Outgoing;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What `X-Amz-Target` starts with.
const TARGET: &str = "AmazonSQS.";
/// The namespace of errors in `__type`.
const NAMESPACE: &str = "com.amazonaws.sqs";

/// The operation that a target header names.
///
/// # Errors
/// [`SqsError::UnknownOperation`] for another service's or none.
pub fn operation(target: Option<&str>) -> Result<&str, SqsError> {
    let target = target.unwrap_or_default();
    target.strip_prefix(TARGET).ok_or_else(|| SqsError::UnknownOperation(target.chars().take(100).collect()))
}

/// The HTTP answer, with the headers that every answer of AWS has.
#[must_use]
pub fn response(outcome: Result<Value, SqsError>, now_ms: u64, request_id: &str) -> HttpResponse {
    let (status, body, query_error) = match outcome {
        Ok(value) => (200, value, None),
        Err(error) => {
            let body = json!({"__type": format!("{NAMESPACE}#{}", error.shape()), "message": error.to_string()});
            (400, body, Some(format!("{};Sender", error.query_code())))
        }
    };
    let status = StatusCode::try_from(status).expect("200 and 400 are statuses");
    let mut response = HttpResponse::new(status, SdkBody::from(body.to_string()));
    let headers = response.headers_mut();
    headers.insert("content-type", "application/x-amz-json-1.0");
    headers.insert("date", httpdate::fmt_http_date(time_of(now_ms)));
    headers.insert("x-amzn-requestid", request_id.to_owned());
    if let Some(query_error) = query_error {
        headers.insert("x-amzn-query-error", query_error);
    }
    response
}

/// HTTP dates end with the year 9999; a clock beyond that is shown as the last second before.
fn time_of(now_ms: u64) -> SystemTime {
    const YEAR_10000_S: u64 = 253_402_300_800;
    UNIX_EPOCH + Duration::from_secs((now_ms / 1_000).min(YEAR_10000_S - 1))
}

/// A parameter that must be there.
///
/// # Errors
/// [`SqsError::MissingParameter`] that names it.
pub fn required<T>(value: Option<T>, parameter: &'static str) -> Result<T, SqsError> {
    value.ok_or(SqsError::MissingParameter(parameter))
}

/// The members that requests share; each operation reads those that it has.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct QueueRequest {
    /// Whose path names the queue.
    pub queue_url: Option<String>,
    /// The name itself.
    pub queue_name: Option<String>,
    /// Attributes to set.
    pub attributes: Option<BTreeMap<String, String>>,
    /// Attributes to get.
    pub attribute_names: Option<Vec<String>>,
    /// Tags to set. `CreateQueue` spells the member in lower case.
    #[serde(alias = "tags")]
    pub tags: Option<BTreeMap<String, String>>,
    /// Tags to remove.
    pub tag_keys: Option<Vec<String>>,
    /// What names of queues must start with.
    pub queue_name_prefix: Option<String>,
    /// How many results a page has.
    pub max_results: Option<i64>,
    /// Where the next page starts.
    pub next_token: Option<String>,
}

/// `SendMessage`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct SendRequest {
    /// Whose path names the queue.
    pub queue_url: Option<String>,
    /// The message.
    #[serde(flatten)]
    pub message: Outgoing,
}

/// An entry of `SendMessageBatch`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct SendEntry {
    /// Names the entry in the answer.
    pub id: Option<String>,
    /// The message.
    #[serde(flatten)]
    pub message: Outgoing,
}

/// `DeleteMessage`, `ChangeMessageVisibility`, and an entry of their batches.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ReceiptRequest {
    /// Names the entry in the answer.
    pub id: Option<String>,
    /// Whose path names the queue.
    pub queue_url: Option<String>,
    /// Which receive of which message.
    pub receipt_handle: Option<String>,
    /// Seconds to hide it.
    pub visibility_timeout: Option<i64>,
}

/// Any batch.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct BatchRequest<Entry> {
    /// Whose path names the queue.
    pub queue_url: Option<String>,
    /// Up to ten.
    #[serde(default = "Option::default")]
    pub entries: Option<Vec<Entry>>,
}

/// `ReceiveMessage`. `ReceiveRequestAttemptId` is accepted and ignored: a receive whose answer is lost hides its messages
/// for the visibility timeout, as it does at AWS without the parameter.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ReceiveRequest {
    /// Whose path names the queue.
    pub queue_url: Option<String>,
    /// 1 to 10.
    pub max_number_of_messages: Option<i64>,
    /// Seconds to wait for a message, 0 to 20.
    pub wait_time_seconds: Option<i64>,
    /// Seconds to hide what is received.
    pub visibility_timeout: Option<i64>,
    /// System attributes to get.
    pub message_system_attribute_names: Option<Vec<String>>,
    /// The same, by its older name.
    pub attribute_names: Option<Vec<String>>,
    /// The sender's attributes to get: names, `All`, `.*`, or `prefix.*`.
    pub message_attribute_names: Option<Vec<String>>,
}

/// The three operations on move tasks.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct MoveRequest {
    /// The dead-letter queue.
    pub source_arn: Option<String>,
    /// Where to move to.
    pub destination_arn: Option<String>,
    /// 1 to 500.
    pub max_number_of_messages_per_second: Option<i64>,
    /// Names the task.
    pub task_handle: Option<String>,
    /// How many tasks to list.
    pub max_results: Option<i64>,
}
