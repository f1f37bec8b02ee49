//! Explores bounds and prints a table: `cargo run --release -p leasehold-model --example explore -- --bounds wide`.
//!
//! `--bounds narrow` (the default) are those of the tests. Further words choose bounds whose name begins with one of them. A broken promise is
//! printed with the steps that lead to it.

use leasehold::clock::{Clock, SystemClock};
use leasehold_model::bounds::{Bounds, narrow, wide};
use leasehold_model::check::check;
use leasehold_model::protocol::Protocol;
use std::process::ExitCode;

const USAGE: &str = "usage: explore [--bounds narrow|wide] [name]...";

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let mut bounds = narrow();
    if words.first().is_some_and(|word| word == "--bounds") {
        bounds = match words.get(1).map(String::as_str) {
            Some("narrow") => narrow(),
            Some("wide") => wide(),
            _ => {
                eprintln!("{USAGE}");
                return ExitCode::FAILURE;
            }
        };
        words.drain(..2);
    }
    bounds.retain(|bounds| words.is_empty() || words.iter().any(|word| bounds.name.starts_with(word.as_str())));
    println!("| bounds | states | depth | s | broken |");
    println!("| --- | ---: | ---: | ---: | --- |");
    // Explored to the end all the same: the table says what holds.
    let broken = bounds.into_iter().filter(|bounds| !explore(bounds.clone())).count();
    if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether nothing is broken.
fn explore(bounds: Bounds) -> bool {
    let name = bounds.name;
    let began_ms = SystemClock.mono_ms();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let checked = check(Protocol::new(bounds), threads);
    let seconds = SystemClock.mono_ms().saturating_sub(began_ms) as f64 / 1_000.0;
    let broken = checked.violation.as_ref().map_or("", |(promise, _)| promise);
    println!("| {name} | {} | {} | {seconds:.1} | {broken} |", checked.states, checked.depth);
    for step in checked.violation.iter().flat_map(|(_, steps)| steps) {
        println!("    {step}");
    }
    checked.violation.is_none()
}
