//! Back-off with jitter. Pure: the randomness is an argument.

use rand::{Rng, RngExt};

/// Delays that double from `first_ms` up to `most_ms`, each drawn from its upper half, so that nobody retries in lockstep
/// and nobody at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The bound of the first delay in milliseconds.
    pub first_ms: u64,
    /// The highest bound.
    pub most_ms: u64,
}

impl Backoff {
    /// The delay in milliseconds after `failures` failures in a row (1 for the first).
    #[must_use]
    pub fn delay_ms(&self, failures: u32, rng: &mut impl Rng) -> u64 {
        let doublings = failures.saturating_sub(1).min(32);
        let bound = self.first_ms.saturating_mul(1 << doublings).min(self.most_ms);
        rng.random_range(bound / 2..=bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    #[test]
    fn delays_double_and_stay_below_the_bound() {
        let backoff = Backoff { first_ms: 100, most_ms: 1_000 };
        let mut rng = StdRng::seed_from_u64(1);
        for (failures, bound) in [(1, 100), (2, 200), (3, 400), (4, 800), (5, 1_000), (100, 1_000)] {
            for _ in 0..100 {
                let delay = backoff.delay_ms(failures, &mut rng);
                assert!((bound / 2..=bound).contains(&delay), "{failures} failures: {delay}");
            }
        }
    }
}
