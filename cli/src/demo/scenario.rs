//! What is done to the workers, step by step, and what is recorded of it.

use super::DemoArguments;
use super::cast::Cast;
use super::progress::Progress;
use anyhow::{Context, Result, bail};
use leasehold::model::{ConnectionId, Session};
use leasehold_local::engine::meter::Units;
use leasehold_local::feed::records::{FeedRecords, SocketRecord};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::time::Duration;
use tokio::time::sleep;

/// One thing that was done to a worker.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Its name in the verdict.
    pub cause: &'static str,
    /// When it was done, on the process's monotonic clock.
    pub at_ms: u64,
    /// When it was undone (SIGCONT).
    pub undone_ms: Option<u64>,
    /// The connections that it hit: those whose socket the worker held, as the feed saw it.
    pub hit: HashSet<String>,
    /// The sockets that it hit, by the feed's numbers.
    pub sockets: HashSet<u64>,
}

/// All that the verdict needs.
pub struct Recording {
    /// The connections.
    pub ids: Vec<String>,
    /// What was done.
    pub faults: Vec<Fault>,
    /// The feed's own log.
    pub feed: FeedRecords,
    /// When the log was read.
    pub feed_read_ms: u64,
    /// When the engine stored each message, by connection.
    pub stored: HashMap<String, Vec<u64>>,
    /// Every message that is in the table at the end: payload and key, by connection.
    pub table: HashMap<String, Vec<(String, String)>>,
    /// Connections whose row names a session that is ACTIVE, at the end.
    pub owned: usize,
    /// What was written while everything was measured.
    pub units: BTreeMap<&'static str, Units>,
    /// For how long.
    pub measured_ms: u64,
    /// Seconds that the whole took.
    pub seconds: f64,
    /// What was taken out of the protocol.
    pub broken: Option<String>,
}

/// How long everything may take to open, and to come back after a fault.
const PATIENCE: Duration = Duration::from_secs(75);
/// A quiet time between two steps.
const SETTLE: Duration = Duration::from_secs(4);
/// How long a worker is suspended at least: longer than its lease of 20 s.
const SUSPENDED: Duration = Duration::from_secs(25);

/// Plays it all.
///
/// # Errors
/// When the demonstration itself cannot go on. A fault of the product is no error: the verdict says it.
pub async fn play(arguments: &DemoArguments, progress: &Progress, logs: &Path) -> Result<Recording> {
    let mut cast = Cast::start(arguments, logs).await?;
    let began_ms = cast.clock.mono_ms();
    progress.step(&format!("{} worker processes, {} connections", arguments.workers, arguments.connections));
    for _ in 0..arguments.workers {
        cast.start_worker()?;
    }
    cast.wait_for_sessions(arguments.workers as usize).await?;
    let dynamo = dynamo_client(cast.system.dynamodb_url());
    cast.write_rows(&dynamo).await?;
    wait_for_all(&mut cast, progress, began_ms).await?;
    let (measured_from_ms, units_before) = (cast.clock.mono_ms(), cast.system.units());
    progress.step("all connections are open and deliver; measuring for 10 s");
    watch(&mut cast, progress, Duration::from_secs(10)).await?;

    let mut faults = Vec::new();
    faults.push(kill(&mut cast, progress, 1, false).await?);
    faults.push(kill(&mut cast, progress, 2, true).await?);
    faults.push(terminate(&mut cast, progress, 3).await?);
    faults.push(suspend(&mut cast, progress, 4).await?);
    watch(&mut cast, progress, SETTLE).await?;

    let measured_ms = cast.clock.mono_ms() - measured_from_ms;
    let units = difference(&cast.system.units(), &units_before);
    progress.step("the feeds fall silent; what is under way is stored");
    cast.set_sending(false);
    watch(&mut cast, progress, Duration::from_secs(3)).await?;
    let owned = count_owned(&cast).await?;
    let feed_read_ms = cast.clock.mono_ms();
    let feed = cast.feed.log().records();
    let table = read_messages(&cast).await?;
    let stored = cast.stored.snapshot();
    let seconds = (cast.clock.mono_ms() - began_ms) as f64 / 1_000.0;
    let ids = cast.ids.clone();
    end(cast).await?;
    let broken = arguments.broken.map(|part| format!("{part:?}").to_lowercase());
    Ok(Recording { ids, faults, feed, feed_read_ms, stored, table, owned, units, measured_ms, seconds, broken })
}

/// SIGKILL; a replacement starts at once. With `reported`, the task's end is reported as ECS does.
async fn kill(cast: &mut Cast, progress: &Progress, number: u32, reported: bool) -> Result<Fault> {
    let (cause, how) = if reported {
        ("sigkill_with_task_event", "reported by a task event")
    } else {
        ("sigkill", "and nobody reports it")
    };
    let mut worker = cast.take_worker(number)?;
    progress.step(&format!("SIGKILL of worker {number}, {how}; a replacement starts"));
    let before = open_sockets(cast);
    let at_ms = cast.clock.mono_ms();
    worker.signal(Signal::KILL)?;
    worker.wait().await?;
    if reported {
        cast.system.task_event(&worker.stopped_task(137, cast.clock.wall_ms()));
    }
    cast.start_worker()?;
    let hit = hit_by_end(cast, before, at_ms).await;
    recovered(cast, progress, cause, at_ms, hit).await
}

/// SIGTERM; a replacement starts at once.
async fn terminate(cast: &mut Cast, progress: &Progress, number: u32) -> Result<Fault> {
    let mut worker = cast.take_worker(number)?;
    progress.step(&format!("SIGTERM of worker {number}; a replacement starts"));
    cast.start_worker()?;
    // The replacement is up before the old one goes, as in a rolling deployment.
    watch(cast, progress, Duration::from_secs(2)).await?;
    let before = open_sockets(cast);
    let at_ms = cast.clock.mono_ms();
    worker.signal(Signal::TERM)?;
    let status =
        tokio::time::timeout(Duration::from_secs(20), worker.wait()).await.context("SIGTERM is not heard")??;
    if !status.success() {
        bail!("worker {number} ended with {status} after SIGTERM");
    }
    let hit = hit_by_end(cast, before, at_ms).await;
    recovered(cast, progress, "sigterm", at_ms, hit).await
}

/// SIGSTOP for longer than the lease, until others have everything, then SIGCONT; a replacement starts at once.
async fn suspend(cast: &mut Cast, progress: &Progress, number: u32) -> Result<Fault> {
    let task_arn = worker_arn(cast, number)?;
    let hit = held_by(cast, &task_arn).await?;
    progress.step(&format!("SIGSTOP of worker {number} for longer than its lease; a replacement starts"));
    let before = open_sockets(cast);
    let at_ms = cast.clock.mono_ms();
    signal(cast, number, Signal::STOP)?;
    cast.start_worker()?;
    let sockets: HashSet<u64> =
        before.iter().filter(|(id, _)| hit.contains(id.as_str())).map(|(_, socket)| *socket).collect();
    let fault = recovered(cast, progress, "sigstop", at_ms, (hit, sockets)).await?;
    let suspended = Duration::from_millis(cast.clock.mono_ms() - at_ms);
    watch(cast, progress, SUSPENDED.saturating_sub(suspended)).await?;
    progress.step(&format!("SIGCONT of worker {number}: it must drop what it held, and store nothing"));
    let undone_ms = cast.clock.mono_ms();
    signal(cast, number, Signal::CONT)?;
    watch(cast, progress, Duration::from_secs(8)).await?;
    Ok(Fault { undone_ms: Some(undone_ms), ..fault })
}

fn signal(cast: &Cast, number: u32, signal: Signal) -> Result<()> {
    let worker = cast.workers.iter().find(|worker| worker.number == number);
    Ok(worker.with_context(|| format!("worker {number} does not run"))?.signal(signal)?)
}

fn worker_arn(cast: &Cast, number: u32) -> Result<String> {
    let worker = cast.workers.iter().find(|worker| worker.number == number);
    Ok(worker.with_context(|| format!("worker {number} does not run"))?.task_arn.clone())
}

/// Waits until every connection has delivered since `since_ms`.
async fn wait_for_all(cast: &mut Cast, progress: &Progress, since_ms: u64) -> Result<()> {
    let wanted: usize = cast.ids.len();
    let mut waited = Duration::ZERO;
    while cast.stored.connections_since(since_ms) < wanted || cast.open_sockets() < wanted {
        if waited > PATIENCE {
            let delivering = cast.stored.connections_since(since_ms);
            bail!("after {} s only {delivering} of {wanted} connections deliver", PATIENCE.as_secs());
        }
        watch(cast, progress, Duration::from_millis(250)).await?;
        waited += Duration::from_millis(250);
    }
    Ok(())
}

/// Waits until what was hit delivers again, or patience ends: then the verdict says so.
async fn recovered(
    cast: &mut Cast,
    progress: &Progress,
    cause: &'static str,
    at_ms: u64,
    (hit, sockets): (HashSet<String>, HashSet<u64>),
) -> Result<Fault> {
    let patience_until_ms = at_ms + PATIENCE.as_millis() as u64;
    while cast.clock.mono_ms() < patience_until_ms && !all_back(cast, &hit, at_ms) {
        watch(cast, progress, Duration::from_millis(250)).await?;
    }
    let took_s = (cast.clock.mono_ms() - at_ms) as f64 / 1_000.0;
    progress.step(&format!("  {} connections were hit; all deliver again after {took_s:.1} s", hit.len()));
    watch(cast, progress, SETTLE).await?;
    Ok(Fault { cause, at_ms, undone_ms: None, hit, sockets })
}

/// Whether each of `hit` has a socket that was opened after the fault, and a message stored after that.
fn all_back(cast: &Cast, hit: &HashSet<String>, at_ms: u64) -> bool {
    let log = cast.feed.log();
    hit.iter().all(|id| {
        let records = log.channel_records(id);
        let opened = records.and_then(|records| {
            let fresh = |socket: &&SocketRecord| socket.opened_at_ms > at_ms && socket.closed_at_ms.is_none();
            records.sockets.iter().find(fresh).map(|socket| socket.opened_at_ms)
        });
        opened.is_some_and(|opened_ms| cast.stored.last_ms(id) > opened_ms)
    })
}

/// Open sockets by channel, as the feed sees them.
fn open_sockets(cast: &Cast) -> Vec<(String, u64)> {
    let mut open = Vec::new();
    for channel in cast.feed.log().records().channels {
        for socket in channel.sockets.iter().filter(|socket| socket.closed_at_ms.is_none()) {
            open.push((channel.id.to_string(), socket.id));
        }
    }
    open
}

/// Which of the sockets that were open `before` have ended since: those of the worker that was ended.
async fn hit_by_end(cast: &Cast, before: Vec<(String, u64)>, at_ms: u64) -> (HashSet<String>, HashSet<u64>) {
    sleep(Duration::from_millis(300)).await;
    let (mut hit, mut sockets) = (HashSet::new(), HashSet::new());
    let log = cast.feed.log();
    for (id, socket) in before {
        let records = log.channel_records(&id);
        let ended = records.is_some_and(|records| {
            records
                .sockets
                .iter()
                .any(|record| record.id == socket && record.closed_at_ms.is_some_and(|end| end >= at_ms))
        });
        if ended {
            hit.insert(id);
            sockets.insert(socket);
        }
    }
    (hit, sockets)
}

/// Which connections the worker with this task holds, by the table: the only step where the feed cannot tell.
async fn held_by(cast: &Cast, task_arn: &str) -> Result<HashSet<String>> {
    let sessions = cast.system.store().sessions().await?;
    let mine: HashSet<String> = sessions
        .iter()
        .filter(|session| session.task_arn.as_deref() == Some(task_arn))
        .map(|session| session.id.to_string())
        .collect();
    let mut held = HashSet::new();
    for (id, owner) in owners(cast).await? {
        if mine.contains(&owner) {
            held.insert(id);
        }
    }
    Ok(held)
}

async fn owners(cast: &Cast) -> Result<Vec<(String, String)>> {
    let mut owners = Vec::new();
    let mut from: Option<String> = None;
    loop {
        let page = cast.system.store().scan_connections(from.as_deref()).await?;
        for item in &page.items {
            let row = leasehold::model::Connection::from_item(item)?;
            if let Some(owner) = row.lease.owner {
                owners.push((row.id.to_string(), owner.to_string()));
            }
        }
        from = page.next_key("Pk").map(str::to_owned);
        if from.is_none() {
            return Ok(owners);
        }
    }
}

async fn count_owned(cast: &Cast) -> Result<usize> {
    let sessions = cast.system.store().sessions().await?;
    let active: HashSet<String> = sessions
        .iter()
        .filter(|session: &&Session| !session.state.is_over())
        .map(|session| session.id.to_string())
        .collect();
    Ok(owners(cast).await?.iter().filter(|(_, owner)| active.contains(owner)).count())
}

/// Shows the state for a while. A worker that ends by itself is an error.
async fn watch(cast: &mut Cast, progress: &Progress, time: Duration) -> Result<()> {
    const STEP: Duration = Duration::from_millis(250);
    let mut left = time;
    while !left.is_zero() {
        let step = left.min(STEP);
        sleep(step).await;
        left -= step;
        progress.state(cast.open_sockets(), cast.stored.count());
        for worker in &mut cast.workers {
            if let Some(status) = worker.ended()? {
                bail!("worker {} ended by itself: {status}", worker.number);
            }
        }
    }
    Ok(())
}

/// All that is in the table of messages: payload and key, by connection.
async fn read_messages(cast: &Cast) -> Result<HashMap<String, Vec<(String, String)>>> {
    let mut table: HashMap<String, Vec<(String, String)>> = HashMap::new();
    let mut from = None;
    loop {
        let page = cast.system.store().scan_messages(from).await?;
        for item in page.items {
            let item: HashMap<String, aws_sdk_dynamodb::types::AttributeValue> = item.into();
            let text = |name: &str| item.get(name).and_then(|value| value.as_s().ok()).cloned().unwrap_or_default();
            let body: Value = serde_json::from_str(&text("body")).unwrap_or_default();
            let payload = body["payload"].as_str().unwrap_or_default().to_owned();
            let id = ConnectionId::from_pk(&text("Pk"))?;
            table.entry(id.to_string()).or_default().push((payload, text("Sk")));
        }
        from = page.next;
        if from.is_none() {
            return Ok(table);
        }
    }
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

/// Ends the workers in order, then everything else.
async fn end(mut cast: Cast) -> Result<()> {
    for worker in &cast.workers {
        worker.signal(Signal::TERM)?;
    }
    for worker in &mut cast.workers {
        // One that does not end in time is killed when it is dropped.
        let _ = tokio::time::timeout(Duration::from_secs(10), worker.wait()).await;
    }
    cast.feed.stop().await;
    cast.system.stop().await?;
    Ok(())
}

/// A client as any tool of a user would have it.
fn dynamo_client(url: &str) -> aws_sdk_dynamodb::Client {
    use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("local", "local", None, None, "demo"))
        .endpoint_url(url)
        .http_client(leasehold::aws::sdk::http_client())
        .build();
    aws_sdk_dynamodb::Client::from_conf(config)
}
