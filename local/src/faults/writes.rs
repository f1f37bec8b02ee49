//! The single writes that a request consists of.

use super::schema::{Schemas, Table};
use crate::engine::wire;
use aws_smithy_runtime_api::client::http::SharedHttpConnector;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// A write of one item.
#[derive(Debug)]
pub(super) struct Write {
    pub table: String,
    pub layout: Arc<Table>,
    /// The item's key attributes.
    pub key: Value,
    pub change: Change,
}

/// What a write does to its item.
#[derive(Debug)]
pub(super) enum Change {
    Put(Value),
    Delete,
    /// The members of an `UpdateItem` request.
    Update(Value),
}

impl Write {
    /// The item as it is now, read consistently. `None` if there is none.
    pub async fn item_now(&self, connector: &SharedHttpConnector) -> Option<Value> {
        let request = json!({ "TableName": self.table, "Key": self.key, "ConsistentRead": true });
        let mut answer = wire::ask(connector, "GetItem", &request).await?;
        answer.get_mut("Item").map(Value::take)
    }
}

/// The writes of a request, in its order. PartiQL statements are not understood and give none, and neither does
/// what cannot be read: the engine refuses it. Condition checks of transactions write nothing.
pub(super) async fn writes_of(
    schemas: &Schemas,
    connector: &SharedHttpConnector,
    operation: &str,
    request: &Value,
) -> Vec<Write> {
    let mut writes = Vec::new();
    for (table, kind, members) in entries(operation, request) {
        let Some(layout) = schemas.of(connector, table).await else { continue };
        let change = match kind {
            "Put" => Change::Put(members["Item"].clone()),
            "Delete" => Change::Delete,
            "Update" => Change::Update(members.clone()),
            _ => continue,
        };
        let keyed = if kind == "Put" { &members["Item"] } else { &members["Key"] };
        if let Some(key) = key_of(&layout, keyed) {
            writes.push(Write { table: table.to_owned(), layout, key, change });
        }
    }
    writes
}

/// Table, kind and members of each entry of a request.
fn entries<'a>(operation: &str, request: &'a Value) -> Vec<(&'a str, &'a str, &'a Value)> {
    let table = request["TableName"].as_str();
    match (operation, table) {
        ("PutItem", Some(table)) => vec![(table, "Put", request)],
        ("UpdateItem", Some(table)) => vec![(table, "Update", request)],
        ("DeleteItem", Some(table)) => vec![(table, "Delete", request)],
        ("BatchWriteItem", _) => batch_entries(request),
        ("TransactWriteItems", _) => transaction_entries(request),
        _ => Vec::new(),
    }
}

fn batch_entries(request: &Value) -> Vec<(&str, &str, &Value)> {
    let mut entries = Vec::new();
    for (table, requests) in request["RequestItems"].as_object().into_iter().flatten() {
        for entry in requests.as_array().into_iter().flatten() {
            if let Some(members) = entry.get("PutRequest") {
                entries.push((table.as_str(), "Put", members));
            } else if let Some(members) = entry.get("DeleteRequest") {
                entries.push((table.as_str(), "Delete", members));
            }
        }
    }
    entries
}

fn transaction_entries(request: &Value) -> Vec<(&str, &str, &Value)> {
    let mut entries = Vec::new();
    for action in request["TransactItems"].as_array().into_iter().flatten() {
        for (kind, members) in action.as_object().into_iter().flatten() {
            if let Some(table) = members["TableName"].as_str() {
                entries.push((table, kind.as_str(), members));
            }
        }
    }
    entries
}

fn key_of(layout: &Table, item: &Value) -> Option<Value> {
    let mut key = Map::new();
    for name in &layout.keys {
        key.insert(name.clone(), item.get(name)?.clone());
    }
    Some(Value::Object(key))
}
