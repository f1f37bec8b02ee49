//! Carrying out what was decided about rows.

use super::error::StoreError;
use super::queues::Queue;
use super::store::{Store, Written};
use super::together::together;
use crate::decide::desired::{Action, Plan};
use crate::decide::lease_time::Now;
use crate::model::{ConnectionId, SessionId};
use std::collections::{BTreeMap, HashMap};

/// What became of the plans.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Rows that their owners were asked to look at.
    pub marked: u64,
    /// Rows that were freed.
    pub reaped: u64,
    /// Rows that got their first epoch, or a time that is not too far ahead.
    pub stamped: u64,
    /// Rows that now say what is wrong with them.
    pub faults: u64,
    /// Claims that were sent.
    pub claimed: u64,
    /// Rows of which something could not be done, and why; what should have followed was left undone.
    pub failed: HashMap<ConnectionId, StoreError>,
}

/// Applies plans: all marks (one request an owner), then the writes to each row, then the claims. A write that is refused met a row
/// that has changed since it was read, which is somebody else's doing and brings its own event; that is no failure.
pub async fn apply(store: &Store, claims: &Queue, plans: &[Plan], now: Now) -> Applied {
    let mut applied = Applied::default();
    mark(store, plans, &mut applied).await;
    write(store, plans, now, &mut applied).await;
    claim(claims, plans, &mut applied).await;
    applied
}

async fn mark(store: &Store, plans: &[Plan], applied: &mut Applied) {
    let mut by_owner: BTreeMap<&SessionId, Vec<ConnectionId>> = BTreeMap::new();
    for plan in plans {
        for action in &plan.decision.actions {
            if let Action::Mark(owner) = action {
                tracing::info!(event = "mark", connection = %plan.id, owner = %owner, why = plan.decision.why);
                by_owner.entry(owner).or_default().push(plan.id.clone());
            }
        }
    }
    let mut requests = Vec::new();
    for (owner, ids) in by_owner {
        requests.push(async move {
            let outcome = store.mark(owner, &ids).await;
            (ids, outcome)
        });
    }
    for (ids, outcome) in together(requests).await {
        match outcome {
            Ok(()) => applied.marked += ids.len() as u64,
            Err(error) => applied.fail(ids, &error),
        }
    }
}

async fn write(store: &Store, plans: &[Plan], now: Now, applied: &mut Applied) {
    let mut requests = Vec::new();
    for plan in plans {
        if !applied.failed.contains_key(&plan.id) {
            requests.push(async move { (plan, write_row(store, plan, now).await) });
        }
    }
    for (plan, (done, outcome)) in together(requests).await {
        applied.reaped += done.reaped;
        applied.stamped += done.stamped;
        applied.faults += done.faults;
        if let Err(error) = outcome {
            applied.fail(vec![plan.id.clone()], &error);
        }
    }
}

async fn write_row(store: &Store, plan: &Plan, now: Now) -> (Applied, Result<(), StoreError>) {
    let (id, why) = (&plan.id, plan.decision.why);
    let mut done = Applied::default();
    for action in &plan.decision.actions {
        let (name, outcome, count) = match action {
            Action::Mark(_) | Action::Claim { .. } => continue,
            Action::Reap(expected) => ("reap", store.reap(id, expected, now.upper_ms).await, &mut done.reaped),
            Action::Stamp { free_at_ms } => ("stamp", store.stamp(id, *free_at_ms).await, &mut done.stamped),
            Action::Restamp { owner, epoch, expires_at_ms, free_at_ms } => {
                let outcome = store.restamp(id, owner.as_ref(), *epoch, *expires_at_ms, *free_at_ms).await;
                ("restamp", outcome, &mut done.stamped)
            }
            Action::WriteFault(fault) => {
                tracing::warn!(event = "bad_row", connection = %id, fault, "a row is not usable");
                ("write_fault", store.write_fault(id, fault, now.upper_ms).await, &mut done.faults)
            }
        };
        match outcome {
            Ok(Written::Applied(_)) => {
                *count += 1;
                tracing::info!(event = name, connection = %id, why);
            }
            Ok(Written::Refused(_)) => tracing::info!(event = "refused", action = name, connection = %id, why),
            Err(error) => return (done, Err(error)),
        }
    }
    (done, Ok(()))
}

async fn claim(claims: &Queue, plans: &[Plan], applied: &mut Applied) {
    let mut by_delay: BTreeMap<u64, Vec<ConnectionId>> = BTreeMap::new();
    for plan in plans.iter().filter(|plan| !applied.failed.contains_key(&plan.id)) {
        for action in &plan.decision.actions {
            if let Action::Claim { delay_ms } = action {
                tracing::info!(event = "claim", connection = %plan.id, delay_ms, why = plan.decision.why);
                by_delay.entry(delay_ms.div_ceil(1_000)).or_default().push(plan.id.clone());
            }
        }
    }
    for (delay_s, ids) in by_delay {
        match claims.send_claims(&ids, delay_s).await {
            Ok(()) => applied.claimed += ids.len() as u64,
            Err(error) => applied.fail(ids, &error),
        }
    }
}

impl Applied {
    fn fail(&mut self, ids: Vec<ConnectionId>, error: &StoreError) {
        for id in ids {
            tracing::warn!(event = "not_applied", connection = %id, %error, "left to a retry");
            self.failed.insert(id, error.clone());
        }
    }
}
