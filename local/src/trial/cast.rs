//! Who takes part: the system, the feed, the workers.

use super::observed::StoredLog;
use crate::engine::clients;
use crate::feed::{ChannelSettings, Feed, FeedSettings, Scope};
use crate::system::workers::{WorkerCommand, WorkerProcess};
use crate::system::{System, SystemSettings};
use anyhow::{Context, Result, bail};
use leasehold::clock::{SharedClock, SystemClock};
use leasehold::decide::timing::{Rules, Timing};
use leasehold::model::{AttributeValue, ConnectionId, Item, spec};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::sleep;

/// What is told of the state while a trial waits: open sockets, and messages stored so far.
pub type OnStep = Arc<dyn Fn(usize, usize) + Send + Sync>;

/// Who is to take part.
#[derive(Clone)]
pub struct CastSettings {
    /// Connections; every second feed can replay.
    pub connections: u32,
    /// Workers that share them.
    pub workers: u32,
    /// Time between two messages of a feed.
    pub interval_ms: u64,
    /// Where the system keeps its files; `None` for one that forgets everything.
    pub directory: Option<PathBuf>,
    /// The protocol's rules.
    pub rules: Rules,
    /// How workers are started.
    pub command: WorkerCommand,
    /// Told of the state a few times a second.
    pub on_step: Option<OnStep>,
}

/// Everybody.
pub struct Cast {
    /// The process's clock, which the feed and the engine share.
    pub clock: SharedClock,
    /// The system.
    pub system: System,
    /// The upstream.
    pub feed: Feed,
    /// When each message was stored.
    pub stored: StoredLog,
    /// The workers that run.
    pub workers: Vec<WorkerProcess>,
    pub(super) ids: Vec<String>,
    pub(super) on_step: Option<OnStep>,
    command: WorkerCommand,
    next_worker: u32,
}

impl Cast {
    /// Starts system and feed; no worker yet.
    ///
    /// # Errors
    /// When one of them does not start.
    pub async fn start(settings: &CastSettings) -> Result<Self> {
        let clock: SharedClock = Arc::new(SystemClock);
        let stored = StoredLog::default();
        let system = System::start(system_settings(settings, &clock, &stored)).await?;
        Self::with_system(settings, clock, stored, system).await
    }

    /// Starts the feed beside a system that runs already, with [`system_settings`].
    ///
    /// # Errors
    /// When the feed does not start.
    pub async fn with_system(
        settings: &CastSettings,
        clock: SharedClock,
        stored: StoredLog,
        system: System,
    ) -> Result<Self> {
        let interval_ms = settings.interval_ms;
        let feed_settings = FeedSettings::with_channels(move |id| ChannelSettings {
            interval_ms,
            replay: can_replay(id),
            numbered: can_replay(id),
            ..ChannelSettings::default()
        });
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("no port for the feed")?;
        let feed = Feed::start(listener, clock.clone(), feed_settings).context("the feed does not start")?;
        let ids = (0..settings.connections).map(|number| name(number, number % 2 == 0)).collect();
        let mut command = settings.command.clone();
        // Room for a quarter more than an even share, so that each worker holds something when its turn comes.
        let capacity = settings.connections.div_ceil(settings.workers) * 5 / 4 + 1;
        command.environment.push(("CAPACITY".into(), capacity.to_string()));
        let on_step = settings.on_step.clone();
        Ok(Self { clock, system, feed, stored, workers: Vec::new(), ids, on_step, command, next_worker: 1 })
    }

    /// Starts one more worker. Returns its number.
    ///
    /// # Errors
    /// When the process does not start.
    pub fn start_worker(&mut self) -> Result<u32> {
        self.start_worker_with(&[])
    }

    /// Starts one more worker, with this in its environment over what every worker gets. Returns its number.
    ///
    /// # Errors
    /// When the process does not start.
    pub fn start_worker_with(&mut self, environment: &[(String, String)]) -> Result<u32> {
        let number = self.next_worker;
        self.next_worker += 1;
        let mut command = self.command.clone();
        command.environment.extend_from_slice(environment);
        let worker = WorkerProcess::start(&self.system, &command, number).context("a worker does not start")?;
        self.workers.push(worker);
        Ok(number)
    }

    /// Waits until so many sessions are registered.
    ///
    /// # Errors
    /// When they are not within 30 s, or the table cannot be read.
    pub async fn wait_for_sessions(&self, count: usize) -> Result<()> {
        for _ in 0..300 {
            if self.system.store().sessions().await?.len() >= count {
                return Ok(());
            }
            sleep(Duration::from_millis(100)).await;
        }
        bail!("the workers did not register within 30 s")
    }

    /// The worker with this number, if it runs.
    pub(super) fn worker(&self, number: u32) -> Result<&WorkerProcess> {
        let worker = self.workers.iter().find(|worker| worker.number == number);
        worker.with_context(|| format!("worker {number} does not run"))
    }

    /// Takes the worker with this number off the list, if it runs.
    pub(super) fn take_worker(&mut self, number: u32) -> Result<WorkerProcess> {
        match self.workers.iter().position(|worker| worker.number == number) {
            Some(index) => Ok(self.workers.remove(index)),
            None => bail!("worker {number} does not run"),
        }
    }

    /// Writes the rows, as a user would: three attributes, and how to resume where the feed can.
    ///
    /// # Errors
    /// When the table does not take them.
    pub async fn write_rows(&self) -> Result<()> {
        let dynamo = clients::dynamodb_at(self.system.dynamodb_url());
        for id in &self.ids {
            let item = row(id, &self.feed.url(id))?;
            let table = &self.system.stack().tables.connections;
            let item: HashMap<String, aws_sdk_dynamodb::types::AttributeValue> = item.into();
            dynamo.put_item().table_name(table).set_item(Some(item)).send().await.context("a row is not taken")?;
        }
        Ok(())
    }

    /// How many sockets are open now.
    pub(super) fn open_socket_count(&self) -> usize {
        self.feed.open_sockets(Scope::All)
    }

    /// Starts or stops the sending of all feeds.
    pub(super) fn set_sending(&self, sending: bool) {
        for id in &self.ids {
            self.feed.set_started(id, sending);
        }
    }
}

/// A system for a trial: on any ports, with its stores observed.
#[must_use]
pub fn system_settings(settings: &CastSettings, clock: &SharedClock, stored: &StoredLog) -> SystemSettings {
    SystemSettings {
        directory: settings.directory.clone(),
        ports: (0, 0),
        timing: Timing::default(),
        rules: settings.rules,
        clock: clock.clone(),
        seed: clock.wall_ms(),
        observer: Some(stored.observer()),
    }
}

fn name(number: u32, replay: bool) -> String {
    format!("{}-{number:04}", if replay { "replay" } else { "live" })
}

/// Whether this feed can replay (and numbers its messages): its name says so.
#[must_use]
pub fn can_replay(id: &str) -> bool {
    !id.starts_with("live-")
}

fn row(id: &str, url: &str) -> Result<Item> {
    let mut item: HashMap<String, AttributeValue> = spec::minimal_item(&ConnectionId::new(id)?, true, url).into_inner();
    if can_replay(id) {
        let query = AttributeValue::S(format!("from={}", spec::LAST_SEQ_PLACEHOLDER));
        item.insert(spec::attr::RESUME.into(), AttributeValue::M(HashMap::from([("query".into(), query)])));
        item.insert(spec::attr::SEQUENCE_POINTER.into(), AttributeValue::S("/seq".into()));
    }
    Ok(item.into())
}
