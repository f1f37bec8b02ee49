//! SDK clients over a connector of this crate: the ordinary AWS SDK, with its retries and time-outs, but no network.

use crate::clock::VirtualClock;
use aws_credential_types::Credentials;
use aws_sdk_dynamodb::config::{BehaviorVersion, Region, StalledStreamProtectionConfig};
use aws_smithy_async::rt::sleep::TokioSleep;
use aws_smithy_async::time::{SharedTimeSource, SystemTimeSource};
use aws_smithy_runtime_api::client::http::{HttpClient, HttpConnector, HttpConnectorSettings, SharedHttpConnector};
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;

const REGION: &str = "us-east-1";
/// Each client has a retry quota of its own. The SDK shares one among all clients of a service in a process, so that one simulated process,
/// or one test, would use up the retries of another.
const OWN: &str = "own";

/// Lets the SDK use a connector. The SDK's connect and read time-outs do not apply (there is no connection); its
/// operation time-outs do.
#[derive(Clone, Debug)]
pub struct ConnectorClient(SharedHttpConnector);

impl ConnectorClient {
    /// A client that hands every request to `connector`.
    pub fn new(connector: impl HttpConnector + 'static) -> Self {
        Self(SharedHttpConnector::new(connector))
    }
}

impl HttpClient for ConnectorClient {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        self.0.clone()
    }
}

/// The configuration of a DynamoDB client over `connector`: a region, credentials that mean nothing, tokio's sleep (which
/// tests pause), and the virtual time if there is one. Retries and time-outs are the SDK's defaults: set them on it.
pub fn dynamodb_config(
    connector: impl HttpConnector + 'static,
    time: Option<VirtualClock>,
) -> aws_sdk_dynamodb::config::Builder {
    aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .retry_partition(aws_sdk_dynamodb::config::retry::RetryPartition::custom(OWN).build())
        .region(Region::new(REGION))
        .credentials_provider(credentials())
        .sleep_impl(TokioSleep::new())
        .time_source(time_source(time))
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .http_client(ConnectorClient::new(connector))
}

/// As [`dynamodb_config`], for the streams API.
pub fn streams_config(
    connector: impl HttpConnector + 'static,
    time: Option<VirtualClock>,
) -> aws_sdk_dynamodbstreams::config::Builder {
    aws_sdk_dynamodbstreams::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .retry_partition(aws_sdk_dynamodbstreams::config::retry::RetryPartition::custom(OWN).build())
        .region(Region::new(REGION))
        .credentials_provider(credentials())
        .sleep_impl(TokioSleep::new())
        .time_source(time_source(time))
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .http_client(ConnectorClient::new(connector))
}

/// As [`dynamodb_config`], for SQS.
pub fn sqs_config(connector: impl HttpConnector + 'static, time: Option<VirtualClock>) -> aws_sdk_sqs::config::Builder {
    aws_sdk_sqs::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .retry_partition(aws_sdk_sqs::config::retry::RetryPartition::custom(OWN).build())
        .region(Region::new(REGION))
        .credentials_provider(credentials())
        .sleep_impl(TokioSleep::new())
        .time_source(time_source(time))
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .http_client(ConnectorClient::new(connector))
}

/// A DynamoDB client with the SDK's default retries.
pub fn dynamodb(connector: impl HttpConnector + 'static, time: Option<VirtualClock>) -> aws_sdk_dynamodb::Client {
    aws_sdk_dynamodb::Client::from_conf(dynamodb_config(connector, time).build())
}

/// A DynamoDB client of an engine behind loopback HTTP, as any tool of a user would have it.
#[must_use]
pub fn dynamodb_at(url: &str) -> aws_sdk_dynamodb::Client {
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(REGION))
        .credentials_provider(credentials())
        .endpoint_url(url)
        .http_client(leasehold::aws::sdk::http_client());
    aws_sdk_dynamodb::Client::from_conf(config.build())
}

/// A client of DynamoDB's streams with the SDK's default retries.
pub fn streams(connector: impl HttpConnector + 'static, time: Option<VirtualClock>) -> aws_sdk_dynamodbstreams::Client {
    aws_sdk_dynamodbstreams::Client::from_conf(streams_config(connector, time).build())
}

/// An SQS client with the SDK's default retries.
pub fn sqs(connector: impl HttpConnector + 'static, time: Option<VirtualClock>) -> aws_sdk_sqs::Client {
    aws_sdk_sqs::Client::from_conf(sqs_config(connector, time).build())
}

/// Nothing here checks signatures, but the SDK wants to sign.
fn credentials() -> Credentials {
    Credentials::new("local", "local", None, None, "leasehold-local")
}

fn time_source(time: Option<VirtualClock>) -> SharedTimeSource {
    match time {
        Some(clock) => SharedTimeSource::new(clock),
        None => SharedTimeSource::new(SystemTimeSource::new()),
    }
}
