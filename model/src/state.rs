//! A state of the model: the store, the workers, and what is under way between them. Small, since there are many.

use crate::store::{Expected, Row, Store};

/// Connections at most.
pub const CONNECTIONS: usize = 2;
/// Sessions at most. The last few are kept for the calm that follows a state.
pub const SESSIONS: usize = 6;
/// Workers at most.
pub const WORKERS: usize = 2;

/// Who sends what no worker sends.
pub const FUNCTIONS: u8 = 9;

/// A set of connections: one bit each.
pub type Set = u8;

/// The set of one connection.
#[must_use]
pub fn bit(connection: u8) -> Set {
    1 << connection
}

/// A worker's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Process {
    /// It runs, with a session.
    Running,
    /// It is suspended, with everything it has.
    Paused,
    /// It runs without a session: its last one is over, or was never registered.
    Starting,
    /// There is none.
    Dead,
}

/// How far an orderly shutdown is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ending {
    /// There is none.
    No,
    /// Sockets are being closed.
    Closing,
    /// The session has ended; claims are still to be sent.
    Ended,
}

/// One connection of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot {
    /// The epoch under which it is held.
    pub held: Option<u32>,
    /// Whether its socket is open.
    pub socket: bool,
    /// The spec that the acquire returned.
    pub spec: u8,
    /// Where rows are leased by themselves: the step in which the last renewal of this one was sent that succeeded, or its acquire.
    pub renewed: u8,
}

/// A worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Worker {
    /// Its process.
    pub process: Process,
    /// Its session, or the last it had.
    pub session: u8,
    /// The step in which the last renewal was sent that succeeded.
    pub renewed: u8,
    /// The last heartbeat number that was sent.
    pub heartbeat: u16,
    /// Its shutdown.
    pub ending: Ending,
    /// Rows to look at.
    pub to_look: Set,
    /// Marks that are being acted on: their version, and what they name.
    pub marks: Option<(u8, Set)>,
    /// What was held when the session was lost, to be claimed.
    pub gave_up: Set,
    /// Its connections.
    pub slots: [Slot; CONNECTIONS],
}

/// A write that does not land at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Write {
    /// Of a new session.
    Register {
        /// The step in which it was sent.
        sent: u8,
        /// When the lease ends.
        expires_ms: u32,
    },
    /// Of a session.
    Renew {
        /// The step in which it was sent.
        sent: u8,
        /// The heartbeat number.
        heartbeat: u16,
        /// When the lease ends.
        expires_ms: u32,
    },
    /// Of a session, by itself.
    End,
    /// Of a session's marks.
    RemoveMarks {
        /// As read.
        version: u8,
    },
    /// Of a connection, for a session.
    Acquire {
        /// The connection.
        connection: u8,
        /// The condition.
        expected: Expected,
        /// The epoch that is written.
        epoch: u32,
        /// Lease time.
        since_ms: u32,
        /// The step in which it was decided.
        sent: u8,
        /// When the row's own lease ends, if it has one.
        expires_ms: Option<u32>,
    },
    /// Of a connection's own lease, by its owner.
    RenewRow {
        /// The connection.
        connection: u8,
        /// The owner's epoch.
        epoch: u32,
        /// The step in which it was sent.
        sent: u8,
        /// When the lease ends.
        expires_ms: u32,
    },
    /// Of a connection, by its owner.
    Release {
        /// The connection.
        connection: u8,
        /// The owner's epoch.
        epoch: u32,
    },
    /// Status and checkpoint, by the owner.
    Status {
        /// The connection.
        connection: u8,
        /// The owner's epoch.
        epoch: u32,
    },
    /// Of a connection, by a function.
    Reap {
        /// The connection.
        connection: u8,
        /// The condition.
        expected: Expected,
    },
    /// A mark, by a function.
    Mark {
        /// The connection.
        connection: u8,
    },
    /// A first epoch, by a function.
    Stamp {
        /// The connection.
        connection: u8,
        /// When it may be taken.
        free_at_ms: u32,
    },
}

impl Write {
    /// The connection that a worker is busy with while it waits for the answer.
    #[must_use]
    pub fn connection(&self) -> Option<u8> {
        match *self {
            Self::Acquire { connection, .. } | Self::Release { connection, .. } | Self::Status { connection, .. } => {
                Some(connection)
            }
            _ => None,
        }
    }
}

/// What a worker hears of its write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Answer {
    /// Registered, ended, removed, or refused in a way that changes nothing.
    Done,
    /// The renewal counts.
    Renewed,
    /// The renewal of a row counts, and shows it.
    Seen(Row),
    /// The session is over.
    Over,
    /// Not applied, and the session is not over.
    TryAgain,
    /// The row is mine.
    Won(Row),
    /// It is not.
    NotWon,
    /// Released. True if the row is wanted and free.
    Free(bool),
    /// Not my row any more. True if it still names me.
    Lost(bool),
}

/// A request under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Request {
    /// The worker that sent it, or [`FUNCTIONS`].
    pub from: u8,
    /// The session that it is for.
    pub session: u8,
    /// What it writes.
    pub write: Write,
    /// Whether its sender waits for the answer.
    pub awaited: bool,
    /// The answer, once it has landed.
    pub answer: Option<Answer>,
}

/// A change of a row that `desired-state` has not handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Event {
    /// The connection.
    pub connection: u8,
    /// Who owned the row before.
    pub old_owner: Option<u8>,
}

/// A write to a session that a look has decided on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SessionWrite {
    /// It can never renew again.
    Fence,
    /// It is suspected since then, or not any more.
    Suspect(Option<u32>),
    /// Its expiry lay too far ahead.
    RewriteExpiry(u32),
}

/// A run of reconcile that has read and decided, and has not written all of it yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlowLook {
    /// The writes that are left, last first: session, heartbeat as read, write.
    pub writes: Vec<(u8, u16, SessionWrite)>,
    /// When it looked.
    pub last_look_ms: u32,
    /// The grace that it found.
    pub grace_until_ms: u32,
}

/// How often each fault may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is the name of a fault or of something that happens")]
pub struct Budget {
    pub late_requests: u8,
    pub doubled: u8,
    pub slow_looks: u8,
    pub pauses: u8,
    pub kills: u8,
    pub births: u8,
    pub shutdowns: u8,
    pub wrong_task_reports: u8,
    pub stops: u8,
    pub starts: u8,
    pub changes: u8,
    pub overwrites: u8,
    pub deletes: u8,
    pub creates: u8,
    pub lost_events: u8,
    pub lost_marks: u8,
    pub lost_claims: u8,
    pub sweeps: u8,
    pub removed_sessions: u8,
    pub outages: u8,
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// Steps of time since the beginning.
    pub step: u8,
    /// Milliseconds beside the steps: a row is made again later than it was deleted.
    pub extra_ms: u32,
    /// The store is away since this step.
    pub away_since: Option<u8>,
    /// What is stored.
    pub store: Store,
    /// The workers.
    pub workers: [Worker; WORKERS],
    /// Requests under way, in order of their values.
    pub requests: Vec<Request>,
    /// Connections that a visible claim names.
    pub claims: Set,
    /// When a claim becomes visible that is delayed.
    pub delayed_claims: [Option<u32>; CONNECTIONS],
    /// Changes that are not handled yet, in order of their values.
    pub events: Vec<Event>,
    /// Runs of reconcile under way.
    pub looks: Vec<SlowLook>,
    /// The next session's number.
    pub next_session: u8,
    /// What may still go wrong.
    pub budget: Budget,
}

/// Adds to a list that is kept in order, so that the same things under way are the same state.
pub fn insert<T: Ord>(list: &mut Vec<T>, thing: T) {
    if let Err(place) = list.binary_search(&thing) {
        list.insert(place, thing);
    }
}

/// Takes out of a list that is kept in order.
pub fn remove<T: Ord>(list: &mut Vec<T>, thing: &T) {
    if let Ok(place) = list.binary_search(thing) {
        list.remove(place);
    }
}
