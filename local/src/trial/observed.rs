//! When each message was stored, as the engine saw it: not what a worker or a table says of itself.

use crate::engine::meter::{Applied, Observer};
use leasehold::model::ConnectionId;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// When each message was stored, by connection, in order; milliseconds of the process's monotonic clock.
#[derive(Clone, Debug, Default)]
pub struct StoredLog(Arc<Mutex<HashMap<String, Vec<u64>>>>);

impl StoredLog {
    /// What writes this log.
    #[must_use]
    pub fn observer(&self) -> Observer {
        let log = self.clone();
        Arc::new(move |applied: &Applied<'_>| match applied.operation {
            "PutItem" => log.put(applied.request, applied.at_ms),
            "TransactWriteItems" => {
                for action in applied.request["TransactItems"].as_array().into_iter().flatten() {
                    log.put(&action["Put"], applied.at_ms);
                }
            }
            _ => {}
        })
    }

    fn put(&self, put: &Value, at_ms: u64) {
        let item = &put["Item"];
        // Only messages have both: rows of connections have no `Sk`.
        let (Some(pk), Some(_)) = (item["Pk"]["S"].as_str(), item["Sk"]["S"].as_str()) else { return };
        let Ok(id) = ConnectionId::from_pk(pk) else { return };
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.entry(id.to_string()).or_default().push(at_ms);
    }

    /// A copy of it all.
    #[must_use]
    pub fn snapshot(&self) -> HashMap<String, Vec<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// When the last message of a connection was stored; 0 before the first.
    #[must_use]
    pub fn last_ms(&self, id: &str) -> u64 {
        let log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.get(id).and_then(|stored| stored.last()).copied().unwrap_or(0)
    }

    /// How many connections have something stored after `since_ms`.
    #[must_use]
    pub fn connections_since(&self, since_ms: u64) -> usize {
        let log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.values().filter(|stored| stored.last().is_some_and(|last| *last > since_ms)).count()
    }

    /// Messages stored so far.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().map(Vec::len).sum()
    }
}
