//! Keys of `messages`: series, sequence, part. Writing the same message again meets the same key.

use super::SessionId;
use super::hash::stable_hash;
use std::fmt;
use url::Url;

/// Attribute names of `messages`.
pub mod attr {
    #![allow(missing_docs, reason = "each constant is the attribute's own name")]
    pub const PK: &str = "Pk";
    pub const SK: &str = "Sk";
    pub const BODY: &str = "body";
    pub const PARTS: &str = "parts";
    pub const RECEIVED_AT_MS: &str = "received_at_ms";
    pub const EXPIRES_AT: &str = "expires_at";
}

/// A run of sequence numbers that belong together: of one upstream, since one start or reset.
///
/// Its name sorts by age: `epoch.resets.session.feed`. A hash of the URL and the sequence pointer is part of it, so that a connection
/// whose spec changes does not go on with the numbers of another feed, or with our own count.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Series(String);

impl Series {
    /// Names a new series. `resets` counts the series that one owner began before it under the same epoch.
    #[must_use]
    pub fn new(epoch: u64, resets: u32, session: &SessionId, feed: Feed<'_>) -> Self {
        Self(format!("{epoch:016}.{resets:010}.{}.{:08x}", session.short(), feed.hash()))
    }

    /// Takes a stored name.
    #[must_use]
    pub fn from_stored(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// True when the series belongs to this feed.
    #[must_use]
    pub fn is_of(&self, feed: Feed<'_>) -> bool {
        self.0.rsplit('.').next() == Some(format!("{:08x}", feed.hash()).as_str())
    }

    /// The stored name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whose numbers a series counts in.
#[derive(Clone, Copy, Debug)]
pub struct Feed<'a> {
    /// The URL of the spec.
    pub ws_url: &'a Url,
    /// Where messages carry their number; `None` where we count.
    pub sequence_pointer: Option<&'a str>,
}

impl Feed<'_> {
    /// Half of the hash is enough to tell the few feeds of one connection apart.
    fn hash(&self) -> u32 {
        // A space is in no URL; a spec without a pointer is another feed than one with an empty one.
        let pointer = self.sequence_pointer.map(|pointer| format!(" {pointer}")).unwrap_or_default();
        let hash = stable_hash(&format!("{}{pointer}", self.ws_url));
        u32::try_from(hash & u64::from(u32::MAX)).unwrap_or(u32::MAX)
    }
}

/// Where one message is stored below its connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageKey {
    /// The series.
    pub series: Series,
    /// The upstream's number, or our count where it has none.
    pub seq: u64,
    /// 0 for a message with a number. A message without one follows the number before it, and is told apart by its owner's epoch and a
    /// count: see [`MessageKey::unnumbered`].
    pub sub: u64,
}

/// How many messages without a number one owner can store in one series.
pub const MAX_UNNUMBERED: u64 = 1 << 21;
/// What is added to the count of a message that came before any number.
const BEFORE_ANY: u64 = 1 << 21;

impl MessageKey {
    /// The key of the `count`th message without a number (from 1, below [`MAX_UNNUMBERED`]) that the owner of `epoch` stores behind `seq`. The
    /// epoch is part of it, so that no owner writes over what another has stored.
    #[must_use]
    pub fn unnumbered(series: Series, seq: Option<u64>, epoch: u64, count: u64) -> Self {
        let before_any = if seq.is_none() { BEFORE_ANY } else { 0 };
        // An epoch is a time in ms, below 2^42 until the year 2109, which leaves 22 bits of 64.
        let sub = epoch.saturating_mul(MAX_UNNUMBERED * 2).saturating_add(before_any + count);
        Self { series, seq: seq.unwrap_or(0), sub }
    }

    /// The upstream's number that an owner can resume from; `None` for a message that came before any.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        let before_any = self.sub > 0 && self.sub & BEFORE_ANY != 0;
        (!before_any).then_some(self.seq)
    }

    /// What the sort keys of all messages behind this number begin with.
    #[must_use]
    pub fn number_prefix(&self) -> String {
        format!("{}#{:020}#", self.series, self.seq)
    }

    /// The sort key of part `part` (0 for a message that fits one item).
    #[must_use]
    pub fn sk(&self, part: u32) -> String {
        format!("{}{:020}#{part:03}", self.number_prefix(), self.sub)
    }

    /// Reads a sort key; `None` when it is not one of ours.
    #[must_use]
    pub fn from_sk(sk: &str) -> Option<(Self, u32)> {
        let mut fields = sk.split('#');
        let series = Series::from_stored(fields.next()?);
        let seq = fields.next()?.parse().ok()?;
        let sub = fields.next()?.parse().ok()?;
        let part = fields.next()?.parse().ok()?;
        Some((Self { series, seq, sub }, part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    fn feed<'a>(ws_url: &'a Url, sequence_pointer: Option<&'a str>) -> Feed<'a> {
        Feed { ws_url, sequence_pointer }
    }

    #[test]
    fn later_series_sort_after_earlier_ones_and_numbers_sort_as_numbers() {
        let session = SessionId::new("0192aaaa-0000-7000-8000-abcdefabcdef");
        let url = url("ws://a/");
        let first = Series::new(999, 0, &session, feed(&url, None));
        let reset = Series::new(999, 1, &session, feed(&url, None));
        let later = Series::new(1_000, 0, &session, feed(&url, None));
        assert!(first < reset && reset < later);
        let key = |seq| MessageKey { series: first.clone(), seq, sub: 0 }.sk(0);
        assert!(key(9) < key(10) && key(10) < key(u64::MAX));
    }

    #[test]
    fn a_sort_key_reads_back_as_it_was_written() {
        let url = url("ws://a/");
        let series = Series::new(5, 0, &SessionId::new("s"), feed(&url, None));
        let key = MessageKey::unnumbered(series, Some(7), 1_800_000_000_000, 2);
        assert_eq!(MessageKey::from_sk(&key.sk(3)), Some((key, 3)));
        assert_eq!(MessageKey::from_sk("something else"), None);
    }

    #[test]
    fn a_series_knows_the_feed_that_it_belongs_to() {
        let (one, two) = (url("ws://a/x?y=1"), url("ws://a/x?y=2"));
        let series = Series::new(5, 0, &SessionId::new("s"), feed(&one, Some("/seq")));
        assert!(series.is_of(feed(&one, Some("/seq"))));
        assert!(!series.is_of(feed(&two, Some("/seq"))));
        assert!(!series.is_of(feed(&one, None)), "our own count is no number of the upstream");
        assert!(!series.is_of(feed(&one, Some("/n"))));
    }

    #[test]
    fn a_message_before_any_number_is_no_place_to_resume_from() {
        let series = Series::from_stored("s");
        let before = MessageKey::unnumbered(series.clone(), None, 1_800_000_000_000, 3);
        assert_eq!(before.number(), None);
        let behind_zero = MessageKey::unnumbered(series.clone(), Some(0), 1_800_000_000_000, 3);
        assert_eq!(behind_zero.number(), Some(0));
        assert_eq!(MessageKey { series, seq: 0, sub: 0 }.number(), Some(0));
    }
}
