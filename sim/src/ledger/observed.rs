//! The engine, and the record of what it applied.

use crate::faults::line::SENDER;
use crate::invariants;
use crate::ledger::Ledger;
use crate::time::WorldClock;
use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use leasehold::aws::Tables;
use leasehold_local::engine::EmbeddedDynamo;
use leasehold_local::engine::wire::{self, Answers};
use serde_json::Value;
use std::fmt;
use std::sync::Arc;

/// Belongs directly around the engine: what layers further out delay, repeat or lose is recorded as it really happened.
#[derive(Clone)]
pub struct Observed {
    engine: EmbeddedDynamo,
    answers: Answers,
    ledger: Ledger,
    tables: Arc<Tables>,
}

/// A write of one item that was applied.
#[derive(Clone, Debug)]
pub struct Applied<'a> {
    /// Who sent it.
    pub who: &'a str,
    /// The request's key or item.
    pub key: &'a Value,
    /// The item as it is now; `None` if there is none any more.
    pub new: Option<Value>,
}

impl Observed {
    /// The engine with a record.
    #[must_use]
    pub fn new(engine: EmbeddedDynamo, clock: WorldClock, ledger: Ledger, tables: Tables) -> Self {
        Self { engine, answers: Answers::new(Arc::new(clock)), ledger, tables: Arc::new(tables) }
    }

    fn note(&self, operation: &str, who: &str, body: &Value, answer: &Value) {
        match operation {
            "TransactWriteItems" => {
                for action in body["TransactItems"].as_array().into_iter().flatten() {
                    let put = &action["Put"];
                    if put.is_object() {
                        self.note_one(put, &Applied { who, key: &put["Item"], new: Some(put["Item"].clone()) });
                    }
                }
            }
            "PutItem" => self.note_one(body, &Applied { who, key: &body["Item"], new: Some(body["Item"].clone()) }),
            "DeleteItem" => self.note_one(body, &Applied { who, key: &body["Key"], new: None }),
            _ => {
                let new = answer.get("Attributes").cloned();
                self.note_one(body, &Applied { who, key: &body["Key"], new });
            }
        }
    }

    fn note_one(&self, request: &Value, applied: &Applied<'_>) {
        let table = request["TableName"].as_str().unwrap_or_default();
        let mut book = self.ledger.open();
        book.tally.writes += 1;
        if table == self.tables.connections {
            invariants::rows::written(&mut book, applied);
        } else if table == self.tables.sessions {
            invariants::sessions::written(&mut book, applied);
        } else if table == self.tables.messages {
            invariants::messages::written(&mut book, applied);
        }
    }
}

fn is_write(operation: &str) -> bool {
    matches!(operation, "PutItem" | "UpdateItem" | "DeleteItem" | "TransactWriteItems")
}

impl HttpConnector for Observed {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let operation = wire::operation_of(&request);
        if wire::is_own(&request) || !is_write(operation) {
            let (status, answer) = self.engine.apply(operation, request.body().bytes().unwrap_or_default());
            return HttpConnectorFuture::ready(Ok(self.answers.json(status, answer)));
        }
        let mut body = wire::json_of(&request);
        if operation == "UpdateItem" {
            // The record needs the item as it is afterwards. Who did not ask for it does not mind.
            body["ReturnValues"] = "ALL_NEW".into();
        }
        let (status, answer) = self.engine.apply(operation, body.to_string().as_bytes());
        if status == 200 {
            let who = request.headers().get(SENDER).unwrap_or("hand");
            let read = serde_json::from_slice(&answer).unwrap_or_default();
            self.note(operation, who, &body, &read);
        }
        HttpConnectorFuture::ready(Ok(self.answers.json(status, answer)))
    }
}

impl fmt::Debug for Observed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Observed").finish_non_exhaustive()
    }
}
