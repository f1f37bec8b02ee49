use super::*;
use crate::decide::acquire::Expected;
use crate::decide::scope::LeaseScope;
use crate::model::spec::minimal_item;
use crate::model::{AttributeValue, ConnectionId, Item, Session, SessionId};
use std::cell::Cell;

const NOW: Now = Now { lower_ms: 1_000_000, upper_ms: 1_002_000 };

fn item(started: bool, numbers: &[(&str, u64)], texts: &[(&str, &str)]) -> Item {
    let mut item = minimal_item(&ConnectionId::new("a").unwrap(), started, "wss://example.com/");
    for (name, number) in numbers {
        item.insert((*name).to_owned(), AttributeValue::N(number.to_string()));
    }
    for (name, text) in texts {
        item.insert((*name).to_owned(), AttributeValue::S((*text).to_owned()));
    }
    item
}

fn live() -> Session {
    let mut row = item(true, &[], &[]);
    row.insert("session_id".into(), AttributeValue::S("w1".into()));
    row.insert("session_state".into(), AttributeValue::S("ACTIVE".into()));
    row.insert("heartbeat".into(), AttributeValue::N("1".into()));
    row.insert("lease_expires_at_ms".into(), AttributeValue::N("1010000".into()));
    Session::from_item(&row).unwrap()
}

fn swept(item: &Item, owner: OwnerView<'_>) -> Vec<Action> {
    row(&Row::read(Some(item)), owner, false, NOW, &Timing::default(), Rules::default()).actions
}

const CLAIM: Action = Action::Claim { delay_ms: 0 };

#[test]
fn a_row_without_an_epoch_is_stamped_a_comparison_ahead_since_somebody_may_hold_it() {
    let free_at_ms = NOW.upper_ms + 75_000;
    let stamp = Action::Stamp { free_at_ms };
    let claim = Action::Claim { delay_ms: free_at_ms - NOW.lower_ms };
    assert_eq!(swept(&item(true, &[], &[]), OwnerView::NotNeeded), [stamp.clone(), claim]);
    assert_eq!(swept(&item(false, &[], &[]), OwnerView::NotNeeded), [stamp]);
}

/// Work without an owner is always claimed (svroonland/zio-kinesis PR 1083).
#[test]
fn a_free_started_row_is_claimed_when_it_is_due_also_where_no_index_shows_it() {
    let free = |numbers| swept(&item(true, numbers, &[]), OwnerView::NotNeeded);
    assert_eq!(free(&[("lease_epoch", 7), ("lease_expires_at_ms", 0)]), [CLAIM]);
    assert_eq!(free(&[("lease_epoch", 7)]), [CLAIM]);
    assert_eq!(free(&[("lease_epoch", 7), ("lease_expires_at_ms", NOW.lower_ms + 1)]), []);
}

/// An acquire that lands after its sender was fenced; a STOPPED row of a dead session, started again later.
#[test]
fn an_owner_without_a_session_row_is_over() {
    let owned = |started| item(started, &[("lease_epoch", 7)], &[("lease_owner", "w1")]);
    assert_eq!(swept(&owned(true), OwnerView::Gone), [CLAIM]);
    let expected = Expected { owner: Some(SessionId::new("w1")), epoch: Some(7), expired_by_ms: None };
    assert_eq!(swept(&owned(false), OwnerView::Gone), [Action::Reap(expected)]);
}

#[test]
fn a_live_owner_is_marked_where_it_seems_not_to_know_of_its_row() {
    let (session, mark) = (live(), [Action::Mark(SessionId::new("w1"))]);
    let owned = |started, state, age_ms: u64| {
        let numbers = [("lease_epoch", 7), ("observed_since_ms", NOW.lower_ms - age_ms)];
        swept(
            &item(started, &numbers, &[("lease_owner", "w1"), ("observed_state", state)]),
            OwnerView::Session(&session),
        )
    };
    assert_eq!(owned(false, "CONNECTED", 0), mark);
    assert_eq!(owned(true, "CONNECTING", 120_001), mark);
    assert_eq!(owned(true, "CONNECTING", 119_000), []);
    assert_eq!(owned(true, "CONNECTED", 900_000), []);
    assert_eq!(owned(true, "BACKOFF", 900_000), []);
}

#[test]
fn the_sweep_takes_an_hour_for_any_table() {
    let timing = Timing::default();
    assert_eq!(pages(0, &timing), 10);
    assert_eq!(pages(1, &timing), 1);
    assert_eq!(pages(60, &timing), 1);
    assert_eq!(pages(61, &timing), 2);
    assert_eq!(pages(6_000, &timing), 100);
}

#[test]
fn a_free_row_that_is_stamped_years_ahead_is_stamped_anew() {
    let ahead_ms = NOW.upper_ms + Timing::default().unknown_ms() + Timing::default().margin_ms;
    let swept = |started, expires_at_ms| {
        let numbers = [("lease_epoch", 7), ("lease_expires_at_ms", expires_at_ms)];
        swept(&item(started, &numbers, &[]), OwnerView::NotNeeded)
    };
    assert_eq!(swept(true, ahead_ms), [], "the sweep's own stamp, a little early");
    for expires_at_ms in [ahead_ms + 1, u64::MAX] {
        let free_at_ms = NOW.upper_ms + 75_000;
        let restamp = Action::Restamp { owner: None, epoch: 7, expires_at_ms, free_at_ms };
        let claim = Action::Claim { delay_ms: free_at_ms - NOW.lower_ms };
        assert_eq!(swept(true, expires_at_ms), [restamp.clone(), claim]);
        assert_eq!(swept(false, expires_at_ms), [restamp]);
    }
}

#[test]
fn a_row_that_is_leased_by_itself_is_taken_when_its_lease_is_past_and_its_live_owner_gets_no_mark() {
    let timing = Timing { scope: LeaseScope::Connection, ..Timing::default() };
    let (session, away) = (live(), Cell::new(false));
    let decide = |started, expires_at_ms| {
        let item =
            item(started, &[("lease_epoch", 7), ("lease_expires_at_ms", expires_at_ms)], &[("lease_owner", "w1")]);
        let (found, owner) = (Row::read(Some(&item)), OwnerView::Session(&session));
        row(&found, owner, away.get(), NOW, &timing, Rules::default()).actions
    };
    // Past is the skew of 3 s after the expiry.
    assert_eq!(decide(true, NOW.lower_ms - 3_000), [CLAIM]);
    assert_eq!(decide(true, NOW.lower_ms - 2_999), []);
    assert_eq!(decide(false, NOW.lower_ms - 2_999), [], "its renewal tells it");
    let expired_by_ms = Some(NOW.lower_ms - 3_000);
    let expected = Expected { owner: Some(SessionId::new("w1")), epoch: Some(7), expired_by_ms };
    assert_eq!(decide(false, NOW.lower_ms - 3_000), [Action::Reap(expected)]);
    let expires_at_ms = NOW.upper_ms + 1_000_000_000;
    let owner = Some(SessionId::new("w1"));
    let restamp = Action::Restamp { owner, epoch: 7, expires_at_ms, free_at_ms: NOW.upper_ms + 20_000 };
    assert_eq!(decide(true, expires_at_ms), [restamp], "no such time would ever be past");
    away.set(true);
    for started in [true, false] {
        assert_eq!(decide(started, NOW.lower_ms - 3_000), [], "its owner may live, and renews first");
    }
}
