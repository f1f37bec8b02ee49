//! `leasehold local`: the whole system on this machine, for a user's own connections, until Ctrl-C. What it keeps survives a restart.

use crate::target::{LOCAL_FILE, LocalQueues, LocalSystem, LocalTables};
use crate::worker;
use anyhow::{Context, Result, bail};
use clap::Args;
use leasehold::clock::{Clock, SharedClock, SystemClock};
use leasehold::decide::backoff::Backoff;
use leasehold::decide::timing::{Rules, Timing};
use leasehold_local::system::workers::{WorkerCommand, WorkerProcess};
use leasehold_local::system::{System, SystemSettings};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rustix::process::{Pid, Signal, test_kill_process};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{interval, sleep, timeout};

/// Keeps the whole system up on this machine, until Ctrl-C.
///
/// An embedded DynamoDB engine and queues (files in the state directory), the control plane, and worker processes. `leasehold start`,
/// `stop`, `get`, `list`, `workers` and `messages` work on it from another terminal.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// Worker processes
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    workers: u32,
    /// Port of DynamoDB on 127.0.0.1; 0 for any
    #[arg(long, default_value_t = 0)]
    dynamodb_port: u16,
    /// Port of SQS on 127.0.0.1; 0 for any
    #[arg(long, default_value_t = 0)]
    sqs_port: u16,
    /// What workers do while DynamoDB cannot be reached: close or hold
    #[arg(long, default_value = "close", value_parser = ["close", "hold"])]
    on_store_outage: String,
}

/// How long workers get to shut down.
const SHUTDOWN: Duration = Duration::from_secs(15);
/// How often workers are looked at.
const LOOK_EVERY_MS: u64 = 1_000;
/// How often expired messages are removed, which AWS does by itself.
const TTL_EVERY: Duration = Duration::from_secs(60);

/// Runs it.
///
/// # Errors
/// When it cannot start, or cannot write its files at the end.
pub async fn run(arguments: &Arguments, state_dir: &Path) -> Result<ExitCode> {
    let file = state_dir.join(LOCAL_FILE);
    refuse_a_second(&file)?;
    let clock: SharedClock = Arc::new(SystemClock);
    let system = System::start(SystemSettings {
        directory: Some(state_dir.to_owned()),
        ports: (arguments.dynamodb_port, arguments.sqs_port),
        timing: Timing::default(),
        rules: Rules::default(),
        seed: clock.wall_ms(),
        clock,
        observer: None,
    })
    .await?;
    describe(&system).write(&file).with_context(|| format!("{} cannot be written", file.display()))?;
    let mut command = worker::command(None, &state_dir.join("logs"))?;
    command.environment.push(("ON_STORE_OUTAGE".into(), arguments.on_store_outage.clone()));
    let mut workers = Vec::new();
    for number in 1..=arguments.workers {
        workers.push(WorkerProcess::start(&system, &command, number)?);
    }
    println!("DynamoDB at {}, SQS at {}, {} workers", system.dynamodb_url(), system.sqs_url(), arguments.workers);
    println!("logs of the workers: {}", command.log_directory.display());
    println!("try in another terminal: leasehold start my-feed --url wss://…   (Ctrl-C ends the system)");
    let rng = StdRng::seed_from_u64(SystemClock.wall_ms());
    let watched = watch(&system, &command, &mut workers, rng).await;
    println!("ending the workers");
    end_workers(&mut workers).await;
    let stopped = system.stop().await.context("the state cannot be written down");
    // Removed last: while it is there, other terminals find the system.
    let _ = std::fs::remove_file(&file);
    watched?;
    stopped?;
    Ok(ExitCode::SUCCESS)
}

/// Two systems on one state directory would write the same files.
fn refuse_a_second(file: &Path) -> Result<()> {
    let Ok(Some(running)) = LocalSystem::read(file) else { return Ok(()) };
    if running.pid == std::process::id() {
        // Written by an earlier process that had this id, as in a container that was started again.
        return Ok(());
    }
    let pid = i32::try_from(running.pid).ok().and_then(Pid::from_raw);
    if pid.is_some_and(|pid| test_kill_process(pid).is_ok()) {
        bail!(
            "a local system runs already (process {}): use it, end it, or choose another --state-dir (if that process is something else, \
             remove {})",
            running.pid,
            file.display()
        );
    }
    Ok(())
}

fn describe(system: &System) -> LocalSystem {
    let stack = system.stack();
    LocalSystem {
        pid: std::process::id(),
        dynamodb: system.dynamodb_url().to_owned(),
        sqs: system.sqs_url().to_owned(),
        tables: LocalTables {
            connections: stack.tables.connections.clone(),
            sessions: stack.tables.sessions.clone(),
            messages: stack.tables.messages.clone(),
        },
        queues: LocalQueues { claims: stack.queues.claims.clone(), ticks: stack.queues.ticks.clone() },
    }
}

/// Starts ended workers again and reports their end, as ECS does, until Ctrl-C or SIGTERM.
async fn watch(system: &System, command: &WorkerCommand, workers: &mut [WorkerProcess], mut rng: StdRng) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut expire = interval(TTL_EVERY);
    let mut next = u32::try_from(workers.len()).unwrap_or(u32::MAX) + 1;
    let backoff = Backoff { base_ms: 1_000, ..Backoff::default() };
    let mut failures = 0;
    loop {
        // A worker that ends again and again is started less and less often.
        let pause_ms = LOOK_EVERY_MS + if failures > 1 { backoff.wait_ms(failures, &mut rng) } else { 0 };
        tokio::select! {
            _ = tokio::signal::ctrl_c() => return Ok(()),
            _ = terminate.recv() => return Ok(()),
            _ = expire.tick() => system.sweep_ttl(),
            () = sleep(Duration::from_millis(pause_ms)) => {
                let mut ended = false;
                for worker in workers.iter_mut() {
                    let Some(status) = worker.ended()? else { continue };
                    eprintln!("leasehold: worker {} ended ({status}); worker {next} replaces it", worker.number);
                    // A process that a signal killed has 128 + its number, as a container has.
                    let code = status.code().unwrap_or(137);
                    system.task_event(&worker.stopped_task(code, SystemClock.wall_ms()));
                    *worker = WorkerProcess::start(system, command, next)?;
                    next += 1;
                    ended = true;
                }
                failures = if ended { failures + 1 } else { failures.saturating_sub(1) };
            }
        }
    }
}

async fn end_workers(workers: &mut [WorkerProcess]) {
    for worker in workers.iter() {
        // One that has ended already needs no signal.
        let _ = worker.signal(Signal::TERM);
    }
    for worker in workers.iter_mut() {
        if timeout(SHUTDOWN, worker.wait()).await.is_err() {
            eprintln!("leasehold: worker {} did not end in time and is killed", worker.number);
        }
    }
}
