//! Real workers in this process, on virtual time, each with its own network, clock and environment.

pub use crate::clock::WorkerClock;
use crate::connector::Upstreams;
pub use crate::requests::{is_acquire, is_release, is_renewal, is_row_renewal};
use crate::{World, lease_scope};
use aws_sdk_dynamodb::types::AttributeValue;
use leasehold::aws::queues::Queue;
use leasehold::aws::sdk::DynamoClients;
use leasehold::aws::{Store, StoreError};
use leasehold::clock::{Clock, SharedClock};
use leasehold::decide::scope::LeaseScope;
use leasehold::model::message::attr as message;
use leasehold::model::{Connection, ConnectionId, Item, MessageKey, Session, fields};
use leasehold_local::engine::clients;
use leasehold_local::engine::meter::{Applied, Meter};
use leasehold_local::faults::{Call, Fault, Faulty, Plan};
use leasehold_worker::connector::Connector;
use leasehold_worker::context::{Parts, Seeds};
use leasehold_worker::counters::{Counters, Gauges};
use leasehold_worker::settings::Settings;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// A write that DynamoDB has applied.
#[derive(Clone, Debug)]
pub struct Write {
    /// When, in ms of the test's monotonic clock.
    pub at_ms: u64,
    /// Such as `UpdateItem`.
    pub operation: String,
    /// Its body.
    pub request: Value,
    /// The answer's body.
    pub answer: Value,
}

/// Tables, queues, upstreams and workers.
pub struct Cluster {
    /// The tables and queues, and the functions on them.
    pub world: World,
    /// The upstreams.
    pub upstreams: Upstreams,
    /// What workers' requests cost.
    pub meter: Meter,
    writes: Arc<Mutex<Vec<Write>>>,
}

impl Cluster {
    /// Empty tables and queues, and no workers, in the scope that the tests run in.
    pub async fn new() -> Self {
        Self::of(lease_scope()).await
    }

    /// Empty tables and queues, and no workers, in this lease scope.
    pub async fn of(scope: LeaseScope) -> Self {
        let world = World::of(scope).await;
        let writes: Arc<Mutex<Vec<Write>>> = Arc::default();
        let log = writes.clone();
        let meter = Meter::new(world.engine.clone(), world.clock.clone(), Arc::new(class_of));
        let meter = meter.observed_by(Arc::new(move |applied| {
            if matches!(applied.operation, "PutItem" | "UpdateItem" | "DeleteItem" | "TransactWriteItems") {
                log.lock().unwrap_or_else(PoisonError::into_inner).push(Write {
                    at_ms: applied.at_ms,
                    operation: applied.operation.to_owned(),
                    request: applied.request.clone(),
                    answer: applied.answer.clone(),
                });
            }
        }));
        let upstreams = Upstreams::new(world.clock.clone());
        Self { world, upstreams, meter, writes }
    }

    /// Starts a worker with the default settings.
    pub fn worker(&self, name: &str) -> Worker {
        self.worker_with(name, |_| {})
    }

    /// Starts a worker with other settings.
    pub fn worker_with(&self, name: &str, change: impl FnOnce(&mut Settings)) -> Worker {
        self.worker_on(name, WorkerClock::new(self.world.time), change)
    }

    /// Starts a worker with its own clock and other settings. Its task has the worker's name.
    pub fn worker_on(&self, name: &str, clock: Arc<WorkerClock>, change: impl FnOnce(&mut Settings)) -> Worker {
        self.worker_through(name, self.upstreams.of_worker(name), clock, change)
    }

    /// Starts a worker with sockets of another kind.
    pub fn worker_through(
        &self,
        name: &str,
        connector: Arc<dyn Connector>,
        clock: Arc<WorkerClock>,
        change: impl FnOnce(&mut Settings),
    ) -> Worker {
        self.worker_of(name, connector, clock, Handle::current(), change)
    }

    /// Starts a worker whose keeper has a runtime of its own, as in the binary; such a test runs in real time.
    pub fn worker_kept_on(&self, name: &str, keeper: Handle, change: impl FnOnce(&mut Settings)) -> Worker {
        let clock = WorkerClock::new(self.world.time);
        self.worker_of(name, self.upstreams.of_worker(name), clock, keeper, change)
    }

    fn worker_of(
        &self,
        name: &str,
        connector: Arc<dyn Connector>,
        clock: Arc<WorkerClock>,
        keeper: Handle,
        change: impl FnOnce(&mut Settings),
    ) -> Worker {
        let mut settings = self.settings();
        settings.task_arn = Some(name.to_owned());
        change(&mut settings);
        let shared: SharedClock = clock.clone();
        let faults = Faulty::new(self.meter.clone(), self.world.clock.clone(), no_faults());
        let queue_faults = Faulty::new(self.world.queues.clone(), self.world.clock.clone(), no_faults());
        let store = || {
            let config = clients::dynamodb_config(faults.clone(), Some(self.world.time));
            Store::new(DynamoClients::new(config, shared.clone()), settings.tables.clone())
        };
        let parts = Parts {
            store: store(),
            keeper_store: store(),
            claims: Queue::new(
                clients::sqs_config(queue_faults.clone(), Some(self.world.time)),
                settings.claims_queue_url.clone(),
            ),
            connector,
            clock: shared.clone(),
            keeper_runtime: keeper,
            seeds: Seeds::new(name.bytes().fold(7, |seed, byte| seed * 31 + u64::from(byte))),
            counters: Arc::new(Counters::default()),
            gauges: Arc::new(Gauges::starting_at(clock.mono_ms())),
            buffer_kib: Arc::new(Semaphore::new(usize::try_from(settings.buffer_bytes / 1024).unwrap_or(1 << 20))),
            settings: Arc::new(settings),
        };
        let (counters, gauges) = (parts.counters.clone(), parts.gauges.clone());
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(leasehold_worker::run::run(parts, stopped));
        Worker { name: name.to_owned(), faults, queue_faults, clock, counters, gauges, stop, task }
    }

    /// The settings of a worker whose environment names the tables and the queue, and nothing else.
    pub fn settings(&self) -> Settings {
        let tables = &self.world.names.tables;
        let lookup = |name: &str| match name {
            "CONNECTIONS_TABLE" => Some(tables.connections.clone()),
            "SESSIONS_TABLE" => Some(tables.sessions.clone()),
            "MESSAGES_TABLE" => Some(tables.messages.clone()),
            "CLAIMS_QUEUE_URL" => Some(self.world.urls.claims.clone()),
            "LEASE_SCOPE" => Some(self.world.timing.scope.as_str().to_owned()),
            _ => None,
        };
        Settings::read(&lookup).expect("the settings are complete")
    }

    /// Writes a STARTED row for the upstream of the same name, with more attributes, stamps and claims it.
    pub async fn start_with(&self, id: &str, attributes: &[(&str, AttributeValue)]) {
        let mut item = HashMap::from([
            ("Pk".to_owned(), s(&format!("CONN#{id}"))),
            ("desired_state".to_owned(), s("STARTED")),
            ("ws_url".to_owned(), s(&format!("wss://feed.example/{id}"))),
        ]);
        item.extend(attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        let request = self.world.dynamo().put_item().table_name(&self.world.names.tables.connections);
        request.set_item(Some(item)).send().await.expect("the engine takes the row");
        self.world.table().stamp(&name(id), 0).await.expect("the engine answers");
        self.claim(id).await;
    }

    /// Writes a STARTED row, stamps and claims it.
    pub async fn start(&self, id: &str) {
        self.start_with(id, &[]).await;
    }

    /// Starts a connection and waits until its socket is open.
    pub async fn connected(&self, id: &str) {
        self.start(id).await;
        eventually("the socket opens", 5_000, async || self.upstreams.open_now(id) == 1).await;
    }

    /// As [`Self::connected`], with more attributes.
    pub async fn connected_with(&self, id: &str, attributes: &[(&str, AttributeValue)]) {
        self.start_with(id, attributes).await;
        eventually("the socket opens", 5_000, async || self.upstreams.open_now(id) == 1).await;
    }

    /// Sends a claim.
    pub async fn claim(&self, id: &str) {
        let claims = self.world.queue(&self.world.urls.claims);
        claims.send_claims(&[name(id)], 0).await.expect("the queue answers");
    }

    /// Changes attributes of a row by hand (`None` removes) and marks its owner.
    pub async fn change(&self, id: &str, attribute: &str, value: Option<AttributeValue>) {
        let request = self.world.dynamo().update_item().table_name(&self.world.names.tables.connections);
        let request = request.key("Pk", s(&format!("CONN#{id}"))).expression_attribute_names("#n", attribute);
        let request = match value {
            Some(value) => request.update_expression("SET #n = :v").expression_attribute_values(":v", value),
            None => request.update_expression("REMOVE #n"),
        };
        request.send().await.expect("the engine takes the update");
        if let Some(owner) = owner_of(&self.item(id).await) {
            let owner = leasehold::model::SessionId::new(owner);
            self.world.table().mark(&owner, &[name(id)]).await.expect("the engine answers");
        }
    }

    /// A row as it is stored.
    pub async fn item(&self, id: &str) -> Item {
        self.world.table().connection(&name(id)).await.expect("the engine answers").expect("the row is there")
    }

    /// A row.
    pub async fn row(&self, id: &str) -> Connection {
        Connection::from_item(&self.item(id).await).expect("the row is readable")
    }

    /// The newest session of a worker.
    pub async fn session(&self, worker: &Worker) -> Session {
        self.sessions(worker).await.pop().expect("the worker has registered")
    }

    /// All sessions of a worker, oldest first.
    pub async fn sessions(&self, worker: &Worker) -> Vec<Session> {
        let mut sessions = self.world.table().sessions().await.expect("the engine answers");
        sessions.retain(|session| session.task_arn.as_deref() == Some(&worker.name));
        sessions.sort_by_key(|session| session.started_at_ms);
        sessions
    }

    /// Waits until a worker has an active session, and returns it.
    pub async fn registered(&self, worker: &Worker) -> Session {
        eventually("the worker registers", 5_000, async || !self.sessions(worker).await.is_empty()).await;
        self.session(worker).await
    }

    /// What reconcile does with a session that has expired.
    pub async fn fence(&self, session: &leasehold::model::SessionId) {
        let heartbeat = self.world.session(session).await.heartbeat;
        let fenced = self.world.table().fence(session, heartbeat, "test", self.world.now_ms()).await;
        assert!(fenced.expect("the engine answers").is_applied(), "{session} was active");
    }

    /// A connection's messages in order: key, part and body.
    pub async fn messages(&self, id: &str) -> Vec<(MessageKey, u32, Vec<u8>)> {
        let mut found = Vec::new();
        let mut from = None;
        loop {
            let page = self.world.table().messages(&name(id), false, 1_000, from).await.expect("the engine answers");
            for item in &page.items {
                let sk = fields::string(item, message::SK).ok().flatten().expect("a message has a key");
                let (key, part) = MessageKey::from_sk(&sk).expect("the key is one of ours");
                found.push((key, part, body_of(item)));
            }
            from = page.next;
            if from.is_none() {
                return found;
            }
        }
    }

    /// The stored numbers of a connection, in order.
    pub async fn numbers(&self, id: &str) -> Vec<u64> {
        self.messages(id).await.into_iter().map(|(key, ..)| key.seq).collect()
    }

    /// The writes of workers that were applied, as far as `keep` keeps them.
    pub fn writes(&self, keep: impl Fn(&Write) -> bool) -> Vec<Write> {
        let writes = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
        writes.iter().filter(|write| keep(write)).cloned().collect()
    }

    /// Writes to a row of `connections` that were applied, but for renewals.
    pub fn row_writes(&self, id: &str) -> Vec<Write> {
        let pk = format!("CONN#{id}");
        self.writes(|write| {
            write.request["Key"]["Pk"]["S"] == pk.as_str() && !is_row_renewal(&write.operation, &write.request)
        })
    }

    /// Now, in ms of the test's monotonic clock.
    pub fn now_ms(&self) -> u64 {
        self.world.clock.mono_ms()
    }
}

/// A real worker.
pub struct Worker {
    /// Its name, and that of its task.
    pub name: String,
    /// Its way to DynamoDB.
    pub faults: Faulty,
    /// Its way to SQS.
    pub queue_faults: Faulty,
    /// Its clocks.
    pub clock: Arc<WorkerClock>,
    /// What it counted.
    pub counters: Arc<Counters>,
    /// What it has.
    pub gauges: Arc<Gauges>,
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<(), StoreError>>,
}

impl Worker {
    /// SIGTERM.
    pub fn terminate(&self) {
        self.stop.send_replace(true);
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// What `run` returned.
    pub async fn ended(self) -> Result<(), StoreError> {
        self.task.await.expect("the worker does not panic")
    }

    /// True once `run` has returned.
    pub fn is_over(&self) -> bool {
        self.task.is_finished()
    }

    /// Makes its requests to DynamoDB go wrong from now on.
    pub fn break_with(&self, plan: impl Fn(&Call<'_>) -> Option<Fault> + Send + Sync + 'static) {
        self.faults.set_plan(Arc::new(plan));
    }

    /// Nothing reaches DynamoDB any more, and nothing is answered.
    pub fn cut_off(&self) {
        self.break_with(|_| Some(Fault::Delay(Duration::from_secs(86_400))));
    }

    /// Everything reaches DynamoDB again.
    pub fn repair(&self) {
        self.faults.set_plan(no_faults());
    }

    /// How often it counted something.
    pub fn count(&self, name: &str) -> u64 {
        self.counters.snapshot().get(name).copied().unwrap_or(0)
    }

    /// The process stops as far as clock and network can tell; see [`WorkerClock`].
    pub fn suspend(&self) {
        self.clock.freeze();
        self.cut_off();
    }

    /// The process runs again, and its clock has gone on.
    pub fn wake(&self) {
        self.repair();
        self.clock.thaw();
    }
}

/// Waits in virtual time until something is so.
///
/// # Panics
/// When it is not so within `within_ms`.
pub async fn eventually(what: &str, within_ms: u64, mut is_so: impl AsyncFnMut() -> bool) {
    let since = Instant::now();
    while !is_so().await {
        assert!(since.elapsed() < Duration::from_millis(within_ms), "not within {within_ms} ms: {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Lets virtual time pass.
pub async fn pass_ms(ms: u64) {
    sleep(Duration::from_millis(ms)).await;
}

/// A string attribute.
pub fn s(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

/// A map attribute of strings.
pub fn map(entries: &[(&str, &str)]) -> AttributeValue {
    AttributeValue::M(entries.iter().map(|(name, value)| ((*name).to_owned(), s(value))).collect())
}

/// The attributes of a row whose upstream numbers its messages and resumes by a query.
pub fn numbered() -> [(&'static str, AttributeValue); 2] {
    [("sequence_pointer", s("/seq")), ("resume", map(&[("query", "from={last_seq}")]))]
}

/// A plan without faults.
pub fn no_faults() -> Plan {
    Arc::new(|_| None)
}

/// True for an acquire that was applied.
pub fn acquired(write: &Write) -> bool {
    is_acquire(&write.operation, &write.request)
}

fn class_of(applied: &Applied<'_>) -> Option<&'static str> {
    Some(match applied.operation {
        operation if is_renewal(operation, applied.request) => "renewal",
        operation if is_row_renewal(operation, applied.request) => "row_renewal",
        operation if is_acquire(operation, applied.request) => "acquire",
        "UpdateItem" => "update",
        "PutItem" | "TransactWriteItems" => "put",
        _ => "other",
    })
}

fn name(id: &str) -> ConnectionId {
    ConnectionId::new(id).expect("the test's id is one")
}

fn owner_of(item: &Item) -> Option<String> {
    fields::string(item, "lease_owner").ok().flatten()
}

fn body_of(item: &Item) -> Vec<u8> {
    use leasehold::model::AttributeValue as Value;
    match item.get(message::BODY) {
        Some(Value::S(text)) => text.clone().into_bytes(),
        Some(Value::B(bytes)) => bytes.clone(),
        _ => Vec::new(),
    }
}
