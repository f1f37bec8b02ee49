//! A worker's way to the engine: a TCP proxy on loopback that drops, delays or loses what passes.
//!
//! The engine speaks HTTP/1.1 and has one request of a connection at a time, so an answer is whatever comes back after something was
//! asked. That is all that the proxy knows of HTTP.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::sleep;

/// A worker has a dozen connections; what it leaves behind while nothing passes is closed after that.
const MAX_CONNECTIONS: usize = 256;
const CHUNK_BYTES: usize = 16 * 1024;

/// What becomes of what passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Everything passes.
    Open,
    /// Nothing passes, and nobody is told: packets are dropped. What was sent meanwhile arrives when the way is open again, as with TCP.
    Dropped,
    /// Requests arrive; each answer comes that much later.
    Late(Duration),
    /// Requests arrive and are carried out; of so many answers one is lost, and its connection breaks.
    Lost {
        /// 1: every answer.
        one_of: u32,
    },
}

/// The proxy. It runs until the end of the runtime.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    engine: SocketAddr,
    way: watch::Sender<Way>,
    /// Counts answers, so that one of so many can be lost.
    answers: AtomicU32,
    spoiled: Spoiled,
}

/// What the proxy has done, by what it was told to do.
#[derive(Debug, Default)]
struct Spoiled {
    dropped_requests: AtomicU64,
    late_answers: AtomicU64,
    lost_answers: AtomicU64,
}

impl Proxy {
    /// A proxy in front of the engine at `url`.
    ///
    /// # Errors
    /// When there is no port, or the URL is no address.
    pub async fn start(url: &str) -> anyhow::Result<Self> {
        let engine = url.trim_start_matches("http://").parse()?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let way = watch::Sender::new(Way::Open);
        let shared = Arc::new(Shared { engine, way, answers: AtomicU32::new(0), spoiled: Spoiled::default() });
        tokio::spawn(accept(listener, shared.clone()));
        Ok(Self { address, shared })
    }

    /// What makes a worker go this way to the engine (and directly to the queue).
    pub fn environment(&self) -> [(String, String); 1] {
        [("AWS_ENDPOINT_URL_DYNAMODB".into(), format!("http://{}", self.address))]
    }

    /// Says what becomes of what passes from now on.
    pub fn set(&self, way: Way) {
        self.shared.way.send_replace(way);
    }

    /// How often what this way says was done so far: requests (or connections) that went nowhere, answers that were late, or lost. None
    /// means that nothing was tried.
    pub fn spoiled(&self, way: Way) -> u64 {
        let spoiled = &self.shared.spoiled;
        let count = match way {
            Way::Open => return 0,
            Way::Dropped => &spoiled.dropped_requests,
            Way::Late(_) => &spoiled.late_answers,
            Way::Lost { .. } => &spoiled.lost_answers,
        };
        count.load(Ordering::Relaxed)
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    while let Ok(permit) = room.clone().acquire_owned().await {
        let Ok((client, _)) = listener.accept().await else { continue };
        let shared = shared.clone();
        tokio::spawn(async move {
            // An end of any kind ends both sides: that is all there is to it.
            let _ = pass(client, &shared).await;
            drop(permit);
        });
    }
}

async fn pass(client: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut way = shared.way.subscribe();
    arrive(shared, &mut way).await;
    let engine = TcpStream::connect(shared.engine).await?;
    client.set_nodelay(true)?;
    engine.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_engine, to_engine) = engine.into_split();
    tokio::select! {
        ended = requests(from_client, to_engine, shared, way.clone()) => ended,
        ended = answers(from_engine, to_client, shared, way) => ended,
    }
}

async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: &Shared,
    mut way: watch::Receiver<Way>,
) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let length = from.read(&mut chunk).await?;
        if length == 0 {
            // The end of a stream is no request, and waits like one.
            passable(&mut way).await;
            return Ok(());
        }
        arrive(shared, &mut way).await;
        to.write_all(&chunk[..length]).await?;
    }
}

async fn answers(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: &Shared,
    mut way: watch::Receiver<Way>,
) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let length = from.read(&mut chunk).await?;
        let now = passable(&mut way).await;
        if length == 0 {
            return Ok(());
        }
        match now {
            Way::Late(delay) => {
                shared.spoiled.late_answers.fetch_add(1, Ordering::Relaxed);
                sleep(delay).await;
            }
            Way::Lost { one_of } if shared.answers.fetch_add(1, Ordering::Relaxed).is_multiple_of(one_of) => {
                shared.spoiled.lost_answers.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            Way::Open | Way::Dropped | Way::Lost { .. } => {}
        }
        to.write_all(&chunk[..length]).await?;
    }
}

/// Waits while everything is dropped, and counts what has to.
async fn arrive(shared: &Shared, way: &mut watch::Receiver<Way>) {
    if *way.borrow() == Way::Dropped {
        shared.spoiled.dropped_requests.fetch_add(1, Ordering::Relaxed);
    }
    passable(way).await;
}

/// Waits while everything is dropped. Returns what becomes of what passes now.
async fn passable(way: &mut watch::Receiver<Way>) -> Way {
    // Without a sender the proxy is gone, and the scenario with it.
    let open = way.wait_for(|way| *way != Way::Dropped).await.map(|way| *way);
    open.unwrap_or(Way::Open)
}
