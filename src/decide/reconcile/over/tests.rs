use super::*;
use crate::decide::acquire::Expected;
use crate::decide::desired::Action;
use crate::model::spec::minimal_item;
use crate::model::{AttributeValue, SessionState};

const HOUR_MS: u64 = 3_600_000;

fn now(ms: u64) -> Now {
    Now { lower_ms: ms, upper_ms: ms + 1_000 }
}

fn session(over_at_ms: u64, empty_since_ms: Option<u64>) -> Session {
    Session { over_at_ms: Some(over_at_ms), empty_since_ms, ..Session::sample("w1", SessionState::Fenced) }
}

fn row(started: bool, owner: &str) -> Item {
    let mut item = minimal_item(&ConnectionId::new("a").unwrap(), started, "wss://example.com/");
    item.insert("lease_owner".into(), AttributeValue::S(owner.into()));
    item.insert("lease_epoch".into(), AttributeValue::N("7".into()));
    item
}

#[test]
fn an_over_session_is_looked_at_each_run_for_ten_minutes_and_then_each_minute() {
    let timing = Timing::default();
    let over = session(HOUR_MS, None);
    assert!(is_looked_at(&over, false, now(HOUR_MS + 599_000), &timing));
    assert!(!is_looked_at(&over, false, now(HOUR_MS + 601_000), &timing));
    assert!(is_looked_at(&over, true, now(HOUR_MS + 601_000), &timing));
    assert!(looks_often(&over, now(HOUR_MS + 600_000), &timing));
    assert!(!looks_often(&over, now(HOUR_MS + 600_001), &timing));
}

#[test]
fn started_rows_are_claimed_at_once_when_fresh_and_in_their_turn_otherwise() {
    let timing = Timing::default();
    let nobody = Turns::since(HOUR_MS, HOUR_MS, &timing);
    let id = ConnectionId::new("a").unwrap();
    assert_eq!(index_row(&row(true, "w1"), true, nobody), Ok(IndexRow::Claim(id.clone())));
    assert_eq!(index_row(&row(true, "w1"), false, nobody), Ok(IndexRow::Wait(ConnectionId::new("a").unwrap())));
    let all = Turns::since(0, HOUR_MS, &timing);
    assert_eq!(index_row(&row(true, "w1"), false, all), Ok(IndexRow::Claim(id.clone())));
    assert_eq!(index_row(&row(false, "w1"), false, nobody), Ok(IndexRow::Read(id)));
}

/// A STOPPED row of a dead session, started again later.
#[test]
fn a_row_is_reaped_as_it_was_read_and_only_if_it_still_names_the_session() {
    let (w1, timing) = (SessionId::new("w1"), Timing::default());
    let decide = |row: &Row| read_row(row, &w1, now(HOUR_MS), &timing).actions;
    let read = |started, owner| decide(&Row::read(Some(&row(started, owner))));
    let expected = Expected { owner: Some(w1.clone()), epoch: Some(7), expired_by_ms: None };
    assert_eq!(read(false, "w1"), [Action::Reap(expected)]);
    assert_eq!(read(false, "w2"), []);
    assert_eq!(read(true, "w1"), [Action::Claim { delay_ms: 0 }], "started again meanwhile");
    assert_eq!(decide(&Row::Gone), []);
}

#[test]
fn a_session_goes_after_a_day_and_two_empty_looks_ten_minutes_apart() {
    let timing = Timing::default();
    let day = 25 * HOUR_MS;
    assert_eq!(keep(&session(HOUR_MS, None), true, now(day), &timing), Keep::NoteEmpty(Some(day + 1_000)));
    assert_eq!(keep(&session(HOUR_MS, Some(day)), true, now(day + 599_999), &timing), Keep::AsItIs);
    assert_eq!(keep(&session(HOUR_MS, Some(day)), true, now(day + 600_000), &timing), Keep::Remove);
    assert_eq!(keep(&session(HOUR_MS, Some(2 * HOUR_MS)), true, now(day - 1), &timing), Keep::AsItIs);
    assert_eq!(keep(&session(HOUR_MS, Some(day)), false, now(2 * day), &timing), Keep::NoteEmpty(None));
    let active = Session { state: SessionState::Active, ..session(HOUR_MS, Some(day)) };
    assert_eq!(keep(&active, true, now(2 * day), &timing), Keep::AsItIs);
}
