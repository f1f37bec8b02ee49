//! `leasehold bench`: measures parts of the system on this machine.
//!
//! - [`stage`]: the embedded engine with DynamoDB's write limit, and queues, for one measurement
//! - [`reconcile`]: how fast the connections of a dead worker are claimed
//! - [`memory`]: what the process needs

mod memory;
mod reconcile;
mod stage;

use crate::output::Output;
use anyhow::Result;
use clap::{Args, Subcommand};
use std::process::ExitCode;

/// Measures a part of the system on this machine: the embedded engine, with DynamoDB's limit of 1,000 write units a second for a key.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Clone, Debug)]
enum What {
    Reconcile(reconcile::Arguments),
}

/// Runs it. Exit code 0 only if what should happen happened.
///
/// # Errors
/// When the measurement itself cannot run.
pub async fn run(arguments: Arguments) -> Result<ExitCode> {
    match arguments.what {
        What::Reconcile(arguments) => reconcile::run(&arguments, &Output::new()).await,
    }
}
