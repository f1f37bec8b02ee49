//! Where a new owner goes on, and under which key each message is stored.

use crate::model::message::MAX_UNNUMBERED;
use crate::model::{MessageKey, Progress, Series, SessionId};
use url::Url;

/// Who numbers the messages of a connection, from a fresh acquire on.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    /// The epoch of the acquire.
    pub epoch: u64,
    /// The owner's session.
    pub session: &'a SessionId,
    /// The URL of the spec.
    pub ws_url: &'a Url,
    /// True when messages carry numbers (the spec has a sequence pointer).
    pub numbered: bool,
}

/// The place in a connection's messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    series: Series,
    /// The number of the last message in the series.
    last_seq: Option<u64>,
    /// Messages without a number that this owner has stored.
    unnumbered: u64,
    /// Series that this owner began.
    resets: u32,
    /// Whether a message with a number has come over the current socket.
    seen_on_socket: bool,
}

/// What a message's number says about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placed {
    /// It is new: store it here.
    Store(MessageKey),
    /// The first of a socket, at or before the resume point: a replay that overlaps, or the numbers began anew. Whoever can read tells by
    /// what is stored under this key, and calls [`Position::repeat`] or [`Position::reset`].
    Ask(MessageKey),
}

impl Position {
    /// Where to go on after an acquire: at the newest stored message if it is of the same URL, otherwise at the row's checkpoint, otherwise
    /// with a new series. An upstream without numbers always begins a series.
    #[must_use]
    pub fn resume(owner: &Owner<'_>, row: &Progress, newest: Option<&MessageKey>) -> Self {
        if owner.numbered {
            if let Some(key) = newest.filter(|key| key.series.is_of(owner.ws_url)) {
                let checkpoint = row.last_seq.filter(|_| row.series.as_deref() == Some(key.series.as_str()));
                return Self::at(key.series.clone(), Some(key.seq.max(checkpoint.unwrap_or(0))));
            }
            if newest.is_none()
                && let Some(name) = &row.series
                && Series::from_stored(name).is_of(owner.ws_url)
            {
                return Self::at(Series::from_stored(name), row.last_seq);
            }
        }
        Self::at(Series::new(owner.epoch, 0, owner.session, owner.ws_url), None)
    }

    fn at(series: Series, last_seq: Option<u64>) -> Self {
        Self { series, last_seq, unnumbered: 0, resets: 0, seen_on_socket: false }
    }

    /// The series that messages go to.
    #[must_use]
    pub fn series(&self) -> &Series {
        &self.series
    }

    /// The number of the last message that was placed.
    #[must_use]
    pub fn last_seq(&self) -> Option<u64> {
        self.last_seq
    }

    /// To be called when a new socket opens: it may repeat what came before.
    pub fn socket_opened(&mut self) {
        self.seen_on_socket = false;
    }

    /// Places a message. `number` is what the upstream says, `None` where it says nothing.
    pub fn place(&mut self, owner: &Owner<'_>, number: Option<u64>) -> Placed {
        match number {
            None if owner.numbered => self.unnumbered(owner),
            None => self.advance(self.last_seq.map_or(1, |last| last.saturating_add(1))),
            Some(seq) => match self.last_seq {
                Some(last) if seq < last && self.seen_on_socket => {
                    self.begin(owner);
                    self.advance(seq)
                }
                Some(last) if seq <= last && !self.seen_on_socket => Placed::Ask(self.key(seq)),
                Some(last) if seq == last => self.unnumbered(owner),
                _ => self.advance(seq),
            },
        }
    }

    /// The answer to [`Placed::Ask`]: the same message is stored already. Further ones are expected up to the resume point.
    pub fn repeat(&mut self, seq: u64) {
        if self.last_seq == Some(seq) {
            self.seen_on_socket = true;
        }
    }

    /// The other answer to [`Placed::Ask`]: another message is stored there, or none. The numbers began anew.
    pub fn reset(&mut self, owner: &Owner<'_>, seq: u64) -> Placed {
        self.begin(owner);
        self.advance(seq)
    }

    fn begin(&mut self, owner: &Owner<'_>) {
        self.resets = self.resets.saturating_add(1);
        self.series = Series::new(owner.epoch, self.resets, owner.session, owner.ws_url);
        self.last_seq = None;
    }

    fn advance(&mut self, seq: u64) -> Placed {
        self.last_seq = Some(seq);
        self.seen_on_socket = true;
        Placed::Store(self.key(seq))
    }

    /// Behind the last number, under a key that no other owner and no other message has. A replay may store it twice: without a number
    /// nobody can tell that it is the same.
    fn unnumbered(&mut self, owner: &Owner<'_>) -> Placed {
        self.unnumbered += 1;
        if self.unnumbered >= MAX_UNNUMBERED {
            self.begin(owner);
            self.unnumbered = 1;
        }
        let seq = self.last_seq.unwrap_or(0);
        Placed::Store(MessageKey::unnumbered(self.series.clone(), seq, owner.epoch, self.unnumbered))
    }

    fn key(&self, seq: u64) -> MessageKey {
        MessageKey { series: self.series.clone(), seq, sub: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct World {
        session: SessionId,
        url: Url,
    }

    impl World {
        fn new() -> Self {
            Self {
                session: SessionId::new("0192aaaa-0000-7000-8000-abcdefabcdef"),
                url: Url::parse("ws://a/").unwrap(),
            }
        }

        fn owner(&self, epoch: u64, numbered: bool) -> Owner<'_> {
            Owner { epoch, session: &self.session, ws_url: &self.url, numbered }
        }
    }

    fn stored(placed: Placed) -> (u64, u64) {
        match placed {
            Placed::Store(key) => (key.seq, key.sub),
            Placed::Ask(key) => panic!("asked about {key:?}"),
        }
    }

    #[test]
    fn a_new_owner_goes_on_at_the_newest_stored_message_even_if_the_checkpoint_is_older() {
        let world = World::new();
        let series = Series::new(5, 0, &world.session, &world.url);
        let newest = MessageKey { series: series.clone(), seq: 90, sub: 0 };
        let row = Progress { last_seq: Some(40), series: Some(series.to_string()) };
        let position = Position::resume(&world.owner(9, true), &row, Some(&newest));
        assert_eq!((position.last_seq(), position.series()), (Some(90), &series));
    }

    #[test]
    fn a_row_whose_url_changed_does_not_resume_in_the_old_feed() {
        let world = World::new();
        let old = Url::parse("ws://other/").unwrap();
        let newest = MessageKey { series: Series::new(5, 0, &world.session, &old), seq: 90, sub: 0 };
        let position = Position::resume(&world.owner(9, true), &Progress::default(), Some(&newest));
        assert_eq!(position.last_seq(), None);
        assert!(position.series() > &newest.series);
    }

    #[test]
    fn an_upstream_without_numbers_counts_from_one_in_a_series_of_its_owner() {
        let world = World::new();
        let owner = world.owner(9, false);
        let mut position = Position::resume(&owner, &Progress::default(), None);
        assert_eq!(stored(position.place(&owner, None)), (1, 0));
        position.socket_opened();
        assert_eq!(stored(position.place(&owner, None)), (2, 0), "a reconnect of the same owner goes on counting");
    }

    #[test]
    fn messages_without_a_number_follow_the_last_number_and_never_meet_each_other_s_keys() {
        let world = World::new();
        let mut keys = std::collections::BTreeSet::new();
        let newest = MessageKey { series: Series::new(5, 0, &world.session, &world.url), seq: 7, sub: 0 };
        for epoch in [9, 10] {
            let owner = world.owner(epoch, true);
            let mut position = Position::resume(&owner, &Progress::default(), Some(&newest));
            for _socket in 0..2 {
                position.socket_opened();
                let Placed::Store(key) = position.place(&owner, None) else { panic!() };
                assert_eq!(key.seq, 7);
                assert!(key > newest, "it sorts behind the message that it follows");
                assert!(keys.insert(key), "a key of its own");
            }
        }
        let next = MessageKey { seq: 8, ..newest };
        assert!(keys.iter().all(|key| *key < next), "and before the next number");
    }

    #[test]
    fn numbers_that_fall_on_one_socket_begin_a_new_series() {
        let world = World::new();
        let owner = world.owner(9, true);
        let mut position = Position::resume(&owner, &Progress::default(), None);
        position.place(&owner, Some(4_118_596_218));
        let before = position.series().clone();
        assert_eq!(stored(position.place(&owner, Some(1))), (1, 0));
        assert!(position.series() > &before);
    }

    #[test]
    fn an_overlapping_replay_is_recognised_message_by_message_up_to_the_resume_point() {
        let world = World::new();
        let owner = world.owner(9, true);
        let mut position = Position::resume(&owner, &Progress::default(), None);
        for seq in [1, 2, 3] {
            position.place(&owner, Some(seq));
        }
        position.socket_opened();
        for seq in [2, 3] {
            assert!(matches!(position.place(&owner, Some(seq)), Placed::Ask(_)));
            position.repeat(seq);
        }
        assert_eq!(stored(position.place(&owner, Some(4))), (4, 0));
    }

    #[test]
    fn a_number_that_holds_another_message_begins_a_new_series() {
        let world = World::new();
        let owner = world.owner(9, true);
        let mut position = Position::resume(&owner, &Progress::default(), None);
        position.place(&owner, Some(500));
        position.socket_opened();
        let Placed::Ask(key) = position.place(&owner, Some(1)) else { panic!() };
        let before = key.series.clone();
        assert_eq!(stored(position.reset(&owner, 1)), (1, 0));
        assert!(position.series() > &before);
    }
}
