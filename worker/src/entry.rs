//! The one way in: from the environment to a running worker and its exit code.

use crate::connector::NetConnector;
use crate::context::{Parts, Seeds};
use crate::counters::{Counters, Gauges};
use crate::settings::{Settings, health_addr};
use crate::{health, run, task};
use clap::{Parser, Subcommand};
use leasehold::aws::queues::Queue;
use leasehold::aws::sdk::{self, DynamoClients};
use leasehold::aws::{Store, StoreError};
use leasehold::clock::{SharedClock, SystemClock};
use leasehold::decide::timing::Rules;
use leasehold::logging;
use leasehold::settings::{Lookup, optional};
use std::process::ExitCode;
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch};

/// Exit code: a setting is missing or wrong.
pub const EXIT_SETTINGS: u8 = 2;
/// Exit code: the tables or the queue cannot be used (missing, or no permission).
pub const EXIT_STORE: u8 = 3;
/// Exit code: the health check failed.
pub const EXIT_UNHEALTHY: u8 = 1;

/// Holds outbound WebSockets and renews the lease on them. Settings are environment variables.
#[derive(Parser)]
#[command(name = "worker", version)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Run until SIGTERM (the default).
    Run,
    /// Ask the worker in this container whether it works; exit code 0 if it does.
    Healthcheck,
}

/// What the `worker` binary does.
#[must_use]
pub fn main(lookup: Lookup<'_>) -> ExitCode {
    match Arguments::parse().command {
        None | Some(Command::Run) => run_worker(lookup, Rules::default()),
        Some(Command::Healthcheck) => healthcheck(lookup),
    }
}

fn healthcheck(lookup: Lookup<'_>) -> ExitCode {
    let addr = match health_addr(lookup) {
        Ok(Some(addr)) => addr,
        Ok(None) => return fail(EXIT_SETTINGS, "HEALTH_ADDR is off: there is nothing to ask"),
        Err(error) => return fail(EXIT_SETTINGS, &error.to_string()),
    };
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(EXIT_UNHEALTHY, &error.to_string()),
    };
    match runtime.block_on(health::check(addr)) {
        Ok(body) => {
            println!("{body}");
            ExitCode::SUCCESS
        }
        Err(error) => fail(EXIT_UNHEALTHY, &error),
    }
}

fn fail(code: u8, message: &str) -> ExitCode {
    eprintln!("worker: {message}");
    ExitCode::from(code)
}

/// Runs a worker until SIGTERM or SIGINT. `rules` is not a setting: only the demonstration's `--break` passes anything but the default.
#[must_use]
pub fn run_worker(lookup: Lookup<'_>, rules: Rules) -> ExitCode {
    let level = optional(lookup, "LOG_LEVEL").unwrap_or_else(|| "info".into());
    if let Err(error) = logging::start(&level) {
        return fail(EXIT_SETTINGS, &error.to_string());
    }
    let metadata = optional(lookup, task::METADATA_URI);
    let settings = match Settings::read(lookup) {
        Ok(settings) => Settings { rules, ..settings },
        Err(error) => return fail(EXIT_SETTINGS, &error.to_string()),
    };
    // rustls asks for one provider per process; a second installation keeps the first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtimes = Builder::new_multi_thread().enable_all().build().and_then(|main| {
        Ok((main, Builder::new_multi_thread().worker_threads(1).thread_name("keeper").enable_all().build()?))
    });
    let (main, keeper) = match runtimes {
        Ok(runtimes) => runtimes,
        Err(error) => return fail(EXIT_SETTINGS, &format!("no runtime: {error}")),
    };
    let code = main.block_on(async {
        let settings = Settings { task_arn: task_arn(settings.task_arn.clone(), metadata).await, ..settings };
        serve(settings, &keeper).await
    });
    keeper.shutdown_background();
    main.shutdown_background();
    code
}

/// The task that the settings name, or else the one that ECS tells of.
async fn task_arn(set: Option<String>, metadata: Option<String>) -> Option<String> {
    let (None, Some(uri)) = (&set, metadata) else { return set };
    match task::arn(&uri).await {
        Ok(arn) => Some(arn),
        Err(error) => {
            tracing::warn!(
                event = "task_unknown",
                error,
                "no task event can tell of this worker's death: its expiry will"
            );
            None
        }
    }
}

async fn serve(settings: Settings, keeper: &Runtime) -> ExitCode {
    let parts = build(settings, keeper).await;
    if let Some(addr) = parts.settings.health_addr {
        match tokio::net::TcpListener::bind(addr).await {
            Ok(listener) => drop(keeper.spawn(health::serve(listener, parts.clone()))),
            Err(error) => {
                let hint = "is another worker running here? Give each its own HEALTH_ADDR, or off";
                return fail(
                    EXIT_SETTINGS,
                    &format!("the health check cannot be answered at {addr}: {error} ({hint})"),
                );
            }
        }
    }
    match run::run(parts, stop_signal()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let hint = match error {
                StoreError::Missing { .. } => " Check CONNECTIONS_TABLE, SESSIONS_TABLE and MESSAGES_TABLE.",
                _ => "",
            };
            fail(EXIT_STORE, &format!("{error}.{hint}"))
        }
    }
}

async fn build(settings: Settings, keeper: &Runtime) -> Parts {
    let clock: SharedClock = Arc::new(SystemClock);
    let config = sdk::load().await;
    let dynamo = aws_sdk_dynamodb::config::Builder::from(&config);
    let store = || Store::new(DynamoClients::new(dynamo.clone(), clock.clone()), settings.tables.clone());
    // A client of its own for the keeper: the connections of a shared one would live on the runtime that used it first.
    let keeper_config = keeper.spawn(sdk::load()).await;
    let keeper_dynamo = keeper_config.map_or_else(|_| dynamo.clone(), |config| (&config).into());
    let keeper_store = Store::new(DynamoClients::new(keeper_dynamo, clock.clone()), settings.tables.clone());
    let buffer_kib = usize::try_from(settings.buffer_bytes / 1024).unwrap_or(Semaphore::MAX_PERMITS);
    Parts {
        store: store(),
        keeper_store,
        claims: Queue::new(aws_sdk_sqs::config::Builder::from(&config), settings.claims_queue_url.clone()),
        connector: NetConnector::new(clock.clone()),
        keeper_runtime: keeper.handle().clone(),
        seeds: Seeds::new(seed()),
        counters: Arc::new(Counters::default()),
        gauges: Arc::new(Gauges::starting_at(clock.mono_ms())),
        buffer_kib: Arc::new(Semaphore::new(buffer_kib.min(Semaphore::MAX_PERMITS))),
        settings: Arc::new(settings),
        clock,
    }
}

/// From the operating system: in containers every worker has process id 1, and tasks that start together must not get one session id.
#[expect(clippy::disallowed_methods, reason = "this is where the generators are seeded")]
fn seed() -> u64 {
    rand::random()
}

/// Turns true with the first SIGTERM or SIGINT.
fn stop_signal() -> watch::Receiver<bool> {
    let (sender, receiver) = watch::channel(false);
    tokio::spawn(async move {
        let signals = signal(SignalKind::terminate()).and_then(|term| Ok((term, signal(SignalKind::interrupt())?)));
        match signals {
            Ok((mut term, mut int)) => {
                tokio::select! {
                    biased;
                    _ = term.recv() => {}
                    _ = int.recv() => {}
                }
                tracing::info!(event = "stopping", "told to stop");
                sender.send_replace(true);
                sender.closed().await;
            }
            Err(error) => {
                tracing::error!(event = "no_signals", %error, "signals cannot be heard: only a kill ends this worker");
                std::future::pending::<()>().await;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_that_start_at_the_same_moment_get_different_seeds() {
        assert_ne!(seed(), seed());
    }
}
