//! Where the metadata of what failed goes: an SQS queue.
//!
//! "Retain discarded records for a DynamoDB event source" and "Capturing records of Lambda asynchronous invocations"
//! (Lambda Developer Guide). For a stream the message names the records by their place in the stream; it does not hold
//! them, and after 24 hours they are gone.

use super::batch::Discarded;
use super::{InvokeError, iso_millis, iso_seconds};
use serde_json::{Value, json};
use std::time::Duration;

/// How often a message is sent before it is given up (AWS counts `DestinationDeliveryFailures` then).
const ATTEMPTS: u32 = 3;

/// A failure destination.
#[derive(Clone, Debug)]
pub struct Destination {
    /// The client to send with.
    pub client: aws_sdk_sqs::Client,
    /// The queue.
    pub queue_url: String,
}

impl Destination {
    /// Sends a message; `false` if that failed for good.
    pub async fn send(&self, message: &Value) -> bool {
        for attempt in 1..=ATTEMPTS {
            let request = self.client.send_message().queue_url(&self.queue_url).message_body(message.to_string());
            let Err(error) = request.send().await else { return true };
            tracing::warn!(attempt, error = %aws_smithy_types::error::display::DisplayErrorContext(&error), "failure destination");
            tokio::time::sleep(Duration::from_millis(200 << attempt)).await;
        }
        false
    }
}

/// What identifies an invocation in a metadata message.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// A UUID.
    pub id: &'a str,
    /// The function's ARN.
    pub function_arn: &'a str,
    /// The wall clock in milliseconds since the Unix epoch.
    pub now_ms: u64,
}

/// The message about stream records that were given up. `error` is the function's last error, if it was one.
#[must_use]
pub fn discarded_message(
    request: Request<'_>,
    stream_arn: &str,
    shard: &str,
    discarded: &Discarded,
    error: Option<&InvokeError>,
) -> Value {
    let first = discarded.records.first();
    let last = discarded.records.last();
    let mut message = json!({
        "requestContext": {
            "requestId": request.id,
            "functionArn": request.function_arn,
            "condition": discarded.condition.as_str(),
            "approximateInvokeCount": discarded.invocations,
        },
        "version": "1.0",
        "timestamp": iso_millis(request.now_ms),
        "DDBStreamBatchInfo": {
            "shardId": shard,
            "startSequenceNumber": first.map(|record| record.sequence.as_str()),
            "endSequenceNumber": last.map(|record| record.sequence.as_str()),
            "approximateArrivalOfFirstRecord": first.map(|record| iso_seconds(record.created_ms)),
            "approximateArrivalOfLastRecord": last.map(|record| iso_seconds(record.created_ms)),
            "batchSize": discarded.records.len(),
            "streamArn": stream_arn,
        },
    });
    if discarded.invocations > 0 {
        message["responseContext"] = response_context(error);
    }
    message
}

/// The message about an asynchronous invocation that was given up.
#[must_use]
pub fn asynchronous_message(
    request: Request<'_>,
    condition: &str,
    invocations: u32,
    event: &Value,
    error: &InvokeError,
) -> Value {
    json!({
        "version": "1.0",
        "timestamp": iso_millis(request.now_ms),
        "requestContext": {
            "requestId": request.id,
            "functionArn": format!("{}:$LATEST", request.function_arn),
            "condition": condition,
            "approximateInvokeCount": invocations,
        },
        "requestPayload": event,
        "responseContext": response_context(Some(error)),
        "responsePayload": error.payload(),
    })
}

fn response_context(error: Option<&InvokeError>) -> Value {
    let mut context = json!({"statusCode": 200, "executedVersion": "$LATEST"});
    if error.is_some_and(InvokeError::is_function_error) {
        context["functionError"] = json!("Unhandled");
    }
    context
}
