//! Sessions that are over: their connections find a new owner, and their rows are removed in the end.

use crate::decide::acquire::OwnerView;
use crate::decide::desired::{Decision, Row, of_over_owner};
use crate::decide::lease_time::Now;
use crate::decide::reconcile::Turns;
use crate::decide::timing::{Rules, Timing};
use crate::model::connection::{DesiredState, attr};
use crate::model::fields::{self, RowError};
use crate::model::{ConnectionId, Item, Session, SessionId};

/// Two looks that find nothing must lie so far apart, in ms, before a session's row may go.
const EMPTY_TWICE_MS: u64 = 600_000;

/// Whether a session counts as over.
#[must_use]
pub fn is_over(session: &Session, now: Now, timing: &Timing, rules: Rules) -> bool {
    OwnerView::Session(session).is_over(now, timing, rules)
}

/// Whether this run looks at the connections of an over session: at first every run does, later those of a whole minute.
#[must_use]
pub fn is_looked_at(session: &Session, minute: bool, now: Now, timing: &Timing) -> bool {
    minute || looks_often(session, now, timing)
}

/// Whether every run looks at an over session: for so long after its end. If not, its rows have the turns since the last run of a minute.
#[must_use]
pub fn looks_often(session: &Session, now: Now, timing: &Timing) -> bool {
    let since_ms = session.over_at_ms.unwrap_or(now.lower_ms);
    now.lower_ms.saturating_sub(since_ms) <= timing.over_often_ms
}

/// What `by_owner` shows of one row of an over session. It is a hint: claims prove nothing, and nothing is reaped without a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexRow {
    /// Claim it.
    Claim(ConnectionId),
    /// Claim it at another turn.
    Wait(ConnectionId),
    /// Read it: it may have to be reaped.
    Read(ConnectionId),
}

/// Decides about a row of the index. `unclaimed`: nobody has claimed it since its owner was fenced.
///
/// # Errors
/// [`RowError`] when the row's key is no connection's.
pub fn index_row(item: &Item, unclaimed: bool, turns: Turns) -> Result<IndexRow, RowError> {
    let id = key_of(item)?;
    let state = fields::string(item, attr::DESIRED_STATE).ok().flatten();
    Ok(match state.as_deref() {
        Some(DesiredState::STARTED) if unclaimed || turns.has(id.as_str()) => IndexRow::Claim(id),
        Some(DesiredState::STARTED) => IndexRow::Wait(id),
        _ => IndexRow::Read(id),
    })
}

/// The id in a row's key.
///
/// # Errors
/// [`RowError`] when the key is no connection's.
pub fn key_of(item: &Item) -> Result<ConnectionId, RowError> {
    let pk = fields::string(item, attr::PK)?.ok_or(RowError::Missing { attribute: attr::PK, wanted: "CONN#<id>" })?;
    Ok(ConnectionId::from_pk(&pk)?)
}

/// Decides about a row that was read consistently because the index shows it under `owner`, which is over.
#[must_use]
pub fn read_row(row: &Row, owner: &SessionId, now: Now, timing: &Timing) -> Decision {
    match row {
        Row::Readable { row, fault } if row.lease.owner.as_ref() == Some(owner) => {
            of_over_owner(row, fault.as_deref(), now, timing)
        }
        _ => Decision::new(vec![], "the index was late, or the row cannot be read"),
    }
}

/// What becomes of an over session's own row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// It stays as it is.
    AsItIs,
    /// Note since when its index entries are gone (lease time), or that there are some after all.
    NoteEmpty(Option<u64>),
    /// It may go.
    Remove,
}

/// Decides about an over session's row, after a look at `by_owner` which found it `empty` or not.
#[must_use]
pub fn keep(session: &Session, empty: bool, now: Now, timing: &Timing) -> Keep {
    if !session.state.is_over() {
        return Keep::AsItIs;
    }
    match session.empty_since_ms {
        None if empty => Keep::NoteEmpty(Some(now.upper_ms)),
        Some(_) if !empty => Keep::NoteEmpty(None),
        Some(since_ms) => {
            let over_at_ms = session.over_at_ms.unwrap_or(since_ms);
            let old = now.lower_ms >= over_at_ms.saturating_add(timing.over_keep_ms);
            let twice = now.lower_ms >= since_ms.saturating_add(EMPTY_TWICE_MS);
            if old && twice { Keep::Remove } else { Keep::AsItIs }
        }
        None => Keep::AsItIs,
    }
}

#[cfg(test)]
mod tests;
