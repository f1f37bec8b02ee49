//! The view of ECS: which tasks of the worker service run.

use super::error::{StoreError, sort};
use aws_sdk_ecs::Client;
use std::collections::BTreeSet;

/// Access to the worker service.
#[derive(Clone, Debug)]
pub struct Fleet {
    client: Client,
    cluster: String,
    service: String,
}

impl Fleet {
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
