//! Lease time: DynamoDB's clock, as far as its answers let us know it.
//!
//! Every answer carries a Date header (RFC 9110, section 6.6.1) of whole seconds, which a server may cache for a second. An answer
//! that was asked for at `sent` and arrived at `received` therefore bounds the difference between DynamoDB's clock and our
//! monotonic one from both sides. Bounds are intersected while they are young, and widen with age by what two quartz clocks may drift.

/// An answer's Date may be this much older than the moment it was made: one second cut off, one second cached.
const DATE_SPAN_MS: i64 = 2_000;
/// How much two clocks may drift apart, in parts per million.
const DRIFT_PPM: i64 = 200;
/// Bounds older than this are dropped once there are newer ones.
const KEEP_MS: u64 = 60_000;
/// Bounds are kept by age in so many slots of [`SLOT_MS`].
const SLOT_MS: u64 = 10_000;
/// So many answers that agree with each other, and not with the estimate, restart it.
const RESTART_AFTER: u32 = 3;

/// Earliest and latest time, in ms since the Unix epoch, that DynamoDB's clock may show now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Decisions about expiry use this end: not sooner than it is certain.
    pub lower_ms: u64,
    /// Stamps use this end: never too short.
    pub upper_ms: u64,
}

/// Bounds of (DynamoDB's clock - our monotonic clock), as of a moment of the latter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bounds {
    lower: i64,
    upper: i64,
    at_ms: u64,
}

impl Bounds {
    fn of_answer(sent_ms: u64, received_ms: u64, date_s: u64) -> Self {
        let date = signed(date_s.saturating_mul(1_000));
        Self { lower: date - signed(received_ms), upper: date + DATE_SPAN_MS - signed(sent_ms), at_ms: received_ms }
    }

    fn widened(self, now_ms: u64) -> Self {
        let age = signed(now_ms.saturating_sub(self.at_ms));
        let drift = (age * DRIFT_PPM + 999_999) / 1_000_000;
        Self { lower: self.lower - drift, upper: self.upper + drift, at_ms: now_ms }
    }

    /// What both allow, as of `now_ms`; `None` when they contradict each other.
    fn and(self, other: Self, now_ms: u64) -> Option<Self> {
        let (a, b) = (self.widened(now_ms), other.widened(now_ms));
        let both = Self { lower: a.lower.max(b.lower), upper: a.upper.min(b.upper), at_ms: now_ms };
        (both.lower <= both.upper).then_some(both)
    }
}

/// The estimate. Times that go in are readings of one monotonic clock, in ms.
#[derive(Clone, Debug, Default)]
pub struct LeaseTime {
    /// Oldest first; each is what the answers of one slot allow together.
    slots: Vec<Bounds>,
    /// Answers that contradicted the estimate and agree with each other.
    rebels: Option<(Bounds, u32)>,
}

impl LeaseTime {
    /// Takes an answer's Date (seconds since the Unix epoch) into account. Returns false when it contradicts the estimate and was discarded.
    pub fn observe(&mut self, sent_ms: u64, received_ms: u64, date_s: u64) -> bool {
        let answer = Bounds::of_answer(sent_ms, received_ms.max(sent_ms), date_s);
        if self.bounds(received_ms).is_some_and(|estimate| estimate.and(answer, received_ms).is_none()) {
            self.rebel(answer, received_ms);
            return false;
        }
        self.rebels = None;
        self.keep(answer, received_ms);
        true
    }

    fn rebel(&mut self, answer: Bounds, now_ms: u64) {
        let agreed = self.rebels.and_then(|(bounds, count)| Some((bounds.and(answer, now_ms)?, count + 1)));
        let (bounds, count) = agreed.unwrap_or((answer, 1));
        self.rebels = Some((bounds, count));
        if count >= RESTART_AFTER {
            self.slots = vec![bounds];
            self.rebels = None;
        }
    }

    fn keep(&mut self, answer: Bounds, now_ms: u64) {
        if let Some(last) = self.slots.last_mut()
            && last.at_ms / SLOT_MS == now_ms / SLOT_MS
            && let Some(both) = last.and(answer, now_ms)
        {
            *last = both;
        } else {
            self.slots.push(answer);
        }
        self.slots.retain(|slot| now_ms.saturating_sub(slot.at_ms) <= KEEP_MS);
    }

    fn bounds(&self, now_ms: u64) -> Option<Bounds> {
        let mut all = self.slots.iter().rev();
        let mut bounds = all.next()?.widened(now_ms);
        for slot in all {
            // Each was checked against the others when it came; rounding can still part them by a millisecond.
            bounds = bounds.and(*slot, now_ms).unwrap_or(bounds);
        }
        Some(bounds)
    }

    /// What DynamoDB's clock shows at `now_ms` of our monotonic clock; `None` before the first answer.
    #[must_use]
    pub fn now(&self, now_ms: u64) -> Option<Now> {
        let bounds = self.bounds(now_ms)?;
        let at = |offset: i64| u64::try_from(signed(now_ms) + offset).unwrap_or(0);
        Some(Now { lower_ms: at(bounds.lower), upper_ms: at(bounds.upper) })
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_an_answer_there_is_no_lease_time() {
        assert_eq!(LeaseTime::default().now(5), None);
    }

    #[test]
    fn one_answer_bounds_the_clock_by_its_round_trip_and_two_seconds() {
        let mut time = LeaseTime::default();
        assert!(time.observe(1_000, 1_100, 50));
        // Made between 1,000 and 1,100 of ours, with a clock between 50,000 and 52,000: at 1,100 it shows 50,000 at least, and
        // 52,000 + 100 at most.
        assert_eq!(time.now(1_100), Some(Now { lower_ms: 50_000, upper_ms: 52_100 }));
        assert_eq!(
            time.now(2_100),
            Some(Now { lower_ms: 50_999, upper_ms: 53_101 }),
            "200 ppm of a second, rounded up"
        );
    }

    #[test]
    fn answers_around_the_change_of_a_second_narrow_the_bounds() {
        let mut time = LeaseTime::default();
        // DynamoDB's clock is ours + 49,100, dates are not cached.
        for sent in [0, 400, 800, 900, 1_300] {
            assert!(time.observe(sent, sent, (sent + 49_100) / 1_000));
        }
        let now = time.now(1_300).unwrap();
        assert!(now.lower_ms <= 50_400 && now.upper_ms >= 50_400, "{now:?} holds the truth");
        assert!(now.upper_ms - now.lower_ms <= 1_103, "{now:?} is one second wide, less what was learnt");
    }

    #[test]
    fn an_answer_that_contradicts_is_discarded_and_three_that_agree_restart() {
        let mut time = LeaseTime::default();
        assert!(time.observe(0, 10, 1_000));
        let before = time.now(20);
        assert!(!time.observe(20, 20, 5_000), "an hour off");
        assert_eq!(time.now(20), before);
        assert!(!time.observe(30, 30, 5_000));
        assert_eq!(time.now(20), before);
        assert!(!time.observe(40, 40, 5_000));
        assert!(time.now(40).unwrap().lower_ms >= 5_000_000, "the third restarts");
    }

    #[test]
    fn contradictions_that_do_not_agree_with_each_other_restart_nothing() {
        let mut time = LeaseTime::default();
        time.observe(0, 10, 1_000);
        for date in [5_000, 9_000, 13_000, 5_000] {
            assert!(!time.observe(20, 20, date));
        }
        assert!(time.now(20).unwrap().upper_ms < 1_100_000);
    }

    #[test]
    fn the_last_estimate_goes_on_when_answers_stop() {
        let mut time = LeaseTime::default();
        time.observe(0, 0, 1_000);
        let now = time.now(600_000).unwrap();
        // Ten minutes at 200 ppm: 120 ms on either side.
        assert_eq!(now, Now { lower_ms: 1_600_000 - 120, upper_ms: 1_602_000 + 120 });
    }

    #[test]
    fn old_bounds_are_dropped_once_there_are_newer_ones() {
        let mut time = LeaseTime::default();
        for second in 0..3_600_u64 {
            time.observe(second * 1_000, second * 1_000, 1_000 + second);
        }
        assert!(time.slots.len() <= 8, "{} slots", time.slots.len());
    }
}
