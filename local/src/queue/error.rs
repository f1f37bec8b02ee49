//! What SQS refuses, and how AWS spells it on the wire.

/// A refusal, as the SQS API documents it. All are the sender's fault and travel as HTTP 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SqsError {
    /// The request does not name an operation that is built.
    #[error("the operation {0} is unknown: this queue speaks the operations of the SQS JSON protocol")]
    UnknownOperation(String),
    /// The body is not the JSON that the operation takes.
    #[error("the request cannot be read: {0}")]
    Malformed(String),
    /// A required parameter is absent or empty.
    #[error("the request must contain the parameter {0}.")]
    MissingParameter(&'static str),
    /// A parameter is outside of what is allowed.
    #[error("{0}")]
    InvalidParameter(String),
    /// An attribute of a queue that does not exist.
    #[error("unknown attribute {0}.")]
    InvalidAttributeName(String),
    /// An attribute of a queue with a value that it does not take.
    #[error("invalid value for the parameter {0}.")]
    InvalidAttributeValue(String),
    /// No such queue.
    #[error("the specified queue does not exist.")]
    QueueDoesNotExist,
    /// `CreateQueue` with attributes that differ from the existing queue's.
    #[error("a queue already exists with the same name and a different value for attribute {0}")]
    QueueNameExists(String),
    /// `CreateQueue` less than 60 s after the name was deleted.
    #[error("you must wait 60 seconds after deleting a queue before you can create another with the same name.")]
    QueueDeletedRecently,
    /// A second purge within 60 s.
    #[error("only one PurgeQueue operation on {0} is allowed every 60 seconds.")]
    PurgeQueueInProgress(String),
    /// A limit of SQS or of this process.
    #[error("{0}")]
    OverLimit(String),
    /// This process holds as many messages for the queue as it was told to: the sender has to slow down.
    #[error("the queue {0} is full: receive and delete messages, or raise its limits")]
    Throttled(String),
    /// Not one of our receipt handles, or another queue's.
    #[error("the input receipt handle \"{0}\" is not a valid receipt handle.")]
    ReceiptHandleIsInvalid(String),
    /// The message is visible, so there is no visibility to change.
    #[error("the message referred to is not in flight.")]
    MessageNotInflight,
    /// The text has characters outside of the XML character set.
    #[error(
        "invalid binary character was found in the message {0}, the set of allowed characters is #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF."
    )]
    InvalidMessageContents(&'static str),
    /// A batch of nothing.
    #[error("there should be at least one entry in the request.")]
    EmptyBatch,
    /// A batch of more than ten.
    #[error("maximum number of entries per request are 10. You have sent {0}.")]
    TooManyEntries(usize),
    /// Two entries of a batch share an id.
    #[error("id {0} repeated.")]
    IdsNotDistinct(String),
    /// An entry's id is malformed.
    #[error(
        "a batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most 80 letters long."
    )]
    InvalidBatchEntryId,
    /// The entries together exceed the size limit.
    #[error("batch requests cannot be longer than {limit} bytes. You have sent {sent} bytes.")]
    BatchTooLong {
        /// Bytes allowed.
        limit: usize,
        /// Bytes sent.
        sent: usize,
    },
    /// The operation exists at AWS, not here or not for this queue.
    #[error("{0}")]
    Unsupported(String),
    /// A move task or its queue is unknown.
    #[error("the resource that you specified for the {0} parameter doesn't exist.")]
    ResourceNotFound(&'static str),
}

impl SqsError {
    /// An [`SqsError::InvalidParameter`] in AWS's words.
    #[must_use]
    pub fn invalid(value: impl std::fmt::Display, parameter: &str, reason: &str) -> Self {
        Self::InvalidParameter(format!("value {value} for parameter {parameter} is invalid. Reason: {reason}"))
    }

    /// The shape's name in `__type`, without the namespace.
    #[must_use]
    pub fn shape(&self) -> &'static str {
        self.codes().0
    }

    /// The code of the older query protocol, sent in `x-amzn-query-error`. SDKs tell errors apart by this one.
    #[must_use]
    pub fn query_code(&self) -> &'static str {
        self.codes().1
    }

    /// Source: the `awsQueryError` traits of the SQS service model.
    fn codes(&self) -> (&'static str, &'static str) {
        match self {
            Self::UnknownOperation(_) => ("UnknownOperationException", "InvalidAction"),
            Self::Malformed(_) => ("SerializationException", "MalformedInput"),
            Self::MissingParameter(_) => ("MissingRequiredParameterException", "MissingParameter"),
            Self::InvalidParameter(_) => ("InvalidParameterValueException", "InvalidParameterValue"),
            Self::InvalidAttributeName(_) => ("InvalidAttributeName", "InvalidAttributeName"),
            Self::InvalidAttributeValue(_) => ("InvalidAttributeValue", "InvalidAttributeValue"),
            Self::QueueDoesNotExist => ("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue"),
            Self::QueueNameExists(_) => ("QueueNameExists", "QueueAlreadyExists"),
            Self::QueueDeletedRecently => ("QueueDeletedRecently", "AWS.SimpleQueueService.QueueDeletedRecently"),
            Self::PurgeQueueInProgress(_) => ("PurgeQueueInProgress", "AWS.SimpleQueueService.PurgeQueueInProgress"),
            Self::OverLimit(_) => ("OverLimit", "OverLimit"),
            Self::Throttled(_) => ("RequestThrottled", "RequestThrottled"),
            Self::ReceiptHandleIsInvalid(_) => ("ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid"),
            Self::MessageNotInflight => ("MessageNotInflight", "AWS.SimpleQueueService.MessageNotInflight"),
            Self::InvalidMessageContents(_) => ("InvalidMessageContents", "InvalidMessageContents"),
            Self::EmptyBatch => ("EmptyBatchRequest", "AWS.SimpleQueueService.EmptyBatchRequest"),
            Self::TooManyEntries(_) => {
                ("TooManyEntriesInBatchRequest", "AWS.SimpleQueueService.TooManyEntriesInBatchRequest")
            }
            Self::IdsNotDistinct(_) => ("BatchEntryIdsNotDistinct", "AWS.SimpleQueueService.BatchEntryIdsNotDistinct"),
            Self::InvalidBatchEntryId => ("InvalidBatchEntryId", "AWS.SimpleQueueService.InvalidBatchEntryId"),
            Self::BatchTooLong { .. } => ("BatchRequestTooLong", "AWS.SimpleQueueService.BatchRequestTooLong"),
            Self::Unsupported(_) => ("UnsupportedOperation", "AWS.SimpleQueueService.UnsupportedOperation"),
            Self::ResourceNotFound(_) => ("ResourceNotFoundException", "ResourceNotFoundException"),
        }
    }
}

impl From<serde_json::Error> for SqsError {
    fn from(error: serde_json::Error) -> Self {
        Self::Malformed(error.to_string())
    }
}
