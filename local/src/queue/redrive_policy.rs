//! `RedrivePolicy` and `RedriveAllowPolicy`: JSON inside of an attribute.

use super::error::SqsError;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The region in ARNs.
pub const REGION: &str = "us-east-1";
/// The account in ARNs and URLs.
pub const ACCOUNT: &str = "000000000000";

/// The ARN of a queue.
#[must_use]
pub fn arn_of(name: &str) -> String {
    format!("arn:aws:sqs:{REGION}:{ACCOUNT}:{name}")
}

/// The queue's name in an ARN of SQS, whatever its region and account.
#[must_use]
pub fn name_in_arn(arn: &str) -> Option<&str> {
    let parts: Vec<&str> = arn.split(':').collect();
    match parts[..] {
        ["arn", _, "sqs", _, _, name] if !name.is_empty() => Some(name),
        _ => None,
    }
}

/// Where messages go that were received too often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RedrivePolicy {
    /// The dead-letter queue's ARN.
    pub target_arn: String,
    /// A message that was received so often moves instead of being received once more. 1 to 1,000.
    pub max_receive_count: u32,
}

impl RedrivePolicy {
    /// Reads the attribute.
    ///
    /// # Errors
    /// [`SqsError::InvalidParameter`], as AWS answers.
    pub fn parse(text: &str) -> Result<Self, SqsError> {
        let refuse = |reason: &str| SqsError::invalid(text, "RedrivePolicy", reason);
        let value: Value = serde_json::from_str(text).map_err(|_| refuse("redrive policy is not a valid JSON map."))?;
        let Some(target_arn) = value["deadLetterTargetArn"].as_str() else {
            return Err(refuse("redrive policy does not contain mandatory attribute: deadLetterTargetArn."));
        };
        if name_in_arn(target_arn).is_none() {
            return Err(refuse("invalid value for deadLetterTargetArn."));
        }
        // A number or its text: the console and CloudFormation write both.
        let count = match &value["maxReceiveCount"] {
            Value::Null => Some(10),
            Value::String(text) => text.parse().ok(),
            other => other.as_u64(),
        };
        match count.and_then(|count| u32::try_from(count).ok()) {
            Some(max_receive_count @ 1..=1_000) => Ok(Self { target_arn: target_arn.to_owned(), max_receive_count }),
            _ => Err(refuse("invalid value for maxReceiveCount. Must be between 1 and 1000.")),
        }
    }

    /// The attribute's text.
    #[must_use]
    pub fn show(&self) -> String {
        json!({"deadLetterTargetArn": self.target_arn, "maxReceiveCount": self.max_receive_count}).to_string()
    }

    /// The dead-letter queue's name.
    #[must_use]
    pub fn target_name(&self) -> Option<&str> {
        name_in_arn(&self.target_arn)
    }
}

/// Which queues may have a queue as their dead-letter queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AllowPolicy {
    /// Any.
    All,
    /// None.
    None,
    /// These ARNs, at most ten.
    Queues(Vec<String>),
}

impl AllowPolicy {
    /// Reads the attribute.
    ///
    /// # Errors
    /// [`SqsError::InvalidParameter`], as AWS answers.
    pub fn parse(text: &str) -> Result<Self, SqsError> {
        let refuse = |reason: &str| SqsError::invalid(text, "RedriveAllowPolicy", reason);
        let value: Value = serde_json::from_str(text).map_err(|_| refuse("it is not a valid JSON map."))?;
        let arns = value["sourceQueueArns"].as_array();
        match (value["redrivePermission"].as_str(), arns) {
            (Some("allowAll") | None, None) => Ok(Self::All),
            (Some("denyAll"), None) => Ok(Self::None),
            (Some("byQueue"), Some(arns)) if (1..=10).contains(&arns.len()) => {
                let mut queues = Vec::new();
                for arn in arns {
                    queues.push(arn.as_str().ok_or_else(|| refuse("sourceQueueArns must be texts."))?.to_owned());
                }
                Ok(Self::Queues(queues))
            }
            _ => Err(refuse("redrivePermission is allowAll, denyAll, or byQueue with 1 to 10 sourceQueueArns.")),
        }
    }

    /// The attribute's text.
    #[must_use]
    pub fn show(&self) -> String {
        match self {
            Self::All => json!({"redrivePermission": "allowAll"}).to_string(),
            Self::None => json!({"redrivePermission": "denyAll"}).to_string(),
            Self::Queues(arns) => json!({"redrivePermission": "byQueue", "sourceQueueArns": arns}).to_string(),
        }
    }

    /// Whether the queue with this ARN may.
    #[must_use]
    pub fn allows(&self, source_arn: &str) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::Queues(arns) => arns.iter().any(|arn| arn == source_arn),
        }
    }
}
