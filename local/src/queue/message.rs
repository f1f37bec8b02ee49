//! A message, and what SQS accepts as one.

use super::error::SqsError;
use super::limits;
use aws_smithy_types::base64;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One typed attribute, in its form on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct AttributeValue {
    /// `String`, `Number` or `Binary`, with an optional label behind a full stop.
    #[serde(default)]
    pub data_type: String,
    /// The value of a string or number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub string_value: Option<String>,
    /// The value of a binary, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binary_value: Option<String>,
}

impl AttributeValue {
    /// Whether the value travels as binary.
    #[must_use]
    pub fn is_binary(&self) -> bool {
        self.data_type.starts_with("Binary")
    }

    /// The value's bytes: they count towards the size and the digest. Empty for a value that `check` refuses.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        if self.is_binary() {
            return self.binary_value.as_deref().and_then(|text| base64::decode(text).ok()).unwrap_or_default();
        }
        self.string_value.as_deref().unwrap_or_default().as_bytes().to_vec()
    }

    fn check(&self, name: &str) -> Result<(), SqsError> {
        let refuse =
            |reason: String| Err(SqsError::InvalidParameter(format!("the message attribute '{name}' {reason}")));
        let base = self.data_type.split('.').next().unwrap_or_default();
        match base {
            "String" | "Number" | "Binary" if self.data_type.len() <= 256 => {}
            _ => return refuse(format!("has an invalid type '{}': use String, Number or Binary", self.data_type)),
        }
        if self.bytes().is_empty() {
            return refuse("must have a non-empty value of its type".into());
        }
        if let Some(text) = &self.string_value
            && !text.chars().all(is_allowed)
        {
            return Err(SqsError::InvalidMessageContents("attribute"));
        }
        if base == "Number" && self.string_value.as_deref().is_some_and(|text| text.parse::<f64>().is_err()) {
            return refuse("could not be parsed as a number".into());
        }
        Ok(())
    }
}

/// Attributes by name.
pub type Attributes = BTreeMap<String, AttributeValue>;

/// A message as its sender hands it over: the members of `SendMessage` and of an entry of `SendMessageBatch`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Outgoing {
    /// The text.
    #[serde(rename = "MessageBody")]
    pub body: Option<String>,
    /// Seconds before it can be received; the queue's default when absent.
    pub delay_seconds: Option<i64>,
    /// The sender's attributes.
    #[serde(rename = "MessageAttributes")]
    pub attributes: Option<Attributes>,
    /// Attributes of SQS itself: a trace header, nothing else.
    #[serde(rename = "MessageSystemAttributes")]
    pub system_attributes: Option<Attributes>,
    /// FIFO: what makes it a duplicate.
    #[serde(rename = "MessageDeduplicationId")]
    pub deduplication_id: Option<String>,
    /// FIFO: what it is ordered with. Standard: the tenant of a fair queue.
    #[serde(rename = "MessageGroupId")]
    pub group_id: Option<String>,
}

impl Outgoing {
    /// Bytes that count towards the limits: body, and name, type and value of each attribute.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        let mut size = self.body.as_ref().map_or(0, String::len);
        for (name, value) in self.attributes.iter().flatten() {
            size += name.len() + value.data_type.len() + value.bytes().len();
        }
        size
    }

    /// Checks what does not depend on the kind of queue.
    ///
    /// # Errors
    /// The refusal that AWS documents for the member.
    pub fn check(&self, max_bytes: usize) -> Result<(), SqsError> {
        let body =
            self.body.as_deref().filter(|body| !body.is_empty()).ok_or(SqsError::MissingParameter("MessageBody"))?;
        if !body.chars().all(is_allowed) {
            return Err(SqsError::InvalidMessageContents("body"));
        }
        let attributes = self.attributes.iter().flatten();
        if attributes.clone().count() > limits::MAX_MESSAGE_ATTRIBUTES {
            return Err(SqsError::InvalidParameter(
                "number of message attributes exceeds the allowed maximum of 10.".into(),
            ));
        }
        for (name, value) in attributes {
            check_attribute_name(name)?;
            value.check(name)?;
        }
        for (name, value) in self.system_attributes.iter().flatten() {
            if name != "AWSTraceHeader" || value.data_type != "String" {
                return Err(SqsError::invalid(
                    name,
                    "MessageSystemAttributes",
                    "only AWSTraceHeader of type String is known.",
                ));
            }
            value.check(name)?;
        }
        if self.size_bytes() > max_bytes {
            let text =
                format!("one or more parameters are invalid. Reason: Message must be shorter than {max_bytes} bytes.");
            return Err(SqsError::InvalidParameter(text));
        }
        Ok(())
    }
}

/// Whether SQS takes the character: the character set of XML 1.0.
fn is_allowed(character: char) -> bool {
    matches!(character,
        '\t' | '\n' | '\r' | '\u{20}'..='\u{D7FF}' | '\u{E000}'..='\u{FFFD}' | '\u{10000}'..='\u{10FFFF}')
}

fn check_attribute_name(name: &str) -> Result<(), SqsError> {
    let lower = name.to_ascii_lowercase();
    let characters = name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
    let dots = name.starts_with('.') || name.ends_with('.') || name.contains("..");
    let reserved = lower.starts_with("aws.") || lower.starts_with("amazon.");
    if name.is_empty() || name.len() > 256 || !characters || dots || reserved {
        return Err(SqsError::invalid(name, "MessageAttributes", "not a valid attribute name."));
    }
    Ok(())
}

/// Checks a group id, a deduplication id: 1 to 128 alphanumeric characters and punctuation.
///
/// # Errors
/// [`SqsError::InvalidParameter`] that names `parameter`.
pub fn check_id(id: &str, parameter: &'static str) -> Result<(), SqsError> {
    if id.is_empty() || id.len() > 128 || !id.chars().all(|c| c.is_ascii_graphic()) {
        let reason =
            format!("{parameter} can only include alphanumeric and punctuation characters. 1 to 128 in length.");
        return Err(SqsError::invalid(id.chars().take(128).collect::<String>(), parameter, &reason));
    }
    Ok(())
}

/// Where a message is in its life in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// Can be received.
    Ready,
    /// Was sent with a delay.
    Delayed {
        /// When it can be received, milliseconds since the Unix epoch.
        until_ms: u64,
    },
    /// Was received and hides from other consumers.
    InFlight {
        /// When it was received.
        since_ms: u64,
        /// When it can be received again.
        until_ms: u64,
    },
}

/// A message in a queue. Times are milliseconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Its place in the order of arrival, unique in the store.
    pub number: u64,
    /// `MessageId`. It survives a move to a dead-letter queue.
    pub id: String,
    /// The text.
    pub body: String,
    /// The sender's attributes.
    pub attributes: Attributes,
    /// `AWSTraceHeader`.
    pub system_attributes: Attributes,
    /// `MessageGroupId`.
    pub group_id: Option<String>,
    /// `MessageDeduplicationId`, given or computed.
    pub deduplication_id: Option<String>,
    /// `SentTimestamp`; retention counts from here.
    pub sent_ms: u64,
    /// `ApproximateFirstReceiveTimestamp`.
    pub first_received_ms: Option<u64>,
    /// `ApproximateReceiveCount`: across all queues.
    pub receive_count: u32,
    /// Receives in this queue: what `maxReceiveCount` is held against.
    pub receives_here: u32,
    /// The queue (name) it was a dead letter of, for the way back.
    pub dead_letter_source: Option<String>,
    /// Bytes it counts for.
    pub size_bytes: usize,
    /// Where it is in its life.
    pub stage: Stage,
}

impl Message {
    /// `SequenceNumber`: 20 digits that grow.
    #[must_use]
    pub fn sequence_number(&self) -> String {
        format!("{:020}", self.number)
    }
}
