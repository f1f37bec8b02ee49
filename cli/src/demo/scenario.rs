//! What is done to the workers, step by step.

use super::progress::Progress;
use super::{Break, DemoArguments};
use anyhow::Result;
use leasehold_local::engine::meter::Units;
use leasehold_local::trial::cast::{Cast, CastSettings};
use leasehold_local::trial::recording::{Fault, Recording};
use leasehold_local::trial::steps::Done;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Each feed sends two messages a second.
const INTERVAL_MS: u64 = 500;
/// A quiet time between two steps.
const SETTLE: Duration = Duration::from_secs(4);
/// How long a worker is suspended at least: longer than its lease of 20 s.
const SUSPENDED: Duration = Duration::from_secs(25);

/// Plays it all.
///
/// # Errors
/// When the demonstration itself cannot go on. A fault of the product is no error: the verdict says it.
pub async fn play(arguments: &DemoArguments, progress: &Arc<Progress>, logs: &Path) -> Result<Recording> {
    let mut cast = Cast::start(&cast_settings(arguments, progress, logs)?).await?;
    let began_ms = cast.clock.mono_ms();
    progress.step(&format!("{} worker processes, {} connections", arguments.workers, arguments.connections));
    for _ in 0..arguments.workers {
        cast.start_worker()?;
    }
    cast.wait_for_sessions(arguments.workers as usize).await?;
    cast.write_rows().await?;
    cast.wait_for_all(began_ms).await?;
    let (measured_from_ms, units_before) = (cast.clock.mono_ms(), cast.system.units());
    progress.step("all connections are open and deliver; measuring for 10 s");
    cast.watch(Duration::from_secs(10)).await?;

    let mut faults = Vec::new();
    faults.push(kill(&mut cast, progress, 1, false).await?);
    faults.push(kill(&mut cast, progress, 2, true).await?);
    faults.push(terminate(&mut cast, progress, 3).await?);
    faults.push(suspend(&mut cast, progress, 4).await?);
    cast.watch(SETTLE).await?;

    let measured_ms = cast.clock.mono_ms() - measured_from_ms;
    let units = difference(&cast.system.units(), &units_before);
    progress.step("the feeds fall silent; what is under way is stored");
    let recording = cast.record(faults, began_ms).await?;
    cast.end().await?;
    let broken = arguments.broken.map(|part| format!("{part:?}").to_lowercase());
    Ok(Recording { units, measured_ms, broken, ..recording })
}

fn cast_settings(arguments: &DemoArguments, progress: &Arc<Progress>, logs: &Path) -> Result<CastSettings> {
    let progress = progress.clone();
    Ok(CastSettings {
        connections: arguments.connections,
        workers: arguments.workers,
        interval_ms: INTERVAL_MS,
        directory: None,
        rules: Break::rules(arguments.broken),
        command: crate::worker::command(arguments.broken, logs)?,
        on_step: Some(Arc::new(move |open, stored| progress.state(open, stored))),
    })
}

/// SIGKILL; a replacement starts at once. With `reported`, the task's end is reported as ECS does.
async fn kill(cast: &mut Cast, progress: &Progress, number: u32, reported: bool) -> Result<Fault> {
    let (cause, how) = if reported {
        ("sigkill_with_task_event", "reported by a task event")
    } else {
        ("sigkill", "and nobody reports it")
    };
    progress.step(&format!("SIGKILL of worker {number}, {how}; a replacement starts"));
    let done = cast.kill(number, reported).await?;
    recovered(cast, progress, cause, done).await
}

/// SIGTERM; a replacement starts at once.
async fn terminate(cast: &mut Cast, progress: &Progress, number: u32) -> Result<Fault> {
    progress.step(&format!("SIGTERM of worker {number}; a replacement starts"));
    cast.start_worker()?;
    // The replacement is up before the old one goes, as in a rolling deployment.
    cast.watch(Duration::from_secs(2)).await?;
    let done = cast.terminate(number).await?;
    recovered(cast, progress, "sigterm", done).await
}

/// SIGSTOP for longer than the lease, until others have everything, then SIGCONT; a replacement starts at once.
async fn suspend(cast: &mut Cast, progress: &Progress, number: u32) -> Result<Fault> {
    progress.step(&format!("SIGSTOP of worker {number} for longer than its lease; a replacement starts"));
    let done = cast.suspend(number).await?;
    let fault = recovered(cast, progress, "sigstop", done).await?;
    let suspended = Duration::from_millis(cast.clock.mono_ms() - fault.at_ms);
    cast.watch(SUSPENDED.saturating_sub(suspended)).await?;
    progress.step(&format!("SIGCONT of worker {number}: it must drop what it held, and store nothing"));
    let undone_ms = cast.resume(number)?;
    cast.watch(Duration::from_secs(8)).await?;
    Ok(Fault { undone_ms: Some(undone_ms), ..fault })
}

/// Waits until what was hit delivers again, or patience ends.
async fn recovered(cast: &mut Cast, progress: &Progress, cause: &'static str, done: Done) -> Result<Fault> {
    progress.step(&format!("  {}", cast.wait_until_back(&done).await?));
    cast.watch(SETTLE).await?;
    Ok(Fault::new(cause, done))
}

fn difference(
    after: &BTreeMap<&'static str, Units>,
    before: &BTreeMap<&'static str, Units>,
) -> BTreeMap<&'static str, Units> {
    let mut units = BTreeMap::new();
    for (class, after) in after {
        let before = before.get(class).copied().unwrap_or_default();
        let difference = Units {
            table: after.table - before.table,
            index: after.index - before.index,
            read: after.read - before.read,
            requests: after.requests - before.requests,
        };
        units.insert(*class, difference);
    }
    units
}
