//! A function and its invoker.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;

/// A Lambda function: what a handler looks like from outside.
pub trait Function: Send + Sync {
    /// The function's name, as in its ARN.
    fn name(&self) -> &str;

    /// Handles one event. `remaining_ms` is what the Lambda context would say is left of the time-out.
    /// An error is the message of a function error. The future may be dropped at any `await`: the function died half-way.
    fn invoke(&self, event: Value, remaining_ms: u64) -> BoxFuture<'_, Result<Value, String>>;
}

/// How an invocation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvokeError {
    /// The function said so, or panicked.
    #[error("the function failed: {0}")]
    Function(String),
    /// The function was dropped at its time-out: a function error as well.
    #[error("Task timed out after {:.2} seconds", *.timeout_ms as f64 / 1_000.0)]
    TimedOut {
        /// The function's time-out.
        timeout_ms: u64,
    },
    /// Maximum concurrency is reached: the function was not invoked (429 of the Lambda API).
    #[error("the function is at its maximum concurrency")]
    Throttled,
}

impl InvokeError {
    /// Whether the function ran and failed, which is what retry quotas count.
    #[must_use]
    pub fn is_function_error(&self) -> bool {
        !matches!(self, Self::Throttled)
    }

    /// The answer that Lambda gives in place of the function's.
    #[must_use]
    pub fn payload(&self) -> Value {
        match self {
            Self::Function(message) => json!({"errorMessage": message, "errorType": "Error"}),
            Self::TimedOut { .. } => json!({"errorMessage": self.to_string()}),
            Self::Throttled => json!({"errorMessage": "Rate Exceeded."}),
        }
    }
}

/// How often a function was invoked, and how that ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InvokeCounts {
    /// Invocations that ran.
    pub invocations: u64,
    /// Of these, errors of the function, time-outs included.
    pub errors: u64,
    /// Of these, time-outs.
    pub timeouts: u64,
    /// Invocations refused at maximum concurrency: not part of `invocations`.
    pub throttles: u64,
}

/// Runs a function as Lambda does: with its time-out, at most so many side by side, counted.
pub struct Invoker {
    function: Arc<dyn Function>,
    timeout_ms: u64,
    permits: Option<Semaphore>,
    invocations: AtomicU64,
    errors: AtomicU64,
    timeouts: AtomicU64,
    throttles: AtomicU64,
}

impl Invoker {
    /// An invoker with the function's time-out in milliseconds and no limit of concurrency.
    #[must_use]
    pub fn new(function: Arc<dyn Function>, timeout_ms: u64) -> Self {
        Self {
            function,
            timeout_ms,
            permits: None,
            invocations: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
            throttles: AtomicU64::new(0),
        }
    }

    /// With a reserved concurrency: invocations above it are throttled.
    #[must_use]
    pub fn with_max_concurrency(mut self, at_most: usize) -> Self {
        self.permits = Some(Semaphore::new(at_most));
        self
    }

    /// The function's ARN, with the account of local runs.
    #[must_use]
    pub fn function_arn(&self) -> String {
        format!("arn:aws:lambda:us-east-1:000000000000:function:{}", self.function.name())
    }

    /// Invokes the function and waits for its answer.
    ///
    /// # Errors
    /// The function's own error, its time-out, or a throttle.
    pub async fn invoke(&self, event: Value) -> Result<Value, InvokeError> {
        let _permit = match &self.permits {
            None => None,
            Some(permits) => match permits.try_acquire() {
                Ok(permit) => Some(permit),
                Err(_) => {
                    self.throttles.fetch_add(1, Ordering::Relaxed);
                    return Err(InvokeError::Throttled);
                }
            },
        };
        self.invocations.fetch_add(1, Ordering::Relaxed);
        let outcome = self.run(event).await;
        if let Err(error) = &outcome {
            self.errors.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(function = self.function.name(), %error, "invocation failed");
        }
        outcome
    }

    async fn run(&self, event: Value) -> Result<Value, InvokeError> {
        // A panic ends the function's process on AWS, not the event source.
        let running = AssertUnwindSafe(self.function.invoke(event, self.timeout_ms)).catch_unwind();
        match tokio::time::timeout(Duration::from_millis(self.timeout_ms), running).await {
            Ok(Ok(answer)) => answer.map_err(InvokeError::Function),
            Ok(Err(_panic)) => Err(InvokeError::Function("the function panicked".to_owned())),
            Err(_elapsed) => {
                self.timeouts.fetch_add(1, Ordering::Relaxed);
                Err(InvokeError::TimedOut { timeout_ms: self.timeout_ms })
            }
        }
    }

    /// What was counted so far.
    #[must_use]
    pub fn counts(&self) -> InvokeCounts {
        InvokeCounts {
            invocations: self.invocations.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
            timeouts: self.timeouts.load(Ordering::Relaxed),
            throttles: self.throttles.load(Ordering::Relaxed),
        }
    }
}
