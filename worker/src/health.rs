//! The health check: answered on the keeper's runtime, so that a saturated worker still answers.
//!
//! Healthy means that the process works. A store that is away does not make it unhealthy: a replacement would not reach it either.

use crate::context::Parts;
use crate::plain_http;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::TcpListener;

/// An event loop that did not run for so long is stuck.
const STUCK_MS: u64 = 30_000;
/// How long the check waits for an answer.
const CHECK_WITHIN: Duration = Duration::from_secs(4);

/// Answers health checks until dropped.
///
/// # Errors
/// When the listener fails.
pub async fn serve(listener: TcpListener, parts: Parts) -> io::Result<()> {
    let router = Router::new().route("/health", get(answer)).with_state(parts);
    axum::serve(listener, router).await
}

async fn answer(State(parts): State<Parts>) -> (StatusCode, Json<serde_json::Value>) {
    let gauges = &parts.gauges;
    let silent_ms = parts.clock.mono_ms().saturating_sub(gauges.loop_ran_ms.load(Ordering::Relaxed));
    let stuck = silent_ms > STUCK_MS;
    let status = if stuck { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    let body = serde_json::json!({
        "healthy": !stuck,
        "event_loop_silent_ms": silent_ms,
        "loop_lag_ms": gauges.loop_lag_ms.load(Ordering::Relaxed),
        "held": gauges.held.load(Ordering::Relaxed),
        "connected": gauges.connected.load(Ordering::Relaxed),
        "clock_skew_ms": parts.keeper_store.time().skew_ms(),
        "counters": parts.counters.snapshot(),
    });
    (status, Json(body))
}

/// Asks the worker at `addr`. Returns its answer's body.
///
/// # Errors
/// A sentence that says what is wrong: no answer, or an unhealthy one.
pub async fn check(addr: SocketAddr) -> Result<String, String> {
    match plain_http::get(&addr.to_string(), "/health", CHECK_WITHIN).await {
        Ok((200, body)) => Ok(body),
        Ok((_, body)) => Err(format!("unhealthy: {body}")),
        Err(error) => Err(format!("no worker answers at {addr}: {error} (is HEALTH_ADDR the worker's?)")),
    }
}
