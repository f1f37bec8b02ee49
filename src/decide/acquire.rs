//! What a worker does with a claim, with a mark, and with the answer to an acquire.

use super::lease_time::Now;
use super::scope::{expired_by_ms, has_expired, owner_is_over, row_expiry_ms};
use super::timing::{Rules, Timing};
use crate::model::connection::EPOCH_END;
use crate::model::{Connection, Session, SessionId};

/// What was read of a row's lease: the condition of the write that takes it or frees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The owner that was read.
    pub owner: Option<SessionId>,
    /// The epoch that was read.
    pub epoch: Option<u64>,
    /// The row's expiry must be absent or at most this, where it decides.
    pub expired_by_ms: Option<u64>,
}

impl Expected {
    /// What a row shows that `me` (a worker's session, if it is one) takes or frees at `now`.
    #[must_use]
    pub fn of(row: &Connection, me: Option<&SessionId>, now: Now, timing: &Timing) -> Self {
        let expired_by_ms = expired_by_ms(&row.lease, me, now, timing);
        Self { owner: row.lease.owner.clone(), epoch: row.lease.epoch, expired_by_ms }
    }
}

/// One conditional write that makes a session the owner. Sent as often as needed, it changes the row once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquire {
    /// What must still be there.
    pub expected: Expected,
    /// The epoch that is written.
    pub epoch: u64,
    /// The expiry that is written, where rows are leased by themselves; otherwise it is removed.
    pub expires_at_ms: Option<u64>,
    /// The row's list of former owners, with the one that is taken over.
    pub owners: Vec<String>,
}

/// The list of former owners takes at most so many bytes: a write bills the whole row.
const OWNERS_BYTES: usize = 300;

/// The list of former owners with one more, and why it ended; the oldest go first when it grows too long.
#[must_use]
pub fn with_former_owner(owners: &[String], owner: &SessionId, epoch: u64, why: &str) -> Vec<String> {
    let why: String = why.chars().take(60).collect();
    let mut list = owners.to_vec();
    list.push(format!("{}@{epoch} {why}", owner.short()));
    while list.len() > 1 && list.iter().map(String::len).sum::<usize>() > OWNERS_BYTES {
        list.remove(0);
    }
    list
}

/// The epoch that follows: above the old one, and never below lease time, so that it keeps rising when a row is deleted and made again.
/// `None` where it would reach [`EPOCH_END`]: nobody could read it back.
#[must_use]
pub fn next_epoch(old: Option<u64>, now: Now) -> Option<u64> {
    let next = old.map_or(0, |old| old.saturating_add(1)).max(now.upper_ms);
    (next < EPOCH_END).then_some(next)
}

/// What a row says whose epoch was written by hand, so high that none can follow.
const NO_EPOCH_FOLLOWS: &str = "no epoch can follow its lease_epoch (remove it if you wrote it by hand)";

/// What is known of a row's owner.
#[derive(Clone, Copy, Debug)]
pub enum OwnerView<'a> {
    /// No look was needed: the row has no owner, or it is me, or the row's own lease is past.
    NotNeeded,
    /// There is no session row of that name: over, and long gone.
    Gone,
    /// A consistent read of the owner's session.
    Session(&'a Session),
}

/// Why the owner of a row that is taken over has ended.
fn why_over(row: &Connection, me: &SessionId, owner: OwnerView<'_>) -> String {
    match owner {
        OwnerView::NotNeeded if row.lease.owner.as_ref() != Some(me) => "its lease of the row expired".into(),
        OwnerView::NotNeeded => "lost its socket, acquired anew".into(),
        OwnerView::Gone => "session gone".into(),
        OwnerView::Session(session) => {
            let state = session.state.as_str();
            session.over_reason.as_ref().map_or_else(|| state.to_owned(), |why| format!("{state}: {why}"))
        }
    }
}

impl OwnerView<'_> {
    /// True when the owner can never write again.
    #[must_use]
    pub fn is_over(&self, now: Now, timing: &Timing, rules: Rules) -> bool {
        match self {
            Self::NotNeeded => false,
            Self::Gone => true,
            Self::Session(session) if rules.fence => session.state.is_over(),
            // Without the fence there is only the clock.
            Self::Session(session) => {
                session.state.is_over() || now.lower_ms > session.lease_expires_at_ms + timing.max_clock_skew_ms
            }
        }
    }
}

/// What a claim asks for, after a look at the row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimStep {
    /// Nothing to do, certainly: the claim is deleted.
    Nothing(&'static str),
    /// The row may be taken, but not yet: the claim comes back after so many ms.
    Later(u64),
    /// Nobody can take it as it is: its user hears why, and the claim is deleted.
    Fault(&'static str),
    /// Take it.
    Acquire(Acquire),
}

/// The owner whose session has to be read before a claim of this row can be decided about.
#[must_use]
pub fn session_to_read<'r>(row: &'r Connection, me: &SessionId, now: Now, timing: &Timing) -> Option<&'r SessionId> {
    row.lease.owner.as_ref().filter(|owner| *owner != me && !has_expired(&row.lease, now, timing))
}

/// Decides about a claim. `row` and `owner` are consistent reads; `me` does not hold the connection.
#[must_use]
pub fn on_claim(
    row: Option<&Connection>,
    owner: OwnerView<'_>,
    me: &SessionId,
    now: Now,
    timing: &Timing,
    rules: Rules,
) -> ClaimStep {
    let Some(row) = row else { return ClaimStep::Nothing("the row is gone") };
    if !row.desired_state.is_started() {
        return ClaimStep::Nothing("not started");
    }
    match &row.lease.owner {
        // A free row without an epoch is new or was overwritten: whoever held it must hear of it first, which the stamp takes care of.
        None if row.lease.epoch.is_none() => return ClaimStep::Nothing("not stamped yet"),
        None => {
            let free_at = row.lease.expires_at_ms.unwrap_or(0);
            if free_at > now.lower_ms {
                return ClaimStep::Later(free_at - now.lower_ms);
            }
        }
        Some(owner) if owner == me => {}
        Some(_) if owner_is_over(&row.lease, owner, now, timing, rules) => {}
        Some(_) => return ClaimStep::Nothing("it has a live owner"),
    }
    acquire(row, owner, me, now, timing).map_or(ClaimStep::Fault(NO_EPOCH_FOLLOWS), ClaimStep::Acquire)
}

fn acquire(row: &Connection, owner: OwnerView<'_>, me: &SessionId, now: Now, timing: &Timing) -> Option<Acquire> {
    let epoch = next_epoch(row.lease.epoch, now)?;
    let owners = match &row.lease.owner {
        Some(old) => with_former_owner(&row.owners, old, row.lease.epoch.unwrap_or(0), &why_over(row, me, owner)),
        None => row.owners.clone(),
    };
    Some(Acquire {
        expected: Expected::of(row, Some(me), now, timing),
        epoch,
        expires_at_ms: row_expiry_ms(now, timing),
        owners,
    })
}

/// Whether an acquire whose condition failed was won all the same: the row names me with the epoch that I wanted.
#[must_use]
pub fn won_anyway(wanted: &Acquire, me: &SessionId, found: Option<&Connection>) -> bool {
    found.is_some_and(|row| row.lease.owner.as_ref() == Some(me) && row.lease.epoch == Some(wanted.epoch))
}

/// What a look at a row asks for: after a mark, a comparison, or a pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookStep {
    /// All is as it should be.
    Keep,
    /// Held, and the spec is another one: close and open anew.
    Reconnect,
    /// Held, and not wanted any more: close, then release.
    CloseAndRelease,
    /// Held, but the row names somebody else (or is gone): drop the socket; there is nothing to release.
    Drop(&'static str),
    /// Not held, the row names me under this epoch and is not wanted: release it.
    Release(u64),
    /// Not held, though the row names me: acquire it anew, so that a late release of the old epoch changes nothing.
    Reacquire(Acquire),
    /// Not held, though the row names me, and it cannot be acquired as it is: its user hears why.
    Fault(&'static str),
    /// Not held, not mine.
    Nothing,
}

/// Decides after a consistent read. `held_epoch` is the epoch under which I hold the connection, if I do.
#[must_use]
pub fn on_look(
    row: Option<&Connection>,
    me: &SessionId,
    held_epoch: Option<u64>,
    spec_same: bool,
    now: Option<Now>,
    timing: &Timing,
) -> LookStep {
    let Some(row) = row else {
        return if held_epoch.is_some() { LookStep::Drop("the row is gone") } else { LookStep::Nothing };
    };
    let mine = row.lease.owner.as_ref() == Some(me);
    match held_epoch {
        Some(epoch) if mine && row.lease.epoch == Some(epoch) => {
            if !row.desired_state.is_started() {
                LookStep::CloseAndRelease
            } else if spec_same {
                LookStep::Keep
            } else {
                LookStep::Reconnect
            }
        }
        Some(_) => LookStep::Drop("the row names another owner or epoch"),
        None if !mine => LookStep::Nothing,
        None if !row.desired_state.is_started() => row.lease.epoch.map_or(LookStep::Nothing, LookStep::Release),
        None => match now {
            Some(now) => acquire(row, OwnerView::NotNeeded, me, now, timing)
                .map_or(LookStep::Fault(NO_EPOCH_FOLLOWS), LookStep::Reacquire),
            None => LookStep::Nothing,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::scope::LeaseScope;
    use crate::model::{ConnectionId, DesiredState, Lease, ObservedState, Progress, SessionState};

    const NOW: Now = Now { lower_ms: 10_000, upper_ms: 12_000 };

    fn row(owner: Option<&str>, epoch: Option<u64>, expires_at_ms: Option<u64>) -> Connection {
        Connection {
            id: ConnectionId::new("a").unwrap(),
            desired_state: DesiredState::Started,
            lease: Lease { owner: owner.map(SessionId::new), epoch, expires_at_ms },
            progress: Progress::default(),
            observed_state: ObservedState::Pending,
            reason: None,
            observed_since_ms: None,
            owners: vec![],
            spec_changed: false,
        }
    }

    fn claim(row: &Connection, owner: OwnerView<'_>) -> ClaimStep {
        on_claim(Some(row), owner, &SessionId::new("me"), NOW, &Timing::default(), Rules::default())
    }

    fn look(row: &Connection, me: &SessionId, held_epoch: Option<u64>) -> LookStep {
        on_look(Some(row), me, held_epoch, true, Some(NOW), &Timing::default())
    }

    #[test]
    fn a_row_whose_own_lease_is_past_is_taken_without_a_look_at_its_owners_session() {
        let timing = Timing { scope: LeaseScope::Connection, ..Timing::default() };
        let me = SessionId::new("me");
        let expired = row(Some("old"), Some(5), Some(7_000));
        assert_eq!(session_to_read(&expired, &me, NOW, &timing), None);
        let step = on_claim(Some(&expired), OwnerView::NotNeeded, &me, NOW, &timing, Rules::default());
        let ClaimStep::Acquire(acquire) = step else { panic!("{step:?}") };
        assert_eq!((acquire.expected.expired_by_ms, acquire.expires_at_ms), (Some(7_000), Some(32_000)));
        assert_eq!(acquire.owners, ["old@5 its lease of the row expired"]);
        let held = row(Some("old"), Some(5), Some(7_001));
        assert_eq!(session_to_read(&held, &me, NOW, &timing), Some(&SessionId::new("old")));
        let live = Session::sample("old", SessionState::Active);
        let step = on_claim(Some(&held), OwnerView::Session(&live), &me, NOW, &timing, Rules::default());
        assert_eq!(step, ClaimStep::Nothing("it has a live owner"));
    }

    #[test]
    fn a_free_row_is_taken_with_an_epoch_of_lease_time() {
        let ClaimStep::Acquire(acquire) = claim(&row(None, Some(0), Some(0)), OwnerView::NotNeeded) else { panic!() };
        assert_eq!((acquire.epoch, acquire.expected.expired_by_ms), (12_000, Some(10_000)));
    }

    #[test]
    fn an_epoch_above_lease_time_still_rises() {
        assert_eq!(next_epoch(Some(50_000), NOW), Some(50_001));
        assert_eq!(next_epoch(None, NOW), Some(12_000));
    }

    #[test]
    fn a_row_whose_next_epoch_nobody_could_read_back_is_a_fault_and_is_not_acquired() {
        let me = SessionId::new("me");
        let last = row(None, Some(EPOCH_END - 2), Some(0));
        assert!(
            matches!(claim(&last, OwnerView::NotNeeded), ClaimStep::Acquire(acquire) if acquire.epoch == EPOCH_END - 1)
        );
        let ended = Some(EPOCH_END - 1);
        assert_eq!(claim(&row(None, ended, Some(0)), OwnerView::NotNeeded), ClaimStep::Fault(NO_EPOCH_FOLLOWS));
        assert_eq!(look(&row(Some("me"), ended, None), &me, None), LookStep::Fault(NO_EPOCH_FOLLOWS));
    }

    #[test]
    fn a_row_stamped_ahead_is_left_until_then() {
        assert_eq!(claim(&row(None, Some(0), Some(10_500)), OwnerView::NotNeeded), ClaimStep::Later(500));
    }

    #[test]
    fn an_unstamped_row_is_not_taken() {
        assert_eq!(claim(&row(None, None, None), OwnerView::NotNeeded), ClaimStep::Nothing("not stamped yet"));
    }

    #[test]
    fn a_row_of_an_over_session_is_taken_even_if_its_epoch_is_missing() {
        assert!(matches!(claim(&row(Some("old"), None, None), OwnerView::Gone), ClaimStep::Acquire(_)));
    }

    #[test]
    fn an_owner_without_a_session_row_is_over() {
        assert!(matches!(claim(&row(Some("old"), Some(5), None), OwnerView::Gone), ClaimStep::Acquire(_)));
    }

    #[test]
    fn an_answer_that_names_me_and_my_epoch_is_a_win_and_any_other_is_not() {
        let me = SessionId::new("me");
        let ClaimStep::Acquire(wanted) = claim(&row(None, Some(0), Some(0)), OwnerView::NotNeeded) else { panic!() };
        assert!(won_anyway(&wanted, &me, Some(&row(Some("me"), Some(12_000), None))));
        assert!(!won_anyway(&wanted, &me, Some(&row(Some("me"), Some(12_001), None))));
        assert!(!won_anyway(&wanted, &me, Some(&row(Some("other"), Some(12_000), None))));
        assert!(!won_anyway(&wanted, &me, None));
    }

    #[test]
    fn a_row_that_names_me_but_is_not_held_is_acquired_anew() {
        let me = SessionId::new("me");
        let step = look(&row(Some("me"), Some(20_000), None), &me, None);
        let LookStep::Reacquire(acquire) = step else { panic!("{step:?}") };
        assert_eq!(acquire.epoch, 20_001);
    }

    #[test]
    fn a_held_row_of_another_epoch_is_dropped_and_not_released() {
        let me = SessionId::new("me");
        let step = look(&row(Some("me"), Some(6), None), &me, Some(5));
        assert!(matches!(step, LookStep::Drop(_)));
    }
}
