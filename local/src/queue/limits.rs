//! Limits of SQS, and of this process.
//!
//! Source of the former: "Amazon SQS message quotas" and the API reference, as of 2025.

/// Largest message, and largest batch in sum: 1 MiB since August 2025 (256 KiB before).
pub const MAX_MESSAGE_BYTES: usize = 1_048_576;
/// Smallest value of a queue's `MaximumMessageSize`.
pub const MIN_MAX_MESSAGE_BYTES: usize = 1_024;
/// Messages received and not yet deleted, for each queue.
pub const MAX_IN_FLIGHT: usize = 120_000;
/// Entries of a batch, and messages of one receive.
pub const MAX_BATCH: usize = 10;
/// Attributes of one message.
pub const MAX_MESSAGE_ATTRIBUTES: usize = 10;
/// Longest delay: 15 minutes.
pub const MAX_DELAY_S: u64 = 900;
/// Longest long poll.
pub const MAX_WAIT_S: u64 = 20;
/// Longest invisibility after a receive, extensions included: 12 hours.
pub const MAX_VISIBILITY_S: u64 = 43_200;
/// Shortest retention.
pub const MIN_RETENTION_S: u64 = 60;
/// Longest retention: 14 days.
pub const MAX_RETENTION_S: u64 = 1_209_600;
/// How long a FIFO queue remembers deduplication ids: 5 minutes.
pub const DEDUPLICATION_MS: u64 = 300_000;
/// How long a name rests after `DeleteQueue`, and a queue after `PurgeQueue`.
pub const SETTLE_MS: u64 = 60_000;
/// Messages a second that a move task may be asked for at most.
pub const MAX_MOVE_RATE: u64 = 500;
/// Move tasks remembered for each source queue.
pub const MAX_MOVE_TASKS: usize = 10;
/// Tags of one queue.
pub const MAX_TAGS: usize = 50;
/// Queues in this process (AWS has no such limit): what `ListQueues` shows on one page.
pub const MAX_QUEUES: usize = 1_000;

/// How much one queue may hold in this process. AWS has no such limit; a sender that meets it is told to slow down
/// (`RequestThrottled`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Messages, whatever their state. Also the number of deduplication ids remembered.
    pub max_messages: usize,
    /// Bytes of their bodies and attributes.
    pub max_bytes: usize,
}

impl Default for QueueLimits {
    /// 200,000 messages and 256 MiB.
    fn default() -> Self {
        Self { max_messages: 200_000, max_bytes: 256 * 1_048_576 }
    }
}
