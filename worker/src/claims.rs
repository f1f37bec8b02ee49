//! Takes claims while there is room.

use crate::context::Context;
use crate::supervisor::Supervisor;
use leasehold::decide::admission::{Room, claims_to_take, spread_ms};
use rand::RngExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::sleep;

/// How long one ReceiveMessage waits (the longest that SQS offers).
const LONG_POLL_S: i32 = 20;
/// How long to wait where there is no room.
const FULL_MS: u64 = 250;

/// Polls until the session stops or is lost.
pub async fn run(context: Arc<Context>, supervisor: Arc<Supervisor>) {
    tokio::select! {
        biased;
        () = context.stopped() => {}
        () = context.guard.over() => {}
        () = poll(&context, &supervisor) => {}
    }
}

async fn poll(context: &Context, supervisor: &Arc<Supervisor>) {
    let mut rng = context.parts.seeds.rng();
    let mut failures = 0;
    loop {
        context.guard.valid().await;
        let most = room(context, supervisor);
        if most == 0 {
            sleep(Duration::from_millis(FULL_MS + rng.random_range(0..FULL_MS))).await;
            continue;
        }
        match context.parts.claims.receive(most, LONG_POLL_S).await {
            Ok(received) => {
                failures = 0;
                let pace_ms = spread_ms(received.len() as u64);
                for message in received {
                    supervisor.claim(message);
                }
                sleep(Duration::from_millis(pace_ms)).await;
            }
            Err(error) => {
                context.count("claim_polls_failed");
                if failures == 0 || !error.is_transient() {
                    tracing::warn!(event = "claims_unreachable", %error, "no claims can be received now");
                }
                let wait_ms = context.settings().backoff.wait_ms(failures, &mut rng).max(100);
                failures = failures.saturating_add(1);
                sleep(Duration::from_millis(wait_ms)).await;
            }
        }
    }
}

/// How many claims to ask for now.
fn room(context: &Context, supervisor: &Supervisor) -> u64 {
    let gauges = &context.parts.gauges;
    let paused = gauges.pause_until_ms.load(Ordering::Relaxed) > context.parts.clock.mono_ms();
    if paused || gauges.draining.load(Ordering::Relaxed) {
        return 0;
    }
    let held = supervisor.len() as u64;
    claims_to_take(&Room {
        capacity: context.settings().capacity,
        held,
        acquiring: gauges.acquiring.load(Ordering::Relaxed),
        descriptors_left: descriptor_limit().saturating_sub(held),
        memory_left_bytes: memory_left(context.settings().memory_limit_bytes),
        loop_lag_ms: gauges.loop_lag_ms.load(Ordering::Relaxed),
    })
}

/// Descriptors that this process may have open.
fn descriptor_limit() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Bytes left below the limit; everything where there is none.
fn memory_left(limit_bytes: u64) -> u64 {
    if limit_bytes == 0 {
        return u64::MAX;
    }
    // The second field is the resident set in pages (proc(5)).
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|field| field.parse().ok()).unwrap_or(0);
    limit_bytes.saturating_sub(pages * rustix::param::page_size() as u64)
}
