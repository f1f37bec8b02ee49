//! What the book knows of each row, session, process and socket.

use crate::faults::Kind;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What a person wants of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// There is a row.
    pub exists: bool,
    /// It says STARTED.
    pub started: bool,
    /// Which URL it names.
    pub generation: u64,
    /// Its messages carry numbers.
    pub numbered: bool,
    /// The last edit, in ms.
    pub edited_ms: u64,
    /// When the lease's attributes were last overwritten under whoever held it, in ms.
    pub overwritten_ms: Option<u64>,
    /// When the row was last deleted, in ms.
    pub deleted_ms: Option<u64>,
}

/// A connection's row.
#[derive(Clone, Debug, Default)]
pub struct RowNote {
    /// As it is stored; `None` where there is none.
    pub image: Option<Value>,
    /// What its person wants.
    pub wish: Wish,
    /// The highest epoch ever, and when it was written.
    pub highest_epoch: (u64, u64),
    /// Owners and epochs that it has had.
    pub pairs: BTreeSet<(String, u64)>,
    /// Since when it names a session that is over, in ms.
    pub stranded_since_ms: Option<u64>,
    /// Since when it is STARTED without an open socket of a running process, and why, in ms.
    pub down_since: Option<(u64, &'static str)>,
    /// When its last socket opened, in ms.
    pub opened_ms: u64,
    /// When it last had two sockets, which were excused, in ms.
    pub doubled_ms: Option<u64>,
    /// The process that had the last socket.
    pub holder: String,
    /// When its upstream last closed or refused, in ms.
    pub upstream_trouble_ms: Option<u64>,
}

/// A session.
#[derive(Clone, Debug)]
pub struct SessionNote {
    /// As it is stored; `None` once it is removed.
    pub image: Option<Value>,
    /// The process whose session it is.
    pub process: String,
    /// When its registration was applied, in ms.
    pub registered_ms: u64,
    /// When its last renewal (or its registration) was applied, in ms.
    pub renewed_ms: u64,
    /// When it became over, in ms.
    pub over_ms: Option<u64>,
    /// It was fenced for a task event that lied.
    pub by_a_lie: bool,
}

impl SessionNote {
    /// It can never renew again.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over_ms.is_some() || self.image.is_none()
    }
}

/// A process.
#[derive(Clone, Debug, Default)]
pub struct ProcessNote {
    /// It was started and has not ended.
    pub alive: bool,
    /// It was told to stop.
    pub terminating: bool,
    /// It is not run at the moment.
    pub suspended: bool,
    /// Its newest session.
    pub session: Option<String>,
    /// Until when each fault lasts, or lasted, in ms.
    pub faults: BTreeMap<Kind, u64>,
    /// When it could last not trust its lease any more, in ms.
    pub doubt_ms: Option<u64>,
    /// When it last acquired each connection, in ms.
    pub acquired: BTreeMap<String, u64>,
}

impl ProcessNote {
    /// Whether one of these faults lasted until `since_ms` or longer.
    #[must_use]
    pub fn suffered(&self, since_ms: u64, is: impl Fn(Kind) -> bool) -> bool {
        self.faults.iter().any(|(kind, until_ms)| is(*kind) && *until_ms >= since_ms)
    }
}

/// An open socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketNote {
    /// The connection.
    pub connection: String,
    /// Which of its URLs.
    pub generation: u64,
    /// Whose it is.
    pub process: String,
    /// Since when, in ms.
    pub opened_ms: u64,
}

/// The messages of one numbered feed.
#[derive(Clone, Debug, Default)]
pub struct FeedNote {
    /// When each number was published, in ms; the first is number 1.
    pub published_ms: Vec<u64>,
    /// Where each stored number is.
    pub stored: BTreeMap<u64, String>,
}
