//! What a run's log says: pure functions over [`FeedRecords`].
//!
//! A socket counts as open from its 101 answer until the feed saw its end. The kernel closes the sockets of a killed
//! process at once (as an end of stream, or as a reset if it had left something unread); those of a stopped (SIGSTOP)
//! process stay open until it runs again.

use super::records::{
    ChannelRecords, Emitted, FeedRecords, Handshake, HandshakeResult, OurReason, SocketEnd, SocketId,
};
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

/// A time with the same two or more sockets open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverlapSpan {
    /// Start, milliseconds of the feed's monotonic clock.
    pub from_ms: u64,
    /// End.
    pub to_ms: u64,
    /// The sockets, ascending.
    pub sockets: Vec<SocketId>,
}

/// How long a channel had two or more sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// The channel.
    pub channel: Arc<str>,
    /// All spans together.
    pub total_ms: u64,
    /// The spans in order; none is empty, and neighbours differ in their sockets.
    pub spans: Vec<OverlapSpan>,
}

/// The channels that ever had two or more sockets open at once, with the times. A socket that is still open is open
/// until `now_ms`. Times are whole milliseconds: what is shorter does not show.
#[must_use]
pub fn overlaps(records: &FeedRecords, now_ms: u64) -> Vec<Overlap> {
    let mut found = Vec::new();
    for channel in &records.channels {
        let spans = overlap_spans(channel, now_ms);
        if !spans.is_empty() {
            let total_ms = spans.iter().map(|span| span.to_ms - span.from_ms).sum();
            found.push(Overlap { channel: Arc::clone(&channel.id), total_ms, spans });
        }
    }
    found
}

fn overlap_spans(channel: &ChannelRecords, now_ms: u64) -> Vec<OverlapSpan> {
    // (time, opens, socket): at equal times ends come before openings, so that a hand-over is no overlap.
    let mut edges: Vec<(u64, bool, SocketId)> = Vec::new();
    for socket in &channel.sockets {
        let end_ms = socket.closed_at_ms.unwrap_or(now_ms);
        if end_ms > socket.opened_at_ms {
            edges.push((socket.opened_at_ms, true, socket.id));
            edges.push((end_ms, false, socket.id));
        }
    }
    edges.sort_unstable();

    let mut spans = Vec::new();
    let mut open: BTreeSet<SocketId> = BTreeSet::new();
    let mut since_ms = 0;
    for (at_ms, opens, socket) in edges {
        if open.len() >= 2 && at_ms > since_ms {
            spans.push(OverlapSpan { from_ms: since_ms, to_ms: at_ms, sockets: open.iter().copied().collect() });
        }
        since_ms = at_ms;
        if opens {
            open.insert(socket);
        } else {
            open.remove(&socket);
        }
    }
    spans
}

/// Messages that the channel emitted in `from_ms..to_ms`, in order.
#[must_use]
pub fn emitted(channel: &ChannelRecords, from_ms: u64, to_ms: u64) -> Vec<&Emitted> {
    channel.emitted.iter().filter(|message| (from_ms..to_ms).contains(&message.at_ms)).collect()
}

/// Messages that no socket ever got, in order.
#[must_use]
pub fn never_written(channel: &ChannelRecords) -> Vec<&Emitted> {
    let written: HashSet<&str> = channel.written.iter().map(|write| &*write.payload).collect();
    channel.emitted.iter().filter(|message| !written.contains(&*message.payload)).collect()
}

/// Sockets that the feed closed because the client read too slowly.
#[must_use]
pub fn slow_consumers(records: &FeedRecords) -> usize {
    let slow = Some(SocketEnd::Ours(OurReason::SlowConsumer));
    records.channels.iter().flat_map(|channel| &channel.sockets).filter(|socket| socket.end == slow).count()
}

/// Attempts to connect in one interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrivals {
    /// Start of the interval, milliseconds of the feed's monotonic clock.
    pub from_ms: u64,
    /// Attempts whose TCP connection was accepted in it.
    pub attempts: u64,
    /// Those of them that became a socket.
    pub accepted: u64,
}

/// The arrival curve of `from_ms..to_ms` in intervals of `interval_ms` (at least 1), empty ones included.
#[must_use]
pub fn arrivals(handshakes: &[Handshake], from_ms: u64, to_ms: u64, interval_ms: u64) -> Vec<Arrivals> {
    let interval_ms = interval_ms.max(1);
    let mut curve = Vec::new();
    let mut start_ms = from_ms;
    while start_ms < to_ms {
        curve.push(Arrivals { from_ms: start_ms, attempts: 0, accepted: 0 });
        start_ms = start_ms.saturating_add(interval_ms);
    }
    for handshake in handshakes {
        if handshake.at_ms < from_ms || handshake.at_ms >= to_ms {
            continue;
        }
        let position = (handshake.at_ms - from_ms) / interval_ms;
        let Some(interval) = usize::try_from(position).ok().and_then(|position| curve.get_mut(position)) else {
            continue;
        };
        interval.attempts += 1;
        interval.accepted += u64::from(matches!(handshake.result, HandshakeResult::Accepted(_)));
    }
    curve
}

#[cfg(test)]
mod tests {
    use super::super::records::{SocketRecord, Written};
    use super::*;
    use std::net::SocketAddr;

    fn peer() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 9))
    }

    fn socket(id: SocketId, opened_at_ms: u64, closed_at_ms: Option<u64>) -> SocketRecord {
        SocketRecord {
            id,
            peer: peer(),
            target: "/feed/a".to_owned(),
            header_names: Vec::new(),
            opened_at_ms,
            closed_at_ms,
            end: closed_at_ms.map(|_| SocketEnd::Eof),
            resume: None,
        }
    }

    fn channel(sockets: Vec<SocketRecord>) -> ChannelRecords {
        ChannelRecords { id: Arc::from("a"), emitted: Vec::new(), written: Vec::new(), sockets, forgotten: 0 }
    }

    fn overlaps_of(sockets: Vec<SocketRecord>, now_ms: u64) -> Vec<Overlap> {
        overlaps(&FeedRecords { channels: vec![channel(sockets)], ..FeedRecords::default() }, now_ms)
    }

    fn message(seq: u64, at_ms: u64) -> Emitted {
        Emitted { seq, payload: Arc::from(format!("a-{seq}")), at_ms, while_started: true }
    }

    #[test]
    fn a_hand_over_is_no_overlap() {
        assert_eq!(
            overlaps_of(vec![socket(1, 0, Some(100)), socket(2, 100, Some(200)), socket(3, 250, None)], 900),
            []
        );
    }

    #[test]
    fn two_sockets_at_once_are_an_overlap_until_the_first_ends() {
        let found = overlaps_of(vec![socket(1, 0, Some(100)), socket(2, 70, Some(200))], 900);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].total_ms, 30);
        assert_eq!(found[0].spans, [OverlapSpan { from_ms: 70, to_ms: 100, sockets: vec![1, 2] }]);
    }

    #[test]
    fn a_socket_still_open_overlaps_until_now() {
        // A stopped process: its socket stays open while its successor connects.
        let found = overlaps_of(vec![socket(1, 0, None), socket(2, 400, None)], 1_000);
        assert_eq!(found[0].total_ms, 600);
    }

    #[test]
    fn three_sockets_are_counted_once_and_shown_apart() {
        let found = overlaps_of(vec![socket(1, 0, Some(50)), socket(2, 10, Some(40)), socket(3, 20, Some(30))], 100);
        assert_eq!(found[0].total_ms, 30);
        let sockets: Vec<Vec<SocketId>> = found[0].spans.iter().map(|span| span.sockets.clone()).collect();
        assert_eq!(sockets, [vec![1, 2], vec![1, 2, 3], vec![1, 2]]);
    }

    #[test]
    fn a_socket_that_opened_and_ended_within_a_millisecond_does_not_show() {
        assert_eq!(overlaps_of(vec![socket(1, 0, None), socket(2, 5, Some(5))], 100), []);
    }

    #[test]
    fn emitted_takes_the_start_and_leaves_the_end() {
        let mut channel = channel(Vec::new());
        channel.emitted = vec![message(1, 10), message(2, 20), message(3, 30)];
        let seqs: Vec<u64> = emitted(&channel, 10, 30).iter().map(|message| message.seq).collect();
        assert_eq!(seqs, [1, 2]);
    }

    #[test]
    fn what_no_socket_got_is_found() {
        let mut channel = channel(Vec::new());
        channel.emitted = vec![message(1, 10), message(2, 20), message(3, 30)];
        for payload in ["a-1", "a-3", "a-3"] {
            channel.written.push(Written { payload: Arc::from(payload), socket: 1, at_ms: 40 });
        }
        assert_eq!(never_written(&channel), [&message(2, 20)]);
    }

    #[test]
    fn the_arrival_curve_shows_empty_intervals_and_refusals() {
        let handshake =
            |at_ms, result| Handshake { at_ms, answered_at_ms: Some(at_ms), channel: None, peer: peer(), result };
        let handshakes = [
            handshake(99, HandshakeResult::Accepted(1)),
            handshake(100, HandshakeResult::Accepted(2)),
            handshake(109, HandshakeResult::Refused(429)),
            handshake(125, HandshakeResult::Accepted(3)),
            handshake(130, HandshakeResult::Accepted(4)),
        ];
        assert_eq!(
            arrivals(&handshakes, 100, 130, 10),
            [
                Arrivals { from_ms: 100, attempts: 2, accepted: 1 },
                Arrivals { from_ms: 110, attempts: 0, accepted: 0 },
                Arrivals { from_ms: 120, attempts: 1, accepted: 1 },
            ]
        );
    }
}
