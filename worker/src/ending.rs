//! The end of a session: at shutdown, when its lease is lost, or before it was used at all.

use crate::context::{Context, Parts};
use crate::supervisor::Supervisor;
use leasehold::aws::Written;
use leasehold::model::{ConnectionId, SessionId};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// The longest that the end of a session is tried at shutdown; then it is left to its expiry.
const END_WITHIN: Duration = Duration::from_secs(8);
/// The longest that the last claims are tried; reconcile finds what is left.
const CLAIMS_WITHIN: Duration = Duration::from_secs(8);
/// The longest that rows which are leased by themselves are released at shutdown.
const RELEASES_WITHIN: Duration = Duration::from_secs(4);
/// The longest that slots are waited for when a lease is lost: the slowest request takes 8 s.
const SLOTS_WITHIN: Duration = Duration::from_secs(10);
/// How long a registration may land after it was given up: requests of the lease path take 2 s at most.
const LANDS_WITHIN: Duration = Duration::from_secs(3);
/// The shortest wait between two attempts, so that a full jitter of zero does not spin.
const RETRY_LEAST_MS: u64 = 50;
/// The longest: one request a worker is no storm, and after an outage it takes part again only once its old session has ended.
const RETRY_MOST_MS: u64 = 3_000;

/// SIGTERM: close and flush side by side, end the session with one write, then send the claims of what was held.
pub(crate) async fn shut_down(context: &Context, supervisor: &Supervisor) {
    let within = Duration::from_millis(context.settings().shutdown_ms) + Duration::from_millis(200);
    let closing_since = Instant::now();
    while !supervisor.all_closed() && closing_since.elapsed() < within {
        sleep(Duration::from_millis(5)).await;
    }
    if context.settings().timing.scope.renews_rows() {
        // Sockets are closed; each row is released by itself, side by side. What takes longer expires.
        while !supervisor.is_empty() && closing_since.elapsed() < RELEASES_WITHIN {
            sleep(Duration::from_millis(5)).await;
        }
    }
    // Whatever is still open is dropped now: no socket may outlive the session's end.
    context.guard.end();
    let dropping_since = Instant::now();
    let open = || !supervisor.is_empty() || context.parts.gauges.connected.load(Ordering::Relaxed) > 0;
    while open() && dropping_since.elapsed() < within {
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
pub(crate) async fn start_over(context: &Context, supervisor: &Supervisor, why: &str) {
    // A renewal that comes through only now must not bring the session back half-way.
    context.guard.end();
    let since = Instant::now();
    while !supervisor.is_empty() && !context.is_stopping() && since.elapsed() < SLOTS_WITHIN {
        sleep(Duration::from_millis(20)).await;
    }
    let left = supervisor.len();
    if left > 0 {
        context.parts.counters.add_many("slots_left_behind", left as u64);
        tracing::warn!(event = "slots_left_behind", session = %context.session, left, "the session ends without them");
    }
    end_and_claim(context, &supervisor.given_up(), why).await;
}

async fn end_and_claim(context: &Context, held: &[ConnectionId], why: &str) {
    let ended = tokio::select! {
        biased;
        ended = end(&context.parts, &context.session, why) => Some(ended),
        () = end_given_up(context) => None,
    };
    match ended {
        Some(Written::Applied(_)) => {}
        Some(Written::Refused(_)) => {
            tracing::warn!(event = "session_not_ended", session = %context.session, "it was over already");
        }
        None => {
            tracing::error!(event = "session_not_ended", session = %context.session, "the store does not answer: it expires by itself");
            return;
        }
    }
    match timeout(CLAIMS_WITHIN, context.parts.claims.send_claims(held, 0)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::error!(event = "claims_not_sent", %error, "reconcile finds the connections"),
        Err(_) => {
            tracing::error!(event = "claims_not_sent", "the queue does not answer: reconcile finds the connections");
        }
    }
}

/// A shutdown does not wait for a store that is away; a worker that runs on has nothing better to do than to wait for it.
async fn end_given_up(context: &Context) {
    context.stopped().await;
    sleep(END_WITHIN).await;
}

/// Told to stop while the session was being registered: if that was applied, or is yet, the session is ended.
pub(crate) async fn end_unused(parts: &Parts, session: &SessionId) {
    let since = Instant::now();
    let ending = async {
        loop {
            match end(parts, session, "shut down before it was used").await {
                // Not there: its registration may still be under way.
                Written::Refused(None) if since.elapsed() < LANDS_WITHIN => sleep(Duration::from_millis(250)).await,
                _ => return,
            }
        }
    };
    if timeout(END_WITHIN, ending).await.is_err() {
        tracing::error!(event = "session_not_ended", %session, "the store does not answer: it expires by itself");
    }
}

/// Ends the session. Tried until it is answered.
async fn end(parts: &Parts, session: &SessionId, why: &str) -> Written {
    let mut rng = parts.seeds.rng();
    let mut attempt = 0_u32;
    loop {
        let error = match parts.store.end(session, why, parts.stamp_ms()).await {
            Ok(written) => return written,
            Err(error) => error,
        };
        parts.counters.add("ends_failed");
        // The first, and then each tenth.
        if attempt.is_multiple_of(10) {
            tracing::warn!(event = "end_retry", %session, %error, attempt, "the session cannot be ended now");
        }
        // What waiting hardly mends, such as a missing permission, is tried more and more seldom.
        let most_ms = if error.is_transient() { RETRY_MOST_MS } else { u64::MAX };
        let wait_ms = parts.settings.backoff.wait_ms(attempt, &mut rng).clamp(RETRY_LEAST_MS, most_ms);
        sleep(Duration::from_millis(wait_ms)).await;
        attempt = attempt.saturating_add(1);
    }
}
