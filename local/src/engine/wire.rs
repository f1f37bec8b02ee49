//! Requests and answers of AWS's JSON protocols (`awsJson1_0`): the operation is named by `X-Amz-Target`.

use aws_smithy_runtime_api::client::http::{HttpConnector, SharedHttpConnector};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::byte_stream::ByteStream;
use bytes::Bytes;
use leasehold::clock::SharedClock;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

/// Marks requests that a layer makes for itself: they are no part of what the product costs.
const OWN_REQUEST: &str = "x-leasehold-own-request";

/// The name space of DynamoDB's error types, of the table and the streams API alike.
pub const DYNAMODB_ERRORS: &str = "com.amazonaws.dynamodb.v20120810";
const SQS_ERRORS: &str = "com.amazonaws.sqs";

/// The operation that a request names, or an empty string.
#[must_use]
pub fn operation_of(request: &HttpRequest) -> &str {
    request.headers().get("x-amz-target").and_then(|target| target.rsplit('.').next()).unwrap_or_default()
}

/// The name space of the error types of the service that a request is for.
#[must_use]
pub fn errors_of(request: &HttpRequest) -> &'static str {
    let target = request.headers().get("x-amz-target").unwrap_or_default();
    if target.starts_with("AmazonSQS") { SQS_ERRORS } else { DYNAMODB_ERRORS }
}

/// The body of a request, or null where it is no JSON (the innermost connector refuses it then).
#[must_use]
pub fn json_of(request: &HttpRequest) -> Value {
    let body = request.body().bytes().unwrap_or_default();
    serde_json::from_slice(body).unwrap_or_default()
}

/// Gives a request another body. A signature over the old one is void then: only for embedded services.
pub fn set_json(request: &mut HttpRequest, body: &Value) {
    let text = body.to_string();
    request.headers_mut().insert("content-length", text.len().to_string());
    *request.body_mut() = SdkBody::from(text);
}

/// Whether a layer, and not the product, made this request.
#[must_use]
pub fn is_own(request: &HttpRequest) -> bool {
    request.headers().contains_key(OWN_REQUEST)
}

/// A request that a layer makes for itself.
fn own_request(operation: &str, body: &Value) -> HttpRequest {
    let mut request = HttpRequest::new(SdkBody::empty());
    request.set_method("POST").expect("POST is a method");
    request.headers_mut().insert("x-amz-target", format!("DynamoDB_20120810.{operation}"));
    request.headers_mut().insert("content-type", "application/x-amz-json-1.0");
    request.headers_mut().insert(OWN_REQUEST, "1");
    set_json(&mut request, body);
    request
}

/// Asks DynamoDB behind `connector` on a layer's own account. `None` means that it gave no answer or refused.
pub(crate) async fn ask(connector: &SharedHttpConnector, operation: &str, body: &Value) -> Option<Value> {
    let mut response = connector.call(own_request(operation, body)).await.ok()?;
    if !response.status().is_success() {
        return None;
    }
    let bytes = read(&mut response).await.ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// Reads a response's body to its end and leaves a copy in its place.
///
/// # Errors
///
/// An I/O error if the connection breaks before the end.
pub async fn read(response: &mut HttpResponse) -> Result<Bytes, ConnectorError> {
    if let Some(bytes) = response.body().bytes() {
        return Ok(Bytes::copy_from_slice(bytes));
    }
    let body = ByteStream::new(response.take_body()).collect().await;
    let bytes = body.map_err(|error| ConnectorError::io(error.into()))?.into_bytes();
    *response.body_mut() = SdkBody::from(bytes.clone());
    Ok(bytes)
}

/// Makes answers as AWS's front end does: each has a `Date` and a request id.
#[derive(Clone, Debug)]
pub struct Answers {
    clock: SharedClock,
    made: Arc<AtomicU64>,
}

impl Answers {
    /// Answers whose `Date` is the wall time of `clock`.
    #[must_use]
    pub fn new(clock: SharedClock) -> Self {
        Self { clock, made: Arc::default() }
    }

    /// The clock behind the answers.
    #[must_use]
    pub fn clock(&self) -> &SharedClock {
        &self.clock
    }

    /// An answer with a JSON body. `status` is an HTTP status code.
    #[must_use]
    pub fn json(&self, status: u16, body: impl Into<SdkBody>) -> HttpResponse {
        let status = StatusCode::try_from(status).expect("callers give a status between 100 and 999");
        let mut response = HttpResponse::new(status, body.into());
        let date = UNIX_EPOCH + Duration::from_millis(self.clock.wall_ms());
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        response.headers_mut().insert("content-type", "application/x-amz-json-1.0");
        response.headers_mut().insert("date", httpdate::fmt_http_date(date));
        // Request ids of DynamoDB have 52 characters. Counted ones are the same in every run.
        response.headers_mut().insert("x-amzn-requestid", format!("{number:052}"));
        response
    }

    /// A refusal: `errors` is the name space of the type (see [`errors_of`]), `code` the bare name of the exception.
    #[must_use]
    pub fn error(&self, status: u16, errors: &str, code: &str, message: &str) -> HttpResponse {
        let body = serde_json::json!({ "__type": format!("{errors}#{code}"), "message": message });
        self.json(status, body.to_string())
    }
}
