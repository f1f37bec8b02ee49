//! What a write costs, and whom: AWS, "DynamoDB read and write capacity" and "Provisioned throughput considerations for
//! Global Secondary Indexes".
//!
//! | index entry before | after | units |
//! | --- | --- | --- |
//! | none | there | of the new entry |
//! | there | none | of the old entry |
//! | there | same key, same content | none |
//! | there | same key, other content | of the larger one |
//! | there | other key | of the old one and of the new one |

use super::schema::{Index, Table};
use super::writes::Write;
use dynoxide::types::{Item, item_size, write_capacity_units};
use serde_json::{Map, Value};
use std::fmt;

/// What has a limit of its own: one partition key value of a table or of one of its indexes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Partition {
    pub table: String,
    pub index: Option<String>,
    /// The partition key's attribute values, as JSON.
    pub key: String,
}

impl fmt::Display for Partition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.index {
            Some(index) => write!(formatter, "key {} of index {index} of table {}", self.key, self.table),
            None => write!(formatter, "key {} of table {}", self.key, self.table),
        }
    }
}

/// Write units that one partition has to bear.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Charge {
    pub partition: Partition,
    pub units: f64,
}

/// The charges of a write that turns the item `old` into `new`. `factor` is 2 in transactions.
pub(super) fn charges_of(write: &Write, old: Option<&Value>, new: Option<&Value>, factor: f64) -> Vec<Charge> {
    let mut charges = vec![table_charge(write, old, new)];
    for index in &write.layout.indexes {
        index_charges(write, index, old, new, &mut charges);
    }
    for charge in &mut charges {
        charge.units *= factor;
    }
    charges
}

fn table_charge(write: &Write, old: Option<&Value>, new: Option<&Value>) -> Charge {
    let units = units_of(old).max(units_of(new));
    let key = write.layout.keys.first().map(|name| write.key[name].to_string()).unwrap_or_default();
    Charge { partition: Partition { table: write.table.clone(), index: None, key }, units }
}

fn index_charges(write: &Write, index: &Index, old: Option<&Value>, new: Option<&Value>, charges: &mut Vec<Charge>) {
    let old = old.and_then(|item| Entry::of(&write.layout, index, item));
    let new = new.and_then(|item| Entry::of(&write.layout, index, item));
    let mut charge = |entry: &Entry, units: f64| {
        let index = Some(index.name.clone());
        let partition = Partition { table: write.table.clone(), index, key: entry.partition.clone() };
        charges.push(Charge { partition, units });
    };
    match (old, new) {
        (Some(old), Some(new)) if old.content == new.content => {}
        (Some(old), Some(new)) if old.key == new.key => charge(&new, old.units().max(new.units())),
        (old, new) => {
            for entry in old.iter().chain(&new) {
                charge(entry, entry.units());
            }
        }
    }
}

/// An item as an index keeps it.
struct Entry {
    partition: String,
    /// All key values, as JSON.
    key: Vec<String>,
    content: Value,
}

impl Entry {
    /// `None` if the item lacks a key attribute of the index and so is not in it.
    fn of(layout: &Table, index: &Index, item: &Value) -> Option<Self> {
        let mut key = Vec::new();
        for name in &index.keys {
            key.push(item.get(name)?.to_string());
        }
        let partition = key[..index.partition_keys].join(" ");
        Some(Self { partition, key, content: projected(layout, index, item) })
    }

    fn units(&self) -> f64 {
        units_of(Some(&self.content))
    }
}

fn projected(layout: &Table, index: &Index, item: &Value) -> Value {
    let Some(attributes) = &index.projected else { return item.clone() };
    let mut content = Map::new();
    for name in layout.keys.iter().chain(&index.keys).chain(attributes) {
        if let Some(value) = item.get(name) {
            content.insert(name.clone(), value.clone());
        }
    }
    Value::Object(content)
}

/// One unit for each started KB, one at least: a write is never free.
fn units_of(item: Option<&Value>) -> f64 {
    let read: Option<Item> = item.and_then(|item| serde_json::from_value(item.clone()).ok());
    write_capacity_units(read.as_ref().map_or(0, item_size))
}
