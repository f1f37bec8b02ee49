//! The fourth part of [`Slot`] (`impl Slot`): what it hears while it holds a connection (orders, the clock, its driver and its writer),
//! and what it writes of it.

use crate::hold::{Outcome, Running, observed};
use crate::row_keeper::{Kept, Seen};
use crate::slot::{Held, Order, Row, Slot};
use crate::status::StatusBook;
use crate::writer::Stored;
use leasehold::aws::Written;
use leasehold::aws::connections::Status;
use leasehold::decide::acquire::{LookStep, on_look};
use leasehold::model::{Connection, Item, ObservedState, Spec};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::sleep;

/// Where a row is renewed by itself: what its renewals show.
type Rows = Option<watch::Receiver<Seen>>;

impl Slot {
    /// Hears orders, the clock, the driver and the writer, until one of them ends the holding.
    pub(crate) async fn watch(
        &mut self,
        held: &Held,
        kept: Option<&Kept>,
        spec: Option<&Arc<Spec>>,
        running: Option<&Running>,
        book: &mut StatusBook,
    ) -> Outcome {
        let context = held.context.clone();
        let mut rows: Rows = kept.map(|kept| kept.rows.clone());
        let mut observed = running.map(|running| running.observed.clone());
        let mut stored = running.map(|running| running.stored.clone());
        loop {
            let wait = book.due_ms().map(|due| due.saturating_sub(context.parts.clock.mono_ms()));
            tokio::select! {
                biased;
                // Before the deadline: where the row is lost, its lease ends with it, and the row says why.
                row = changed(&mut rows) => if let Some(outcome) = self.on_row(row, held, spec).await { return outcome },
                () = context.guard.dropped() => return Outcome::LeaseDropped,
                () = context.stopped() => return Outcome::Shutdown,
                order = self.orders.recv() => match order {
                    Some(order) => {
                        if let Some(outcome) = self.on_order(order, held, spec, &mut rows).await { return outcome }
                    }
                    None => return Outcome::Shutdown,
                },
                // Before what may change with every message.
                () = due_in(wait) => {
                    if let Some(outcome) = self.write_status(held, book).await { return outcome }
                }
                now = changed(&mut observed) => match now {
                    Some(now) => book.note(now),
                    None => return self.driver_ended().await,
                },
                now = changed(&mut stored) => match now {
                    Some(Stored { last: Some(last), .. }) => book.progress(last),
                    Some(_) => {}
                    // Without its writer the driver ends with the next message.
                    None => stored = None,
                },
            }
        }
    }

    /// A driver that was not told to stop ended all the same: it saw the lease lost for a moment, as after a suspension, or it panicked.
    /// The row is acquired anew; not at once, so that a panic that comes back does not spin.
    async fn driver_ended(&self) -> Outcome {
        self.context.count("drivers_ended");
        tracing::warn!(event = "driver_ended", connection = %self.id, "its socket is gone: the connection is acquired anew");
        sleep(Duration::from_secs(1)).await;
        Outcome::LeaseDropped
    }

    /// What a renewal's answer shows. `None`: the renewals have ended, most likely by a panic, and nobody looks at the row's deadline any more.
    async fn on_row(&self, row: Option<Seen>, held: &Held, spec: Option<&Arc<Spec>>) -> Option<Outcome> {
        match row {
            Some(row) => self.judge(self.read(row), held, spec).await,
            None => Some(Outcome::LeaseDropped),
        }
    }

    async fn on_order(&self, order: Order, held: &Held, spec: Option<&Arc<Spec>>, rows: &mut Rows) -> Option<Outcome> {
        match order {
            Order::Claim(claim) => {
                // Held already: a claim has nothing to add.
                self.supervisor.delete(claim);
                None
            }
            Order::Look(done) => {
                let outcome = self.look(held, spec, rows).await;
                if let Some(done) = done {
                    // Nobody may be waiting any more.
                    let _ = done.send(());
                }
                outcome
            }
        }
    }

    /// Reads the row until that is answered, by a renewal if need be, and judges what it asks for; `None` to go on holding.
    async fn look(&self, held: &Held, spec: Option<&Arc<Spec>>, rows: &mut Rows) -> Option<Outcome> {
        tokio::select! {
            biased;
            row = changed(rows) => self.on_row(row, held, spec).await,
            () = held.context.guard.dropped() => Some(Outcome::LeaseDropped),
            () = self.context.stopped() => Some(Outcome::Shutdown),
            row = self.read_until_answered() => self.judge(row, held, spec).await,
        }
    }

    async fn read_until_answered(&self) -> Row {
        loop {
            match self.read_row().await {
                Ok(row) => return row,
                Err(error) => self.trouble(&error),
            }
            sleep(Duration::from_secs(1)).await;
        }
    }

    /// Judges what a row asks for, as it was read, or as a renewal's answer shows it.
    async fn judge(&self, row: Row, held: &Held, spec: Option<&Arc<Spec>>) -> Option<Outcome> {
        let (row, item) = match row {
            Row::Here(row, item) => (Some(row), Some(item)),
            Row::Gone => (None, None),
            Row::Bad(why) => {
                self.tell_fault(held, why).await;
                return Some(Outcome::Lost);
            }
        };
        let same = item.as_ref().is_some_and(|item| same_spec(spec, held, item));
        let (me, timing) = (&self.context.session, &self.context.settings().timing);
        let step = on_look(row.as_deref(), me, Some(held.epoch), same, self.context.now(), timing);
        match (step, row) {
            (LookStep::Reconnect, _) => {
                tracing::info!(event = "spec_changed", connection = %self.id, "the spec changed: opening anew");
                Some(Outcome::Reconnect)
            }
            (LookStep::CloseAndRelease, Some(row)) => Some(Outcome::Release(row)),
            (LookStep::Drop(why), row) => {
                tracing::warn!(event = "connection_lost", connection = %self.id, why, "the socket is dropped");
                Some(self.lost(row.as_deref()))
            }
            _ => None,
        }
    }

    /// The held epoch is not the row's any more.
    fn lost(&self, row: Option<&Connection>) -> Outcome {
        let names_me = row.is_some_and(|row| row.lease.owner.as_ref() == Some(&self.context.session));
        if names_me { Outcome::OtherEpoch } else { Outcome::Lost }
    }

    /// Says on the row what is wrong with it, if it still names this session. Once: the socket is dropped whatever becomes of it.
    async fn tell_fault(&self, held: &Held, why: String) {
        let context = &self.context;
        let status = Status { observed: Some(observed(context, ObservedState::Parked, Some(why))), progress: None };
        let rules = context.settings().rules;
        if let Err(error) =
            context.parts.store.write_status(&self.id, &context.session, held.epoch, &status, rules).await
        {
            self.trouble(&error);
        }
    }

    async fn write_status(&self, held: &Held, book: &mut StatusBook) -> Option<Outcome> {
        let context = &self.context;
        let status = book.to_write();
        let rules = context.settings().rules;
        let answer = context.parts.store.write_status(&self.id, &context.session, held.epoch, &status, rules).await;
        let now_ms = context.parts.clock.mono_ms();
        match answer {
            Ok(Written::Applied(_)) => book.wrote(&status, now_ms),
            Ok(Written::Refused(found)) => {
                let row = found.as_ref().and_then(|item| Connection::from_item(item).ok());
                let lease = row.as_ref().map(|row| &row.lease);
                let me = &context.session;
                if !lease.is_some_and(|lease| lease.owner.as_ref() == Some(me) && lease.epoch == Some(held.epoch)) {
                    tracing::warn!(event = "connection_lost", connection = %self.id, "a write was refused: the row has another owner or epoch");
                    return Some(self.lost(row.as_ref()));
                }
                // Ours, but progress would have gone back: a later checkpoint has landed already. The state is written without it.
                book.wrote(&Status { observed: None, ..status }, now_ms);
            }
            Err(error) => {
                book.failed(now_ms);
                self.trouble(&error);
            }
        }
        None
    }
}

/// A spec that was unusable stays the same as long as its row reads the same.
fn same_spec(spec: Option<&Arc<Spec>>, held: &Held, item: &Item) -> bool {
    match (spec, Spec::from_item(item)) {
        (Some(old), Ok(new)) => **old == new,
        (None, Err(new)) => Spec::from_item(&held.item).is_err_and(|old| old == new),
        _ => false,
    }
}

/// Waits so many ms, not at all for 0 (a timer takes at least one), or for ever.
async fn due_in(wait_ms: Option<u64>) {
    match wait_ms {
        Some(0) => {}
        Some(wait_ms) => sleep(Duration::from_millis(wait_ms)).await,
        None => std::future::pending().await,
    }
}

/// Waits for a change, for ever where there is nothing to wait for. `None`: its sender is gone.
async fn changed<T: Clone>(receiver: &mut Option<watch::Receiver<T>>) -> Option<T> {
    let Some(inner) = receiver else { return std::future::pending().await };
    inner.changed().await.ok()?;
    Some(inner.borrow_and_update().clone())
}
