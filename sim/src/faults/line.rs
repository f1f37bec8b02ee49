//! The network between one process, or the functions, and AWS.

use crate::faults::Spells;
use crate::faults::weather::{End, Fate, Service};
use crate::time::{EPOCH_MS, WorldClock};
use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture, SharedHttpConnector};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use leasehold_local::engine::wire::{self, Answers};
use serde_json::json;
use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// The header that says who sent a request.
pub const SENDER: &str = "x-sim-sender";

/// One way to DynamoDB or SQS. What must outlive its process runs in the world.
#[derive(Clone)]
pub struct Line {
    inner: SharedHttpConnector,
    answers: Answers,
    service: Service,
    weather: Spells,
    sender: Arc<str>,
    world: Handle,
    clock: WorldClock,
}

impl Line {
    /// The way of `sender` to what `inner` answers for.
    pub fn new(
        inner: impl HttpConnector + 'static,
        service: Service,
        weather: Spells,
        sender: &str,
        world: Handle,
        clock: WorldClock,
    ) -> Self {
        let inner = SharedHttpConnector::new(inner);
        let answers = Answers::new(Arc::new(clock.clone()));
        Self { inner, answers, service, weather, sender: sender.into(), world, clock }
    }

    async fn travel(self, request: HttpRequest, fate: Fate) -> Result<HttpResponse, ConnectorError> {
        if let End::Late(after_ms) = fate.end {
            let arrival = self.arrive_late(request, after_ms);
            drop(self.world.spawn(arrival));
            sleep(Duration::from_millis(fate.before_ms + fate.after_ms)).await;
            return Err(lost());
        }
        let request = self.under_way(request, fate).await;
        let answer = match fate.end {
            End::Nowhere => std::future::pending().await,
            End::Throttled => {
                let errors = wire::errors_of(&request);
                Ok(self.answers.error(400, errors, "ThrottlingException", "throttled by the simulation"))
            }
            End::ClaimsLost if is_claims(&request) => Ok(self.answers.json(200, as_if_sent(&request))),
            _ => self.arrive(request).await,
        };
        match fate.end {
            End::Mute => std::future::pending().await,
            End::Lost => return Err(lost()),
            _ => {}
        }
        sleep(Duration::from_millis(fate.after_ms)).await;
        answer.map(|answer| self.with_date_off(answer, fate.date_off_ms))
    }

    /// A request that is under way when its sender goes away arrives all the same, but for a receive: nobody is there to be answered.
    async fn under_way(&self, request: HttpRequest, fate: Fate) -> HttpRequest {
        let arrives = matches!(fate.end, End::Answered | End::Mute | End::Lost);
        let world = (arrives && wire::operation_of(&request) != "ReceiveMessage").then_some(self);
        let mut sent = UnderWay { line: world, request: Some(request) };
        sleep(Duration::from_millis(fate.before_ms)).await;
        sent.request.take().expect("it was put there above")
    }

    /// A long poll waits at the queue, in the world's time.
    async fn arrive(&self, request: HttpRequest) -> Result<HttpResponse, ConnectorError> {
        if wire::operation_of(&request) != "ReceiveMessage" {
            return self.inner.call(request).await;
        }
        let inner = self.inner.clone();
        let mut waiting = HungUp(self.world.spawn(async move { inner.call(request).await }));
        (&mut waiting.0).await.unwrap_or_else(|_| Err(lost()))
    }

    fn arrive_late(&self, request: HttpRequest, after_ms: u64) -> impl Future<Output = ()> + use<> {
        let inner = self.inner.clone();
        async move {
            sleep(Duration::from_millis(after_ms)).await;
            // Nobody waits for the answer.
            let _ = inner.call(request).await;
        }
    }

    fn with_date_off(&self, mut answer: HttpResponse, off_ms: i64) -> HttpResponse {
        if off_ms != 0 {
            let date =
                UNIX_EPOCH + Duration::from_millis((EPOCH_MS + self.clock.now_ms()).saturating_add_signed(off_ms));
            answer.headers_mut().insert("date", httpdate::fmt_http_date(date));
        }
        answer
    }
}

impl HttpConnector for Line {
    fn call(&self, mut request: HttpRequest) -> HttpConnectorFuture {
        request.headers_mut().insert(SENDER, self.sender.to_string());
        let fate = self.weather.fate(self.service, self.clock.now_ms());
        HttpConnectorFuture::new(self.clone().travel(request, fate))
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Line").field("sender", &self.sender).finish_non_exhaustive()
    }
}

/// A request between its sender and AWS.
struct UnderWay<'a> {
    /// Where it arrives without its sender, if it does.
    line: Option<&'a Line>,
    request: Option<HttpRequest>,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if let (Some(line), Some(request)) = (self.line, self.request.take()) {
            drop(line.world.spawn(line.arrive_late(request, 0)));
        }
    }
}

/// A caller that goes away takes its long poll with it.
struct HungUp(JoinHandle<Result<HttpResponse, ConnectorError>>);

impl Drop for HungUp {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn is_claims(request: &HttpRequest) -> bool {
    let queue = || wire::json_of(request)["QueueUrl"].as_str().is_some_and(|url| url.contains("claims"));
    wire::operation_of(request) == "SendMessageBatch" && queue()
}

/// The answer to a batch of messages all of which were sent.
fn as_if_sent(request: &HttpRequest) -> String {
    let body = wire::json_of(request);
    let entries = body["Entries"].as_array().into_iter().flatten();
    let sent = entries.map(|entry| json!({ "Id": entry["Id"], "MessageId": entry["Id"], "MD5OfMessageBody": "" }));
    json!({ "Successful": sent.collect::<Vec<_>>(), "Failed": [] }).to_string()
}

fn lost() -> ConnectorError {
    ConnectorError::io(io::Error::new(ErrorKind::ConnectionReset, "connection lost by the simulation").into())
}
