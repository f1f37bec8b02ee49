//! The tables and queues of a deployment, as `template.yaml` has them, made through the APIs.

use aws_sdk_dynamodb::error::{BuildError, DisplayErrorContext, SdkError};
use aws_sdk_dynamodb::operation::create_table::CreateTableError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection, ProjectionType,
    ScalarAttributeType, StreamSpecification, StreamViewType, TimeToLiveSpecification,
};
use aws_sdk_sqs::types::QueueAttributeName;
use leasehold::aws::Tables;
use leasehold::model::connection::{INDEX_BY_EXPIRY, INDEX_BY_OWNER, attr};
use leasehold::model::session::attr::SESSION_ID;
use serde_json::json;

/// What the parts are called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The tables.
    pub tables: Tables,
    /// The queue of claims.
    pub claims: String,
    /// Where claims go that nobody could handle.
    pub dead_claims: String,
    /// The queue of delayed ticks.
    pub ticks: String,
    /// Where the metadata of events goes that a function could not handle.
    pub failed_events: String,
}

impl Names {
    /// Names that begin with `prefix`, such as `leasehold`.
    #[must_use]
    pub fn with_prefix(prefix: &str) -> Self {
        let name = |part: &str| format!("{prefix}-{part}");
        Self {
            tables: Tables { connections: name("connections"), sessions: name("sessions"), messages: name("messages") },
            claims: name("claims"),
            dead_claims: name("claims-dead"),
            ticks: name("ticks"),
            failed_events: name("failed-events"),
        }
    }
}

impl Default for Names {
    fn default() -> Self {
        Self::with_prefix("leasehold")
    }
}

/// Where the queues are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueUrls {
    /// The queue of claims.
    pub claims: String,
    /// Where claims go that nobody could handle.
    pub dead_claims: String,
    /// The queue of delayed ticks.
    pub ticks: String,
    /// Where the metadata of events goes that a function could not handle.
    pub failed_events: String,
}

/// Why a part could not be made.
#[derive(Debug, thiserror::Error)]
pub enum StackError {
    /// The service refused, or did not answer.
    #[error("could not make {part}: {message}")]
    Service {
        /// The part's name.
        part: String,
        /// The whole chain of causes.
        message: String,
    },
    /// A request could not be built.
    #[error("could not build a request")]
    Build(#[from] BuildError),
}

/// Makes what is not there yet; what is there is kept as it is.
///
/// # Errors
/// [`StackError`] naming the part.
pub async fn create(
    dynamo: &aws_sdk_dynamodb::Client,
    sqs: &aws_sdk_sqs::Client,
    names: &Names,
) -> Result<QueueUrls, StackError> {
    connections(dynamo, &names.tables.connections).await?;
    let sessions = dynamo.create_table().table_name(&names.tables.sessions);
    let sessions = sessions.attribute_definitions(text(SESSION_ID)?).key_schema(hash(SESSION_ID)?);
    made(&names.tables.sessions, sessions.billing_mode(BillingMode::PayPerRequest).send().await)?;
    messages(dynamo, &names.tables.messages).await?;
    queues(sqs, names).await
}

async fn connections(dynamo: &aws_sdk_dynamodb::Client, name: &str) -> Result<(), StackError> {
    let by_expiry = GlobalSecondaryIndex::builder()
        .index_name(INDEX_BY_EXPIRY)
        .key_schema(hash(attr::DESIRED_STATE)?)
        .key_schema(range(attr::LEASE_EXPIRES_AT_MS)?)
        .projection(Projection::builder().projection_type(ProjectionType::KeysOnly).build());
    let projection = Projection::builder()
        .projection_type(ProjectionType::Include)
        .non_key_attributes(attr::LEASE_EPOCH)
        .non_key_attributes(attr::DESIRED_STATE);
    let by_owner = GlobalSecondaryIndex::builder()
        .index_name(INDEX_BY_OWNER)
        .key_schema(hash(attr::LEASE_OWNER)?)
        .projection(projection.build());
    let stream = StreamSpecification::builder().stream_enabled(true).stream_view_type(StreamViewType::NewAndOldImages);
    let answer = dynamo
        .create_table()
        .table_name(name)
        .billing_mode(BillingMode::PayPerRequest)
        .attribute_definitions(text(attr::PK)?)
        .attribute_definitions(text(attr::DESIRED_STATE)?)
        .attribute_definitions(text(attr::LEASE_OWNER)?)
        .attribute_definitions(number(attr::LEASE_EXPIRES_AT_MS)?)
        .key_schema(hash(attr::PK)?)
        .global_secondary_indexes(by_expiry.build()?)
        .global_secondary_indexes(by_owner.build()?)
        .stream_specification(stream.build()?)
        .send()
        .await;
    made(name, answer)?;
    Ok(())
}

async fn messages(dynamo: &aws_sdk_dynamodb::Client, name: &str) -> Result<(), StackError> {
    use leasehold::model::message::attr::{EXPIRES_AT, PK, SK};
    let table = dynamo.create_table().table_name(name).billing_mode(BillingMode::PayPerRequest);
    let table = table.attribute_definitions(text(PK)?).attribute_definitions(text(SK)?);
    if !made(name, table.key_schema(hash(PK)?).key_schema(range(SK)?).send().await)? {
        return Ok(());
    }
    let ttl = TimeToLiveSpecification::builder().enabled(true).attribute_name(EXPIRES_AT).build()?;
    let answer = dynamo.update_time_to_live().table_name(name).time_to_live_specification(ttl).send().await;
    answer.map_err(|error| failed(name, &error))?;
    Ok(())
}

/// Whether the table is new.
fn made<T>(name: &str, answer: Result<T, SdkError<CreateTableError>>) -> Result<bool, StackError> {
    match answer {
        Ok(_) => Ok(true),
        Err(SdkError::ServiceError(error)) if error.err().is_resource_in_use_exception() => Ok(false),
        Err(error) => Err(failed(name, &error)),
    }
}

/// Claims are hints that anybody may repeat, so they are short-lived: visibility 10 s, retention 10 min, dead letters after 50 receives.
async fn queues(sqs: &aws_sdk_sqs::Client, names: &Names) -> Result<QueueUrls, StackError> {
    let dead_claims = queue(sqs, &names.dead_claims, &[("MessageRetentionPeriod", "1209600")]).await?;
    let arn = QueueAttributeName::QueueArn;
    let request = sqs.get_queue_attributes().queue_url(&dead_claims).attribute_names(arn.clone());
    let answer = request.send().await.map_err(|error| failed(&names.dead_claims, &error))?;
    let arn = answer.attributes.and_then(|mut attributes| attributes.remove(&arn)).unwrap_or_default();
    let redrive = json!({ "deadLetterTargetArn": arn, "maxReceiveCount": 50 }).to_string();
    let short_lived =
        [("VisibilityTimeout", "10"), ("MessageRetentionPeriod", "600"), ("RedrivePolicy", redrive.as_str())];
    let claims = queue(sqs, &names.claims, &short_lived).await?;
    // A tick that failed is not worth more than the next one: it is gone before it would be seen again.
    let ticks = queue(sqs, &names.ticks, &[("VisibilityTimeout", "360"), ("MessageRetentionPeriod", "120")]).await?;
    let failed_events = queue(sqs, &names.failed_events, &[("MessageRetentionPeriod", "1209600")]).await?;
    Ok(QueueUrls { claims, dead_claims, ticks, failed_events })
}

async fn queue(sqs: &aws_sdk_sqs::Client, name: &str, attributes: &[(&str, &str)]) -> Result<String, StackError> {
    // Making a queue anew with other attributes is an error: one that is there is kept.
    if let Some(url) = sqs.get_queue_url().queue_name(name).send().await.ok().and_then(|answer| answer.queue_url) {
        return Ok(url);
    }
    let mut request = sqs.create_queue().queue_name(name);
    for (key, value) in attributes {
        request = request.attributes(QueueAttributeName::from(*key), *value);
    }
    let answer = request.send().await.map_err(|error| failed(name, &error))?;
    Ok(answer.queue_url.unwrap_or_default())
}

fn failed(part: &str, error: &(impl std::error::Error + 'static)) -> StackError {
    StackError::Service { part: part.to_owned(), message: DisplayErrorContext(error).to_string() }
}

fn text(name: &str) -> Result<AttributeDefinition, BuildError> {
    AttributeDefinition::builder().attribute_name(name).attribute_type(ScalarAttributeType::S).build()
}

fn number(name: &str) -> Result<AttributeDefinition, BuildError> {
    AttributeDefinition::builder().attribute_name(name).attribute_type(ScalarAttributeType::N).build()
}

fn hash(name: &str) -> Result<KeySchemaElement, BuildError> {
    KeySchemaElement::builder().attribute_name(name).key_type(KeyType::Hash).build()
}

fn range(name: &str) -> Result<KeySchemaElement, BuildError> {
    KeySchemaElement::builder().attribute_name(name).key_type(KeyType::Range).build()
}
