//! The whole system on one machine: engine and queues behind loopback HTTP, event sources, the real handlers; workers are processes.
//!
//! - [`System`]: starts and stops it
//! - [`functions`]: the handlers as the event sources call them
//! - [`cost`]: which write belongs to what, for the bill
//! - [`files`]: what a file-backed system keeps over a restart
//! - [`workers`]: worker processes: start, signals, task events

pub mod cost;
pub mod files;
pub mod functions;
pub mod workers;

use crate::engine::clients;
use crate::engine::meter::{Meter, Observer, Units};
use crate::engine::{EmbeddedDynamo, EngineError};
use crate::events::asynchronous::{AsyncInvoker, AsyncSettings};
use crate::events::destination::Destination;
use crate::events::ecs::{TaskState, task_state_change};
use crate::events::filter::{FilterError, Filters};
use crate::events::schedule::{Schedule, scheduled_event};
use crate::events::shards::Progress;
use crate::events::sqs::{SqsParts, SqsSettings, SqsSource};
use crate::events::stream::{StreamParts, StreamSettings, StreamSource};
use crate::events::{DESIRED_STATE_FILTERS, Invoker};
use crate::front;
use crate::queue::EmbeddedSqs;
use crate::stack::{self, Names, QueueUrls};
use aws_sdk_dynamodb::error::DisplayErrorContext;
use aws_sdk_sqs::types::QueueAttributeName;
use files::{Files, Kept};
use functions::{DesiredStateFunction, ReconcileFunction};
use leasehold::aws::queues::Queue;
use leasehold::aws::sdk::DynamoClients;
use leasehold::aws::{Store, Tables};
use leasehold::clock::SharedClock;
use leasehold::decide::timing::{Rules, Timing};
use leasehold_desired_state::DesiredState;
use leasehold_reconcile::Reconcile;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The time-out of each function, as in the template.
const FUNCTION_TIMEOUT_MS: u64 = 60_000;
/// What the template says of events of the schedule and of ECS: the next minute's run does what a failed one did not.
const RECONCILE_EVENTS: AsyncSettings = AsyncSettings { max_retries: 0, max_age_ms: 60_000 };
/// The schedule of reconcile.
const SCHEDULE_MS: u64 = 60_000;
/// How often a file-backed system writes its queues down.
const SAVE_MS: u64 = 1_000;

/// How a system is to run.
#[derive(Clone)]
pub struct SystemSettings {
    /// Where it keeps its files; `None` for one that forgets everything.
    pub directory: Option<PathBuf>,
    /// The ports of DynamoDB and SQS; 0 for any.
    pub ports: (u16, u16),
    /// The protocol's numbers.
    pub timing: Timing,
    /// The protocol's rules; only the demonstration's `--break` takes some out.
    pub rules: Rules,
    /// The clock of everything.
    pub clock: SharedClock,
    /// Seeds jitter and ids.
    pub seed: u64,
    /// Sees every request that the engine applied.
    pub observer: Option<Observer>,
}

/// Why a system does not start.
#[derive(Debug, thiserror::Error)]
pub enum SystemError {
    /// The engine does not open its file.
    #[error("the embedded engine does not start: {0}")]
    Engine(#[from] EngineError),
    /// A port or a file.
    #[error("{what}: {error}")]
    Io {
        /// What was tried.
        what: String,
        /// What the operating system said.
        error: io::Error,
    },
    /// Tables or queues cannot be made.
    #[error("the tables and queues cannot be made: {0}")]
    Stack(String),
    /// The filter patterns are wrong.
    #[error("the filter patterns of desired-state are wrong: {0}")]
    Filter(#[from] FilterError),
}

/// The names and addresses of a running system's parts.
#[derive(Clone, Debug)]
pub struct Stack {
    /// The tables.
    pub tables: Tables,
    /// The queues.
    pub queues: QueueUrls,
    /// The stream of connections.
    stream_arn: String,
    /// The queue of ticks, as events name it.
    ticks_arn: String,
}

/// A running system.
pub struct System {
    settings: SystemSettings,
    stack: Stack,
    dynamodb_url: String,
    sqs_url: String,
    meter: Meter,
    store: Store,
    claims: Queue,
    engine: EmbeddedDynamo,
    reconcile: AsyncInvoker,
    keep: Option<Keeping>,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

/// What a file-backed system writes down.
#[derive(Clone)]
struct Keeping {
    files: Files,
    queues: EmbeddedSqs,
    stream: StreamSource,
}

impl Keeping {
    fn save(&self) -> io::Result<()> {
        self.files.save(&Kept { queues: self.queues.snapshot(), stream: self.stream.checkpoint() })
    }
}

impl System {
    /// Starts everything but the workers.
    ///
    /// # Errors
    /// [`SystemError`], which says what to do.
    pub async fn start(settings: SystemSettings) -> Result<Self, SystemError> {
        let clock = settings.clock.clone();
        let files = settings.directory.as_ref().map(Files::open).transpose()?;
        let engine = match &files {
            Some(files) => EmbeddedDynamo::file(&files.engine(), clock.clone())?,
            None => EmbeddedDynamo::memory(clock.clone())?,
        };
        let kept = files.as_ref().map(Files::load).transpose()?.unwrap_or_default();
        let mut meter = Meter::new(engine.clone(), clock.clone(), Arc::new(cost::classify));
        if let Some(observer) = &settings.observer {
            meter = meter.observed_by(observer.clone());
        }
        let queues = EmbeddedSqs::new(clock.clone());
        if !kept.queues.is_null() {
            queues.restore(kept.queues).map_err(|error| SystemError::Stack(error.to_string()))?;
        }
        let stack = make_stack(&clients::dynamodb(meter.clone(), None), &clients::sqs(queues.clone(), None)).await?;

        let wiring = Wiring { settings, meter, queues, stack };
        let reconcile = wiring.reconcile();
        let stream = wiring.stream(kept.stream)?;
        let (stop, stopping) = watch::channel(false);
        let dynamodb = listen(wiring.settings.ports.0).await?;
        let sqs = listen(wiring.settings.ports.1).await?;
        let (dynamodb_url, sqs_url) = (url_of(&dynamodb)?, url_of(&sqs)?);
        let fronts = [serve(dynamodb, wiring.meter.clone(), &stopping), serve(sqs, wiring.queues.clone(), &stopping)];
        let mut tasks = Vec::from(fronts);
        tasks.extend(wiring.start_sources(stream.clone(), &reconcile, &stopping)?);
        let keep = files.map(|files| Keeping { files, queues: wiring.queues.clone(), stream });
        if let Some(keep) = keep.clone() {
            tasks.push(tokio::spawn(save_again_and_again(keep, stopping)));
        }
        let system = Self {
            store: wiring.store(),
            claims: wiring.queue(&wiring.stack.queues.claims),
            reconcile: reconcile.queue,
            meter: wiring.meter,
            stack: wiring.stack,
            settings: wiring.settings,
            engine,
            keep,
            stop,
            tasks,
            dynamodb_url,
            sqs_url,
        };
        // A schedule waits for its first minute; a person does not.
        system.reconcile_now();
        Ok(system)
    }

    /// Wakes reconcile as its schedule does.
    pub fn reconcile_now(&self) {
        let event =
            scheduled_event(SCHEDULE_ARN, self.settings.clock.wall_ms(), "00000000-0000-4000-8000-000000000000");
        if let Err(error) = self.reconcile.send(event) {
            tracing::error!(%error, "reconcile is not woken");
        }
    }

    /// Reports a task's state as ECS does.
    pub fn task_event(&self, task: &TaskState) {
        let event = task_state_change(task, self.settings.clock.wall_ms(), "00000000-0000-4000-8000-000000000001");
        if let Err(error) = self.reconcile.send(event) {
            tracing::error!(%error, "a task event is left out");
        }
    }

    /// The tables, as a user's tool reaches them.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The queue of claims.
    #[must_use]
    pub fn claims(&self) -> &Queue {
        &self.claims
    }

    /// Names of tables and queues.
    #[must_use]
    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    /// Where DynamoDB is reached.
    #[must_use]
    pub fn dynamodb_url(&self) -> &str {
        &self.dynamodb_url
    }

    /// Where SQS is reached.
    #[must_use]
    pub fn sqs_url(&self) -> &str {
        &self.sqs_url
    }

    /// What was written, by class (see [`cost`]).
    #[must_use]
    pub fn units(&self) -> BTreeMap<&'static str, Units> {
        self.meter.totals()
    }

    /// Removes what the tables' TTL has expired, which AWS does by itself.
    pub fn sweep_ttl(&self) {
        if let Err(error) = self.engine.sweep_ttl() {
            tracing::warn!(%error, "expired items stay");
        }
    }

    /// Stops everything, and writes down what is kept.
    ///
    /// # Errors
    /// When the files cannot be written.
    pub async fn stop(self) -> io::Result<()> {
        self.stop.send_replace(true);
        for task in self.tasks {
            // A task that panicked has ended too.
            let _ = task.await;
        }
        match &self.keep {
            Some(keep) => keep.save(),
            None => Ok(()),
        }
    }
}

/// What the parts are wired with.
struct Wiring {
    settings: SystemSettings,
    meter: Meter,
    queues: EmbeddedSqs,
    stack: Stack,
}

/// The function reconcile, invoked directly (ticks) and by its queue of events (schedule, task events).
struct ReconcileSource {
    invoker: Arc<Invoker>,
    queue: AsyncInvoker,
}

impl Wiring {
    fn store(&self) -> Store {
        let config = clients::dynamodb_config(self.meter.clone(), None);
        Store::new(DynamoClients::new(config, self.settings.clock.clone()), self.stack.tables.clone())
    }

    fn queue(&self, url: &str) -> Queue {
        Queue::new(clients::sqs_config(self.queues.clone(), None), url)
    }

    /// Where the metadata of events goes that a function could not handle.
    fn failures(&self) -> Option<Destination> {
        let client = clients::sqs(self.queues.clone(), None);
        Some(Destination { client, queue_url: self.stack.queues.failed_events.clone() })
    }

    /// Each source of jitter has its own seed.
    fn seed(&self, number: u64) -> u64 {
        self.settings.seed.wrapping_add(number)
    }

    fn reconcile(&self) -> ReconcileSource {
        let function = ReconcileFunction(Reconcile {
            store: self.store(),
            claims: self.queue(&self.stack.queues.claims),
            ticks: self.queue(&self.stack.queues.ticks),
            fleet: None,
            timing: self.settings.timing,
            rules: self.settings.rules,
            clock: self.settings.clock.clone(),
        });
        let invoker = Arc::new(Invoker::new(Arc::new(function), FUNCTION_TIMEOUT_MS));
        let clock = self.settings.clock.clone();
        let queue = AsyncInvoker::new(invoker.clone(), RECONCILE_EVENTS, None, clock, self.seed(0));
        ReconcileSource { invoker, queue }
    }

    fn stream(&self, progress: Progress) -> Result<StreamSource, SystemError> {
        let function = DesiredStateFunction(DesiredState {
            store: self.store(),
            claims: self.queue(&self.stack.queues.claims),
            timing: self.settings.timing,
            rules: self.settings.rules,
        });
        let parts = StreamParts {
            client: clients::streams(self.meter.clone(), None),
            stream_arn: self.stack.stream_arn.clone(),
            invoker: Arc::new(Invoker::new(Arc::new(function), FUNCTION_TIMEOUT_MS)),
            filters: Filters::parse(DESIRED_STATE_FILTERS)?,
            settings: StreamSettings::default(),
            destination: self.failures(),
            clock: self.settings.clock.clone(),
            seed: self.seed(1),
        };
        Ok(StreamSource::new(parts, progress))
    }

    fn start_sources(
        &self,
        stream: StreamSource,
        reconcile: &ReconcileSource,
        stop: &watch::Receiver<bool>,
    ) -> Result<[JoinHandle<()>; 4], SystemError> {
        let ticks = SqsSource::new(SqsParts {
            client: clients::sqs(self.queues.clone(), None),
            queue_url: self.stack.queues.ticks.clone(),
            queue_arn: self.stack.ticks_arn.clone(),
            invoker: reconcile.invoker.clone(),
            filters: Filters::from_patterns(&[])?,
            settings: SqsSettings::default(),
            clock: self.settings.clock.clone(),
            seed: self.seed(2),
        });
        let schedule = Schedule {
            target: reconcile.queue.clone(),
            rule_arn: SCHEDULE_ARN.to_owned(),
            interval_ms: SCHEDULE_MS,
            clock: self.settings.clock.clone(),
            seed: self.seed(3),
        };
        let queue = reconcile.queue.clone();
        let stops = [(); 4].map(|()| stop.clone());
        let [stop_stream, stop_ticks, stop_queue, stop_schedule] = stops;
        Ok([
            tokio::spawn(async move { stream.run(stop_stream).await }),
            tokio::spawn(async move { ticks.run(stop_ticks).await }),
            tokio::spawn(async move { queue.run(stop_queue).await }),
            tokio::spawn(async move { schedule.run(stop_schedule).await }),
        ])
    }
}

const SCHEDULE_ARN: &str = "arn:aws:events:us-east-1:000000000000:rule/leasehold-reconcile";

async fn make_stack(dynamo: &aws_sdk_dynamodb::Client, sqs: &aws_sdk_sqs::Client) -> Result<Stack, SystemError> {
    let failed = |error: &dyn std::fmt::Display| SystemError::Stack(error.to_string());
    let names = Names::default();
    let queues = stack::create(dynamo, sqs, &names).await.map_err(|error| failed(&error))?;
    let table = dynamo.describe_table().table_name(&names.tables.connections).send().await;
    let table = table.map_err(|error| failed(&DisplayErrorContext(error)))?;
    let stream_arn = table.table.and_then(|table| table.latest_stream_arn);
    let stream_arn = stream_arn.ok_or_else(|| failed(&"the table of connections has no stream"))?;
    let arn = QueueAttributeName::QueueArn;
    let ticks = sqs.get_queue_attributes().queue_url(&queues.ticks).attribute_names(arn.clone()).send().await;
    let ticks = ticks.map_err(|error| failed(&DisplayErrorContext(error)))?;
    let ticks_arn = ticks.attributes.and_then(|mut attributes| attributes.remove(&arn)).unwrap_or_default();
    Ok(Stack { tables: names.tables, queues, stream_arn, ticks_arn })
}

async fn listen(port: u16) -> Result<TcpListener, SystemError> {
    let listener = TcpListener::bind(("127.0.0.1", port)).await;
    listener.map_err(|error| SystemError::Io { what: format!("port {port} of 127.0.0.1 cannot be listened on"), error })
}

fn url_of(listener: &TcpListener) -> Result<String, SystemError> {
    let address =
        listener.local_addr().map_err(|error| SystemError::Io { what: "the listener has no address".into(), error })?;
    Ok(format!("http://{address}"))
}

fn serve(
    listener: TcpListener,
    connector: impl aws_smithy_runtime_api::client::http::HttpConnector + 'static,
    stop: &watch::Receiver<bool>,
) -> JoinHandle<()> {
    let mut stop = stop.clone();
    tokio::spawn(async move {
        let stopped = async move {
            // A dropped sender is a stop too.
            let _ = stop.wait_for(|stop| *stop).await;
        };
        if let Err(error) = front::serve(listener, connector, stopped).await {
            tracing::error!(%error, "a front has ended");
        }
    })
}

async fn save_again_and_again(keep: Keeping, mut stop: watch::Receiver<bool>) {
    while crate::events::pause(SAVE_MS, &mut stop).await {
        if let Err(error) = keep.save() {
            tracing::error!(%error, "the queues cannot be written down: a restart would lose what waits in them");
        }
    }
}
