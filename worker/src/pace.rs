//! When the next renewal of a lease is sent: a session's (`keeper`), or a row's (`row_keeper`). All in ms; `left_ms` is what is left until
//! the lease's deadline, 0 past it.

use rand::RngExt;
use rand::rngs::StdRng;

/// The shortest wait after a failure.
const LEAST_MS: u64 = 100;
/// The longest wait after a first failure that may have passed by then.
const SOON_MS: u64 = 500;

/// The first renewal of a row. Rows that were acquired together are not renewed together: their index key takes only so many writes a
/// second. The acquire may have taken long: the lease is counted from before it.
pub(crate) fn first_ms(heartbeat_ms: u64, left_ms: u64, rng: &mut StdRng) -> u64 {
    rng.random_range(heartbeat_ms / 5..=heartbeat_ms).min(left_ms / 2)
}

/// After one that succeeded and took so long.
pub(crate) fn next_ms(heartbeat_ms: u64, took_ms: u64) -> u64 {
    heartbeat_ms.saturating_sub(took_ms)
}

/// After a failure that may pass at any moment, for the one lease of a session.
pub(crate) fn soon_ms(rng: &mut StdRng) -> u64 {
    rng.random_range(LEAST_MS..=SOON_MS)
}

/// After a refusal that waiting hardly mends, such as a missing permission: half a heartbeat, but half of what is left at most, so that
/// there is always another attempt before the deadline.
pub(crate) fn patient_ms(heartbeat_ms: u64, left_ms: u64, rng: &mut StdRng) -> u64 {
    let patient_ms = heartbeat_ms / 2;
    let wait_ms = if left_ms == 0 { patient_ms } else { patient_ms.min(left_ms / 2) };
    rng.random_range(wait_ms * 8 / 10..=wait_ms).max(LEAST_MS)
}

/// After so many failures of a row (1 or more), whatever the reason: there are hundreds of rows to a worker, and they fail together, most of
/// all where their index is throttled. It doubles, up to half of what is left; past the deadline there is one attempt a heartbeat.
pub(crate) fn growing_ms(failures: u32, heartbeat_ms: u64, left_ms: u64, rng: &mut StdRng) -> u64 {
    if left_ms == 0 {
        return rng.random_range(heartbeat_ms * 8 / 10..=heartbeat_ms);
    }
    let doubled = SOON_MS << failures.saturating_sub(1).min(10);
    let most_ms = doubled.min(heartbeat_ms).min(left_ms / 2).max(SOON_MS);
    rng.random_range(most_ms / 2..=most_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    /// The shortest and the longest of many waits.
    fn range(mut wait_ms: impl FnMut(&mut StdRng) -> u64) -> (u64, u64) {
        let mut rng = StdRng::seed_from_u64(1);
        let waits: Vec<u64> = (0..2_000).map(|_| wait_ms(&mut rng)).collect();
        (waits.iter().copied().min().unwrap(), waits.into_iter().max().unwrap())
    }

    fn assert_range(wait_ms: impl FnMut(&mut StdRng) -> u64, least_ms: u64, most_ms: u64) {
        let (from_ms, to_ms) = range(wait_ms);
        assert!(from_ms >= least_ms && to_ms <= most_ms, "{from_ms} to {to_ms}, not {least_ms} to {most_ms}");
        // Jitter, up to the end.
        assert!(to_ms >= most_ms - most_ms / 20 && from_ms < to_ms, "{from_ms} to {to_ms}");
    }

    #[test]
    fn a_rows_waits_double_and_leave_time_for_another_attempt_before_the_deadline() {
        for (failures, most_ms) in [(1, 500), (2, 1_000), (3, 2_000), (4, 4_000), (5, 4_500), (u32::MAX, 4_500)] {
            assert_range(|rng| growing_ms(failures, 5_000, 9_000, rng), most_ms / 2, most_ms);
        }
        assert_range(|rng| growing_ms(3, 5_000, 1_200, rng), 300, 600);
        assert_range(|rng| growing_ms(3, 5_000, 1, rng), 250, 500);
    }

    #[test]
    fn past_the_deadline_there_is_one_attempt_a_heartbeat() {
        assert_range(|rng| growing_ms(1, 5_000, 0, rng), 4_000, 5_000);
    }

    #[test]
    fn the_first_renewal_comes_within_half_of_what_is_left_of_a_late_acquire() {
        assert_range(|rng| first_ms(5_000, 14_000, rng), 1_000, 5_000);
        assert_range(|rng| first_ms(5_000, 6_000, rng), 1_000, 3_000);
        assert_eq!(range(|rng| first_ms(5_000, 0, rng)), (0, 0));
    }
}
