//! Spreading claims: a row that nobody takes is claimed again now and then, and not all rows at once.

use crate::decide::timing::Timing;
use crate::model::hash::stable_hash;

/// Which rows have their turn in this run. Time is cut into slots of a look's interval; a row's hash names its slot, which comes again every
/// `claim_again_ms`. A run serves all slots since the last look, so that late runs leave nobody out and doubled ones repeat nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turns {
    first: u64,
    count: u64,
    of: u64,
}

impl Turns {
    /// The turns of a run at `now_ms`, when the last look was at `last_look_ms` (0: there was none), both in lease time.
    #[must_use]
    pub fn since(last_look_ms: u64, now_ms: u64, timing: &Timing) -> Self {
        let slot_ms = timing.look_interval_ms.max(1);
        let of = (timing.claim_again_ms / slot_ms).max(1);
        let (last, now) = (last_look_ms / slot_ms, now_ms / slot_ms);
        let count = now.saturating_sub(last).min(of);
        Self { first: now + 1 - count.min(now + 1), count, of }
    }

    /// Whether this row may be claimed in this run.
    #[must_use]
    pub fn has(&self, id: &str) -> bool {
        let slot = stable_hash(id) % self.of;
        let ahead = (slot + self.of - self.first % self.of) % self.of;
        ahead < self.count
    }
}

/// At most `most` of these, others in each round: where they stay the same, each has its turn within as many rounds as it takes to serve all.
#[must_use]
pub fn some_of<T>(mut all: Vec<T>, most: usize, round: u64) -> Vec<T> {
    if all.len() > most {
        let start = u128::from(round) * most as u128 % all.len() as u128;
        all.rotate_left(usize::try_from(start).unwrap_or(0));
        all.truncate(most);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids() -> Vec<String> {
        (0..300).map(|number| format!("conn-{number}")).collect()
    }

    /// How often each row had its turn, when there are looks at these times (s).
    fn served(looks: &[u64]) -> Vec<usize> {
        let timing = Timing::default();
        let mut counts = vec![0; 300];
        for pair in looks.windows(2) {
            let turns = Turns::since(pair[0] * 1_000, pair[1] * 1_000, &timing);
            for (index, id) in ids().iter().enumerate() {
                counts[index] += usize::from(turns.has(id));
            }
        }
        counts
    }

    #[test]
    fn each_row_is_claimed_once_in_thirty_seconds_by_looks_in_time() {
        assert!(served(&[1_000, 1_010, 1_020, 1_030]).iter().all(|count| *count == 1));
        let first = served(&[1_000, 1_010]).iter().sum::<usize>();
        assert!((70..130).contains(&first), "{first} of 300 in a third of the time");
    }

    #[test]
    fn late_looks_leave_nobody_out_and_doubled_ones_repeat_nothing() {
        assert!(served(&[1_000, 1_009, 1_010, 1_010, 1_029, 1_030]).iter().all(|count| *count == 1));
    }

    #[test]
    fn the_first_look_ever_and_one_after_a_long_pause_serve_every_row_once() {
        assert!(served(&[0, 1_000]).iter().all(|count| *count == 1));
        assert!(served(&[1_000, 9_000]).iter().all(|count| *count == 1));
    }

    #[test]
    fn where_not_all_can_be_served_others_are_in_the_next_round() {
        let all: Vec<u32> = (0..5).collect();
        let rounds: Vec<Vec<u32>> = (0..3).map(|round| some_of(all.clone(), 2, round)).collect();
        assert_eq!(rounds, [[0, 1], [2, 3], [4, 0]]);
        assert_eq!(some_of(all.clone(), 5, 7), all);
        assert_eq!(some_of(all, 3, u64::MAX).len(), 3);
        assert!(some_of(Vec::<u32>::new(), 0, 1).is_empty());
    }
}
