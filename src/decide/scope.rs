//! What is leased: a worker's session, or each row by itself. Both scopes use the same rows, indexes, epochs, functions and worker; what
//! differs in a decision is here, and what a worker does about it in `worker/src/row_keeper.rs`.
//!
//! | | `worker` | `connection` |
//! | --- | --- | --- |
//! | renewed every heartbeat | the session | the session, and each row by itself |
//! | an owned row's expiry | absent | moves with each renewal |
//! | an owner is over | its session is | its session is, or the row's expiry is past |
//! | an owner hears of changes | from marks, and by comparing | from each renewal's answer, which is the row; no marks |
//! | a shutdown frees rows | by ending the session | each with a release |
//!
//! A row says itself how its owner leases it: with an expiry, or without. So workers of both scopes may run side by side while a deployment
//! changes from one to the other.

use super::acquire::OwnerView;
use super::lease_time::Now;
use super::timing::{Rules, Timing};
use crate::model::{Connection, Lease, SessionId};

/// What is leased and renewed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LeaseScope {
    /// The session: one renewal a worker, whatever it holds.
    #[default]
    Worker,
    /// Each row by itself, the published pattern: a renewal costs a write on the table and two on `by_expiry`.
    Connection,
}

impl LeaseScope {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Worker, Self::Connection];

    /// The setting's word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Connection => "connection",
        }
    }

    /// The scope of that name.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == text)
    }

    /// Whether each row is renewed, and released by itself at a shutdown.
    #[must_use]
    pub fn renews_rows(self) -> bool {
        self == Self::Connection
    }
}

/// The expiry that an acquire or a renewal of a row writes; `None`: the row has none while it is owned.
#[must_use]
pub fn row_expiry_ms(now: Now, timing: &Timing) -> Option<u64> {
    timing.scope.renews_rows().then(|| now.upper_ms + timing.lease_ms)
}

/// Whether a row's live owner hears of every change with its next renewal of the row, and needs no mark.
#[must_use]
pub fn hears_by_itself(lease: &Lease, timing: &Timing) -> bool {
    timing.scope.renews_rows() && lease.owner.is_some() && lease.expires_at_ms.is_some()
}

/// Whether a row's owner can hold it no more: its session is over, or its own lease of the row.
#[must_use]
pub fn owner_is_over(lease: &Lease, owner: OwnerView<'_>, now: Now, timing: &Timing, rules: Rules) -> bool {
    owner.is_over(now, timing, rules) || has_expired(lease, now, timing)
}

/// Whether an owned row's own lease is past, skew included.
#[must_use]
pub fn has_expired(lease: &Lease, now: Now, timing: &Timing) -> bool {
    let owned = lease.owner.is_some() && timing.scope.renews_rows();
    owned && lease.expires_at_ms.is_some_and(|expires_at_ms| expires_at_ms <= expired_owner_ms(now, timing))
}

/// The latest expiry of an owned row that is past.
fn expired_owner_ms(now: Now, timing: &Timing) -> u64 {
    now.lower_ms.saturating_sub(timing.max_clock_skew_ms)
}

/// Up to which expiry `by_expiry` shows rows that may be taken: free ones, and where rows are leased by themselves, owned ones too. An
/// outage lets all leases of rows run out: while `store_may_have_been_away` only what is free (0) counts, and owners renew first.
#[must_use]
pub fn index_until_ms(store_may_have_been_away: bool, now: Now, timing: &Timing) -> u64 {
    match timing.scope {
        LeaseScope::Worker => now.lower_ms,
        LeaseScope::Connection if store_may_have_been_away => 0,
        LeaseScope::Connection => expired_owner_ms(now, timing),
    }
}

/// At or below which the row's expiry must still be when it is taken or freed, if it decides: a free row's time must have come, and
/// an owner whose lease of the row is past must not have renewed meanwhile, which leaves owner and epoch as they were.
#[must_use]
pub fn expired_by_ms(lease: &Lease, me: Option<&SessionId>, now: Now, timing: &Timing) -> Option<u64> {
    match &lease.owner {
        None => Some(now.lower_ms),
        Some(owner) if Some(owner) == me => None,
        Some(_) => has_expired(lease, now, timing).then(|| expired_owner_ms(now, timing)),
    }
}

/// What became of one renewal of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowRenewed {
    /// It is in the table.
    Yes,
    /// Nobody knows, or it was not applied: try again until the deadline.
    TryAgain,
    /// The row has another owner or epoch, or none, or is gone.
    Lost,
}

/// Judges a row's renewal whose condition failed, by the row that was there instead. An expiry as late as the one sent can only be mine:
/// owner and epoch are.
#[must_use]
pub fn refused_row_renewal(
    sent_expires_at_ms: u64,
    me: &SessionId,
    epoch: u64,
    found: Option<&Connection>,
) -> RowRenewed {
    let Some(row) = found else { return RowRenewed::Lost };
    if row.lease.owner.as_ref() != Some(me) || row.lease.epoch != Some(epoch) {
        return RowRenewed::Lost;
    }
    match row.lease.expires_at_ms {
        Some(expires_at_ms) if expires_at_ms >= sent_expires_at_ms => RowRenewed::Yes,
        _ => RowRenewed::TryAgain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ConnectionId, DesiredState, ObservedState, Progress, Session, SessionState};

    const NOW: Now = Now { lower_ms: 100_000, upper_ms: 102_000 };

    fn timing(scope: LeaseScope) -> Timing {
        Timing { scope, ..Timing::default() }
    }

    fn lease(owner: Option<&str>, expires_at_ms: Option<u64>) -> Lease {
        Lease { owner: owner.map(SessionId::new), epoch: Some(7), expires_at_ms }
    }

    #[test]
    fn an_owned_rows_lease_is_past_the_skew_after_it_expired() {
        let connection = timing(LeaseScope::Connection);
        assert!(has_expired(&lease(Some("w"), Some(97_000)), NOW, &connection));
        assert!(!has_expired(&lease(Some("w"), Some(97_001)), NOW, &connection));
        assert!(!has_expired(&lease(Some("w"), None), NOW, &connection), "its owner leases by session");
        assert!(!has_expired(&lease(None, Some(0)), NOW, &connection), "it has no owner");
        assert!(!has_expired(&lease(Some("w"), Some(0)), NOW, &timing(LeaseScope::Worker)));
    }

    #[test]
    fn a_session_that_is_over_gives_its_rows_up_in_both_scopes() {
        let fenced = Session::sample("w", SessionState::Fenced);
        for scope in LeaseScope::ALL {
            let view = OwnerView::Session(&fenced);
            let row = lease(Some("w"), Some(NOW.upper_ms));
            assert!(owner_is_over(&row, view, NOW, &timing(scope), Rules::default()));
        }
    }

    #[test]
    fn an_expired_owner_must_not_have_renewed_when_its_row_is_taken() {
        let connection = timing(LeaseScope::Connection);
        let condition = |lease: &Lease| expired_by_ms(lease, Some(&SessionId::new("me")), NOW, &connection);
        assert_eq!(condition(&lease(Some("w"), Some(90_000))), Some(97_000));
        assert_eq!(condition(&lease(Some("w"), Some(99_000))), None, "taken because its session is over");
        assert_eq!(condition(&lease(Some("me"), Some(90_000))), None);
        assert_eq!(condition(&lease(None, Some(0))), Some(100_000));
    }

    #[test]
    fn the_index_shows_what_is_due_and_after_an_outage_no_row_whose_owner_may_live() {
        for (scope, away, until_ms) in [
            (LeaseScope::Worker, false, 100_000),
            (LeaseScope::Worker, true, 100_000),
            (LeaseScope::Connection, false, 97_000),
            (LeaseScope::Connection, true, 0),
        ] {
            assert_eq!(index_until_ms(away, NOW, &timing(scope)), until_ms, "{scope:?}, away: {away}");
        }
    }

    #[test]
    fn only_the_connection_scope_writes_an_expiry_on_owned_rows() {
        assert_eq!(row_expiry_ms(NOW, &timing(LeaseScope::Worker)), None);
        assert_eq!(row_expiry_ms(NOW, &timing(LeaseScope::Connection)), Some(122_000));
    }

    #[test]
    fn a_refused_renewal_of_a_row_is_a_success_if_it_landed_and_a_loss_if_the_row_is_anothers() {
        let row = |owner, expires_at_ms| Connection {
            id: ConnectionId::new("a").unwrap(),
            desired_state: DesiredState::Started,
            lease: lease(owner, expires_at_ms),
            progress: Progress::default(),
            observed_state: ObservedState::Connected,
            reason: None,
            observed_since_ms: None,
            owners: vec![],
            spec_changed: false,
        };
        let judge = |row: Option<&Connection>| refused_row_renewal(500, &SessionId::new("me"), 7, row);
        assert_eq!(judge(Some(&row(Some("me"), Some(500)))), RowRenewed::Yes);
        assert_eq!(judge(Some(&row(Some("w"), Some(500)))), RowRenewed::Lost);
        assert_eq!(judge(Some(&row(None, Some(0)))), RowRenewed::Lost);
        assert_eq!(judge(None), RowRenewed::Lost);
        let other_epoch = refused_row_renewal(500, &SessionId::new("me"), 8, Some(&row(Some("me"), Some(500))));
        assert_eq!(other_epoch, RowRenewed::Lost);
    }
}
