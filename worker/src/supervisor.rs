//! The slots of one session, by connection: hands them orders, and converges on marks.

use crate::context::Context;
use crate::slot::{Order, Slot};
use futures_util::{FutureExt, StreamExt, stream};
use leasehold::aws::StoreError;
use leasehold::aws::queues::Received;
use leasehold::aws::store::Page;
use leasehold::model::connection::attr;
use leasehold::model::{Claim, ConnectionId, Marks, SessionId, fields};
use rand::RngExt;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

/// Orders that may wait for one slot. More looks than that say nothing new.
const ORDERS: usize = 8;
/// Rows that are looked at at once.
const LOOKS_AT_ONCE: usize = 64;
/// How long a look is waited for: a connection whose store is slow must not hold the marks of others up.
const LOOK_WITHIN: Duration = Duration::from_secs(2);

/// How long a connection whose slot panicked is left alone, at most: a panic that comes back must not spin.
const PANIC_WAIT_MS: u64 = 5_000;

struct Handle {
    orders: mpsc::Sender<Order>,
    /// The epoch under which the connection is held; `None` while it is being taken or given up.
    holding: Option<u64>,
    /// The worker shuts down, and this connection's socket is closed.
    closed: bool,
}

/// The slots of one session.
pub struct Supervisor {
    context: Arc<Context>,
    slots: Mutex<BTreeMap<ConnectionId, Handle>>,
    given_up: Mutex<BTreeSet<ConnectionId>>,
}

impl Supervisor {
    /// No slots yet.
    #[must_use]
    pub fn new(context: Arc<Context>) -> Arc<Self> {
        Arc::new(Self { context, slots: Mutex::default(), given_up: Mutex::default() })
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<ConnectionId, Handle>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many connections are held or about to be.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots().len()
    }

    /// True without any slot.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is held, with the epoch of each.
    #[must_use]
    pub fn held(&self) -> BTreeMap<ConnectionId, u64> {
        let slots = self.slots();
        slots.iter().filter_map(|(id, handle)| Some((id.clone(), handle.holding?))).collect()
    }

    /// Notes that a slot ends because its session does: the connection wants another owner.
    pub(crate) fn give_up(&self, id: &ConnectionId) {
        self.given_up.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone());
    }

    /// What the session's end leaves behind: what slots gave up because of it, and what still has a slot.
    #[must_use]
    pub fn given_up(&self) -> Vec<ConnectionId> {
        let mut ids: BTreeSet<ConnectionId> = self.slots().keys().cloned().collect();
        ids.extend(self.given_up.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned());
        ids.into_iter().collect()
    }

    /// Notes whether a connection is held.
    pub(crate) fn set_holding(&self, id: &ConnectionId, epoch: Option<u64>) {
        if let Some(handle) = self.slots().get_mut(id) {
            handle.holding = epoch;
        }
    }

    /// Notes that a connection's socket is closed for the shutdown.
    pub(crate) fn set_closed(&self, id: &ConnectionId) {
        if let Some(handle) = self.slots().get_mut(id) {
            handle.closed = true;
        }
    }

    /// True once every socket is closed for the shutdown.
    #[must_use]
    pub fn all_closed(&self) -> bool {
        self.slots().values().all(|handle| handle.closed)
    }

    /// Hands a claim to its slot. A body that is no claim is counted and deleted: it can never become one.
    pub fn claim(self: &Arc<Self>, received: Received) {
        match Claim::from_body(&received.body) {
            // Held already: a claim has nothing to add, and must not take a look's place in the queue.
            Ok(claim) if self.is_held(&claim.connection_id) => self.delete(received),
            Ok(claim) => self.order(claim.connection_id, Order::Claim(received)),
            Err(error) => {
                self.context.count("bad_claims");
                tracing::warn!(event = "bad_claim", %error, "the message is deleted");
                self.delete(received);
            }
        }
    }

    fn is_held(&self, id: &ConnectionId) -> bool {
        self.slots().get(id).is_some_and(|handle| handle.holding.is_some())
    }

    /// Deletes a claim beside the work; a claim that stays is only looked at once more.
    pub(crate) fn delete(&self, claim: Received) {
        let context = self.context.clone();
        tokio::spawn(async move {
            if let Err(error) = context.parts.claims.delete(&claim.receipt).await {
                context.count("claims_not_deleted");
                tracing::debug!(event = "claim_not_deleted", %error);
            }
        });
    }

    /// Has a slot look at its row. False if it did not within [`LOOK_WITHIN`]: it is busy with a slow store, or its queue is full.
    pub async fn look(self: &Arc<Self>, id: ConnectionId) -> bool {
        let (done, looked) = oneshot::channel();
        self.order(id, Order::Look(Some(done)));
        matches!(timeout(LOOK_WITHIN, looked).await, Ok(Ok(())))
    }

    fn order(self: &Arc<Self>, id: ConnectionId, order: Order) {
        let mut slots = self.slots();
        if let Some(handle) = slots.get(&id) {
            // The sender of a look hears that it was dropped; a claim comes back after its visibility time-out.
            if handle.orders.try_send(order).is_err() {
                self.context.count("orders_dropped");
            }
            return;
        }
        let (sender, orders) = mpsc::channel(ORDERS);
        if sender.try_send(order).is_ok() {
            slots.insert(id.clone(), Handle { orders: sender, holding: None, closed: false });
            let slot = Slot { context: self.context.clone(), supervisor: self.clone(), id, orders };
            tokio::spawn(self.clone().run(slot));
        }
    }

    /// Runs a slot to its end. One that panics has not taken itself out; its row still names this session, so it is looked at again.
    async fn run(self: Arc<Self>, slot: Slot) {
        let id = slot.id.clone();
        // Nothing of the slot is used again.
        if AssertUnwindSafe(slot.run()).catch_unwind().await.is_ok() {
            return;
        }
        self.context.count("slots_panicked");
        tracing::error!(event = "slot_panicked", connection = %id, "its socket is dropped: the connection is looked at again");
        // Until then, in case the session ends first.
        self.give_up(&id);
        self.slots().remove(&id);
        let wait_ms = self.context.parts.seeds.rng().random_range(PANIC_WAIT_MS / 2..=PANIC_WAIT_MS);
        tokio::select! {
            biased;
            () = self.context.stopped() => {}
            () = self.context.guard.over() => {}
            () = sleep(Duration::from_millis(wait_ms)) => {
                self.order(id.clone(), Order::Look(None));
                self.given_up.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            }
        }
    }

    /// The next order of a slot, or its end: both under the lock, so that no order is lost in between.
    pub(crate) fn next_order_or_end(&self, id: &ConnectionId, orders: &mut mpsc::Receiver<Order>) -> Option<Order> {
        let mut slots = self.slots();
        match orders.try_recv() {
            Ok(order) => Some(order),
            Err(_) => {
                slots.remove(id);
                None
            }
        }
    }

    /// Acts on marks: looks at each connection, or at everything. False: not everything was looked at; the marks stay then.
    ///
    /// # Errors
    /// [`StoreError`] when `by_owner` cannot be read for a resync; the marks stay then.
    pub async fn converge(self: &Arc<Self>, marks: &Marks) -> Result<bool, StoreError> {
        let mut ids: BTreeSet<ConnectionId> = marks.ids.iter().cloned().collect();
        if marks.resync {
            ids.extend(self.slots().keys().cloned());
            ids.extend(self.owned_by_index().await?.into_keys());
        }
        Ok(self.look_at(ids).await)
    }

    /// Looks at several connections, some at a time. False if one of them was not looked at.
    pub async fn look_at(self: &Arc<Self>, ids: impl IntoIterator<Item = ConnectionId>) -> bool {
        let looks = stream::iter(ids).map(|id| self.look(id)).buffer_unordered(LOOKS_AT_ONCE);
        looks.fold(true, |all, looked| std::future::ready(all && looked)).await
    }

    /// What `by_owner` says that this session owns, with the epoch of each.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn owned_by_index(&self) -> Result<BTreeMap<ConnectionId, Option<u64>>, StoreError> {
        let session: &SessionId = &self.context.session;
        let mut owned = BTreeMap::new();
        let mut from = None;
        loop {
            let Page { items, next } = self.context.parts.store.by_owner(session, from).await?;
            for item in &items {
                let pk = fields::string(item, attr::PK).ok().flatten().unwrap_or_default();
                if let Ok(id) = ConnectionId::from_pk(&pk) {
                    owned.insert(id, fields::number(item, attr::LEASE_EPOCH).ok().flatten());
                }
            }
            from = next;
            if from.is_none() {
                return Ok(owned);
            }
        }
    }
}
