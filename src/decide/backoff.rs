//! When to try again: exponential back-off with full jitter.

use rand::{Rng, RngExt};

/// Settings of a back-off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The longest wait before the first retry.
    pub base_ms: u64,
    /// The longest wait ever.
    pub cap_ms: u64,
    /// How long a connection must have been open before its attempts are forgotten.
    pub stable_ms: u64,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { base_ms: 500, cap_ms: 30_000, stable_ms: 10_000 }
    }
}

impl Backoff {
    /// The wait before attempt number `attempt` (0 for the first retry): uniform over 0 to min(cap, base × 2^attempt).
    ///
    /// "Full jitter" of the AWS Architecture Blog, "Exponential Backoff And Jitter" (2015).
    pub fn wait_ms(&self, attempt: u32, rng: &mut impl Rng) -> u64 {
        let doubled = self.base_ms.saturating_mul(1_u64.checked_shl(attempt).unwrap_or(u64::MAX));
        rng.random_range(0..=doubled.min(self.cap_ms))
    }

    /// How many failed attempts count after a connection that was open for `open_ms`: an open that did not last forgets nothing.
    #[must_use]
    pub fn attempts_after(&self, attempts: u32, open_ms: u64) -> u32 {
        if open_ms >= self.stable_ms { 0 } else { attempts.saturating_add(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    #[test]
    fn waits_are_spread_over_the_whole_range_and_never_above_it() {
        let backoff = Backoff::default();
        let mut rng = StdRng::seed_from_u64(1);
        for (attempt, most) in [(0, 500), (3, 4_000), (6, 30_000), (200, 30_000)] {
            let waits: Vec<u64> = (0..2_000).map(|_| backoff.wait_ms(attempt, &mut rng)).collect();
            let mean = waits.iter().sum::<u64>() / 2_000;
            assert!(waits.iter().all(|wait| *wait <= most));
            // The mean of a uniform distribution is its middle; 2,000 draws come within 5 % of it.
            assert!(mean > most * 45 / 100 && mean < most * 55 / 100, "attempt {attempt}: mean {mean}");
            assert!(waits.iter().any(|wait| *wait < most / 10), "some waits are short");
        }
    }

    #[test]
    fn an_open_that_does_not_last_counts_as_another_failure() {
        let backoff = Backoff::default();
        assert_eq!(backoff.attempts_after(3, 9_999), 4);
        assert_eq!(backoff.attempts_after(3, 10_000), 0);
    }
}
