//! A row of `connections`: wish, lease, progress and status of one connection.

use super::fields::{self, RowError, short};
use super::{ConnectionId, Item, SessionId};
use std::fmt;

/// Attribute names of `connections`, the same words as in the documentation.
pub mod attr {
    #![allow(missing_docs, reason = "each constant is the attribute's own name")]
    pub const PK: &str = "Pk";
    pub const DESIRED_STATE: &str = "desired_state";
    pub const LEASE_OWNER: &str = "lease_owner";
    pub const LEASE_EPOCH: &str = "lease_epoch";
    pub const LEASE_EXPIRES_AT_MS: &str = "lease_expires_at_ms";
    pub const LAST_SEQ: &str = "last_seq";
    pub const SERIES: &str = "series";
    pub const OBSERVED_STATE: &str = "observed_state";
    pub const REASON: &str = "reason";
    pub const OBSERVED_SINCE_MS: &str = "observed_since_ms";
    pub const OWNERS: &str = "owners";
    pub const SPEC_CHANGED: &str = "spec_changed";
}

/// The index of connections by wish and lease expiry: `desired_state` + `lease_expires_at_ms`: unowned rows, and owned ones that are leased by themselves.
pub const INDEX_BY_EXPIRY: &str = "by_expiry";

/// The index of connections by owner: `lease_owner`, with epoch and desired state.
pub const INDEX_BY_OWNER: &str = "by_owner";

/// Epochs are counts or times in ms and stay below this, the year 2109. A larger one was written by hand: the next owner's would
/// lie above it, and no epoch made of the time would ever rise above that one again.
pub const EPOCH_END: u64 = 1 << 42;

/// What the user wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DesiredState {
    /// One worker holds the socket.
    Started,
    /// No socket.
    Stopped,
    /// A text that is neither; treated as STOPPED, and said so in the row's `reason`.
    Unknown(String),
}

impl DesiredState {
    /// The stored word for STARTED.
    pub const STARTED: &'static str = "STARTED";
    /// The stored word for STOPPED.
    pub const STOPPED: &'static str = "STOPPED";

    fn from_text(text: String) -> Self {
        match text.as_str() {
            Self::STARTED => Self::Started,
            Self::STOPPED => Self::Stopped,
            _ => Self::Unknown(text),
        }
    }

    /// True for STARTED only.
    #[must_use]
    pub fn is_started(&self) -> bool {
        *self == Self::Started
    }
}

/// Who holds a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// The owner, absent while the row is free.
    pub owner: Option<SessionId>,
    /// The fencing token; absent until the row is stamped.
    pub epoch: Option<u64>,
    /// When a free row may be taken, in lease time (0: now). While it is owned: when its owner's lease of the row ends, or absent where the
    /// owner leases by its session.
    pub expires_at_ms: Option<u64>,
}

/// How far a connection's messages got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The highest sequence number that the sink has acknowledged, as of the last checkpoint.
    pub last_seq: Option<u64>,
    /// The series that `last_seq` counts in.
    pub series: Option<String>,
}

/// How a connection is, as its owner last said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ObservedState {
    /// Wanted, nobody holds it yet.
    Pending,
    /// An owner is opening the socket.
    Connecting,
    /// The socket is open.
    Connected,
    /// The upstream is down or refuses; the owner tries again later.
    Backoff,
    /// The owner stopped trying until the spec changes.
    Parked,
    /// Not wanted and closed.
    Stopped,
}

impl ObservedState {
    /// All states, for reading and for counting.
    pub const ALL: [Self; 6] =
        [Self::Pending, Self::Connecting, Self::Connected, Self::Backoff, Self::Parked, Self::Stopped];

    /// The stored word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Connecting => "CONNECTING",
            Self::Connected => "CONNECTED",
            Self::Backoff => "BACKOFF",
            Self::Parked => "PARKED",
            Self::Stopped => "STOPPED",
        }
    }
}

impl fmt::Display for ObservedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A connection without its spec: all that ownership needs. A bad spec never keeps a row from being read as this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The user's id.
    pub id: ConnectionId,
    /// The wish.
    pub desired_state: DesiredState,
    /// The lease.
    pub lease: Lease,
    /// The progress.
    pub progress: Progress,
    /// The status; absent or unreadable reads as PENDING, since it decides nothing about ownership.
    pub observed_state: ObservedState,
    /// The sentence beside the status.
    pub reason: Option<String>,
    /// Since when the status holds, in lease time.
    pub observed_since_ms: Option<u64>,
    /// The last few owners and why each ended, oldest first.
    pub owners: Vec<String>,
    /// A tool has changed the spec and the owner has not written since.
    pub spec_changed: bool,
}

impl Connection {
    /// Reads a row, without its spec.
    ///
    /// # Errors
    /// [`RowError`] naming the attribute: the key, a missing `desired_state`, a lease attribute of the wrong type, or an impossible epoch.
    pub fn from_item(item: &Item) -> Result<Self, RowError> {
        let pk =
            fields::string(item, attr::PK)?.ok_or(RowError::Missing { attribute: attr::PK, wanted: "CONN#<id>" })?;
        let desired_state = fields::string(item, attr::DESIRED_STATE)?
            .ok_or(RowError::Missing { attribute: attr::DESIRED_STATE, wanted: "STARTED or STOPPED" })?;
        let observed = fields::string(item, attr::OBSERVED_STATE).ok().flatten();
        let observed_state = ObservedState::ALL.into_iter().find(|state| Some(state.as_str()) == observed.as_deref());
        Ok(Self {
            id: ConnectionId::from_pk(&pk)?,
            desired_state: DesiredState::from_text(desired_state),
            lease: Lease {
                owner: fields::string(item, attr::LEASE_OWNER)?.map(SessionId::new),
                epoch: epoch(item)?,
                expires_at_ms: fields::number(item, attr::LEASE_EXPIRES_AT_MS)?,
            },
            progress: Progress {
                last_seq: fields::number(item, attr::LAST_SEQ)?,
                series: fields::string(item, attr::SERIES)?,
            },
            observed_state: observed_state.unwrap_or(ObservedState::Pending),
            reason: fields::string(item, attr::REASON).ok().flatten(),
            observed_since_ms: fields::number(item, attr::OBSERVED_SINCE_MS).ok().flatten(),
            owners: fields::strings(item, attr::OWNERS).unwrap_or_default(),
            spec_changed: item.contains_key(attr::SPEC_CHANGED),
        })
    }

    /// What is wrong with the wish, if anything, as a sentence for the row's `reason`.
    #[must_use]
    pub fn bad_wish(&self) -> Option<String> {
        match &self.desired_state {
            DesiredState::Unknown(text) => {
                Some(format!("desired_state is {}: it must be STARTED or STOPPED", short(text)))
            }
            _ => None,
        }
    }
}

fn epoch(item: &Item) -> Result<Option<u64>, RowError> {
    let epoch = fields::number(item, attr::LEASE_EPOCH)?;
    match epoch {
        Some(found) if found >= EPOCH_END => Err(RowError::Wrong {
            attribute: attr::LEASE_EPOCH,
            found: found.to_string(),
            wanted: "a number below 2^42, as functions and workers write it (remove it if you wrote it by hand)",
        }),
        _ => Ok(epoch),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::AttributeValue;
    use crate::model::spec::minimal_item;

    #[test]
    fn an_epoch_that_no_time_can_rise_above_makes_a_bad_row() {
        let mut item = minimal_item(&ConnectionId::new("a").unwrap(), true, "wss://example.com/");
        item.insert(attr::LEASE_EPOCH.to_owned(), AttributeValue::N("4398046511103".into()));
        assert_eq!(Connection::from_item(&item).unwrap().lease.epoch, Some(EPOCH_END - 1));
        for epoch in ["4398046511104", "18446744073709551615"] {
            item.insert(attr::LEASE_EPOCH.to_owned(), AttributeValue::N(epoch.into()));
            let error = Connection::from_item(&item).unwrap_err().to_string();
            assert!(error.starts_with(&format!("lease_epoch is {epoch}: it must be a number below 2^42")), "{error}");
        }
    }
}
