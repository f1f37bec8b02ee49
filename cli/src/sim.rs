//! `leasehold sim`: the simulated cluster, seed by seed.

use crate::failure::{EXIT_FAILED, Failure};
use crate::output::Output;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use leasehold::decide::scope::LeaseScope;
use leasehold_sim::summary::{Found, Summary};
use leasehold_sim::{Campaign, Options, Outcome, run_seed, run_seeds};
use std::io::IsTerminal;
use std::process::ExitCode;

/// The most seeds of a run, and how far below the largest number the first one is, so that all of them are numbers.
const MOST_SEEDS: u64 = 10_000_000;

/// Run simulated clusters: real workers and functions on one virtual time, with everything going wrong that can, and look after each step
/// whether every promise holds.
///
/// The same seed does the same. Exit code 1 if a promise is broken: its seed, the shortest schedule that breaks it and what happened are printed.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// How many seeds
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=MOST_SEEDS))]
    seeds: u64,
    /// The first seed
    #[arg(long, value_name = "SEED", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=u64::MAX - MOST_SEEDS))]
    from: u64,
    /// This seed only
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seeds", "from"], value_parser = clap::value_parser!(u64).range(..u64::MAX))]
    seed: Option<u64>,
    /// Print everything that happened with this seed
    #[arg(long, requires = "seed", conflicts_with = "json")]
    trace: bool,
    /// Virtual minutes of a case
    #[arg(long, value_name = "M", default_value_t = 10, value_parser = clap::value_parser!(u64).range(2..=120))]
    minutes: u64,
    /// Seeds side by side; 0 for one a processor
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1_024))]
    threads: u64,
    /// What is leased: a worker's session, each row by itself, or one or the other, seed by seed
    #[arg(long, value_enum, default_value_t = Scope::Both)]
    scope: Scope,
    /// Let faults reach beyond what the protocol allows for
    #[arg(long)]
    beyond: bool,
    /// Stop at the first broken promise, and do not look for the shortest schedule that breaks it
    #[arg(long, conflicts_with = "seed")]
    until_found: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// What is leased.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Scope {
    Worker,
    Connection,
    Both,
}

impl Scope {
    fn lease_scope(self) -> Option<LeaseScope> {
        match self {
            Self::Worker => Some(LeaseScope::Worker),
            Self::Connection => Some(LeaseScope::Connection),
            Self::Both => None,
        }
    }
}

/// So many broken promises are shrunk and shown with their history.
const MOST_SHOWN: usize = 5;

/// Runs it.
///
/// # Errors
/// When the output is closed.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let output = Output::new();
    let scope = arguments.scope.lease_scope();
    let options = Options { minutes: arguments.minutes, beyond: arguments.beyond, scope, ..Options::default() };
    let summary = match arguments.seed {
        Some(seed) => {
            let (outcome, summary) = run_seed(seed, options);
            if arguments.trace {
                print_trace(&outcome, &output)?;
            }
            summary
        }
        None => run_many(arguments, options),
    };
    if arguments.json {
        output.json(&summary)?;
    } else {
        print(&summary, &output)?;
    }
    Ok(exit_code(&summary))
}

/// For scripts: whether every promise held.
fn exit_code(summary: &Summary) -> ExitCode {
    if summary.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FAILED) }
}

fn run_many(arguments: &Arguments, options: Options) -> Summary {
    let bar = progress(arguments.seeds);
    let threads = match usize::try_from(arguments.threads) {
        Ok(0) | Err(_) => std::thread::available_parallelism().map_or(1, usize::from),
        Ok(threads) => threads,
    };
    let seeds = arguments.from..arguments.from.saturating_add(arguments.seeds);
    let shown = if arguments.until_found { 0 } else { MOST_SHOWN };
    let campaign = Campaign { seeds, options, threads, shown, until_found: arguments.until_found };
    let summary = run_seeds(&campaign, &|outcome: &Outcome| {
        bar.inc(1);
        if let Some(violation) = &outcome.violation {
            bar.println(format!("seed {}: {}", outcome.seed, violation.invariant));
        }
    });
    bar.finish_and_clear();
    summary
}

fn progress(seeds: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(seeds), ProgressDrawTarget::stderr());
    let template = "{spinner} {elapsed_precise} [{bar:30}] {pos}/{len} seeds  {per_sec}  {eta} left";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

fn print_trace(outcome: &Outcome, output: &Output) -> Result<(), Failure> {
    for line in &outcome.lines {
        output.line(&format!("{:>9.3} s  {:<14} {:<38} {}", seconds(line.at_ms), line.who, line.to, line.what))?;
    }
    output.line(&format!("trace {:016x}", outcome.hash))
}

fn print(summary: &Summary, output: &Output) -> Result<(), Failure> {
    let rarest =
        summary.rarest_pair.as_ref().map_or_else(|| "-".into(), |(pair, cases)| format!("{pair} ({cases} cases)"));
    output.record(&[
        ("cases", format!("{}, from seed {}", summary.cases, summary.first_seed)),
        ("virtual hours", format!("{:.1}", summary.virtual_hours)),
        ("hand-overs", summary.tally.hand_overs.to_string()),
        ("messages stored", summary.tally.messages.to_string()),
        ("writes applied", summary.tally.writes.to_string()),
        ("sockets opened", summary.tally.sockets.to_string()),
        ("rarest pair of faults", rarest),
        ("promises broken", summary.violations.len().to_string()),
    ])?;
    let faults: Vec<_> =
        summary.tally.faults.iter().map(|(fault, count)| vec![fault.name().into(), count.to_string()]).collect();
    output.table(&["FAULT", "TIMES"], &faults)?;
    let down: Vec<_> =
        summary.tally.longest_down_ms.iter().map(|(cause, ms)| vec![(*cause).into(), in_seconds(*ms)]).collect();
    output.table(&["WITHOUT A SOCKET, BY CAUSE", "LONGEST"], &down)?;
    let double = |cause: &str| summary.tally.doubles.get(cause).copied().unwrap_or(0).to_string();
    let doubles = summary.tally.longest_double_ms.iter();
    let doubles: Vec<_> = doubles.map(|(cause, ms)| vec![(*cause).into(), double(cause), in_seconds(*ms)]).collect();
    output.table(&["TWO SOCKETS, BY CAUSE", "TIMES", "LONGEST"], &doubles)?;
    let judged = summary.tally.judged.iter();
    let judged: Vec<_> =
        judged.map(|(name, times)| vec![(*name).into(), times.held.to_string(), times.excused.to_string()]).collect();
    output.table(&["PROMISE WHILE NOTHING IS IN ITS WAY", "JUDGED", "EXCUSED"], &judged)?;
    for found in &summary.violations {
        print_found(found, output)?;
    }
    Ok(())
}

fn print_found(found: &Found, output: &Output) -> Result<(), Failure> {
    let connection = found.connection.as_ref().map(|connection| format!(" of {connection}")).unwrap_or_default();
    output.line(&format!("\nseed {}: BROKEN: {}", found.seed, found.invariant))?;
    output.line(&format!("  at {:.3} s{connection}: {}", seconds(found.at_ms), found.what))?;
    if found.history.is_empty() {
        return Ok(());
    }
    output.line("  what is left of its schedule when all that does not matter is left out:")?;
    for step in &found.schedule {
        output.line(&format!("    {step}"))?;
    }
    output.line("  what happened then:")?;
    for line in &found.history {
        output.line(&format!("    {:>9.3} s  {:<13} {:<10} {}", seconds(line.at_ms), line.who, line.to, line.what))?;
    }
    Ok(())
}

fn in_seconds(ms: u64) -> String {
    format!("{:.1} s", seconds(ms))
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_is_1_as_soon_as_one_promise_is_broken() {
        let mut summary = Summary::default();
        assert_eq!(exit_code(&summary), ExitCode::SUCCESS);
        summary.violations.push(Found {
            seed: 7,
            invariant: "at most one open socket for a connection",
            at_ms: 61_500,
            connection: Some("c-1".into()),
            what: "it has two".into(),
            schedule: Vec::new(),
            history: Vec::new(),
        });
        assert_eq!(exit_code(&summary), ExitCode::from(1));
    }
}
