//! DynamoDB in this process.

use super::wire::{self, Answers};
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use dynoxide::{Database, DynoxideError};
use leasehold::clock::SharedClock;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const UNKNOWN_OPERATION: &str = r#"{"__type":"com.amazon.coral.service#UnknownOperationException"}"#;

/// Why the engine could not do something that is no request of the API.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// No store could be opened in memory.
    #[error("cannot open the embedded engine in memory")]
    Memory(#[source] DynoxideError),
    /// The file could not be opened or is no database.
    #[error("cannot open {path} as an embedded engine's database: check the directory and its permissions")]
    File {
        /// The file that was asked for.
        path: PathBuf,
        /// What the engine said.
        source: DynoxideError,
    },
    /// The removal of expired items failed half-way; what is left is removed by the next one.
    #[error("the removal of expired items did not finish")]
    Sweep(#[source] DynoxideError),
}

/// A DynamoDB engine behind the SDK's connector interface: tables, indexes, streams, TTL, transactions.
///
/// A request is carried out on the caller's thread when `call` is called, before the future is awaited: under paused
/// time nothing else can run in between, and a run can be repeated. It takes a fraction of a millisecond.
///
/// Not emulated here: throttling, the write limit of a key, stale reads, transaction conflicts (see [`crate::faults`]),
/// more than one shard in a stream, and authentication: signatures are not looked at.
#[derive(Clone)]
pub struct EmbeddedDynamo {
    database: Database,
    answers: Answers,
}

impl EmbeddedDynamo {
    /// An engine in memory that lives by `clock`: dates of answers, times of stream records, TTL.
    ///
    /// # Errors
    ///
    /// [`EngineError::Memory`] if SQLite cannot open a store.
    pub fn memory(clock: SharedClock) -> Result<Self, EngineError> {
        let engine_clock = Arc::new(EngineClock(clock.clone()));
        let database = Database::memory_with_clock(engine_clock).map_err(EngineError::Memory)?;
        Ok(Self { database, answers: Answers::new(clock) })
    }

    /// An engine whose tables are in the file `path` and survive the process.
    ///
    /// Only the dates of answers follow `clock`: the engine cannot combine a file with a clock of ours, so TTL, and the
    /// times and retention of stream records, follow the machine's clock. Do not use it with virtual time.
    ///
    /// # Errors
    ///
    /// [`EngineError::File`] if the file cannot be opened.
    pub fn file(path: &Path, clock: SharedClock) -> Result<Self, EngineError> {
        let opened = Database::new(&path.to_string_lossy());
        let database = opened.map_err(|source| EngineError::File { path: path.to_owned(), source })?;
        Ok(Self { database, answers: Answers::new(clock) })
    }

    /// Removes the items whose TTL has passed, with stream records as DynamoDB's own removal makes them. Returns how many.
    /// DynamoDB does this "within a few days"; here it happens when it is asked for.
    ///
    /// # Errors
    ///
    /// [`EngineError::Sweep`] if the store fails.
    pub fn sweep_ttl(&self) -> Result<usize, EngineError> {
        self.database.sweep_ttl().map_err(EngineError::Sweep)
    }

    /// Carries one request out: the HTTP status and the JSON body of the answer.
    #[must_use]
    pub fn apply(&self, operation: &str, body: &[u8]) -> (u16, Vec<u8>) {
        match super::dispatch::run(&self.database, operation, body) {
            Some(Ok(answer)) => (200, answer),
            Some(Err(error)) => (error.status_code(), error.to_json().into_bytes()),
            None => (400, UNKNOWN_OPERATION.as_bytes().to_vec()),
        }
    }
}

impl HttpConnector for EmbeddedDynamo {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let body = request.body().bytes().unwrap_or_default();
        let (status, answer) = self.apply(wire::operation_of(&request), body);
        HttpConnectorFuture::ready(Ok(self.answers.json(status, answer)))
    }
}

impl HttpClient for EmbeddedDynamo {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

impl fmt::Debug for EmbeddedDynamo {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("EmbeddedDynamo").finish_non_exhaustive()
    }
}

/// Our clock as the engine wants it.
struct EngineClock(SharedClock);

impl dynoxide::storage_backend::Clock for EngineClock {
    fn now_unix_secs(&self) -> u64 {
        self.0.wall_ms() / 1_000
    }

    fn now_unix_secs_f64(&self) -> f64 {
        self.0.wall_ms() as f64 / 1_000.0
    }
}
