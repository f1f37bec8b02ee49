//! How workers reach upstreams: the connector of one process, and its sockets.

use crate::memory_socket::{Peer, socket};
use crate::workload::feeds::{Feeds, REPLAY_HEADER, read_url};
use futures_util::future::BoxFuture;
use leasehold::decide::outcome::End;
use leasehold_worker::connector::{Connector, Frame, Open, Socket};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::sleep;

/// Opens the sockets of one process.
pub struct Opener {
    feeds: Feeds,
    process: String,
    rng: Mutex<StdRng>,
}

impl Opener {
    /// The connector of a process. `seed` is for how long handshakes take.
    #[must_use]
    pub fn new(feeds: Feeds, process: &str, seed: u64) -> Arc<Self> {
        Arc::new(Self { feeds, process: process.to_owned(), rng: Mutex::new(StdRng::seed_from_u64(seed)) })
    }

    /// Most handshakes are quick, a few take seconds.
    fn handshake_ms(&self) -> u64 {
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        if rng.random_range(0..20) == 0 { rng.random_range(500..=4_000) } else { rng.random_range(5..=80) }
    }
}

impl Connector for Opener {
    fn open(&self, open: Open) -> BoxFuture<'static, Result<Socket, End>> {
        let (feeds, process, wait_ms) = (self.feeds.clone(), self.process.clone(), self.handshake_ms());
        Box::pin(async move {
            sleep(Duration::from_millis(wait_ms)).await;
            let Some(feed) = read_url(&open.url) else { return Err(End::Failed("no such upstream".into())) };
            if feeds.refuses(&feed.0) {
                return Err(End::Status { status: 503, retry_after_ms: None });
            }
            let query = open.url.query().unwrap_or_default();
            let resume = query.strip_prefix("from=").and_then(|number| number.parse().ok());
            let replay = open.headers.iter().any(|(name, _)| name == REPLAY_HEADER);
            let replay_after = replay.then(|| resume.unwrap_or(0));
            let (sender, incoming) = mpsc::unbounded_channel();
            let number = feeds.open(&process, feed, replay_after, sender.clone());
            Ok(socket(FeedSocket { feeds, number }, sender, incoming))
        })
    }
}

struct FeedSocket {
    feeds: Feeds,
    number: u64,
}

impl Peer for FeedSocket {
    fn received(&mut self, frame: Frame) -> Option<Frame> {
        match frame {
            Frame::Ping => Some(Frame::Pong),
            Frame::Close(code) => Some(Frame::Close(code)),
            Frame::Text(_) | Frame::Binary(_) | Frame::Pong => None,
        }
    }

    fn gone(&mut self) {
        self.feeds.gone(self.number);
    }
}
