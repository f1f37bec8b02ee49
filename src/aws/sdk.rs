//! Clients with the usual AWS configuration: environment, profile, region, endpoint, as documented in the "AWS SDKs and Tools Reference Guide".

use super::date::{DateInterceptor, LeaseClock};
use crate::clock::SharedClock;
use aws_config::{BehaviorVersion, SdkConfig};
use aws_sdk_dynamodb::config::retry::{RetryConfig, RetryPartition};
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_smithy_http_client::tls;
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use std::time::Duration;

/// How long one attempt and one whole request of the lease path may take: a late answer is no better than none.
const LEASE_ATTEMPT: Duration = Duration::from_millis(1_000);
const LEASE_OPERATION: Duration = Duration::from_millis(2_000);
/// The same for everything else, and for ECS.
pub(super) const ATTEMPT: Duration = Duration::from_millis(3_000);
pub(super) const OPERATION: Duration = Duration::from_millis(8_000);

/// The HTTP client of every SDK client: TLS by rustls with ring, as the sockets have it.
#[must_use]
pub fn http_client() -> SharedHttpClient {
    aws_smithy_http_client::Builder::new()
        .tls_provider(tls::Provider::Rustls(tls::rustls_provider::CryptoMode::Ring))
        .build_https()
}

/// Loads the usual configuration.
pub async fn load() -> SdkConfig {
    aws_config::defaults(BehaviorVersion::latest()).http_client(http_client()).load().await
}

/// The two DynamoDB clients of a process: for the lease path, and for everything else.
#[derive(Clone, Debug)]
pub struct DynamoClients {
    /// Short time-outs, one quick retry.
    pub lease: aws_sdk_dynamodb::Client,
    /// Patient.
    pub bulk: aws_sdk_dynamodb::Client,
    /// Lease time, from the answers of both.
    pub time: LeaseClock,
    base: aws_sdk_dynamodb::config::Builder,
}

impl DynamoClients {
    /// Builds both from one configuration.
    #[must_use]
    pub fn new(base: aws_sdk_dynamodb::config::Builder, clock: SharedClock) -> Self {
        let time = LeaseClock::new(clock);
        // A retry quota of its own: message writes that fail by the hundred must not use up the retries of renewals.
        let lease_base = base.clone().retry_partition(RetryPartition::custom("lease").build());
        let client =
            |base: aws_sdk_dynamodb::config::Builder, attempt: Duration, operation: Duration, attempts: u32| {
                let config = base
                    .timeout_config(timeouts(attempt, operation))
                    .retry_config(RetryConfig::standard().with_max_attempts(attempts))
                    .interceptor(DateInterceptor(time.clone()))
                    .build();
                aws_sdk_dynamodb::Client::from_conf(config)
            };
        let lease = client(lease_base, LEASE_ATTEMPT, LEASE_OPERATION, 2);
        let bulk = client(base.clone(), ATTEMPT, OPERATION, 3);
        Self { lease, bulk, time, base }
    }

    /// The same clients with a lease time that knows nothing yet: for one invocation of a function.
    #[must_use]
    pub fn anew(&self) -> Self {
        Self::new(self.base.clone(), self.time.clock().clone())
    }
}

/// Time-outs of a client.
#[must_use]
pub fn timeouts(attempt: Duration, operation: Duration) -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(LEASE_ATTEMPT)
        .operation_attempt_timeout(attempt)
        .operation_timeout(operation)
        .build()
}
