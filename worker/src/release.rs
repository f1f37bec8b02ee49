//! The fifth part of [`Slot`] (`impl Slot`): gives a lease up, after its socket is closed.

use crate::context::Context;
use crate::hold::observed;
use crate::slot::Slot;
use leasehold::aws::Written;
use leasehold::aws::connections::Status;
use leasehold::decide::acquire::{Expected, with_former_owner};
use leasehold::model::{Connection, Item, ObservedState};
use std::time::Duration;
use tokio::time::sleep;

impl Slot {
    /// Gives the lease up, after the socket is closed, while `context` says that it is held. Returns the row as it was left: free, or
    /// another's; `None` where it is gone, or could not be released.
    pub(crate) async fn release(&self, context: &Context, epoch: u64, row: &Connection, why: &str) -> Option<Item> {
        let owners = with_former_owner(&row.owners, &context.session, epoch, why);
        // What is still wanted waits for its next owner.
        let state = if row.desired_state.is_started() { ObservedState::Pending } else { ObservedState::Stopped };
        let observed = observed(context, state, row.bad_wish());
        let status = Status { observed: Some(observed), progress: None };
        let mut attempt = 0;
        while context.guard.is_valid() {
            let rules = context.settings().rules;
            match context.parts.store.release(&self.id, &context.session, epoch, &status, &owners, rules).await {
                Ok(Written::Applied(item)) => {
                    context.count("releases");
                    tracing::info!(event = "released", connection = %self.id, epoch, why, "the connection is free");
                    return Some(item);
                }
                // A release that finds us gone is done; if it was this one and its answer was lost, its claim is still to be sent.
                Ok(Written::Refused(found)) => return found,
                Err(error) if !error.is_transient() => {
                    self.trouble(&error);
                    return None;
                }
                Err(error) => {
                    self.trouble(&error);
                    let wait_ms = context.settings().backoff.wait_ms(attempt, &mut context.parts.seeds.rng());
                    attempt += 1;
                    sleep(Duration::from_millis(wait_ms.max(20))).await;
                }
            }
        }
        None
    }

    /// A row that was stopped after its last renewal was released as one that waits for its next owner: nobody comes, so it is said here.
    pub(crate) async fn say_stopped(&self, released: Option<Item>) {
        let Some(row) = released.and_then(|item| Connection::from_item(&item).ok()) else { return };
        if row.desired_state.is_started() || row.lease.owner.is_some() || row.observed_state == ObservedState::Stopped {
            return;
        }
        let expected = Expected { owner: None, epoch: row.lease.epoch, expired_by_ms: None };
        if let Err(error) = self.context.parts.store.reap(&self.id, &expected, self.context.stamp_ms()).await {
            self.trouble(&error);
        }
    }

    /// Whoever gives a STARTED row up sends its claim: one that was started again while it was being released (START, STOP, START within
    /// a second).
    pub(crate) async fn claim_if_free(&self, released: Option<Item>) {
        let row = released.and_then(|item| Connection::from_item(&item).ok());
        let wanted = row.is_some_and(|row| row.desired_state.is_started() && row.lease.owner.is_none());
        if wanted && let Err(error) = self.context.parts.claims.send_claims(std::slice::from_ref(&self.id), 0).await {
            self.trouble(&error);
        }
    }
}
