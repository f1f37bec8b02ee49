//! What the verdict makes of a recording.

use super::super::recording::Fault;
use super::*;
use crate::feed::records::{Emitted, FeedRecords, SocketRecord, Written};
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
        .map(|seq| Emitted { seq, payload: Arc::from(format!("{id}-{seq}")), at_ms: seq * 500, while_started: true })
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
    let table = (1..=10).map(|seq| (format!("{id}-{seq}"), format!("s#{seq:02}"))).collect();
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
    table(&mut recording).push(("replay-0000-3".into(), "t#03".into()));
    let verdict = judge(&recording);
    assert_eq!((verdict.green, verdict.doubled), (false, 1));
}

#[test]
fn a_message_behind_one_that_was_sent_later_is_red() {
    let mut recording = recording();
    let stored = table(&mut recording);
    stored[4].1 = "s#99".into();
    let verdict = judge(&recording);
    assert_eq!((verdict.green, verdict.out_of_order), (false, 1));
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
