//! `leasehold`: the command of operators and of the demonstration.
//!
//! - [`target`]: which system a command talks to
//! - [`commands`]: one file a command
//! - [`demo`]: the main job, with a verdict; [`local`]: the system for one's own connections; [`worker`]: this program as a worker
//! - [`feed`]: an upstream to try things with; [`bench`]: measurements; [`sim`]: the simulated cluster
//! - [`output`], [`visible`], [`failure`]: what is printed, safely, and exit codes

mod bench;
mod commands;
mod demo;
mod failure;
mod feed;
mod local;
mod output;
mod sim;
mod target;
mod visible;
mod worker;

use clap::{Parser, Subcommand};
use commands::{get, list, messages, start, stop, workers};
use failure::Failure;
use output::{Output, note};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use target::Target;
use tokio::runtime::Builder;

/// Keeps outbound WebSocket connections alive on AWS: one row says that a connection should be STARTED, one worker holds its socket.
#[derive(Parser)]
#[command(
    name = "leasehold",
    version,
    after_help = "\
Which system: while `leasehold local` runs, its state directory holds a local.json, and the commands talk to that system. Otherwise they talk
to AWS with its usual settings (AWS_PROFILE, AWS_REGION, AWS_ENDPOINT_URL_DYNAMODB and so on) and the tables CONNECTIONS_TABLE,
SESSIONS_TABLE and MESSAGES_TABLE (leasehold-connections, leasehold-sessions and leasehold-messages by default).

Exit codes: 0 done, 1 what was asked for is not there or failed, 2 the command line is wrong, 3 the system cannot be reached."
)]
struct Cli {
    /// Where a local system keeps its files
    #[arg(long, global = true, value_name = "DIR", env = "LEASEHOLD_STATE_DIR", default_value = ".leasehold")]
    state_dir: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::DemoArguments),
    Local(local::Arguments),
    Feed(feed::Arguments),
    Bench(bench::Arguments),
    Sim(sim::Arguments),
    #[command(name = worker::NAME, hide = true)]
    Worker(worker::WorkerArguments),
    Start(start::Arguments),
    Stop(stop::Arguments),
    Get(get::Arguments),
    List(list::Arguments),
    Workers(workers::Arguments),
    Messages(messages::Arguments),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    // A worker builds runtimes of its own.
    if let Command::Worker(arguments) = &cli.command {
        return worker::run(arguments, &variable);
    }
    // So does each simulated process.
    if let Command::Sim(arguments) = &cli.command {
        return sim::run(arguments).unwrap_or_else(|failure| ended(&failure));
    }
    let runtime = match Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            return ended(&Failure::Failed(format!("no threads can be started ({error}): check the limits")));
        }
    };
    let code = runtime.block_on(run(cli)).unwrap_or_else(|failure| ended(&failure));
    // A name look-up that hangs in a thread of its own must not hold the exit up.
    runtime.shutdown_background();
    code
}

async fn run(cli: Cli) -> Result<ExitCode, Failure> {
    match cli.command {
        Command::Demo(arguments) => demo::run(arguments).await.map_err(|error| Failure::Failed(format!("{error:#}"))),
        Command::Local(arguments) => {
            show_warnings();
            local::run(&arguments, &cli.state_dir).await.map_err(|error| Failure::Failed(format!("{error:#}")))
        }
        Command::Feed(arguments) => {
            show_warnings();
            feed::run(&arguments).await.map(|()| ExitCode::SUCCESS)
        }
        Command::Bench(arguments) => bench::run(arguments).await.map_err(|error| Failure::Failed(format!("{error:#}"))),
        command => operate(command, &cli.state_dir).await.map(|()| ExitCode::SUCCESS),
    }
}

/// The commands that talk to a running system.
async fn operate(command: Command, state_dir: &Path) -> Result<(), Failure> {
    let target = Target::open(state_dir, &variable).await?;
    let output = Output::new();
    match command {
        Command::Start(arguments) => arguments.run(&target, &output).await,
        Command::Stop(arguments) => arguments.run(&target, &output).await,
        Command::Get(arguments) => arguments.run(&target, &output).await,
        Command::List(arguments) => arguments.run(&target, &output).await,
        Command::Workers(arguments) => arguments.run(&target, &output).await,
        Command::Messages(arguments) => arguments.run(&target, &output).await,
        Command::Demo(_) | Command::Local(_) | Command::Feed(_) | Command::Bench(_) => Ok(()),
        Command::Sim(_) | Command::Worker(_) => Ok(()),
    }
}

/// A local system and a feed say on standard error what goes wrong.
fn show_warnings() {
    let filter = tracing_subscriber::EnvFilter::new("warn");
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter(filter).init();
}

fn ended(failure: &Failure) -> ExitCode {
    let code = failure.exit_code();
    if code != 0 {
        note(&failure.to_string());
    }
    ExitCode::from(code)
}

/// The environment, which nobody below `main` reads.
#[expect(clippy::disallowed_methods, reason = "main is where settings are read")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
