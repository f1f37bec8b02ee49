//! Keeps the lease of one row, where rows are leased by themselves (`LEASE_SCOPE=connection`): renews it every heartbeat, and hands on the
//! row that each renewal's answer is. Runs beside the slot on the keeper's runtime, where no socket can starve it.
//!
//! All that is different about holding a connection in this scope is here, and in [`Kept`]; what is decided is in
//! `leasehold::decide::scope`.

use crate::context::Context;
use crate::guard::Guard;
use crate::keeper::watch_deadline;
use crate::pace;
use leasehold::aws::Written;
use leasehold::decide::acquire::Acquire;
use leasehold::decide::scope::{RowRenewed, refused_row_renewal, row_expiry_ms};
use leasehold::model::{Connection, ConnectionId, Item};
use rand::rngs::StdRng;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// What holding a connection is trusted with: the session's lease, or where rows are leased by themselves, the row's as well. The acquire
/// was decided at `decided_ms` (monotonic clock), and so was the expiry that it wrote.
pub(crate) fn context_of_row(
    context: &Arc<Context>,
    id: &ConnectionId,
    acquire: &Acquire,
    decided_ms: u64,
) -> Arc<Context> {
    if acquire.expires_at_ms.is_none() {
        return context.clone();
    }
    let guard = Arc::new(Guard::of_row(context.guard.clone(), id.clone(), decided_ms));
    Arc::new(Context { guard, ..Context::clone(context) })
}

/// A row as a renewal's answer, or what was there instead of it, shows it; `None`: the row is gone.
pub(crate) type Seen = Option<Item>;

/// The renewals of a row's lease; they end when this is dropped.
pub(crate) struct Kept {
    /// The row after the last renewal.
    pub(crate) rows: watch::Receiver<Seen>,
    task: JoinHandle<()>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Begins to renew the row's lease, if it has one of its own.
pub(crate) fn start(context: &Arc<Context>, id: &ConnectionId, epoch: u64) -> Option<Kept> {
    if !context.guard.is_of_row() {
        return None;
    }
    let (seen, rows) = watch::channel(None);
    let keeper = RowKeeper { context: context.clone(), id: id.clone(), epoch, seen };
    Some(Kept { rows, task: context.parts.keeper_runtime.spawn(keeper.run()) })
}

/// How often a row's deadline is looked at, in ms, until it is near: there are hundreds of rows to a worker.
const DEADLINE_TICK_MS: u64 = 1_000;

struct RowKeeper {
    context: Arc<Context>,
    id: ConnectionId,
    epoch: u64,
    seen: watch::Sender<Seen>,
}

impl RowKeeper {
    async fn run(self) {
        let guard = self.context.guard.clone();
        let mut rng = self.context.parts.seeds.rng();
        tokio::select! {
            biased;
            () = guard.over() => {}
            () = self.renew_until_lost(&mut rng) => {}
            () = watch_deadline(&guard, DEADLINE_TICK_MS) => {}
        }
    }

    async fn renew_until_lost(&self, rng: &mut StdRng) {
        let (context, guard) = (&self.context, &self.context.guard);
        let heartbeat_ms = context.settings().timing.heartbeat_ms;
        let mut failures = 0_u32;
        let mut wait_ms = pace::first_ms(heartbeat_ms, guard.until_deadline_ms(), rng);
        loop {
            sleep(Duration::from_millis(wait_ms)).await;
            let sent_ms = context.parts.clock.mono_ms();
            wait_ms = match self.renew(sent_ms, failures).await {
                RowRenewed::Yes => {
                    failures = 0;
                    pace::next_ms(heartbeat_ms, context.parts.clock.mono_ms().saturating_sub(sent_ms))
                }
                RowRenewed::TryAgain => {
                    failures = failures.saturating_add(1);
                    pace::growing_ms(failures, heartbeat_ms, guard.until_deadline_ms(), rng)
                }
                // The socket is dropped at once. The slot hears from the row why.
                RowRenewed::Lost => return guard.end(),
            };
        }
    }

    /// Sends one renewal, after so many in a row that failed.
    async fn renew(&self, sent_ms: u64, failures: u32) -> RowRenewed {
        let (parts, timing, me) = (&self.context.parts, &self.context.settings().timing, &self.context.session);
        let Some(now) = parts.keeper_store.time().now() else { return RowRenewed::TryAgain };
        let Some(expires_at_ms) = row_expiry_ms(now, timing) else { return RowRenewed::TryAgain };
        let answer = parts.keeper_store.renew_row(&self.id, me, self.epoch, expires_at_ms).await;
        let (renewed, row) = match answer {
            Ok(Written::Applied(item)) => (RowRenewed::Yes, Some(item)),
            Ok(Written::Refused(found)) => {
                let row = found.as_ref().and_then(|item| Connection::from_item(item).ok());
                (refused_row_renewal(expires_at_ms, me, self.epoch, row.as_ref()), found)
            }
            Err(error) => {
                self.context.count("row_renewals_failed");
                // The first, and then each tenth.
                if failures.is_multiple_of(10) {
                    tracing::warn!(
                        event = "row_renewal_failed", connection = %self.id, %error, failures,
                        "trying again, more and more seldom"
                    );
                }
                return RowRenewed::TryAgain;
            }
        };
        if renewed == RowRenewed::Yes {
            self.context.count("row_renewals");
            self.context.guard.renewed(sent_ms);
        }
        self.seen.send_replace(row);
        renewed
    }
}
