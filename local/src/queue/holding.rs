//! What a queue holds: room, expiry, moves in and out.

use super::limits;
use super::message::{Message, Stage};
use super::state::{Counts, QueueState};

impl QueueState {
    /// Lets time pass: drops what is older than the retention, and shows what is no longer delayed or hidden.
    pub fn advance(&mut self, now_ms: u64) {
        let retention_ms = self.config.retention_s * 1_000;
        while let Some(&(sent_ms, number)) = self.index.by_age.first() {
            if sent_ms.saturating_add(retention_ms) > now_ms {
                break;
            }
            self.take(number);
        }
        while let Some(number) = self.index.first_due(now_ms) {
            self.restage(number, Stage::Ready);
        }
        self.deduplication.expire(now_ms);
    }

    /// When a message next becomes visible by itself, milliseconds since the Unix epoch.
    #[must_use]
    pub fn next_visible_ms(&self) -> Option<u64> {
        self.index.next_due_ms()
    }

    /// Messages by state.
    pub fn counts(&mut self, now_ms: u64) -> Counts {
        self.advance(now_ms);
        Counts {
            visible: self.index.ready.len(),
            not_visible: self.index.in_flight.len(),
            delayed: self.index.delayed.len(),
        }
    }

    /// Deletes every message, in flight or not. Deduplication ids stay.
    pub fn purge(&mut self, now_ms: u64) {
        self.messages.clear();
        self.index = Default::default();
        self.bytes = 0;
        self.purged_ms = Some(now_ms);
    }

    /// Whether another message of this size fits.
    #[must_use]
    pub fn has_room_for(&self, size_bytes: usize) -> bool {
        self.messages.len() < self.limits.max_messages && self.bytes + size_bytes <= self.limits.max_bytes
    }

    /// Takes a dead letter in. It keeps its id, and in a standard queue the time it was sent, so its retention goes on;
    /// in a FIFO queue that time starts again (source: "dead-letter queues", message retention).
    ///
    /// No deduplication: a message is never lost on its way.
    pub fn accept_dead_letter(&mut self, now_ms: u64, number: u64, source: &str, mut message: Message) {
        message.number = number;
        message.stage = Stage::Ready;
        message.receives_here = 0;
        message.dead_letter_source = Some(source.to_owned());
        if self.config.fifo {
            message.sent_ms = now_ms;
        }
        self.put(message);
    }

    /// Takes a redriven message in: a new message, with a new id and time of sending (source: "dead-letter queue
    /// redrive").
    pub fn accept_redriven(&mut self, now_ms: u64, number: u64, mut message: Message) {
        message.number = number;
        message.id = super::message_id(number);
        message.stage = Stage::Ready;
        message.sent_ms = now_ms;
        message.first_received_ms = None;
        message.receive_count = 0;
        message.receives_here = 0;
        message.dead_letter_source = None;
        self.put(message);
    }

    /// The oldest visible message.
    #[must_use]
    pub fn first_ready(&self) -> Option<&Message> {
        self.messages.get(self.index.ready.first()?)
    }

    /// A FIFO queue's delay holds for the messages that are there already; a standard queue's for new ones only
    /// (source: "delay queues").
    pub fn redelay(&mut self) {
        if !self.config.fifo {
            return;
        }
        let delayed: Vec<u64> = self.index.delayed.iter().map(|(_, number)| *number).collect();
        for number in delayed {
            let Some(sent_ms) = self.messages.get(&number).map(|message| message.sent_ms) else { continue };
            self.restage(number, Stage::Delayed { until_ms: sent_ms + self.config.delay_s * 1_000 });
        }
    }

    /// How long until a purge is allowed again, in milliseconds.
    #[must_use]
    pub fn purge_rests_ms(&self, now_ms: u64) -> u64 {
        let rests_until = self.purged_ms.map_or(0, |purged_ms| purged_ms + limits::SETTLE_MS);
        rests_until.saturating_sub(now_ms)
    }

    pub(super) fn put(&mut self, message: Message) {
        self.bytes += message.size_bytes;
        self.index.add(&message, self.config.fifo);
        self.messages.insert(message.number, message);
    }

    pub(super) fn take(&mut self, number: u64) -> Option<Message> {
        let message = self.messages.remove(&number);
        // The two always agree; forgetting the age keeps `advance` from spinning if they ever did not.
        match &message {
            Some(message) => {
                self.index.remove(message);
                self.bytes -= message.size_bytes;
            }
            None => self.index.by_age.retain(|(_, other)| *other != number),
        }
        message
    }

    pub(super) fn restage(&mut self, number: u64, stage: Stage) {
        let Some(message) = self.messages.get_mut(&number) else { return };
        self.index.unstage(message);
        message.stage = stage;
        self.index.stage(message);
    }
}
