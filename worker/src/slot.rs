//! One connection of this worker: takes it, holds it, looks at it again, gives it up. One request at a time.
//!
//! This is the first part of [`Slot`], its life and what it does while it holds nothing. The others (`impl Slot` too): acquiring is in
//! `acquire.rs`, holding in `hold.rs` and `watch.rs`, releasing in `release.rs`.

use crate::acquire::{Taken, refusal};
use crate::context::Context;
use crate::counters::Counted;
use crate::supervisor::Supervisor;
use leasehold::aws::StoreError;
use leasehold::aws::queues::Received;
use leasehold::decide::acquire::{ClaimStep, LookStep, OwnerView, on_claim, on_look, session_to_read};
use leasehold::model::{Connection, ConnectionId, Item, Session};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

/// What a slot is asked to do.
pub enum Order {
    /// A claim was received: look at the row, and take it if it is free.
    Claim(Received),
    /// Look at the row again; the sender hears when that is done.
    Look(Option<oneshot::Sender<()>>),
}

/// A connection that this session owns, as the acquire returned it.
pub struct Held {
    /// The session, with the lease that the connection is held by.
    pub context: Arc<Context>,
    /// The row without its spec.
    pub row: Connection,
    /// The row as it is stored.
    pub item: Item,
    /// The epoch under which it is held.
    pub epoch: u64,
}

/// One connection of this worker.
pub struct Slot {
    pub(crate) context: Arc<Context>,
    pub(crate) supervisor: Arc<Supervisor>,
    pub(crate) id: ConnectionId,
    pub(crate) orders: mpsc::Receiver<Order>,
}

impl Slot {
    /// Works until there is nothing left to do for this connection.
    pub async fn run(mut self) {
        let supervisor = self.supervisor.clone();
        let mut next = None;
        loop {
            let order = match next.take() {
                Some(order) => order,
                None => match supervisor.next_order_or_end(&self.id, &mut self.orders) {
                    Some(order) => order,
                    None => return,
                },
            };
            let held = match order {
                Order::Claim(claim) => self.on_claim(claim).await,
                Order::Look(done) => {
                    let held = self.on_look_idle().await;
                    if let Some(done) = done {
                        // Nobody may be waiting any more.
                        let _ = done.send(());
                    }
                    held
                }
            };
            if let Some(held) = held {
                next = self.hold(held).await;
            }
        }
    }

    async fn on_claim(&self, claim: Received) -> Option<Held> {
        let context = &self.context;
        let _acquiring = Counted::new(&context.parts.gauges.acquiring);
        context.count("claims_received");
        // A long poll that began before the session was asked to drain still brings claims.
        let draining = context.parts.gauges.draining.load(Ordering::Relaxed);
        if context.is_stopping() || draining || !context.guard.is_valid() {
            self.give_back(claim, 0);
            return None;
        }
        let (row, step, decided_ms) = match self.claim_step().await {
            Ok(found) => found,
            Err(error) => {
                self.trouble(&error);
                self.give_back(claim, 5);
                return None;
            }
        };
        match step {
            ClaimStep::Nothing(why) => {
                tracing::debug!(event = "claim_no_op", connection = %self.id, why);
                context.count("claims_no_op");
                self.supervisor.delete(claim);
                None
            }
            ClaimStep::Later(wait_ms) => {
                self.give_back(claim, wait_ms.div_ceil(1_000).max(1));
                None
            }
            ClaimStep::Fault(why) => {
                self.supervisor.delete(claim);
                self.cannot_be_acquired(row.as_deref(), why, why).await;
                None
            }
            ClaimStep::Acquire(acquire) => self.take(claim, row.as_deref(), &acquire, decided_ms).await,
        }
    }

    /// Reads the row, its owner's session if need be, and decides. Returns when it decided (monotonic clock, ms), too.
    async fn claim_step(&self) -> Result<(Option<Box<Connection>>, ClaimStep, u64), StoreError> {
        let nothing = |why| Ok((None, ClaimStep::Nothing(why), 0));
        let row = match self.read_row().await? {
            Row::Bad(_) => return nothing("the row cannot be read"),
            Row::Gone => return nothing("the row is gone"),
            Row::Here(row, _) => row,
        };
        let (context, settings) = (&self.context, self.context.settings());
        let me = &context.session;
        // Without bounds of lease time nobody acquires.
        let Some(now) = context.now() else { return Ok((None, ClaimStep::Later(1_000), 0)) };
        let session = match session_to_read(&row, me, now, &settings.timing) {
            Some(owner) => Some(context.parts.store.session(owner).await?.map(|item| Session::from_item(&item))),
            None => None,
        };
        let owner = match &session {
            None => OwnerView::NotNeeded,
            Some(None) => OwnerView::Gone,
            Some(Some(Ok(session))) => OwnerView::Session(session),
            Some(Some(Err(error))) => {
                tracing::warn!(event = "bad_session", connection = %self.id, %error, "the owner's session cannot be read");
                return nothing("the owner's session cannot be read");
            }
        };
        let decided_ms = context.parts.clock.mono_ms();
        let Some(now) = context.now() else { return Ok((None, ClaimStep::Later(1_000), 0)) };
        let step = on_claim(Some(&row), owner, me, now, &settings.timing, settings.rules);
        Ok((Some(row), step, decided_ms))
    }

    pub(crate) async fn read_row(&self) -> Result<Row, StoreError> {
        Ok(self.read(self.context.parts.store.connection(&self.id).await?))
    }

    /// Reads a row that was got somehow.
    pub(crate) fn read(&self, item: Option<Item>) -> Row {
        let Some(item) = item else { return Row::Gone };
        match Connection::from_item(&item) {
            Ok(row) => Row::Here(Box::new(row), item),
            Err(error) => {
                self.context.count("bad_rows");
                tracing::warn!(event = "bad_row", connection = %self.id, %error, "the row cannot be read: correct it");
                Row::Bad(error.to_string())
            }
        }
    }

    /// A look at a connection that is not held: the row may name this session all the same. Repeated until it is answered.
    pub(crate) async fn on_look_idle(&self) -> Option<Held> {
        let mut attempt = 0;
        while self.lease_is_valid().await {
            let row = match self.read_row().await {
                Ok(Row::Here(row, _)) => row,
                Ok(Row::Gone | Row::Bad(_)) => return None,
                Err(error) => {
                    self.trouble(&error);
                    self.pause(attempt).await;
                    attempt += 1;
                    continue;
                }
            };
            let (me, timing) = (&self.context.session, &self.context.settings().timing);
            let decided_ms = self.context.parts.clock.mono_ms();
            match on_look(Some(&row), me, None, false, self.context.now(), timing) {
                LookStep::Reacquire(acquire) => match self.acquire(&acquire, decided_ms).await {
                    Taken::Yes(held) => return Some(*held),
                    // The row has changed since it was read, and may still name this session: stopped, and started again.
                    Taken::No => {
                        self.pause(attempt).await;
                        attempt += 1;
                    }
                    Taken::Refused(error @ StoreError::Invalid { .. }) => {
                        // The next comparison finds it again, within a minute.
                        self.cannot_be_acquired(Some(&row), refusal(&error), &error.to_string()).await;
                        return None;
                    }
                    Taken::Refused(error) | Taken::Unclear(error) => {
                        self.trouble(&error);
                        self.pause(attempt).await;
                        attempt += 1;
                    }
                },
                LookStep::Fault(why) => {
                    self.cannot_be_acquired(Some(&row), why, why).await;
                    return None;
                }
                LookStep::Release(epoch) => {
                    let released = self.release(&self.context, epoch, &row, "stopped before it was opened").await;
                    self.claim_if_free(released).await;
                    return None;
                }
                _ => return None,
            }
        }
        None
    }

    /// Waits until the lease is valid. False if the session ends before: the row may name it, so it is claimed after the end.
    pub(crate) async fn lease_is_valid(&self) -> bool {
        let valid = tokio::select! {
            biased;
            () = self.context.stopped() => false,
            () = self.context.guard.over() => false,
            () = self.context.guard.valid() => true,
        };
        if !valid {
            self.supervisor.give_up(&self.id);
        }
        valid
    }

    /// Before something is tried again: for 500 ms to 4 s.
    pub(crate) async fn pause(&self, attempt: u32) {
        let wait_ms = self.context.settings().backoff.wait_ms(attempt.min(3), &mut self.context.parts.seeds.rng());
        sleep(Duration::from_millis(wait_ms.clamp(500, 4_000))).await;
    }

    /// Notes trouble with the store: claims pause a little while it throttles.
    pub(crate) fn trouble(&self, error: &StoreError) {
        self.context.count(match error.kind() {
            "throttled" => "store_throttled",
            "no_answer" => "store_no_answer",
            "denied" => "store_denied",
            "missing" => "store_missing",
            _ => "store_invalid",
        });
        if error.is_transient() {
            tracing::warn!(event = "store_trouble", connection = %self.id, %error);
        } else {
            tracing::error!(event = "store_trouble", connection = %self.id, %error);
        }
        let pause_ms = 1_000 + self.context.settings().backoff.wait_ms(2, &mut self.context.parts.seeds.rng());
        let until_ms = self.context.parts.clock.mono_ms() + pause_ms;
        self.context.parts.gauges.pause_until_ms.fetch_max(until_ms, Ordering::Relaxed);
    }

    pub(crate) fn give_back(&self, claim: Received, after_s: u64) {
        self.context.count("claims_given_back");
        let context = self.context.clone();
        tokio::spawn(async move {
            if let Err(error) = context.parts.claims.give_back(&claim.receipt, after_s).await {
                tracing::debug!(event = "claim_not_given_back", %error, "its visibility time-out does the same");
            }
        });
    }
}

/// A row as a slot reads it.
pub(crate) enum Row {
    Here(Box<Connection>, Item),
    Gone,
    /// It cannot be read: why.
    Bad(String),
}
