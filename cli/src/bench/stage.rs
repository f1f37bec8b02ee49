//! What a measurement runs on: the embedded engine behind DynamoDB's limit for a key, embedded queues, and the time that AWS would take.

use anyhow::{Context, Result, ensure};
use aws_sdk_dynamodb::types::{AttributeValue, PutRequest, StreamSpecification, WriteRequest};
use aws_sdk_sqs::types::DeleteMessageBatchRequestEntry;
use leasehold::aws::queues::Queue;
use leasehold::aws::sdk::DynamoClients;
use leasehold::aws::sessions::{Identity, Load};
use leasehold::aws::together::together;
use leasehold::aws::{Store, Tables};
use leasehold::clock::{SharedClock, SystemClock};
use leasehold::decide::timing::{Rules, Timing};
use leasehold::model::{Item, SessionId};
use leasehold_local::engine::{EmbeddedDynamo, clients};
use leasehold_local::faults::{Call, Fault, Faulty, WriteLimit};
use leasehold_local::queue::EmbeddedSqs;
use leasehold_local::stack::{self, Names, QueueUrls};
use leasehold_reconcile::Reconcile;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::sleep;

/// What DynamoDB takes in one `BatchWriteItem`.
const ROWS_A_BATCH: usize = 25;
/// Batches that are made before they are sent.
const BATCHES_TOGETHER: usize = 64;

/// Tables and queues, and the functions on them.
pub struct Stage {
    /// Everybody's clock.
    pub clock: SharedClock,
    /// The protocol's numbers.
    pub timing: Timing,
    /// What the functions asked of DynamoDB.
    pub asked: Asked,
    tables: Tables,
    urls: QueueUrls,
    /// Past limit and latency: for what is there before the measurement.
    engine: EmbeddedDynamo,
    /// Behind both.
    dynamo: Faulty,
    sqs: Faulty,
    queues: EmbeddedSqs,
}

/// Requests that are counted.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    by_owner: Arc<AtomicU64>,
    scans: Arc<AtomicU64>,
}

impl Asked {
    fn count(&self, call: &Call<'_>) {
        if call.operation == "Scan" {
            self.scans.fetch_add(1, Ordering::Relaxed);
        } else if call.request["IndexName"] == "by_owner" {
            self.by_owner.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Pages of `by_owner`, and of scans, since the last call.
    #[must_use]
    pub fn take(&self) -> (u64, u64) {
        (self.by_owner.swap(0, Ordering::Relaxed), self.scans.swap(0, Ordering::Relaxed))
    }
}

impl Stage {
    /// Empty tables and queues. Each request takes `latency_ms` longer than the engine needs.
    ///
    /// # Errors
    /// When the engine does not start.
    pub async fn new(latency_ms: u64) -> Result<Self> {
        let clock: SharedClock = Arc::new(SystemClock);
        let engine = EmbeddedDynamo::memory(clock.clone())?;
        let queues = EmbeddedSqs::new(clock.clone());
        let Names { tables, .. } = Names::default();
        let (dynamo, sqs) = (clients::dynamodb(engine.clone(), None), clients::sqs(queues.clone(), None));
        let urls = stack::create(&dynamo, &sqs, &Names::default()).await.context("the tables cannot be made")?;
        without_stream(&dynamo, &tables.connections).await?;
        let limit = WriteLimit::new(engine.clone(), clock.clone(), WriteLimit::DYNAMODB)?;
        let asked = Asked::default();
        let counted = asked.clone();
        let late = (latency_ms > 0).then(|| Fault::Delay(Duration::from_millis(latency_ms)));
        let late_too = late.clone();
        let dynamo = Faulty::new(
            limit,
            clock.clone(),
            Arc::new(move |call| {
                counted.count(call);
                late.clone()
            }),
        );
        let sqs = Faulty::new(queues.clone(), clock.clone(), Arc::new(move |_| late_too.clone()));
        Ok(Self { clock, timing: Timing::default(), asked, tables, urls, engine, dynamo, sqs, queues })
    }

    /// The tables, as a function or a worker reaches them.
    #[must_use]
    pub fn store(&self) -> Store {
        let config = clients::dynamodb_config(self.dynamo.clone(), None);
        Store::new(DynamoClients::new(config, self.clock.clone()), self.tables.clone())
    }

    /// Receives and deletes ten claims at most, without latency. Returns their bodies.
    ///
    /// # Errors
    /// When the queue does not answer, or keeps one.
    pub async fn take_claims(&self) -> Result<Vec<String>> {
        let client = clients::sqs(self.queues.clone(), None);
        let received = client.receive_message().queue_url(&self.urls.claims).max_number_of_messages(10).send().await?;
        let (mut bodies, mut deletions) = (Vec::new(), Vec::new());
        for (index, message) in received.messages.unwrap_or_default().into_iter().enumerate() {
            let deletion = DeleteMessageBatchRequestEntry::builder().id(index.to_string());
            deletions.push(deletion.set_receipt_handle(message.receipt_handle).build()?);
            bodies.extend(message.body);
        }
        if !deletions.is_empty() {
            let request = client.delete_message_batch().queue_url(&self.urls.claims);
            let answer = request.set_entries(Some(deletions)).send().await?;
            ensure!(answer.failed.is_empty(), "the queue of claims keeps messages that were deleted");
        }
        Ok(bodies)
    }

    /// The function reconcile.
    #[must_use]
    pub fn reconcile(&self) -> Reconcile {
        let queue = |url: &str| Queue::new(clients::sqs_config(self.sqs.clone(), None), url.to_owned());
        Reconcile {
            store: self.store(),
            claims: queue(&self.urls.claims),
            ticks: queue(&self.urls.ticks),
            fleet: None,
            timing: self.timing,
            rules: Rules::default(),
            clock: self.clock.clone(),
        }
    }

    /// Writes rows, past the limit.
    ///
    /// # Errors
    /// When the engine refuses one.
    pub async fn fill(&self, rows: impl Iterator<Item = Item>) -> Result<()> {
        let client = clients::dynamodb(self.engine.clone(), None);
        let mut rows = rows.peekable();
        while rows.peek().is_some() {
            let mut batches = Vec::new();
            while batches.len() < BATCHES_TOGETHER && rows.peek().is_some() {
                batches.push(self.write_batch(&client, rows.by_ref().take(ROWS_A_BATCH).collect()));
            }
            for written in together(batches).await {
                written?;
            }
        }
        Ok(())
    }

    async fn write_batch(&self, client: &aws_sdk_dynamodb::Client, rows: Vec<Item>) -> Result<()> {
        let mut requests = Vec::new();
        for row in rows {
            let row: HashMap<String, AttributeValue> = row.into();
            let put = PutRequest::builder().set_item(Some(row)).build()?;
            requests.push(WriteRequest::builder().put_request(put).build());
        }
        let batch = client.batch_write_item().request_items(&self.tables.connections, requests);
        let answer = batch.send().await.context("the rows are not taken")?;
        ensure!(answer.unprocessed_items.is_none_or(|items| items.is_empty()), "some rows are not taken");
        Ok(())
    }

    /// Registers a session whose lease ends at `expires_at_ms`.
    ///
    /// # Errors
    /// When the table does not take it.
    pub async fn register(&self, id: &SessionId, expires_at_ms: u64) -> Result<()> {
        let identity = Identity { task_arn: None, version: env!("CARGO_PKG_VERSION").to_owned() };
        let (load, now_ms) = (Load::default(), self.clock.wall_ms());
        let registered = self.store().register(id, &identity, &load, now_ms, expires_at_ms).await?;
        ensure!(registered, "the session {id} exists already");
        Ok(())
    }

    /// Renews a session as a worker does, until a renewal is not accepted, which never happens to a session that lives.
    ///
    /// # Errors
    /// That it happened.
    pub async fn keep_alive(&self, id: &SessionId) -> Result<()> {
        let store = self.store();
        for heartbeat in 1.. {
            sleep(Duration::from_millis(self.timing.heartbeat_ms)).await;
            let expires_at_ms = self.clock.wall_ms() + self.timing.lease_ms;
            let renewed = store.renew(id, heartbeat, expires_at_ms, &Load::default()).await?;
            ensure!(renewed.is_applied(), "the live session {id} was fenced");
        }
        Ok(())
    }
}

/// Nobody reads the stream here, and the embedded engine looks at every record that a stream holds to number the next one: writing many rows
/// would take hours.
async fn without_stream(client: &aws_sdk_dynamodb::Client, table: &str) -> Result<()> {
    let off = StreamSpecification::builder().stream_enabled(false).build()?;
    client.update_table().table_name(table).stream_specification(off).send().await.context("the stream stays on")?;
    Ok(())
}
