//! The third part of [`Slot`] (`impl Slot`; the first is `slot.rs`): holding a connection. Its socket and writer run, and are
//! closed in order. What it hears meanwhile is in `watch.rs`, how it gives the lease up in `release.rs`.

use crate::context::Context;
use crate::counters::Counted;
use crate::driver::Driver;
use crate::row_keeper::{self, Kept};
use crate::slot::{Held, Order, Slot};
use crate::status::StatusBook;
use crate::writer::{self, Stored};
use leasehold::aws::connections::Observed;
use leasehold::decide::admission::spread_ms;
use leasehold::decide::series::{Owner, Position};
use leasehold::model::{Connection, Feed, ObservedState, Spec};
use rand::RngExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// How holding ends.
pub(crate) enum Outcome {
    /// Not wanted any more: close, then release. The row as it was read.
    Release(Box<Connection>),
    /// Another spec: close, then acquire anew, so that what follows is stored under an epoch of its own.
    Reconnect,
    /// The row is somebody else's: drop, nothing to release.
    Lost,
    /// The row names this session under another epoch, as after an acquire that landed late: drop, then acquire it anew.
    OtherEpoch,
    /// The session's lease is lost, or was for a moment: the driver has dropped the socket by itself.
    LeaseDropped,
    /// The worker shuts down: close and flush; the session's end releases everything.
    Shutdown,
}

/// The tasks of an open connection.
pub(crate) struct Running {
    stop: watch::Sender<bool>,
    pub(crate) observed: watch::Receiver<Observed>,
    pub(crate) stored: watch::Receiver<Stored>,
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
        let context = held.context.clone();
        let _held = Counted::new(&context.parts.gauges.held);
        self.supervisor.set_holding(&self.id, Some(held.epoch));
        let kept = row_keeper::start(&context, &self.id, held.epoch);
        let outcome = self.hold_spec(&held, kept.as_ref()).await;
        // No renewal is sent any more: its refusal would look like a loss.
        drop(kept);
        self.supervisor.set_holding(&self.id, None);
        match outcome {
            Outcome::Reconnect => Some(Order::Look(None)),
            Outcome::Release(row) => {
                let released = self.release(&context, held.epoch, &row, "stopped").await;
                self.claim_if_free(released).await;
                None
            }
            Outcome::Lost => {
                context.count("connections_lost");
                None
            }
            Outcome::OtherEpoch => {
                context.count("connections_lost");
                Some(Order::Look(None))
            }
            Outcome::LeaseDropped => self.after_the_deadline().await,
            Outcome::Shutdown => self.wait_for_the_end(&held).await,
        }
    }

    /// The lease was lost for a moment, or for good. If a renewal comes through, the row is acquired anew; so are all others, but not in
    /// the same moment.
    async fn after_the_deadline(&self) -> Option<Order> {
        if !self.lease_is_valid().await {
            return None;
        }
        let spread_ms = spread_ms(self.supervisor.len() as u64);
        sleep(Duration::from_millis(self.context.parts.seeds.rng().random_range(0..=spread_ms))).await;
        Some(Order::Look(None))
    }

    /// The session's end is near, and releases the connection with all others; a row that is leased by itself is released by itself.
    async fn wait_for_the_end(&self, held: &Held) -> Option<Order> {
        self.supervisor.set_closed(&self.id);
        if held.context.guard.is_of_row() {
            let released = self.release(&held.context, held.epoch, &held.row, "shut down").await;
            self.say_stopped(released).await;
        } else {
            self.context.guard.over().await;
        }
        self.supervisor.give_up(&self.id);
        None
    }

    async fn hold_spec(&mut self, held: &Held, kept: Option<&Kept>) -> Outcome {
        let context = held.context.clone();
        if let Some(outcome) = may_not_open(&context) {
            return outcome;
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
                return self.watch(held, kept, None, None, &mut book).await;
            }
        };
        let position = match self.position(held, &spec).await {
            Ok(position) => position,
            Err(outcome) => return outcome,
        };
        let running = self.start(held, &spec, position);
        let outcome = self.watch(held, kept, Some(&spec), Some(&running), &mut book).await;
        match outcome {
            Outcome::Lost | Outcome::OtherEpoch | Outcome::LeaseDropped => drop(running),
            Outcome::Release(_) | Outcome::Reconnect | Outcome::Shutdown => {
                running.close(Duration::from_millis(settings.shutdown_ms)).await
            }
        }
        outcome
    }

    /// Where to go on: at the newest stored message; a connection without numbers goes on counting.
    async fn position(&self, held: &Held, spec: &Spec) -> Result<Position, Outcome> {
        let context = &held.context;
        let feed = Feed { ws_url: &spec.ws_url, sequence_pointer: spec.sequence_pointer.as_deref() };
        let owner = Owner { epoch: held.epoch, session: &context.session, feed };
        let mut attempt = 0;
        loop {
            let newest = context.parts.store.newest_message(&self.id).await;
            if let Some(outcome) = may_not_open(context) {
                return Err(outcome);
            }
            match newest {
                Ok(newest) => return Ok(Position::resume(&owner, &held.row.progress, newest.as_ref())),
                Err(error) => {
                    self.trouble(&error);
                    let wait_ms = context.settings().backoff.wait_ms(attempt, &mut context.parts.seeds.rng());
                    attempt += 1;
                    sleep(Duration::from_millis(wait_ms.max(20))).await;
                }
            }
        }
    }

    fn start(&self, held: &Held, spec: &Arc<Spec>, position: Position) -> Running {
        let context = &held.context;
        let (sink, stored, writer) = writer::start(context.clone(), self.id.clone());
        let (stop, stopped) = watch::channel(false);
        let (tell, observed) = watch::channel(observed(context, ObservedState::Connecting, None));
        let driver = Driver {
            context: context.clone(),
            id: self.id.clone(),
            spec: spec.clone(),
            epoch: held.epoch,
            position,
            fresh: true,
            sink,
            observed: tell,
            stop: stopped,
            rng: context.parts.seeds.rng(),
        };
        Running { stop, observed, stored, driver: tokio::spawn(driver.run()), writer }
    }
}

/// No handshake begins without a lease, nor during a shutdown: an acquire under way at SIGTERM still takes the row.
fn may_not_open(context: &Context) -> Option<Outcome> {
    if context.is_stopping() {
        return Some(Outcome::Shutdown);
    }
    (!context.guard.is_valid()).then_some(Outcome::LeaseDropped)
}

pub(crate) fn observed(context: &Context, state: ObservedState, reason: Option<String>) -> Observed {
    Observed { state, reason, since_ms: context.stamp_ms() }
}
