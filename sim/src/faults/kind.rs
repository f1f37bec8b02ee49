//! Everything that goes wrong, by name.

use serde::{Serialize, Serializer};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// SIGKILL; another process starts in its place some time later.
    Crash,
    /// SIGTERM, and a process in its place at once.
    Sigterm,
    /// SIGSTOP, SIGCONT later.
    Suspended,
    /// The monotonic clock runs fast or slow.
    Drift,
    /// The wall clock jumps.
    WallJump,
    /// The Date of the answers that a process gets is off.
    DateOff,
    /// A process reaches DynamoDB no more.
    CutDynamo,
    /// A process reaches SQS no more.
    CutSqs,
    /// A process reaches neither.
    CutBoth,
    /// A process's requests arrive, and no answer does.
    CutAnswers,
    /// Requests are throttled.
    Throttled,
    /// Few write units a second for one key.
    WriteLimit,
    /// Indexes are behind.
    StaleIndexes,
    /// Requests and answers are slow.
    Slow,
    /// Answers are lost after the request was applied.
    LostAnswers,
    /// Requests land long after their sender has given up.
    LandLate,
    /// Records of the stream come twice.
    StreamDoubled,
    /// Records of different rows change places.
    StreamReordered,
    /// Records never come.
    StreamLost,
    /// An invocation dies half-way.
    FunctionDies,
    /// Two invocations for one event run side by side.
    FunctionTwice,
    /// A running task is reported stopped.
    TaskLies,
    /// DynamoDB is away for everybody.
    StoreAway,
    /// Rows of over sessions are removed.
    SessionsGone,
    /// Claims that were sent never come, as after a purge of the queue.
    ClaimsLost,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 25] = [
        Self::Crash,
        Self::Sigterm,
        Self::Suspended,
        Self::Drift,
        Self::WallJump,
        Self::DateOff,
        Self::CutDynamo,
        Self::CutSqs,
        Self::CutBoth,
        Self::CutAnswers,
        Self::Throttled,
        Self::WriteLimit,
        Self::StaleIndexes,
        Self::Slow,
        Self::LostAnswers,
        Self::LandLate,
        Self::StreamDoubled,
        Self::StreamReordered,
        Self::StreamLost,
        Self::FunctionDies,
        Self::FunctionTwice,
        Self::TaskLies,
        Self::StoreAway,
        Self::SessionsGone,
        Self::ClaimsLost,
    ];

    /// In words, for tables and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::Sigterm => "sigterm",
            Self::Suspended => "suspension",
            Self::Drift => "clock drift",
            Self::WallJump => "wall clock jump",
            Self::DateOff => "date off",
            Self::CutDynamo => "cut off from DynamoDB",
            Self::CutSqs => "cut off from SQS",
            Self::CutBoth => "cut off from both",
            Self::CutAnswers => "cut off from answers",
            Self::Throttled => "throttling",
            Self::WriteLimit => "write limit of a key",
            Self::StaleIndexes => "stale indexes",
            Self::Slow => "delays",
            Self::LostAnswers => "lost answers",
            Self::LandLate => "late requests",
            Self::StreamDoubled => "stream doubled",
            Self::StreamReordered => "stream reordered",
            Self::StreamLost => "stream lost",
            Self::FunctionDies => "function dies",
            Self::FunctionTwice => "function twice",
            Self::TaskLies => "lying task event",
            Self::StoreAway => "DynamoDB away",
            Self::SessionsGone => "session rows gone",
            Self::ClaimsLost => "claims lost",
        }
    }

    /// Faults that keep a process from renewing its lease while they last.
    #[must_use]
    pub fn cuts_off(self) -> bool {
        matches!(self, Self::Suspended | Self::CutDynamo | Self::CutBoth | Self::CutAnswers)
    }

    /// Faults that may keep a process from renewing its lease in time; it may also get through.
    #[must_use]
    pub fn hinders_renewal(self) -> bool {
        self.cuts_off() || matches!(self, Self::Throttled | Self::Slow | Self::LostAnswers | Self::LandLate)
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
