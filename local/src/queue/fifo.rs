//! What is different in a FIFO queue: order within groups, and deduplication.

use super::index::Index;
use super::limits;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Numbers of messages to take, in order, so that at most `max` of them are not dead (see [`super::standard::plan`]).
///
/// Source: "FIFO queue delivery logic" in the SQS developer guide. A group with a message in flight gives nothing.
/// One receive takes as many messages of one group as it can, in order, before it turns to the next group. Groups come
/// in the order of their oldest messages. A delayed message holds back what is behind it in its group.
pub fn plan(index: &Index, max: usize, is_dead: impl Fn(u64) -> bool) -> Vec<u64> {
    let mut open = Vec::new();
    for group in index.groups.values() {
        if group.in_flight == 0
            && let Some(head) = group.members.first()
        {
            open.push((*head, group));
        }
    }
    open.sort_unstable_by_key(|(head, _)| *head);

    let mut plan = Vec::new();
    let mut alive = 0;
    for (_, group) in open {
        for &number in &group.members {
            if alive == max || !index.ready.contains(&number) {
                break;
            }
            if !is_dead(number) {
                alive += 1;
            }
            plan.push(number);
        }
    }
    plan
}

/// What the first message with a deduplication id was answered, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// `MessageId` of the message that was taken.
    pub message_id: String,
    /// Its number.
    pub number: u64,
    /// When it was sent.
    pub sent_ms: u64,
}

/// Deduplication ids of the last five minutes. They outlive their messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deduplication {
    seen: BTreeMap<String, Seen>,
    /// (sent, key), oldest first.
    #[serde(default)]
    by_age: BTreeSet<(u64, String)>,
}

impl Deduplication {
    /// Forgets what is five minutes old or older.
    pub fn expire(&mut self, now_ms: u64) {
        while let Some((sent_ms, key)) = self.by_age.first().cloned() {
            if sent_ms.saturating_add(limits::DEDUPLICATION_MS) > now_ms {
                break;
            }
            self.by_age.pop_first();
            self.seen.remove(&key);
        }
    }

    /// The message that `key` would be a duplicate of.
    #[must_use]
    pub fn find(&self, key: &str) -> Option<&Seen> {
        self.seen.get(key)
    }

    /// Remembers a message. The interval counts from this one; a duplicate does not lengthen it.
    pub fn remember(&mut self, key: String, seen: Seen) {
        self.by_age.insert((seen.sent_ms, key.clone()));
        self.seen.insert(key, seen);
    }

    /// How many ids are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.seen.len()
    }

    /// Whether none is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }
}
