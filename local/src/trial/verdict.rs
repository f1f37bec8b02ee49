//! What the logs say: a pure function of the recording.

use super::cast::can_replay;
use super::recording::Recording;
use super::seconds;
use crate::feed::analysis::overlaps;
use crate::feed::records::ChannelRecords;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, HashSet};

/// After SIGCONT a suspended worker may need this long to run again and drop its sockets.
const RESUME_MS: u64 = 2_000;
/// The feed notes ends and openings when it gets to them: shorter overlaps are its own scheduling.
const FEED_RESOLUTION_MS: u64 = 100;

/// The verdict. The names of its members are stable.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// Nothing replayable lost, nothing doubled, all in order, no overlap beyond what the design allows, everything owned and connected.
    pub green: bool,
    /// Why not, one sentence each.
    pub faults: Vec<String>,
    /// What was taken out of the protocol, if anything.
    pub broken: Option<String>,
    /// Connections that were started.
    pub connections: usize,
    /// Connections whose row names a live session, at the end.
    pub owned: usize,
    /// Connections with exactly one open socket, as the feed saw it, at the end.
    pub connected: usize,
    /// Messages that the feed sent while started, from the first one that it wrote to a socket.
    pub sent: u64,
    /// Of these, messages that are in the table.
    pub stored: u64,
    /// Sent by a feed that can replay, and not stored.
    pub lost: u64,
    /// Sent by a feed that cannot replay, and not stored: nobody can have them again.
    pub missed: u64,
    /// Payloads that are stored under two keys.
    pub doubled: u64,
    /// Messages whose key is above that of one that was sent after them.
    pub out_of_order: u64,
    /// Connections of which nothing at all is stored.
    pub silent: u64,
    /// Two open sockets for one connection, as the feed saw them.
    pub overlap: OverlapSeconds,
    /// From the last message stored before a fault to the first stored after, by cause.
    pub gaps: BTreeMap<&'static str, Gap>,
    /// Write units a connection-hour, by what they were for.
    pub write_units_per_connection_hour: BTreeMap<&'static str, f64>,
    /// Seconds that it took.
    pub seconds: f64,
}

/// Seconds with two open sockets, summed over connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct OverlapSeconds {
    /// A suspended process's socket, until it ran again: the design allows it, and cannot prevent it.
    pub suspended_s: f64,
    /// Anything else.
    pub forbidden_s: f64,
    /// Of what would be forbidden, spans too short for the feed's log to tell: it notes ends and openings when it gets to them.
    pub too_short_to_tell_s: f64,
}

/// The distribution of a cause's gaps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gap {
    /// Connections that were hit.
    pub connections: u64,
    /// Half of the gaps are shorter.
    pub p50_s: f64,
    /// 99 of 100 are shorter.
    pub p99_s: f64,
    /// The longest.
    pub worst_s: f64,
}

/// Judges.
#[must_use]
pub fn judge(recording: &Recording) -> Verdict {
    let ids: HashSet<&str> = recording.ids.iter().map(String::as_str).collect();
    let channels: Vec<&ChannelRecords> =
        recording.feed.channels.iter().filter(|channel| ids.contains(&*channel.id)).collect();
    let mut verdict = Verdict {
        green: false,
        faults: Vec::new(),
        broken: recording.broken.clone(),
        connections: recording.ids.len(),
        owned: recording.owned,
        connected: channels.iter().filter(|channel| open(channel) == 1).count(),
        sent: 0,
        stored: 0,
        lost: 0,
        missed: 0,
        doubled: 0,
        out_of_order: 0,
        silent: 0,
        overlap: overlap(recording),
        gaps: gaps(recording),
        write_units_per_connection_hour: units(recording),
        seconds: recording.seconds,
    };
    for channel in &channels {
        let table = recording.table.get(&*channel.id).map_or(&[][..], Vec::as_slice);
        count_messages(channel, table, &mut verdict);
        verdict.out_of_order += out_of_order(channel, table);
    }
    verdict.faults = faults(&verdict, recording);
    verdict.green = verdict.faults.is_empty();
    verdict
}

fn open(channel: &ChannelRecords) -> usize {
    channel.sockets.iter().filter(|socket| socket.closed_at_ms.is_none()).count()
}

fn count_messages(channel: &ChannelRecords, table: &[(String, String)], verdict: &mut Verdict) {
    let mut keys: HashMap<&str, HashSet<&str>> = HashMap::new();
    for (payload, sk) in table {
        keys.entry(payload).or_default().insert(sk);
    }
    verdict.doubled += keys.values().filter(|keys| keys.len() > 1).count() as u64;
    // A client without a resume point begins with what is sent then: what the feed never had a socket for was never its.
    let sent: Vec<&str> = channel.emitted.iter().filter(|sent| sent.while_started).map(|sent| &*sent.payload).collect();
    let written: HashSet<&str> = channel.written.iter().map(|write| &*write.payload).collect();
    let first = sent.iter().position(|payload| written.contains(payload)).unwrap_or(sent.len());
    if keys.is_empty() {
        verdict.silent += 1;
    }
    for payload in &sent[first..] {
        verdict.sent += 1;
        if keys.contains_key(payload) {
            verdict.stored += 1;
        } else if can_replay(&channel.id) {
            verdict.lost += 1;
        } else {
            verdict.missed += 1;
        }
    }
}

/// How often the table, read by key, goes back to what was sent earlier.
fn out_of_order(channel: &ChannelRecords, table: &[(String, String)]) -> u64 {
    let places: HashMap<&str, usize> =
        channel.emitted.iter().enumerate().map(|(place, sent)| (&*sent.payload, place)).collect();
    let mut by_key: Vec<&(String, String)> = table.iter().collect();
    by_key.sort_by(|left, right| left.1.cmp(&right.1));
    let read: Vec<usize> = by_key.iter().filter_map(|(payload, _)| places.get(payload.as_str()).copied()).collect();
    read.windows(2).filter(|pair| pair[1] < pair[0]).count() as u64
}

fn overlap(recording: &Recording) -> OverlapSeconds {
    let (mut suspended_ms, mut forbidden_ms, mut short_ms) = (0, 0, 0);
    for channel in overlaps(&recording.feed, recording.feed_read_ms) {
        for span in &channel.spans {
            let until_ms = allowed_until(recording, &span.sockets).clamp(span.from_ms, span.to_ms);
            suspended_ms += until_ms - span.from_ms;
            let beyond_ms = span.to_ms - until_ms;
            if beyond_ms > FEED_RESOLUTION_MS {
                forbidden_ms += beyond_ms;
            } else {
                short_ms += beyond_ms;
            }
        }
    }
    OverlapSeconds {
        suspended_s: seconds(suspended_ms),
        forbidden_s: seconds(forbidden_ms),
        too_short_to_tell_s: seconds(short_ms),
    }
}

/// Until when these sockets may be open together: as long as all but one are a suspended process's, until the process runs again.
fn allowed_until(recording: &Recording, sockets: &[u64]) -> u64 {
    let mut until_ms = u64::MAX;
    let mut running = 0;
    for socket in sockets {
        let fault = recording.faults.iter().find(|fault| fault.undone_ms.is_some() && fault.sockets.contains(socket));
        match fault.and_then(|fault| fault.undone_ms) {
            Some(undone_ms) => until_ms = until_ms.min(undone_ms + RESUME_MS),
            None => running += 1,
        }
    }
    if running > 1 { 0 } else { until_ms }
}

fn gaps(recording: &Recording) -> BTreeMap<&'static str, Gap> {
    let mut gaps = BTreeMap::new();
    for fault in &recording.faults {
        // Milliseconds up to an hour, to three digits.
        let Ok(mut histogram) = Histogram::<u64>::new_with_bounds(1, 3_600_000, 3) else { continue };
        for id in &fault.hit {
            let stored = recording.stored.get(id).map_or(&[][..], Vec::as_slice);
            let gap_ms = gap_around(stored, fault.at_ms).unwrap_or(recording.feed_read_ms - fault.at_ms);
            histogram.saturating_record(gap_ms);
        }
        let gap = Gap {
            connections: histogram.len(),
            p50_s: seconds(histogram.value_at_quantile(0.50)),
            p99_s: seconds(histogram.value_at_quantile(0.99)),
            worst_s: seconds(histogram.max()),
        };
        gaps.insert(fault.cause, gap);
    }
    gaps
}

/// The longest silence that touches the moment of the fault: what was under way when it struck is still stored a moment later.
fn gap_around(stored: &[u64], at_ms: u64) -> Option<u64> {
    const UNDER_WAY_MS: u64 = 1_000;
    let mut longest = None;
    for pair in stored.windows(2) {
        let (before, after) = (pair[0], pair[1]);
        if after >= at_ms && before <= at_ms + UNDER_WAY_MS {
            longest = longest.max(Some(after - before));
        }
    }
    longest
}

fn units(recording: &Recording) -> BTreeMap<&'static str, f64> {
    let hours = recording.measured_ms as f64 / 3_600_000.0 * recording.ids.len() as f64;
    let per_hour = |units: f64| (units / hours * 100.0).round() / 100.0;
    recording.units.iter().map(|(class, units)| (*class, per_hour(units.table + units.index))).collect()
}

fn faults(verdict: &Verdict, recording: &Recording) -> Vec<String> {
    let mut faults = Vec::new();
    if verdict.lost > 0 {
        faults.push(format!("{} messages of feeds that can replay are not stored", verdict.lost));
    }
    if verdict.doubled > 0 {
        faults.push(format!("{} messages are stored under two keys", verdict.doubled));
    }
    if verdict.out_of_order > 0 {
        faults.push(format!("{} messages are stored behind one that was sent later", verdict.out_of_order));
    }
    if verdict.overlap.forbidden_s > 0.0 {
        let seconds = verdict.overlap.forbidden_s;
        faults.push(format!("two sockets were open for one connection for {seconds:.1} s more than the design allows"));
    }
    if verdict.silent > 0 {
        faults.push(format!("nothing at all is stored of {} connections", verdict.silent));
    }
    if verdict.owned != verdict.connections {
        faults.push(format!("{} of {} connections have a live owner", verdict.owned, verdict.connections));
    }
    if verdict.connected != verdict.connections {
        faults.push(format!("{} of {} connections have one open socket", verdict.connected, verdict.connections));
    }
    if recording.faults.iter().any(|fault| fault.hit.is_empty()) {
        faults.push("a fault hit no connection at all: the run shows nothing about it".into());
    }
    if recording.feed.channels.iter().any(|channel| channel.forgotten > 0) {
        faults.push("the feed's log is not whole".into());
    }
    faults
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
