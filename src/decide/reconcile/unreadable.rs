//! Sessions whose rows cannot be read, such as after a slip of a hand: when they are fenced.
//!
//! Nobody can tell when such a lease ends. What can be told is that either the worker's next renewal repairs the row (the expiry), or no
//! renewal succeeds any more (the state, the heartbeat), and then the worker has closed its sockets a lease later. So it is fenced a lease
//! and the skew after it was first seen, and its connections find a new owner. A session that still cannot be read then cannot renew.

use crate::decide::lease_time::Now;
use crate::decide::timing::Timing;

/// A note older than this beyond its time was made of an earlier fault that was repaired meanwhile.
const NOTE_KEPT_MS: u64 = 300_000;

/// What is done about a session whose row cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Note on its row that it cannot be read since now.
    Note,
    /// Nothing yet.
    Wait,
    /// Fence it, as it was read.
    Fence,
}

/// Decides about a session whose row is noted as unreadable since `since_ms` (lease time).
#[must_use]
pub fn step(since_ms: Option<u64>, now: Now, timing: &Timing) -> Step {
    // A note from the future, or from long ago, is none.
    let noted = since_ms.filter(|since_ms| *since_ms <= now.upper_ms + timing.max_clock_skew_ms);
    let Some(since_ms) = noted else { return Step::Note };
    let wait_ms = (timing.lease_ms + timing.max_clock_skew_ms).max(timing.suspect_ms);
    let age_ms = now.lower_ms.saturating_sub(since_ms);
    match age_ms {
        age_ms if age_ms > wait_ms + NOTE_KEPT_MS => Step::Note,
        age_ms if age_ms > wait_ms => Step::Fence,
        _ => Step::Wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SINCE_MS: u64 = 1_000_000;

    fn after(age_ms: u64) -> Step {
        let now = Now { lower_ms: SINCE_MS + age_ms, upper_ms: SINCE_MS + age_ms + 2_000 };
        step(Some(SINCE_MS), now, &Timing::default())
    }

    #[test]
    fn it_is_fenced_a_lease_and_the_skew_after_it_was_noted() {
        let now = Now { lower_ms: SINCE_MS, upper_ms: SINCE_MS + 2_000 };
        assert_eq!(step(None, now, &Timing::default()), Step::Note);
        assert_eq!(after(23_000), Step::Wait);
        assert_eq!(after(23_001), Step::Fence);
    }

    #[test]
    fn a_note_of_another_time_is_none() {
        assert_eq!(after(400_000), Step::Note);
        let now = Now { lower_ms: 1_000, upper_ms: 3_000 };
        assert_eq!(step(Some(SINCE_MS), now, &Timing::default()), Step::Note);
    }
}
