//! One connection of this worker: takes it, holds it, looks at it again, gives it up. One request at a time.

use crate::context::Context;
use crate::counters::Counted;
use crate::supervisor::Supervisor;
use leasehold::aws::queues::Received;
use leasehold::aws::{StoreError, Written};
use leasehold::decide::acquire::{Acquire, ClaimStep, LookStep, OwnerView, on_claim, on_look, won_anyway};
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

/// What an attempt to take a connection came to.
enum Taken {
    Yes(Box<Held>),
    No,
    /// Nobody knows yet: the claim comes back.
    Unclear(StoreError),
}

/// How long an acquire without an answer is repeated before its claim is given back.
const ACQUIRE_MS: u64 = 6_000;

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
        match self.claim_step().await {
            Ok(ClaimStep::Nothing(why)) => {
                tracing::debug!(event = "claim_no_op", connection = %self.id, why);
                context.count("claims_no_op");
                self.supervisor.delete(claim);
                None
            }
            Ok(ClaimStep::Later(wait_ms)) => {
                self.give_back(claim, wait_ms.div_ceil(1_000).max(1));
                None
            }
            Ok(ClaimStep::Acquire(acquire)) => match self.acquire(&acquire).await {
                Taken::Yes(held) => {
                    self.supervisor.delete(claim);
                    Some(*held)
                }
                Taken::No => {
                    self.supervisor.delete(claim);
                    None
                }
                Taken::Unclear(error) => {
                    self.trouble(&error);
                    self.give_back(claim, 5);
                    None
                }
            },
            Err(error) => {
                self.trouble(&error);
                self.give_back(claim, 5);
                None
            }
        }
    }

    /// Reads the row, its owner's session if need be, and decides.
    async fn claim_step(&self) -> Result<ClaimStep, StoreError> {
        let store = &self.context.parts.store;
        let row = match self.read_row().await? {
            Row::Bad(_) => return Ok(ClaimStep::Nothing("the row cannot be read")),
            Row::Gone => return Ok(ClaimStep::Nothing("the row is gone")),
            Row::Here(row, _) => row,
        };
        let me = &self.context.session;
        let session = match &row.lease.owner {
            Some(owner) if owner != me => Some(store.session(owner).await?.map(|item| Session::from_item(&item))),
            _ => None,
        };
        let owner = match &session {
            None => OwnerView::NotNeeded,
            Some(None) => OwnerView::Gone,
            Some(Some(Ok(session))) => OwnerView::Session(session),
            Some(Some(Err(error))) => {
                tracing::warn!(event = "bad_session", connection = %self.id, %error, "the owner's session cannot be read");
                return Ok(ClaimStep::Nothing("the owner's session cannot be read"));
            }
        };
        let settings = self.context.settings();
        // Without bounds of lease time nobody acquires.
        let Some(now) = self.context.now() else { return Ok(ClaimStep::Later(1_000)) };
        Ok(on_claim(Some(&row), owner, me, now, &settings.timing, settings.rules))
    }

    pub(crate) async fn read_row(&self) -> Result<Row, StoreError> {
        let Some(item) = self.context.parts.store.connection(&self.id).await? else { return Ok(Row::Gone) };
        match Connection::from_item(&item) {
            Ok(row) => Ok(Row::Here(Box::new(row), item)),
            Err(error) => {
                self.context.count("bad_rows");
                tracing::warn!(event = "bad_row", connection = %self.id, %error, "the row cannot be read: correct it");
                Ok(Row::Bad(error.to_string()))
            }
        }
    }

    /// Sends one acquire until it is answered. The epoch stays the same, so that no repetition raises it twice.
    async fn acquire(&self, acquire: &Acquire) -> Taken {
        let context = &self.context;
        let began_ms = context.parts.clock.mono_ms();
        let mut attempt = 0;
        loop {
            if !context.guard.is_valid() {
                return Taken::Unclear(lease_lost());
            }
            let answer = context.parts.store.acquire(&self.id, &context.session, acquire, context.stamp_ms()).await;
            let error = match answer {
                Ok(Written::Applied(item)) => return self.won(acquire, item),
                Ok(Written::Refused(found)) => return self.refused(acquire, found),
                Err(error) if error.is_transient() => error,
                Err(error) => return Taken::Unclear(error),
            };
            let waited_ms = context.parts.clock.mono_ms().saturating_sub(began_ms);
            if matches!(error, StoreError::Throttled { .. }) || waited_ms > ACQUIRE_MS {
                return Taken::Unclear(error);
            }
            let mut rng = context.parts.seeds.rng();
            sleep(Duration::from_millis(context.settings().backoff.wait_ms(attempt, &mut rng).max(20))).await;
            attempt += 1;
        }
    }

    fn won(&self, acquire: &Acquire, item: Item) -> Taken {
        match Connection::from_item(&item) {
            Ok(row) => {
                self.context.count("acquires_won");
                let from = acquire.expected.owner.as_ref().map(ToString::to_string);
                tracing::info!(event = "acquired", connection = %self.id, epoch = acquire.epoch, from, "this session owns the connection");
                Taken::Yes(Box::new(Held { row, item, epoch: acquire.epoch }))
            }
            Err(error) => {
                tracing::error!(event = "bad_row", connection = %self.id, %error, "the row was broken while it was taken");
                Taken::No
            }
        }
    }

    fn refused(&self, acquire: &Acquire, found: Option<Item>) -> Taken {
        let row = found.as_ref().and_then(|item| Connection::from_item(item).ok());
        if won_anyway(acquire, &self.context.session, row.as_ref())
            && let Some(item) = found
        {
            self.context.count("acquires_won_without_answer");
            return self.won(acquire, item);
        }
        self.context.count("acquires_lost");
        tracing::debug!(event = "acquire_lost", connection = %self.id, "another session was quicker, or the row changed");
        Taken::No
    }

    /// A look at a connection that is not held: the row may name this session all the same.
    async fn on_look_idle(&self) -> Option<Held> {
        loop {
            if self.context.is_stopping() || !self.context.guard.is_valid() {
                return None;
            }
            let step = match self.read_row().await {
                Ok(Row::Here(row, _)) => {
                    (on_look(Some(&row), &self.context.session, None, false, self.context.now()), Some(row))
                }
                Ok(Row::Gone | Row::Bad(_)) => return None,
                Err(error) => {
                    self.trouble(&error);
                    sleep(Duration::from_secs(1)).await;
                    continue;
                }
            };
            return match step {
                (LookStep::Reacquire(acquire), _) => match self.acquire(&acquire).await {
                    Taken::Yes(held) => Some(*held),
                    Taken::No => None,
                    Taken::Unclear(error) => {
                        self.trouble(&error);
                        sleep(Duration::from_secs(1)).await;
                        continue;
                    }
                },
                (LookStep::Release(expected), Some(row)) => {
                    if let Some(epoch) = expected.epoch {
                        self.release(epoch, &row, "stopped before it was opened").await;
                    }
                    None
                }
                _ => None,
            };
        }
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

    fn give_back(&self, claim: Received, after_s: u64) {
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

fn lease_lost() -> StoreError {
    StoreError::Unknown { service: "DynamoDB", message: "this session's lease is not valid now".into() }
}
