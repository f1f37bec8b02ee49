//! Why a command did not do what it was asked for, and its exit code.

use leasehold::aws::StoreError;
use std::io;
use std::path::PathBuf;

/// Exit code: what was asked for is not there, or failed.
pub const EXIT_FAILED: u8 = 1;
/// Exit code: the command line is wrong (clap's code too).
pub const EXIT_USAGE: u8 = 2;
/// Exit code: the system cannot be reached.
pub const EXIT_UNREACHABLE: u8 = 3;

/// Why a command failed: one sentence that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// An argument is not as it must be.
    #[error("{0}")]
    Usage(String),
    /// What was asked for is not there, or was refused.
    #[error("{0}")]
    Failed(String),
    /// Neither a local system nor AWS is configured.
    #[error(
        "there is no local system in {} and no AWS configuration ({why}): start one with `leasehold local`, or set AWS_REGION and \
         AWS_PROFILE (or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)", state_dir.display()
    )]
    NoSystem {
        /// Where a local system would be described.
        state_dir: PathBuf,
        /// What is missing.
        why: String,
    },
    /// The description of a local system cannot be read.
    #[error("{} cannot be read ({why}): start `leasehold local` again, or remove the file to use AWS", file.display())]
    BadLocalFile {
        /// The file.
        file: PathBuf,
        /// Why.
        why: String,
    },
    /// A local system is described and does not answer.
    #[error(
        "the local system of {} (process {pid}) does not answer at {url}: start it again with `leasehold local`, or remove the file to use \
         AWS", file.display()
    )]
    Stale {
        /// The file.
        file: PathBuf,
        /// The process that wrote it.
        pid: u32,
        /// Where it should be.
        url: String,
    },
    /// The tables cannot be used.
    #[error("{place} cannot be used: {error}; {hint}")]
    Store {
        /// Which DynamoDB.
        place: String,
        /// What it said.
        error: StoreError,
        /// What to do.
        hint: String,
    },
    /// Nobody reads what we write any more (`leasehold list | head`): no failure.
    #[error("the output was closed")]
    Closed,
    /// The output cannot be written.
    #[error("the output cannot be written ({0}): check where it goes")]
    Output(io::Error),
}

impl Failure {
    /// The process's exit code; 0 where nothing needs to be said.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => EXIT_USAGE,
            Self::Failed(_) | Self::Output(_) => EXIT_FAILED,
            Self::NoSystem { .. } | Self::BadLocalFile { .. } | Self::Stale { .. } => EXIT_UNREACHABLE,
            Self::Store { error, .. } => match error {
                StoreError::Denied { .. } | StoreError::Missing { .. } | StoreError::Unknown { .. } => EXIT_UNREACHABLE,
                StoreError::Throttled { .. } | StoreError::Invalid { .. } => EXIT_FAILED,
            },
            Self::Closed => 0,
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe { Self::Closed } else { Self::Output(error) }
    }
}
