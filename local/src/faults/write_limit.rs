//! The limit of a hot key.

use super::bucket::Buckets;
use super::cost::{Charge, Partition, charges_of};
use super::rehearsal::{Outcome, Rehearsal};
use super::schema::Schemas;
use super::writes::{Write, writes_of};
use crate::engine::EngineError;
use crate::engine::wire::{self, Answers, DYNAMODB_ERRORS};
use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture, SharedHttpConnector};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;
use leasehold::clock::SharedClock;
use serde_json::{Value, json};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Refuses writes to a partition key value, of a table or of one of its global secondary indexes, beyond 1,000 write units a
/// second. "Each partition on a DynamoDB table is designed to deliver a maximum capacity of 3,000 read units per second
/// and 1,000 write units per second" (AWS, "Best practices for designing and using partition keys effectively"); the
/// items of one key value are on one partition.
///
/// The item before the write is read and the write is rehearsed on a copy, so it is known before it is applied which
/// keys it touches and what each has to bear: a token bucket of one second's worth for each. A write is admitted while all its
/// buckets are above zero, and may take them below. A failed condition costs what it costs on the table and nothing on
/// indexes; a write whose answer is lost stays charged.
///
/// Refused with `ProvisionedThroughputExceededException` and not applied; of a batch only the entries that are over the
/// limit, as `UnprocessedItems`, unless these are all. Reads are not limited. PartiQL is not looked at. DynamoDB may split
/// a hot partition at a sort key; that is not emulated, it takes minutes and does not help an index whose sort key rises.
#[derive(Clone)]
pub struct WriteLimit {
    inner: SharedHttpConnector,
    answers: Answers,
    schemas: Schemas,
    rehearsal: Rehearsal,
    buckets: Arc<Mutex<Buckets>>,
}

impl WriteLimit {
    /// DynamoDB's limit for a partition, in write units a second.
    pub const DYNAMODB: u32 = 1_000;

    /// A layer around `inner`, which must be DynamoDB.
    ///
    /// # Errors
    ///
    /// [`EngineError::Memory`] if the engine for rehearsals cannot be opened.
    pub fn new(
        inner: impl HttpConnector + 'static,
        clock: SharedClock,
        units_per_second: u32,
    ) -> Result<Self, EngineError> {
        Ok(Self {
            inner: SharedHttpConnector::new(inner),
            answers: Answers::new(clock.clone()),
            schemas: Schemas::default(),
            rehearsal: Rehearsal::new(clock)?,
            buckets: Arc::new(Mutex::new(Buckets::new(units_per_second))),
        })
    }

    async fn limit(self, mut request: HttpRequest) -> Result<HttpResponse, ConnectorError> {
        let operation = wire::operation_of(&request).to_owned();
        let mut body = wire::json_of(&request);
        let planned = self.plan(&operation, &body).await;
        let (admitted, refused) = self.admit(planned, operation == "BatchWriteItem");
        if let (true, Some((_, partition))) = (admitted.is_empty(), refused.first()) {
            return Ok(self.refusal(partition));
        }
        let unprocessed = take_out(&mut body, &refused);
        if !refused.is_empty() {
            wire::set_json(&mut request, &body);
        }
        let mut response = self.inner.call(request).await?;
        self.settle(&mut response, &admitted).await?;
        if response.status().is_success() {
            self.schemas.forget(&operation, &body);
            self.rehearsal.forget(&operation, &body);
            if !refused.is_empty() {
                add_unprocessed(&mut response, unprocessed).await?;
            }
        }
        Ok(response)
    }

    /// The writes of a request and what each costs.
    async fn plan(&self, operation: &str, body: &Value) -> Vec<Planned> {
        let factor = if operation == "TransactWriteItems" { 2.0 } else { 1.0 };
        let mut planned = Vec::new();
        for write in writes_of(&self.schemas, &self.inner, operation, body).await {
            let old = write.item_now(&self.inner).await;
            let new = match self.rehearsal.of(&write, old.as_ref()) {
                Outcome::Item(item) => item,
                Outcome::Refused => old.clone(),
            };
            let charges = charges_of(&write, old.as_ref(), new.as_ref(), factor);
            planned.push(Planned { write, charges });
        }
        planned
    }

    /// Takes the units of what may go on. Of a batch single writes may be refused, otherwise it is all or nothing.
    fn admit(&self, planned: Vec<Planned>, is_batch: bool) -> (Vec<Planned>, Vec<(Planned, Partition)>) {
        let now_ms = self.answers.clock().mono_ms();
        let mut buckets = self.buckets();
        let (mut admitted, mut refused) = (Vec::new(), Vec::new());
        for one in planned {
            match buckets.exhausted(&one.charges, now_ms).cloned() {
                Some(partition) => refused.push((one, partition)),
                None if is_batch => {
                    buckets.take(&one.charges, now_ms);
                    admitted.push(one);
                }
                None => admitted.push(one),
            }
        }
        if is_batch {
            return (admitted, refused);
        }
        if !refused.is_empty() {
            return (Vec::new(), refused);
        }
        admitted.iter().for_each(|one| buckets.take(&one.charges, now_ms));
        (admitted, refused)
    }

    /// Gives back what was not used after all.
    async fn settle(&self, response: &mut HttpResponse, admitted: &[Planned]) -> Result<(), ConnectorError> {
        if response.status().is_success() || admitted.is_empty() {
            return Ok(());
        }
        let answer: Value = serde_json::from_slice(&wire::read(response).await?).unwrap_or_default();
        let kind = answer["__type"].as_str().unwrap_or_default();
        let by_condition = kind.ends_with("ConditionalCheckFailedException");
        let now_ms = self.answers.clock().mono_ms();
        let mut buckets = self.buckets();
        for charge in admitted.iter().flat_map(|one| &one.charges) {
            if charge.partition.index.is_some() || !by_condition {
                buckets.give_back(charge, now_ms);
            }
        }
        Ok(())
    }

    fn refusal(&self, partition: &Partition) -> HttpResponse {
        let message = format!("the write units of {partition} are used up: try again later");
        self.answers.error(400, DYNAMODB_ERRORS, "ProvisionedThroughputExceededException", &message)
    }

    fn buckets(&self) -> MutexGuard<'_, Buckets> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HttpConnector for WriteLimit {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        if wire::is_own(&request) {
            return self.inner.call(request);
        }
        HttpConnectorFuture::new(self.clone().limit(request))
    }
}

impl fmt::Debug for WriteLimit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("WriteLimit").field("inner", &self.inner).finish_non_exhaustive()
    }
}

struct Planned {
    write: Write,
    charges: Vec<Charge>,
}

/// Takes refused entries out of a `BatchWriteItem` and returns them in the same form. A batch names no item twice.
fn take_out(body: &mut Value, refused: &[(Planned, Partition)]) -> Value {
    let mut taken = json!({});
    for (one, _) in refused {
        let entries = body["RequestItems"].get_mut(&one.write.table).and_then(Value::as_array_mut);
        let Some(entries) = entries else { continue };
        let Some(position) = entries.iter().position(|entry| is_of(entry, &one.write.key)) else { continue };
        let entry = entries.remove(position);
        match taken[&one.write.table].as_array_mut() {
            Some(list) => list.push(entry),
            None => taken[&one.write.table] = json!([entry]),
        }
    }
    if let Some(tables) = body["RequestItems"].as_object_mut() {
        tables.retain(|_, entries| entries.as_array().is_none_or(|entries| !entries.is_empty()));
    }
    taken
}

fn is_of(entry: &Value, key: &Value) -> bool {
    let item =
        if entry["PutRequest"].is_object() { &entry["PutRequest"]["Item"] } else { &entry["DeleteRequest"]["Key"] };
    key.as_object().is_some_and(|names| names.iter().all(|(name, value)| item[name] == *value))
}

async fn add_unprocessed(response: &mut HttpResponse, unprocessed: Value) -> Result<(), ConnectorError> {
    let mut answer: Value = serde_json::from_slice(&wire::read(response).await?).unwrap_or_default();
    answer["UnprocessedItems"] = unprocessed;
    response.headers_mut().remove("content-length");
    *response.body_mut() = SdkBody::from(answer.to_string());
    Ok(())
}
