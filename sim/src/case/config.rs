//! How the cluster of a case is set up.

use crate::case::Options;
use crate::faults::Kind;
use leasehold::decide::renewal::OnStoreOutage;
use leasehold::decide::scope::LeaseScope;
use leasehold::decide::timing::{Rules, Timing};
use rand::RngExt;
use rand::rngs::StdRng;
use std::collections::BTreeSet;

/// A case's cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Seeds everything that is drawn while it runs.
    pub seed: u64,
    /// How long things may be done to it, in ms; what follows is calm.
    pub active_ms: u64,
    /// Processes side by side.
    pub workers: usize,
    /// Connections, each numbered or not.
    pub connections: Vec<bool>,
    /// What a worker does when the store is away.
    pub policy: OnStoreOutage,
    /// Connections that a worker holds at most.
    pub capacity: u64,
    /// The protocol's numbers.
    pub timing: Timing,
    /// The protocol's rules.
    pub rules: Rules,
    /// What goes wrong.
    pub kinds: BTreeSet<Kind>,
    /// By how much each process's clock drifts, in ppm.
    pub drift_ppm: Vec<i64>,
    /// How many write units a second one key takes, where that is limited.
    pub write_limit: Option<u32>,
    /// A message of a connection comes about every so many ms.
    pub message_ms: u64,
    /// Faults may reach beyond what the protocol allows for.
    pub beyond: bool,
}

/// What is kept of a case for the calm at its end, in ms; settling takes longer where it must.
const CALM_MS: u64 = 15_000;

impl Config {
    /// The cluster of a seed.
    #[must_use]
    pub fn draw(seed: u64, options: Options, rng: &mut StdRng) -> Self {
        let scope = options.scope.unwrap_or(LeaseScope::ALL[usize::from(seed % 2 == 1)]);
        let workers = rng.random_range(2..=4);
        let connections: Vec<bool> = (0..rng.random_range(4..=10)).map(|_| rng.random_range(0..4) > 0).collect();
        let policy = if rng.random_range(0..10) < 4 { OnStoreOutage::Hold } else { OnStoreOutage::Close };
        let others = workers as u64 - 1;
        // Either plenty, or just enough for all while one process is away.
        let tight = rng.random_range(0..4) == 0;
        let capacity = if tight { (connections.len() as u64).div_ceil(others) + 1 } else { 700 };
        let mut kinds = kinds(rng);
        if options.beyond {
            // What the allowances are for.
            kinds.extend([Kind::DateOff, Kind::CutDynamo]);
        }
        let drift = |rng: &mut StdRng| if kinds.contains(&Kind::Drift) { rng.random_range(-150..=150) } else { 0 };
        let drift_ppm = (0..workers).map(|_| drift(rng)).collect();
        let limited = kinds.contains(&Kind::WriteLimit);
        Self {
            seed,
            active_ms: options.minutes * 60_000 - CALM_MS,
            workers,
            policy,
            capacity,
            timing: timing(scope, rng),
            rules: options.rules,
            drift_ppm,
            write_limit: limited.then(|| rng.random_range(4..=12) + if scope.renews_rows() { 16 } else { 0 }),
            kinds,
            message_ms: 5_000 + 500 * connections.len() as u64,
            connections,
            beyond: options.beyond,
        }
    }

    /// The name of a connection.
    #[must_use]
    pub fn connection(index: usize) -> String {
        format!("c{index}")
    }
}

/// The documented numbers, but for what a case is too short for: comparisons come every 20 s and see each row within five.
/// Half of the time `hold` holds for less than an outage may last.
fn timing(scope: LeaseScope, rng: &mut StdRng) -> Timing {
    let hold_max_ms = [40_000, Timing::default().hold_max_ms][rng.random_range(0..2)];
    Timing { scope, compare_ms: 20_000, sweep_ms: 100_000, hold_max_ms, ..Timing::default() }
}

/// A few cases are quiet, or only slow, or only lose answers, so that what is promised for them is looked at as well; the others have several
/// kinds of faults.
fn kinds(rng: &mut StdRng) -> BTreeSet<Kind> {
    let mut kinds = BTreeSet::new();
    match rng.random_range(0..16) {
        0 | 1 => return kinds,
        2 => return BTreeSet::from([Kind::Slow]),
        3 => return BTreeSet::from([Kind::LostAnswers]),
        _ => {}
    }
    let count = rng.random_range(2..=8);
    while kinds.len() < count {
        kinds.insert(Kind::ALL[rng.random_range(0..Kind::ALL.len())]);
    }
    kinds
}
