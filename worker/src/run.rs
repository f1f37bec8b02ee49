//! Sessions, one after the other, until the worker is told to stop.

use crate::context::{Context, Parts};
use crate::guard::Guard;
use crate::keeper::{self, Keeper};
use crate::supervisor::Supervisor;
use crate::{claims, compare};
use leasehold::aws::StoreError;
use leasehold::model::{ConnectionId, Marks, SessionId};
use rand::RngExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};

/// The longest that the end of a session is tried at shutdown; then it is left to its expiry.
const END_WITHIN: Duration = Duration::from_secs(8);
/// The longest that the last claims are tried; reconcile finds what is left.
const CLAIMS_WITHIN: Duration = Duration::from_secs(8);

/// Why a session's run ended.
enum Ended {
    Stopped,
    Lost,
}

/// Runs until `stop` turns true.
///
/// # Errors
/// [`StoreError`] when the first session cannot be registered for a reason that waiting does not mend: a missing table, no credentials.
pub async fn run(parts: Parts, stop: watch::Receiver<bool>) -> Result<(), StoreError> {
    let lag = tokio::spawn(measure_loop(parts.clone()));
    let mut first = true;
    let result = loop {
        match one_session(&parts, stop.clone(), first).await {
            Ok(Ended::Stopped) => break Ok(()),
            Ok(Ended::Lost) => first = false,
            Err(error) => break Err(error),
        }
    };
    lag.abort();
    result
}

async fn one_session(parts: &Parts, stop: watch::Receiver<bool>, first: bool) -> Result<Ended, StoreError> {
    let session = new_session_id(parts);
    let Some(registered_ms) = register(parts, &session, stop.clone(), first).await? else { return Ok(Ended::Stopped) };
    tracing::info!(event = "session_started", %session, capacity = parts.settings.capacity, "registered");
    parts.gauges.draining.store(false, Ordering::Relaxed);
    let settings = &parts.settings;
    let guard =
        Guard::new(parts.clock.clone(), settings.timing, settings.rules, settings.on_store_outage, registered_ms);
    let guard = Arc::new(guard);
    let context = Arc::new(Context { parts: parts.clone(), session, guard, stopping: stop });
    let supervisor = Supervisor::new(context.clone());
    let (marks_sender, marks) = mpsc::channel(1);
    let keeper = Keeper {
        parts: parts.clone(),
        session: context.session.clone(),
        guard: context.guard.clone(),
        marks: marks_sender,
    };
    let keeper = parts.keeper_runtime.spawn(keeper.run());
    let work = [
        tokio::spawn(claims::run(context.clone(), supervisor.clone())),
        tokio::spawn(compare::run(context.clone(), supervisor.clone())),
        tokio::spawn(converge(context.clone(), supervisor.clone(), marks)),
    ];
    let ended = tokio::select! {
        () = context.guard.over() => Ended::Lost,
        () = context.stopped() => Ended::Stopped,
    };
    match ended {
        Ended::Stopped => shut_down(&context, &supervisor).await,
        Ended::Lost => start_over(&context, &supervisor).await,
    }
    keeper.abort();
    for task in work {
        task.abort();
    }
    Ok(ended)
}

/// `None`: told to stop before it was registered.
async fn register(
    parts: &Parts,
    session: &SessionId,
    mut stop: watch::Receiver<bool>,
    first: bool,
) -> Result<Option<u64>, StoreError> {
    loop {
        // Registered on the keeper's runtime, where its client's connections are to live.
        let (owned, id) = (parts.clone(), session.clone());
        let registering = parts.keeper_runtime.spawn(async move { keeper::register(&owned, &id).await });
        let registered = tokio::select! {
            registered = registering => registered,
            _ = stop.wait_for(|stop| *stop) => return Ok(None),
        };
        match registered {
            Ok(Ok(sent_ms)) => return Ok(Some(sent_ms)),
            Ok(Err(error)) if first => return Err(error),
            Ok(Err(error)) => tracing::error!(event = "register_failed", %error, "trying again"),
            Err(error) => tracing::error!(event = "register_failed", %error, "trying again"),
        }
        let wait_ms = parts.settings.backoff.wait_ms(4, &mut parts.seeds.rng());
        sleep(Duration::from_millis(wait_ms.max(500))).await;
    }
}

/// A UUIDv7 (RFC 9562, section 5.7) of the process's own clock and generator.
fn new_session_id(parts: &Parts) -> SessionId {
    let random: [u8; 10] = parts.seeds.rng().random();
    let uuid = uuid::Builder::from_unix_timestamp_millis(parts.clock.wall_ms(), &random).into_uuid();
    SessionId::new(uuid.to_string())
}

/// Acts on marks, then removes them if nothing was added meanwhile.
async fn converge(context: Arc<Context>, supervisor: Arc<Supervisor>, mut marks: mpsc::Receiver<Marks>) {
    while let Some(read) = marks.recv().await {
        context.count("marks_read");
        let acted = supervisor.converge(&read).await;
        let removed = match acted {
            Ok(true) => context.parts.store.remove_marks(&context.session, read.version).await.map(|_| ()),
            Ok(false) => {
                tracing::debug!(
                    event = "marks_kept",
                    "a connection is busy: the marks are acted on again with the next renewal"
                );
                Ok(())
            }
            Err(error) => Err(error),
        };
        if let Err(error) = removed {
            tracing::warn!(event = "marks_kept", %error, "the marks are acted on again with the next renewal");
        }
    }
}

/// SIGTERM: close and flush side by side, end the session with one write, then send the claims of what was held.
async fn shut_down(context: &Context, supervisor: &Supervisor) {
    let within = Duration::from_millis(context.settings().shutdown_ms) + Duration::from_millis(200);
    let closing_since = Instant::now();
    while !supervisor.all_closed() && closing_since.elapsed() < within {
        sleep(Duration::from_millis(5)).await;
    }
    // Whatever is still open is dropped now: no socket may outlive the session's end.
    context.guard.end();
    let open = || !supervisor.is_empty() || context.parts.gauges.connected.load(Ordering::Relaxed) > 0;
    while open() && closing_since.elapsed() < within * 2 {
        sleep(Duration::from_millis(5)).await;
    }
    let held = supervisor.given_up();
    end_and_claim(context, &held, "shut down").await;
    tracing::info!(
        event = "session_ended", session = %context.session, held = held.len(), ms = closing_since.elapsed().as_millis() as u64,
        "closed, ended, claims sent"
    );
}

/// The lease is lost: sockets are dropped already. The old session is ended before a new one begins.
async fn start_over(context: &Context, supervisor: &Supervisor) {
    // A renewal that comes through only now must not bring the session back half-way.
    context.guard.end();
    while !supervisor.is_empty() && !context.is_stopping() {
        sleep(Duration::from_millis(20)).await;
    }
    end_and_claim(context, &supervisor.given_up(), "lease lost").await;
}

async fn end_and_claim(context: &Context, held: &[ConnectionId], why: &str) {
    let ended = tokio::select! {
        ended = end(context, why) => Some(ended),
        () = end_given_up(context) => None,
    };
    match ended {
        Some(true) => {}
        Some(false) => tracing::warn!(event = "session_not_ended", session = %context.session, "it was over already"),
        None => {
            tracing::error!(event = "session_not_ended", session = %context.session, "the store does not answer: it expires by itself");
            return;
        }
    }
    match timeout(CLAIMS_WITHIN, context.parts.claims.send_claims(held, 0)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::error!(event = "claims_not_sent", %error, "reconcile finds the connections"),
        Err(_) => {
            tracing::error!(event = "claims_not_sent", "the queue does not answer: reconcile finds the connections")
        }
    }
}

/// A shutdown does not wait for a store that is away; a worker that runs on has nothing better to do than to wait for it.
async fn end_given_up(context: &Context) {
    context.stopped().await;
    sleep(END_WITHIN).await;
}

/// Ends the session; false when it was over already. Tried until it is answered.
async fn end(context: &Context, why: &str) -> bool {
    loop {
        match context.parts.store.end(&context.session, why, context.stamp_ms()).await {
            Ok(written) => return written.is_applied(),
            Err(error) => {
                tracing::warn!(event = "end_retry", session = %context.session, %error);
                sleep(Duration::from_millis(context.parts.seeds.rng().random_range(50..=300))).await;
            }
        }
    }
}

/// Measures how late the event loop runs its timers.
async fn measure_loop(parts: Parts) {
    const EVERY_MS: u64 = 100;
    let mut recent = [0_u64; 10];
    for round in 0.. {
        let before_ms = parts.clock.mono_ms();
        sleep(Duration::from_millis(EVERY_MS)).await;
        let now_ms = parts.clock.mono_ms();
        recent[round % recent.len()] = now_ms.saturating_sub(before_ms).saturating_sub(EVERY_MS);
        let worst = recent.iter().copied().max().unwrap_or(0);
        parts.gauges.loop_lag_ms.store(worst, Ordering::Relaxed);
        parts.gauges.loop_ran_ms.store(now_ms, Ordering::Relaxed);
    }
}
