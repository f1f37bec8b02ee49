//! The upstreams: each numbers its messages from 1, keeps them, and sends again what follows the resume point.

use crate::invariants::sockets;
use crate::ledger::Ledger;
use crate::ledger::notes::SocketNote;
use crate::memory_socket::Sender;
use leasehold_worker::connector::Frame;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use url::Url;

/// Where messages carry their number.
pub const POINTER: &str = "/seq";

/// Whoever sends it gets what was published before.
pub const REPLAY_HEADER: &str = "x-replay";

/// The URL of a connection's upstream: another one for each generation.
#[must_use]
pub fn url(connection: &str, generation: u64) -> Url {
    let text = format!("wss://feed.example/{connection}/{generation}");
    Url::parse(&text).expect("a name and a number make a URL")
}

/// Connection and generation of a URL of ours.
#[must_use]
pub fn read_url(url: &Url) -> Option<(String, u64)> {
    let (connection, generation) = url.path().trim_start_matches('/').split_once('/')?;
    Some((connection.to_owned(), generation.parse().ok()?))
}

struct OpenSocket {
    feed: (String, u64),
    sender: Sender,
}

#[derive(Default)]
struct State {
    numbers: u64,
    open: BTreeMap<u64, OpenSocket>,
    /// Texts of each feed, from number 1 on.
    published: BTreeMap<(String, u64), Vec<String>>,
    refuses_until_ms: BTreeMap<String, u64>,
}

/// All upstreams. Clones share them.
#[derive(Clone)]
pub struct Feeds {
    ledger: Ledger,
    state: Arc<Mutex<State>>,
}

impl Feeds {
    /// All are friendly.
    #[must_use]
    pub fn new(ledger: Ledger) -> Self {
        Self { ledger, state: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes the next message of a connection's feed.
    pub fn publish(&self, connection: &str) {
        let (generation, now_ms) = {
            let mut book = self.ledger.open();
            (book.row(connection).wish.generation, book.now_ms)
        };
        let feed = (connection.to_owned(), generation);
        let mut state = self.state();
        let texts = state.published.entry(feed.clone()).or_default();
        let number = texts.len() as u64 + 1;
        let text = format!("{{\"seq\":{number},\"url\":{generation}}}");
        texts.push(text.clone());
        for socket in state.open.values().filter(|socket| socket.feed == feed) {
            // A socket whose reader is gone is about to be noted as such.
            let _ = socket.sender.send(Ok(Frame::Text(text.clone())));
        }
        drop(state);
        self.ledger.open().feeds.entry(feed).or_default().published_ms.push(now_ms);
    }

    /// Ends every open socket of a connection.
    pub fn close(&self, connection: &str, code: Option<u16>) {
        self.note(connection, &format!("closes with {code:?}"));
        for socket in self.state().open.values().filter(|socket| socket.feed.0 == connection) {
            let _ = socket.sender.send(Ok(Frame::Close(code)));
        }
    }

    /// Refuses attempts until then.
    pub fn refuse(&self, connection: &str, until_ms: u64) {
        self.note(connection, &format!("refuses until {until_ms} ms"));
        self.state().refuses_until_ms.insert(connection.to_owned(), until_ms);
    }

    /// All are friendly again.
    pub fn calm(&self) {
        self.state().refuses_until_ms.clear();
    }

    fn note(&self, connection: &str, what: &str) {
        let mut book = self.ledger.open();
        let now_ms = book.now_ms;
        book.row(connection).upstream_trouble_ms = Some(now_ms);
        book.write("upstream", connection, what.to_owned());
    }

    /// Whether an attempt is refused now.
    pub(crate) fn refuses(&self, connection: &str) -> bool {
        let now_ms = self.ledger.open().now_ms;
        self.state().refuses_until_ms.get(connection).is_some_and(|until_ms| *until_ms > now_ms)
    }

    /// Opens a socket. `replay_after`: the messages after this number come first.
    pub(crate) fn open(&self, process: &str, feed: (String, u64), replay_after: Option<u64>, sender: Sender) -> u64 {
        let mut state = self.state();
        state.numbers += 1;
        let number = state.numbers;
        if let Some(after) = replay_after {
            let after = usize::try_from(after).unwrap_or(usize::MAX);
            for text in state.published.get(&feed).into_iter().flatten().skip(after) {
                let _ = sender.send(Ok(Frame::Text(text.clone())));
            }
        }
        let (connection, generation) = feed.clone();
        state.open.insert(number, OpenSocket { feed, sender });
        drop(state);
        let mut book = self.ledger.open();
        let opened_ms = book.now_ms;
        let socket = SocketNote { connection, generation, process: process.to_owned(), opened_ms };
        sockets::opened(&mut book, number, socket);
        number
    }

    /// A socket is gone.
    pub(crate) fn gone(&self, number: u64) {
        self.state().open.remove(&number);
        sockets::gone(&mut self.ledger.open(), number);
    }
}
