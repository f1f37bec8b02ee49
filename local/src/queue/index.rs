//! Which messages are ready, delayed, in flight, oldest: kept so that no call looks at every message.

use super::message::{Message, Stage};
use std::collections::{BTreeMap, BTreeSet};

/// The members of a FIFO group.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// Numbers of its messages, in order.
    pub members: BTreeSet<u64>,
    /// How many of them are in flight. While any is, the group is closed.
    pub in_flight: usize,
}

/// Views on the messages of one queue, all derived from [`Message::stage`] and [`Message::sent_ms`].
#[derive(Clone, Debug, Default)]
pub struct Index {
    /// Numbers of messages that can be received, in order.
    pub ready: BTreeSet<u64>,
    /// (end of delay, number).
    pub delayed: BTreeSet<(u64, u64)>,
    /// (end of invisibility, number).
    pub in_flight: BTreeSet<(u64, u64)>,
    /// (sent, number): the first expires first.
    pub by_age: BTreeSet<(u64, u64)>,
    /// Groups with messages. Empty for a standard queue.
    pub groups: BTreeMap<String, Group>,
}

impl Index {
    /// Takes a message in. `fifo` says whether its group orders it.
    pub fn add(&mut self, message: &Message, fifo: bool) {
        self.by_age.insert((message.sent_ms, message.number));
        if let (true, Some(group)) = (fifo, &message.group_id) {
            self.groups.entry(group.clone()).or_default().members.insert(message.number);
        }
        self.stage(message);
    }

    /// Forgets a message.
    pub fn remove(&mut self, message: &Message) {
        self.unstage(message);
        self.by_age.remove(&(message.sent_ms, message.number));
        let Some(name) = &message.group_id else { return };
        let Some(group) = self.groups.get_mut(name) else { return };
        group.members.remove(&message.number);
        if group.members.is_empty() {
            self.groups.remove(name);
        }
    }

    /// Takes the message's stage in; call [`Index::unstage`] before the stage changes.
    pub fn stage(&mut self, message: &Message) {
        match message.stage {
            Stage::Ready => _ = self.ready.insert(message.number),
            Stage::Delayed { until_ms } => _ = self.delayed.insert((until_ms, message.number)),
            Stage::InFlight { until_ms, .. } => {
                self.in_flight.insert((until_ms, message.number));
                if let Some(group) = self.group_of(message) {
                    group.in_flight += 1;
                }
            }
        }
    }

    /// Forgets the message's stage.
    pub fn unstage(&mut self, message: &Message) {
        match message.stage {
            Stage::Ready => _ = self.ready.remove(&message.number),
            Stage::Delayed { until_ms } => _ = self.delayed.remove(&(until_ms, message.number)),
            Stage::InFlight { until_ms, .. } => {
                self.in_flight.remove(&(until_ms, message.number));
                if let Some(group) = self.group_of(message) {
                    group.in_flight -= 1;
                }
            }
        }
    }

    /// The number of a message whose delay or invisibility is over at `now_ms`.
    #[must_use]
    pub fn first_due(&self, now_ms: u64) -> Option<u64> {
        let delayed = self.delayed.first().filter(|(until, _)| *until <= now_ms);
        let in_flight = self.in_flight.first().filter(|(until, _)| *until <= now_ms);
        delayed.or(in_flight).map(|(_, number)| *number)
    }

    /// When the next delay or invisibility ends.
    #[must_use]
    pub fn next_due_ms(&self) -> Option<u64> {
        let delayed = self.delayed.first().map(|(until, _)| *until);
        let in_flight = self.in_flight.first().map(|(until, _)| *until);
        delayed.into_iter().chain(in_flight).min()
    }

    fn group_of(&mut self, message: &Message) -> Option<&mut Group> {
        self.groups.get_mut(message.group_id.as_ref()?)
    }
}
