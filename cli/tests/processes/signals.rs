//! Signals: SIGKILL, SIGSTOP and SIGCONT, SIGTERM.

use crate::world::{SETTLE, Stage};
use anyhow::{Result, ensure};
use std::time::Duration;

/// Promised for a silent death: 38 s (lease, skew, interval, hand-over). With the back-off of a socket, up to a second until the next
/// message, and room for a busy machine.
pub const SILENT_DEATH_S: f64 = 45.0;
/// Promised are 2 s; the next message of each feed takes up to one more, a back-off another; and room for a busy machine.
pub const SIGTERM_S: f64 = 10.0;
/// With a task report: promised are 5 s.
pub const REPORTED_S: f64 = 15.0;
/// Longer than the lease of 20 s and the skew, with an interval of reconcile.
const SUSPENDED: Duration = Duration::from_secs(35);

/// Nobody reports the death: the lease has to end.
pub async fn killed(stage: Stage) -> Result<()> {
    let mut world = stage.open_world().await?;
    let done = world.cast.kill(1, false).await?;
    world.recovered("SIGKILL", done, SILENT_DEATH_S).await?;
    world.judge().await?;
    Ok(())
}

/// The death is reported as ECS does it.
pub async fn killed_and_reported(stage: Stage) -> Result<()> {
    const CAUSES: [&str; 4] = ["first reported SIGKILL", "second", "third", "fourth"];
    let mut world = stage.open_world().await?;
    for (worker, cause) in (1..).zip(CAUSES) {
        let done = world.cast.kill(worker, true).await?;
        world.recovered(cause, done, REPORTED_S).await?;
    }
    world.judge().await?;
    Ok(())
}

/// A machine that hangs for longer than the lease, and goes on.
pub async fn suspended(stage: Stage) -> Result<()> {
    let mut world = stage.open_world().await?;
    world.about_to_hit(1).await?;
    let done = world.cast.suspend(1).await?;
    let (at_ms, hit) = (done.at_ms, done.hit.clone());
    world.recovered("SIGSTOP", done, SILENT_DEATH_S).await?;
    let for_now = Duration::from_millis(world.cast.clock.mono_ms() - at_ms);
    world.cast.watch(SUSPENDED.saturating_sub(for_now)).await?;
    ensure!(world.last_end_s(&hit, at_ms).is_none(), "the sockets of a suspended process ended by themselves");
    let resumed_ms = world.cast.resume(1)?;
    world.undone(resumed_ms);
    world.cast.watch(SETTLE * 2).await?;
    let ended_s = world.last_end_s(&hit, resumed_ms);
    world.say(&format!("SIGCONT: its last socket ended {ended_s:?} s later"));
    // It has lost its lease, and goes on as a new session with what others give up.
    world.wait_for_active(4, SETTLE).await?;
    world.judge().await?;
    Ok(())
}

/// SIGTERM for one worker after the other, a new one before each.
pub async fn rolling_restart(stage: Stage) -> Result<()> {
    const CAUSES: [&str; 3] = ["first SIGTERM", "second SIGTERM", "third SIGTERM"];
    let mut world = stage.open_world().await?;
    for (worker, cause) in (1..).zip(CAUSES) {
        world.cast.start_worker()?;
        world.cast.watch(SETTLE).await?;
        let done = world.cast.terminate(worker).await?;
        world.recovered(cause, done, SIGTERM_S).await?;
    }
    let verdict = world.judge().await?;
    let worst_s = verdict.gaps.values().map(|gap| gap.worst_s).fold(0.0, f64::max);
    ensure!(worst_s < SIGTERM_S, "the longest silence of a connection was {worst_s} s");
    Ok(())
}
