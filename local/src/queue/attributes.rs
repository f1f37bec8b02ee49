//! Attributes of a queue: what they may be, and how they read.

use super::error::SqsError;
use super::limits;
use super::redrive_policy::{AllowPolicy, RedrivePolicy};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Attributes that are kept and shown, and change nothing here: there is no IAM and no encryption in one process.
const INERT: [&str; 4] = ["Policy", "KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds", "SqsManagedSseEnabled"];

/// Attributes that a queue computes.
pub const COMPUTED: [&str; 6] = [
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
    "CreatedTimestamp",
    "LastModifiedTimestamp",
    "QueueArn",
];

/// Attributes that can be given.
const SETTABLE: [&str; 12] = [
    "VisibilityTimeout",
    "DelaySeconds",
    "MessageRetentionPeriod",
    "ReceiveMessageWaitTimeSeconds",
    "MaximumMessageSize",
    "FifoQueue",
    "ContentBasedDeduplication",
    "DeduplicationScope",
    "FifoThroughputLimit",
    "RedrivePolicy",
    "RedriveAllowPolicy",
    "All",
];

/// What a queue was told to be. Defaults are those of `CreateQueue`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueConfig {
    /// Seconds that a received message hides.
    pub visibility_timeout_s: u64,
    /// Seconds before a new message can be received.
    pub delay_s: u64,
    /// Seconds that a message is kept.
    pub retention_s: u64,
    /// Seconds that a receive waits which does not say.
    pub wait_s: u64,
    /// Largest message, in bytes.
    pub max_message_bytes: usize,
    /// Whether the queue is FIFO; never changes.
    pub fifo: bool,
    /// Whether the body's SHA-256 stands in for a deduplication id.
    pub content_based_deduplication: bool,
    /// `queue` or `messageGroup`.
    pub deduplication_scope: String,
    /// `perQueue` or `perMessageGroupId`: shown, without effect, since throughput is not limited here.
    pub fifo_throughput_limit: String,
    /// Where messages go that were received too often.
    pub redrive: Option<RedrivePolicy>,
    /// Which queues may have this one as their dead-letter queue.
    pub redrive_allow: Option<AllowPolicy>,
    /// Kept and shown only.
    pub inert: BTreeMap<String, String>,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            visibility_timeout_s: 30,
            delay_s: 0,
            retention_s: 345_600,
            wait_s: 0,
            max_message_bytes: limits::MAX_MESSAGE_BYTES,
            fifo: false,
            content_based_deduplication: false,
            deduplication_scope: "queue".into(),
            fifo_throughput_limit: "perQueue".into(),
            redrive: None,
            redrive_allow: None,
            inert: BTreeMap::new(),
        }
    }
}

impl QueueConfig {
    /// Whether a deduplication id counts within its group only.
    #[must_use]
    pub fn deduplicates_by_group(&self) -> bool {
        self.deduplication_scope == "messageGroup"
    }

    /// Sets attributes as `CreateQueue` (`creating`) and `SetQueueAttributes` do. That a dead-letter queue exists is for
    /// the store to check.
    ///
    /// # Errors
    /// [`SqsError::InvalidAttributeName`], [`SqsError::InvalidAttributeValue`] for the first that is refused.
    pub fn set(&mut self, attributes: &BTreeMap<String, String>, creating: bool) -> Result<(), SqsError> {
        // First, since others depend on it.
        if let Some(value) = attributes.get("FifoQueue") {
            let fifo = parse_bool("FifoQueue", value)?;
            if fifo != self.fifo && !creating {
                return Err(SqsError::InvalidAttributeValue("FifoQueue: it cannot be changed".into()));
            }
            self.fifo = fifo;
        }
        for (name, value) in attributes {
            self.set_one(name, value)?;
        }
        if self.fifo_throughput_limit == "perMessageGroupId" && !self.deduplicates_by_group() {
            let text = "FifoThroughputLimit: perMessageGroupId requires DeduplicationScope messageGroup";
            return Err(SqsError::InvalidAttributeValue(text.into()));
        }
        Ok(())
    }

    fn set_one(&mut self, name: &str, value: &str) -> Result<(), SqsError> {
        match name {
            "FifoQueue" => {}
            "VisibilityTimeout" => self.visibility_timeout_s = parse(name, value, 0, limits::MAX_VISIBILITY_S)?,
            "DelaySeconds" => self.delay_s = parse(name, value, 0, limits::MAX_DELAY_S)?,
            "MessageRetentionPeriod" => {
                self.retention_s = parse(name, value, limits::MIN_RETENTION_S, limits::MAX_RETENTION_S)?;
            }
            "ReceiveMessageWaitTimeSeconds" => self.wait_s = parse(name, value, 0, limits::MAX_WAIT_S)?,
            "MaximumMessageSize" => {
                let size = parse(name, value, limits::MIN_MAX_MESSAGE_BYTES as u64, limits::MAX_MESSAGE_BYTES as u64)?;
                self.max_message_bytes = usize::try_from(size).unwrap_or(limits::MAX_MESSAGE_BYTES);
            }
            "ContentBasedDeduplication" if self.fifo => self.content_based_deduplication = parse_bool(name, value)?,
            "DeduplicationScope" if self.fifo => {
                self.deduplication_scope = one_of(name, value, &["queue", "messageGroup"])?;
            }
            "FifoThroughputLimit" if self.fifo => {
                self.fifo_throughput_limit = one_of(name, value, &["perQueue", "perMessageGroupId"])?;
            }
            "RedrivePolicy" if value.is_empty() => self.redrive = None,
            "RedrivePolicy" => self.redrive = Some(RedrivePolicy::parse(value)?),
            "RedriveAllowPolicy" if value.is_empty() => self.redrive_allow = None,
            "RedriveAllowPolicy" => self.redrive_allow = Some(AllowPolicy::parse(value)?),
            _ if INERT.contains(&name) => _ = self.inert.insert(name.to_owned(), value.to_owned()),
            // Attributes of FIFO queues on a standard queue, computed ones, and those that do not exist.
            _ => return Err(SqsError::InvalidAttributeName(name.to_owned())),
        }
        Ok(())
    }

    /// The attributes as `GetQueueAttributes` shows them, without the computed ones.
    #[must_use]
    pub fn show(&self) -> BTreeMap<String, String> {
        let mut shown = self.inert.clone();
        let mut put = |name: &str, value: String| _ = shown.insert(name.to_owned(), value);
        put("VisibilityTimeout", self.visibility_timeout_s.to_string());
        put("DelaySeconds", self.delay_s.to_string());
        put("MessageRetentionPeriod", self.retention_s.to_string());
        put("ReceiveMessageWaitTimeSeconds", self.wait_s.to_string());
        put("MaximumMessageSize", self.max_message_bytes.to_string());
        if self.fifo {
            put("FifoQueue", "true".into());
            put("ContentBasedDeduplication", self.content_based_deduplication.to_string());
            put("DeduplicationScope", self.deduplication_scope.clone());
            put("FifoThroughputLimit", self.fifo_throughput_limit.clone());
        }
        if let Some(policy) = &self.redrive {
            put("RedrivePolicy", policy.show());
        }
        if let Some(policy) = &self.redrive_allow {
            put("RedriveAllowPolicy", policy.show());
        }
        shown
    }
}

/// Checks the names that `GetQueueAttributes` asks for.
///
/// # Errors
/// [`SqsError::InvalidAttributeName`] for one that no queue has.
pub fn check_names(names: &[String]) -> Result<(), SqsError> {
    for name in names {
        let name = name.as_str();
        if !SETTABLE.contains(&name) && !COMPUTED.contains(&name) && !INERT.contains(&name) {
            return Err(SqsError::InvalidAttributeName(name.to_owned()));
        }
    }
    Ok(())
}

/// The first attribute of `wanted` that `existing` has otherwise.
#[must_use]
pub fn first_difference(existing: &QueueConfig, wanted: &QueueConfig) -> Option<String> {
    let (existing, wanted) = (existing.show(), wanted.show());
    wanted.into_iter().find(|(name, value)| existing.get(name) != Some(value)).map(|(name, _)| name)
}

fn parse(name: &str, value: &str, min: u64, max: u64) -> Result<u64, SqsError> {
    let number = value.parse::<u64>().ok().filter(|number| (min..=max).contains(number));
    number.ok_or_else(|| SqsError::InvalidAttributeValue(format!("{name}: must be a number from {min} to {max}")))
}

fn parse_bool(name: &str, value: &str) -> Result<bool, SqsError> {
    value.parse().map_err(|_| SqsError::InvalidAttributeValue(format!("{name}: must be true or false")))
}

fn one_of(name: &str, value: &str, allowed: &[&str]) -> Result<String, SqsError> {
    if allowed.contains(&value) {
        return Ok(value.to_owned());
    }
    Err(SqsError::InvalidAttributeValue(format!("{name}: must be one of {}", allowed.join(", "))))
}
