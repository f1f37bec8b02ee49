//! One channel: it emits while started, keeps what it emitted, and hands it to sockets by position.
//!
//! Sockets pull: each has a position in the channel's kept messages, so that nothing is queued per socket, and replayed
//! and live messages are one sequence.

use super::log::{ChannelLog, lock};
use super::records::{Emitted, Resume};
use super::settings::{ChannelSettings, MAX_PAYLOAD_BYTES};
use leasehold::clock::SharedClock;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_tungstenite::tungstenite::Utf8Bytes;

/// A message as it is kept and sent.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) payload: Arc<str>,
    pub(super) text: Utf8Bytes,
}

/// What a socket at some position does next.
#[derive(Debug)]
pub(super) enum Next {
    /// Send this, then look at the next position.
    Send(Message),
    /// Nothing there yet.
    Wait,
    /// The position is not kept any more.
    Behind,
}

#[derive(Debug)]
pub(super) struct Channel {
    pub(super) id: Arc<str>,
    pub(super) settings: ChannelSettings,
    pub(super) log: Arc<ChannelLog>,
    clock: SharedClock,
    /// When the feed started: phases count from it.
    origin: Instant,
    keep: usize,
    state: Mutex<State>,
    /// The end position, told at each message.
    news: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    /// `None`: nobody has said, so the first client starts the channel.
    started: Option<bool>,
    emitter: Option<AbortHandle>,
    kept: VecDeque<Message>,
    /// Positions count messages since the feed began and never go back: those of the oldest kept, and of the next one.
    first: u64,
    end: u64,
    /// The sequence numbers of the next and of the oldest kept message.
    next_seq: u64,
    first_kept_seq: u64,
    /// How many sequence resets there were.
    resets: u64,
    /// The first number since the last reset.
    series_first_seq: u64,
}

impl Channel {
    pub(super) fn new(
        id: Arc<str>,
        settings: ChannelSettings,
        keep: usize,
        log: Arc<ChannelLog>,
        clock: SharedClock,
        origin: Instant,
    ) -> Self {
        let state = State {
            started: None,
            emitter: None,
            kept: VecDeque::new(),
            first: 0,
            end: 0,
            next_seq: settings.first_seq,
            first_kept_seq: settings.first_seq,
            resets: 0,
            series_first_seq: settings.first_seq,
        };
        let news = watch::Sender::new(0);
        Self { id, settings, log, clock, origin, keep: keep.max(1), state: Mutex::new(state), news }
    }

    /// Starts or stops emission. A channel that goes on keeps its numbering and its phase.
    pub(super) fn set_started(self: &Arc<Self>, started: bool) {
        self.start_or_stop(&mut lock(&self.state), started);
    }

    /// A client connected: starts the channel unless somebody has decided about it.
    pub(super) fn connected(self: &Arc<Self>) {
        let mut state = lock(&self.state);
        if state.started.is_none() {
            self.start_or_stop(&mut state, true);
        }
    }

    fn start_or_stop(self: &Arc<Self>, state: &mut State, started: bool) {
        state.started = Some(started);
        if !started {
            if let Some(emitter) = state.emitter.take() {
                emitter.abort();
            }
        } else if state.emitter.is_none() {
            state.emitter =
                Some(tokio::spawn(emit_while_started(Arc::downgrade(self), self.schedule())).abort_handle());
        }
    }

    fn schedule(&self) -> tokio::time::Interval {
        let interval_ms = self.settings.interval_ms.max(1);
        let elapsed_ms = u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX);
        let first_ms = next_slot_ms(elapsed_ms, phase_ms(&self.id, interval_ms), interval_ms);
        let first = self.origin + Duration::from_millis(first_ms);
        let mut ticks = tokio::time::interval_at(first, Duration::from_millis(interval_ms));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        ticks
    }

    /// Emits the next message now. `scheduled`: only if the channel is still started.
    pub(super) fn emit(&self, scheduled: bool) {
        let mut state = lock(&self.state);
        let while_started = state.started == Some(true);
        if scheduled && !while_started {
            return;
        }
        let seq = state.next_seq;
        let payload: Arc<str> = match state.resets {
            0 => format!("{}-{seq}", self.id).into(),
            resets => format!("{}-r{resets}-{seq}", self.id).into(),
        };
        let text = message_text(&self.id, &self.settings, seq, &payload, self.clock.wall_ms()).into();
        let at_ms = self.clock.mono_ms();
        // Logged under the lock: no socket can write it before it is in the log.
        self.log.emitted(Emitted { seq, payload: Arc::clone(&payload), at_ms, while_started });
        state.kept.push_back(Message { payload, text });
        state.next_seq = seq + 1;
        state.end += 1;
        if state.kept.len() > self.keep {
            state.kept.pop_front();
            state.first += 1;
            state.first_kept_seq += 1;
        }
        self.news.send_replace(state.end);
    }

    /// The numbering begins again at `first_seq`, and what was kept is gone (an upstream that lost its history).
    pub(super) fn reset_sequence(&self, first_seq: u64) {
        let mut state = lock(&self.state);
        state.kept.clear();
        state.first = state.end;
        state.next_seq = first_seq;
        state.first_kept_seq = first_seq;
        state.series_first_seq = first_seq;
        state.resets += 1;
    }

    /// Tells of new messages.
    pub(super) fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// The position of the next message to be emitted.
    pub(super) fn live_position(&self) -> u64 {
        lock(&self.state).end
    }

    /// The position after the message numbered `from_seq`; the live one if that number is still to come.
    pub(super) fn resume_position(&self, from_seq: u64) -> (u64, Resume) {
        let state = lock(&self.state);
        let wanted = from_seq.saturating_add(1);
        let trimmed = wanted < state.first_kept_seq && state.first_kept_seq > state.series_first_seq;
        let ahead = wanted.saturating_sub(state.first_kept_seq);
        let position = state.first.saturating_add(ahead).min(state.end);
        (position, Resume { from_seq, trimmed })
    }

    pub(super) fn next(&self, position: u64) -> Next {
        let state = lock(&self.state);
        let Some(offset) = position.checked_sub(state.first) else {
            return Next::Behind;
        };
        let message = usize::try_from(offset).ok().and_then(|offset| state.kept.get(offset));
        message.map_or(Next::Wait, |message| Next::Send(message.clone()))
    }
}

/// Weak: a feed that is gone is not kept alive by its channels' timers.
async fn emit_while_started(channel: Weak<Channel>, mut ticks: tokio::time::Interval) {
    loop {
        ticks.tick().await;
        let Some(channel) = channel.upgrade() else {
            return;
        };
        channel.emit(true);
    }
}

fn message_text(id: &str, settings: &ChannelSettings, seq: u64, payload: &str, sent_at_ms: u64) -> String {
    let id = serde_json::Value::from(id); // quotes and escapes
    let payload = serde_json::Value::from(payload);
    let mut text = format!("{{\"id\":{id},");
    if settings.numbered {
        text.push_str(&format!("\"seq\":{seq},"));
    }
    text.push_str(&format!("\"payload\":{payload},\"sent_at_ms\":{sent_at_ms}"));
    let around = ",\"pad\":\"\"}".len();
    let missing = settings.payload_bytes.min(MAX_PAYLOAD_BYTES).saturating_sub(text.len() + around);
    if missing > 0 {
        text.push_str(",\"pad\":\"");
        text.extend(std::iter::repeat_n('.', missing));
        text.push('"');
    }
    text.push('}');
    text
}

/// The channel's fixed place within its interval: ids spread evenly, however alike they are (FNV-1a, then the finalizer
/// of splitmix64, since FNV alone leaves the last character in the low bits).
fn phase_ms(id: &str, interval_ms: u64) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in id.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (hash ^ (hash >> 31)) % interval_ms
}

/// The first time after `elapsed_ms` that is `phase_ms` into an interval.
fn next_slot_ms(elapsed_ms: u64, phase_ms: u64, interval_ms: u64) -> u64 {
    if elapsed_ms < phase_ms {
        return phase_ms;
    }
    phase_ms + ((elapsed_ms - phase_ms) / interval_ms + 1) * interval_ms
}

#[cfg(test)]
mod tests {
    use super::super::log::{FeedLog, LogLimits};
    use super::*;
    use crate::clock::VirtualClock;

    fn channel(settings: ChannelSettings, keep: usize) -> Arc<Channel> {
        let id: Arc<str> = Arc::from("a");
        let log = FeedLog::new(LogLimits::default()).channel(&id);
        Arc::new(Channel::new(id, settings, keep, log, Arc::new(VirtualClock::starting_at(5)), Instant::now()))
    }

    fn texts_from(channel: &Channel, mut position: u64) -> Vec<String> {
        let mut texts = Vec::new();
        while let Next::Send(message) = channel.next(position) {
            texts.push(message.payload.to_string());
            position += 1;
        }
        texts
    }

    #[tokio::test(start_paused = true)]
    async fn a_started_channel_emits_one_message_an_interval_and_none_once_stopped() {
        let channel = channel(ChannelSettings::default(), 100);
        channel.set_started(true);
        tokio::time::sleep(Duration::from_millis(5_000)).await;
        assert_eq!(channel.live_position(), 5);
        channel.set_started(false);
        tokio::time::sleep(Duration::from_millis(5_000)).await;
        assert_eq!(channel.live_position(), 5);
        channel.connected();
        tokio::time::sleep(Duration::from_millis(5_000)).await;
        assert_eq!(channel.live_position(), 5, "a client does not start what was stopped");
    }

    #[tokio::test(start_paused = true)]
    async fn resume_starts_after_the_named_message_and_says_when_some_are_gone() {
        let channel = channel(ChannelSettings::default(), 3);
        assert_eq!(channel.resume_position(0), (0, Resume { from_seq: 0, trimmed: false }));
        for _ in 0..5 {
            channel.emit(false);
        }
        let (position, resume) = channel.resume_position(3);
        assert_eq!(texts_from(&channel, position), ["a-4", "a-5"]);
        assert!(!resume.trimmed);
        // 3, 4 and 5 are kept: after 2 nothing is missing, after 1 the 2 is.
        assert!(!channel.resume_position(2).1.trimmed);
        let (position, resume) = channel.resume_position(1);
        assert_eq!(texts_from(&channel, position), ["a-3", "a-4", "a-5"]);
        assert!(resume.trimmed);
        assert_eq!(channel.resume_position(99).0, channel.live_position());
        assert!(matches!(channel.next(1), Next::Behind));
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_sequence_reset_numbers_repeat_and_payload_ids_do_not() {
        let channel = channel(ChannelSettings::default(), 10);
        channel.emit(false);
        channel.reset_sequence(1);
        channel.emit(false);
        let (position, _) = channel.resume_position(0);
        assert_eq!(texts_from(&channel, position), ["a-r1-1"]);
    }

    #[test]
    fn a_message_has_its_number_only_where_the_channel_is_numbered() {
        let mut settings = ChannelSettings::default();
        let text = message_text("a", &settings, 7, "a-7", 99);
        assert_eq!(text, r#"{"id":"a","seq":7,"payload":"a-7","sent_at_ms":99}"#);
        settings.numbered = false;
        settings.payload_bytes = 200;
        let text = message_text("a\"b", &settings, 7, "a\"b-7", 99);
        assert_eq!(text.len(), 200);
        let value: serde_json::Value = serde_json::from_str(&text).expect("is JSON");
        assert_eq!(value["payload"], "a\"b-7");
        assert!(value.get("seq").is_none());
    }

    #[test]
    fn three_hundred_ids_spread_evenly_over_a_second() {
        let mut tenths = [0_u32; 10];
        for number in 0..300 {
            tenths[usize::try_from(phase_ms(&format!("meeting-{number:03}"), 1_000) / 100).expect("small")] += 1;
        }
        assert!(tenths.iter().all(|&count| (15..=45).contains(&count)), "{tenths:?}");
    }

    #[test]
    fn a_channel_that_goes_on_keeps_its_phase() {
        assert_eq!(next_slot_ms(0, 300, 1_000), 300);
        assert_eq!(next_slot_ms(300, 300, 1_000), 1_300);
        assert_eq!(next_slot_ms(5_299, 300, 1_000), 5_300);
    }
}
