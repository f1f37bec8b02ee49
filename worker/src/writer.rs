//! Stores the messages of one connection, in order: never a later one without an earlier one.

use crate::context::Context;
use leasehold::aws::StoreError;
use leasehold::aws::messages::{Body, StoredMessage, TRANSACTION_BYTES, TRANSACTION_ITEMS};
use leasehold::model::{ConnectionId, MessageKey};
use rand::RngExt;
use rand::rngs::StdRng;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};

/// A message in the buffer, with its share of the worker's buffer.
struct Waiting {
    message: StoredMessage,
    _share: OwnedSemaphorePermit,
}

/// The way in, for the driver.
pub struct Sink {
    context: Arc<Context>,
    sender: mpsc::Sender<Waiting>,
    accepted: u64,
    stored: watch::Receiver<Stored>,
}

/// How far a writer got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Messages stored (or refused for good) since the writer started.
    pub count: u64,
    /// The last of them that is in the table.
    pub last: Option<MessageKey>,
}

/// The writer was stopped: its session is over, or the connection was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

impl Sink {
    /// Takes a message, waiting while the buffer is full: reading stops meanwhile, and TCP tells the peer.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn put(&mut self, key: MessageKey, body: Body) -> Result<(), Stopped> {
        let settings = self.context.settings();
        // A message that is larger than the whole buffer takes all of it, and does not wait for ever.
        let most = u32::try_from(settings.buffer_bytes / 1024).unwrap_or(u32::MAX);
        let kib = u32::try_from(body.len() / 1024 + 1).unwrap_or(u32::MAX).min(most);
        let share = self.context.parts.buffer_kib.clone().acquire_many_owned(kib).await.map_err(|_| Stopped)?;
        let received_at_ms = self.context.stamp_ms();
        let message =
            StoredMessage { key, body, received_at_ms, expires_at_s: received_at_ms / 1_000 + settings.message_ttl_s };
        self.sender.send(Waiting { message, _share: share }).await.map_err(|_| Stopped)?;
        self.accepted += 1;
        Ok(())
    }

    /// Waits until everything that was taken is stored.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn flushed(&self) -> Result<(), Stopped> {
        let mut stored = self.stored.clone();
        stored.wait_for(|stored| stored.count >= self.accepted).await.map_err(|_| Stopped)?;
        Ok(())
    }
}

/// Starts a writer. It ends when its sink is dropped and everything is stored, or when the session's lease is lost.
pub fn start(context: Arc<Context>, id: ConnectionId) -> (Sink, watch::Receiver<Stored>, tokio::task::JoinHandle<()>) {
    let capacity = usize::try_from(context.settings().buffer_messages).unwrap_or(usize::MAX);
    let (sender, receiver) = mpsc::channel(capacity.max(1));
    let (progress, stored) = watch::channel(Stored::default());
    let rng = context.parts.seeds.rng();
    let sink = Sink { context: context.clone(), sender, accepted: 0, stored: stored.clone() };
    let writer = Writer { context, id, receiver, progress, rng };
    (sink, stored, tokio::spawn(writer.run()))
}

struct Writer {
    context: Arc<Context>,
    id: ConnectionId,
    receiver: mpsc::Receiver<Waiting>,
    progress: watch::Sender<Stored>,
    rng: StdRng,
}

impl Writer {
    async fn run(mut self) {
        let context = self.context.clone();
        tokio::select! {
            biased;
            () = context.guard.dropped() => {}
            () = self.write_all() => {}
        }
    }

    async fn write_all(&mut self) {
        let mut held_back = None;
        loop {
            let Some(batch) = self.next_batch(&mut held_back).await else { return };
            let messages: Vec<StoredMessage> = batch.iter().map(|waiting| waiting.message.clone()).collect();
            self.store(&messages).await;
        }
    }

    /// One message as it comes, or as many as wait and fit one transaction.
    async fn next_batch(&mut self, held_back: &mut Option<Waiting>) -> Option<Vec<Waiting>> {
        let first = match held_back.take() {
            Some(waiting) => waiting,
            None => self.receiver.recv().await?,
        };
        let (mut items, mut bytes) = (first.message.body.parts(), first.message.body.len());
        let mut batch = vec![first];
        while let Ok(next) = self.receiver.try_recv() {
            items += next.message.body.parts();
            bytes += next.message.body.len();
            // One transaction cannot write one key twice: a repeated message waits for the next.
            let repeated = batch.iter().any(|waiting| waiting.message.key == next.message.key);
            if repeated || items > TRANSACTION_ITEMS || bytes > TRANSACTION_BYTES {
                *held_back = Some(next);
                break;
            }
            batch.push(next);
        }
        Some(batch)
    }

    /// Stores until it is stored: what the sink has not acknowledged is never given up while the lease is ours.
    async fn store(&mut self, messages: &[StoredMessage]) {
        let mut attempt = 0;
        loop {
            // Under `hold` nothing is delivered until a renewal succeeds.
            self.context.guard.valid().await;
            match self.context.parts.store.store_messages(&self.id, messages).await {
                Ok(()) => return self.acknowledge(messages),
                Err(StoreError::Invalid { message, .. }) if messages.len() == 1 => {
                    return self.refuse(&messages[0], &message);
                }
                Err(StoreError::Invalid { .. }) => return self.one_by_one(messages).await,
                Err(error) => self.back_off(&error, &mut attempt).await,
            }
        }
    }

    async fn back_off(&mut self, error: &StoreError, attempt: &mut u32) {
        self.context.count("message_write_retries");
        if *attempt == 0 {
            tracing::warn!(event = "message_write_retry", connection = %self.id, %error, "messages cannot be stored now");
        }
        let wait_ms = self.context.settings().backoff.wait_ms(*attempt, &mut self.rng);
        *attempt = attempt.saturating_add(1);
        // At least a little, so that a full jitter of zero does not spin.
        let least_ms = self.rng.random_range(20..=50);
        tokio::time::sleep(Duration::from_millis(wait_ms.max(least_ms))).await;
    }

    /// A batch that is refused as a whole is tried message by message, so that a bad one holds nobody else up.
    async fn one_by_one(&mut self, messages: &[StoredMessage]) {
        for message in messages {
            Box::pin(self.store(std::slice::from_ref(message))).await;
        }
    }

    fn refuse(&self, message: &StoredMessage, why: &str) {
        self.context.count("messages_refused");
        tracing::error!(
            event = "message_refused", connection = %self.id, seq = message.key.seq, bytes = message.body.len(), why,
            "a message cannot be stored and is left out"
        );
        self.progress.send_modify(|stored| stored.count += 1);
    }

    fn acknowledge(&self, messages: &[StoredMessage]) {
        self.context.parts.counters.add_many("messages_stored", messages.len() as u64);
        self.progress.send_modify(|stored| {
            stored.count += messages.len() as u64;
            stored.last = messages.last().map(|message| message.key.clone());
        });
    }
}
