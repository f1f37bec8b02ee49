//! Token buckets, one for each partition.

use super::cost::{Charge, Partition};
use std::collections::HashMap;

/// Full buckets are dropped when there are more than this: a full one and none are the same.
const PRUNE_ABOVE: usize = 10_000;

/// How much each partition may still write.
#[derive(Debug)]
pub(super) struct Buckets {
    units_per_second: f64,
    filled: HashMap<Partition, Bucket>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    units: f64,
    at_ms: u64,
}

impl Buckets {
    pub fn new(units_per_second: u32) -> Self {
        Self { units_per_second: f64::from(units_per_second), filled: HashMap::new() }
    }

    /// The first partition that has nothing left, if there is one.
    pub fn exhausted<'a>(&self, charges: &'a [Charge], now_ms: u64) -> Option<&'a Partition> {
        let exhausted = |charge: &&Charge| self.units_of(&charge.partition, now_ms) <= 0.0;
        charges.iter().find(exhausted).map(|charge| &charge.partition)
    }

    /// Takes what a write costs, into debt if need be.
    pub fn take(&mut self, charges: &[Charge], now_ms: u64) {
        for charge in charges {
            let units = self.units_of(&charge.partition, now_ms) - charge.units;
            self.filled.insert(charge.partition.clone(), Bucket { units, at_ms: now_ms });
        }
        if self.filled.len() > PRUNE_ABOVE {
            self.prune(now_ms);
        }
    }

    /// Gives back what a write would have cost.
    pub fn give_back(&mut self, charge: &Charge, now_ms: u64) {
        let units = self.units_of(&charge.partition, now_ms) + charge.units;
        let units = units.min(self.units_per_second);
        self.filled.insert(charge.partition.clone(), Bucket { units, at_ms: now_ms });
    }

    /// One second's worth at most.
    fn units_of(&self, partition: &Partition, now_ms: u64) -> f64 {
        let Some(bucket) = self.filled.get(partition) else { return self.units_per_second };
        let elapsed_ms = now_ms.saturating_sub(bucket.at_ms);
        let refilled = elapsed_ms as f64 * self.units_per_second / 1_000.0;
        (bucket.units + refilled).min(self.units_per_second)
    }

    fn prune(&mut self, now_ms: u64) {
        let partitions: Vec<Partition> = self.filled.keys().cloned().collect();
        for partition in partitions {
            if self.units_of(&partition, now_ms) >= self.units_per_second {
                self.filled.remove(&partition);
            }
        }
    }
}
