//! AWS in the world's runtime: engine and queue, and the real functions behind the local event sources.

use crate::case::Config;
use crate::faults::Spells;
use crate::faults::functions::Unlucky;
use crate::faults::line::Line;
use crate::faults::weather::Service;
use crate::ledger::Ledger;
use crate::ledger::observed::Observed;
use crate::time::WorldClock;
use aws_sdk_sqs::types::QueueAttributeName;
use aws_smithy_runtime_api::client::http::SharedHttpConnector;
use leasehold::aws::Store;
use leasehold::aws::queues::Queue;
use leasehold::aws::sdk::DynamoClients;
use leasehold::clock::SharedClock;
use leasehold_desired_state::DesiredState;
use leasehold_local::engine::{EmbeddedDynamo, clients};
use leasehold_local::events::asynchronous::{AsyncInvoker, AsyncSettings};
use leasehold_local::events::ecs::{ContainerState, TaskState, task_state_change};
use leasehold_local::events::filter::Filters;
use leasehold_local::events::schedule::Schedule;
use leasehold_local::events::shards::Progress;
use leasehold_local::events::sqs::{SqsParts, SqsSettings, SqsSource};
use leasehold_local::events::stream::{StreamParts, StreamSettings, StreamSource};
use leasehold_local::events::{DESIRED_STATE_FILTERS, Invoker};
use leasehold_local::faults::{StaleIndexes, WriteLimit};
use leasehold_local::queue::EmbeddedSqs;
use leasehold_local::stack::{self, Names, QueueUrls};
use leasehold_local::system::functions::{DesiredStateFunction, ReconcileFunction};
use leasehold_reconcile::Reconcile;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tokio::runtime::Handle;
use tokio::sync::watch;

/// As in the template.
const FUNCTION_TIMEOUT_MS: u64 = 60_000;
const RECONCILE_EVENTS: AsyncSettings = AsyncSettings { max_retries: 0, max_age_ms: 60_000 };
const SCHEDULE_MS: u64 = 60_000;
/// Reads of the stream cost real time: one a second is enough.
const POLL_MS: u64 = 1_000;
/// There is one shard, and it stays.
const DISCOVER_MS: u64 = 86_400_000;
const RULE_ARN: &str = "arn:aws:events:us-east-1:000000000000:rule/leasehold-reconcile";

/// What everybody shares.
pub struct Aws {
    /// The tables, through the faults of the store itself.
    pub tables: SharedHttpConnector,
    /// The queues.
    pub queues: EmbeddedSqs,
    /// What tables and queues are called.
    pub names: Names,
    /// Where queues are.
    pub urls: QueueUrls,
    /// How far indexes are behind, in ms, where they can be.
    pub lag_ms: Arc<AtomicU64>,
    /// What happens to events and invocations.
    pub mishaps: Spells,
    /// The functions' way to the services.
    pub weather: Spells,
    reconcile: AsyncInvoker,
    clock: WorldClock,
    /// Dropped with it, which stops the event sources.
    _stop: watch::Sender<bool>,
}

impl Aws {
    /// Makes tables and queues, and starts the event sources. To be called inside of the world's runtime.
    pub async fn start(config: &Config, clock: &WorldClock, ledger: &Ledger, stale: bool) -> Self {
        let shared: SharedClock = Arc::new(clock.clone());
        let names = Names::default();
        let engine = EmbeddedDynamo::memory(shared.clone()).expect("an engine in memory needs nothing");
        let observed = Observed::new(engine, clock.clone(), ledger.clone(), names.tables.clone());
        let lag_ms = Arc::new(AtomicU64::new(0));
        let tables = layers(observed.clone(), config, &shared, stale, &lag_ms);
        let queues = EmbeddedSqs::new(shared.clone());
        let dynamo = clients::dynamodb_config(tables.clone(), None).time_source(clock.clone()).build();
        let dynamo = aws_sdk_dynamodb::Client::from_conf(dynamo);
        let sqs = sqs_client(&queues, clock);
        let urls = stack::create(&dynamo, &sqs, &names).await.expect("the stack can be made");
        let described = dynamo.describe_table().table_name(&names.tables.connections).send().await;
        let table = described.expect("the table was made just now").table;
        let stream_arn = table.and_then(|table| table.latest_stream_arn).expect("the table has a stream");

        let (stop, stopping) = watch::channel(false);
        let weather = Spells::none(config.seed ^ 0x0f);
        let mishaps = Spells::none(config.seed ^ 0x1f);
        let wiring = Wiring {
            config,
            clock,
            tables: &tables,
            queues: &queues,
            names: &names,
            urls: &urls,
            weather: &weather,
            mishaps: &mishaps,
        };
        let reconcile = wiring.reconcile();
        let queue = AsyncInvoker::new(reconcile.clone(), RECONCILE_EVENTS, None, shared.clone(), config.seed);
        let stream = wiring.stream(observed, stream_arn);
        let ticks = wiring.ticks(reconcile, &sqs).await;
        let (interval_ms, seed) = (SCHEDULE_MS, config.seed ^ 0x3f);
        let schedule = Schedule { target: queue.clone(), rule_arn: RULE_ARN.into(), interval_ms, clock: shared, seed };
        let (on_queue, stops) = (queue.clone(), [(); 4].map(|()| stopping.clone()));
        let [stop_stream, stop_ticks, stop_queue, stop_schedule] = stops;
        tokio::spawn(async move { stream.run(stop_stream).await });
        tokio::spawn(async move { ticks.run(stop_ticks).await });
        tokio::spawn(async move { on_queue.run(stop_queue).await });
        tokio::spawn(async move { schedule.run(stop_schedule).await });
        let aws = Self {
            tables,
            queues,
            names,
            urls,
            lag_ms,
            mishaps,
            weather,
            reconcile: queue,
            clock: clock.clone(),
            _stop: stop,
        };
        // A schedule waits for its first minute; an operator does not.
        aws.reconcile_now();
        aws
    }

    /// Wakes reconcile as its schedule does.
    pub fn reconcile_now(&self) {
        // Refused only if a thousand wait.
        let _ = self.reconcile.send(serde_json::json!({ "source": "aws.events" }));
    }

    /// Reports a task as stopped, as ECS does.
    pub fn task_stopped(&self, task_arn: &str) {
        let now_ms = leasehold::clock::Clock::wall_ms(&self.clock);
        let container =
            ContainerState { name: "worker".into(), last_status: "STOPPED".into(), exit_code: Some(137), reason: None };
        let task = TaskState {
            task_arn: task_arn.to_owned(),
            cluster_arn: "arn:aws:ecs:us-east-1:000000000000:cluster/leasehold".into(),
            task_definition_arn: "arn:aws:ecs:us-east-1:000000000000:task-definition/leasehold-worker:1".into(),
            group: "service:leasehold-worker".into(),
            last_status: "STOPPED".into(),
            desired_status: "STOPPED".into(),
            stop_code: Some("EssentialContainerExited".into()),
            stopped_reason: None,
            containers: vec![container],
            version: 5,
            created_ms: now_ms,
            stopped_ms: Some(now_ms),
        };
        let _ = self.reconcile.send(task_state_change(&task, now_ms, "00000000-0000-4000-8000-000000000001"));
    }
}

/// The store's own faults, where the case has them: they cost real time.
fn layers(
    observed: Observed,
    config: &Config,
    clock: &SharedClock,
    stale: bool,
    lag_ms: &Arc<AtomicU64>,
) -> SharedHttpConnector {
    let mut tables = SharedHttpConnector::new(observed);
    let memory = "an engine in memory needs nothing";
    if let Some(units) = config.write_limit {
        tables = SharedHttpConnector::new(WriteLimit::new(tables, clock.clone(), units).expect(memory));
    }
    if stale {
        tables = SharedHttpConnector::new(StaleIndexes::new(tables, clock.clone(), lag_ms.clone()).expect(memory));
    }
    tables
}

fn sqs_client(queues: &EmbeddedSqs, clock: &WorldClock) -> aws_sdk_sqs::Client {
    aws_sdk_sqs::Client::from_conf(clients::sqs_config(queues.clone(), None).time_source(clock.clone()).build())
}

/// What the functions are wired with.
struct Wiring<'a> {
    config: &'a Config,
    clock: &'a WorldClock,
    tables: &'a SharedHttpConnector,
    queues: &'a EmbeddedSqs,
    names: &'a Names,
    urls: &'a QueueUrls,
    weather: &'a Spells,
    mishaps: &'a Spells,
}

impl Wiring<'_> {
    fn store(&self, sender: &str) -> Store {
        let (weather, clock) = (self.weather.clone(), self.clock.clone());
        let line = Line::new(self.tables.clone(), Service::Dynamo, weather, sender, Handle::current(), clock.clone());
        let base = clients::dynamodb_config(line, None).time_source(clock.clone());
        Store::new(DynamoClients::new(base, Arc::new(clock)), self.names.tables.clone())
    }

    fn queue(&self, sender: &str, url: &str) -> Queue {
        let (weather, clock) = (self.weather.clone(), self.clock.clone());
        let line = Line::new(self.queues.clone(), Service::Sqs, weather, sender, Handle::current(), clock.clone());
        Queue::new(clients::sqs_config(line, None).time_source(clock), url)
    }

    fn invoker(&self, inner: Arc<dyn leasehold_local::events::Function>, of_stream: bool) -> Arc<Invoker> {
        let (mishaps, clock) = (self.mishaps.clone(), self.clock.clone());
        Arc::new(Invoker::new(Arc::new(Unlucky { inner, mishaps, clock, of_stream }), FUNCTION_TIMEOUT_MS))
    }

    fn reconcile(&self) -> Arc<Invoker> {
        let sender = "reconcile";
        let reconcile = Reconcile {
            store: self.store(sender),
            claims: self.queue(sender, &self.urls.claims),
            ticks: self.queue(sender, &self.urls.ticks),
            fleet: None,
            timing: self.config.timing,
            rules: self.config.rules,
            clock: Arc::new(self.clock.clone()),
        };
        self.invoker(Arc::new(ReconcileFunction(reconcile)), false)
    }

    fn stream(&self, observed: Observed, stream_arn: String) -> StreamSource {
        let sender = "desired-state";
        let desired_state = DesiredState {
            store: self.store(sender),
            claims: self.queue(sender, &self.urls.claims),
            timing: self.config.timing,
            rules: self.config.rules,
        };
        let client = clients::streams_config(observed, None).time_source(self.clock.clone()).build();
        let settings = StreamSettings { poll_ms: POLL_MS, discover_ms: DISCOVER_MS, ..StreamSettings::default() };
        let parts = StreamParts {
            client: aws_sdk_dynamodbstreams::Client::from_conf(client),
            stream_arn,
            invoker: self.invoker(Arc::new(DesiredStateFunction(desired_state)), true),
            filters: Filters::parse(DESIRED_STATE_FILTERS).expect("the project's own patterns are valid"),
            settings,
            destination: None,
            clock: Arc::new(self.clock.clone()),
            seed: self.config.seed ^ 0x4f,
        };
        StreamSource::new(parts, Progress::default())
    }

    async fn ticks(&self, invoker: Arc<Invoker>, sqs: &aws_sdk_sqs::Client) -> SqsSource {
        let arn = QueueAttributeName::QueueArn;
        let answer = sqs.get_queue_attributes().queue_url(&self.urls.ticks).attribute_names(arn.clone()).send().await;
        let attributes = answer.expect("the queue was made just now").attributes;
        SqsSource::new(SqsParts {
            client: sqs.clone(),
            queue_url: self.urls.ticks.clone(),
            queue_arn: attributes.and_then(|mut attributes| attributes.remove(&arn)).unwrap_or_default(),
            invoker,
            filters: Filters::from_patterns(&[]).expect("no pattern is wrong"),
            settings: SqsSettings::default(),
            clock: Arc::new(self.clock.clone()),
            seed: self.config.seed ^ 0x5f,
        })
    }
}
