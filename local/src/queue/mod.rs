//! SQS in this process, behind the AWS SDK: [`EmbeddedSqs`] speaks the SQS JSON protocol without a socket.
//!
//! - [`state`], [`standard`], [`fifo`], [`holding`], [`index`]: one queue, pure; time is an argument
//! - [`store`], [`move_tasks`]: all queues, dead letters and their way back
//! - [`attributes`], [`redrive_policy`], [`message`], [`limits`], [`digest`], [`error`]: what SQS accepts and says
//! - [`protocol`], [`dispatch`](self), [`queue_operations`]: requests and answers
//! - [`snapshot`]: how queues outlive the process
//!
//! Left out: permissions, encryption, throughput quotas, `ReceiveRequestAttemptId` (accepted, ignored), the fairness of
//! fair queues, and the rare duplicates and disorder of real standard queues: use the fault layer for those.

pub mod attributes;
mod batch;
pub mod digest;
mod dispatch;
pub mod error;
pub mod fifo;
pub mod holding;
pub mod index;
pub mod limits;
pub mod message;
mod message_operations;
pub mod move_tasks;
pub mod protocol;
pub mod queue_operations;
pub mod redrive_policy;
pub mod snapshot;
pub mod standard;
pub mod state;
pub mod store;

pub use limits::QueueLimits;
pub use snapshot::RestoreError;

use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use error::SqsError;
use leasehold::clock::SharedClock;
use message_operations::CheckedReceive;
use serde_json::{Value, json};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::Store;
use tokio::sync::Notify;

/// An in-memory SQS. Clones share the queues.
///
/// Nothing in it is random: ids count up, so the same calls at the same times give the same answers.
#[derive(Clone)]
pub struct EmbeddedSqs {
    clock: SharedClock,
    base_url: Arc<str>,
    store: Arc<Mutex<Store>>,
    requests: Arc<AtomicU64>,
}

impl EmbeddedSqs {
    /// No queues; times are this clock's wall time. Long polls wait by tokio's time, which must go at the clock's pace.
    #[must_use]
    pub fn new(clock: SharedClock) -> Self {
        Self {
            clock,
            base_url: "http://sqs.local".into(),
            store: Arc::new(Mutex::new(Store::new(QueueLimits::default()))),
            requests: Arc::default(),
        }
    }

    /// What URLs of queues start with. It matters to callers only: a queue is found by its URL's last path segment.
    #[must_use]
    pub fn with_base_url(mut self, base_url: &str) -> Self {
        self.base_url = base_url.into();
        self
    }

    /// How much each queue that is made from now on may hold.
    #[must_use]
    pub fn with_limits(self, limits: QueueLimits) -> Self {
        self.lock().limits = limits;
        self
    }

    /// The URL of the queue of this name, which need not exist.
    #[must_use]
    pub fn url_of(&self, name: &str) -> String {
        queue_operations::url_of(&self.base_url, name)
    }

    /// All queues with their messages and deduplication ids, for [`EmbeddedSqs::restore`].
    #[must_use]
    pub fn snapshot(&self) -> Value {
        snapshot::save(&self.lock()).expect("a snapshot has only texts as keys")
    }

    /// Replaces all queues by a snapshot's.
    ///
    /// # Errors
    /// [`RestoreError`]; the queues are then as they were.
    pub fn restore(&self, value: Value) -> Result<(), RestoreError> {
        let mut store = self.lock();
        let restored = snapshot::load(value, store.limits)?;
        for queue in store.queues.values() {
            queue.arrivals.notify_waiters();
        }
        *store = restored;
        Ok(())
    }

    /// Answers one request of the SQS JSON protocol. A receive can take as long as its long poll; dropping the future
    /// ends it without an effect.
    pub async fn answer(&self, target: Option<&str>, body: &[u8]) -> HttpResponse {
        let request_id = message_id(self.requests.fetch_add(1, Ordering::Relaxed) + 1);
        let outcome = self.run(target, body).await;
        protocol::response(outcome, self.clock.wall_ms(), &request_id)
    }

    async fn run(&self, target: Option<&str>, body: &[u8]) -> Result<Value, SqsError> {
        let body = if body.is_empty() { b"{}" } else { body };
        match protocol::operation(target)? {
            "ReceiveMessage" => self.receive(CheckedReceive::new(serde_json::from_slice(body)?)?).await,
            operation => dispatch::dispatch(&mut self.lock(), self.clock.wall_ms(), &self.base_url, operation, body),
        }
    }

    async fn receive(&self, receive: CheckedReceive) -> Result<Value, SqsError> {
        let started_ms = self.clock.wall_ms();
        let wait_s = match receive.wait_s {
            Some(wait_s) => wait_s,
            None => self.lock().queue_at(&receive.url)?.state.config.wait_s,
        };
        let deadline_ms = started_ms + wait_s * 1_000;
        loop {
            let arrivals = self.arrivals(&receive.url)?;
            let mut arrival = std::pin::pin!(arrivals.notified());
            // Before looking, so that what comes between looking and waiting wakes us.
            arrival.as_mut().enable();
            let now_ms = self.clock.wall_ms();
            let next_ms = {
                let mut store = self.lock();
                let messages = receive.take(&mut store, now_ms)?;
                if !messages.is_empty() {
                    return Ok(json!({"Messages": messages}));
                }
                store.next_change_ms(&receive.url)
            };
            if now_ms >= deadline_ms {
                return Ok(json!({}));
            }
            // At least a millisecond, so that a clock that stands still cannot make this spin.
            let sleep_ms = next_ms.unwrap_or(deadline_ms).min(deadline_ms).saturating_sub(now_ms).max(1);
            tokio::select! {
                biased;
                () = arrival => {}
                () = tokio::time::sleep(Duration::from_millis(sleep_ms)) => {}
            }
        }
    }

    fn arrivals(&self, url: &str) -> Result<Arc<Notify>, SqsError> {
        Ok(Arc::clone(&self.lock().queue_at(url)?.arrivals))
    }

    /// A panic elsewhere leaves the store usable: every change of it is complete before it can fail.
    fn lock(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for EmbeddedSqs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("EmbeddedSqs").field("base_url", &self.base_url).finish_non_exhaustive()
    }
}

impl HttpConnector for EmbeddedSqs {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let queues = self.clone();
        HttpConnectorFuture::new(async move {
            let target = request.headers().get("x-amz-target");
            Ok(queues.answer(target, request.body().bytes().unwrap_or_default()).await)
        })
    }
}

/// An id in the form of a UUID, made from a number.
fn message_id(number: u64) -> String {
    format!("{:08x}-0000-4000-8000-{:012x}", number >> 48, number & 0xffff_ffff_ffff)
}
