//! Many seeds, side by side on threads.

use crate::case::{Options, Plan};
use crate::cluster::{Outcome, run};
use crate::ledger::Line;
use crate::shrink::shrink;
use crate::summary::{Found, Summary};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Lines of a history.
const MOST_LINES: usize = 80;

/// How many seeds are run, and how.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The seeds.
    pub seeds: Range<u64>,
    /// How they become cases.
    pub options: Options,
    /// Seeds side by side.
    pub threads: usize,
    /// So many broken promises are shrunk and shown with their history; of more only the seeds are kept.
    pub shown: usize,
    /// No further seed begins once a promise is broken.
    pub until_found: bool,
}

/// Runs a campaign. `done` hears of each seed.
#[must_use]
pub fn run_seeds(campaign: &Campaign, done: &(dyn Fn(&Outcome) + Sync)) -> Summary {
    let Campaign { seeds, options, threads, shown, until_found } = campaign.clone();
    let stop = AtomicBool::new(false);
    let next = AtomicU64::new(seeds.start);
    let left = AtomicUsize::new(shown);
    let summary = Mutex::new(Summary::new(seeds.clone(), options));
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let plan = Plan::draw(seed, options);
                    let mut outcome = run(&plan);
                    let found = found(&plan, &mut outcome, &left);
                    stop.fetch_or(until_found && found.is_some(), Ordering::Relaxed);
                    done(&outcome);
                    summary.lock().unwrap_or_else(PoisonError::into_inner).add(&outcome, found);
                }
            });
        }
    });
    let mut summary = summary.into_inner().unwrap_or_else(PoisonError::into_inner);
    // Threads end in any order.
    summary.violations.sort_by_key(|found| found.seed);
    summary
}

/// Runs one seed.
#[must_use]
pub fn run_seed(seed: u64, options: Options) -> (Outcome, Summary) {
    let plan = Plan::draw(seed, options);
    let mut outcome = run(&plan);
    let lines = outcome.lines.clone();
    let found = found(&plan, &mut outcome, &AtomicUsize::new(1));
    let mut summary = Summary::new(seed..seed + 1, options);
    summary.add(&outcome, found);
    (Outcome { lines, ..outcome }, summary)
}

fn found(plan: &Plan, outcome: &mut Outcome, left: &AtomicUsize) -> Option<Found> {
    let lines = std::mem::take(&mut outcome.lines);
    let violation = outcome.violation.clone()?;
    let mut found = Found {
        seed: plan.config.seed,
        invariant: violation.invariant,
        at_ms: violation.at_ms,
        connection: violation.connection.clone(),
        what: violation.what.clone(),
        schedule: Vec::new(),
        history: Vec::new(),
    };
    let shown = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
    if shown.is_ok() {
        let whole = Outcome { lines, ..outcome.clone() };
        let shrunk = shrink(plan, whole);
        found.schedule = shrunk.plan.steps.iter().map(ToString::to_string).collect();
        found.history = history(&shrunk.outcome);
    }
    Some(found)
}

/// What happened to the connection, and to the sessions and processes that had to do with it, up to the broken promise.
fn history(outcome: &Outcome) -> Vec<Line> {
    let connection = outcome.violation.as_ref().and_then(|violation| violation.connection.clone());
    let what = outcome.violation.as_ref().map(|violation| violation.what.clone()).unwrap_or_default();
    let about = |line: &&Line| match &connection {
        Some(connection) => line.to == *connection || is_of_cluster(line),
        None => is_of_cluster(line) || what.contains(line.to.as_str()) || line.what.contains("ACTIVE"),
    };
    let lines: Vec<&Line> = outcome.lines.iter().filter(about).collect();
    let skipped = lines.len().saturating_sub(MOST_LINES);
    lines[skipped..].iter().map(|line| (*line).clone()).collect()
}

/// What was done to processes, and ends of sessions, but no renewal.
fn is_of_cluster(line: &Line) -> bool {
    matches!(line.who.as_str(), "plan" | "simulation")
        || line.what.contains("session_state=FENCED")
        || line.what.contains("session_state=ENDED")
        || (line.what.starts_with("session:") && line.what.contains("heartbeat=0 "))
}
