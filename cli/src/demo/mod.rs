//! `leasehold demo`: the main job on one machine, with a verdict whose truth is the feed's own log.
//!
//! Cast and verdict are [`leasehold_local::trial`]'s.
//!
//! - [`scenario`]: what is done, step by step
//! - [`report`]: the verdict as a table
//! - [`progress`]: what is shown meanwhile

mod progress;
mod report;
mod scenario;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use leasehold::decide::timing::Rules;
use leasehold_local::trial::verdict;
use progress::Progress;
use std::process::ExitCode;
use std::sync::Arc;

/// What may be taken out of the protocol, to see the verdict come out red.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Break {
    /// The fence, the epoch conditions and the local deadline.
    Fencing,
}

impl Break {
    /// The rules that are left.
    #[must_use]
    pub fn rules(broken: Option<Self>) -> Rules {
        match broken {
            None => Rules::default(),
            Some(Self::Fencing) => Rules { fence: false, epoch_conditions: false, local_deadline: false },
        }
    }
}

/// Runs the whole system here, kills and stops workers, and proves that nothing was lost or doubled.
#[derive(Args, Clone, Debug)]
pub struct DemoArguments {
    /// Print the verdict as one JSON document on standard output.
    #[arg(long)]
    json: bool,
    /// Take a part of the protocol out: the verdict must come out red.
    #[arg(long = "break", value_name = "PART")]
    broken: Option<Break>,
    /// Connections; every second feed can replay.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(3..=5_000))]
    connections: u32,
    /// Worker processes.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(3..=8))]
    workers: u32,
}

/// Runs it. Exit code 0 only for a green verdict.
///
/// # Errors
/// When the demonstration itself cannot run.
pub async fn run(arguments: DemoArguments) -> Result<ExitCode> {
    let progress = Arc::new(Progress::new(u64::from(arguments.connections)));
    let logs = tempfile::Builder::new().prefix("leasehold-demo-").tempdir().context("no temporary directory")?;
    let played = tokio::select! {
        played = scenario::play(&arguments, &progress, logs.path()) => played,
        _ = tokio::signal::ctrl_c() => {
            progress.finish("stopped by Ctrl-C; every process is ended");
            return Ok(ExitCode::from(130));
        }
    };
    let verdict = match played {
        Ok(recording) => verdict::judge(&recording),
        Err(error) => {
            progress.finish(&format!("the demonstration could not go on; worker logs: {}", logs.keep().display()));
            if arguments.json {
                println!("{}", serde_json::json!({ "green": false, "faults": [format!("{error:#}")] }));
            }
            return Err(error);
        }
    };
    progress.finish(if verdict.green { "done" } else { "done: the verdict is red" });
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&verdict)?);
    } else {
        println!("{}", report::render(&verdict));
    }
    if verdict.green {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("leasehold: the verdict is red; worker logs: {}", logs.keep().display());
    Ok(ExitCode::FAILURE)
}
