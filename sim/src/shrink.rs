//! From a schedule that breaks a promise to a short one that still does.

use crate::case::{Plan, Timed};
use crate::cluster::{Outcome, run};
use crate::ledger::Violation;

/// How often a case is run again at most.
pub const MOST_RUNS: u32 = 80;

/// A short schedule, and what became of it.
pub struct Shrunk {
    /// What is left.
    pub plan: Plan,
    /// Its run.
    pub outcome: Outcome,
    /// How often the case was run for it.
    pub runs: u32,
}

/// Leaves steps out as long as the same promise is broken: halves first, then quarters, and so on (delta debugging, Zeller and Hildebrandt,
/// 2002), within [`MOST_RUNS`].
#[must_use]
pub fn shrink(plan: &Plan, outcome: Outcome) -> Shrunk {
    let Some(broken) = outcome.violation.clone() else { return Shrunk { plan: plan.clone(), outcome, runs: 0 } };
    let mut best = Shrunk { plan: plan.clone(), outcome, runs: 0 };
    let before = |timed: &&Timed| timed.at_ms <= broken.at_ms;
    let steps: Vec<Timed> = plan.steps.iter().filter(before).copied().collect();
    best.attempt(&broken, steps);
    best.without_config(&broken);
    let mut parts = 2;
    while best.runs < MOST_RUNS && best.plan.steps.len() > 1 {
        if best.without_a_part(&broken, parts) {
            parts = parts.saturating_sub(1).max(2);
        } else if parts >= best.plan.steps.len() {
            break;
        } else {
            parts = (parts * 2).min(best.plan.steps.len());
        }
    }
    best
}

impl Shrunk {
    /// Runs with these steps, and keeps them if the same promise is broken.
    fn attempt(&mut self, broken: &Violation, steps: Vec<Timed>) -> bool {
        let plan = Plan { config: self.plan.config.clone(), steps };
        self.try_plan(broken, plan)
    }

    fn try_plan(&mut self, broken: &Violation, plan: Plan) -> bool {
        self.runs += 1;
        let outcome = run(&plan);
        let same = outcome.violation.as_ref().is_some_and(|found| found.invariant == broken.invariant);
        if same {
            self.plan = plan;
            self.outcome = outcome;
        }
        same
    }

    /// What is wrong from the beginning may not matter.
    fn without_config(&mut self, broken: &Violation) {
        let mut plan = self.plan.clone();
        plan.config.drift_ppm.fill(0);
        plan.config.write_limit = None;
        if plan.config != self.plan.config {
            self.try_plan(broken, plan);
        }
    }

    fn without_a_part(&mut self, broken: &Violation, parts: usize) -> bool {
        let steps = self.plan.steps.clone();
        let size = steps.len().div_ceil(parts).max(1);
        for start in (0..steps.len()).step_by(size) {
            if self.runs >= MOST_RUNS {
                return false;
            }
            let end = (start + size).min(steps.len());
            let rest = [&steps[..start], &steps[end..]].concat();
            if self.attempt(broken, rest) {
                return true;
            }
        }
        false
    }
}
