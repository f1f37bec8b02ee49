//! The engine, the queues and the control plane are cut down and started again on their files.

use crate::signals::REPORTED_S;
use crate::world::{SETTLE, Stage, World};
use anyhow::{Context, Result, ensure};
use leasehold::clock::{SharedClock, SystemClock};
use leasehold_local::system::{System, SystemSettings};
use leasehold_local::trial::cast::{Cast, system_settings};
use leasehold_local::trial::observed::StoredLog;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// With the 5 s that the last renewal may be old by then, and the start of the engine, well below the 14 s after which sockets are dropped.
const DOWN: Duration = Duration::from_secs(5);
/// With the time that it was down long enough to fence whoever is thought dead: the lease, the skew and an interval.
const AFTERWARDS: Duration = Duration::from_secs(33);
/// How long a message may be on its way from a socket to the table.
const ON_THE_WAY_MS: u64 = 3_000;

/// Nothing is written down at the end: what is on disk when it is cut down is what there is afterwards.
pub async fn restarted(stage: Stage) -> Result<()> {
    let clock: SharedClock = Arc::new(SystemClock);
    let stored = StoredLog::default();
    let mut settings = stage.settings();
    settings.directory = Some(stage.directory.join("engine"));
    let mut system_settings = system_settings(&settings, &clock, &stored);
    let (ground, system) = start(&system_settings).await?;
    system_settings.ports = (port_of(system.dynamodb_url())?, port_of(system.sqs_url())?);
    let mut world = World::new(stage.name, Cast::with_system(&settings, clock, stored, system).await?);
    for _ in 0..settings.workers {
        world.cast.start_worker()?;
    }
    world.open().await?;
    let (before, sockets) = (world.active_ids().await?, world.sockets_ever());

    // All of its tasks end where they stand, and with them its connections and ports.
    drop(ground);
    let down_ms = world.cast.clock.mono_ms();
    world.cast.watch(DOWN).await?;
    let stored_before = world.cast.stored.count();
    let (ground, system) = start(&system_settings).await?;
    world.cast.system = system;
    let up_ms = world.cast.clock.mono_ms();
    world.say(&format!("the engine was down for {:.1} s", (up_ms - down_ms) as f64 / 1_000.0));
    world.cast.wait_for_all(up_ms).await?;
    let stored_since = world.cast.stored.count() - stored_before;
    world.say(&format!("every connection delivers again; {stored_since} messages stored since"));
    world.cast.watch(AFTERWARDS).await?;
    ensure!(world.active_ids().await? == before, "a session was fenced, or started over");
    ensure!(world.sockets_ever() == sockets, "a socket was given up");
    // Sockets were open all the time: what the feed wrote, workers have kept until the engine was back, of every feed.
    let written_until_ms = world.cast.clock.mono_ms() - ON_THE_WAY_MS;
    let (written, kept) = world.written_to_them_only(&world.everything_open(), 0, written_until_ms).await?;
    world.say(&format!("of {written} messages that were written until then {kept} are stored"));
    ensure!(written > 0 && kept == written, "{} messages are not stored", written - kept);

    // The control plane works as before.
    let done = world.cast.kill(1, true).await?;
    world.recovered("SIGKILL after the restart", done, REPORTED_S).await?;
    world.cast.watch(SETTLE).await?;
    world.judge().await?;
    drop(ground);
    Ok(())
}

/// What a system stands on. It may be dropped anywhere, which a runtime may not.
struct Ground(Option<Runtime>);

impl Drop for Ground {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// A system on a runtime of its own, so that it can be cut down.
async fn start(settings: &SystemSettings) -> Result<(Ground, System)> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let settings = settings.clone();
    let starting = runtime.spawn(async move { System::start(settings).await });
    let ground = Ground(Some(runtime));
    let system = starting.await??;
    Ok((ground, system))
}

fn port_of(url: &str) -> Result<u16> {
    let port = url.rsplit(':').next().and_then(|port| port.parse().ok());
    port.with_context(|| format!("{url} has no port"))
}
