use super::*;
use crate::model::spec::minimal_item;
use crate::model::{Session, SessionState};

const NOW: Now = Now { lower_ms: 100_000, upper_ms: 102_000 };

fn session(id: &str, state: SessionState) -> Session {
    Session { lease_expires_at_ms: 110_000, ..Session::sample(id, state) }
}

/// A row as people write it, with what else is said.
fn item(started: bool, more: &[(&str, AttributeValue)]) -> Item {
    let mut item = minimal_item(&ConnectionId::new("a").unwrap(), started, "wss://example.com/");
    for (name, value) in more {
        item.insert((*name).to_owned(), value.clone());
    }
    item
}

fn s(text: &str) -> AttributeValue {
    AttributeValue::S(text.into())
}

fn n(number: u64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

fn owned(started: bool) -> Item {
    item(started, &[("lease_owner", s("w1")), ("lease_epoch", n(7))])
}

fn free(started: bool, expires_at_ms: u64) -> Item {
    item(started, &[("lease_epoch", n(7)), ("lease_expires_at_ms", n(expires_at_ms))])
}

/// Decides; w1 is live or over, w0 owned the row before where `old` says so.
fn decided(row: Option<&Item>, w1: SessionState, old: Option<SessionState>) -> Vec<Action> {
    let (w0, w1) = (session("w0", old.unwrap_or(SessionState::Active)), session("w1", w1));
    let row = Row::read(row);
    let olds = [(SessionId::new("w0"), OwnerView::Session(&w0))];
    let old_owners = if old.is_some() { &olds[..] } else { &[] };
    let owner = if row.owner().is_some() { OwnerView::Session(&w1) } else { OwnerView::NotNeeded };
    let seen = Seen { old_owners, row: &row, owner };
    decide(&seen, NOW, &Timing::default(), Rules::default()).actions
}

fn mark(id: &str) -> Action {
    Action::Mark(SessionId::new(id))
}

const ACTIVE: SessionState = SessionState::Active;
const FENCED: SessionState = SessionState::Fenced;
const CLAIM: Action = Action::Claim { delay_ms: 0 };

#[test]
fn a_new_row_is_stamped_and_claimed_at_once_and_a_stopped_one_is_only_stamped() {
    let stamp = Action::Stamp { free_at_ms: 0 };
    assert_eq!(decided(Some(&item(true, &[])), ACTIVE, None), [stamp.clone(), CLAIM]);
    assert_eq!(decided(Some(&item(false, &[])), ACTIVE, None), [stamp]);
}

/// A row overwritten by hand with three attributes while a worker holds it.
#[test]
fn a_row_overwritten_under_a_live_owner_is_marked_first_and_free_only_when_the_owner_has_heard() {
    let free_at_ms = NOW.upper_ms + 15_000;
    let expected = [mark("w0"), Action::Stamp { free_at_ms }, Action::Claim { delay_ms: free_at_ms - NOW.lower_ms }];
    assert_eq!(decided(Some(&item(true, &[])), ACTIVE, Some(ACTIVE)), expected);
}

#[test]
fn a_row_overwritten_under_an_owner_that_is_over_is_free_at_once() {
    assert_eq!(decided(Some(&item(true, &[])), ACTIVE, Some(FENCED)), [Action::Stamp { free_at_ms: 0 }, CLAIM]);
}

#[test]
fn the_owner_of_a_removed_row_is_marked_unless_it_is_over() {
    assert_eq!(decided(None, ACTIVE, Some(ACTIVE)), [mark("w0")]);
    assert_eq!(decided(None, ACTIVE, Some(FENCED)), []);
    assert_eq!(decided(None, ACTIVE, None), []);
}

#[test]
fn a_live_owner_is_marked_and_the_one_before_as_well() {
    assert_eq!(decided(Some(&owned(false)), ACTIVE, None), [mark("w1")]);
    assert_eq!(decided(Some(&owned(true)), ACTIVE, Some(ACTIVE)), [mark("w0"), mark("w1")]);
    assert_eq!(decided(Some(&owned(true)), ACTIVE, Some(FENCED)), [mark("w1")]);
}

/// An acquire that lands after its sender was fenced.
#[test]
fn a_started_row_of_an_owner_that_is_over_is_claimed() {
    assert_eq!(decided(Some(&owned(true)), FENCED, None), [CLAIM]);
    assert_eq!(decided(Some(&owned(true)), SessionState::Ended, None), [CLAIM]);
}

/// A STOPPED row of a dead session, started again later.
#[test]
fn a_stopped_row_of_an_owner_that_is_over_is_reaped_as_it_was_read() {
    let expected = Expected { owner: Some(SessionId::new("w1")), epoch: Some(7), expired_by_ms: None };
    assert_eq!(decided(Some(&owned(false)), FENCED, None), [Action::Reap(expected)]);
}

/// After START, STOP, START each of the three changes finds the row STARTED.
#[test]
fn a_free_started_row_is_claimed_whatever_the_change_was() {
    assert_eq!(decided(Some(&free(true, 0)), ACTIVE, None), [CLAIM]);
    assert_eq!(decided(Some(&free(false, 0)), ACTIVE, None), []);
}

#[test]
fn a_row_stamped_ahead_is_claimed_when_it_is_free() {
    assert_eq!(decided(Some(&free(true, 104_500)), ACTIVE, None), [Action::Claim { delay_ms: 4_500 }]);
}

#[test]
fn an_unknown_wish_is_refused_on_the_row_with_what_belongs_there_and_only_once() {
    let fault = "desired_state is \"started\": it must be STARTED or STOPPED";
    let mut row = free(false, 0);
    row.insert("desired_state".into(), s("started"));
    assert_eq!(decided(Some(&row), ACTIVE, None), [Action::WriteFault(fault.into())]);
    row.insert("observed_state".into(), s("PARKED"));
    row.insert("reason".into(), s(fault));
    assert_eq!(decided(Some(&row), ACTIVE, None), []);
}

#[test]
fn an_unusable_spec_is_not_claimed_but_a_live_owner_hears_of_it() {
    let mut row = item(true, &[("ws_url", s("http://example.com/"))]);
    let actions = decided(Some(&row), ACTIVE, None);
    let [Action::Stamp { free_at_ms: 0 }, Action::WriteFault(fault)] = &actions[..] else { panic!("{actions:?}") };
    assert!(fault.contains("ws_url is of scheme \"http\"") && fault.contains("must be"), "{fault}");
    row.insert("lease_owner".into(), s("w1"));
    assert_eq!(decided(Some(&row), ACTIVE, None), [mark("w1")]);
}

#[test]
fn an_unreadable_row_says_so_if_it_is_free_and_marks_its_live_owner_if_not() {
    let mut row = item(true, &[("desired_state", AttributeValue::Bool(true))]);
    let fault = "desired_state is of type BOOL: it must be a string";
    assert_eq!(decided(Some(&row), ACTIVE, None), [Action::WriteFault(fault.into())]);
    row.insert("lease_owner".into(), s("w1"));
    assert_eq!(decided(Some(&row), ACTIVE, None), [mark("w1")]);
    assert_eq!(decided(Some(&row), FENCED, None), []);
}

#[test]
fn several_changes_of_one_row_mark_an_old_owner_once() {
    let w0 = session("w0", ACTIVE);
    let old = (SessionId::new("w0"), OwnerView::Session(&w0));
    let seen = Seen { old_owners: &[old.clone(), old], row: &Row::Gone, owner: OwnerView::NotNeeded };
    assert_eq!(decide(&seen, NOW, &Timing::default(), Rules::default()).actions, [mark("w0")]);
}

#[test]
fn our_own_writes_ask_for_nothing() {
    let (unstamped, free, owned) = (item(true, &[]), free(true, 0), owned(true));
    let checkpoint = item(true, &[("lease_owner", s("w1")), ("lease_epoch", n(7)), ("last_seq", n(5))]);
    let cases = [(&unstamped, &free), (&free, &owned), (&owned, &checkpoint), (&owned, &free)];
    for (old, new) in cases {
        assert!(!wants_look(Some(old), Some(new)), "{old:?} to {new:?}");
    }
}

#[test]
fn each_pattern_of_the_filter_asks_for_a_look() {
    let flagged = item(true, &[("lease_owner", s("w1")), ("lease_epoch", n(7)), ("spec_changed", s("1"))]);
    let cases = [
        (None, Some(item(false, &[]))),
        (Some(owned(true)), Some(owned(false))),
        (Some(owned(false)), Some(owned(true))),
        (Some(owned(false)), Some(item(false, &[]))),
        (Some(owned(false)), None),
        (Some(item(true, &[])), None),
        (Some(owned(true)), Some(flagged)),
    ];
    for (old, new) in &cases {
        assert!(wants_look(old.as_ref(), new.as_ref()), "{old:?} to {new:?}");
    }
}
