//! Reads that are behind.

use super::schema::Schemas;
use super::writes::{Write, writes_of};
use crate::engine::{EmbeddedDynamo, EngineError, wire};
use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture, SharedHttpConnector};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use leasehold::clock::SharedClock;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Answers reads of indexes as of `lag_ms` ago: an index follows its table "asynchronously, using an eventually consistent
/// model" (AWS, "Using Global Secondary Indexes"). If asked, reads of tables without `ConsistentRead` too.
///
/// What a write left behind is carried over to a second engine after the lag; stale reads go there. So an answer is
/// one that was true once. With a lag of 0 nothing is behind.
///
/// Tables must be created through this layer, and it sees only what is written through it (not PartiQL). What is not yet
/// carried over is kept in memory: one image for each write within the lag. A longer lag does not take back what was
/// carried over.
#[derive(Clone)]
pub struct StaleIndexes {
    inner: SharedHttpConnector,
    clock: SharedClock,
    schemas: Schemas,
    replica: EmbeddedDynamo,
    changes: Arc<Mutex<VecDeque<Change>>>,
    /// Held while an image is read and queued, so that the last image of an item is also the last in the queue.
    copying: Arc<tokio::sync::Mutex<()>>,
    lag_ms: Arc<AtomicU64>,
    tables_too: bool,
}

/// An item as a write left it.
struct Change {
    table: String,
    key: Value,
    item: Option<Value>,
    written_at_ms: u64,
}

impl StaleIndexes {
    /// A layer around `inner`, which must be a DynamoDB without tables. `lag_ms` may be changed at any time.
    ///
    /// # Errors
    ///
    /// [`EngineError::Memory`] if the second engine cannot be opened.
    pub fn new(
        inner: impl HttpConnector + 'static,
        clock: SharedClock,
        lag_ms: Arc<AtomicU64>,
    ) -> Result<Self, EngineError> {
        Ok(Self {
            inner: SharedHttpConnector::new(inner),
            replica: EmbeddedDynamo::memory(clock.clone())?,
            clock,
            schemas: Schemas::default(),
            changes: Arc::default(),
            copying: Arc::default(),
            lag_ms,
            tables_too: false,
        })
    }

    /// Lets reads of tables be behind as well, unless they ask for `ConsistentRead`. Call it before the layer is cloned.
    #[must_use]
    pub fn and_tables(mut self) -> Self {
        self.tables_too = true;
        self
    }

    /// Removes expired items from what stale reads see. The engine's own removal is not seen by this layer.
    ///
    /// # Errors
    ///
    /// [`EngineError::Sweep`] if the store fails.
    pub fn sweep_ttl(&self) -> Result<usize, EngineError> {
        self.replica.sweep_ttl()
    }

    async fn write(self, request: HttpRequest) -> Result<HttpResponse, ConnectorError> {
        let operation = wire::operation_of(&request).to_owned();
        let body = wire::json_of(&request);
        let response = self.inner.call(request).await?;
        if response.status().is_success() {
            self.schemas.forget(&operation, &body);
            self.copy_control(&operation, body.clone());
            for write in writes_of(&self.schemas, &self.inner, &operation, &body).await {
                self.queue(write).await;
            }
            self.catch_up();
        }
        Ok(response)
    }

    async fn queue(&self, write: Write) {
        let _one_at_a_time = self.copying.lock().await;
        let item = write.item_now(&self.inner).await;
        let change = Change { table: write.table, key: write.key, item, written_at_ms: self.clock.mono_ms() };
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).push_back(change);
    }

    /// Tables are the same on both sides at once. Nobody reads streams of the second engine: it has none.
    fn copy_control(&self, operation: &str, mut body: Value) {
        if !matches!(operation, "CreateTable" | "UpdateTable" | "DeleteTable" | "UpdateTimeToLive") {
            return;
        }
        if let Some(members) = body.as_object_mut() {
            members.remove("StreamSpecification");
        }
        self.run_on_replica(operation, &body);
    }

    /// Carries over what is older than the lag.
    fn catch_up(&self) {
        let now_ms = self.clock.mono_ms();
        let lag_ms = self.lag_ms.load(Ordering::Relaxed);
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        while changes.front().is_some_and(|change| change.written_at_ms.saturating_add(lag_ms) <= now_ms) {
            let Some(change) = changes.pop_front() else { break };
            match change.item {
                Some(item) => self.run_on_replica("PutItem", &json!({ "TableName": change.table, "Item": item })),
                None => self.run_on_replica("DeleteItem", &json!({ "TableName": change.table, "Key": change.key })),
            }
        }
    }

    fn run_on_replica(&self, operation: &str, body: &Value) {
        let (status, answer) = self.replica.apply(operation, body.to_string().as_bytes());
        if status != 200 {
            let answer = String::from_utf8_lossy(&answer);
            tracing::warn!(operation, status, %answer, "stale reads have lost touch with the table");
        }
    }

    fn may_be_behind(&self, operation: &str, body: &Value) -> bool {
        match operation {
            // Consistent reads of an index are refused: by the engine itself.
            _ if asks_for_consistency(body) => false,
            "Query" | "Scan" => self.tables_too || body["IndexName"].is_string(),
            "GetItem" | "BatchGetItem" => self.tables_too,
            _ => false,
        }
    }
}

impl HttpConnector for StaleIndexes {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let operation = wire::operation_of(&request);
        if wire::is_own(&request) {
            return self.inner.call(request);
        }
        if !matches!(operation, "Query" | "Scan" | "GetItem" | "BatchGetItem") {
            return HttpConnectorFuture::new(self.clone().write(request));
        }
        if self.may_be_behind(operation, &wire::json_of(&request)) {
            self.catch_up();
            return self.replica.call(request);
        }
        self.inner.call(request)
    }
}

impl fmt::Debug for StaleIndexes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("StaleIndexes").field("inner", &self.inner).finish_non_exhaustive()
    }
}

fn asks_for_consistency(body: &Value) -> bool {
    let mut tables = body["RequestItems"].as_object().into_iter().flat_map(|tables| tables.values());
    body["ConsistentRead"] == true || tables.any(|table| table["ConsistentRead"] == true)
}
