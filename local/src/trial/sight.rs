//! Who holds what, by the feed and by the table.

use super::cast::Cast;
use crate::feed::records::{ChannelRecords, SocketRecord};
use anyhow::Result;
use leasehold::model::{Connection, Session, SessionId};
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
pub(super) struct OpenSocket {
    connection: String,
    /// The feed's number of the socket.
    socket: u64,
}

impl Cast {
    /// Sockets that are open now, as the feed sees them.
    pub(super) fn open_sockets(&self) -> Vec<OpenSocket> {
        let mut open = Vec::new();
        for channel in self.feed.log().records().channels {
            for socket in open_of(&channel) {
                open.push(OpenSocket { connection: channel.id.to_string(), socket: socket.id });
            }
        }
        open
    }

    /// Which of the sockets that were open `before` have ended since `at_ms`: those of the worker that was ended.
    pub(super) fn ended_since(&self, before: Vec<OpenSocket>, at_ms: u64) -> Hit {
        let mut hit = Hit::default();
        let log = self.feed.log();
        for open in before {
            let records = log.channel_records(&open.connection);
            let ended = |socket: &SocketRecord| {
                socket.id == open.socket && socket.closed_at_ms.is_some_and(|end_ms| end_ms >= at_ms)
            };
            if records.is_some_and(|records| records.sockets.iter().any(ended)) {
                hit.connections.insert(open.connection);
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
        let connections = self.owned_by(&self.sessions_of(number).await?).await?;
        let mut sockets = HashSet::new();
        for open in self.open_sockets() {
            if connections.contains(&open.connection) {
                sockets.insert(open.socket);
            }
        }
        Ok(Hit { connections, sockets })
    }

    /// How many of `connections` have a socket that was opened after `at_ms`, and a message stored after that.
    pub(super) fn back(&self, connections: &HashSet<String>, at_ms: u64) -> usize {
        let log = self.feed.log();
        let is_back = |id: &&String| {
            let Some(records) = log.channel_records(id) else { return false };
            let fresh = open_of(&records).find(|socket| socket.opened_at_ms > at_ms).map(|socket| socket.opened_at_ms);
            fresh.is_some_and(|opened_ms| self.stored.last_ms(id) > opened_ms)
        };
        connections.iter().filter(is_back).count()
    }

    /// The sessions that this worker has had.
    ///
    /// # Errors
    /// When the table cannot be read, or the worker does not run.
    pub async fn sessions_of(&self, number: u32) -> Result<Vec<Session>> {
        let task_arn = self.worker(number)?.task_arn.as_str();
        let mut sessions = self.system.store().sessions().await?;
        sessions.retain(|session| session.task_arn.as_deref() == Some(task_arn));
        Ok(sessions)
    }

    /// The sessions that are ACTIVE.
    ///
    /// # Errors
    /// When the table cannot be read.
    pub async fn active_sessions(&self) -> Result<Vec<Session>> {
        let mut sessions = self.system.store().sessions().await?;
        sessions.retain(|session| !session.state.is_over());
        Ok(sessions)
    }

    /// The connections whose row names one of these sessions.
    pub(super) async fn owned_by(&self, sessions: &[Session]) -> Result<HashSet<String>> {
        let ids: HashSet<&SessionId> = sessions.iter().map(|session| &session.id).collect();
        let mut owned = HashSet::new();
        for (connection, owner) in self.owners().await? {
            if ids.contains(&owner) {
                owned.insert(connection);
            }
        }
        Ok(owned)
    }

    /// Each owned connection with its owner.
    async fn owners(&self) -> Result<Vec<(String, SessionId)>> {
        let mut owners = Vec::new();
        let mut from: Option<String> = None;
        loop {
            let page = self.system.store().scan_connections(from.as_deref()).await?;
            for item in &page.items {
                let row = Connection::from_item(item)?;
                if let Some(owner) = row.lease.owner {
                    owners.push((row.id.to_string(), owner));
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
