//! What many cases came to.

use crate::case::Options;
use crate::cluster::Outcome;
use crate::faults::Kind;
use crate::ledger::Line;
use crate::ledger::book::Tally;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;

/// A promise that a seed broke.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// The seed.
    pub seed: u64,
    /// The invariant's name.
    pub invariant: &'static str,
    /// When, in virtual ms.
    pub at_ms: u64,
    /// The connection, where it is one's.
    pub connection: Option<String>,
    /// What happened.
    pub what: String,
    /// The steps that are left when the others are left out; empty if it was not shrunk.
    pub schedule: Vec<String>,
    /// What happened then.
    pub history: Vec<Line>,
}

/// What a campaign came to. The same seeds give the same document.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// The first seed.
    pub first_seed: u64,
    /// How many cases ran.
    pub cases: u64,
    /// Virtual minutes of a case at most, but for what it takes to settle.
    pub minutes: u64,
    /// Faults reached beyond what the protocol allows for.
    pub beyond: bool,
    /// Virtual hours in all.
    pub virtual_hours: f64,
    #[serde(skip)]
    virtual_ms: u64,
    /// In how many cases each pair of kinds was together.
    pub pairs: BTreeMap<String, u64>,
    /// The rarest pair, and in how many cases it was.
    pub rarest_pair: Option<(String, u64)>,
    /// The cases' numbers: sums, and of times the longest.
    #[serde(flatten)]
    pub tally: Tally,
    /// Promises that were broken.
    pub violations: Vec<Found>,
}

impl Summary {
    /// Of no case yet.
    #[must_use]
    pub fn new(seeds: Range<u64>, options: Options) -> Self {
        let mut summary = Self { first_seed: seeds.start, minutes: options.minutes, ..Self::default() };
        summary.beyond = options.beyond;
        for (index, one) in Kind::ALL.iter().enumerate() {
            summary.tally.faults.insert(*one, 0);
            for other in &Kind::ALL[index + 1..] {
                summary.pairs.insert(pair(*one, *other), 0);
            }
        }
        summary
    }

    /// Adds a case.
    pub fn add(&mut self, outcome: &Outcome, found: Option<Found>) {
        let tally = &outcome.tally;
        self.cases += 1;
        // Whole numbers: threads end in any order, and the sum is the same.
        self.virtual_ms += outcome.ran_ms;
        self.virtual_hours = self.virtual_ms as f64 / 3_600_000.0;
        let kinds: Vec<Kind> = tally.faults.keys().copied().collect();
        for (index, one) in kinds.iter().enumerate() {
            for other in &kinds[index + 1..] {
                *self.pairs.entry(pair(*one, *other)).or_default() += 1;
            }
        }
        let rarest = self.pairs.iter().min_by_key(|(_, cases)| **cases);
        self.rarest_pair = rarest.map(|(pair, cases)| (pair.clone(), *cases));
        self.tally.add(tally);
        self.violations.extend(found);
    }
}

fn pair(one: Kind, other: Kind) -> String {
    format!("{} + {}", one.name(), other.name())
}
