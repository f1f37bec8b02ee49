//! What can go wrong with a request, told apart by what the caller does about it.

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use std::error::Error;

/// A request to DynamoDB or SQS failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// It was refused for now and not applied: slow down.
    #[error("{service} throttles: {message}")]
    Throttled {
        /// DynamoDB or SQS.
        service: &'static str,
        /// The service's words.
        message: String,
    },
    /// The answer is missing: it may have been applied, now or later.
    #[error("no answer from {service}: {message}")]
    Unknown {
        /// DynamoDB or SQS.
        service: &'static str,
        /// What the SDK saw.
        message: String,
    },
    /// We may not do this, or have no valid credentials.
    #[error("{service} refuses access: {message} (check the role, or the credentials in the environment)")]
    Denied {
        /// DynamoDB or SQS.
        service: &'static str,
        /// The service's words.
        message: String,
    },
    /// The table, index or queue is not there.
    #[error(
        "{service} knows no such table, index or queue: {message} (is the stack deployed, and is this its region and endpoint?)"
    )]
    Missing {
        /// DynamoDB or SQS.
        service: &'static str,
        /// The service's words.
        message: String,
    },
    /// The request itself is wrong; sending it again changes nothing.
    #[error("{service} refuses the request: {message}")]
    Invalid {
        /// DynamoDB or SQS.
        service: &'static str,
        /// The service's words.
        message: String,
    },
}

impl StoreError {
    /// True when the same request may succeed later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Throttled { .. } | Self::Unknown { .. })
    }

    /// A short name for counters.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Throttled { .. } => "throttled",
            Self::Unknown { .. } => "no_answer",
            Self::Denied { .. } => "denied",
            Self::Missing { .. } => "missing",
            Self::Invalid { .. } => "invalid",
        }
    }
}

/// Sorts an error of the SDK.
pub fn sort<E>(service: &'static str, error: &SdkError<E>) -> StoreError
where
    E: ProvideErrorMetadata + Error + 'static,
{
    let message = describe(error);
    match error {
        SdkError::ServiceError(context) => by_code(service, context.err().code().unwrap_or(""), message),
        SdkError::ConstructionFailure(_) => StoreError::Invalid { service, message },
        SdkError::DispatchFailure(failure) if is_credentials(failure) => StoreError::Denied { service, message },
        _ => StoreError::Unknown { service, message },
    }
}

/// Credentials that cannot be had fail before anything is sent.
fn is_credentials(failure: &aws_smithy_runtime_api::client::result::DispatchFailure) -> bool {
    let text = failure.as_connector_error().map(|error| chain(error)).unwrap_or_default();
    text.contains("credential") || text.contains("identity")
}

/// Codes as documented in the DynamoDB Developer Guide, "Error handling", and the SQS API reference, "Common errors".
fn by_code(service: &'static str, code: &str, message: String) -> StoreError {
    match code {
        "ProvisionedThroughputExceededException"
        | "ThrottlingException"
        | "RequestLimitExceeded"
        | "Throttling"
        | "LimitExceededException"
        | "RequestThrottled"
        | "OverLimit"
        | "TransactionConflictException"
        | "TransactionInProgressException" => StoreError::Throttled { service, message },
        "InternalServerError" | "InternalFailure" | "ServiceUnavailable" | "RequestTimeout" | "InternalError" => {
            StoreError::Unknown { service, message }
        }
        "AccessDeniedException"
        | "AccessDenied"
        | "UnrecognizedClientException"
        | "InvalidClientTokenId"
        | "IncompleteSignature"
        | "InvalidSignatureException"
        | "ExpiredTokenException"
        | "ExpiredToken"
        | "MissingAuthenticationToken"
        | "MissingAuthenticationTokenException"
        | "SignatureDoesNotMatch" => StoreError::Denied { service, message },
        "ResourceNotFoundException" | "QueueDoesNotExist" | "AWS.SimpleQueueService.NonExistentQueue" => {
            StoreError::Missing { service, message }
        }
        "ValidationException"
        | "SerializationException"
        | "ItemCollectionSizeLimitExceededException"
        | "UnknownOperationException"
        | "InvalidParameterValue"
        | "InvalidParameterCombination"
        | "MissingParameter"
        | "InvalidMessageContents"
        | "ReceiptHandleIsInvalid"
        | "UnsupportedOperation"
        | "BatchRequestTooLong"
        | "DuplicateItemException" => StoreError::Invalid { service, message },
        // A code that we do not know may pass: nothing is given up for it.
        _ => StoreError::Unknown { service, message },
    }
}

/// The whole chain of causes in one line: the SDK's own Display stops at the first.
fn describe<E: ProvideErrorMetadata + Error + 'static>(error: &SdkError<E>) -> String {
    if let SdkError::ServiceError(context) = error {
        let service = context.err();
        return format!("{}: {}", service.code().unwrap_or("error"), service.message().unwrap_or("no message"));
    }
    chain(error)
}

fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}
