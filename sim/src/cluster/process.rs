//! A worker process: the real worker on a runtime of its own, with its own network, clocks and sockets.

use crate::case::Config;
use crate::cluster::aws::Aws;
use crate::cluster::lane::Lane;
use crate::faults::Spells;
use crate::faults::line::Line;
use crate::faults::weather::Service;
use crate::time::{ProcessClock, WorldClock};
use crate::workload::Feeds;
use crate::workload::sockets::Opener;
use leasehold::aws::queues::Queue;
use leasehold::aws::sdk::DynamoClients;
use leasehold::aws::{Store, StoreError};
use leasehold::clock::{Clock, SharedClock};
use leasehold_local::engine::clients;
use leasehold_worker::context::{Parts, Seeds};
use leasehold_worker::counters::{Counters, Gauges};
use leasehold_worker::settings::Settings;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

/// A process that was told to stop is killed after so long, in ms.
const STOP_TIMEOUT_MS: u64 = 30_000;

/// A process.
pub struct Process {
    /// Its name: `w<place>.<generation>`.
    pub name: String,
    /// Its way to AWS.
    pub weather: Spells,
    /// Its clocks.
    pub clock: Arc<ProcessClock>,
    /// Suspended since, in ms of the world.
    suspended_ms: Option<u64>,
    /// Told to stop at, in ms of the world.
    told_ms: Option<u64>,
    stop: watch::Sender<bool>,
    task: JoinHandle<Result<(), StoreError>>,
    lane: Lane,
}

/// What a process is made from.
#[derive(Clone, Copy)]
pub struct Making<'a> {
    /// The case.
    pub config: &'a Config,
    /// AWS.
    pub aws: &'a Aws,
    /// The upstreams.
    pub feeds: &'a Feeds,
    /// The world's time.
    pub clock: &'a WorldClock,
    /// The world's runtime.
    pub world: &'a Handle,
}

/// The ARN of a process's task.
#[must_use]
pub fn task_arn(name: &str) -> String {
    format!("arn:aws:ecs:us-east-1:000000000000:task/leasehold/{name}")
}

impl Process {
    /// Starts a worker.
    #[must_use]
    pub fn start(making: Making<'_>, place: usize, generation: u64) -> Self {
        let name = format!("w{place}.{generation}");
        let seed = making.config.seed.wrapping_mul(1_000_003) ^ ((place as u64) << 32) ^ generation;
        let lane = Lane::new(making.config.drift_ppm.get(place).copied().unwrap_or(0));
        let weather = Spells::none(seed ^ 0x77);
        let (stop, stopped) = watch::channel(false);
        let handle = lane.handle();
        let (clock, task) = lane.enter(async {
            // Machines have run for some time, each for another.
            let clock = Arc::new(ProcessClock::starting(making.clock, 1_000_000 + seed % 1_000_000));
            let parts = parts(making, &name, &clock, &weather, handle, seed);
            (clock, tokio::spawn(leasehold_worker::run::run(parts, stopped)))
        });
        Self { name, weather, clock, suspended_ms: None, told_ms: None, stop, task, lane }
    }

    /// SIGTERM.
    pub fn terminate(&mut self, now_ms: u64) {
        self.told_ms.get_or_insert(now_ms);
        self.stop.send_replace(true);
    }

    /// True once it was told to stop.
    #[must_use]
    pub fn is_terminating(&self) -> bool {
        self.told_ms.is_some()
    }

    /// True once it has ended, or takes too long to.
    #[must_use]
    pub fn is_over(&self, now_ms: u64) -> bool {
        self.task.is_finished() || self.told_ms.is_some_and(|told_ms| now_ms >= told_ms + STOP_TIMEOUT_MS)
    }

    /// True while it is not run.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.suspended_ms.is_some()
    }

    /// SIGSTOP.
    pub fn suspend(&mut self, now_ms: u64) {
        self.suspended_ms.get_or_insert(now_ms);
    }

    /// SIGCONT.
    pub fn resume(&mut self, now_ms: u64) {
        if let Some(since_ms) = self.suspended_ms.take() {
            self.lane.wake(now_ms - since_ms);
        }
    }

    /// Runs for so much world time, unless it is suspended.
    pub fn step(&mut self, world_ms: u64) {
        if self.suspended_ms.is_none() {
            self.lane.step(world_ms);
        }
    }
}

fn parts(
    making: Making<'_>,
    name: &str,
    clock: &Arc<ProcessClock>,
    weather: &Spells,
    handle: Handle,
    seed: u64,
) -> Parts {
    let settings = settings(making, name);
    let shared: SharedClock = clock.clone();
    let line = |service: Service| {
        let (weather, world) = (weather.clone(), making.world.clone());
        match service {
            Service::Dynamo => {
                Line::new(making.aws.tables.clone(), service, weather, name, world, making.clock.clone())
            }
            Service::Sqs => Line::new(making.aws.queues.clone(), service, weather, name, world, making.clock.clone()),
        }
    };
    let store = || {
        let base = clients::dynamodb_config(line(Service::Dynamo), None).time_source(making.clock.clone());
        Store::new(DynamoClients::new(base, shared.clone()), settings.tables.clone())
    };
    let sqs = clients::sqs_config(line(Service::Sqs), None).time_source(making.clock.clone());
    let buffer_kib = usize::try_from(settings.buffer_bytes / 1_024).unwrap_or(Semaphore::MAX_PERMITS);
    Parts {
        store: store(),
        keeper_store: store(),
        claims: Queue::new(sqs, settings.claims_queue_url.clone()),
        connector: Opener::new(making.feeds.clone(), name, seed ^ 0x99),
        keeper_runtime: handle,
        seeds: Seeds::new(seed),
        counters: Arc::new(Counters::default()),
        gauges: Arc::new(Gauges::starting_at(clock.mono_ms())),
        buffer_kib: Arc::new(Semaphore::new(buffer_kib)),
        settings: Arc::new(settings),
        clock: shared,
    }
}

fn settings(making: Making<'_>, name: &str) -> Settings {
    let (tables, config) = (&making.aws.names.tables, making.config);
    let lookup = |variable: &str| match variable {
        "CONNECTIONS_TABLE" => Some(tables.connections.clone()),
        "SESSIONS_TABLE" => Some(tables.sessions.clone()),
        "MESSAGES_TABLE" => Some(tables.messages.clone()),
        "CLAIMS_QUEUE_URL" => Some(making.aws.urls.claims.clone()),
        "TASK_ARN" => Some(task_arn(name)),
        "CAPACITY" => Some(config.capacity.to_string()),
        "HEALTH_ADDR" => Some("off".into()),
        _ => None,
    };
    let settings = Settings::read(&lookup).expect("the settings are complete");
    Settings { timing: config.timing, rules: config.rules, on_store_outage: config.policy, ..settings }
}
