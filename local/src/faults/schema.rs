//! Keys and indexes of tables, learnt from the tables themselves.

use crate::engine::wire;
use aws_smithy_runtime_api::client::http::SharedHttpConnector;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// How a table is laid out.
#[derive(Debug)]
pub(super) struct Table {
    /// Partition and, if there is one, sort key attribute.
    pub keys: Vec<String>,
    pub indexes: Vec<Index>,
    /// The members `KeySchema` and `AttributeDefinitions` of the description.
    pub key_schema: Value,
    pub definitions: Value,
}

/// A global secondary index.
#[derive(Debug)]
pub(super) struct Index {
    pub name: String,
    /// Key attributes, those of the partition key first.
    pub keys: Vec<String>,
    /// How many of the keys make the partition key.
    pub partition_keys: usize,
    /// Projected attributes besides the keys; `None` means all.
    pub projected: Option<Vec<String>>,
}

/// What is known of tables. It is asked for once and forgotten when a table is created, changed or deleted.
#[derive(Clone, Debug, Default)]
pub(super) struct Schemas(Arc<Mutex<HashMap<String, Arc<Table>>>>);

impl Schemas {
    /// The layout of a table, by `DescribeTable` if need be. `None` if there is no such table.
    pub async fn of(&self, connector: &SharedHttpConnector, table: &str) -> Option<Arc<Table>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(table).cloned();
        if known.is_some() {
            return known;
        }
        let answer = wire::ask(connector, "DescribeTable", &json!({ "TableName": table })).await?;
        let learnt = Arc::new(read(&answer["Table"])?);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(table.to_owned(), learnt.clone());
        Some(learnt)
    }

    /// To be told of every operation.
    pub fn forget(&self, operation: &str, request: &Value) {
        if let ("CreateTable" | "UpdateTable" | "DeleteTable", Some(table)) = (operation, request["TableName"].as_str())
        {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(table);
        }
    }
}

fn read(description: &Value) -> Option<Table> {
    let (keys, _) = key_names(&description["KeySchema"])?;
    let mut indexes = Vec::new();
    for index in description["GlobalSecondaryIndexes"].as_array().into_iter().flatten() {
        let (keys, partition_keys) = key_names(&index["KeySchema"])?;
        let projection = &index["Projection"];
        let projected = match projection["ProjectionType"].as_str() {
            Some("ALL") => None,
            _ => Some(texts(&projection["NonKeyAttributes"])),
        };
        indexes.push(Index { name: index["IndexName"].as_str()?.to_owned(), keys, partition_keys, projected });
    }
    let definitions = description["AttributeDefinitions"].clone();
    Some(Table { keys, indexes, key_schema: description["KeySchema"].clone(), definitions })
}

/// The names of the key attributes, those of the partition key first, and how many these are.
fn key_names(schema: &Value) -> Option<(Vec<String>, usize)> {
    let elements = schema.as_array()?;
    let of_type = |wanted: &str| {
        let chosen = elements.iter().filter(|element| element["KeyType"] == wanted);
        chosen.filter_map(|element| element["AttributeName"].as_str()).map(str::to_owned).collect::<Vec<_>>()
    };
    let mut keys = of_type("HASH");
    let partition_keys = keys.len();
    keys.extend(of_type("RANGE"));
    (partition_keys > 0).then_some((keys, partition_keys))
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}
