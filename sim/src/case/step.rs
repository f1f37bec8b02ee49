//! What can be done to a cluster, as data.

use crate::faults::Kind;
use crate::faults::Spell;
use crate::workload::Edit;
use std::fmt;

/// Whom a spell concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The process in this place.
    Place(usize),
    /// The functions.
    Functions,
    /// Everybody.
    Everybody,
}

/// One thing that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A person edits a row.
    Edit(usize, Edit),
    /// SIGKILL; ECS tells of it after `told_after_ms`, if at all, and starts another after `back_after_ms`.
    Crash {
        /// The process's place.
        place: usize,
        /// When the task event comes.
        told_after_ms: Option<u64>,
        /// When another process starts.
        back_after_ms: u64,
    },
    /// SIGTERM, and another process at once.
    Terminate(usize),
    /// SIGSTOP for so many ms.
    Suspend(usize, u64),
    /// The wall clock jumps by so many ms.
    WallJump(usize, i64),
    /// Something is wrong for a while. `until_ms` of the spell counts from the step.
    Begin(Target, Spell),
    /// ECS reports a running task as stopped.
    TaskLies(usize),
    /// Rows of sessions that are over for so many ms are removed.
    ForgetSessions(u64),
    /// An upstream closes its sockets.
    UpstreamCloses(usize, Option<u16>),
    /// An upstream refuses for so many ms.
    UpstreamRefuses(usize, u64),
}

/// A step and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed {
    /// In ms since the case began.
    pub at_ms: u64,
    /// What is done.
    pub step: Step,
}

impl Step {
    /// The kind of fault that it is, if it is one.
    #[must_use]
    pub fn kind(&self) -> Option<Kind> {
        Some(match self {
            Self::Crash { .. } => Kind::Crash,
            Self::Terminate(_) => Kind::Sigterm,
            Self::Suspend(..) => Kind::Suspended,
            Self::WallJump(..) => Kind::WallJump,
            Self::Begin(_, spell) => spell.kind,
            Self::TaskLies(_) => Kind::TaskLies,
            Self::ForgetSessions(_) => Kind::SessionsGone,
            Self::Edit(..) | Self::UpstreamCloses(..) | Self::UpstreamRefuses(..) => return None,
        })
    }
}

impl fmt::Display for Timed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at_ms, step } = self;
        write!(f, "{:>8.1} s  ", *at_ms as f64 / 1_000.0)?;
        match step {
            Step::Edit(connection, edit) => write!(f, "edit c{connection}: {edit:?}"),
            Step::Crash { place, told_after_ms: Some(told), back_after_ms } => {
                write!(f, "crash w{place}, told after {told} ms, another after {back_after_ms} ms")
            }
            Step::Crash { place, told_after_ms: None, back_after_ms } => {
                write!(f, "crash w{place}, never told, another after {back_after_ms} ms")
            }
            Step::Terminate(place) => write!(f, "sigterm w{place}"),
            Step::Suspend(place, ms) => write!(f, "suspend w{place} for {ms} ms"),
            Step::WallJump(place, ms) => write!(f, "wall clock of w{place} jumps by {ms} ms"),
            Step::Begin(target, spell) => {
                let Spell { kind, until_ms, per_mille, ms } = spell;
                write!(f, "{} for {target:?} for {until_ms} ms ({per_mille} of 1000, {ms} ms)", kind.name())
            }
            Step::TaskLies(place) => write!(f, "the task of w{place} is reported stopped, and runs"),
            Step::ForgetSessions(ms) => write!(f, "sessions over for {ms} ms are removed"),
            Step::UpstreamCloses(connection, code) => write!(f, "upstream of c{connection} closes with {code:?}"),
            Step::UpstreamRefuses(connection, ms) => write!(f, "upstream of c{connection} refuses for {ms} ms"),
        }
    }
}
