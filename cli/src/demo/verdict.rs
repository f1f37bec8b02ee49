//! What the logs say: a pure function of the recording.

use super::cast::can_replay;
use super::scenario::Recording;
use hdrhistogram::Histogram;
use leasehold_local::feed::analysis::overlaps;
use leasehold_local::feed::records::ChannelRecords;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, HashSet};

/// After SIGCONT a suspended worker may need this long to run again and drop its sockets.
const RESUME_MS: u64 = 2_000;
/// The feed notes ends and openings when it gets to them: shorter overlaps are its own scheduling.
const FEED_RESOLUTION_MS: u64 = 100;

/// The verdict. The names of its members are stable.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// Nothing replayable lost, nothing doubled, no overlap beyond what the design allows, everything owned and connected.
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
        silent: 0,
        overlap: overlap(recording),
        gaps: gaps(recording),
        write_units_per_connection_hour: units(recording),
        seconds: recording.seconds,
    };
    for channel in &channels {
        count_messages(channel, recording.table.get(&*channel.id), &mut verdict);
    }
    verdict.faults = faults(&verdict, recording);
    verdict.green = verdict.faults.is_empty();
    verdict
}

fn open(channel: &ChannelRecords) -> usize {
    channel.sockets.iter().filter(|socket| socket.closed_at_ms.is_none()).count()
}

fn count_messages(channel: &ChannelRecords, table: Option<&Vec<(String, String)>>, verdict: &mut Verdict) {
    let mut keys: HashMap<&str, HashSet<&str>> = HashMap::new();
    for (payload, sk) in table.into_iter().flatten() {
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

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::super::scenario::Fault;
    use super::*;
    use leasehold_local::feed::records::{Emitted, FeedRecords, SocketRecord, Written};
    use std::sync::Arc;

    fn socket(id: u64, opened_at_ms: u64, closed_at_ms: Option<u64>) -> SocketRecord {
        SocketRecord {
            id,
            peer: "127.0.0.1:1".parse().unwrap(),
            target: "/feed/x".into(),
            header_names: vec![],
            opened_at_ms,
            closed_at_ms,
            end: None,
            resume: None,
        }
    }

    fn emitted(id: &str, count: u64) -> Vec<Emitted> {
        (1..=count)
            .map(|seq| Emitted {
                seq,
                payload: Arc::from(format!("{id}-{seq}")),
                at_ms: seq * 500,
                while_started: true,
            })
            .collect()
    }

    fn written(id: &str, seq: u64) -> Written {
        Written { payload: Arc::from(format!("{id}-{seq}")), socket: 1, at_ms: seq * 500 }
    }

    /// One connection of a feed that can replay: ten messages, all stored, one socket.
    fn recording() -> Recording {
        let id = "replay-0000";
        let channel = ChannelRecords {
            id: Arc::from(id),
            emitted: emitted(id, 10),
            written: (1..=10).map(|seq| written(id, seq)).collect(),
            sockets: vec![socket(1, 100, None)],
            forgotten: 0,
        };
        let stored: Vec<u64> = (1..=10).map(|seq| seq * 500 + 10).collect();
        let table = (1..=10).map(|seq| (format!("{id}-{seq}"), format!("s#{seq}"))).collect();
        Recording {
            ids: vec![id.into()],
            faults: vec![],
            feed: FeedRecords { channels: vec![channel], ..FeedRecords::default() },
            feed_read_ms: 10_000,
            stored: HashMap::from([(id.into(), stored)]),
            table: HashMap::from([(id.into(), table)]),
            owned: 1,
            units: BTreeMap::new(),
            measured_ms: 3_600_000,
            seconds: 1.0,
            broken: None,
        }
    }

    fn table(recording: &mut Recording) -> &mut Vec<(String, String)> {
        recording.table.get_mut("replay-0000").unwrap()
    }

    #[test]
    fn a_run_in_which_everything_arrived_once_is_green() {
        let verdict = judge(&recording());
        assert!(verdict.green, "{:?}", verdict.faults);
        assert_eq!((verdict.sent, verdict.stored, verdict.lost, verdict.doubled), (10, 10, 0, 0));
    }

    #[test]
    fn one_missing_message_of_a_feed_that_can_replay_is_red() {
        let mut recording = recording();
        table(&mut recording).remove(4);
        let verdict = judge(&recording);
        assert_eq!((verdict.green, verdict.lost), (false, 1));
    }

    #[test]
    fn one_payload_under_two_keys_is_red() {
        let mut recording = recording();
        table(&mut recording).push(("replay-0000-3".into(), "other#3".into()));
        let verdict = judge(&recording);
        assert_eq!((verdict.green, verdict.doubled), (false, 1));
    }

    #[test]
    fn two_sockets_are_red_unless_one_is_a_suspended_process_s_until_it_runs_again() {
        let mut recording = recording();
        recording.feed.channels[0].sockets = vec![socket(1, 100, Some(8_500)), socket(2, 5_000, None)];
        let verdict = judge(&recording);
        assert_eq!((verdict.green, verdict.overlap.forbidden_s), (false, 3.5));

        let hit = HashSet::from(["replay-0000".to_owned()]);
        let fault = Fault { cause: "sigstop", at_ms: 1_000, undone_ms: Some(8_000), hit, sockets: HashSet::from([1]) };
        recording.faults = vec![fault];
        let verdict = judge(&recording);
        assert!(verdict.green, "{:?}", verdict.faults);
        let overlap = OverlapSeconds { suspended_s: 3.5, forbidden_s: 0.0, too_short_to_tell_s: 0.0 };
        assert_eq!(verdict.overlap, overlap);

        recording.feed.channels[0].sockets.push(socket(3, 5_000, Some(6_000)));
        assert_eq!(judge(&recording).overlap.forbidden_s, 1.0, "two others beside the suspended one are two owners");
    }

    #[test]
    fn a_suspended_process_that_keeps_its_socket_after_it_runs_again_is_red() {
        let mut recording = recording();
        recording.feed.channels[0].sockets = vec![socket(1, 100, Some(9_900)), socket(2, 5_000, None)];
        let hit = HashSet::from(["replay-0000".to_owned()]);
        let fault = Fault { cause: "sigstop", at_ms: 1_000, undone_ms: Some(6_000), hit, sockets: HashSet::from([1]) };
        recording.faults = vec![fault];
        // It ran again at 6,000 and has until 8,000; the socket ended at 9,900.
        assert_eq!(judge(&recording).overlap.forbidden_s, 1.9);
    }

    #[test]
    fn the_gap_is_the_silence_around_the_fault() {
        // The fault at 1,200; what was under way is stored at 1,210; then nothing until 31,000.
        assert_eq!(gap_around(&[700, 1_210, 31_000, 31_500], 1_200), Some(29_790));
        assert_eq!(gap_around(&[700], 1_200), None, "it never came back");
    }

    #[test]
    fn a_message_that_was_written_first_and_never_stored_is_lost_even_if_it_is_the_first() {
        let mut recording = recording();
        table(&mut recording).remove(0);
        assert_eq!(judge(&recording).lost, 1);
        table(&mut recording).clear();
        let verdict = judge(&recording);
        assert_eq!((verdict.lost, verdict.silent, verdict.green), (10, 1, false));
    }

    #[test]
    fn a_connection_without_an_owner_is_red() {
        let verdict = judge(&Recording { owned: 0, ..recording() });
        assert!(!verdict.green);
    }
}
