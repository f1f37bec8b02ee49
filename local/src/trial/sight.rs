//! Who holds what, by the feed and by the table.

use super::cast::Cast;
use crate::feed::records::{ChannelRecords, SocketRecord};
use anyhow::Result;
use leasehold::model::{Connection, Session};
use std::collections::HashSet;

/// What something hit: connections, and the feed's numbers of their sockets.
#[derive(Clone, Debug, Default)]
pub struct Hit {
    /// The connections.
    pub connections: HashSet<String>,
    /// The sockets.
    pub sockets: HashSet<u64>,
}

/// A socket that is open, as the feed sees it.
#[derive(Clone, Debug)]
pub struct OpenSocket {
    /// The connection.
    pub connection: String,
    /// The feed's number of the socket.
    pub socket: u64,
}

impl Cast {
    /// Sockets that are open now, as the feed sees them.
    #[must_use]
    pub fn sockets(&self) -> Vec<OpenSocket> {
        let mut open = Vec::new();
        for channel in self.feed.log().records().channels {
            for socket in open_of(&channel) {
                open.push(OpenSocket { connection: channel.id.to_string(), socket: socket.id });
            }
        }
        open
    }

    /// Which of the sockets that were open `before` have ended since `at_ms`: those of the worker that was ended.
    #[must_use]
    pub fn ended_since(&self, before: &[OpenSocket], at_ms: u64) -> Hit {
        let mut hit = Hit::default();
        let log = self.feed.log();
        for open in before {
            let records = log.channel_records(&open.connection);
            let ended = |socket: &SocketRecord| {
                socket.id == open.socket && socket.closed_at_ms.is_some_and(|end_ms| end_ms >= at_ms)
            };
            if records.is_some_and(|records| records.sockets.iter().any(ended)) {
                hit.connections.insert(open.connection.clone());
                hit.sockets.insert(open.socket);
            }
        }
        hit
    }

    /// What this worker holds, by the table: for faults that end no socket at once, where the feed cannot tell.
    ///
    /// # Errors
    /// When the tables cannot be read, or the worker does not run.
    pub async fn held_by(&self, number: u32) -> Result<Hit> {
        let task_arn = self.worker(number)?.task_arn.as_str();
        let sessions = self.system.store().sessions().await?;
        let mine: HashSet<String> = sessions
            .iter()
            .filter(|session| session.task_arn.as_deref() == Some(task_arn))
            .map(|session| session.id.to_string())
            .collect();
        let mut connections = HashSet::new();
        for (id, owner) in self.owners().await? {
            if mine.contains(&owner) {
                connections.insert(id);
            }
        }
        let open = self.sockets();
        let sockets =
            open.iter().filter(|open| connections.contains(&open.connection)).map(|open| open.socket).collect();
        Ok(Hit { connections, sockets })
    }

    /// Whether each of `connections` has a socket that was opened after `at_ms`, and a message stored after that.
    #[must_use]
    pub fn are_back(&self, connections: &HashSet<String>, at_ms: u64) -> bool {
        let log = self.feed.log();
        connections.iter().all(|id| {
            let Some(records) = log.channel_records(id) else { return false };
            let fresh = open_of(&records).find(|socket| socket.opened_at_ms > at_ms).map(|socket| socket.opened_at_ms);
            fresh.is_some_and(|opened_ms| self.stored.last_ms(id) > opened_ms)
        })
    }

    /// The connections whose row names a session that is ACTIVE.
    ///
    /// # Errors
    /// When the tables cannot be read.
    pub async fn owned(&self) -> Result<usize> {
        let sessions = self.system.store().sessions().await?;
        let active: HashSet<String> = sessions
            .iter()
            .filter(|session: &&Session| !session.state.is_over())
            .map(|session| session.id.to_string())
            .collect();
        Ok(self.owners().await?.iter().filter(|(_, owner)| active.contains(owner)).count())
    }

    /// Each owned connection with its owner.
    async fn owners(&self) -> Result<Vec<(String, String)>> {
        let mut owners = Vec::new();
        let mut from: Option<String> = None;
        loop {
            let page = self.system.store().scan_connections(from.as_deref()).await?;
            for item in &page.items {
                let row = Connection::from_item(item)?;
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
}

fn open_of(channel: &ChannelRecords) -> impl Iterator<Item = &SocketRecord> {
    channel.sockets.iter().filter(|socket| socket.closed_at_ms.is_none())
}
