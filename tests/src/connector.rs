//! The upstreams of a test: sockets in memory, opened by real workers, that the test scripts, feeds and reads the log of.

use futures_util::future::BoxFuture;
use leasehold::clock::SharedClock;
use leasehold::decide::outcome::End;
use leasehold_sim::memory_socket::{Peer, Sender, socket};
use leasehold_worker::connector::{Connector, Frame, Open, Socket};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;

/// How an upstream answers an attempt.
#[derive(Clone, Debug)]
pub enum Answer {
    /// With an open socket.
    Accept,
    /// With an open socket that is closed at once with this code.
    AcceptThenClose(u16),
    /// With an open socket, after so many ms.
    AcceptAfter(u64),
    /// With an end.
    Refuse(End),
    /// Never.
    Silence,
}

/// What an upstream does. The defaults are those of a friendly one without numbers.
#[derive(Clone, Debug)]
pub struct Script {
    /// How attempts are answered, one after the other; the last answer goes on.
    pub answers: Vec<Answer>,
    /// Pings are answered.
    pub pongs: bool,
    /// A closing handshake is answered.
    pub closes: bool,
    /// The published messages after the resume point are sent again, and so many before it. `None`: only what is published from now on.
    pub replay: Option<u64>,
}

impl Default for Script {
    fn default() -> Self {
        Self { answers: vec![Answer::Accept], pongs: true, closes: true, replay: None }
    }
}

/// What happened at an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// An attempt began: with this query, and these headers.
    Attempt {
        /// The query of the URL.
        query: String,
        /// The headers.
        headers: Vec<(String, String)>,
    },
    /// An attempt ended without a socket: it was refused, or the worker gave it up.
    GivenUp,
    /// A socket opened.
    Opened,
    /// The worker sent a text.
    Text(String),
    /// The worker sent a ping.
    Pinged,
    /// The worker sent a close frame.
    ClosedByWorker,
    /// The worker let go of the socket.
    Gone,
}

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The attempt, numbered over all upstreams.
    pub number: usize,
    /// The worker.
    pub worker: String,
    /// The path of the URL, without its slash: the upstream's name.
    pub path: String,
    /// When, in ms of the test's monotonic clock.
    pub at_ms: u64,
    /// What.
    pub what: What,
}

/// A socket that is open, and the way in.
struct OpenSocket {
    number: usize,
    path: String,
    sender: Sender,
}

#[derive(Default)]
struct State {
    scripts: HashMap<String, Script>,
    attempts: HashMap<String, usize>,
    numbers: usize,
    open: Vec<OpenSocket>,
    published: HashMap<String, Vec<(u64, String)>>,
    log: Vec<Event>,
}

/// All upstreams of a test. Clones share them.
#[derive(Clone)]
pub struct Upstreams {
    clock: SharedClock,
    state: Arc<Mutex<State>>,
}

impl Upstreams {
    /// None yet: every URL leads to a friendly one.
    #[must_use]
    pub fn new(clock: SharedClock) -> Self {
        Self { clock, state: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What opens the sockets of one worker.
    #[must_use]
    pub fn of_worker(&self, worker: &str) -> Arc<dyn Connector> {
        Arc::new(Opener { upstreams: self.clone(), worker: worker.to_owned() })
    }

    /// Scripts an upstream.
    pub fn script(&self, path: &str, script: Script) {
        self.state().scripts.insert(path.to_owned(), script);
    }

    /// The whole log.
    #[must_use]
    pub fn log(&self) -> Vec<Event> {
        self.state().log.clone()
    }

    /// The log of one upstream, as far as `keep` keeps it.
    #[must_use]
    pub fn events(&self, path: &str, keep: impl Fn(&What) -> bool) -> Vec<Event> {
        self.log().into_iter().filter(|event| event.path == path && keep(&event.what)).collect()
    }

    /// Attempts at an upstream so far.
    #[must_use]
    pub fn attempts(&self, path: &str) -> usize {
        self.events(path, |what| matches!(what, What::Attempt { .. })).len()
    }

    /// Sockets that were opened so far.
    #[must_use]
    pub fn opens(&self, path: &str) -> Vec<Event> {
        self.events(path, |what| *what == What::Opened)
    }

    /// Sockets that are open now.
    #[must_use]
    pub fn open_now(&self, path: &str) -> usize {
        self.state().open.iter().filter(|socket| socket.path == path).count()
    }

    /// The most sockets, and the most attempts and sockets together, that an upstream has had at once.
    #[must_use]
    pub fn most_at_once(&self, path: &str) -> usize {
        let (mut now, mut most) = (0_usize, 0);
        for event in self.events(path, |_| true) {
            match event.what {
                What::Attempt { .. } => now += 1,
                What::GivenUp | What::Gone => now -= 1,
                _ => {}
            }
            most = most.max(now);
        }
        most
    }

    /// Sends a frame over every open socket of an upstream.
    pub fn send(&self, path: &str, frame: &Frame) {
        self.send_or_end(path, &Ok(frame.clone()));
    }

    /// Breaks every open socket of an upstream.
    pub fn end(&self, path: &str, end: &End) {
        self.send_or_end(path, &Err(end.clone()));
    }

    fn send_or_end(&self, path: &str, what: &Result<Frame, End>) {
        for socket in self.state().open.iter().filter(|socket| socket.path == path) {
            // A socket whose reader is gone is about to be logged as such.
            let _ = socket.sender.send(what.clone());
        }
    }

    /// Publishes `{"seq": n}` for each number: sent to who listens, kept for who comes later.
    pub fn publish(&self, path: &str, numbers: impl IntoIterator<Item = u64>) {
        for number in numbers {
            self.publish_text(path, number, &format!("{{\"seq\":{number}}}"));
        }
    }

    /// Publishes a text under a number of the replay.
    pub fn publish_text(&self, path: &str, number: u64, text: &str) {
        self.state().published.entry(path.to_owned()).or_default().push((number, text.to_owned()));
        self.send(path, &Frame::Text(text.to_owned()));
    }

    fn note(&self, of: &Attempt, what: What) {
        let (number, worker, path) = (of.number, of.worker.clone(), of.path.clone());
        let at_ms = self.clock.mono_ms();
        self.state().log.push(Event { number, worker, path, at_ms, what });
    }

    fn replay(&self, path: &str, after: u64, sender: &Sender) {
        let state = self.state();
        for (number, text) in state.published.get(path).into_iter().flatten() {
            if *number > after {
                let _ = sender.send(Ok(Frame::Text(text.clone())));
            }
        }
    }
}

/// Who made an attempt, and where.
#[derive(Clone)]
struct Attempt {
    number: usize,
    worker: String,
    path: String,
}

struct Opener {
    upstreams: Upstreams,
    worker: String,
}

impl Connector for Opener {
    fn open(&self, open: Open) -> BoxFuture<'static, Result<Socket, End>> {
        let upstreams = self.upstreams.clone();
        let path = open.url.path().trim_start_matches('/').to_owned();
        let worker = self.worker.clone();
        Box::pin(async move {
            let (script, answer, number) = upstreams.state().next_attempt(&path);
            let attempt = Attempt { number, worker, path };
            let query = open.url.query().unwrap_or_default().to_owned();
            upstreams.note(&attempt, What::Attempt { query: query.clone(), headers: open.headers.clone() });
            let mut pending = Pending { upstreams: upstreams.clone(), attempt: Some(attempt.clone()) };
            let close_with = match answer {
                Answer::Accept => None,
                Answer::AcceptThenClose(code) => Some(code),
                Answer::AcceptAfter(wait_ms) => {
                    tokio::time::sleep(Duration::from_millis(wait_ms)).await;
                    None
                }
                Answer::Refuse(end) => return Err(end),
                Answer::Silence => std::future::pending().await,
            };
            pending.attempt = None;
            Ok(upstreams.accept(attempt, &script, resume_point(&query, &open.headers), close_with))
        })
    }
}

impl State {
    fn next_attempt(&mut self, path: &str) -> (Script, Answer, usize) {
        let script = self.scripts.get(path).cloned().unwrap_or_default();
        let made = self.attempts.entry(path.to_owned()).or_default();
        let answer = script.answers.get(*made).or(script.answers.last()).cloned().unwrap_or(Answer::Accept);
        *made += 1;
        self.numbers += 1;
        (script, answer, self.numbers)
    }
}

/// The resume point of `?from=N` or of a header `x-from: N`.
fn resume_point(query: &str, headers: &[(String, String)]) -> Option<u64> {
    let in_query = query.split('&').find_map(|part| part.strip_prefix("from="));
    let in_header = headers.iter().find(|(name, _)| name == "x-from").map(|(_, value)| value.as_str());
    in_query.or(in_header)?.parse().ok()
}

impl Upstreams {
    fn accept(&self, attempt: Attempt, script: &Script, resume: Option<u64>, close_with: Option<u16>) -> Socket {
        let (sender, incoming) = mpsc::unbounded_channel();
        self.note(&attempt, What::Opened);
        if let Some(overlap) = script.replay {
            self.replay(&attempt.path, resume.map_or(0, |point| point.saturating_sub(overlap)), &sender);
        }
        if let Some(code) = close_with {
            let _ = sender.send(Ok(Frame::Close(Some(code))));
        }
        let (number, path) = (attempt.number, attempt.path.clone());
        self.state().open.push(OpenSocket { number, path, sender: sender.clone() });
        socket(Scripted { upstreams: self.clone(), attempt, script: script.clone() }, sender, incoming)
    }
}

/// Notes an attempt that the worker gives up, by being dropped.
struct Pending {
    upstreams: Upstreams,
    attempt: Option<Attempt>,
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(attempt) = &self.attempt {
            self.upstreams.note(attempt, What::GivenUp);
        }
    }
}

/// The upstream's end of a socket: it does as its script says, and logs.
struct Scripted {
    upstreams: Upstreams,
    attempt: Attempt,
    script: Script,
}

impl Peer for Scripted {
    fn received(&mut self, frame: Frame) -> Option<Frame> {
        match frame {
            Frame::Ping => {
                self.upstreams.note(&self.attempt, What::Pinged);
                self.script.pongs.then_some(Frame::Pong)
            }
            Frame::Close(code) => {
                self.upstreams.note(&self.attempt, What::ClosedByWorker);
                self.script.closes.then_some(Frame::Close(code))
            }
            Frame::Text(text) => {
                self.upstreams.note(&self.attempt, What::Text(text));
                None
            }
            Frame::Binary(_) | Frame::Pong => None,
        }
    }

    fn gone(&mut self) {
        self.upstreams.state().open.retain(|socket| socket.number != self.attempt.number);
        self.upstreams.note(&self.attempt, What::Gone);
    }
}
