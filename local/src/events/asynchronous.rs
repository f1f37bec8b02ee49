//! Asynchronous invocations: what EventBridge does with a schedule's and a rule's events.
//!
//! "How Lambda handles errors and retries with asynchronous invocation" (Lambda Developer Guide): an error of the function
//! is retried twice, after one and after two minutes; a throttle for up to six hours, after a second at first and five
//! minutes at most; then the event goes to the failure destination, or is dropped and counted.

use super::destination::{Destination, Request, asynchronous_message};
use super::function::{InvokeError, Invoker};
use super::{Stop, pause, random_id, stopped};
use leasehold::clock::SharedClock;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::Value;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Events that wait for a first or another attempt.
const MAX_WAITING: usize = 1_000;
/// Attempts that run side by side, those between two attempts included.
const MAX_UNDER_WAY: usize = 1_000;

/// `EventInvokeConfig` of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncSettings {
    /// `MaximumRetryAttempts`: 0 to 2.
    pub max_retries: u32,
    /// `MaximumEventAgeInSeconds`, in milliseconds.
    pub max_age_ms: u64,
}

impl Default for AsyncSettings {
    fn default() -> Self {
        Self { max_retries: 2, max_age_ms: 6 * 3_600_000 }
    }
}

/// Where an event stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempts {
    /// Errors of the function.
    pub errors: u32,
    /// Throttled attempts in a row.
    pub throttles: u32,
    /// Time since the event was sent, in milliseconds.
    pub age_ms: u64,
}

/// What comes after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another attempt after so many milliseconds.
    RetryAfterMs(u64),
    /// No more: the `condition` of the invocation record.
    GiveUp(&'static str),
}

/// Decides what comes after a failed attempt, which `attempts` counts already: PURE.
#[must_use]
pub fn after_failure(attempts: Attempts, settings: &AsyncSettings) -> Next {
    let delay_ms = if attempts.throttles > 0 {
        1_000_u64.saturating_mul(1 << attempts.throttles.saturating_sub(1).min(16)).min(300_000)
    } else if attempts.errors > settings.max_retries {
        return Next::GiveUp("RetriesExhausted");
    } else {
        u64::from(attempts.errors) * 60_000
    };
    if attempts.age_ms.saturating_add(delay_ms) > settings.max_age_ms {
        return Next::GiveUp("EventAgeExceeded");
    }
    Next::RetryAfterMs(delay_ms)
}

/// The queue is full: the event was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{MAX_WAITING} events wait already for the function: the event was not accepted")]
pub struct QueueFull;

/// A function's queue of asynchronous invocations; clones share it.
#[derive(Clone)]
pub struct AsyncInvoker {
    shared: Arc<Shared>,
    sender: mpsc::Sender<Value>,
    receiver: Arc<tokio::sync::Mutex<mpsc::Receiver<Value>>>,
}

struct Shared {
    invoker: Arc<Invoker>,
    settings: AsyncSettings,
    destination: Option<Destination>,
    clock: SharedClock,
    rng: Mutex<StdRng>,
    given_up: AtomicU64,
    destination_failures: AtomicU64,
}

impl AsyncInvoker {
    /// A queue in front of `invoker`. `seed` is for request ids.
    #[must_use]
    pub fn new(
        invoker: Arc<Invoker>,
        settings: AsyncSettings,
        destination: Option<Destination>,
        clock: SharedClock,
        seed: u64,
    ) -> Self {
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        let shared = Shared {
            invoker,
            settings,
            destination,
            clock,
            rng: Mutex::new(StdRng::seed_from_u64(seed)),
            given_up: AtomicU64::new(0),
            destination_failures: AtomicU64::new(0),
        };
        Self { shared: Arc::new(shared), sender, receiver: Arc::new(tokio::sync::Mutex::new(receiver)) }
    }

    /// Sends an event without waiting for its invocation.
    ///
    /// # Errors
    /// [`QueueFull`] if too many wait already (nothing runs the queue, or the function is far too slow).
    pub fn send(&self, event: Value) -> Result<(), QueueFull> {
        self.sender.try_send(event).map_err(|_| QueueFull)
    }

    /// Events that were given up so far.
    #[must_use]
    pub fn given_up(&self) -> u64 {
        self.shared.given_up.load(Ordering::Relaxed)
    }

    /// Events that were given up and that the failure destination did not take.
    #[must_use]
    pub fn destination_failures(&self) -> u64 {
        self.shared.destination_failures.load(Ordering::Relaxed)
    }

    /// Invokes until `stop`. Running invocations are awaited then; events between two attempts are lost, as in a crash.
    pub async fn run(&self, mut stop: Stop) {
        let mut under_way = JoinSet::new();
        let mut receiver = self.receiver.lock().await;
        loop {
            let accepts = under_way.len() < MAX_UNDER_WAY;
            tokio::select! {
                biased;
                () = stopped(&mut stop) => break,
                Some(event) = receiver.recv(), if accepts => {
                    under_way.spawn(Arc::clone(&self.shared).deliver(event, stop.clone()));
                }
                Some(_) = under_way.join_next() => {}
            }
        }
        while under_way.join_next().await.is_some() {}
    }
}

impl Shared {
    async fn deliver(self: Arc<Self>, event: Value, mut stop: Stop) {
        let sent_ms = self.clock.mono_ms();
        let mut attempts = Attempts::default();
        let mut invocations = 0;
        loop {
            let Err(error) = self.invoker.invoke(event.clone()).await else { return };
            if error == InvokeError::Throttled {
                attempts.throttles += 1;
            } else {
                invocations += 1;
                attempts = Attempts { errors: attempts.errors + 1, throttles: 0, ..attempts };
            }
            attempts.age_ms = self.clock.mono_ms().saturating_sub(sent_ms);
            match after_failure(attempts, &self.settings) {
                Next::RetryAfterMs(delay_ms) => {
                    if !pause(delay_ms, &mut stop).await {
                        return;
                    }
                }
                Next::GiveUp(condition) => return self.give_up(condition, invocations, &event, &error).await,
            }
        }
    }

    async fn give_up(&self, condition: &'static str, invocations: u32, event: &Value, error: &InvokeError) {
        self.given_up.fetch_add(1, Ordering::Relaxed);
        tracing::error!(condition, invocations, %error, "an asynchronous invocation is given up");
        let Some(destination) = &self.destination else { return };
        let id = random_id(&mut *self.rng.lock().unwrap_or_else(PoisonError::into_inner));
        let function_arn = self.invoker.function_arn();
        let request = Request { id: &id, function_arn: &function_arn, now_ms: self.clock.wall_ms() };
        if !destination.send(&asynchronous_message(request, condition, invocations, event, error)).await {
            self.destination_failures.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: AsyncSettings = AsyncSettings { max_retries: 2, max_age_ms: 21_600_000 };

    // "two more times, with a one-minute wait between the first two attempts, and two minutes between the second and third"
    #[test]
    fn an_error_is_retried_after_one_and_after_two_minutes() {
        let after = |errors| after_failure(Attempts { errors, ..Attempts::default() }, &SETTINGS);
        assert_eq!(after(1), Next::RetryAfterMs(60_000));
        assert_eq!(after(2), Next::RetryAfterMs(120_000));
        assert_eq!(after(3), Next::GiveUp("RetriesExhausted"));
    }

    // "increases exponentially from 1 second after the first attempt to a maximum of 5 minutes ... for up to 6 hours"
    #[test]
    fn a_throttle_is_retried_for_six_hours() {
        let after = |throttles, age_ms| after_failure(Attempts { throttles, age_ms, errors: 0 }, &SETTINGS);
        assert_eq!(after(1, 0), Next::RetryAfterMs(1_000));
        assert_eq!(after(2, 0), Next::RetryAfterMs(2_000));
        assert_eq!(after(1_000, 0), Next::RetryAfterMs(300_000));
        assert_eq!(after(1_000, 21_300_000), Next::RetryAfterMs(300_000));
        assert_eq!(after(1_000, 21_300_001), Next::GiveUp("EventAgeExceeded"));
    }
}
