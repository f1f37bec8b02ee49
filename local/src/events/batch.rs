//! What to do with a batch of stream records: PURE.
//!
//! "Retain discarded records for a DynamoDB event source" and "Configuring partial batch response" (Lambda Developer
//! Guide): a failed batch is retried, in order, until it succeeds, its retries are used up or its records are too old; with
//! bisecting it is split first, and splitting uses no retry up; a partial answer goes on from the lowest failed record.
//!
//! One thing AWS does not say: what bisecting does when the failed record is the first of its batch, so that there is
//! nothing to cut off. Here the batch is halved then, as for an error, so a poison record is alone in the end.

use super::answer::Answer;
use super::record::StreamRecord;
use std::collections::VecDeque;

/// The settings of a mapping that decide about failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureSettings {
    /// `MaximumRetryAttempts`: retries after the first invocation.
    pub max_retries: u32,
    /// `MaximumRecordAgeInSeconds`, in milliseconds.
    pub max_record_age_ms: u64,
    /// `BisectBatchOnFunctionError`.
    pub bisect: bool,
}

/// How an invocation for a batch ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The function answered.
    Answered(Answer),
    /// The function failed, or timed out.
    FunctionError,
    /// The function was not invoked: no retry is used up.
    Throttled,
}

/// Why records are given up: `requestContext.condition` of the metadata message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// All retries failed.
    RetryAttemptsExhausted,
    /// Older than the maximum age.
    RecordAgeExceeded,
}

impl Condition {
    /// As AWS spells it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RetryAttemptsExhausted => "RetryAttemptsExhausted",
            Self::RecordAgeExceeded => "RecordAgeExceeded",
        }
    }
}

/// Records that are given up.
#[derive(Clone, Debug, PartialEq)]
pub struct Discarded {
    /// The records, in order, at least one.
    pub records: Vec<StreamRecord>,
    /// Why.
    pub condition: Condition,
    /// How many invocations these records were part of.
    pub invocations: u32,
}

/// What an outcome led to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settled {
    /// Everything up to this sequence number is done with: the new checkpoint.
    pub done: Option<String>,
    /// Given up on the way.
    pub discarded: Option<Discarded>,
    /// Back off before the next invocation.
    pub back_off: bool,
}

/// A part of a batch that is invoked together.
#[derive(Clone, Debug, PartialEq)]
struct Part {
    records: Vec<StreamRecord>,
    /// Failed invocations that count as attempts.
    failures: u32,
    invocations: u32,
}

/// A batch being worked off: its parts in the order of the stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    parts: VecDeque<Part>,
}

impl Batch {
    /// A new batch of records in the order of the stream.
    #[must_use]
    pub fn new(records: Vec<StreamRecord>) -> Self {
        let mut batch = Self { parts: VecDeque::new() };
        batch.put_back(Part { records, failures: 0, invocations: 0 });
        batch
    }

    /// The records to invoke the function with next; `None` when the batch is done with.
    #[must_use]
    pub fn next(&self) -> Option<&[StreamRecord]> {
        self.parts.front().map(|part| part.records.as_slice())
    }

    /// Gives up what is too old at the front of the batch, at `now_ms` of the wall clock.
    pub fn expire(&mut self, now_ms: u64, settings: &FailureSettings) -> Settled {
        let Some(mut part) = self.parts.pop_front() else { return Settled::default() };
        let too_old = |record: &StreamRecord| now_ms.saturating_sub(record.created_ms) > settings.max_record_age_ms;
        let keep_from = part.records.iter().position(|record| !too_old(record)).unwrap_or(part.records.len());
        let young = part.records.split_off(keep_from);
        let old = std::mem::replace(&mut part.records, young);
        let settled = if old.is_empty() {
            Settled::default()
        } else {
            discard(old, Condition::RecordAgeExceeded, part.invocations)
        };
        self.put_back(part);
        settled
    }

    /// Takes in how the invocation for [`Batch::next`] ended.
    pub fn settle(&mut self, outcome: &Outcome, settings: &FailureSettings) -> Settled {
        let Some(mut part) = self.parts.pop_front() else { return Settled::default() };
        if *outcome != Outcome::Throttled {
            part.invocations += 1;
        }
        match outcome {
            Outcome::Answered(Answer::Success) => Settled { done: last_sequence(&part.records), ..Settled::default() },
            Outcome::Answered(Answer::Partial(failed)) => self.settle_partial(part, failed, settings),
            Outcome::Answered(Answer::Failure(_)) | Outcome::FunctionError => self.settle_failure(part, settings),
            Outcome::Throttled => {
                self.put_back(part);
                Settled { back_off: true, ..Settled::default() }
            }
        }
    }

    /// Goes on from the lowest failed record.
    fn settle_partial(&mut self, mut part: Part, failed: &[usize], settings: &FailureSettings) -> Settled {
        let lowest = failed.first().copied().unwrap_or(0).min(part.records.len());
        if lowest == 0 {
            return self.settle_failure(part, settings);
        }
        let rest = part.records.split_off(lowest);
        let done = last_sequence(&part.records);
        part.records = rest;
        // With bisecting this is a split at the returned record, and splits use no retry up.
        let mut settled = if settings.bisect { self.retry(part) } else { self.count_failure(part, settings) };
        settled.done = settled.done.or(done);
        settled
    }

    fn settle_failure(&mut self, mut part: Part, settings: &FailureSettings) -> Settled {
        if !settings.bisect || part.records.len() < 2 {
            return self.count_failure(part, settings);
        }
        let second = part.records.split_off(part.records.len() / 2);
        self.put_back(Part { records: second, failures: part.failures, invocations: part.invocations });
        self.retry(part)
    }

    fn count_failure(&mut self, mut part: Part, settings: &FailureSettings) -> Settled {
        part.failures += 1;
        if part.failures > settings.max_retries {
            return discard(part.records, Condition::RetryAttemptsExhausted, part.invocations);
        }
        self.retry(part)
    }

    fn retry(&mut self, part: Part) -> Settled {
        self.put_back(part);
        Settled { back_off: true, ..Settled::default() }
    }

    fn put_back(&mut self, part: Part) {
        if !part.records.is_empty() {
            self.parts.push_front(part);
        }
    }
}

fn discard(records: Vec<StreamRecord>, condition: Condition, invocations: u32) -> Settled {
    let done = last_sequence(&records);
    Settled { done, discarded: Some(Discarded { records, condition, invocations }), back_off: false }
}

fn last_sequence(records: &[StreamRecord]) -> Option<String> {
    records.last().map(|record| record.sequence.clone())
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
