//! Keys of `messages`: series, sequence, part. Writing the same message again meets the same key.

use super::SessionId;
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

/// A run of sequence numbers that belong together: of one upstream URL, since one start or reset.
///
/// Its name sorts by age: `epoch.resets.session.url`. The URL's hash is part of it, so that a connection whose URL changes does
/// not go on with the numbers of another feed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Series(String);

impl Series {
    /// Names a new series. `resets` counts the series that one owner began before it under the same epoch.
    #[must_use]
    pub fn new(epoch: u64, resets: u32, session: &SessionId, ws_url: &Url) -> Self {
        Self(format!("{epoch:016}.{resets:010}.{}.{:08x}", session.short(), url_hash(ws_url)))
    }

    /// Takes a stored name.
    #[must_use]
    pub fn from_stored(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// True when the series belongs to this URL.
    #[must_use]
    pub fn is_of(&self, ws_url: &Url) -> bool {
        self.0.rsplit('.').next() == Some(format!("{:08x}", url_hash(ws_url)).as_str())
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

/// FNV-1a, 32 bits: stable over versions and machines, which the standard library's hasher does not promise.
fn url_hash(url: &Url) -> u32 {
    let mut hash: u32 = 0x811c_9dc5;
    for byte in url.as_str().bytes() {
        hash ^= u32::from(byte);
        hash = hash.wrapping_mul(0x0100_0193);
    }
    hash
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

/// How many messages without a number one owner can store behind one number.
pub const MAX_UNNUMBERED: u64 = 1 << 22;

impl MessageKey {
    /// The key of the `count`th message without a number (from 1, below [`MAX_UNNUMBERED`]) that the owner of `epoch` stores behind `seq`. The
    /// epoch is part of it, so that no owner writes over what another has stored.
    #[must_use]
    pub fn unnumbered(series: Series, seq: u64, epoch: u64, count: u64) -> Self {
        // An epoch is a time in ms, below 2^42 until the year 2109.
        Self { series, seq, sub: epoch.saturating_mul(MAX_UNNUMBERED).saturating_add(count) }
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

    #[test]
    fn later_series_sort_after_earlier_ones_and_numbers_sort_as_numbers() {
        let session = SessionId::new("0192aaaa-0000-7000-8000-abcdefabcdef");
        let first = Series::new(999, 0, &session, &url("ws://a/"));
        let reset = Series::new(999, 1, &session, &url("ws://a/"));
        let later = Series::new(1_000, 0, &session, &url("ws://a/"));
        assert!(first < reset && reset < later);
        let key = |seq| MessageKey { series: first.clone(), seq, sub: 0 }.sk(0);
        assert!(key(9) < key(10) && key(10) < key(u64::MAX));
    }

    #[test]
    fn a_sort_key_reads_back_as_it_was_written() {
        let session = SessionId::new("s");
        let key = MessageKey { series: Series::new(5, 0, &session, &url("ws://a/")), seq: 7, sub: 2 };
        assert_eq!(MessageKey::from_sk(&key.sk(3)), Some((key, 3)));
        assert_eq!(MessageKey::from_sk("something else"), None);
    }

    #[test]
    fn a_series_knows_the_url_that_it_belongs_to() {
        let series = Series::new(5, 0, &SessionId::new("s"), &url("ws://a/x?y=1"));
        assert!(series.is_of(&url("ws://a/x?y=1")));
        assert!(!series.is_of(&url("ws://a/x?y=2")));
    }
}
