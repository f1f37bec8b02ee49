//! The hidden subcommand that is a worker process: the entry of the `worker` binary, and nothing else.

use crate::demo::Break;
use anyhow::{Context, Result};
use clap::Args;
use leasehold_local::system::workers::WorkerCommand;
use std::path::Path;
use std::process::ExitCode;

/// The subcommand's name.
pub const NAME: &str = "worker-process";

/// What the demonstration tells its workers beside their environment.
#[derive(Args, Clone, Debug)]
pub struct WorkerArguments {
    /// The part of the protocol that is taken out.
    #[arg(long = "break", value_name = "PART")]
    broken: Option<Break>,
}

/// Runs a worker until SIGTERM, as the `worker` binary does.
#[must_use]
pub fn run(arguments: &WorkerArguments, lookup: &dyn Fn(&str) -> Option<String>) -> ExitCode {
    leasehold_worker::entry::run_worker(lookup, Break::rules(arguments.broken))
}

/// How this program starts itself as a worker.
///
/// # Errors
/// When the program's own path is unknown.
pub fn command(broken: Option<Break>, logs: &Path) -> Result<WorkerCommand> {
    let mut arguments = vec![NAME.to_owned()];
    if broken.is_some() {
        arguments.extend(["--break".to_owned(), "fencing".to_owned()]);
    }
    Ok(WorkerCommand {
        program: std::env::current_exe().context("the program does not know its own path")?,
        arguments,
        environment: Vec::new(),
        log_directory: logs.to_owned(),
    })
}
