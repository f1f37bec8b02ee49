//! The socket of one connection: opens it, reads it, opens it again, until it is told to stop.
//!
//! At most one attempt is in flight. Every end of an attempt or a socket leads to a decision of [`leasehold::decide::outcome`].

use crate::connector::{Frame, Open, Socket};
use crate::context::Context;
use crate::counters::Counted;
use crate::writer::{Sink, Stopped};
use futures_util::{SinkExt, StreamExt};
use leasehold::aws::StoreError;
use leasehold::aws::connections::Observed;
use leasehold::aws::messages::Body;
use leasehold::decide::outcome::{End, Outcome, outcome, reason};
use leasehold::decide::renewal::Trust;
use leasehold::decide::series::{Owner, Placed, Position};
use leasehold::model::spec::LAST_SEQ_PLACEHOLDER;
use leasehold::model::{ConnectionId, Feed, MessageKey, ObservedState, Spec};
use rand::rngs::StdRng;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Drives one connection's socket.
pub struct Driver {
    /// The session.
    pub context: Arc<Context>,
    /// The connection.
    pub id: ConnectionId,
    /// What to open.
    pub spec: Arc<Spec>,
    /// The epoch under which it is held.
    pub epoch: u64,
    /// Where to go on.
    pub position: Position,
    /// No message with a new number has come over the current socket: what has none may be a replay, or may be new.
    pub fresh: bool,
    /// Where messages go.
    pub sink: Sink,
    /// Where the state is told.
    pub observed: watch::Sender<Observed>,
    /// Turns true when the socket is to be closed.
    pub stop: watch::Receiver<bool>,
    /// Jitter.
    pub rng: StdRng,
}

/// Why an open socket, or the wait for one, ended.
enum Ended {
    /// The upstream or the network did it.
    By(End),
    /// We were told to stop, or lost the lease.
    Told,
}

impl From<End> for Ended {
    fn from(end: End) -> Self {
        Self::By(end)
    }
}

impl From<Stopped> for Ended {
    fn from(_: Stopped) -> Self {
        Self::Told
    }
}

impl Driver {
    /// Runs until told to stop, or without a lease. The sink is dropped at the end, so that its writer ends when all is stored.
    pub async fn run(mut self) {
        let mut attempts = 0;
        loop {
            if self.context.guard.is_valid() && !*self.stop.borrow() {
                self.tell(ObservedState::Connecting, None);
                let (ended, open_ms) = self.attempt().await;
                let Ended::By(end) = ended else { break };
                attempts = self.context.settings().backoff.attempts_after(attempts, open_ms);
                if !self.wait_after(&end, attempts).await {
                    break;
                }
            } else if !self.lease_comes_back().await {
                break;
            }
        }
    }

    fn tell(&self, state: ObservedState, reason: Option<String>) {
        let since_ms = self.context.stamp_ms();
        self.observed.send_replace(Observed { state, reason, since_ms });
    }

    /// Under `hold` the lease can become valid again; true if it did.
    async fn lease_comes_back(&mut self) -> bool {
        let context = self.context.clone();
        let valid = tokio::select! {
            biased;
            () = told(&context, &mut self.stop) => false,
            () = context.guard.valid() => true,
        };
        valid && !*self.stop.borrow()
    }

    /// Opens the socket and reads it to its end. Returns for how long it was open.
    async fn attempt(&mut self) -> (Ended, u64) {
        self.context.count("connect_attempts");
        let mut socket = match self.open().await {
            Ok(socket) => socket,
            Err(ended) => return (ended, 0),
        };
        let context = self.context.clone();
        let _open = Counted::new(&context.parts.gauges.connected);
        let opened_ms = context.parts.clock.mono_ms();
        context.count("connects");
        let ended = match self.read(&mut socket).await {
            Ok(never) => match never {},
            Err(ended) => ended,
        };
        context.count("disconnects");
        if matches!(ended, Ended::Told) && !context.guard.is_valid() {
            // Without the lease the socket is dropped as it is: a closing handshake would take time that we do not have.
            context.count("dropped_without_lease");
        } else {
            self.close(socket).await;
        }
        (ended, context.parts.clock.mono_ms().saturating_sub(opened_ms))
    }

    async fn open(&mut self) -> Result<Socket, Ended> {
        let context = self.context.clone();
        let settings = context.settings();
        let open = self.request();
        let deadline = Duration::from_millis(settings.handshake_timeout_ms);
        let attempt = timeout(deadline, context.parts.connector.open(open));
        let opened = tokio::select! {
            biased;
            () = told(&context, &mut self.stop) => return Err(Ended::Told),
            opened = attempt => opened,
        };
        match opened {
            // Under `hold` a handshake goes on past the deadline: nothing may be sent then, and nothing is opened.
            Ok(socket) if context.guard.is_valid() => Ok(socket?),
            Ok(_) => Err(End::Failed("the lease ran out during the handshake".into()).into()),
            Err(_) => Err(End::Failed(format!("no handshake within {} ms", settings.handshake_timeout_ms)).into()),
        }
    }

    /// The request, with the resume point where the spec's template wants it.
    fn request(&self) -> Open {
        let mut url = self.spec.ws_url.clone();
        let mut headers = self.spec.headers.clone();
        if let Some(last_seq) = self.position.last_seq() {
            if let Some(template) = &self.spec.resume.query {
                let added = fill(template, last_seq);
                let query = url.query().filter(|query| !query.is_empty());
                let query = query.map_or_else(|| added.clone(), |query| format!("{query}&{added}"));
                url.set_query(Some(&query));
            }
            if let Some((name, template)) = &self.spec.resume.header {
                headers.push((name.clone(), fill(template, last_seq)));
            }
        }
        Open {
            url,
            headers,
            subprotocols: self.spec.subprotocols.clone(),
            max_message_bytes: usize::try_from(self.context.settings().max_message_bytes).unwrap_or(usize::MAX),
        }
    }

    /// Greets, then reads until something ends it.
    async fn read(&mut self, socket: &mut Socket) -> Result<std::convert::Infallible, Ended> {
        let context = self.context.clone();
        let ping_every = Duration::from_millis(context.settings().ping_interval_ms);
        let pong_within = Duration::from_millis(context.settings().pong_timeout_ms);
        self.greet(socket).await?;
        self.position.socket_opened();
        self.fresh = true;
        self.tell(ObservedState::Connected, None);
        let mut deadline = Instant::now() + ping_every;
        let mut pinged = false;
        loop {
            tokio::select! {
                // The end first: a socket that is never silent must not hide it.
                biased;
                () = told(&context, &mut self.stop) => return Err(Ended::Told),
                frame = socket.next() => {
                    // A process that was suspended reads on as if nothing had happened: the lease is looked at before each frame.
                    if !matches!(context.guard.trust(), Trust::Valid | Trust::Holding) {
                        return Err(Ended::Told);
                    }
                    let frame = frame.unwrap_or(Ok(Frame::Close(None)))?;
                    (deadline, pinged) = (Instant::now() + ping_every, false);
                    self.on_frame(frame).await?;
                }
                () = sleep_until(deadline) => {
                    if pinged {
                        return Err(End::Failed(format!("no pong within {} ms", pong_within.as_millis())).into());
                    }
                    send(socket, Frame::Ping, pong_within).await?;
                    (deadline, pinged) = (Instant::now() + pong_within, true);
                }
            }
        }
    }

    async fn greet(&mut self, socket: &mut Socket) -> Result<(), Ended> {
        let within = Duration::from_millis(self.context.settings().handshake_timeout_ms);
        let mut messages = self.spec.on_open.clone();
        if let (Some(template), Some(last_seq)) = (&self.spec.resume.on_open, self.position.last_seq()) {
            messages.push(fill(template, last_seq));
        }
        for message in messages {
            send(socket, Frame::Text(message), within).await?;
        }
        Ok(())
    }

    async fn on_frame(&mut self, frame: Frame) -> Result<(), Ended> {
        let body = match frame {
            Frame::Text(text) => Body::Text(text),
            Frame::Binary(bytes) => Body::Binary(bytes),
            Frame::Ping | Frame::Pong => return Ok(()),
            Frame::Close(code) => return Err(End::Closed(code).into()),
        };
        self.context.count("messages_received");
        let number = self.number(&body);
        let context = self.context.clone();
        let mut stop = self.stop.clone();
        // While the sink is full nothing is read, but stop and the loss of the lease still get through.
        tokio::select! {
            biased;
            () = told(&context, &mut stop) => Err(Ended::Told),
            placed = self.place(number, body) => placed,
        }
    }

    /// The message's own number, where the spec says that it has one.
    fn number(&self, body: &Body) -> Option<u64> {
        let pointer = self.spec.sequence_pointer.as_deref()?;
        let bytes = match body {
            Body::Text(text) => text.as_bytes(),
            Body::Binary(bytes) => bytes,
        };
        let value: Option<serde_json::Value> = serde_json::from_slice(bytes).ok();
        let number = value.as_ref().and_then(|value| value.pointer(pointer)).and_then(|found| match found {
            serde_json::Value::String(text) => text.parse().ok(),
            other => other.as_u64(),
        });
        if number.is_none() {
            self.context.count("messages_without_number");
            tracing::debug!(
                event = "message_without_number", connection = %self.id, pointer, json = value.is_some(),
                "a message carries no number where sequence_pointer says: it is stored behind the one before it"
            );
        }
        number
    }

    async fn place(&mut self, number: Option<u64>, body: Body) -> Result<(), Ended> {
        let spec = self.spec.clone();
        let session = self.context.session.clone();
        let feed = Feed { ws_url: &spec.ws_url, sequence_pointer: spec.sequence_pointer.as_deref() };
        let owner = Owner { epoch: self.epoch, session: &session, feed };
        let key = match self.position.place(&owner, number) {
            // Before the first new number a message without one may be a replay of one that is stored behind the same number.
            Placed::Store(key) if key.sub > 0 && self.fresh && self.is_stored(&key, &body).await? => {
                self.context.count("messages_repeated");
                return Ok(());
            }
            Placed::Store(key) => {
                self.fresh = false;
                key
            }
            Placed::Ask(key) => {
                if self.is_stored(&key, &body).await? {
                    self.context.count("messages_repeated");
                    self.position.repeat(key.seq);
                    return Ok(());
                }
                let last_seq = self.position.last_seq();
                let (placed, reset) = self.position.not_stored(&owner, key.seq);
                if reset {
                    self.context.count("sequence_resets");
                    tracing::warn!(
                        event = "sequence_reset", connection = %self.id, seq = key.seq, last_seq,
                        "the upstream's numbers began anew: a new series"
                    );
                }
                match placed {
                    Placed::Store(key) | Placed::Ask(key) => key,
                }
            }
        };
        Ok(self.sink.put(key, body).await?)
    }

    async fn wait_to_read_again(&mut self, error: &StoreError, attempt: &mut u32) {
        tracing::debug!(event = "message_read_retry", connection = %self.id, %error);
        let wait_ms = self.context.settings().backoff.wait_ms(*attempt, &mut self.rng);
        *attempt = attempt.saturating_add(1);
        sleep(Duration::from_millis(wait_ms.max(20))).await;
    }

    /// Whether this message is stored already behind its number, or, without one, behind the number before it.
    async fn is_stored(&mut self, key: &MessageKey, body: &Body) -> Result<bool, Ended> {
        self.sink.flushed().await?;
        let mut attempt = 0;
        loop {
            match self.context.parts.store.has_message(&self.id, key, body).await {
                Ok(stored) => return Ok(stored),
                Err(error) => self.wait_to_read_again(&error, &mut attempt).await,
            }
        }
    }

    /// Closes politely, within the time that shutdown allows.
    async fn close(&self, mut socket: Socket) {
        let within = Duration::from_millis(self.context.settings().shutdown_ms);
        let closing = async {
            // After the peer's own close this fails, and reading on sends the answer to it.
            let _ = socket.send(Frame::Close(Some(1000))).await;
            // What arrives after our close frame is not handled: a resume delivers it to the next socket.
            while let Some(Ok(frame)) = socket.next().await {
                if matches!(frame, Frame::Close(_)) {
                    return;
                }
            }
        };
        if timeout(within, closing).await.is_err() {
            self.context.count("closes_timed_out");
        }
    }

    /// What follows an end. False: nothing more until the spec changes, or we were told to stop.
    async fn wait_after(&mut self, end: &End, attempts: u32) -> bool {
        let backoff = self.context.settings().backoff;
        let jitter_ms = backoff.wait_ms(attempts.saturating_sub(1), &mut self.rng);
        let why = reason(end);
        let wait_ms = match outcome(end) {
            Outcome::Retry => jitter_ms,
            Outcome::RetryAfter(wait_ms) => wait_ms.saturating_add(jitter_ms),
            Outcome::Park => {
                self.context.count("parked");
                tracing::warn!(event = "parked", connection = %self.id, reason = why, "no further attempt until the spec changes");
                self.tell(ObservedState::Parked, Some(why));
                let context = self.context.clone();
                told(&context, &mut self.stop).await;
                return false;
            }
        };
        tracing::info!(event = "backoff", connection = %self.id, reason = why, attempts, wait_ms, "trying again later");
        self.tell(ObservedState::Backoff, Some(why));
        let context = self.context.clone();
        tokio::select! {
            biased;
            () = told(&context, &mut self.stop) => false,
            () = sleep(Duration::from_millis(wait_ms)) => true,
        }
    }
}

async fn send(socket: &mut Socket, frame: Frame, within: Duration) -> Result<(), End> {
    match timeout(within, socket.send(frame)).await {
        Ok(sent) => sent,
        Err(_) => Err(End::Failed(format!("the peer took nothing for {} ms", within.as_millis()))),
    }
}

fn fill(template: &str, last_seq: u64) -> String {
    template.replace(LAST_SEQ_PLACEHOLDER, &last_seq.to_string())
}

/// Waits until the socket must go: told to stop, or the lease is lost.
async fn told(context: &Context, stop: &mut watch::Receiver<bool>) {
    tokio::select! {
        biased;
        () = context.guard.dropped() => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
}
