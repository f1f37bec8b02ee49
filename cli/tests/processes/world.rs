//! A scenario's world: a system, a feed, worker processes, and what is said of them.

use anyhow::{Result, bail, ensure};
use leasehold::decide::timing::Rules;
use leasehold_local::system::workers::WorkerCommand;
use leasehold_local::trial::cast::{Cast, CastSettings};
use leasehold_local::trial::recording::Fault;
use leasehold_local::trial::sight::Hit;
use leasehold_local::trial::steps::Done;
use leasehold_local::trial::verdict::{Verdict, judge};
use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;
use std::time::Duration;

/// Connections of each scenario: every second one can replay, the others tell of order.
const CONNECTIONS: u32 = 30;
const WORKERS: u32 = 3;
/// Time between two messages of a feed.
const INTERVAL_MS: u64 = 1_000;
/// A quiet time between two steps, in which every feed sends.
pub const SETTLE: Duration = Duration::from_secs(3);

/// Where a scenario takes place.
pub struct Stage {
    /// Its name, for what it prints.
    pub name: &'static str,
    /// Files: logs of workers, and the engine's if it has any.
    pub directory: PathBuf,
}

/// A scenario's world.
pub struct World {
    pub cast: Cast,
    name: &'static str,
    began_ms: u64,
    faults: Vec<Fault>,
}

impl Stage {
    /// What the cast of each scenario is made of.
    pub fn settings(&self) -> CastSettings {
        CastSettings {
            connections: CONNECTIONS,
            workers: WORKERS,
            interval_ms: INTERVAL_MS,
            directory: None,
            rules: Rules::default(),
            command: WorkerCommand {
                program: env!("CARGO_BIN_EXE_leasehold").into(),
                arguments: vec!["worker-process".into()],
                environment: Vec::new(),
                log_directory: self.directory.join("logs"),
            },
            on_step: None,
        }
    }

    /// A system and a feed; no worker yet.
    pub async fn world(&self) -> Result<World> {
        Ok(World::new(self.name, Cast::start(&self.settings()).await?))
    }

    /// As [`Self::world`], with three workers like any others, and every connection open.
    pub async fn open_world(&self) -> Result<World> {
        let mut world = self.world().await?;
        for _ in 0..WORKERS {
            world.cast.start_worker()?;
        }
        world.open().await?;
        Ok(world)
    }
}

impl World {
    pub fn new(name: &'static str, cast: Cast) -> Self {
        let began_ms = cast.clock.mono_ms();
        Self { cast, name, began_ms, faults: Vec::new() }
    }

    /// Waits for the workers, writes the rows, and waits until every connection delivers.
    pub async fn open(&mut self) -> Result<()> {
        self.cast.wait_for_sessions(self.cast.workers.len()).await?;
        self.cast.write_rows().await?;
        self.cast.wait_for_all(self.began_ms).await?;
        self.cast.watch(SETTLE).await
    }

    /// Prints what happened.
    pub fn say(&self, text: &str) {
        let since_s = seconds(self.cast.clock.mono_ms() - self.began_ms);
        eprintln!("{since_s:5.1} s  {}: {text}", self.name);
    }

    /// Notes what is about to be done to a worker, whose sockets do not end by that. Waits until it has a socket for all that it holds.
    pub async fn about_to_hit(&mut self, worker: u32) -> Result<Done> {
        for _ in 0..100 {
            let hit = self.cast.held_by(worker).await?;
            if !hit.connections.is_empty() && hit.sockets.len() == hit.connections.len() {
                return Ok(Done { at_ms: self.cast.clock.mono_ms(), hit });
            }
            self.cast.watch(Duration::from_millis(250)).await?;
        }
        bail!("worker {worker} does not hold anything, or not with a socket each")
    }

    /// Waits until what was hit delivers again over other sockets, `within_s` at most. Notes it for the verdict.
    pub async fn recovered(&mut self, cause: &'static str, done: Done, within_s: f64) -> Result<()> {
        let came = self.cast.wait_until_back(&done).await?;
        self.say(&format!("{cause}: {came}"));
        self.faults.push(Fault::new(cause, done));
        ensure!(came.back == came.all && came.after_s <= within_s, "{cause}: {came}, and {within_s} s were allowed");
        self.cast.watch(SETTLE).await
    }

    /// Notes that what the last fault suspended runs again.
    pub fn undone(&mut self, at_ms: u64) {
        if let Some(fault) = self.faults.last_mut() {
            fault.undone_ms = Some(at_ms);
        }
    }

    /// When the last of these sockets ended, in seconds after `at_ms`; `None` while one is open.
    pub fn last_end_s(&self, hit: &Hit, at_ms: u64) -> Option<f64> {
        let mut last_ms = at_ms;
        for channel in self.cast.feed.log().records().channels {
            for socket in channel.sockets.iter().filter(|socket| hit.sockets.contains(&socket.id)) {
                last_ms = last_ms.max(socket.closed_at_ms?);
            }
        }
        Some(seconds(last_ms - at_ms))
    }

    /// When the first of these connections got another socket, in seconds after `at_ms`.
    pub fn first_return_s(&self, hit: &Hit, at_ms: u64) -> Option<f64> {
        let mut first_ms = None;
        for id in &hit.connections {
            let sockets = self.cast.feed.log().channel_records(id)?.sockets;
            for socket in sockets.iter().filter(|socket| socket.opened_at_ms > at_ms) {
                first_ms = Some(first_ms.unwrap_or(u64::MAX).min(socket.opened_at_ms));
            }
        }
        first_ms.map(|first_ms| seconds(first_ms - at_ms))
    }

    /// What the feed wrote in this time to sockets of `hit` and to no others: how many messages, and how many of them are stored.
    pub async fn written_to_them_only(&self, hit: &Hit, from_ms: u64, to_ms: u64) -> Result<(usize, usize)> {
        let table = self.cast.messages().await?;
        let (mut written, mut stored) = (0, 0);
        for channel in self.cast.feed.log().records().channels {
            let (mut theirs, mut others) = (HashSet::new(), HashSet::new());
            for write in &channel.written {
                if !hit.sockets.contains(&write.socket) {
                    others.insert(&*write.payload);
                } else if (from_ms..to_ms).contains(&write.at_ms) {
                    theirs.insert(&*write.payload);
                }
            }
            let rows = table.get(&*channel.id).map_or(&[][..], Vec::as_slice);
            let in_table: HashSet<&str> = rows.iter().map(|(payload, _)| payload.as_str()).collect();
            written += theirs.difference(&others).count();
            stored += theirs.difference(&others).filter(|payload| in_table.contains(**payload)).count();
        }
        Ok((written, stored))
    }

    /// What is open now, as if all of it were hit.
    pub fn everything_open(&self) -> Hit {
        let mut hit = Hit::default();
        for channel in self.cast.feed.log().records().channels {
            for socket in channel.sockets.iter().filter(|socket| socket.closed_at_ms.is_none()) {
                hit.connections.insert(channel.id.to_string());
                hit.sockets.insert(socket.id);
            }
        }
        hit
    }

    /// Handshakes that became a socket so far: as many as before if nobody had to connect again meanwhile.
    pub fn sockets_ever(&self) -> usize {
        self.cast.feed.log().records().channels.iter().map(|channel| channel.sockets.len()).sum()
    }

    /// Waits until so many sessions are ACTIVE. Returns how many seconds that took.
    pub async fn wait_for_active(&mut self, count: usize, within: Duration) -> Result<f64> {
        let since_ms = self.cast.clock.mono_ms();
        loop {
            let active = self.cast.active_sessions().await?.len();
            let waited = Duration::from_millis(self.cast.clock.mono_ms() - since_ms);
            if active == count {
                return Ok(waited.as_secs_f64());
            }
            ensure!(waited < within, "{active} of {count} workers have a session, {waited:?} later");
            self.cast.watch(Duration::from_millis(250)).await?;
        }
    }

    /// The ids of the sessions that are ACTIVE.
    pub async fn active_ids(&self) -> Result<BTreeSet<String>> {
        Ok(self.cast.active_sessions().await?.iter().map(|session| session.id.to_string()).collect())
    }

    /// The feeds fall silent, and the logs are compared: the verdict has to be green.
    pub async fn judge(mut self) -> Result<Verdict> {
        let recording = self.cast.record(std::mem::take(&mut self.faults), self.began_ms).await?;
        let verdict = judge(&recording);
        self.say(&format!(
            "sent {}, stored {}, lost {}, missed by feeds that cannot replay {}, doubled {}, out of order {}, two sockets {:.1} s ({:.1} s of a \
             suspended process)",
            verdict.sent,
            verdict.stored,
            verdict.lost,
            verdict.missed,
            verdict.doubled,
            verdict.out_of_order,
            verdict.overlap.forbidden_s,
            verdict.overlap.suspended_s
        ));
        ensure!(verdict.sent > 300, "the feed has hardly said anything: {}", verdict.sent);
        ensure!(verdict.green, "{}", verdict.faults.join("; "));
        self.cast.end().await?;
        Ok(verdict)
    }
}

pub fn seconds(ms: u64) -> f64 {
    ms as f64 / 1_000.0
}
