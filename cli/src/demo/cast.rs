//! Who takes part: the system, the feed, the workers.

use super::DemoArguments;
use super::observed::StoredLog;
use anyhow::{Context, Result, bail};
use leasehold::clock::{SharedClock, SystemClock};
use leasehold::decide::timing::Timing;
use leasehold::model::{AttributeValue, ConnectionId, Item, spec};
use leasehold_local::feed::{ChannelSettings, Feed, FeedSettings, Scope};
use leasehold_local::system::workers::{WorkerCommand, WorkerProcess};
use leasehold_local::system::{System, SystemSettings};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::sleep;

/// Each feed sends two messages a second.
pub const INTERVAL_MS: u64 = 500;

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
    /// The connections.
    pub ids: Vec<String>,
    command: WorkerCommand,
    next_worker: u32,
}

impl Cast {
    /// Starts system and feed; no worker yet.
    ///
    /// # Errors
    /// When one of them does not start.
    pub async fn start(arguments: &DemoArguments, logs: &Path) -> Result<Self> {
        let clock: SharedClock = Arc::new(SystemClock);
        let stored = StoredLog::default();
        let system = System::start(SystemSettings {
            directory: None,
            ports: (0, 0),
            timing: Timing::default(),
            rules: super::Break::rules(arguments.broken),
            clock: clock.clone(),
            seed: clock.wall_ms(),
            observer: Some(stored.observer()),
        })
        .await?;
        let settings = FeedSettings::with_channels(|id| ChannelSettings {
            interval_ms: INTERVAL_MS,
            replay: can_replay(id),
            numbered: can_replay(id),
            ..ChannelSettings::default()
        });
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("no port for the feed")?;
        let feed = Feed::start(listener, clock.clone(), settings).context("the feed does not start")?;
        let ids = (0..arguments.connections).map(|number| name(number, number % 2 == 0)).collect();
        let mut command = crate::worker::command(arguments.broken, logs)?;
        // Room for a quarter more than an even share, so that each worker holds something when its turn comes.
        let capacity = arguments.connections.div_ceil(arguments.workers) * 5 / 4 + 1;
        command.environment.push(("CAPACITY".into(), capacity.to_string()));
        Ok(Self { clock, system, feed, stored, workers: Vec::new(), ids, command, next_worker: 1 })
    }

    /// Starts one more worker. Returns its number.
    ///
    /// # Errors
    /// When the process does not start.
    pub fn start_worker(&mut self) -> Result<u32> {
        let number = self.next_worker;
        self.next_worker += 1;
        let worker = WorkerProcess::start(&self.system, &self.command, number).context("a worker does not start")?;
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

    /// Takes the worker with this number off the list.
    ///
    /// # Errors
    /// When there is none.
    pub fn take_worker(&mut self, number: u32) -> Result<WorkerProcess> {
        match self.workers.iter().position(|worker| worker.number == number) {
            Some(index) => Ok(self.workers.remove(index)),
            None => bail!("worker {number} does not run"),
        }
    }

    /// Writes the rows, as a user would: three attributes, and how to resume where the feed can.
    ///
    /// # Errors
    /// When the table does not take them.
    pub async fn write_rows(&self, dynamo: &aws_sdk_dynamodb::Client) -> Result<()> {
        for id in &self.ids {
            let item = row(id, &self.feed.url(id))?;
            let table = &self.system.stack().tables.connections;
            let item: HashMap<String, aws_sdk_dynamodb::types::AttributeValue> = item.into();
            dynamo.put_item().table_name(table).set_item(Some(item)).send().await.context("a row is not taken")?;
        }
        Ok(())
    }

    /// Sockets that are open now.
    #[must_use]
    pub fn open_sockets(&self) -> usize {
        self.feed.open_sockets(Scope::All)
    }

    /// Starts or stops the sending of all feeds.
    pub fn set_sending(&self, sending: bool) {
        for id in &self.ids {
            self.feed.set_started(id, sending);
        }
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
