//! One worker of three has a bad way to the engine; its way to the queue and to the feed is good.

use crate::proxy::{Proxy, Way};
use crate::signals::SILENT_DEATH_S;
use crate::world::{SETTLE, Stage, World};
use anyhow::{Context, Result, ensure};
use leasehold::model::SessionState;
use std::time::Duration;

/// The deadline at which sockets are dropped is 14 s after the last renewal that was answered; within 20 s another may hold them.
const DROPPED_WITHIN_S: f64 = 16.0;
/// Longer than any time-out of a request (1 s on the path of the lease, 3 s elsewhere).
const TOO_LATE: Duration = Duration::from_secs(4);
/// When the way is good again, a worker is about to end its old session, and then registers the next. The attempt that is under way takes
/// 2 s at most, the wait for the next one 3 s; then that one and the registration have 2 s each; 1 s to see it, on a busy machine.
const TAKES_PART_AGAIN: Duration = Duration::from_secs(10);
/// A worker whose requests are carried out ends its session itself, 20 s after its last renewal was answered; nobody learns of it, and
/// the next look of reconcile claims its connections. With the way back of a socket.
const ENDED_UNHEARD_S: f64 = 38.0;
/// How long the way is bad at least: past the lease, the skew and an interval.
const BAD_FOR: Duration = Duration::from_secs(40);

const EVERY_SECOND: Way = Way::Lost { one_of: 2 };

/// Nothing arrives, in either direction.
pub async fn cut_off(stage: Stage) -> Result<()> {
    lost_and_found(&stage, "cut off", Way::Dropped, SessionState::Fenced, SILENT_DEATH_S).await
}

/// Every request is carried out, and every answer comes after its time-out.
pub async fn late_answers(stage: Stage) -> Result<()> {
    lost_and_found(&stage, "answers too late", Way::Late(TOO_LATE), SessionState::Ended, ENDED_UNHEARD_S).await
}

/// Every request is carried out, and no answer arrives.
pub async fn lost_answers(stage: Stage) -> Result<()> {
    lost_and_found(&stage, "answers lost", Way::Lost { one_of: 1 }, SessionState::Ended, ENDED_UNHEARD_S).await
}

/// A worker that cannot renew drops its sockets in time; others go on; when its way is good again it takes part again. Whether
/// its requests are carried out shows in `over_as`: a session is ENDED by its worker, and FENCED by others.
async fn lost_and_found(
    stage: &Stage,
    cause: &'static str,
    way: Way,
    over_as: SessionState,
    within_s: f64,
) -> Result<()> {
    let (mut world, proxy) = with_a_proxy(stage).await?;
    let done = world.about_to_hit(1).await?;
    let (at_ms, hit) = (done.at_ms, done.hit.clone());
    proxy.set(way);
    // Two workers have no room for what three had.
    world.cast.start_worker()?;
    world.recovered(cause, done, within_s).await?;
    let dropped_s = world.last_end_s(&hit, at_ms).context("a socket of the worker is still open")?;
    world.say(&format!("{cause}: its last socket was dropped after {dropped_s:.1} s"));
    ensure!(dropped_s <= DROPPED_WITHIN_S, "a socket was kept for {dropped_s} s");
    let first_s = world.first_return_s(&hit, at_ms).context("nothing was taken over")?;
    world.say(&format!("{cause}: the first connection was taken over after {first_s:.1} s"));
    ensure!(first_s > dropped_s, "a connection was taken over before the last socket was dropped");
    let for_now = Duration::from_millis(world.cast.clock.mono_ms() - at_ms);
    world.cast.watch(BAD_FOR.saturating_sub(for_now)).await?;
    let spoiled = proxy.spoiled(way);
    world.say(&format!("{cause}: that happened {spoiled} times"));
    ensure!(spoiled > 5, "hardly anything came this way: nothing was tried");
    let states: Vec<SessionState> = world.cast.sessions_of(1).await?.iter().map(|session| session.state).collect();
    ensure!(states == [over_as], "the worker's sessions are {states:?}, not one that is {over_as:?}");
    proxy.set(Way::Open);
    let took_s = world.wait_for_active(4, TAKES_PART_AGAIN).await?;
    let sessions = world.cast.sessions_of(1).await?.len();
    world.say(&format!("{cause}: it takes part again {took_s:.1} s after the way is good"));
    ensure!(sessions == 2, "the worker has had {sessions} sessions: one lost its lease, and one follows");
    world.cast.watch(SETTLE * 2).await?;
    world.judge().await?;
    Ok(())
}

/// Every second answer is lost: requests are repeated, and nothing else happens.
pub async fn half_of_the_answers(stage: Stage) -> Result<()> {
    let (mut world, proxy) = with_a_proxy(&stage).await?;
    let (before, sockets) = (world.active_ids().await?, world.sockets_ever());
    proxy.set(EVERY_SECOND);
    world.cast.watch(BAD_FOR).await?;
    let spoiled = proxy.spoiled(EVERY_SECOND);
    world.say(&format!("{spoiled} answers were lost"));
    ensure!(spoiled > 50, "hardly an answer was lost");
    proxy.set(Way::Open);
    world.cast.watch(SETTLE).await?;
    ensure!(world.active_ids().await? == before, "a session was lost");
    ensure!(world.sockets_ever() == sockets, "a socket was given up");
    let verdict = world.judge().await?;
    ensure!(verdict.missed == 0, "{} messages were missed", verdict.missed);
    Ok(())
}

/// Three workers, the first of which goes through a proxy; every connection is open.
async fn with_a_proxy(stage: &Stage) -> Result<(World, Proxy)> {
    let mut world = stage.world().await?;
    let proxy = Proxy::start(world.cast.system.dynamodb_url()).await?;
    world.cast.start_worker_with(&proxy.environment())?;
    world.cast.start_worker()?;
    world.cast.start_worker()?;
    world.open().await?;
    Ok((world, proxy))
}
