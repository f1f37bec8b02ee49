//! Builders for whole-system tests.
//!
//! - [`cluster`]: real workers on top of it; [`clock`]: their clocks; [`connector`]: the upstreams that their sockets lead to
//! - [`requests`]: which of the protocol's requests a request is
//! - [`World`]: the tables and queues of a deployment on embedded engines and virtual time, and the functions on them

pub mod clock;
pub mod cluster;
pub mod connector;
pub mod log;
pub mod requests;

use aws_sdk_dynamodb::types::AttributeValue;
use aws_sdk_dynamodbstreams::types::ShardIteratorType;
use leasehold::aws::queues::Queue;
use leasehold::aws::sdk::DynamoClients;
use leasehold::aws::sessions::{Identity, Load};
use leasehold::aws::store::Store;
use leasehold::clock::SharedClock;
use leasehold::decide::scope::LeaseScope;
use leasehold::decide::timing::{Rules, Timing};
use leasehold::model::{Claim, Connection, ConnectionId, Marks, Session, SessionId};
use leasehold_desired_state::DesiredState;
use leasehold_local::clock::VirtualClock;
use leasehold_local::engine::{EmbeddedDynamo, clients};
use leasehold_local::events::record::StreamRecord;
use leasehold_local::faults::{Faulty, Plan};
use leasehold_local::queue::EmbeddedSqs;
use leasehold_local::stack::{self, Names, QueueUrls};
use leasehold_reconcile::Reconcile;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// Fri, 15 Jan 2027 08:00:00 GMT
pub const EPOCH_MS: u64 = 1_800_000_000_000;

/// What is left of an invocation's time, where a test says nothing else.
pub const ONE_MINUTE_MS: u64 = 60_000;

/// What Lambda would say is left of the stream: where the next batch begins.
#[derive(Debug, Default)]
struct Cursor {
    iterator: Option<String>,
}

/// A deployment without workers. Tests use it under tokio's paused time.
pub struct World {
    /// Virtual time.
    pub time: VirtualClock,
    /// The same for the product.
    pub clock: SharedClock,
    /// The engine itself, past all faults.
    pub engine: EmbeddedDynamo,
    /// The layer in which requests to DynamoDB go wrong.
    pub faults: Faulty,
    /// The queues.
    pub queues: EmbeddedSqs,
    /// What the tables are called.
    pub names: Names,
    /// Where the queues are.
    pub urls: QueueUrls,
    /// The protocol's numbers.
    pub timing: Timing,
    cursor: Cursor,
}

impl World {
    /// Empty tables and queues, in the scope that the tests run in.
    pub async fn new() -> Self {
        Self::of(lease_scope()).await
    }

    /// Empty tables and queues of a deployment in this lease scope.
    pub async fn of(scope: LeaseScope) -> Self {
        let time = VirtualClock::starting_at(EPOCH_MS);
        let clock: SharedClock = Arc::new(time);
        let engine = EmbeddedDynamo::memory(clock.clone()).expect("an engine in memory needs nothing");
        let faults = Faulty::new(engine.clone(), clock.clone(), Arc::new(|_| None));
        let queues = EmbeddedSqs::new(clock.clone());
        let names = Names::default();
        let dynamo = clients::dynamodb(engine.clone(), Some(time));
        let sqs = clients::sqs(queues.clone(), Some(time));
        let urls = stack::create(&dynamo, &sqs, &names).await.expect("the stack can be made");
        let timing = Timing { scope, ..Timing::default() };
        Self { time, clock, engine, faults, queues, names, urls, timing, cursor: Cursor::default() }
    }

    /// Makes requests to DynamoDB go wrong from now on.
    pub fn break_with(&self, plan: Plan) {
        self.faults.set_plan(plan);
    }

    /// Makes requests to DynamoDB go right again.
    pub fn repair(&self) {
        self.faults.set_plan(Arc::new(|_| None));
    }

    /// The tables, behind the faults.
    pub fn store(&self) -> Store {
        let config = clients::dynamodb_config(self.faults.clone(), Some(self.time));
        Store::new(DynamoClients::new(config, self.clock.clone()), self.names.tables.clone())
    }

    /// The tables, past the faults: for what tests do themselves.
    pub fn table(&self) -> Store {
        let config = clients::dynamodb_config(self.engine.clone(), Some(self.time));
        Store::new(DynamoClients::new(config, self.clock.clone()), self.names.tables.clone())
    }

    /// A plain client, past the faults.
    pub fn dynamo(&self) -> aws_sdk_dynamodb::Client {
        clients::dynamodb(self.engine.clone(), Some(self.time))
    }

    /// A queue by its URL.
    pub fn queue(&self, url: &str) -> Queue {
        Queue::new(clients::sqs_config(self.queues.clone(), Some(self.time)), url)
    }

    /// The function `desired-state`.
    pub fn desired_state(&self) -> DesiredState {
        let claims = self.queue(&self.urls.claims);
        DesiredState { store: self.store(), claims, timing: self.timing, rules: Rules::default() }
    }

    /// The function `reconcile`.
    pub fn reconcile(&self) -> Reconcile {
        Reconcile {
            store: self.store(),
            claims: self.queue(&self.urls.claims),
            ticks: self.queue(&self.urls.ticks),
            fleet: None,
            timing: self.timing,
            rules: Rules::default(),
            clock: self.clock.clone(),
        }
    }

    /// Virtual time since the Unix epoch, in ms: lease time, to within a second.
    pub fn now_ms(&self) -> u64 {
        self.clock.wall_ms()
    }

    /// One look of reconcile between two minutes, as a delayed tick wakes it.
    pub async fn tick(&self) -> Value {
        let event = json!({ "Records": [{ "messageId": "1", "body": leasehold_reconcile::tick_body() }] });
        self.reconcile().handle(event, ONE_MINUTE_MS).await.expect("a look succeeds")
    }

    /// Renews these every five seconds, with a look every ten, for so long.
    pub async fn live(&self, ids: &[&SessionId], seconds: u64) {
        for second in 1..=seconds {
            self.pass(1).await;
            if second % 5 == 0 {
                for id in ids {
                    assert!(self.renew(id).await, "{id} is not fenced");
                }
            }
            if second % 10 == 0 {
                self.tick().await;
            }
        }
    }

    /// Lets virtual time pass.
    pub async fn pass(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    /// Writes a row by hand: all attributes besides the key are texts (`S`), or numbers where they are digits only.
    pub async fn put(&self, id: &str, attributes: &[(&str, &str)]) {
        let mut item = HashMap::from([("Pk".to_owned(), AttributeValue::S(format!("CONN#{id}")))]);
        for (name, value) in attributes {
            item.insert((*name).to_owned(), value_of(value));
        }
        let request = self.dynamo().put_item().table_name(&self.names.tables.connections).set_item(Some(item));
        request.send().await.expect("the engine takes the row");
    }

    /// Writes the row of three attributes that people write.
    pub async fn put_minimal(&self, id: &str, desired_state: &str) {
        self.put(id, &[("desired_state", desired_state), ("ws_url", "wss://example.com/feed")]).await;
    }

    /// Sets one attribute of a row by hand.
    pub async fn set(&self, id: &str, name: &str, value: &str) {
        let request = self.dynamo().update_item().table_name(&self.names.tables.connections);
        let request = request.key("Pk", AttributeValue::S(format!("CONN#{id}"))).update_expression("SET #n = :v");
        let request = request.expression_attribute_names("#n", name).expression_attribute_values(":v", value_of(value));
        request.send().await.expect("the engine takes the update");
    }

    /// Removes a row by hand.
    pub async fn delete(&self, id: &str) {
        let request = self.dynamo().delete_item().table_name(&self.names.tables.connections);
        request.key("Pk", AttributeValue::S(format!("CONN#{id}"))).send().await.expect("the engine removes the row");
    }

    /// A row, as the product reads it.
    pub async fn row(&self, id: &str) -> Connection {
        let id = ConnectionId::new(id).expect("the test's id is one");
        let item = self.table().connection(&id).await.expect("the engine answers").expect("the row is there");
        Connection::from_item(&item).expect("the row is readable")
    }

    /// Registers a session whose lease begins now.
    pub async fn register(&self, id: &str, task_arn: Option<&str>) -> SessionId {
        let session = SessionId::new(id);
        let identity = Identity { task_arn: task_arn.map(str::to_owned), version: "test".into() };
        let (now_ms, expires_at_ms) = (self.now_ms(), self.now_ms() + self.timing.lease_ms);
        let outcome = self.table().register(&session, &identity, &Load::default(), now_ms, expires_at_ms).await;
        assert!(outcome.expect("the engine answers"), "{id} is new");
        session
    }

    /// Renews a session. Returns whether the renewal was accepted.
    pub async fn renew(&self, id: &SessionId) -> bool {
        let (heartbeat, expires_at_ms) = (self.session(id).await.heartbeat + 1, self.now_ms() + self.timing.lease_ms);
        let outcome = self.table().renew(id, heartbeat, expires_at_ms, &Load::default()).await;
        outcome.expect("the engine answers").is_applied()
    }

    /// A session.
    pub async fn session(&self, id: &SessionId) -> Session {
        let item = self.table().session(id).await.expect("the engine answers").expect("the session is there");
        Session::from_item(&item).expect("the session is readable")
    }

    /// A session's marks.
    pub async fn marks(&self, id: &SessionId) -> Marks {
        self.table().marks(id).await.expect("the engine answers")
    }

    /// Receives and deletes all claims that are visible now: how many for each connection.
    pub async fn take_claims(&self) -> BTreeMap<String, u64> {
        let mut claims = BTreeMap::new();
        for body in self.take(&self.urls.claims).await {
            let claim = Claim::from_body(&body).expect("only claims are sent");
            *claims.entry(claim.connection_id.as_str().to_owned()).or_default() += 1;
        }
        claims
    }

    /// Receives and deletes all messages of a queue that are visible now.
    pub async fn take(&self, url: &str) -> Vec<String> {
        let queue = self.queue(url);
        let mut bodies = Vec::new();
        loop {
            let received = queue.receive(10, 0).await.expect("the queue answers");
            if received.is_empty() {
                return bodies;
            }
            for message in received {
                queue.delete(&message.receipt).await.expect("the queue answers");
                bodies.push(message.body);
            }
        }
    }

    /// The changes of `connections` since the last call, as one event of the stream.
    pub async fn changes(&mut self) -> Value {
        let client = clients::streams(self.engine.clone(), Some(self.time));
        let list = client.list_streams().table_name(&self.names.tables.connections);
        let streams = list.send().await.expect("the engine answers");
        let arn = streams.streams()[0].stream_arn().expect("a stream has an ARN").to_owned();
        let iterator = match self.cursor.iterator.take() {
            Some(iterator) => Some(iterator),
            None => beginning(&client, &arn).await,
        };
        let answer = client.get_records().set_shard_iterator(iterator).send().await.expect("the engine answers");
        self.cursor.iterator = answer.next_shard_iterator.clone();
        let records = answer.records().iter().filter_map(|record| StreamRecord::from_sdk(record, &arn, self.now_ms()));
        json!({ "Records": records.map(|record| record.json).collect::<Vec<_>>() })
    }
}

/// The lease scope of all that runs in tests: that of `LEASE_SCOPE`, as for every process. So the same tests run over both.
///
/// # Panics
/// When it is neither of the two.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "tests have no main that could read it")]
pub fn lease_scope() -> LeaseScope {
    let timing = leasehold::settings::timing(&|name| std::env::var(name).ok().filter(|_| name == "LEASE_SCOPE"));
    timing.expect("LEASE_SCOPE is one").scope
}

async fn beginning(client: &aws_sdk_dynamodbstreams::Client, arn: &str) -> Option<String> {
    let described = client.describe_stream().stream_arn(arn).send().await.expect("the engine answers");
    let shard = described.stream_description.and_then(|stream| stream.shards?.first()?.shard_id.clone());
    let request = client.get_shard_iterator().stream_arn(arn).set_shard_id(shard);
    let answer = request.shard_iterator_type(ShardIteratorType::TrimHorizon).send().await;
    answer.expect("the engine answers").shard_iterator
}

fn value_of(text: &str) -> AttributeValue {
    if text.parse::<u64>().is_ok() { AttributeValue::N(text.to_owned()) } else { AttributeValue::S(text.to_owned()) }
}
