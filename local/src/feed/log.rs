//! The feed's own log: the truth of a run, kept in memory within bounds.
//!
//! Each channel has a lock of its own that is held for one record (or for one copy of the channel).

use super::records::{
    ChannelRecords, Emitted, FeedRecords, Handshake, HandshakeResult, Resume, SocketEnd, SocketId, SocketRecord,
    Written,
};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How much the log keeps. The oldest records go first, and are counted; open sockets always stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimits {
    /// Messages of one channel.
    pub emitted: usize,
    /// Writes of one channel.
    pub written: usize,
    /// Closed sockets of one channel.
    pub closed_sockets: usize,
    /// Attempts to connect, all channels together.
    pub handshakes: usize,
}

impl Default for LogLimits {
    fn default() -> Self {
        Self { emitted: 200_000, written: 200_000, closed_sockets: 10_000, handshakes: 500_000 }
    }
}

/// The log of a feed.
#[derive(Debug)]
pub struct FeedLog {
    limits: LogLimits,
    channels: Mutex<BTreeMap<Arc<str>, Arc<ChannelLog>>>,
    handshakes: Mutex<Handshakes>,
}

#[derive(Debug, Default)]
struct Handshakes {
    kept: VecDeque<Handshake>,
    /// The number of the first kept one, and so how many are forgotten.
    first: u64,
}

impl FeedLog {
    pub(super) fn new(limits: LogLimits) -> Self {
        Self { limits, channels: Mutex::default(), handshakes: Mutex::default() }
    }

    /// A copy of everything. Channels are copied one after the other, while the feed goes on.
    #[must_use]
    pub fn records(&self) -> FeedRecords {
        let logs: Vec<Arc<ChannelLog>> = lock(&self.channels).values().cloned().collect();
        let channels = logs.iter().map(|log| log.records()).collect();
        let handshakes = lock(&self.handshakes);
        FeedRecords {
            channels,
            handshakes: handshakes.kept.iter().cloned().collect(),
            handshakes_forgotten: handshakes.first,
        }
    }

    /// A copy of one channel's log; `None` if nobody has named that channel yet.
    #[must_use]
    pub fn channel_records(&self, id: &str) -> Option<ChannelRecords> {
        let log = lock(&self.channels).get(id).cloned();
        log.map(|log| log.records())
    }

    pub(super) fn channel(&self, id: &Arc<str>) -> Arc<ChannelLog> {
        let mut channels = lock(&self.channels);
        let log = channels.entry(Arc::clone(id));
        Arc::clone(log.or_insert_with(|| Arc::new(ChannelLog::new(Arc::clone(id), self.limits))))
    }

    /// Notes an attempt to connect; its number is for [`Self::answered`].
    pub(super) fn attempt(&self, peer: SocketAddr, at_ms: u64) -> u64 {
        let mut handshakes = lock(&self.handshakes);
        let result = HandshakeResult::Pending;
        handshakes.kept.push_back(Handshake { at_ms, answered_at_ms: None, channel: None, peer, result });
        if handshakes.kept.len() > self.limits.handshakes {
            handshakes.kept.pop_front();
            handshakes.first += 1;
        }
        handshakes.first + handshakes.kept.len() as u64 - 1
    }

    pub(super) fn answered(&self, attempt: u64, channel: Option<Arc<str>>, result: HandshakeResult, at_ms: u64) {
        let mut handshakes = lock(&self.handshakes);
        let position = attempt.checked_sub(handshakes.first).and_then(|position| usize::try_from(position).ok());
        let Some(handshake) = position.and_then(|position| handshakes.kept.get_mut(position)) else {
            return; // pushed out by newer ones
        };
        handshake.answered_at_ms = Some(at_ms);
        handshake.channel = channel;
        handshake.result = result;
    }
}

/// The log of one channel.
#[derive(Debug)]
pub(super) struct ChannelLog {
    id: Arc<str>,
    limits: LogLimits,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    emitted: VecDeque<Emitted>,
    written: VecDeque<Written>,
    open: BTreeMap<SocketId, SocketRecord>,
    closed: VecDeque<SocketRecord>,
    forgotten: u64,
}

impl ChannelLog {
    fn new(id: Arc<str>, limits: LogLimits) -> Self {
        Self { id, limits, kept: Mutex::default() }
    }

    fn records(&self) -> ChannelRecords {
        let kept = lock(&self.kept);
        let mut sockets: Vec<SocketRecord> = kept.closed.iter().chain(kept.open.values()).cloned().collect();
        sockets.sort_by_key(|socket| (socket.opened_at_ms, socket.id));
        ChannelRecords {
            id: Arc::clone(&self.id),
            emitted: kept.emitted.iter().cloned().collect(),
            written: kept.written.iter().cloned().collect(),
            sockets,
            forgotten: kept.forgotten,
        }
    }

    pub(super) fn emitted(&self, message: Emitted) {
        let mut kept = lock(&self.kept);
        kept.emitted.push_back(message);
        if kept.emitted.len() > self.limits.emitted {
            kept.emitted.pop_front();
            kept.forgotten += 1;
        }
    }

    pub(super) fn written(&self, write: Written) {
        let mut kept = lock(&self.kept);
        kept.written.push_back(write);
        if kept.written.len() > self.limits.written {
            kept.written.pop_front();
            kept.forgotten += 1;
        }
    }

    pub(super) fn opened(&self, socket: SocketRecord) {
        lock(&self.kept).open.insert(socket.id, socket);
    }

    pub(super) fn resumed(&self, socket: SocketId, resume: Resume) {
        if let Some(record) = lock(&self.kept).open.get_mut(&socket) {
            record.resume = Some(resume);
        }
    }

    /// Notes the end of a socket; only the first end counts.
    pub(super) fn closed(&self, socket: SocketId, end: SocketEnd, at_ms: u64) {
        let mut kept = lock(&self.kept);
        let Some(mut record) = kept.open.remove(&socket) else {
            return;
        };
        record.closed_at_ms = Some(at_ms);
        record.end = Some(end);
        kept.closed.push_back(record);
        if kept.closed.len() > self.limits.closed_sockets {
            kept.closed.pop_front();
            kept.forgotten += 1;
        }
    }
}

/// A panic elsewhere leaves whole records behind: the data is used on.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(each: usize) -> LogLimits {
        LogLimits { emitted: each, written: each, closed_sockets: each, handshakes: each }
    }

    fn peer() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 9))
    }

    fn socket(id: SocketId, opened_at_ms: u64) -> SocketRecord {
        let target = "/feed/a".to_owned();
        let header_names = Vec::new();
        SocketRecord {
            id,
            peer: peer(),
            target,
            header_names,
            opened_at_ms,
            closed_at_ms: None,
            end: None,
            resume: None,
        }
    }

    #[test]
    fn the_oldest_records_go_first_and_are_counted() {
        let log = FeedLog::new(limits(2));
        let channel = log.channel(&Arc::from("a"));
        for seq in 1..=3 {
            channel.emitted(Emitted { seq, payload: Arc::from(format!("a-{seq}")), at_ms: seq, while_started: true });
        }
        let records = log.channel_records("a").expect("named above");
        assert_eq!(records.emitted.iter().map(|message| message.seq).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(records.forgotten, 1);
    }

    #[test]
    fn open_sockets_are_never_forgotten_and_an_end_is_noted_once() {
        let log = FeedLog::new(limits(1));
        let channel = log.channel(&Arc::from("a"));
        for id in 1..=3 {
            channel.opened(socket(id, id));
        }
        channel.closed(2, SocketEnd::Eof, 10);
        channel.closed(2, SocketEnd::Reset, 11);
        channel.closed(3, SocketEnd::Reset, 12);
        let sockets = log.channel_records("a").expect("named above").sockets;
        assert_eq!(
            sockets.iter().map(|socket| (socket.id, socket.closed_at_ms)).collect::<Vec<_>>(),
            [(1, None), (3, Some(12))]
        );
    }

    #[test]
    fn an_answer_to_a_forgotten_attempt_changes_no_other() {
        let log = FeedLog::new(limits(1));
        let first = log.attempt(peer(), 1);
        let second = log.attempt(peer(), 2);
        log.answered(first, None, HandshakeResult::NotFound, 3);
        assert_eq!(log.records().handshakes[0].result, HandshakeResult::Pending);
        log.answered(second, None, HandshakeResult::Accepted(7), 4);
        let records = log.records();
        assert_eq!(records.handshakes[0].result, HandshakeResult::Accepted(7));
        assert_eq!(records.handshakes_forgotten, 1);
    }
}
