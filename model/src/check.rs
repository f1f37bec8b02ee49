//! Runs the checker, and says what it found.

use crate::protocol::Protocol;
use stateright::{Checker, HasDiscoveries, Model};

/// What a check came to.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Different states.
    pub states: usize,
    /// The longest way to one of them.
    pub depth: usize,
    /// A broken promise, and the steps that lead there.
    pub violation: Option<(&'static str, Vec<String>)>,
}

/// Visits every state within the bounds, or as many as it takes to find a broken promise: shortest ways first.
#[must_use]
pub fn check(model: Protocol, threads: usize) -> Checked {
    let checker = model.checker().threads(threads).finish_when(HasDiscoveries::Any).spawn_bfs().join();
    let violation = checker.discoveries().into_iter().next().map(|(name, path)| {
        let property = checker.model().property(name);
        let mut steps = Vec::new();
        // The checker may go on a little after it has found one: what follows the first bad state is left out.
        for (state, action) in path.into_vec() {
            if !(property.condition)(checker.model(), &state) {
                break;
            }
            steps.extend(action.map(|action| format!("{action:?}")));
        }
        (name, steps)
    });
    Checked { states: checker.unique_state_count(), depth: checker.max_depth(), violation }
}
