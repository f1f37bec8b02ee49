//! Signals: SIGKILL, SIGSTOP and SIGCONT, SIGTERM.

use crate::world::{SETTLE, Stage};
use anyhow::{Context, Result, ensure};
use std::time::Duration;

/// Promised for a silent death: 38 s (lease, skew, interval, hand-over). With the back-off of a socket, up to a second until the next
/// message, and room for a busy machine.
pub const SILENT_DEATH_S: f64 = 45.0;
/// Promised are 2 s; the next message of each feed takes up to one more, a back-off another; and room for a busy machine.
pub const SIGTERM_S: f64 = 10.0;
/// With a task report: promised are 5 s. Less than any lease needs to end.
pub const REPORTED_S: f64 = 15.0;
/// Nobody else has a socket before a lease has ended and the skew is over, 23 s after the last renewal. That renewal is 5 s old at most, and a
/// second more if it was under way.
const LEASE_ENDS_AFTER_S: f64 = 17.0;
/// A process that runs again looks at its deadline within 100 ms, before it handles a frame. As in the verdict, with room for a busy machine.
const DROPPED_AFTER_SIGCONT_S: f64 = 2.0;
/// Longer than the lease of 20 s and the skew, with an interval of reconcile.
const SUSPENDED: Duration = Duration::from_secs(35);
/// SIGSTOP has reached every thread by then, and what the process had sent to the engine is stored.
const STOPS_WITHIN_MS: u64 = 500;
/// What the feed wrote that long ago a worker has read.
const ARRIVES_WITHIN_MS: u64 = 250;

/// Nobody reports the death: the lease has to end.
pub async fn killed(stage: Stage) -> Result<()> {
    let mut world = stage.open_world().await?;
    let done = world.cast.kill(1, false).await?;
    let (at_ms, hit) = (done.at_ms, done.hit.clone());
    world.recovered("SIGKILL", done, SILENT_DEATH_S).await?;
    let first_s = world.first_return_s(&hit, at_ms).context("nothing was taken over")?;
    world.say(&format!("SIGKILL: the first connection was taken over after {first_s:.1} s"));
    ensure!(first_s >= LEASE_ENDS_AFTER_S, "taken over after {first_s:.1} s: the lease cannot have ended by then");
    world.judge().await?;
    Ok(())
}

/// The death is reported as ECS does it.
pub async fn killed_and_reported(stage: Stage) -> Result<()> {
    const CAUSES: [&str; 4] = ["first SIGKILL", "second SIGKILL", "third SIGKILL", "fourth SIGKILL"];
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
    let before = world.active_ids().await?;
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
    let ended_s =
        world.last_end_s(&hit, resumed_ms).context("a socket of the process that runs again is still open")?;
    world.say(&format!("SIGCONT: its last socket ended {ended_s:.1} s later"));
    ensure!(ended_s <= DROPPED_AFTER_SIGCONT_S, "a socket was kept for {ended_s:.1} s");
    // It has lost its lease, and goes on as a new session with what others give up.
    world.wait_for_active(4, SETTLE).await?;
    ensure!(world.active_ids().await?.intersection(&before).count() == 2, "the session of the suspended process lives");

    // Frames that lay in its sockets while it was suspended, and that nobody else got: what it must not handle any more.
    let (waiting, stored) = world.written_to_them_only(&hit, at_ms + STOPS_WITHIN_MS, resumed_ms).await?;
    world.say(&format!("SIGCONT: {waiting} messages waited in its sockets, {stored} of them are stored"));
    ensure!(waiting > 0 && stored == 0, "of {waiting} messages that waited in its sockets {stored} were stored");
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
        let (at_ms, hit) = (done.at_ms, done.hit.clone());
        world.recovered(cause, done, SIGTERM_S).await?;
        // Of every feed, also those that cannot replay: what a worker has it stores before it ends.
        let (written, stored) = world.written_to_them_only(&hit, 0, at_ms - ARRIVES_WITHIN_MS).await?;
        ensure!(written > 0 && stored == written, "{cause}: of {written} messages that it had {stored} are stored");
    }
    let verdict = world.judge().await?;
    let worst_s = verdict.gaps.values().map(|gap| gap.worst_s).fold(0.0, f64::max);
    ensure!(worst_s < SIGTERM_S, "the longest silence of a connection was {worst_s} s");
    Ok(())
}
