//! One queue as a pure state machine: every call takes the time as an argument.

use super::attributes::QueueConfig;
use super::digest::{Receipt, sha256_of_body};
use super::error::SqsError;
use super::fifo::{self, Deduplication, Seen};
use super::index::Index;
use super::limits::{self, QueueLimits};
use super::message::{Message, Outgoing, Stage, check_id};
use super::standard;
use std::collections::{BTreeMap, BTreeSet};

/// One queue: its attributes and its messages.
#[derive(Clone, Debug)]
pub struct QueueState {
    /// The queue's name.
    pub name: String,
    /// Its attributes.
    pub config: QueueConfig,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// When it was made, milliseconds since the Unix epoch.
    pub created_ms: u64,
    /// When its attributes last changed.
    pub modified_ms: u64,
    /// When it was last purged.
    pub purged_ms: Option<u64>,
    pub(super) messages: BTreeMap<u64, Message>,
    pub(super) deduplication: Deduplication,
    pub(super) index: Index,
    pub(super) bytes: usize,
    pub(super) limits: QueueLimits,
}

/// The answer to a send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// `MessageId`: the first message's for a duplicate.
    pub message_id: String,
    /// `SequenceNumber`, in FIFO queues.
    pub sequence_number: Option<String>,
    /// Whether nothing was stored, since the message is a duplicate.
    pub duplicate: bool,
}

/// What a receive asks for.
#[derive(Clone, Copy, Debug)]
pub struct Receive {
    /// 1 to 10.
    pub max: usize,
    /// Seconds to hide what is received; the queue's default when absent.
    pub visibility_s: Option<u64>,
    /// `maxReceiveCount`, when there is a dead-letter queue with room.
    pub dead_after: Option<u32>,
}

/// What a receive took from the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Messages for the consumer.
    pub messages: Vec<Message>,
    /// Messages for the dead-letter queue: they are gone from this one.
    pub dead: Vec<Message>,
}

/// `ApproximateNumberOf…`: exact here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Can be received.
    pub visible: usize,
    /// In flight.
    pub not_visible: usize,
    /// Delayed.
    pub delayed: usize,
}

impl QueueState {
    /// An empty queue.
    #[must_use]
    pub fn new(name: &str, config: QueueConfig, limits: QueueLimits, now_ms: u64) -> Self {
        Self {
            name: name.to_owned(),
            config,
            tags: BTreeMap::new(),
            created_ms: now_ms,
            modified_ms: now_ms,
            purged_ms: None,
            messages: BTreeMap::new(),
            deduplication: Deduplication::default(),
            index: Index::default(),
            bytes: 0,
            limits,
        }
    }

    /// Takes a message. `number` is its place in the store's order of arrival.
    ///
    /// # Errors
    /// What AWS refuses, and [`SqsError::Throttled`] when the queue is full.
    pub fn send(&mut self, now_ms: u64, number: u64, outgoing: Outgoing) -> Result<Sent, SqsError> {
        self.advance(now_ms);
        outgoing.check(self.config.max_message_bytes)?;
        let delay_ms = self.delay_ms(&outgoing)?;
        let deduplication_id = self.deduplication_id(&outgoing)?;
        let key = deduplication_id.as_ref().map(|id| self.deduplication_key(id, outgoing.group_id.as_deref()));
        if let Some(seen) = key.as_ref().and_then(|key| self.deduplication.find(key)) {
            let sequence_number = Some(format!("{:020}", seen.number));
            return Ok(Sent { message_id: seen.message_id.clone(), sequence_number, duplicate: true });
        }
        if !self.has_room_for(outgoing.size_bytes()) || self.deduplication.len() >= self.limits.max_messages {
            return Err(SqsError::Throttled(self.name.clone()));
        }
        let message = new_message(now_ms, number, outgoing, deduplication_id, delay_ms);
        let id = message.id.clone();
        if let Some(key) = key {
            self.deduplication.remember(key, Seen { message_id: id.clone(), number, sent_ms: now_ms });
        }
        let sequence_number = self.config.fifo.then(|| message.sequence_number());
        self.put(message);
        Ok(Sent { message_id: id, sequence_number, duplicate: false })
    }

    fn delay_ms(&self, outgoing: &Outgoing) -> Result<u64, SqsError> {
        let Some(asked) = outgoing.delay_seconds else { return Ok(self.config.delay_s * 1_000) };
        if self.config.fifo {
            if asked != 0 {
                return Err(SqsError::invalid(asked, "DelaySeconds", "a FIFO queue takes a delay for the queue only."));
            }
            return Ok(self.config.delay_s * 1_000);
        }
        match u64::try_from(asked) {
            Ok(seconds) if seconds <= limits::MAX_DELAY_S => Ok(seconds * 1_000),
            _ => Err(SqsError::invalid(asked, "DelaySeconds", "DelaySeconds must be >= 0 and <= 900.")),
        }
    }

    fn deduplication_id(&self, outgoing: &Outgoing) -> Result<Option<String>, SqsError> {
        if let Some(group) = &outgoing.group_id {
            check_id(group, "MessageGroupId")?;
        } else if self.config.fifo {
            return Err(SqsError::MissingParameter("MessageGroupId"));
        }
        match &outgoing.deduplication_id {
            Some(id) if self.config.fifo => check_id(id, "MessageDeduplicationId").map(|()| Some(id.clone())),
            Some(id) => Err(SqsError::invalid(
                id,
                "MessageDeduplicationId",
                "the request includes a parameter that is not valid for this queue type.",
            )),
            None if !self.config.fifo => Ok(None),
            None if self.config.content_based_deduplication => {
                Ok(Some(sha256_of_body(outgoing.body.as_deref().unwrap_or_default())))
            }
            None => Err(SqsError::InvalidParameter(
                "the queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided \
                 explicitly"
                    .into(),
            )),
        }
    }

    fn deduplication_key(&self, id: &str, group: Option<&str>) -> String {
        if self.config.deduplicates_by_group() {
            // Neither part can contain a space.
            return format!("{} {id}", group.unwrap_or_default());
        }
        id.to_owned()
    }

    /// Hands out what is visible, and hides it.
    ///
    /// # Errors
    /// [`SqsError::OverLimit`] when a standard queue has 120,000 messages in flight. A FIFO queue gives nothing then.
    pub fn receive(&mut self, now_ms: u64, receive: Receive) -> Result<Received, SqsError> {
        self.advance(now_ms);
        let is_dead = |number: u64| match receive.dead_after {
            Some(max) => self.messages.get(&number).is_some_and(|message| message.receives_here >= max),
            None => false,
        };
        let plan = match self.config.fifo {
            true => fifo::plan(&self.index, receive.max, is_dead),
            false => standard::plan(&self.index, receive.max, is_dead),
        };
        let dead: BTreeSet<u64> = plan.iter().copied().filter(|number| is_dead(*number)).collect();
        let visibility_ms = receive.visibility_s.unwrap_or(self.config.visibility_timeout_s) * 1_000;
        let mut received = Received::default();
        for number in plan {
            if dead.contains(&number) {
                received.dead.extend(self.take(number));
                continue;
            }
            if self.index.in_flight.len() >= limits::MAX_IN_FLIGHT {
                break;
            }
            received.messages.extend(self.hand_out(now_ms, number, visibility_ms));
        }
        let over = self.index.in_flight.len() >= limits::MAX_IN_FLIGHT && !self.config.fifo;
        if over && received == Received::default() {
            let text = "too many messages in flight: a queue allows 120,000. Delete messages after processing them.";
            return Err(SqsError::OverLimit(text.into()));
        }
        Ok(received)
    }

    fn hand_out(&mut self, now_ms: u64, number: u64, visibility_ms: u64) -> Option<Message> {
        let stage = Stage::InFlight { since_ms: now_ms, until_ms: now_ms + visibility_ms };
        self.restage(number, stage);
        let message = self.messages.get_mut(&number)?;
        message.receive_count = message.receive_count.saturating_add(1);
        message.receives_here = message.receives_here.saturating_add(1);
        message.first_received_ms.get_or_insert(now_ms);
        let copy = message.clone();
        // Hidden for no time at all: visible again at once, also to the next message of this answer's group.
        if visibility_ms == 0 {
            self.restage(number, Stage::Ready);
        }
        Some(copy)
    }

    /// Deletes a message by the receipt of its latest receive.
    ///
    /// An older receipt succeeds and deletes nothing ("If you use an old `ReceiptHandle`, the request will succeed, but
    /// the message might not be deleted"), so does one of a message that is gone. In a standard queue the latest
    /// receipt works after the visibility timeout too; in a FIFO queue it then fails.
    ///
    /// # Errors
    /// [`SqsError::InvalidParameter`] for a receipt that has expired in a FIFO queue.
    pub fn delete(&mut self, now_ms: u64, receipt: &Receipt) -> Result<(), SqsError> {
        self.advance(now_ms);
        let Some(message) = self.messages.get(&receipt.number) else { return Ok(()) };
        let latest = message.receives_here == receipt.receive;
        let in_flight = matches!(message.stage, Stage::InFlight { .. });
        if self.config.fifo && !(latest && in_flight) {
            return Err(SqsError::invalid(receipt.to_handle(), "ReceiptHandle", "the receipt handle has expired."));
        }
        if latest {
            self.take(receipt.number);
        }
        Ok(())
    }

    /// Hides a message in flight for `seconds` from now; 0 makes it visible.
    ///
    /// # Errors
    /// [`SqsError::MessageNotInflight`] for a message that is visible, [`SqsError::InvalidParameter`] for one that is
    /// gone or was received by somebody else since, and for a total of more than 12 hours.
    pub fn change_visibility(&mut self, now_ms: u64, receipt: &Receipt, seconds: u64) -> Result<(), SqsError> {
        self.advance(now_ms);
        let gone = "message does not exist or is not available for visibility timeout change.";
        let message = self.messages.get(&receipt.number).filter(|message| message.receives_here == receipt.receive);
        let Some(message) = message else {
            return Err(SqsError::invalid(receipt.to_handle(), "ReceiptHandle", gone));
        };
        let Stage::InFlight { since_ms, .. } = message.stage else { return Err(SqsError::MessageNotInflight) };
        let until_ms = now_ms + seconds.min(limits::MAX_VISIBILITY_S + 1) * 1_000;
        if until_ms > since_ms + limits::MAX_VISIBILITY_S * 1_000 {
            let reason = "total VisibilityTimeout for the message is beyond the limit [43200 seconds].";
            return Err(SqsError::invalid(seconds, "VisibilityTimeout", reason));
        }
        let stage = if seconds == 0 { Stage::Ready } else { Stage::InFlight { since_ms, until_ms } };
        self.restage(receipt.number, stage);
        Ok(())
    }
}

fn new_message(
    now_ms: u64,
    number: u64,
    outgoing: Outgoing,
    deduplication_id: Option<String>,
    delay_ms: u64,
) -> Message {
    let until_ms = now_ms + delay_ms;
    Message {
        number,
        id: super::message_id(number),
        size_bytes: outgoing.size_bytes(),
        body: outgoing.body.unwrap_or_default(),
        attributes: outgoing.attributes.unwrap_or_default(),
        system_attributes: outgoing.system_attributes.unwrap_or_default(),
        group_id: outgoing.group_id,
        deduplication_id,
        sent_ms: now_ms,
        first_received_ms: None,
        receive_count: 0,
        receives_here: 0,
        dead_letter_source: None,
        stage: if delay_ms == 0 { Stage::Ready } else { Stage::Delayed { until_ms } },
    }
}
