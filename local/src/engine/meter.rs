//! What the engine applied: the truth about cost, and about which message was stored when.

use super::wire;
use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture, SharedHttpConnector};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use leasehold::clock::SharedClock;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

const WRITES: [&str; 5] = ["PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "TransactWriteItems"];
const READS: [&str; 5] = ["GetItem", "Query", "Scan", "BatchGetItem", "TransactGetItems"];

/// A request that the engine has carried out successfully.
#[derive(Clone, Copy, Debug)]
pub struct Applied<'a> {
    /// The operation's name, such as `UpdateItem`.
    pub operation: &'a str,
    /// The request's body.
    pub request: &'a Value,
    /// The answer's body.
    pub answer: &'a Value,
    /// When it was applied, in milliseconds of the clock's monotonic time.
    pub at_ms: u64,
}

/// What a class of requests cost, in DynamoDB's capacity units.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Units {
    /// Write units on tables.
    pub table: f64,
    /// Write units on indexes.
    pub index: f64,
    /// Read units, on tables and indexes.
    pub read: f64,
    /// Requests, one for a batch.
    pub requests: u64,
}

/// Names the class that a request is counted under; `None` leaves it out.
pub type Classify = Arc<dyn Fn(&Applied<'_>) -> Option<&'static str> + Send + Sync>;

/// Sees each successful request, after it was counted.
pub type Observer = Arc<dyn Fn(&Applied<'_>) + Send + Sync>;

/// Counts what the connector inside it applies. It belongs directly around the engine: what a layer further out delays,
/// repeats or loses is then counted as it really happened.
///
/// It asks for `ReturnConsumedCapacity` = `INDEXES` whatever the request says, and leaves the `ConsumedCapacity` in the answer
/// (the SDK does not mind). Refused requests are not counted: DynamoDB bills a failed condition, but the answer does not
/// tell what. Requests that other layers make for themselves are passed on unseen.
#[derive(Clone)]
pub struct Meter {
    inner: SharedHttpConnector,
    clock: SharedClock,
    classify: Classify,
    observers: Vec<Observer>,
    totals: Arc<Mutex<BTreeMap<&'static str, Units>>>,
}

impl Meter {
    /// A meter around `inner`.
    pub fn new(inner: impl HttpConnector + 'static, clock: SharedClock, classify: Classify) -> Self {
        let inner = SharedHttpConnector::new(inner);
        Self { inner, clock, classify, observers: Vec::new(), totals: Arc::default() }
    }

    /// Lets `observer` see each successful request. Call it before the meter is cloned or handed on.
    #[must_use]
    pub fn observed_by(mut self, observer: Observer) -> Self {
        self.observers.push(observer);
        self
    }

    /// What was counted so far, by class.
    #[must_use]
    pub fn totals(&self) -> BTreeMap<&'static str, Units> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn count(&self, applied: &Applied<'_>) {
        if let Some(class) = (self.classify)(applied) {
            let mut totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
            totals.entry(class).or_default().add(applied);
        }
        for observer in &self.observers {
            observer(applied);
        }
    }
}

impl HttpConnector for Meter {
    fn call(&self, mut request: HttpRequest) -> HttpConnectorFuture {
        if wire::is_own(&request) {
            return self.inner.call(request);
        }
        let operation = wire::operation_of(&request).to_owned();
        let mut body = wire::json_of(&request);
        if reports_capacity(&operation) && body.is_object() {
            body["ReturnConsumedCapacity"] = "INDEXES".into();
            wire::set_json(&mut request, &body);
        }
        let meter = self.clone();
        let answered = self.inner.call(request);
        HttpConnectorFuture::new(async move {
            let mut response = answered.await?;
            if response.status().is_success() {
                let answer = serde_json::from_slice(&wire::read(&mut response).await?).unwrap_or_default();
                let at_ms = meter.clock.mono_ms();
                meter.count(&Applied { operation: &operation, request: &body, answer: &answer, at_ms });
            }
            Ok(response)
        })
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Meter").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Units {
    fn add(&mut self, applied: &Applied<'_>) {
        self.requests += 1;
        let is_write = WRITES.contains(&applied.operation);
        for consumed in reports(&applied.answer["ConsumedCapacity"]) {
            let table = units(&consumed["Table"]);
            let index = sum(&consumed["GlobalSecondaryIndexes"]) + sum(&consumed["LocalSecondaryIndexes"]);
            if is_write {
                self.table += table;
                self.index += index;
            } else {
                self.read += table + index;
            }
        }
    }
}

fn reports_capacity(operation: &str) -> bool {
    WRITES.contains(&operation) || READS.contains(&operation)
}

/// `ConsumedCapacity` is one report, or one for each table in batches and transactions.
fn reports(consumed: &Value) -> &[Value] {
    match consumed {
        Value::Array(reports) => reports,
        Value::Null => &[],
        report => std::slice::from_ref(report),
    }
}

fn sum(indexes: &Value) -> f64 {
    indexes.as_object().map_or(0.0, |indexes| indexes.values().map(units).sum())
}

fn units(report: &Value) -> f64 {
    report["CapacityUnits"].as_f64().unwrap_or_default()
}
