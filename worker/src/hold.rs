//! Holding a connection: the socket and its writer run, marks and the clock are heard, the status is written.

use crate::context::Context;
use crate::counters::Counted;
use crate::driver::Driver;
use crate::slot::{Held, Order, Row, Slot};
use crate::status::StatusBook;
use crate::writer::{self, Stored};
use leasehold::aws::Written;
use leasehold::aws::connections::{Observed, Status};
use leasehold::decide::acquire::{LookStep, on_look, with_former_owner};
use leasehold::decide::series::{Owner, Position};
use leasehold::model::{Connection, Item, ObservedState, Spec};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// How holding ends.
enum Outcome {
    /// Not wanted any more: close, then release. The row as it was read.
    Release(Box<Connection>),
    /// Another spec: close, then acquire anew, so that what follows is stored under an epoch of its own.
    Reconnect,
    /// The row is somebody else's: drop, nothing to release.
    Lost,
    /// The session's lease is lost, or was for a moment: the driver has dropped the socket by itself.
    LeaseDropped,
    /// The worker shuts down: close and flush; the session's end releases everything.
    Shutdown,
}

/// The tasks of an open connection.
struct Running {
    stop: watch::Sender<bool>,
    observed: watch::Receiver<Observed>,
    stored: watch::Receiver<Stored>,
    driver: JoinHandle<()>,
    writer: JoinHandle<()>,
}

impl Running {
    /// Closes the socket and stores what was received, both within `within`; then drops them.
    async fn close(mut self, within: Duration) {
        self.stop.send_replace(true);
        let both = async {
            // The driver's end drops the sink, and the writer ends when all is stored. A task that panicked has ended too.
            let _ = (&mut self.driver).await;
            let _ = (&mut self.writer).await;
        };
        if timeout(within, both).await.is_err() {
            tracing::warn!(
                event = "close_timed_out",
                "the socket is dropped; what is not stored comes again with the next resume"
            );
        }
    }
}

/// Without a lease, and after the time for a polite end, everything is dropped as it is.
impl Drop for Running {
    fn drop(&mut self) {
        self.driver.abort();
        self.writer.abort();
    }
}

impl Slot {
    /// Holds the connection until it is given up, and gives it up in order: the socket first, then the lease. Returns what is to be done
    /// next.
    pub(crate) async fn hold(&mut self, held: Held) -> Option<Order> {
        let context = self.context.clone();
        let _held = Counted::new(&context.parts.gauges.held);
        self.supervisor.set_holding(&self.id, Some(held.epoch));
        let outcome = self.hold_spec(&held).await;
        if let Outcome::Shutdown = outcome {
            return self.wait_for_the_end().await;
        }
        self.supervisor.set_holding(&self.id, None);
        match outcome {
            Outcome::Reconnect => Some(Order::Look(None)),
            Outcome::Release(row) => {
                self.release(held.epoch, &row, "stopped").await;
                None
            }
            Outcome::LeaseDropped => self.after_the_deadline().await,
            Outcome::Lost | Outcome::Shutdown => {
                context.count("connections_lost");
                None
            }
        }
    }

    /// The lease was lost for a moment, or for good. If a renewal comes through, the row is acquired anew.
    async fn after_the_deadline(&self) -> Option<Order> {
        tokio::select! {
            () = self.context.guard.over() => {
                self.supervisor.give_up(&self.id);
                None
            }
            () = self.context.guard.valid() => Some(Order::Look(None)),
        }
    }

    /// The session's end is near, and releases the connection with all others.
    async fn wait_for_the_end(&self) -> Option<Order> {
        self.supervisor.set_closed(&self.id);
        self.context.guard.over().await;
        self.supervisor.give_up(&self.id);
        None
    }

    async fn hold_spec(&mut self, held: &Held) -> Outcome {
        let context = self.context.clone();
        if !context.guard.is_valid() {
            return Outcome::LeaseDropped;
        }
        if !held.row.desired_state.is_started() {
            return Outcome::Release(Box::new(held.row.clone()));
        }
        let settings = context.settings();
        let mut book = StatusBook::new(
            settings.status_interval_ms,
            settings.checkpoint_interval_ms,
            context.stamp_ms(),
            context.parts.clock.mono_ms(),
        );
        let spec = match Spec::from_item(&held.item) {
            Ok(spec) => Arc::new(spec),
            Err(error) => {
                context.count("bad_specs");
                tracing::warn!(event = "parked", connection = %self.id, %error, "the spec cannot be used: correct it");
                book.note(observed(&context, ObservedState::Parked, Some(error.to_string())));
                return self.watch(held, None, None, &mut book).await;
            }
        };
        let Some(position) = self.position(held, &spec).await else { return Outcome::LeaseDropped };
        let running = self.start(&spec, held.epoch, position);
        let outcome = self.watch(held, Some(&spec), Some(&running), &mut book).await;
        match outcome {
            Outcome::Lost | Outcome::LeaseDropped => drop(running),
            _ => running.close(Duration::from_millis(settings.shutdown_ms)).await,
        }
        outcome
    }

    /// Where to go on: at the newest stored message; a connection without numbers goes on counting.
    async fn position(&self, held: &Held, spec: &Spec) -> Option<Position> {
        let context = &self.context;
        let owner = Owner {
            epoch: held.epoch,
            session: &context.session,
            ws_url: &spec.ws_url,
            numbered: spec.sequence_pointer.is_some(),
        };
        let mut attempt = 0;
        loop {
            if !context.guard.is_valid() {
                return None;
            }
            match context.parts.store.newest_message(&self.id).await {
                Ok(newest) => return Some(Position::resume(&owner, &held.row.progress, newest.as_ref())),
                Err(error) => {
                    self.trouble(&error);
                    let wait_ms = context.settings().backoff.wait_ms(attempt, &mut context.parts.seeds.rng());
                    attempt += 1;
                    sleep(Duration::from_millis(wait_ms.max(20))).await;
                }
            }
        }
    }

    fn start(&self, spec: &Arc<Spec>, epoch: u64, position: Position) -> Running {
        let context = &self.context;
        let (sink, stored, writer) = writer::start(context.clone(), self.id.clone());
        let (stop, stopped) = watch::channel(false);
        let (tell, observed) = watch::channel(observed(context, ObservedState::Connecting, None));
        let driver = Driver {
            context: context.clone(),
            id: self.id.clone(),
            spec: spec.clone(),
            epoch,
            position,
            fresh: true,
            sink,
            observed: tell,
            stop: stopped,
            rng: context.parts.seeds.rng(),
        };
        Running { stop, observed, stored, driver: tokio::spawn(driver.run()), writer }
    }

    /// Hears orders, the clock, the driver and the writer, until one of them ends the holding.
    async fn watch(
        &mut self,
        held: &Held,
        spec: Option<&Arc<Spec>>,
        running: Option<&Running>,
        book: &mut StatusBook,
    ) -> Outcome {
        let context = self.context.clone();
        let mut observed = running.map(|running| running.observed.clone());
        let mut stored = running.map(|running| running.stored.clone());
        loop {
            let wait = book.due_ms().map(|due| due.saturating_sub(context.parts.clock.mono_ms()));
            tokio::select! {
                order = self.orders.recv() => match order {
                    Some(order) => if let Some(outcome) = self.on_order(order, held, spec).await { return outcome },
                    None => return Outcome::Shutdown,
                },
                () = context.guard.dropped() => return Outcome::LeaseDropped,
                () = context.stopped() => return Outcome::Shutdown,
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
                () = sleep(Duration::from_millis(wait.unwrap_or(u64::MAX / 2))), if wait.is_some() => {
                    if let Some(outcome) = self.write_status(held, book).await { return outcome }
                }
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

    async fn on_order(&self, order: Order, held: &Held, spec: Option<&Arc<Spec>>) -> Option<Outcome> {
        match order {
            Order::Claim(claim) => {
                // Held already: a claim has nothing to add.
                self.supervisor.delete(claim);
                None
            }
            Order::Look(done) => {
                let outcome = self.look(held, spec).await;
                acknowledge(done);
                outcome
            }
        }
    }

    async fn look(&self, held: &Held, spec: Option<&Arc<Spec>>) -> Option<Outcome> {
        loop {
            let (row, item) = match self.read_row().await {
                Ok(Row::Here(row, item)) => (Some(row), Some(item)),
                Ok(Row::Gone) => (None, None),
                Ok(Row::Bad(why)) => {
                    self.tell_fault(held, why).await;
                    return Some(Outcome::Lost);
                }
                Err(error) => {
                    self.trouble(&error);
                    tokio::select! {
                        () = self.context.guard.dropped() => return Some(Outcome::LeaseDropped),
                        () = self.context.stopped() => return Some(Outcome::Shutdown),
                        () = sleep(Duration::from_secs(1)) => continue,
                    }
                }
            };
            let same = item.as_ref().is_some_and(|item| same_spec(spec, held, item));
            let step = on_look(row.as_deref(), &self.context.session, Some(held.epoch), same, self.context.now());
            return match (step, row) {
                (LookStep::Reconnect, _) => {
                    tracing::info!(event = "spec_changed", connection = %self.id, "the spec changed: opening anew");
                    Some(Outcome::Reconnect)
                }
                (LookStep::CloseAndRelease, Some(row)) => Some(Outcome::Release(row)),
                (LookStep::Drop(why), _) => {
                    tracing::warn!(event = "connection_lost", connection = %self.id, why, "the socket is dropped");
                    Some(Outcome::Lost)
                }
                _ => None,
            };
        }
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
                if !self.is_mine(held.epoch, found.as_ref()) {
                    tracing::warn!(event = "connection_lost", connection = %self.id, "a write was refused: the row is another owner's");
                    return Some(Outcome::Lost);
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

    fn is_mine(&self, epoch: u64, found: Option<&Item>) -> bool {
        found.and_then(|item| Connection::from_item(item).ok()).is_some_and(|row| {
            row.lease.owner.as_ref() == Some(&self.context.session) && row.lease.epoch == Some(epoch)
        })
    }

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

fn observed(context: &Context, state: ObservedState, reason: Option<String>) -> Observed {
    Observed { state, reason, since_ms: context.stamp_ms() }
}

/// A spec that was unusable stays the same as long as its row reads the same.
fn same_spec(spec: Option<&Arc<Spec>>, held: &Held, item: &Item) -> bool {
    match (spec, Spec::from_item(item)) {
        (Some(old), Ok(new)) => **old == new,
        (None, Err(new)) => Spec::from_item(&held.item).is_err_and(|old| old == new),
        _ => false,
    }
}

fn acknowledge(done: Option<oneshot::Sender<()>>) {
    if let Some(done) = done {
        // Nobody may be waiting any more.
        let _ = done.send(());
    }
}

/// Waits for a change, for ever where there is nothing to wait for. `None`: its sender is gone.
async fn changed<T: Clone>(receiver: &mut Option<watch::Receiver<T>>) -> Option<T> {
    let Some(inner) = receiver else { return std::future::pending().await };
    inner.changed().await.ok()?;
    Some(inner.borrow_and_update().clone())
}
