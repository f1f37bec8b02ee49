//! The open sockets: counted against limits, and reachable for orders.

use super::behaviour::{DropHow, Scope};
use super::records::SocketId;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};
use tokio_tungstenite::tungstenite::Message;

/// Raw messages that may wait for one socket.
const RAW_QUEUE: usize = 16;

/// An order to end a socket.
#[derive(Debug)]
pub(super) struct EndOrder {
    pub(super) how: DropHow,
    pub(super) stopping: bool,
}

/// The socket's end of its orders.
#[derive(Debug)]
pub(super) struct Orders {
    pub(super) end: oneshot::Receiver<EndOrder>,
    pub(super) raw: mpsc::Receiver<Message>,
}

#[derive(Debug)]
struct Entry {
    channel: Arc<str>,
    end: Option<oneshot::Sender<EndOrder>>,
    raw: mpsc::Sender<Message>,
}

#[derive(Debug, Default)]
pub(super) struct Registry {
    sockets: BTreeMap<SocketId, Entry>,
    per_channel: HashMap<Arc<str>, usize>,
    last: SocketId,
}

impl Registry {
    /// A place for one more socket, unless the feed or the channel is full.
    pub(super) fn open(
        &mut self,
        channel: &Arc<str>,
        feed_limit: usize,
        own_limit: usize,
    ) -> Option<(SocketId, Orders)> {
        if self.sockets.len() >= feed_limit || self.open_on(channel) >= own_limit {
            return None;
        }
        let (end, end_orders) = oneshot::channel();
        let (raw, raw_orders) = mpsc::channel(RAW_QUEUE);
        self.last += 1;
        self.sockets.insert(self.last, Entry { channel: Arc::clone(channel), end: Some(end), raw });
        *self.per_channel.entry(Arc::clone(channel)).or_default() += 1;
        Some((self.last, Orders { end: end_orders, raw: raw_orders }))
    }

    pub(super) fn close(&mut self, socket: SocketId) {
        let Some(entry) = self.sockets.remove(&socket) else {
            return;
        };
        if let Some(count) = self.per_channel.get_mut(&entry.channel) {
            *count -= 1;
            if *count == 0 {
                self.per_channel.remove(&entry.channel);
            }
        }
    }

    pub(super) fn open_sockets(&self) -> usize {
        self.sockets.len()
    }

    pub(super) fn open_on(&self, channel: &str) -> usize {
        self.per_channel.get(channel).copied().unwrap_or(0)
    }

    pub(super) fn open_by_channel(&self) -> BTreeMap<Arc<str>, usize> {
        self.per_channel.iter().map(|(channel, &count)| (Arc::clone(channel), count)).collect()
    }

    /// Orders sockets to end; returns how many were not ending already.
    pub(super) fn end(&mut self, scope: Scope<'_>, how: &DropHow, stopping: bool) -> usize {
        let mut told = 0;
        for entry in self.sockets.values_mut().filter(|entry| within(scope, entry)) {
            if let Some(end) = entry.end.take() {
                told += usize::from(end.send(EndOrder { how: how.clone(), stopping }).is_ok());
            }
        }
        told
    }

    /// Queues a message for sockets; returns how many had room for it.
    pub(super) fn send_raw(&self, scope: Scope<'_>, message: &Message) -> usize {
        let entries = self.sockets.values().filter(|entry| within(scope, entry));
        entries.filter(|entry| entry.raw.try_send(message.clone()).is_ok()).count()
    }
}

fn within(scope: Scope<'_>, entry: &Entry) -> bool {
    match scope {
        Scope::All => true,
        Scope::Channel(id) => &*entry.channel == id,
    }
}
