//! The function `reconcile`: fences sessions, finds connections a new owner, repairs what events and processes left half done.
//!
//! - [`Trigger`]: what wakes it
//! - `run`: one run, part by part; `sessions`, `rows` and `sweeping` are the parts
//! - [`Summary`]: what it did
//!
//! Everything is read again in each run, so a run may end anywhere. The schedule alone repairs anything; events only make it faster.

mod rows;
mod run;
mod sessions;
mod settings;
mod summary;
mod sweeping;
mod trigger;

pub use settings::Settings;
pub use summary::Summary;
pub use trigger::{Trigger, tick_body};

use leasehold::aws::fleet::Fleet;
use leasehold::aws::queues::Queue;
use leasehold::aws::sdk::{self, DynamoClients};
use leasehold::aws::together::together;
use leasehold::aws::{Store, StoreError};
use leasehold::clock::{SharedClock, SystemClock};
use leasehold::decide::timing::{Rules, Timing};
use run::Run;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The schedule comes once a minute.
const MINUTE_MS: u64 = 60_000;

/// The function.
#[derive(Debug)]
pub struct Reconcile {
    /// The tables.
    pub store: Store,
    /// Where claims go.
    pub claims: Queue,
    /// Where delayed ticks go.
    pub ticks: Queue,
    /// The view of ECS, where workers run there.
    pub fleet: Option<Fleet>,
    /// The protocol's numbers.
    pub timing: Timing,
    /// The protocol's rules.
    pub rules: Rules,
    /// Measures how long a run may go on.
    pub clock: SharedClock,
}

/// Why a run failed, as a whole or in part. What it could do is done.
#[derive(Debug, thiserror::Error)]
pub enum HandlerError {
    /// The sessions could not be looked at, so nothing else was done.
    #[error("could not look at the sessions: {0}")]
    Look(#[source] StoreError),
    /// Requests were answered, but none had a Date.
    #[error("no answer of DynamoDB carried a Date: there is no lease time, and nobody is fenced without")]
    NoLeaseTime,
    /// Some parts failed; the log names each.
    #[error("{count} things failed, first: {part}: {source}")]
    Parts {
        /// How many.
        count: u64,
        /// The part that failed first.
        part: &'static str,
        /// Why.
        source: StoreError,
    },
}

/// How Lambda reports it.
impl From<HandlerError> for lambda_runtime::Diagnostic {
    fn from(error: HandlerError) -> Self {
        Self { error_type: "HandlerError".into(), error_message: error.to_string() }
    }
}

impl Reconcile {
    /// Connects to AWS as the environment says.
    pub async fn connect(settings: Settings) -> Self {
        let config = sdk::load().await;
        let clock: SharedClock = Arc::new(SystemClock);
        let clients = DynamoClients::new(aws_sdk_dynamodb::config::Builder::from(&config), clock.clone());
        let queue = |url| Queue::new(aws_sdk_sqs::config::Builder::from(&config), url);
        let fleet = settings.fleet.map(|(cluster, service)| Fleet::connect(&config, cluster, service));
        Self {
            store: Store::new(clients, settings.tables),
            claims: queue(settings.claims_queue_url),
            ticks: queue(settings.ticks_queue_url),
            fleet,
            timing: settings.timing,
            rules: Rules::default(),
            clock,
        }
    }

    /// Runs once, for any event, within `remaining_ms`. The answer is the run's [`Summary`].
    ///
    /// # Errors
    /// [`HandlerError`] when anything failed, so that AWS counts it; what could be done is done.
    pub async fn handle(&self, event: Value, remaining_ms: u64) -> Result<Value, HandlerError> {
        let (minute, stopped_tasks, bad_ticks) = match Trigger::of(&event) {
            Trigger::Minute => (true, BTreeSet::new(), 0),
            // Bad ticks alone are no reason to run.
            Trigger::Ticks { good: 0, bad } => return Ok(json!({ "batchItemFailures": [], "bad_ticks": bad })),
            Trigger::Ticks { bad, .. } => (false, BTreeSet::new(), bad),
            Trigger::Tasks(tasks) => (false, tasks, 0),
        };
        let mut run = Run::new(self, minute, remaining_ms);
        run.summary.bad_ticks = bad_ticks;
        if minute {
            self.send_ticks(&mut run).await;
        }
        run.run(&stopped_tasks).await?;
        run.summary.log();
        let mut answer = json!(run.summary);
        // For the queue of ticks: bad ones are deleted with the good.
        answer["batchItemFailures"] = json!([]);
        match run.first_failure {
            None => Ok(answer),
            Some((part, source)) => Err(HandlerError::Parts { count: run.summary.failed, part, source }),
        }
    }

    /// Ticks for the rest of the minute: a schedule does not come more often.
    async fn send_ticks(&self, run: &mut Run<'_>) {
        let step_s = (self.timing.look_interval_ms / 1_000).max(1);
        let body = tick_body();
        let mut sends = Vec::new();
        let mut delay_s = step_s;
        while delay_s * 1_000 < MINUTE_MS {
            sends.push(self.ticks.send(&body, delay_s));
            delay_s += step_s;
        }
        for outcome in together(sends).await {
            run.note("send ticks", outcome);
        }
    }
}
