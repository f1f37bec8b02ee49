//! Which messages a standard queue hands out next.

use super::index::Index;

/// Numbers of messages to take, in order, so that at most `max` of them are not dead. Dead ones (received too often
/// already) are listed as well: they leave for the dead-letter queue.
///
/// SQS promises no order; oldest first is its usual behaviour, and repeatable.
pub fn plan(index: &Index, max: usize, is_dead: impl Fn(u64) -> bool) -> Vec<u64> {
    let mut plan = Vec::new();
    let mut alive = 0;
    for &number in &index.ready {
        if alive == max {
            break;
        }
        if !is_dead(number) {
            alive += 1;
        }
        plan.push(number);
    }
    plan
}
