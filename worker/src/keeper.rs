//! Keeps one session: registers it, renews it, reads its marks, ends it. Runs on a runtime of its own, where no socket can starve it.

use crate::context::Parts;
use crate::guard::Guard;
use crate::pace;
use leasehold::aws::sessions::{Identity, Load};
use leasehold::aws::{Store, StoreError, Written};
use leasehold::decide::lease_time::Now;
use leasehold::decide::renewal::{Renewed, refused_renewal};
use leasehold::model::session::attr;
use leasehold::model::{Item, Marks, Session, SessionId, fields};
use rand::rngs::StdRng;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::sleep;

/// How often a session's deadline is looked at, in ms.
pub(crate) const DEADLINE_TICK_MS: u64 = 100;
/// The longest wait between two attempts to register: one request a worker is no storm.
const REGISTER_RETRY_MOST_MS: u64 = 3_000;

/// Registers a session. Returns when the registration that counts was sent (monotonic clock, ms): the lease begins before it. `sent`
/// turns true before the first one is: from then on it may be applied.
///
/// # Errors
/// The last [`StoreError`] that waiting does not mend.
pub async fn register(parts: &Parts, id: &SessionId, sent: &AtomicBool) -> Result<u64, StoreError> {
    let identity =
        Identity { task_arn: parts.settings.task_arn.clone(), version: env!("CARGO_PKG_VERSION").to_owned() };
    let load = load(parts);
    let mut rng = parts.seeds.rng();
    let mut attempt = 0;
    // A registration without an answer may have landed: from then on the lease runs, whatever the next attempt says.
    let mut first_sent_ms = None;
    loop {
        let sent_ms = parts.clock.mono_ms();
        let error = match lease_time(&parts.keeper_store, id).await {
            Ok(now) => {
                let sent_ms = *first_sent_ms.get_or_insert(sent_ms);
                let expires_at_ms = now.upper_ms + parts.settings.timing.lease_ms;
                sent.store(true, Ordering::Release);
                let answer = parts.keeper_store.register(id, &identity, &load, now.upper_ms, expires_at_ms).await;
                match answer {
                    Ok(_) => return Ok(sent_ms),
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        if !error.is_transient() {
            return Err(error);
        }
        tracing::warn!(event = "register_retry", session = %id, %error, "the session cannot be registered now");
        sleep(Duration::from_millis(
            parts.settings.backoff.wait_ms(attempt, &mut rng).clamp(100, REGISTER_RETRY_MOST_MS),
        ))
        .await;
        attempt += 1;
    }
}

/// Lease time; asked for with a read where no answer has told it yet.
async fn lease_time(store: &Store, id: &SessionId) -> Result<Now, StoreError> {
    if let Some(now) = store.time().now() {
        return Ok(now);
    }
    store.session(id).await?;
    store.time().now().ok_or_else(|| StoreError::Invalid {
        service: "DynamoDB",
        message: "its answers carry no Date header, so lease time is unknown (is the endpoint DynamoDB?)".into(),
    })
}

/// What a renewal says of the worker.
fn load(parts: &Parts) -> Load {
    let gauge = |gauge: &std::sync::atomic::AtomicU64| gauge.load(Ordering::Relaxed);
    Load {
        capacity: parts.settings.capacity,
        held: gauge(&parts.gauges.held),
        connected: gauge(&parts.gauges.connected),
        loop_lag_ms: gauge(&parts.gauges.loop_lag_ms),
        clock_skew_ms: parts.keeper_store.time().skew_ms(),
        counters: parts.counters.snapshot(),
    }
}

/// Renews one session.
pub struct Keeper {
    /// The process.
    pub parts: Parts,
    /// The session.
    pub session: SessionId,
    /// Its lease.
    pub guard: Arc<Guard>,
    /// Where marks go; one set is acted on at a time, and those that come meanwhile are read again.
    pub marks: mpsc::Sender<Marks>,
}

impl Keeper {
    /// Renews until the session is over, or the future is dropped.
    pub async fn run(self) {
        let guard = self.guard.clone();
        let mut rng = self.parts.seeds.rng();
        tokio::select! {
            biased;
            () = guard.over() => {}
            () = self.renew_for_ever(&mut rng) => {}
            () = watch_deadline(&guard, DEADLINE_TICK_MS) => {}
        }
    }

    async fn renew_for_ever(&self, rng: &mut StdRng) {
        let heartbeat_ms = self.parts.settings.timing.heartbeat_ms;
        let mut wait_ms = heartbeat_ms;
        // Every attempt carries a higher number than all before it, so that none that lands late can move the lease back.
        for heartbeat in 1.. {
            sleep(Duration::from_millis(wait_ms)).await;
            let sent_ms = self.parts.clock.mono_ms();
            wait_ms = match self.renew(heartbeat, sent_ms).await {
                Ok(Renewed::Yes) => pace::next_ms(heartbeat_ms, self.parts.clock.mono_ms().saturating_sub(sent_ms)),
                Ok(Renewed::TryAgain) => pace::soon_ms(rng),
                Err(error) if error.is_transient() => pace::soon_ms(rng),
                Err(_) => pace::patient_ms(heartbeat_ms, self.guard.until_deadline_ms(), rng),
                Ok(Renewed::Over(why)) => {
                    self.parts.counters.add("sessions_lost");
                    tracing::error!(event = "session_over", session = %self.session, why, "this session is over: its sockets are dropped");
                    return self.guard.end();
                }
            };
        }
    }

    async fn renew(&self, heartbeat: u64, sent_ms: u64) -> Result<Renewed, StoreError> {
        let store = &self.parts.keeper_store;
        let Some(now) = store.time().now() else { return Ok(Renewed::TryAgain) };
        let expires_at_ms = now.upper_ms + self.parts.settings.timing.lease_ms;
        let answer = store.renew(&self.session, heartbeat, expires_at_ms, &load(&self.parts)).await;
        let renewed = match answer {
            Ok(Written::Applied(item)) => {
                self.heed(&item);
                Renewed::Yes
            }
            Ok(Written::Refused(found)) => refused(heartbeat, found.as_ref()),
            Err(error) => {
                self.parts.counters.add("renewals_failed");
                tracing::warn!(event = "renewal_failed", session = %self.session, %error, "trying again until the deadline");
                return Err(error);
            }
        };
        if renewed == Renewed::Yes {
            self.parts.counters.add("renewals");
            self.guard.renewed(sent_ms);
            self.read_marks().await;
        }
        Ok(renewed)
    }

    /// A session that drains takes no more claims.
    fn heed(&self, item: &Item) {
        let drain = fields::flag(item, attr::DRAIN).unwrap_or(false);
        self.parts.gauges.draining.store(drain, Ordering::Relaxed);
    }

    async fn read_marks(&self) {
        match self.parts.keeper_store.marks(&self.session).await {
            Ok(marks) if marks.is_empty() => {}
            Ok(marks) => {
                if self.marks.try_send(marks).is_err() {
                    self.parts.counters.add("marks_waiting");
                }
            }
            Err(error) => {
                tracing::warn!(event = "marks_unread", session = %self.session, %error, "read again with the next renewal")
            }
        }
    }
}

/// A refused renewal, judged by what was found; a row that cannot be read is no session that we could keep.
fn refused(heartbeat: u64, found: Option<&Item>) -> Renewed {
    match found.map(Session::from_item) {
        None => refused_renewal(heartbeat, None),
        Some(Ok(session)) => refused_renewal(heartbeat, Some(&session)),
        Some(Err(error)) => Renewed::Over(format!("the session's row cannot be read: {error}")),
    }
}

/// Looks at the deadline for ever, at least every `most_ms`, so that whoever waits for a change of the lease's trust hears of it in time.
pub async fn watch_deadline(guard: &Guard, most_ms: u64) {
    loop {
        guard.refresh();
        let tick_ms = guard.until_deadline_ms().clamp(DEADLINE_TICK_MS, most_ms.max(DEADLINE_TICK_MS));
        sleep(Duration::from_millis(tick_ms)).await;
    }
}
