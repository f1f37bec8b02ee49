//! The function `desired-state`: decides for each row touched whether to claim it, mark its owner, reap, stamp, or do nothing.
//!
//! A change wakes the function and informs it of nothing but who owned the row before: rows and sessions are read again, consistently.
//! Changes of one row in one batch are therefore one piece of work.

mod record;
mod settings;

pub use record::{BadRecord, Change};
pub use settings::Settings;

use leasehold::aws::apply::{Applied, apply};
use leasehold::aws::owners::Owners;
use leasehold::aws::queues::Queue;
use leasehold::aws::sdk::{self, DynamoClients};
use leasehold::aws::together::together;
use leasehold::aws::{Store, StoreError};
use leasehold::clock::SystemClock;
use leasehold::decide::desired::{Plan, Row, Seen, decide};
use leasehold::decide::timing::{Rules, Timing};
use leasehold::model::{ConnectionId, SessionId};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// The function.
#[derive(Debug)]
pub struct DesiredState {
    /// The tables.
    pub store: Store,
    /// Where claims go.
    pub claims: Queue,
    /// The protocol's numbers.
    pub timing: Timing,
    /// The protocol's rules.
    pub rules: Rules,
}

/// Why a whole batch fails, and is sent again.
#[derive(Debug, thiserror::Error)]
pub enum HandlerError {
    /// The event is none of a stream.
    #[error("the event has no Records: this function belongs on the stream of the table of connections")]
    Event,
    /// Something failed that cannot be named in a partial answer.
    #[error("a record without a SequenceNumber could not be handled: {0}")]
    Nameless(#[source] StoreError),
    /// Requests were answered, but none had a Date.
    #[error("no answer of DynamoDB carried a Date: there is no lease time")]
    NoLeaseTime,
}

/// How Lambda reports it.
impl From<HandlerError> for lambda_runtime::Diagnostic {
    fn from(error: HandlerError) -> Self {
        Self { error_type: "HandlerError".into(), error_message: error.to_string() }
    }
}

/// All changes of one row in a batch.
struct Touched {
    id: ConnectionId,
    old_owners: Vec<SessionId>,
    sequence_numbers: Vec<Option<String>>,
}

/// A batch, decoded.
#[derive(Default)]
struct Batch {
    touched: Vec<Touched>,
    /// Changes that ask for nothing, such as our own writes.
    ignored: u64,
    /// Records that are none of ours.
    skipped: u64,
}

impl DesiredState {
    /// Connects to AWS as the environment says.
    pub async fn connect(settings: Settings) -> Self {
        let config = sdk::load().await;
        let clients = DynamoClients::new(aws_sdk_dynamodb::config::Builder::from(&config), Arc::new(SystemClock));
        Self {
            store: Store::new(clients, settings.tables),
            claims: Queue::new(aws_sdk_sqs::config::Builder::from(&config), settings.claims_queue_url),
            timing: settings.timing,
            rules: Rules::default(),
        }
    }

    /// Handles a batch of stream records. The answer names those to send again in `batchItemFailures`, and counts in `skipped` those that
    /// can never be understood, if there are any.
    ///
    /// # Errors
    /// [`HandlerError`]: the whole batch is sent again.
    pub async fn handle(&self, event: Value) -> Result<Value, HandlerError> {
        let batch = decode(event)?;
        // Lease time starts anew: the process may have slept since the last invocation.
        let store = self.store.anew();
        let mut failed = HashMap::new();
        let plans = self.plan(&store, &batch.touched, &mut failed).await?;
        let mut applied = Applied::default();
        if let Some(now) = store.time().now() {
            applied = apply(&store, &self.claims, &plans, now).await;
        }
        failed.extend(applied.failed.drain());
        let failures = failures(&batch.touched, &failed)?;
        tracing::info!(
            event = "desired_state",
            rows = batch.touched.len(),
            ignored = batch.ignored,
            skipped = batch.skipped,
            failed = failed.len(),
            marked = applied.marked,
            reaped = applied.reaped,
            stamped = applied.stamped,
            faults = applied.faults,
            claimed = applied.claimed,
        );
        let mut answer = json!({ "batchItemFailures": failures });
        if batch.skipped > 0 {
            answer["skipped"] = batch.skipped.into();
        }
        Ok(answer)
    }

    /// Reads rows and sessions, and decides. Rows that could not be read end up in `failed`.
    async fn plan(
        &self,
        store: &Store,
        touched: &[Touched],
        failed: &mut HashMap<ConnectionId, StoreError>,
    ) -> Result<Vec<Plan>, HandlerError> {
        let reads = touched.iter().map(|change| async move { (change, store.connection(&change.id).await) });
        let mut rows = Vec::new();
        for (change, answer) in together(reads.collect()).await {
            match answer {
                Ok(item) => rows.push((change, Row::read(item.as_ref()))),
                Err(error) => {
                    failed.insert(change.id.clone(), error);
                }
            }
        }
        let mut wanted = BTreeSet::new();
        for (change, row) in &rows {
            wanted.extend(change.old_owners.iter().cloned().chain(row.owner().cloned()));
        }
        let mut owners = Owners::default();
        let unread = owners.learn(store, wanted).await.err();
        let Some(now) = store.time().now() else {
            return if rows.is_empty() { Ok(Vec::new()) } else { Err(HandlerError::NoLeaseTime) };
        };
        let mut plans = Vec::new();
        for (change, row) in rows {
            let olds = change.old_owners.iter().map(|old| Some((old.clone(), owners.view(Some(old))?)));
            let olds: Option<Vec<_>> = olds.collect();
            if let (Some(old_owners), Some(owner)) = (olds, owners.view(row.owner())) {
                let seen = Seen { old_owners: &old_owners, row: &row, owner };
                plans.push(Plan { id: change.id.clone(), decision: decide(&seen, now, &self.timing, self.rules) });
                log_unreadable(&change.id, &row);
            } else if let Some(error) = &unread {
                failed.insert(change.id.clone(), error.clone());
            }
        }
        Ok(plans)
    }
}

fn decode(event: Value) -> Result<Batch, HandlerError> {
    let Value::Object(mut event) = event else { return Err(HandlerError::Event) };
    let Some(Value::Array(records)) = event.remove("Records") else { return Err(HandlerError::Event) };
    let mut batch = Batch::default();
    let mut places: HashMap<ConnectionId, usize> = HashMap::new();
    for record in records {
        match Change::decode(record) {
            // Reported as failed, it would hold all records behind it back until its retries end, and be no better for it. It is
            // acknowledged, loudly; what it stood for is found by reconcile, which needs no events.
            Err(error) => {
                tracing::error!(event = "bad_record", %error, "a record of the stream is skipped");
                batch.skipped += 1;
            }
            Ok(change) if !change.wants_look => batch.ignored += 1,
            Ok(change) => {
                let place = *places.entry(change.id.clone()).or_insert(batch.touched.len());
                if place == batch.touched.len() {
                    batch.touched.push(Touched { id: change.id, old_owners: Vec::new(), sequence_numbers: Vec::new() });
                }
                batch.touched[place].old_owners.extend(change.old_owner);
                batch.touched[place].sequence_numbers.push(change.sequence_number);
            }
        }
    }
    Ok(batch)
}

fn log_unreadable(id: &ConnectionId, row: &Row) {
    if let Row::Unreadable { fault, .. } = row {
        tracing::error!(event = "bad_row", connection = %id, fault, "a row cannot be read");
    }
}

/// The records to send again: those of rows that failed for a reason that can pass.
fn failures(touched: &[Touched], failed: &HashMap<ConnectionId, StoreError>) -> Result<Vec<Value>, HandlerError> {
    let mut out = Vec::new();
    for row in touched {
        let Some(error) = failed.get(&row.id) else { continue };
        if matches!(error, StoreError::Invalid { .. }) {
            // The same request would be refused again, and hold everybody else up meanwhile. The sweep comes back to it.
            tracing::error!(event = "refused_row", connection = %row.id, %error, "a row is skipped");
            continue;
        }
        for number in &row.sequence_numbers {
            let Some(number) = number else { return Err(HandlerError::Nameless(error.clone())) };
            out.push(json!({ "itemIdentifier": number }));
        }
    }
    Ok(out)
}
