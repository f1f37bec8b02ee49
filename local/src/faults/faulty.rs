//! Faults by plan.

use crate::engine::wire::{self, Answers};
use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture, SharedHttpConnector};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use leasehold::clock::SharedClock;
use serde_json::Value;
use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::time::sleep;

/// What goes wrong with one request (one attempt: the SDK's retries are requests of their own).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The request arrives later. If the caller has given up by then, it is never applied.
    Delay(Duration),
    /// The request is refused with HTTP 400 and this code, such as `ThrottlingException`, and not applied.
    Throttle(&'static str),
    /// The service fails with HTTP 500; the request is not applied.
    Http500,
    /// The connection breaks before the request is applied.
    LostBefore,
    /// The request is applied, then the connection breaks.
    LostAfter,
    /// The request is applied at once, its answer arrives later.
    DelayAnswer(Duration),
    /// The caller sees a time-out, and the request is applied at some other time all the same. Both times count
    /// from the call.
    LandLate {
        /// When the caller sees the time-out.
        answer_after: Duration,
        /// When the request is applied.
        apply_after: Duration,
    },
}

/// A request as a plan sees it.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The operation's name, such as `UpdateItem`.
    pub operation: &'a str,
    /// The table's name or the queue's URL, if the request names one.
    pub target: Option<&'a str>,
    /// The request's body; null if it is no JSON.
    pub request: &'a Value,
    /// The SDK's attempt, from 1 (its `amz-sdk-request` header).
    pub attempt: u32,
    /// How many requests this layer has seen before, retries included.
    pub number: u64,
    /// Milliseconds of the clock's monotonic time.
    pub now_ms: u64,
}

impl<'a> Call<'a> {
    /// The items and keys that the request names: alone, in a batch or in a transaction.
    #[must_use]
    pub fn items(&self) -> Vec<&'a Value> {
        let mut found = Vec::new();
        collect_items(self.request, &mut found);
        found
    }

    /// Whether the request names an item whose string attribute `name` is `value`, such as a key.
    #[must_use]
    pub fn names(&self, name: &str, value: &str) -> bool {
        self.items().iter().any(|item| item[name]["S"] == value)
    }
}

/// `Key` and `Item` members, at any depth, but not what is inside of them.
fn collect_items<'a>(value: &'a Value, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match name.as_str() {
                    "Key" | "Item" => found.push(member),
                    "Keys" => found.extend(member.as_array().into_iter().flatten()),
                    _ => collect_items(member, found),
                }
            }
        }
        Value::Array(members) => members.iter().for_each(|member| collect_items(member, found)),
        _ => {}
    }
}

/// Decides what goes wrong with a request; `None` lets it pass.
pub type Plan = Arc<dyn Fn(&Call<'_>) -> Option<Fault> + Send + Sync>;

/// Injects faults into what it passes on. Clones share the plan and the count.
#[derive(Clone)]
pub struct Faulty {
    inner: SharedHttpConnector,
    answers: Answers,
    plan: Arc<RwLock<Plan>>,
    seen: Arc<AtomicU64>,
}

impl Faulty {
    /// A layer around `inner` that follows `plan`.
    pub fn new(inner: impl HttpConnector + 'static, clock: SharedClock, plan: Plan) -> Self {
        let plan = Arc::new(RwLock::new(plan));
        Self { inner: SharedHttpConnector::new(inner), answers: Answers::new(clock), plan, seen: Arc::default() }
    }

    /// Follows another plan from the next request on.
    pub fn set_plan(&self, plan: Plan) {
        *self.plan.write().unwrap_or_else(PoisonError::into_inner) = plan;
    }

    fn decide(&self, request: &HttpRequest) -> Option<Fault> {
        let body = wire::json_of(request);
        let target = body["TableName"].as_str().or_else(|| body["QueueUrl"].as_str());
        let plan = self.plan.read().unwrap_or_else(PoisonError::into_inner).clone();
        plan(&Call {
            operation: wire::operation_of(request),
            target,
            request: &body,
            attempt: attempt_of(request),
            number: self.seen.fetch_add(1, Ordering::Relaxed),
            now_ms: self.answers.clock().mono_ms(),
        })
    }

    async fn suffer(self, request: HttpRequest, fault: Fault) -> Result<HttpResponse, ConnectorError> {
        let errors = wire::errors_of(&request);
        match fault {
            Fault::Delay(time) => {
                sleep(time).await;
                self.inner.call(request).await
            }
            Fault::Throttle(code) => Ok(self.answers.error(400, errors, code, "throttled by the fault plan")),
            Fault::Http500 => Ok(self.answers.error(500, errors, "InternalServerError", "failed by the fault plan")),
            Fault::LostBefore => Err(lost()),
            Fault::LostAfter => {
                self.inner.call(request).await?;
                Err(lost())
            }
            Fault::DelayAnswer(time) => {
                let answer = self.inner.call(request).await;
                sleep(time).await;
                answer
            }
            Fault::LandLate { answer_after, apply_after } => {
                // A task of its own: the request lands although the caller drops this future.
                tokio::spawn(land(self.inner, request, apply_after));
                sleep(answer_after).await;
                let reason = io::Error::new(ErrorKind::TimedOut, "timed out by the fault plan");
                Err(ConnectorError::timeout(reason.into()))
            }
        }
    }
}

impl HttpConnector for Faulty {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        match self.decide(&request) {
            None => self.inner.call(request),
            Some(fault) => HttpConnectorFuture::new(self.clone().suffer(request, fault)),
        }
    }
}

impl fmt::Debug for Faulty {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Faulty").field("inner", &self.inner).finish_non_exhaustive()
    }
}

async fn land(inner: SharedHttpConnector, request: HttpRequest, after: Duration) {
    sleep(after).await;
    let operation = wire::operation_of(&request).to_owned();
    let answer = inner.call(request).await;
    let status = answer.map(|answer| answer.status().as_u16());
    tracing::debug!(operation, ?status, "a request landed late");
}

fn lost() -> ConnectorError {
    ConnectorError::io(io::Error::new(ErrorKind::ConnectionReset, "connection lost by the fault plan").into())
}

/// `amz-sdk-request: attempt=2; max=3`
fn attempt_of(request: &HttpRequest) -> u32 {
    let header = request.headers().get("amz-sdk-request").unwrap_or_default();
    let attempt = header.split(';').find_map(|part| part.trim().strip_prefix("attempt="));
    attempt.and_then(|number| number.parse().ok()).unwrap_or(1)
}
