//! What is recorded of a trial: the feed's log, the table of messages, and what was done meanwhile.

use super::cast::Cast;
use super::seconds;
use super::sight::Hit;
use super::steps::Done;
use crate::engine::meter::Units;
use crate::feed::records::FeedRecords;
use anyhow::Result;
use leasehold::model::ConnectionId;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

/// One thing that was done to a worker.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Its name in the verdict.
    pub cause: &'static str,
    /// When it was done, on the process's monotonic clock.
    pub at_ms: u64,
    /// When a suspended worker ran again (SIGCONT). Its sockets alone may overlap with others until then.
    pub undone_ms: Option<u64>,
    /// The connections that it hit: those whose socket the worker held, as the feed saw it.
    pub hit: HashSet<String>,
    /// The sockets that it hit, by the feed's numbers.
    pub sockets: HashSet<u64>,
}

impl Fault {
    /// What was done, under its name.
    #[must_use]
    pub fn new(cause: &'static str, done: Done) -> Self {
        let Hit { connections, sockets } = done.hit;
        Self { cause, at_ms: done.at_ms, undone_ms: None, hit: connections, sockets }
    }
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

/// How long what is under way may take to be stored once the feeds are silent.
const UNDER_WAY: Duration = Duration::from_secs(3);

impl Cast {
    /// The feeds fall silent, what is under way is stored, and everything is read. What was written and what was broken is left to
    /// the caller. `began_ms` is when the trial began.
    ///
    /// # Errors
    /// When a worker ends by itself, or the tables cannot be read.
    pub async fn record(&mut self, faults: Vec<Fault>, began_ms: u64) -> Result<Recording> {
        self.set_sending(false);
        self.watch(UNDER_WAY).await?;
        let owned = self.owned_by(&self.active_sessions().await?).await?.len();
        let feed_read_ms = self.clock.mono_ms();
        let feed = self.feed.log().records();
        let table = self.messages().await?;
        Ok(Recording {
            ids: self.ids.clone(),
            faults,
            feed,
            feed_read_ms,
            stored: self.stored.snapshot(),
            table,
            owned,
            units: BTreeMap::new(),
            measured_ms: 0,
            seconds: seconds(self.clock.mono_ms() - began_ms),
            broken: None,
        })
    }

    /// All that is in the table of messages: payload and key, by connection.
    ///
    /// # Errors
    /// When the table cannot be read.
    pub async fn messages(&self) -> Result<HashMap<String, Vec<(String, String)>>> {
        let mut table: HashMap<String, Vec<(String, String)>> = HashMap::new();
        let mut from = None;
        loop {
            let page = self.system.store().scan_messages(from).await?;
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
}
