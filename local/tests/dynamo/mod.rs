//! A small table of connections for the tests of the engine and its layers.
#![allow(dead_code, reason = "each test binary uses its own part")]

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::error::BuildError;
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection,
    ProjectionType, ScalarAttributeType, StreamSpecification, StreamViewType,
};
use aws_smithy_runtime_api::client::http::HttpConnector;
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_types::body::SdkBody;
use leasehold::clock::SharedClock;
use leasehold_local::clock::VirtualClock;
use leasehold_local::engine::{EmbeddedDynamo, clients};
use std::error::Error;
use std::sync::Arc;

pub type Tested = Result<(), Box<dyn Error>>;

/// Fri, 15 Jan 2027 08:00:00 GMT
pub const EPOCH_MS: u64 = 1_800_000_000_000;
pub const EPOCH_DATE: &str = "Fri, 15 Jan 2027 08:00:00 GMT";
pub const TABLE: &str = "connections";

pub struct World {
    pub time: VirtualClock,
    pub clock: SharedClock,
    pub engine: EmbeddedDynamo,
}

/// An engine in memory on virtual time, with the table.
pub async fn world() -> Result<World, Box<dyn Error>> {
    let world = empty_world()?;
    create_table(&world.client(world.engine.clone())).await?;
    Ok(world)
}

pub fn empty_world() -> Result<World, Box<dyn Error>> {
    let time = VirtualClock::starting_at(EPOCH_MS);
    let clock: SharedClock = Arc::new(time);
    let engine = EmbeddedDynamo::memory(clock.clone())?;
    Ok(World { time, clock, engine })
}

impl World {
    /// A client that tries once.
    pub fn client(&self, connector: impl HttpConnector + 'static) -> Client {
        let config = clients::dynamodb_config(connector, Some(self.time));
        Client::from_conf(config.retry_config(RetryConfig::disabled()).build())
    }

    /// The number attribute of a row, past all layers.
    pub async fn number(&self, id: &str, name: &str) -> Result<Option<String>, Box<dyn Error>> {
        let client = self.client(self.engine.clone());
        let answer = client.get_item().table_name(TABLE).key("Pk", text(id)).consistent_read(true).send().await?;
        Ok(answer.item().and_then(|item| item.get(name)?.as_n().ok().cloned()))
    }
}

pub fn text(value: &str) -> AttributeValue {
    AttributeValue::S(value.to_owned())
}

pub fn number(value: u64) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

/// The table, with the sparse index `by_expiry` and a stream.
pub async fn create_table(client: &Client) -> Tested {
    let projection = Projection::builder().projection_type(ProjectionType::KeysOnly).build();
    let by_expiry = GlobalSecondaryIndex::builder()
        .index_name("by_expiry")
        .key_schema(key("desired_state", KeyType::Hash)?)
        .key_schema(key("lease_expires_at_ms", KeyType::Range)?)
        .projection(projection)
        .build()?;
    let stream = StreamSpecification::builder().stream_enabled(true).stream_view_type(StreamViewType::NewAndOldImages);
    client
        .create_table()
        .table_name(TABLE)
        .billing_mode(BillingMode::PayPerRequest)
        .attribute_definitions(attribute("Pk", ScalarAttributeType::S)?)
        .attribute_definitions(attribute("desired_state", ScalarAttributeType::S)?)
        .attribute_definitions(attribute("lease_expires_at_ms", ScalarAttributeType::N)?)
        .key_schema(key("Pk", KeyType::Hash)?)
        .global_secondary_indexes(by_expiry)
        .stream_specification(stream.build()?)
        .send()
        .await?;
    Ok(())
}

/// Puts a STARTED row that is in `by_expiry`.
pub async fn put(client: &Client, id: &str, expires_at_ms: u64) -> Tested {
    let put = client.put_item().table_name(TABLE).item("Pk", text(id)).item("desired_state", text("STARTED"));
    put.item("lease_expires_at_ms", number(expires_at_ms)).send().await?;
    Ok(())
}

/// An update that sets one number.
pub fn set(client: &Client, id: &str, name: &str, value: u64) -> UpdateItemFluentBuilder {
    client
        .update_item()
        .table_name(TABLE)
        .key("Pk", text(id))
        .update_expression("SET #name = :value")
        .expression_attribute_names("#name", name)
        .expression_attribute_values(":value", number(value))
}

/// A request as the SDK would send it.
pub fn request(operation: &str, body: &str) -> HttpRequest {
    let mut request = HttpRequest::new(SdkBody::from(body));
    request.headers_mut().insert("x-amz-target", format!("DynamoDB_20120810.{operation}"));
    request
}

fn key(name: &str, kind: KeyType) -> Result<KeySchemaElement, BuildError> {
    KeySchemaElement::builder().attribute_name(name).key_type(kind).build()
}

fn attribute(name: &str, kind: ScalarAttributeType) -> Result<AttributeDefinition, BuildError> {
    AttributeDefinition::builder().attribute_name(name).attribute_type(kind).build()
}
