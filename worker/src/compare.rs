//! Every minute: what is held against what `by_owner` says; and within an hour each held row's spec.

use crate::context::Context;
use crate::supervisor::Supervisor;
use leasehold::model::ConnectionId;
use leasehold::model::hash::stable_hash;
use rand::RngExt;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// How long a comparison that failed waits for its repetition at most: a whole round would be too long.
const AGAIN_MS: u64 = 6_000;

/// Compares until the session stops or is lost.
pub async fn run(context: Arc<Context>, supervisor: Arc<Supervisor>) {
    tokio::select! {
        biased;
        () = context.stopped() => {}
        () = context.guard.over() => {}
        () = rounds(&context, &supervisor) => {}
    }
}

async fn rounds(context: &Context, supervisor: &Arc<Supervisor>) {
    let timing = context.settings().timing;
    let mut rng = context.parts.seeds.rng();
    let rounds_an_hour = (timing.sweep_ms / timing.compare_ms).max(1);
    for round in 0_u64.. {
        // A little sooner or later each time, so that a fleet that started together does not stay together; never later than promised.
        let wait_ms = rng.random_range(timing.compare_ms * 8 / 10..=timing.compare_ms);
        sleep(Duration::from_millis(wait_ms)).await;
        let mut ids = loop {
            context.guard.valid().await;
            match odd_ones(supervisor).await {
                Ok(ids) => break ids,
                Err(error) => {
                    context.count("comparisons_failed");
                    tracing::warn!(event = "comparison_failed", %error, "what is held cannot be compared now");
                }
            }
            sleep(Duration::from_millis(rng.random_range(AGAIN_MS / 2..=AGAIN_MS))).await;
        };
        context.parts.counters.add_many("comparison_differences", ids.len() as u64);
        let due = |id: &ConnectionId| stable_hash(id.as_str()) % rounds_an_hour == round % rounds_an_hour;
        ids.extend(supervisor.held().into_keys().filter(due));
        // Whatever was not looked at is odd in the next round too, or due within the hour.
        let _ = supervisor.look_at(ids).await;
    }
}

/// Connections that are held and not owned by the index, or the other way round, or under another epoch.
async fn odd_ones(supervisor: &Supervisor) -> Result<BTreeSet<ConnectionId>, leasehold::aws::StoreError> {
    let owned = supervisor.owned_by_index().await?;
    let held = supervisor.held();
    let mut odd = BTreeSet::new();
    for (id, epoch) in &held {
        if owned.get(id) != Some(&Some(*epoch)) {
            odd.insert(id.clone());
        }
    }
    odd.extend(owned.into_keys().filter(|id| !held.contains_key(id)));
    Ok(odd)
}
