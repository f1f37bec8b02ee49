//! Reads one shard and delivers its records.

use super::super::answer::{Answer, read_answer};
use super::super::batch::{Batch, Discarded, Outcome, Settled};
use super::super::destination::{Request, discarded_message};
use super::super::function::InvokeError;
use super::super::record::StreamRecord;
use super::super::shards::Position;
use super::super::{Stop, pause};
use super::{MAX_PAGE, Shared};
use aws_sdk_dynamodbstreams::operation::get_records::{GetRecordsError, GetRecordsOutput};
use aws_sdk_dynamodbstreams::types::ShardIteratorType;
use aws_smithy_types::error::display::DisplayErrorContext;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// Why a reader ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The shard is closed and everything in it is done with.
    ShardClosed,
    /// The mapping was stopped.
    Stopped,
}

pub(super) struct ShardReader {
    shared: Arc<Shared>,
    shard: String,
    stop: Stop,
    /// `None`: to be asked for, at `position`.
    iterator: Option<String>,
    /// Where the next iterator starts: after what was read, which may be further than what is done with.
    position: Position,
    /// Read, matched, not delivered yet: at most a batch.
    pending: Vec<StreamRecord>,
    /// Monotonic time of the first pending record, in milliseconds.
    pending_since_ms: u64,
}

/// What a read found.
struct Page {
    closed: bool,
    full: bool,
}

impl ShardReader {
    pub(super) fn new(shared: Arc<Shared>, shard: String, stop: Stop) -> Self {
        let position = {
            let first_look = shared.first_look.lock().unwrap_or_else(PoisonError::into_inner);
            shared.progress().position(&shard, &first_look)
        };
        Self { shared, shard, stop, iterator: None, position, pending: Vec::new(), pending_since_ms: 0 }
    }

    pub(super) async fn run(mut self) -> Ended {
        let mut failures = 0;
        while !*self.stop.borrow() {
            let wait_ms = match self.read().await {
                Ok(page) => {
                    failures = 0;
                    if self.is_due(page.closed) && !self.deliver().await {
                        return Ended::Stopped;
                    }
                    if page.closed {
                        return Ended::ShardClosed;
                    }
                    if page.full { 0 } else { self.shared.parts.settings.poll_ms }
                }
                Err(error) => {
                    failures += 1;
                    self.shared.count_read_error(&error);
                    self.shared.back_off_ms(failures)
                }
            };
            if !pause(wait_ms, &mut self.stop).await {
                break;
            }
        }
        Ended::Stopped
    }

    /// A batch goes out when it is full, its window is over, or no more can come.
    fn is_due(&self, closed: bool) -> bool {
        let settings = &self.shared.parts.settings;
        let waited_ms = self.shared.parts.clock.mono_ms().saturating_sub(self.pending_since_ms);
        !self.pending.is_empty()
            && (closed || self.pending.len() >= settings.batch_size || waited_ms >= settings.window_ms)
    }

    async fn read(&mut self) -> Result<Page, String> {
        let iterator = match self.iterator.clone() {
            Some(iterator) => iterator,
            None => match self.new_iterator().await? {
                Some(iterator) => iterator,
                None => return Ok(Page { closed: true, full: false }),
            },
        };
        let limit = self.shared.parts.settings.batch_size.saturating_sub(self.pending.len()).clamp(1, MAX_PAGE);
        let request = self.shared.parts.client.get_records().shard_iterator(iterator);
        match request.limit(i32::try_from(limit).unwrap_or(i32::MAX)).send().await {
            Ok(page) => Ok(self.take(page, limit)),
            Err(error) => {
                self.renew_iterator(error.as_service_error());
                Err(DisplayErrorContext(&error).to_string())
            }
        }
    }

    /// An iterator lives for 15 minutes; a position can be trimmed away (24 hours). Anything else: the iterator still counts.
    fn renew_iterator(&mut self, error: Option<&GetRecordsError>) {
        match error {
            Some(GetRecordsError::ExpiredIteratorException(_)) => self.iterator = None,
            Some(GetRecordsError::TrimmedDataAccessException(_)) => {
                tracing::error!(shard = self.shard, "records were trimmed before they were read");
                self.iterator = None;
                self.position = Position::TrimHorizon;
            }
            _ => {}
        }
    }

    async fn new_iterator(&mut self) -> Result<Option<String>, String> {
        let parts = &self.shared.parts;
        let request = parts.client.get_shard_iterator().stream_arn(&parts.stream_arn).shard_id(&self.shard);
        let request = match &self.position {
            Position::After(sequence) => {
                request.shard_iterator_type(ShardIteratorType::AfterSequenceNumber).sequence_number(sequence)
            }
            Position::TrimHorizon => request.shard_iterator_type(ShardIteratorType::TrimHorizon),
            Position::Latest => request.shard_iterator_type(ShardIteratorType::Latest),
        };
        match request.send().await {
            Ok(answer) => Ok(answer.shard_iterator),
            Err(error) => {
                if error.as_service_error().is_some_and(|error| error.is_trimmed_data_access_exception()) {
                    self.position = Position::TrimHorizon;
                }
                Err(DisplayErrorContext(&error).to_string())
            }
        }
    }

    fn take(&mut self, page: GetRecordsOutput, limit: usize) -> Page {
        let now_ms = self.shared.parts.clock.wall_ms();
        let counters = &self.shared.counters;
        counters.read.fetch_add(page.records().len() as u64, Ordering::Relaxed);
        if self.pending.is_empty() {
            self.pending_since_ms = self.shared.parts.clock.mono_ms();
        }
        for record in page.records() {
            let Some(record) = StreamRecord::from_sdk(record, &self.shared.parts.stream_arn, now_ms) else {
                tracing::error!(shard = self.shard, "a record without a sequence number");
                continue;
            };
            self.position = Position::After(record.sequence.clone());
            if self.shared.parts.filters.matches(&record.json) {
                self.pending.push(record);
            } else {
                counters.filtered.fetch_add(1, Ordering::Relaxed);
            }
        }
        if self.pending.is_empty() {
            self.checkpoint_read();
        }
        let page_full = page.records().len() >= limit;
        self.iterator = page.next_shard_iterator;
        Page { closed: self.iterator.is_none(), full: page_full }
    }

    /// Nothing is pending: everything read is done with.
    fn checkpoint_read(&self) {
        if let Position::After(sequence) = &self.position {
            self.checkpoint(sequence.clone());
        }
    }

    fn checkpoint(&self, sequence: String) {
        self.shared.progress().shards.entry(self.shard.clone()).or_default().after = Some(sequence);
    }

    /// Works the pending records off. `false`: stopped before the end, the rest is for the next run.
    async fn deliver(&mut self) -> bool {
        let mut batch = Batch::new(std::mem::take(&mut self.pending));
        let settings = self.shared.parts.settings.failures;
        let mut failures = 0;
        loop {
            let expired = batch.expire(self.shared.parts.clock.wall_ms(), &settings);
            let anything_expired = expired.discarded.is_some();
            self.apply(expired, None).await;
            if anything_expired {
                continue;
            }
            let Some(records) = batch.next() else { break };
            let (outcome, error) = self.invoke(records).await;
            let settled = batch.settle(&outcome, &settings);
            let back_off = settled.back_off;
            self.apply(settled, error.as_ref()).await;
            failures = if back_off { failures + 1 } else { 0 };
            if back_off && !pause(self.shared.back_off_ms(failures), &mut self.stop).await {
                return false;
            }
        }
        self.checkpoint_read();
        true
    }

    async fn invoke(&self, records: &[StreamRecord]) -> (Outcome, Option<InvokeError>) {
        let entries: Vec<&Value> = records.iter().map(|record| &record.json).collect();
        match self.shared.parts.invoker.invoke(json!({"Records": entries})).await {
            Ok(_) if !self.shared.parts.settings.report_item_failures => (Outcome::Answered(Answer::Success), None),
            Ok(answer) => {
                let identifiers: Vec<String> = records.iter().map(|record| record.sequence.clone()).collect();
                let answer = read_answer(&answer, &identifiers);
                if answer != Answer::Success {
                    tracing::warn!(shard = self.shard, ?answer, "not the whole batch succeeded");
                }
                (Outcome::Answered(answer), None)
            }
            Err(InvokeError::Throttled) => (Outcome::Throttled, Some(InvokeError::Throttled)),
            Err(error) => (Outcome::FunctionError, Some(error)),
        }
    }

    /// What was given up is told before the checkpoint moves past it.
    async fn apply(&self, settled: Settled, error: Option<&InvokeError>) {
        if let Some(discarded) = &settled.discarded {
            self.tell(discarded, error).await;
        }
        if let Some(sequence) = settled.done {
            self.checkpoint(sequence);
        }
    }

    async fn tell(&self, discarded: &Discarded, error: Option<&InvokeError>) {
        let parts = &self.shared.parts;
        let counters = &self.shared.counters;
        counters.discarded.fetch_add(discarded.records.len() as u64, Ordering::Relaxed);
        tracing::error!(
            shard = self.shard,
            records = discarded.records.len(),
            condition = discarded.condition.as_str(),
            "records given up"
        );
        let Some(destination) = &parts.destination else { return };
        let (id, function_arn) = (self.shared.request_id(), parts.invoker.function_arn());
        let request = Request { id: &id, function_arn: &function_arn, now_ms: parts.clock.wall_ms() };
        let message = discarded_message(request, &parts.stream_arn, &self.shard, discarded, error);
        if !destination.send(&message).await {
            counters.destination_failures.fetch_add(1, Ordering::Relaxed);
        }
    }
}
