//! The view of ECS: which tasks of the worker service run.

use super::error::{StoreError, sort};
use super::sdk::{ATTEMPT, OPERATION, timeouts};
use aws_config::SdkConfig;
use aws_sdk_ecs::Client;
use aws_sdk_ecs::config::retry::RetryConfig;
use std::collections::BTreeSet;

/// Access to the worker service.
#[derive(Clone, Debug)]
pub struct Fleet {
    client: Client,
    cluster: String,
    service: String,
}

impl Fleet {
    /// The service `service` in `cluster`, with limits of ours: the look at the sessions waits for the answer.
    #[must_use]
    pub fn connect(base: &SdkConfig, cluster: impl Into<String>, service: impl Into<String>) -> Self {
        let config = aws_sdk_ecs::config::Builder::from(base)
            .timeout_config(timeouts(ATTEMPT, OPERATION))
            .retry_config(RetryConfig::standard().with_max_attempts(3));
        Self::new(Client::from_conf(config.build()), cluster, service)
    }

    /// The service `service` in `cluster`.
    #[must_use]
    pub fn new(client: Client, cluster: impl Into<String>, service: impl Into<String>) -> Self {
        Self { client, cluster: cluster.into(), service: service.into() }
    }

    /// The ARNs of the tasks that run or are about to.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn running_tasks(&self) -> Result<BTreeSet<String>, StoreError> {
        let mut pages =
            self.client.list_tasks().cluster(&self.cluster).service_name(&self.service).into_paginator().items().send();
        let mut arns = BTreeSet::new();
        while let Some(arn) = pages.next().await {
            arns.insert(arn.map_err(|error| sort("ECS", &error))?);
        }
        Ok(arns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_config::BehaviorVersion;

    #[test]
    fn an_ecs_that_hangs_is_given_up_after_eight_seconds() {
        let base = SdkConfig::builder().behavior_version(BehaviorVersion::latest()).build();
        let fleet = Fleet::connect(&base, "cluster", "service");
        let config = fleet.client.config();
        let limits = config.timeout_config().expect("time-outs are set");
        assert_eq!((limits.operation_attempt_timeout(), limits.operation_timeout()), (Some(ATTEMPT), Some(OPERATION)));
        assert_eq!(config.retry_config().map(RetryConfig::max_attempts), Some(3));
    }
}
