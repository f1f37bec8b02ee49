//! What a change of a row asks for. A change only wakes us: the row is read again, and all that is taken from the change is
//! who owned the row before.

use super::acquire::{Expected, OwnerView};
use super::lease_time::Now;
use super::scope::{hears_by_itself, owner_is_over};
use super::timing::{Rules, Timing};
use crate::model::connection::{DesiredState, attr};
use crate::model::{AttributeValue, Connection, ConnectionId, Item, ObservedState, RowError, SessionId, Spec};

/// One thing to do about a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask a live session to look at the row again.
    Mark(SessionId),
    /// Free a row that is not wanted, whose owner is over.
    Reap(Expected),
    /// Give a row its first epoch; free at this lease time (0: at once).
    Stamp {
        /// When the row may be taken, in lease time.
        free_at_ms: u64,
    },
    /// Write a time anew that lies so far ahead that none of us can have written it: of a free row, or of one whose owner leases it by itself.
    Restamp {
        /// The owner, as read; it stays.
        owner: Option<SessionId>,
        /// The epoch, as read; it stays.
        epoch: u64,
        /// The expiry, as read.
        expires_at_ms: u64,
        /// The new expiry, in lease time: when a free row may be taken, or when its owner's lease of it ends.
        free_at_ms: u64,
    },
    /// Say on the row what is wrong with it.
    WriteFault(String),
    /// Ask workers to look at the row, after so many ms.
    Claim {
        /// How long from now.
        delay_ms: u64,
    },
}

/// What is done about one row, in this order; what follows a failure is left undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Marks come first, then writes to the row, then the claim.
    pub actions: Vec<Action>,
    /// Why, for the log.
    pub why: &'static str,
}

impl Decision {
    /// These actions, for this reason.
    #[must_use]
    pub fn new(actions: Vec<Action>, why: &'static str) -> Self {
        Self { actions, why }
    }
}

/// A decision about a connection, ready to be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The connection.
    pub id: ConnectionId,
    /// What is done.
    pub decision: Decision,
}

/// A row as a consistent read shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Row {
    /// There is none.
    Gone,
    /// All that ownership needs can be read.
    Readable {
        /// The row.
        row: Box<Connection>,
        /// What its user has to repair: the wish, or the spec of a STARTED row.
        fault: Option<String>,
    },
    /// Not even that.
    Unreadable {
        /// Who owns it, if that much can be read.
        owner: Option<SessionId>,
        /// What its user has to repair.
        fault: String,
        /// The row says so already.
        said: bool,
    },
}

impl Row {
    /// Reads a row, whatever is in it.
    #[must_use]
    pub fn read(item: Option<&Item>) -> Self {
        let Some(item) = item else { return Self::Gone };
        match Connection::from_item(item) {
            Ok(row) => {
                let fault = row.bad_wish().or_else(|| unusable_spec(&row, item));
                Self::Readable { row: Box::new(row), fault }
            }
            Err(error) => Self::unreadable(item, &error),
        }
    }

    fn unreadable(item: &Item, error: &RowError) -> Self {
        let fault = error.to_string();
        let said = text(item, attr::REASON) == Some(&fault)
            && text(item, attr::OBSERVED_STATE) == Some(ObservedState::Parked.as_str());
        Self::Unreadable { owner: text(item, attr::LEASE_OWNER).map(SessionId::new), fault, said }
    }

    /// Who owns it.
    #[must_use]
    pub fn owner(&self) -> Option<&SessionId> {
        match self {
            Self::Gone => None,
            Self::Readable { row, .. } => row.lease.owner.as_ref(),
            Self::Unreadable { owner, .. } => owner.as_ref(),
        }
    }
}

/// A row that is not wanted needs no spec.
fn unusable_spec(row: &Connection, item: &Item) -> Option<String> {
    if !row.desired_state.is_started() {
        return None;
    }
    Spec::from_item(item).err().map(|error| error.to_string())
}

fn text<'a>(item: &'a Item, attribute: &str) -> Option<&'a str> {
    match item.get(attribute) {
        Some(AttributeValue::S(text)) => Some(text),
        _ => None,
    }
}

/// Who owned a row before a change, as the old image says.
#[must_use]
pub fn old_owner(old: Option<&Item>) -> Option<SessionId> {
    text(old?, attr::LEASE_OWNER).map(SessionId::new)
}

/// Whether a change is one of those that ask for a look: the patterns of `filter-patterns.json`, compared properly. Our own
/// acquire, release, checkpoint, stamp and reap are not.
#[must_use]
pub fn wants_look(old: Option<&Item>, new: Option<&Item>) -> bool {
    let state =
        |image: Option<&Item>| image.and_then(|item| text(item, attr::DESIRED_STATE)) == Some(DesiredState::STARTED);
    let epoch = |image: Option<&Item>| {
        image.is_some_and(|item| matches!(item.get(attr::LEASE_EPOCH), Some(AttributeValue::N(_))))
    };
    let inserted = old.is_none_or(|item| text(item, attr::PK).is_none());
    let flagged = new.is_some_and(|item| text(item, attr::SPEC_CHANGED).is_some());
    inserted || state(old) != state(new) || (epoch(old) && !epoch(new)) || flagged
}

/// All that a decision about a changed row looks at.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Who owned the row before the changes, oldest first, with a consistent read of each session.
    pub old_owners: &'a [(SessionId, OwnerView<'a>)],
    /// A consistent read of the row.
    pub row: &'a Row,
    /// The session of the row's owner, read consistently after the row.
    pub owner: OwnerView<'a>,
}

/// Decides what a changed row asks for.
#[must_use]
pub fn decide(seen: &Seen<'_>, now: Now, timing: &Timing, rules: Rules) -> Decision {
    // Whoever held the row before may hold its socket still: it hears of the change first.
    let mut actions = Vec::new();
    for (session, view) in seen.old_owners {
        let mark = Action::Mark(session.clone());
        if seen.row.owner() != Some(session) && !view.is_over(now, timing, rules) && !actions.contains(&mark) {
            actions.push(mark);
        }
    }
    let old_owner_lives = !actions.is_empty();
    let then = match seen.row {
        Row::Gone => Decision::new(vec![], "the row is gone"),
        Row::Unreadable { .. } => unreadable(seen.row, seen.owner.is_over(now, timing, rules)),
        Row::Readable { row, fault } => match &row.lease.owner {
            None => {
                let free_at_ms = if old_owner_lives { now.upper_ms + timing.overwritten_ms() } else { 0 };
                unowned(row, fault.as_deref(), free_at_ms, now, timing)
            }
            Some(_) if owner_is_over(&row.lease, seen.owner, now, timing, rules) => {
                of_over_owner(row, fault.as_deref(), now, timing)
            }
            Some(_) if hears_by_itself(&row.lease, timing) => Decision::new(vec![], "its owner's renewal tells it"),
            Some(owner) => Decision::new(vec![Action::Mark(owner.clone())], "it has a live owner"),
        },
    };
    actions.extend(then.actions);
    Decision::new(actions, then.why)
}

/// An unreadable row is never taken. A live owner is told, so that it parks.
pub(super) fn unreadable(row: &Row, owner_is_over: bool) -> Decision {
    let why = "the row cannot be read";
    match row {
        Row::Unreadable { owner: Some(owner), .. } if !owner_is_over => {
            Decision::new(vec![Action::Mark(owner.clone())], why)
        }
        Row::Unreadable { owner: None, fault, said: false } => {
            Decision::new(vec![Action::WriteFault(fault.clone())], why)
        }
        _ => Decision::new(vec![], why),
    }
}

/// A free row: stamped if it is new (free at `free_at_ms`), or stamped too far ahead, and claimed if it is wanted and usable.
pub(super) fn unowned(row: &Connection, fault: Option<&str>, free_at_ms: u64, now: Now, timing: &Timing) -> Decision {
    let mut actions = Vec::new();
    let (mut free_at_ms, mut why) = (free_at_ms, "a new row");
    if let Some(epoch) = row.lease.epoch {
        (free_at_ms, why) = (row.lease.expires_at_ms.unwrap_or(0), "it has no owner");
        if is_too_far_ahead(free_at_ms, now, timing) {
            let expires_at_ms = free_at_ms;
            (free_at_ms, why) = (now.upper_ms + timing.unknown_ms(), "it was stamped too far ahead");
            actions.push(Action::Restamp { owner: None, epoch, expires_at_ms, free_at_ms });
        }
    } else {
        actions.push(Action::Stamp { free_at_ms });
    }
    if let Some(fault) = fault {
        actions.extend(say(row, fault));
        return Decision::new(actions, "the row is not usable");
    }
    if !row.desired_state.is_started() {
        return Decision::new(actions, "not started");
    }
    actions.push(Action::Claim { delay_ms: free_at_ms.saturating_sub(now.lower_ms) });
    Decision::new(actions, why)
}

/// Whether a free row's time lies further ahead than anybody stamps one. By itself such a row would be free years later, or never.
pub(super) fn is_too_far_ahead(free_at_ms: u64, now: Now, timing: &Timing) -> bool {
    free_at_ms > now.upper_ms + timing.unknown_ms() + timing.margin_ms
}

/// A row whose owner is over. A STARTED one is claimed with a bad spec as well: a new owner parks it.
pub(super) fn of_over_owner(row: &Connection, fault: Option<&str>, now: Now, timing: &Timing) -> Decision {
    if row.desired_state.is_started() {
        return Decision::new(vec![Action::Claim { delay_ms: 0 }], "its owner is over");
    }
    let mut actions = vec![Action::Reap(Expected::of(row, None, now, timing))];
    actions.extend(fault.and_then(|fault| say(row, fault)));
    Decision::new(actions, "not started, its owner is over")
}

/// What the row says already is not written again: our own write would come back as a change, for ever where a flag is set.
fn say(row: &Connection, fault: &str) -> Option<Action> {
    let said = row.observed_state == ObservedState::Parked && row.reason.as_deref() == Some(fault);
    (!said).then(|| Action::WriteFault(fault.to_owned()))
}

#[cfg(test)]
mod tests;
