//! The record of one case.

use crate::case::Config;
use crate::faults::Kind;
use crate::ledger::notes::{FeedNote, ProcessNote, RowNote, SessionNote, SocketNote};
use leasehold::decide::renewal::OnStoreOutage;
use leasehold::decide::timing::Timing;
use serde::Serialize;
use std::collections::BTreeMap;

/// Lines kept of one case at most: the last ones.
const MAX_LINES: usize = 200_000;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// When, in ms since the case began.
    pub at_ms: u64,
    /// Who did it: a process, a function, a hand, the simulation.
    pub who: String,
    /// What it was done to: a connection, a session, a process.
    pub to: String,
    /// What.
    pub what: String,
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// The invariant's name.
    pub invariant: &'static str,
    /// When, in ms since the case began.
    pub at_ms: u64,
    /// The connection, where it is one's.
    pub connection: Option<String>,
    /// What happened.
    pub what: String,
}

/// Something that must have become so by some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// By then, in ms.
    pub at_ms: u64,
    /// The connection.
    pub connection: String,
    /// What.
    pub what: Expected,
}

/// What must have become so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// A row that was stopped has no socket.
    Closed,
    /// A row that was stopped while requests may have been slow has no socket.
    ClosedSlowly,
    /// A row that was started has one.
    Open,
    /// A row whose URL was changed while requests may have been slow has one to the new URL.
    Reopened,
    /// A row that was acquired under this epoch by this process has had one.
    Worked(String, u64),
}

/// Numbers of one case, or of many.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// How often each fault struck.
    pub faults: BTreeMap<Kind, u64>,
    /// Changes of owner from one session to another.
    pub hand_overs: u64,
    /// Messages stored.
    pub messages: u64,
    /// Applied writes.
    pub writes: u64,
    /// Sockets opened.
    pub sockets: u64,
    /// The longest time that a STARTED row had no socket, in ms, by cause.
    pub longest_down_ms: BTreeMap<&'static str, u64>,
    /// The longest time that a connection had two sockets, in ms, by cause.
    pub longest_double_ms: BTreeMap<&'static str, u64>,
    /// How often it had two.
    pub doubles: BTreeMap<&'static str, u64>,
    /// How often each promise was judged that holds only while nothing is in its way.
    pub judged: BTreeMap<&'static str, Judged>,
}

/// How often a promise was judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Judged {
    /// Nothing was in its way: it had to be kept.
    pub held: u64,
    /// Something was.
    pub excused: u64,
}

impl Tally {
    /// Adds another case's.
    pub fn add(&mut self, other: &Self) {
        for (kind, count) in &other.faults {
            *self.faults.entry(*kind).or_default() += count;
        }
        self.hand_overs += other.hand_overs;
        self.messages += other.messages;
        self.writes += other.writes;
        self.sockets += other.sockets;
        for (cause, ms) in &other.longest_down_ms {
            raise(&mut self.longest_down_ms, cause, *ms);
        }
        for (cause, ms) in &other.longest_double_ms {
            raise(&mut self.longest_double_ms, cause, *ms);
        }
        for (cause, count) in &other.doubles {
            *self.doubles.entry(cause).or_default() += count;
        }
        for (invariant, judged) in &other.judged {
            let sum = self.judged.entry(invariant).or_default();
            sum.held += judged.held;
            sum.excused += judged.excused;
        }
    }
}

/// Notes a time, if it is the longest of its cause.
pub fn raise(longest: &mut BTreeMap<&'static str, u64>, cause: &'static str, ms: u64) {
    let longest = longest.entry(cause).or_default();
    *longest = (*longest).max(ms);
}

/// Everything that is known of a case while it runs.
pub struct Book {
    /// The protocol's numbers.
    pub timing: Timing,
    /// What workers do when the store is away.
    pub policy: OnStoreOutage,
    /// Faults may reach beyond what the protocol allows for.
    pub beyond: bool,
    /// Workers have little room.
    pub tight: bool,
    /// Now, in ms since the case began.
    pub now_ms: u64,
    /// Rows by connection.
    pub rows: BTreeMap<String, RowNote>,
    /// Sessions by id, also those that are gone.
    pub sessions: BTreeMap<String, SessionNote>,
    /// Marks that wait, by session.
    pub marks: BTreeMap<String, String>,
    /// Processes by name.
    pub processes: BTreeMap<String, ProcessNote>,
    /// Until when faults of everybody last, or lasted.
    pub world_faults: BTreeMap<Kind, u64>,
    /// Open sockets by number.
    pub sockets: BTreeMap<u64, SocketNote>,
    /// Connections that have two sockets: since when, and why.
    pub doubles: BTreeMap<String, (u64, &'static str)>,
    /// Numbered feeds by connection and URL.
    pub feeds: BTreeMap<(String, u64), FeedNote>,
    /// Stored bodies by connection and key.
    pub bodies: BTreeMap<(String, String), String>,
    /// The highest stored number by connection and series.
    pub series: BTreeMap<(String, String), u64>,
    /// What must have become so by then.
    pub due: Vec<Due>,
    /// Numbers.
    pub tally: Tally,
    /// What happened.
    pub lines: Vec<Line>,
    /// The first promise that was broken.
    pub violation: Option<Violation>,
    hash: u64,
}

impl Book {
    /// An empty book.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self {
            timing: config.timing,
            policy: config.policy,
            beyond: config.beyond,
            tight: config.capacity < config.connections.len() as u64,
            now_ms: 0,
            rows: BTreeMap::new(),
            sessions: BTreeMap::new(),
            marks: BTreeMap::new(),
            processes: BTreeMap::new(),
            world_faults: BTreeMap::new(),
            sockets: BTreeMap::new(),
            doubles: BTreeMap::new(),
            feeds: BTreeMap::new(),
            bodies: BTreeMap::new(),
            series: BTreeMap::new(),
            due: Vec::new(),
            tally: Tally::default(),
            lines: Vec::new(),
            violation: None,
            hash: 0xcbf2_9ce4_8422_2325,
        }
    }

    /// Writes a line.
    pub fn write(&mut self, who: &str, to: &str, what: String) {
        let at_ms = self.now_ms;
        for text in [&at_ms.to_string(), who, to, what.as_str()] {
            for byte in text.bytes().chain([0]) {
                // FNV-1a: the same in every process.
                self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
        if self.lines.len() >= MAX_LINES {
            // What happened last is what explains.
            self.lines.drain(..MAX_LINES / 2);
        }
        self.lines.push(Line { at_ms, who: who.to_owned(), to: to.to_owned(), what });
    }

    /// A hash of all lines.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Notes a broken promise; the first one counts.
    pub fn break_promise(&mut self, invariant: &'static str, connection: Option<&str>, what: String) {
        if self.violation.is_none() {
            let to = connection.unwrap_or("cluster").to_owned();
            self.write("simulation", &to, format!("VIOLATION {invariant}: {what}"));
            let connection = connection.map(str::to_owned);
            self.violation = Some(Violation { invariant, at_ms: self.now_ms, connection, what });
        }
    }

    /// Judges an occasion to keep a promise: an excuse counts, as does a promise that was kept. `broken` says how it was broken, if it was.
    pub fn judge(&mut self, invariant: &'static str, connection: Option<&str>, excused: bool, broken: Option<String>) {
        let judged = self.tally.judged.entry(invariant).or_default();
        if excused {
            judged.excused += 1;
            return;
        }
        judged.held += 1;
        if let Some(what) = broken {
            self.break_promise(invariant, connection, what);
        }
    }

    /// A row.
    pub fn row(&mut self, connection: &str) -> &mut RowNote {
        self.rows.entry(connection.to_owned()).or_default()
    }

    /// A process.
    pub fn process(&mut self, name: &str) -> &mut ProcessNote {
        self.processes.entry(name.to_owned()).or_default()
    }

    /// A fault of one process lasts until `until_ms`.
    pub fn disturb(&mut self, process: &str, kind: Kind, until_ms: u64) {
        *self.tally.faults.entry(kind).or_default() += 1;
        let until = self.process(process).faults.entry(kind).or_default();
        *until = (*until).max(until_ms);
    }

    /// A fault of everybody lasts until `until_ms`.
    pub fn disturb_all(&mut self, kind: Kind, until_ms: u64) {
        *self.tally.faults.entry(kind).or_default() += 1;
        let until = self.world_faults.entry(kind).or_default();
        *until = (*until).max(until_ms);
    }

    /// Whether a fault of everybody lasted until `since_ms` or longer.
    #[must_use]
    pub fn all_suffered(&self, since_ms: u64, is: impl Fn(Kind) -> bool) -> bool {
        self.world_faults.iter().any(|(kind, until_ms)| is(*kind) && *until_ms >= since_ms)
    }

    /// Since when nothing but what is `allowed` goes wrong anywhere, in ms; in the future while something does.
    #[must_use]
    pub fn calm_since_ms(&self, allowed: impl Fn(Kind) -> bool) -> u64 {
        let processes = self.processes.values().flat_map(|process| process.faults.iter());
        let all = processes
            .chain(&self.world_faults)
            .filter(|(kind, _)| !matches!(kind, Kind::Drift | Kind::WallJump) && !allowed(**kind));
        all.map(|(_, until_ms)| *until_ms).max().unwrap_or(0)
    }

    /// The process behind a session.
    #[must_use]
    pub fn process_of(&self, session: &str) -> Option<&str> {
        self.sessions.get(session).map(|session| session.process.as_str())
    }

    /// Whether a session can never renew again; unknown ones are gone.
    #[must_use]
    pub fn is_over(&self, session: &str) -> bool {
        self.sessions.get(session).is_none_or(SessionNote::is_over)
    }

    /// Open sockets of a connection, the oldest first.
    #[must_use]
    pub fn sockets_of(&self, connection: &str) -> Vec<SocketNote> {
        self.sockets.values().filter(|socket| socket.connection == connection).cloned().collect()
    }
}
