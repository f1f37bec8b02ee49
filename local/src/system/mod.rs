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
use crate::events::ecs::{TaskState, task_state_change};
use crate::events::filter::{FilterError, Filters};
use crate::events::schedule::{Schedule, scheduled_event};
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
        let sqs = clients::sqs(queues.clone(), None);
        let stack = make_stack(&clients::dynamodb(meter.clone(), None), &sqs).await?;

        let (stop, stopping) = watch::channel(false);
        let mut tasks = Vec::new();
        let dynamodb = listen(settings.ports.0).await?;
        let sqs_listener = listen(settings.ports.1).await?;
        let dynamodb_url = url_of(&dynamodb)?;
        let sqs_url = url_of(&sqs_listener)?;
        tasks.push(serve(dynamodb, meter.clone(), stopping.clone()));
        tasks.push(serve(sqs_listener, queues.clone(), stopping.clone()));

        let store = || {
            let clients = DynamoClients::new(clients::dynamodb_config(meter.clone(), None), clock.clone());
            Store::new(clients, stack.tables.clone())
        };
        let queue = |url: &str| Queue::new(clients::sqs_config(queues.clone(), None), url);
        let desired_state = DesiredStateFunction(DesiredState {
            store: store(),
            claims: queue(&stack.queues.claims),
            timing: settings.timing,
            rules: settings.rules,
        });
        let reconcile = ReconcileFunction(Reconcile {
            store: store(),
            claims: queue(&stack.queues.claims),
            ticks: queue(&stack.queues.ticks),
            fleet: None,
            timing: settings.timing,
            rules: settings.rules,
            clock: clock.clone(),
        });
        let reconcile = Arc::new(Invoker::new(Arc::new(reconcile), FUNCTION_TIMEOUT_MS));

        let parts = StreamParts {
            client: clients::streams(meter.clone(), None),
            stream_arn: stack.stream_arn.clone(),
            invoker: Arc::new(Invoker::new(Arc::new(desired_state), FUNCTION_TIMEOUT_MS)),
            filters: Filters::parse(DESIRED_STATE_FILTERS)?,
            settings: StreamSettings::default(),
            destination: None,
            clock: clock.clone(),
            seed: settings.seed,
        };
        let stream = StreamSource::new(parts, kept.stream);
        tasks.push(spawn(stream.clone(), stopping.clone(), |source, stop| async move { source.run(stop).await }));

        let ticks = SqsSource::new(SqsParts {
            client: sqs.clone(),
            queue_url: stack.queues.ticks.clone(),
            queue_arn: stack.ticks_arn.clone(),
            invoker: reconcile.clone(),
            filters: Filters::from_patterns(&[])?,
            settings: SqsSettings::default(),
            clock: clock.clone(),
            seed: settings.seed.wrapping_add(1),
        });
        tasks.push(spawn(ticks, stopping.clone(), |source, stop| async move { source.run(stop).await }));

        let seed = settings.seed.wrapping_add(2);
        let reconcile = AsyncInvoker::new(reconcile, AsyncSettings::default(), None, clock.clone(), seed);
        tasks.push(spawn(reconcile.clone(), stopping.clone(), |source, stop| async move { source.run(stop).await }));
        let schedule = Schedule {
            target: reconcile.clone(),
            rule_arn: SCHEDULE_ARN.to_owned(),
            interval_ms: SCHEDULE_MS,
            clock: clock.clone(),
            seed: settings.seed.wrapping_add(3),
        };
        tasks.push(spawn(schedule, stopping.clone(), |source, stop| async move { source.run(stop).await }));

        let keep = files.map(|files| Keeping { files, queues: queues.clone(), stream });
        if let Some(keep) = keep.clone() {
            tasks.push(tokio::spawn(save_again_and_again(keep, stopping.clone())));
        }
        let claims = queue(&stack.queues.claims);
        let system = Self {
            store: store(),
            claims,
            meter,
            engine,
            reconcile,
            keep,
            stop,
            tasks,
            stack,
            dynamodb_url,
            sqs_url,
            settings,
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
    mut stop: watch::Receiver<bool>,
) -> JoinHandle<()> {
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

fn spawn<T, F>(
    source: T,
    stop: watch::Receiver<bool>,
    run: impl FnOnce(T, watch::Receiver<bool>) -> F + Send + 'static,
) -> JoinHandle<()>
where
    T: Send + 'static,
    F: Future<Output = ()> + Send,
{
    tokio::spawn(async move { run(source, stop).await })
}

async fn save_again_and_again(keep: Keeping, mut stop: watch::Receiver<bool>) {
    while crate::events::pause(SAVE_MS, &mut stop).await {
        if let Err(error) = keep.save() {
            tracing::error!(%error, "the queues cannot be written down: a restart would lose what waits in them");
        }
    }
}
