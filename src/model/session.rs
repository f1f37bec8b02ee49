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
    pub const UNCLAIMED_FROM: &str = "unclaimed_from";
    pub const EMPTY_SINCE_MS: &str = "empty_since_ms";
    pub const SUSPECT_HEARTBEAT: &str = "suspect_heartbeat";
    pub const SUSPECT_AT_MS: &str = "suspect_at_ms";
    pub const UNREADABLE_SINCE_MS: &str = "unreadable_since_ms";
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
    /// It was fenced, and what `by_owner` shows after this key has not been claimed since ("": nothing has). Absent once everything was.
    pub unclaimed_from: Option<String>,
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

impl Session {
    /// A session of which nothing else is said: for tests and models, which say only what matters to them.
    #[must_use]
    pub fn sample(id: &str, state: SessionState) -> Self {
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
            unclaimed_from: None,
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

    /// Reads a session's row. Only what its lease needs has to be right: anything else of a wrong type reads as absent, so that no slip of
    /// a hand keeps a session's connections from anybody.
    ///
    /// # Errors
    /// [`RowError`] naming the attribute: the key, `session_state`, or, of an ACTIVE session, `heartbeat` or `lease_expires_at_ms`.
    pub fn from_item(item: &Item) -> Result<Self, RowError> {
        let id = required(fields::string(item, attr::SESSION_ID)?, attr::SESSION_ID, "a session's id")?;
        let state = state(item)?;
        let lease = |attribute, wanted| match fields::number(item, attribute) {
            // Nothing is decided by the lease of a session that is over.
            outcome if state.is_over() => Ok(outcome.ok().flatten().unwrap_or(0)),
            outcome => required(outcome?, attribute, wanted),
        };
        Ok(Self {
            id: SessionId::new(id),
            task_arn: text(item, attr::TASK_ARN),
            version: text(item, attr::VERSION),
            heartbeat: lease(attr::HEARTBEAT, "a number")?,
            lease_expires_at_ms: lease(attr::LEASE_EXPIRES_AT_MS, "a time in ms")?,
            state,
            started_at_ms: number(item, attr::STARTED_AT_MS),
            over_at_ms: number(item, attr::OVER_AT_MS),
            over_reason: text(item, attr::OVER_REASON),
            unclaimed_from: text(item, attr::UNCLAIMED_FROM),
            empty_since_ms: number(item, attr::EMPTY_SINCE_MS),
            suspicion: suspicion(item),
            drain: is_set(item, attr::DRAIN),
            capacity: number(item, attr::CAPACITY).unwrap_or(0),
            held: number(item, attr::HELD).unwrap_or(0),
            connected: number(item, attr::CONNECTED).unwrap_or(0),
            loop_lag_ms: number(item, attr::LOOP_LAG_MS).unwrap_or(0),
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

/// A text; any other type reads as absent.
fn text(item: &Item, attribute: &'static str) -> Option<String> {
    fields::string(item, attribute).ok().flatten()
}

/// A number; anything else reads as absent.
fn number(item: &Item, attribute: &'static str) -> Option<u64> {
    fields::number(item, attribute).ok().flatten()
}

/// Whether a flag is set: true, or the text "true", as tools without booleans write it.
fn is_set(item: &Item, attribute: &str) -> bool {
    match item.get(attribute) {
        Some(AttributeValue::Bool(value)) => *value,
        Some(AttributeValue::S(text)) => text.eq_ignore_ascii_case("true"),
        _ => false,
    }
}

fn suspicion(item: &Item) -> Option<Suspicion> {
    let (heartbeat, at_ms) = (number(item, attr::SUSPECT_HEARTBEAT)?, number(item, attr::SUSPECT_AT_MS)?);
    Some(Suspicion { heartbeat, at_ms })
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

    /// Reads the marks item. Where ids cannot be read `resync` is set instead, so that nothing is missed.
    ///
    /// # Errors
    /// [`RowError`] when there is no version: without it the marks could never be removed.
    pub fn from_item(item: &Item) -> Result<Self, RowError> {
        let version = required(fields::number(item, attr::MARKS_VERSION)?, attr::MARKS_VERSION, "a number")?;
        let ids = fields::strings(item, attr::MARKED_IDS);
        let resync = item.get(attr::RESYNC).is_some_and(|value| *value != AttributeValue::Bool(false));
        let mut marks = Self { ids: Vec::new(), version, resync: resync || ids.is_err() };
        for id in ids.unwrap_or_default() {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn row(state: &str, lease: AttributeValue) -> Item {
        let mut item = std::collections::HashMap::new();
        item.insert(attr::SESSION_ID.to_owned(), AttributeValue::S("w1".into()));
        item.insert(attr::STATE.to_owned(), AttributeValue::S(state.into()));
        item.insert(attr::HEARTBEAT.to_owned(), AttributeValue::N("7".into()));
        item.insert(attr::LEASE_EXPIRES_AT_MS.to_owned(), lease);
        item.into()
    }

    fn n(number: u64) -> AttributeValue {
        AttributeValue::N(number.to_string())
    }

    #[test]
    fn only_what_the_lease_needs_has_to_be_right() {
        let mut item = row("ACTIVE", n(20_000));
        let others = [
            attr::TASK_ARN,
            attr::VERSION,
            attr::STARTED_AT_MS,
            attr::OVER_AT_MS,
            attr::OVER_REASON,
            attr::UNCLAIMED_FROM,
            attr::EMPTY_SINCE_MS,
            attr::SUSPECT_HEARTBEAT,
            attr::SUSPECT_AT_MS,
            attr::DRAIN,
            attr::CAPACITY,
            attr::HELD,
            attr::CONNECTED,
            attr::LOOP_LAG_MS,
            attr::CLOCK_SKEW_MS,
            attr::COUNTERS,
        ];
        for name in others {
            item.insert(name.to_owned(), AttributeValue::Null(true));
        }
        let expected =
            Session { heartbeat: 7, lease_expires_at_ms: 20_000, ..Session::sample("w1", SessionState::Active) };
        assert_eq!(Session::from_item(&item), Ok(expected));
        for name in [attr::HEARTBEAT, attr::LEASE_EXPIRES_AT_MS, attr::STATE] {
            let mut broken = item.clone();
            broken.insert(name.to_owned(), AttributeValue::Null(true));
            assert!(Session::from_item(&broken).unwrap_err().to_string().starts_with(name));
        }
    }

    #[test]
    fn a_drain_that_was_written_as_a_text_counts() {
        let drains = |value| {
            let mut item = row("ACTIVE", n(20_000));
            item.insert(attr::DRAIN.to_owned(), value);
            Session::from_item(&item).unwrap().drain
        };
        assert!(drains(AttributeValue::S("true".into())) && drains(AttributeValue::Bool(true)));
        assert!(!drains(AttributeValue::S("false".into())) && !drains(AttributeValue::Bool(false)));
    }

    #[test]
    fn a_session_that_is_over_needs_no_lease() {
        for state in ["FENCED", "ENDED"] {
            assert!(Session::from_item(&row(state, AttributeValue::Null(true))).unwrap().state.is_over());
        }
    }

    #[test]
    fn marks_that_cannot_be_read_mean_everything_and_keep_their_version() {
        let mut item = row("", n(1));
        assert!(Marks::from_item(&item).is_err(), "without a version");
        item.insert(attr::MARKS_VERSION.to_owned(), n(5));
        assert_eq!(Marks::from_item(&item), Ok(Marks { version: 5, ..Marks::default() }));
        item.insert(attr::MARKED_IDS.to_owned(), n(1));
        assert_eq!(Marks::from_item(&item), Ok(Marks { version: 5, resync: true, ..Marks::default() }));
        item.remove(attr::MARKED_IDS);
        item.insert(attr::RESYNC.to_owned(), AttributeValue::S("yes".into()));
        assert!(Marks::from_item(&item).unwrap().resync);
    }
}
