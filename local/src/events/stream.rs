//! An event source mapping on a DynamoDB stream: "How Lambda processes records from stream and queue-based event
//! sources" (Lambda Developer Guide).
//!
//! Each shard is read and delivered by one task, in order. What to retry and what to give up is decided by
//! [`super::batch`], which shards to read by [`super::shards`]; here is only the I/O. A record is delivered at least
//! once: progress moves when a batch is done with, so a run that is stopped half-way delivers its batch again.

#[path = "stream_shard.rs"]
mod shard;

use super::batch::FailureSettings;
use super::destination::Destination;
use super::filter::Filters;
use super::function::Invoker;
use super::retry::Backoff;
use super::shards::{ListedShard, Progress, StartAt};
use super::{Stop, pause};
use aws_sdk_dynamodbstreams::Client;
use aws_smithy_types::error::display::DisplayErrorContext;
use leasehold::clock::SharedClock;
use rand::SeedableRng;
use rand::rngs::StdRng;
use shard::{Ended, ShardReader};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::{Id, JoinError, JoinSet};

/// The most records that GetRecords gives at a time.
const MAX_PAGE: usize = 1_000;

/// The settings of a mapping, with the names of `AWS::Lambda::EventSourceMapping` in the comments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamSettings {
    /// `StartingPosition`.
    pub start: StartAt,
    /// `BatchSize`: records an invocation, 1 to 10,000.
    pub batch_size: usize,
    /// `MaximumBatchingWindowInSeconds`, in milliseconds: how long a batch that is not full waits for more.
    pub window_ms: u64,
    /// Time between two reads of a shard: AWS reads four times a second.
    pub poll_ms: u64,
    /// Time between two looks for new shards.
    pub discover_ms: u64,
    /// Retries, age, bisecting.
    pub failures: FailureSettings,
    /// `FunctionResponseTypes: [ReportBatchItemFailures]`. Without it any answer is a success.
    pub report_item_failures: bool,
    /// Between retries, and after a failed read.
    pub backoff: Backoff,
}

impl Default for StreamSettings {
    /// Batches of 100 as on AWS, with what the project's template sets: partial answers, bisecting, three retries, one hour.
    fn default() -> Self {
        Self {
            start: StartAt::TrimHorizon,
            batch_size: 100,
            window_ms: 0,
            poll_ms: 250,
            discover_ms: 10_000,
            failures: FailureSettings { max_retries: 3, max_record_age_ms: 3_600_000, bisect: true },
            report_item_failures: true,
            backoff: Backoff { first_ms: 500, most_ms: 30_000 },
        }
    }
}

/// What a mapping counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounts {
    /// Records read.
    pub read: u64,
    /// Records that no filter pattern matched.
    pub filtered: u64,
    /// Records given up.
    pub discarded: u64,
    /// Messages that the failure destination did not take.
    pub destination_failures: u64,
    /// Failed reads and looks for shards.
    pub read_errors: u64,
}

#[derive(Debug, Default)]
struct Counters {
    read: AtomicU64,
    filtered: AtomicU64,
    discarded: AtomicU64,
    destination_failures: AtomicU64,
    read_errors: AtomicU64,
}

/// What a mapping is made of.
pub struct StreamParts {
    /// A client of DynamoDB Streams.
    pub client: Client,
    /// The stream.
    pub stream_arn: String,
    /// The function.
    pub invoker: Arc<Invoker>,
    /// Which records are delivered.
    pub filters: Filters,
    /// The settings.
    pub settings: StreamSettings,
    /// Where the metadata of records goes that were given up.
    pub destination: Option<Destination>,
    /// The clock that records' ages are counted by.
    pub clock: SharedClock,
    /// Seeds the jitter.
    pub seed: u64,
}

/// A running or runnable mapping; clones share it.
#[derive(Clone)]
pub struct StreamSource {
    shared: Arc<Shared>,
}

struct Shared {
    parts: StreamParts,
    rng: Mutex<StdRng>,
    progress: Mutex<Progress>,
    first_look: Mutex<BTreeSet<String>>,
    counters: Counters,
}

impl StreamSource {
    /// A mapping that goes on from `progress`: that of an earlier run, or an empty one.
    #[must_use]
    pub fn new(parts: StreamParts, progress: Progress) -> Self {
        let rng = Mutex::new(StdRng::seed_from_u64(parts.seed));
        let shared = Shared {
            parts,
            rng,
            progress: Mutex::new(progress),
            first_look: Mutex::default(),
            counters: Counters::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// How far every shard is done with: to be stored, and given to [`StreamSource::new`] by the next run.
    #[must_use]
    pub fn checkpoint(&self) -> Progress {
        self.shared.progress().clone()
    }

    /// What was counted so far.
    #[must_use]
    pub fn counts(&self) -> StreamCounts {
        let counters = &self.shared.counters;
        StreamCounts {
            read: counters.read.load(Ordering::Relaxed),
            filtered: counters.filtered.load(Ordering::Relaxed),
            discarded: counters.discarded.load(Ordering::Relaxed),
            destination_failures: counters.destination_failures.load(Ordering::Relaxed),
            read_errors: counters.read_errors.load(Ordering::Relaxed),
        }
    }

    /// Reads and delivers until `stop`. An invocation that runs then is awaited, its result counts.
    pub async fn run(&self, mut stop: Stop) {
        let mut tasks = JoinSet::new();
        let mut reading: HashMap<Id, String> = HashMap::new();
        let mut failures = 0;
        while !*stop.borrow() {
            let wait_ms = match self.list_shards().await {
                Ok(listed) => {
                    failures = 0;
                    self.start_readers(&listed, &mut tasks, &mut reading, &stop);
                    self.shared.parts.settings.discover_ms
                }
                Err(error) => {
                    failures += 1;
                    self.shared.count_read_error(&error);
                    self.shared.back_off_ms(failures)
                }
            };
            tokio::select! {
                biased;
                going_on = pause(wait_ms, &mut stop) => if !going_on { break },
                // A shard that ended may have children: look at once.
                Some(ended) = tasks.join_next_with_id() => self.reader_ended(ended, &mut reading),
            }
        }
        while let Some(ended) = tasks.join_next_with_id().await {
            self.reader_ended(ended, &mut reading);
        }
    }

    async fn list_shards(&self) -> Result<Vec<ListedShard>, String> {
        let mut listed = Vec::new();
        let mut from: Option<String> = None;
        loop {
            let request = self.shared.parts.client.describe_stream().stream_arn(&self.shared.parts.stream_arn);
            let answer = request.set_exclusive_start_shard_id(from).send().await;
            let answer = answer.map_err(|error| DisplayErrorContext(&error).to_string())?;
            let Some(stream) = answer.stream_description else { return Ok(listed) };
            for shard in stream.shards() {
                let Some(id) = shard.shard_id() else { continue };
                listed.push(ListedShard { id: id.to_owned(), parent: shard.parent_shard_id().map(str::to_owned) });
            }
            from = stream.last_evaluated_shard_id;
            if from.is_none() {
                return Ok(listed);
            }
        }
    }

    fn start_readers(
        &self,
        listed: &[ListedShard],
        tasks: &mut JoinSet<Ended>,
        reading: &mut HashMap<Id, String>,
        stop: &Stop,
    ) {
        let names: BTreeSet<String> = reading.values().cloned().collect();
        let startable = {
            let mut progress = self.shared.progress();
            if progress.shards.is_empty() && self.shared.parts.settings.start == StartAt::Latest {
                let first_look = listed.iter().map(|shard| shard.id.clone()).collect();
                *self.shared.first_look.lock().unwrap_or_else(PoisonError::into_inner) = first_look;
            }
            progress.forget_unlisted(listed);
            let startable = progress.startable(listed, &names);
            for shard in &startable {
                progress.shards.entry(shard.clone()).or_default();
            }
            startable
        };
        for shard in startable {
            let reader = ShardReader::new(Arc::clone(&self.shared), shard.clone(), stop.clone());
            reading.insert(tasks.spawn(reader.run()).id(), shard);
        }
    }

    fn reader_ended(&self, ended: Result<(Id, Ended), JoinError>, reading: &mut HashMap<Id, String>) {
        let (id, closed) = match ended {
            Ok((id, ended)) => (id, ended == Ended::ShardClosed),
            // Its shard is read again from its progress.
            Err(error) => {
                tracing::error!(%error, "a shard's reader ended");
                (error.id(), false)
            }
        };
        if let Some(shard) = reading.remove(&id)
            && closed
        {
            self.shared.progress().shards.entry(shard).or_default().finished = true;
        }
    }
}

impl Shared {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn back_off_ms(&self, failures: u32) -> u64 {
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        self.parts.settings.backoff.delay_ms(failures, &mut *rng)
    }

    fn request_id(&self) -> String {
        super::random_id(&mut *self.rng.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn count_read_error(&self, error: &str) {
        self.counters.read_errors.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(stream = self.parts.stream_arn, error, "cannot read the stream");
    }
}
