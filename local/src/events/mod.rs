//! What AWS does between a trigger and a Lambda function.
//!
//! - [`function`]: a function, and its invoker: time-out, concurrency, counts
//! - [`filter`]: filter patterns of event source mappings
//! - [`answer`]: what a partial batch answer means
//! - [`record`]: stream records as Lambda delivers them
//! - [`batch`]: PURE: what to retry, where to bisect, what to give up
//! - [`shards`]: PURE: which shards to read, and how far each got
//! - [`retry`]: PURE: back-off with jitter
//! - [`stream`]: a mapping on a DynamoDB stream
//! - [`sqs`]: a mapping on an SQS queue
//! - [`asynchronous`]: invocations that nobody waits for, as EventBridge makes them
//! - [`schedule`], [`ecs`]: events of a schedule and of a task's state changes
//! - [`destination`]: where the metadata of what failed goes
//!
//! The rules are those of the AWS Lambda Developer Guide; each module names its pages.

pub mod answer;
pub mod asynchronous;
pub mod batch;
pub mod destination;
pub mod ecs;
pub mod filter;
pub mod function;
pub mod record;
pub mod retry;
pub mod schedule;
pub mod shards;
pub mod sqs;
pub mod stream;

pub use function::{Function, InvokeError, Invoker};

/// The filter patterns of the `desired-state` mapping: the file that the template uses too.
pub const DESIRED_STATE_FILTERS: &str = include_str!("../../../functions/desired-state/filter-patterns.json");

/// The signal that ends a loop: `true`, or a dropped sender.
pub type Stop = tokio::sync::watch::Receiver<bool>;

/// Waits until `stop` says so.
pub(crate) async fn stopped(stop: &mut Stop) {
    // An error means that the sender is gone: nobody could stop the loop any more, so it ends.
    let _gone = stop.wait_for(|stop| *stop).await.is_err();
}

/// Sleeps for `ms` milliseconds, and says whether the loop goes on (`false`: it was stopped meanwhile).
pub(crate) async fn pause(ms: u64, stop: &mut Stop) -> bool {
    tokio::select! {
        biased;
        () = stopped(stop) => false,
        () = tokio::time::sleep(std::time::Duration::from_millis(ms)) => true,
    }
}

/// A time in milliseconds since the Unix epoch, as ISO 8601 in UTC with whole seconds.
#[must_use]
pub(crate) fn iso_seconds(wall_ms: u64) -> String {
    let seconds = i64::try_from(wall_ms / 1_000).unwrap_or(0);
    let time = aws_smithy_types::DateTime::from_secs(seconds);
    // An error means a year above 9999.
    time.fmt(aws_smithy_types::date_time::Format::DateTime).unwrap_or_default()
}

/// The same with three digits of milliseconds.
#[must_use]
pub(crate) fn iso_millis(wall_ms: u64) -> String {
    let seconds = iso_seconds(wall_ms);
    format!("{}.{:03}Z", seconds.trim_end_matches('Z'), wall_ms % 1_000)
}

/// A random id in the form of a UUID (version 4).
#[must_use]
pub(crate) fn random_id(rng: &mut impl rand::Rng) -> String {
    let mut bytes = [0_u8; 16];
    rng.fill_bytes(&mut bytes);
    uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
}
