//! A row of `sessions`: one run of one worker process; and the marks beside it.

use super::fields::{self, RowError};
use super::{AttributeValue, ConnectionId, Item, SessionId};

/// Attribute names of `sessions`.
pub mod attr {
    #![allow(missing_docs, reason = "each constant is the attribute's own name")]
    pub const SESSION_ID: &str = "session_id";
    pub const TASK_ARN: &str = "task_arn";
    pub const VERSION: &str = "version";
    pub const HEARTBEAT: &str = "heartbeat";
    pub const LEASE_EXPIRES_AT_MS: &str = "lease_expires_at_ms";
    pub const STATE: &str = "session_state";
    pub const STARTED_AT_MS: &str = "started_at_ms";
    pub const OVER_AT_MS: &str = "over_at_ms";
    pub const OVER_REASON: &str = "over_reason";
    pub const EMPTY_SINCE_MS: &str = "empty_since_ms";
    pub const SUSPECT_HEARTBEAT: &str = "suspect_heartbeat";
    pub const SUSPECT_AT_MS: &str = "suspect_at_ms";
    pub const DRAIN: &str = "drain";
    pub const CAPACITY: &str = "capacity";
    pub const HELD: &str = "held";
    pub const CONNECTED: &str = "connected";
    pub const LOOP_LAG_MS: &str = "loop_lag_ms";
    pub const CLOCK_SKEW_MS: &str = "clock_skew_ms";
    pub const COUNTERS: &str = "counters";
    pub const MARKED_IDS: &str = "marked_ids";
    pub const MARKS_VERSION: &str = "marks_version";
    pub const RESYNC: &str = "resync";
}

/// What the key of a session's marks ends with.
pub const MARKS_SUFFIX: &str = "#marks";

/// The key of the item in which reconcile remembers its last look.
pub const RECONCILE_KEY: &str = "#reconcile";

/// At most so many ids are listed in a session's marks; then only `resync`.
pub const MAX_MARKED_IDS: usize = 200;

/// Where a session stands. FENCED and ENDED sessions are *over*: they can never renew again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SessionState {
    /// It may renew.
    Active,
    /// Reconcile ended it.
    Fenced,
    /// It ended itself.
    Ended,
}

impl SessionState {
    /// The stored word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "ACTIVE",
            Self::Fenced => "FENCED",
            Self::Ended => "ENDED",
        }
    }

    /// True once the session can never renew again.
    #[must_use]
    pub fn is_over(self) -> bool {
        self != Self::Active
    }
}

/// A look at an expired session that may be alive; void as soon as the heartbeat moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspicion {
    /// The heartbeat number that was seen.
    pub heartbeat: u64,
    /// When, in lease time.
    pub at_ms: u64,
}

/// A session as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The session's own id.
    pub id: SessionId,
    /// The ECS task, as the task's metadata names it; absent outside ECS.
    pub task_arn: Option<String>,
    /// The worker's version.
    pub version: Option<String>,
    /// Rises with every renewal attempt.
    pub heartbeat: u64,
    /// When the lease ends, in lease time.
    pub lease_expires_at_ms: u64,
    /// ACTIVE, FENCED or ENDED.
    pub state: SessionState,
    /// When it registered, in lease time.
    pub started_at_ms: Option<u64>,
    /// When it became over, in lease time.
    pub over_at_ms: Option<u64>,
    /// Why it is over.
    pub over_reason: Option<String>,
    /// Since when `by_owner` is known to be empty for it (over sessions only).
    pub empty_since_ms: Option<u64>,
    /// The open suspicion.
    pub suspicion: Option<Suspicion>,
    /// It was asked to give its connections up.
    pub drain: bool,
    /// Connections it can hold.
    pub capacity: u64,
    /// Connections it holds.
    pub held: u64,
    /// Sockets that are open.
    pub connected: u64,
    /// Lag of its event loop, in ms.
    pub loop_lag_ms: u64,
    /// The machine's clock less lease time, in ms: reported only.
    pub clock_skew_ms: i64,
    /// Counters by name, since its start.
    pub counters: Vec<(String, u64)>,
}

#[cfg(test)]
impl Session {
    /// A session of which a test says only what matters to it.
    pub(crate) fn sample(id: &str, state: SessionState) -> Self {
        Self {
            id: SessionId::new(id),
            task_arn: None,
            version: None,
            heartbeat: 1,
            lease_expires_at_ms: 0,
            state,
            started_at_ms: None,
            over_at_ms: None,
            over_reason: None,
            empty_since_ms: None,
            suspicion: None,
            drain: false,
            capacity: 0,
            held: 0,
            connected: 0,
            loop_lag_ms: 0,
            clock_skew_ms: 0,
            counters: vec![],
        }
    }
}

impl Session {
    /// Reads a session's row.
    ///
    /// # Errors
    /// [`RowError`] naming the attribute.
    pub fn from_item(item: &Item) -> Result<Self, RowError> {
        let id = required(fields::string(item, attr::SESSION_ID)?, attr::SESSION_ID, "a session's id")?;
        let heartbeat = required(fields::number(item, attr::HEARTBEAT)?, attr::HEARTBEAT, "a number")?;
        let expires = fields::number(item, attr::LEASE_EXPIRES_AT_MS)?;
        Ok(Self {
            id: SessionId::new(id),
            task_arn: fields::string(item, attr::TASK_ARN)?,
            version: fields::string(item, attr::VERSION)?,
            heartbeat,
            lease_expires_at_ms: required(expires, attr::LEASE_EXPIRES_AT_MS, "a time in ms")?,
            state: state(item)?,
            started_at_ms: fields::number(item, attr::STARTED_AT_MS)?,
            over_at_ms: fields::number(item, attr::OVER_AT_MS)?,
            over_reason: fields::string(item, attr::OVER_REASON)?,
            empty_since_ms: fields::number(item, attr::EMPTY_SINCE_MS)?,
            suspicion: suspicion(item)?,
            drain: fields::flag(item, attr::DRAIN)?,
            capacity: fields::number(item, attr::CAPACITY)?.unwrap_or(0),
            held: fields::number(item, attr::HELD)?.unwrap_or(0),
            connected: fields::number(item, attr::CONNECTED)?.unwrap_or(0),
            loop_lag_ms: fields::number(item, attr::LOOP_LAG_MS)?.unwrap_or(0),
            clock_skew_ms: skew(item),
            counters: counters(item),
        })
    }
}

fn required<T>(value: Option<T>, attribute: &'static str, wanted: &'static str) -> Result<T, RowError> {
    value.ok_or(RowError::Missing { attribute, wanted })
}

fn state(item: &Item) -> Result<SessionState, RowError> {
    let wanted = "ACTIVE, FENCED or ENDED";
    let text = required(fields::string(item, attr::STATE)?, attr::STATE, wanted)?;
    for state in [SessionState::Active, SessionState::Fenced, SessionState::Ended] {
        if state.as_str() == text {
            return Ok(state);
        }
    }
    Err(RowError::Wrong { attribute: attr::STATE, found: fields::short(&text), wanted })
}

fn suspicion(item: &Item) -> Result<Option<Suspicion>, RowError> {
    let heartbeat = fields::number(item, attr::SUSPECT_HEARTBEAT)?;
    let at_ms = fields::number(item, attr::SUSPECT_AT_MS)?;
    Ok(heartbeat.zip(at_ms).map(|(heartbeat, at_ms)| Suspicion { heartbeat, at_ms }))
}

fn skew(item: &Item) -> i64 {
    match item.get(attr::CLOCK_SKEW_MS) {
        Some(AttributeValue::N(text)) => text.parse().unwrap_or(0),
        _ => 0,
    }
}

fn counters(item: &Item) -> Vec<(String, u64)> {
    let mut out = Vec::new();
    if let Some(AttributeValue::M(map)) = item.get(attr::COUNTERS) {
        for (name, value) in map {
            if let AttributeValue::N(text) = value {
                out.push((name.clone(), text.parse().unwrap_or(0)));
            }
        }
    }
    out.sort();
    out
}

/// What a live owner is asked to look at again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The connections to look at.
    pub ids: Vec<ConnectionId>,
    /// Rises with each mark and never restarts.
    pub version: u64,
    /// Look at everything that is held, and at everything that `by_owner` shows.
    pub resync: bool,
}

impl Marks {
    /// The key of a session's marks.
    #[must_use]
    pub fn key(session: &SessionId) -> String {
        format!("{session}{MARKS_SUFFIX}")
    }

    /// Reads the marks item. Ids that are none are left out: `resync` is set instead, so that nothing is missed.
    ///
    /// # Errors
    /// [`RowError`] naming the attribute.
    pub fn from_item(item: &Item) -> Result<Self, RowError> {
        let mut marks = Self {
            ids: Vec::new(),
            version: fields::number(item, attr::MARKS_VERSION)?.unwrap_or(0),
            resync: fields::flag(item, attr::RESYNC)?,
        };
        for id in fields::strings(item, attr::MARKED_IDS)? {
            match ConnectionId::new(id) {
                Ok(id) => marks.ids.push(id),
                Err(_) => marks.resync = true,
            }
        }
        Ok(marks)
    }

    /// True when there is nothing to look at.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty() && !self.resync
    }
}
