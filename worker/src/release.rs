//! The fifth part of [`Slot`] (`impl Slot`): gives a lease up, after its socket is closed.

use crate::hold::observed;
use crate::slot::Slot;
use leasehold::aws::Written;
use leasehold::aws::connections::Status;
use leasehold::decide::acquire::with_former_owner;
use leasehold::model::{Connection, Item, ObservedState};
use std::time::Duration;
use tokio::time::sleep;

impl Slot {
    /// Gives the lease up, after the socket is closed. Whoever gives a STARTED row up sends its claim.
    pub(crate) async fn release(&self, epoch: u64, row: &Connection, why: &str) {
        let context = &self.context;
        let owners = with_former_owner(&row.owners, &context.session, epoch, why);
        let observed = observed(context, ObservedState::Stopped, row.bad_wish());
        let status = Status { observed: Some(observed), progress: None };
        let mut attempt = 0;
        while context.guard.is_valid() {
            let rules = context.settings().rules;
            match context.parts.store.release(&self.id, &context.session, epoch, &status, &owners, rules).await {
                Ok(Written::Applied(item)) => {
                    context.count("releases");
                    tracing::info!(event = "released", connection = %self.id, epoch, why, "the connection is free");
                    return self.claim_if_free(&item).await;
                }
                // A release that finds us gone is done; if it was this one and its answer was lost, its claim is still to be sent.
                Ok(Written::Refused(found)) => {
                    if let Some(item) = found {
                        self.claim_if_free(&item).await;
                    }
                    return;
                }
                Err(error) if !error.is_transient() => return self.trouble(&error),
                Err(error) => {
                    self.trouble(&error);
                    let wait_ms = context.settings().backoff.wait_ms(attempt, &mut context.parts.seeds.rng());
                    attempt += 1;
                    sleep(Duration::from_millis(wait_ms.max(20))).await;
                }
            }
        }
    }

    /// A row that was started again while it was being released: START, STOP, START within a second.
    async fn claim_if_free(&self, item: &Item) {
        let wanted =
            Connection::from_item(item).is_ok_and(|row| row.desired_state.is_started() && row.lease.owner.is_none());
        if wanted && let Err(error) = self.context.parts.claims.send_claims(std::slice::from_ref(&self.id), 0).await {
            self.trouble(&error);
        }
    }
}
