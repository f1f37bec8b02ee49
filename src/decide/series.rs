//! Where a new owner goes on, and under which key each message is stored.

use crate::model::message::MAX_UNNUMBERED;
use crate::model::{Feed, MessageKey, Progress, Series, SessionId};

/// Who numbers the messages of a connection, from a fresh acquire on.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    /// The epoch of the acquire.
    pub epoch: u64,
    /// The owner's session.
    pub session: &'a SessionId,
    /// Whose messages they are.
    pub feed: Feed<'a>,
}

impl Owner<'_> {
    /// True when messages carry numbers.
    fn numbered(&self) -> bool {
        self.feed.sequence_pointer.is_some()
    }
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
    /// Its number is not above the last one: a replay, another message with the same number, or the numbers began anew. Whoever can read
    /// tells by what is stored behind this number, and calls [`Position::repeat`] or [`Position::not_stored`].
    Ask(MessageKey),
}

impl Position {
    /// Where to go on after an acquire: at the newest stored message if it is of the same URL, otherwise at the row's checkpoint, otherwise
    /// with a new series. An upstream without numbers always begins a series.
    #[must_use]
    pub fn resume(owner: &Owner<'_>, row: &Progress, newest: Option<&MessageKey>) -> Self {
        if owner.numbered() {
            if let Some(key) = newest.filter(|key| key.series.is_of(owner.feed)) {
                let checkpoint = row.last_seq.filter(|_| row.series.as_deref() == Some(key.series.as_str()));
                return Self::at(key.series.clone(), key.number().max(checkpoint));
            }
            if newest.is_none()
                && let Some(name) = &row.series
                && Series::from_stored(name).is_of(owner.feed)
            {
                return Self::at(Series::from_stored(name), row.last_seq);
            }
        }
        Self::at(Series::new(owner.epoch, 0, owner.session, owner.feed), None)
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
            None if owner.numbered() => self.unnumbered(owner),
            None => self.advance(self.last_seq.map_or(1, |last| last.saturating_add(1))),
            Some(seq) if self.last_seq.is_some_and(|last| seq <= last) => Placed::Ask(self.key(seq)),
            Some(seq) => self.advance(seq),
        }
    }

    /// The answer to [`Placed::Ask`]: the same message is stored already. Further ones are expected up to the resume point.
    pub fn repeat(&mut self, seq: u64) {
        if self.last_seq == Some(seq) {
            self.seen_on_socket = true;
        }
    }

    /// The other answer to [`Placed::Ask`]: no such message is stored there. After the last number has come over this socket, it is one more
    /// with that number; otherwise the numbers began anew. Says whether they did.
    pub fn not_stored(&mut self, owner: &Owner<'_>, seq: u64) -> (Placed, bool) {
        if self.last_seq == Some(seq) && self.seen_on_socket {
            return (self.unnumbered(owner), false);
        }
        self.begin(owner);
        (self.advance(seq), true)
    }

    fn begin(&mut self, owner: &Owner<'_>) {
        self.resets = self.resets.saturating_add(1);
        self.series = Series::new(owner.epoch, self.resets, owner.session, owner.feed);
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
        Placed::Store(MessageKey::unnumbered(self.series.clone(), self.last_seq, owner.epoch, self.unnumbered))
    }

    fn key(&self, seq: u64) -> MessageKey {
        MessageKey { series: self.series.clone(), seq, sub: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use url::Url;

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

        fn feed(&self, numbered: bool) -> Feed<'_> {
            Feed { ws_url: &self.url, sequence_pointer: numbered.then_some("/seq") }
        }

        fn owner(&self, epoch: u64, numbered: bool) -> Owner<'_> {
            Owner { epoch, session: &self.session, feed: self.feed(numbered) }
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
        let series = Series::new(5, 0, &world.session, world.feed(true));
        let newest = MessageKey { series: series.clone(), seq: 90, sub: 0 };
        let row = Progress { last_seq: Some(40), series: Some(series.to_string()) };
        let position = Position::resume(&world.owner(9, true), &row, Some(&newest));
        assert_eq!((position.last_seq(), position.series()), (Some(90), &series));
    }

    #[test]
    fn a_row_whose_url_changed_does_not_resume_in_the_old_feed() {
        let world = World::new();
        let old = Url::parse("ws://other/").unwrap();
        let old = Feed { ws_url: &old, sequence_pointer: Some("/seq") };
        let newest = MessageKey { series: Series::new(5, 0, &world.session, old), seq: 90, sub: 0 };
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
        let newest = MessageKey { series: Series::new(5, 0, &world.session, world.feed(true)), seq: 7, sub: 0 };
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
        let Placed::Ask(key) = position.place(&owner, Some(1)) else { panic!() };
        let (placed, reset) = position.not_stored(&owner, 1);
        assert!(reset);
        assert_eq!(stored(placed), (1, 0));
        assert!(position.series() > &key.series);
    }

    #[test]
    fn another_message_with_the_last_number_is_stored_behind_it() {
        let world = World::new();
        let owner = world.owner(9, true);
        let mut position = Position::resume(&owner, &Progress::default(), None);
        position.place(&owner, Some(7));
        assert!(matches!(position.place(&owner, Some(7)), Placed::Ask(_)), "it may be the same message again");
        let (placed, reset) = position.not_stored(&owner, 7);
        let (seq, sub) = stored(placed);
        assert!(!reset && seq == 7 && sub > 0);
        assert_eq!(stored(position.place(&owner, Some(8))), (8, 0));
    }

    #[test]
    fn a_row_that_gets_a_sequence_pointer_does_not_resume_at_our_own_count() {
        let world = World::new();
        let counted = MessageKey { series: Series::new(5, 0, &world.session, world.feed(false)), seq: 90, sub: 0 };
        let position = Position::resume(&world.owner(9, true), &Progress::default(), Some(&counted));
        assert_eq!(position.last_seq(), None);
    }

    #[test]
    fn a_message_before_any_number_is_no_place_to_resume_from() {
        let world = World::new();
        let owner = world.owner(9, true);
        let mut position = Position::resume(&owner, &Progress::default(), None);
        let Placed::Store(greeting) = position.place(&owner, None) else { panic!() };
        let resumed = Position::resume(&world.owner(10, true), &Progress::default(), Some(&greeting));
        assert_eq!((resumed.last_seq(), resumed.series()), (None, &greeting.series));
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
        let (placed, reset) = position.not_stored(&owner, 1);
        assert_eq!((stored(placed), reset), ((1, 0), true));
        assert!(position.series() > &before);
    }
}
