//! The sweep: the whole table, slowly. It finds what no index shows and what no event told.

use crate::decide::acquire::OwnerView;
use crate::decide::desired::{Action, Decision, Row, is_too_far_ahead, of_over_owner, unowned, unreadable};
use crate::decide::lease_time::Now;
use crate::decide::scope::{has_expired, hears_by_itself};
use crate::decide::timing::{Rules, Timing};
use crate::model::{Connection, Lease, ObservedState};

/// Pages a run while the size of the table is not known.
const PAGES_AT_FIRST: u64 = 10;
/// The sweep runs once a minute.
const RUN_MS: u64 = 60_000;

/// How many pages this run sweeps: as many as make the whole table (`table_pages`; 0: unknown) in `sweep_ms`.
#[must_use]
pub fn pages(table_pages: u64, timing: &Timing) -> u64 {
    let runs = (timing.sweep_ms / RUN_MS).max(1);
    if table_pages == 0 { PAGES_AT_FIRST } else { table_pages.div_ceil(runs) }
}

/// Decides about a row of a consistent scan; `owner` is what a consistent read shows of its owner. While `store_may_have_been_away` no
/// row's own lease counts as past: its owner renews first.
#[must_use]
pub fn row(
    row: &Row,
    owner: OwnerView<'_>,
    store_may_have_been_away: bool,
    now: Now,
    timing: &Timing,
    rules: Rules,
) -> Decision {
    let is_over = |lease: &Lease| {
        owner.is_over(now, timing, rules) || (!store_may_have_been_away && has_expired(lease, now, timing))
    };
    match row {
        Row::Gone => Decision::new(vec![], "the row is gone"),
        Row::Unreadable { .. } => unreadable(row, owner.is_over(now, timing, rules)),
        Row::Readable { row, fault } => match &row.lease.owner {
            None => swept_unowned(row, fault.as_deref(), now, timing),
            Some(_) if is_over(&row.lease) => of_over_owner(row, fault.as_deref(), now, timing),
            Some(_) if hears_by_itself(&row.lease, timing) => leased_by_itself(row, now, timing),
            Some(session) => match neglected(row, now, timing) {
                Some(why) => Decision::new(vec![Action::Mark(session.clone())], why),
                None => Decision::new(vec![], "it has a live owner"),
            },
        },
    }
}

/// Nobody can know whether a session still holds a row without an epoch: its owner's comparison comes first.
fn swept_unowned(row: &Connection, fault: Option<&str>, now: Now, timing: &Timing) -> Decision {
    let free_at_ms = row.lease.expires_at_ms.unwrap_or(0);
    let waits = free_at_ms > now.lower_ms && !is_too_far_ahead(free_at_ms, now, timing);
    if row.lease.epoch.is_some() && waits && fault.is_none() {
        return Decision::new(vec![], "stamped ahead");
    }
    unowned(row, fault, now.upper_ms + timing.unknown_ms(), now, timing)
}

/// Its owner's next renewal writes a right time again; without one, a time that is years ahead would never be past.
fn leased_by_itself(row: &Connection, now: Now, timing: &Timing) -> Decision {
    match (row.lease.epoch, row.lease.expires_at_ms) {
        (Some(epoch), Some(expires_at_ms)) if is_too_far_ahead(expires_at_ms, now, timing) => {
            let (owner, free_at_ms) = (row.lease.owner.clone(), now.upper_ms + timing.lease_ms);
            let restamp = Action::Restamp { owner, epoch, expires_at_ms, free_at_ms };
            Decision::new(vec![restamp], "its lease was too far ahead")
        }
        _ => Decision::new(vec![], "it has a live owner"),
    }
}

/// Why a live owner seems not to know of its row: a lost mark, or an acquire whose answer it never got.
fn neglected(row: &Connection, now: Now, timing: &Timing) -> Option<&'static str> {
    if !row.desired_state.is_started() {
        return Some("not started, and its owner has not released it");
    }
    let idle =
        matches!(row.observed_state, ObservedState::Pending | ObservedState::Connecting | ObservedState::Stopped);
    let since_ms = row.observed_since_ms.unwrap_or(0);
    let long = now.lower_ms > since_ms.saturating_add(2 * timing.compare_ms);
    (idle && long).then_some("its owner has not opened it for long")
}

#[cfg(test)]
mod tests;
