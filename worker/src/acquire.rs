//! The second part of [`Slot`] (`impl Slot`; the first is `slot.rs`): one acquire, sent until it is answered.

use crate::row_keeper::context_of_row;
use crate::slot::{Held, Slot};
use leasehold::aws::connections::{Observed, Status};
use leasehold::aws::queues::Received;
use leasehold::aws::{StoreError, Written};
use leasehold::decide::acquire::{Acquire, won_anyway};
use leasehold::model::{Connection, Item, ObservedState};
use std::time::Duration;
use tokio::time::sleep;

/// What an attempt to take a connection came to.
pub(crate) enum Taken {
    Yes(Box<Held>),
    No,
    /// Refused, and not applied: for a missing permission, or because the row would grow too large.
    Refused(StoreError),
    /// It may have been applied, now or later; a throttle may have met only the SDK's second attempt.
    Unclear(StoreError),
}

/// What a row says whose acquire DynamoDB refuses for good. Short: a row that is too large may have no room for more.
pub(crate) fn refusal(error: &StoreError) -> &'static str {
    // The message is "Item size to update has exceeded the maximum allowed size".
    if error.to_string().contains("size") { "too large to be acquired" } else { "cannot be acquired" }
}

/// How long an acquire without an answer is repeated before its claim is given back.
const ACQUIRE_MS: u64 = 6_000;
/// The longest wait between two of its attempts, in ms: a longer one could take more than all of them may.
const ACQUIRE_WAIT_MOST_MS: u64 = 1_000;
/// So often the back-off doubles: with its defaults that is the longest wait.
const ACQUIRE_DOUBLINGS: u32 = 1;

impl Slot {
    /// Acquires for a claim, which is deleted when the answer is certain.
    pub(crate) async fn take(
        &self,
        claim: Received,
        row: Option<&Connection>,
        acquire: &Acquire,
        decided_ms: u64,
    ) -> Option<Held> {
        match self.acquire(acquire, decided_ms).await {
            Taken::Yes(held) => {
                self.supervisor.delete(claim);
                Some(*held)
            }
            Taken::No => {
                self.supervisor.delete(claim);
                // Another's row is no business of ours; one that named this session may do so still.
                let mine = acquire.expected.owner.as_ref() == Some(&self.context.session);
                if mine { self.on_look_idle().await } else { None }
            }
            Taken::Refused(error @ StoreError::Invalid { .. }) => {
                // It would be refused again at once. Reconcile claims the row again, every half a minute at most.
                self.supervisor.delete(claim);
                self.cannot_be_acquired(row, refusal(&error), &error.to_string()).await;
                None
            }
            Taken::Refused(error) => {
                self.trouble(&error);
                self.give_back(claim, 5);
                None
            }
            Taken::Unclear(error) => {
                self.trouble(&error);
                self.give_back(claim, 5);
                // If it was applied, the row names this session, and nobody else may take it.
                self.pause(0).await;
                self.on_look_idle().await
            }
        }
    }

    /// Says the reason on the row, unless it is said already or there is no room for it either; `error` is for the log.
    pub(crate) async fn cannot_be_acquired(&self, row: Option<&Connection>, reason: &str, error: &str) {
        let context = &self.context;
        context.count("acquires_refused");
        tracing::error!(event = "acquire_refused", connection = %self.id, error, "its row has to be corrected, or made smaller");
        let Some(row) = row else { return };
        if row.reason.as_deref() == Some(reason) {
            return;
        }
        let (store, me) = (&context.parts.store, &context.session);
        let written = match (&row.lease.owner, row.lease.epoch) {
            (Some(owner), Some(epoch)) if owner == me => {
                let fault = Observed {
                    state: ObservedState::Parked,
                    reason: Some(reason.into()),
                    since_ms: context.stamp_ms(),
                };
                let status = Status { observed: Some(fault), progress: None };
                store.write_status(&self.id, me, epoch, &status, context.settings().rules).await
            }
            _ => store.write_fault(&self.id, reason, context.stamp_ms()).await,
        };
        if let Err(error) = written {
            tracing::warn!(event = "fault_not_written", connection = %self.id, %error, "the row itself does not say what is wrong");
        }
    }

    /// With an epoch that no other acquire of this process has.
    fn with_own_epoch(&self, acquire: &Acquire) -> Acquire {
        Acquire {
            epoch: self.context.parts.gauges.epoch_above_all(acquire.epoch, self.context.stamp_ms()),
            ..acquire.clone()
        }
    }

    /// Sends one acquire, decided at `decided_ms` (monotonic clock), until it is answered. The epoch stays the same, so that no repetition
    /// raises it twice; so does the expiry, where there is one.
    pub(crate) async fn acquire(&self, acquire: &Acquire, decided_ms: u64) -> Taken {
        let (context, acquire) = (&self.context, &self.with_own_epoch(acquire));
        let began_ms = context.parts.clock.mono_ms();
        let mut attempt = 0;
        let mut unclear = false;
        loop {
            if !context.guard.is_valid() {
                return if unclear { Taken::Unclear(lease_lost()) } else { Taken::Refused(lease_lost()) };
            }
            let answer = context.parts.store.acquire(&self.id, &context.session, acquire, context.stamp_ms()).await;
            let error = match answer {
                Ok(Written::Applied(item)) => return self.won(acquire, item, decided_ms),
                Ok(Written::Refused(found)) => return self.refused(acquire, found, decided_ms),
                Err(error) => error,
            };
            unclear = unclear || error.is_transient();
            if !unclear {
                return Taken::Refused(error);
            }
            let waited_ms = context.parts.clock.mono_ms().saturating_sub(began_ms);
            if !matches!(error, StoreError::Unknown { .. }) || waited_ms > ACQUIRE_MS {
                return Taken::Unclear(error);
            }
            let mut rng = context.parts.seeds.rng();
            // Cut off at the limit, most waits would be the limit, without jitter.
            let wait_ms = context.settings().backoff.wait_ms(attempt.min(ACQUIRE_DOUBLINGS), &mut rng);
            sleep(Duration::from_millis(wait_ms.clamp(20, ACQUIRE_WAIT_MOST_MS))).await;
            attempt += 1;
        }
    }

    fn won(&self, acquire: &Acquire, item: Item, decided_ms: u64) -> Taken {
        match Connection::from_item(&item) {
            Ok(row) => {
                self.context.count("acquires_won");
                let from = acquire.expected.owner.as_ref().map(ToString::to_string);
                tracing::info!(event = "acquired", connection = %self.id, epoch = acquire.epoch, from, "this session owns the connection");
                let context = context_of_row(&self.context, &self.id, acquire, decided_ms);
                Taken::Yes(Box::new(Held { context, row, item, epoch: acquire.epoch }))
            }
            Err(error) => {
                tracing::error!(event = "bad_row", connection = %self.id, %error, "the row was broken while it was taken");
                Taken::No
            }
        }
    }

    fn refused(&self, acquire: &Acquire, found: Option<Item>, decided_ms: u64) -> Taken {
        let row = found.as_ref().and_then(|item| Connection::from_item(item).ok());
        if won_anyway(acquire, &self.context.session, row.as_ref())
            && let Some(item) = found
        {
            self.context.count("acquires_won_without_answer");
            return self.won(acquire, item, decided_ms);
        }
        self.context.count("acquires_lost");
        tracing::debug!(event = "acquire_lost", connection = %self.id, "another session was quicker, or the row changed");
        Taken::No
    }
}

fn lease_lost() -> StoreError {
    StoreError::Unknown { service: "DynamoDB", message: "this session's lease is not valid now".into() }
}
