//! What an update will make of an item, found by doing it to a copy in an engine of its own.

use super::writes::{Change, Write};
use crate::engine::{EmbeddedDynamo, EngineError};
use leasehold::clock::SharedClock;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

/// An engine with the keys of the real tables, no indexes, and never more than one item.
#[derive(Clone, Debug)]
pub(super) struct Rehearsal {
    engine: EmbeddedDynamo,
    tables: Arc<Mutex<HashSet<String>>>,
}

/// How a rehearsed write ends.
#[derive(Debug, PartialEq)]
pub(super) enum Outcome {
    /// The item afterwards, if there is one.
    Item(Option<Value>),
    /// The engine refuses the write: its condition does not hold, or it is invalid.
    Refused,
}

impl Rehearsal {
    pub fn new(clock: SharedClock) -> Result<Self, EngineError> {
        Ok(Self { engine: EmbeddedDynamo::memory(clock)?, tables: Arc::default() })
    }

    /// Conditions of puts and deletes are not looked at: what these would leave behind is known.
    pub fn of(&self, write: &Write, old: Option<&Value>) -> Outcome {
        match &write.change {
            Change::Put(item) => Outcome::Item(Some(item.clone())),
            Change::Delete => Outcome::Item(None),
            Change::Update(members) => self.update(write, members, old),
        }
    }

    fn update(&self, write: &Write, members: &Value, old: Option<&Value>) -> Outcome {
        // Held over the three requests: the item is in the engine only for their time.
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        if tables.insert(write.table.clone()) {
            self.create_table(write);
        }
        let table = &write.table;
        if let Some(item) = old {
            self.run("PutItem", &json!({ "TableName": table, "Item": item }));
        }
        let mut request = members.clone();
        request["ReturnValues"] = "ALL_NEW".into();
        let answer = self.run("UpdateItem", &request);
        self.run("DeleteItem", &json!({ "TableName": table, "Key": write.key }));
        match answer {
            Some(answer) => Outcome::Item(answer.get("Attributes").cloned()),
            None => Outcome::Refused,
        }
    }

    /// To be told of every operation: a table that is made again may have other keys.
    pub fn forget(&self, operation: &str, request: &Value) {
        if let ("CreateTable" | "DeleteTable", Some(table)) = (operation, request["TableName"].as_str()) {
            let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
            if tables.remove(table) {
                self.run("DeleteTable", &json!({ "TableName": table }));
            }
        }
    }

    fn create_table(&self, write: &Write) {
        let definitions = write.layout.definitions.as_array().into_iter().flatten();
        let is_key = |definition: &&Value| write.layout.keys.iter().any(|key| definition["AttributeName"] == *key);
        let definitions: Vec<&Value> = definitions.filter(is_key).collect();
        let request = json!({
            "TableName": write.table,
            "KeySchema": write.layout.key_schema,
            "AttributeDefinitions": definitions,
            "BillingMode": "PAY_PER_REQUEST",
        });
        self.run("CreateTable", &request);
    }

    fn run(&self, operation: &str, request: &Value) -> Option<Value> {
        let (status, answer) = self.engine.apply(operation, request.to_string().as_bytes());
        if status != 200 {
            return None;
        }
        serde_json::from_slice(&answer).ok()
    }
}
