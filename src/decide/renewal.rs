//! What a worker makes of a renewal's answer, and when it gives up by itself.

use super::timing::{Rules, Timing};
use crate::model::{Session, SessionState};

/// What became of one renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// It is in the table.
    Yes,
    /// The session is over (why): nothing it says is accepted any more.
    Over(String),
    /// Nobody knows, or it was not applied: try again, with a higher heartbeat number, until the deadline.
    TryAgain,
}

/// Judges a renewal whose condition failed, by the item that was there instead.
///
/// A heartbeat as high as the one sent can only be mine: the write landed and its answer was lost (or the SDK sent it twice).
#[must_use]
pub fn refused_renewal(sent_heartbeat: u64, found: Option<&Session>) -> Renewed {
    let Some(session) = found else {
        return Renewed::Over("the session's row is gone".into());
    };
    match session.state {
        SessionState::Active if session.heartbeat >= sent_heartbeat => Renewed::Yes,
        SessionState::Active => Renewed::TryAgain,
        SessionState::Fenced => Renewed::Over(match &session.over_reason {
            Some(reason) => format!("fenced: {reason}"),
            None => "fenced".into(),
        }),
        SessionState::Ended => Renewed::Over("ended".into()),
    }
}

/// What a worker does when DynamoDB cannot be reached until its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnStoreOutage {
    /// Drop every socket: never two for one connection.
    Close,
    /// Keep the sockets, buffer within a bound, store nothing until a renewal succeeds.
    Hold,
}

/// How far a worker may trust its own lease; less with each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trust {
    /// Everything is allowed.
    Valid,
    /// Past the deadline under `hold`: sockets stay, nothing is stored, nothing is opened.
    Holding,
    /// Past the deadline under `close`, or past `hold_max`: sockets are dropped without a closing handshake.
    Dropped,
    /// A whole lease has passed under `close`: the old session is ended and a new one begins.
    StartOver,
}

/// Judges the lease at `now_ms`, when the last renewal that succeeded was sent at `renewed_ms` (both on the monotonic clock).
#[must_use]
pub fn trust(renewed_ms: u64, now_ms: u64, policy: OnStoreOutage, timing: &Timing, rules: Rules) -> Trust {
    let age_ms = now_ms.saturating_sub(renewed_ms);
    if age_ms < timing.give_up_ms || !rules.local_deadline {
        return Trust::Valid;
    }
    match policy {
        OnStoreOutage::Hold if age_ms < timing.give_up_ms + timing.hold_max_ms => Trust::Holding,
        OnStoreOutage::Hold => Trust::Dropped,
        OnStoreOutage::Close if age_ms < timing.lease_ms => Trust::Dropped,
        OnStoreOutage::Close => Trust::StartOver,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(state: SessionState, heartbeat: u64) -> Session {
        Session { heartbeat, ..Session::sample("s", state) }
    }

    #[test]
    fn a_renewal_that_landed_without_its_answer_counts_as_success() {
        assert_eq!(refused_renewal(7, Some(&session(SessionState::Active, 7))), Renewed::Yes);
    }

    #[test]
    fn a_fenced_ended_or_removed_session_is_over() {
        for state in [SessionState::Fenced, SessionState::Ended] {
            assert!(matches!(refused_renewal(7, Some(&session(state, 7))), Renewed::Over(_)));
        }
        assert!(matches!(refused_renewal(7, None), Renewed::Over(_)));
    }

    #[test]
    fn the_deadline_comes_six_seconds_before_the_lease_ends() {
        let (timing, rules) = (Timing::default(), Rules::default());
        let at = |now| trust(1_000, now, OnStoreOutage::Close, &timing, rules);
        assert_eq!(at(14_999), Trust::Valid);
        assert_eq!(at(15_000), Trust::Dropped);
        assert_eq!(at(21_000), Trust::StartOver);
    }

    #[test]
    fn hold_keeps_sockets_for_five_minutes_past_the_deadline() {
        let (timing, rules) = (Timing::default(), Rules::default());
        let at = |now| trust(0, now, OnStoreOutage::Hold, &timing, rules);
        assert_eq!(at(14_000), Trust::Holding);
        assert_eq!(at(313_999), Trust::Holding);
        assert_eq!(at(314_000), Trust::Dropped);
    }
}
