//! The queues as one JSON value, and back: how they outlive their process.

use super::attributes::QueueConfig;
use super::fifo::Deduplication;
use super::limits::QueueLimits;
use super::message::Message;
use super::move_tasks::MoveTask;
use super::state::QueueState;
use super::store::{Queue, Store};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The form that is written. A form that old code cannot read gets a new number.
const VERSION: u32 = 1;

/// Why a snapshot was refused. The queues are then as they were.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// Not a snapshot, or a damaged one.
    #[error("the queue snapshot cannot be read: {0}")]
    Malformed(#[from] serde_json::Error),
    /// Written by newer code.
    #[error("the queue snapshot has version {0}, this program reads version {VERSION}: use the program that wrote it")]
    Version(u32),
}

#[derive(Serialize, Deserialize)]
struct Snapshot {
    version: u32,
    last_number: u64,
    queues: Vec<QueueSnapshot>,
    deleted: BTreeMap<String, u64>,
    tasks: Vec<MoveTask>,
}

#[derive(Serialize, Deserialize)]
struct QueueSnapshot {
    name: String,
    config: QueueConfig,
    tags: BTreeMap<String, String>,
    created_ms: u64,
    modified_ms: u64,
    purged_ms: Option<u64>,
    messages: Vec<Message>,
    deduplication: Deduplication,
}

/// Everything but the limits, which belong to the process. Times are wall times, so a message in flight comes back when
/// its invisibility ends, however long the process was away.
///
/// # Errors
/// None in practice: the form has no keys but texts.
pub(super) fn save(store: &Store) -> Result<Value, serde_json::Error> {
    let queues = store.queues.values().map(|queue| save_queue(&queue.state)).collect();
    serde_json::to_value(Snapshot {
        version: VERSION,
        last_number: store.last_number,
        queues,
        deleted: store.deleted.clone(),
        tasks: store.tasks.clone(),
    })
}

/// Reads what [`save`] wrote.
///
/// # Errors
/// See [`RestoreError`].
pub(super) fn load(value: Value, limits: QueueLimits) -> Result<Store, RestoreError> {
    let version = value["version"].as_u64().and_then(|version| u32::try_from(version).ok()).unwrap_or(VERSION);
    if version != VERSION {
        return Err(RestoreError::Version(version));
    }
    let snapshot: Snapshot = serde_json::from_value(value)?;
    let mut store = Store::new(limits);
    store.last_number = snapshot.last_number;
    store.deleted = snapshot.deleted;
    store.tasks = snapshot.tasks;
    for queue in snapshot.queues {
        let state = load_queue(queue, limits);
        store.queues.insert(state.name.clone(), Queue { state, arrivals: Arc::default() });
    }
    Ok(store)
}

fn save_queue(state: &QueueState) -> QueueSnapshot {
    QueueSnapshot {
        name: state.name.clone(),
        config: state.config.clone(),
        tags: state.tags.clone(),
        created_ms: state.created_ms,
        modified_ms: state.modified_ms,
        purged_ms: state.purged_ms,
        messages: state.messages.values().cloned().collect(),
        deduplication: state.deduplication.clone(),
    }
}

fn load_queue(snapshot: QueueSnapshot, limits: QueueLimits) -> QueueState {
    let mut state = QueueState::new(&snapshot.name, snapshot.config, limits, snapshot.created_ms);
    state.tags = snapshot.tags;
    state.modified_ms = snapshot.modified_ms;
    state.purged_ms = snapshot.purged_ms;
    state.deduplication = snapshot.deduplication;
    for message in snapshot.messages {
        state.put(message);
    }
    state
}
