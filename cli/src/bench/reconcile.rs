//! How fast the connections of a dead worker are claimed: the real handler, woken as its schedule and its ticks do, with the time that it has.

mod report;

use super::memory;
use super::stage::Stage;
use crate::output::{Output, note};
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use leasehold::aws::together::together;
use leasehold::model::connection::attr;
use leasehold::model::{AttributeValue, Claim, ConnectionId, Item, SessionId, spec};
use leasehold_reconcile::{Reconcile, tick_body};
use report::{Invocation, Report};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// How fast `reconcile` claims the connections of a dead worker.
///
/// The rows are owned by one session that renews no more; another one lives. The function is invoked every ten seconds, each sixth time as by
/// its schedule, until it has sent a claim for each row. Nobody takes the rows: that is the worst case.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// Connections of the dead worker
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// Seconds that an invocation has
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u64).range(3..=900))]
    deadline_s: u64,
    /// Milliseconds that each request to DynamoDB and SQS takes longer than the embedded ones
    #[arg(long, value_name = "MS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1_000))]
    latency_ms: u64,
    /// Invocations after which it is given up
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    invocations: u32,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Each so many invocations one is by the schedule: once a minute.
const A_MINUTE: u32 = 6;
/// How well lease time is known, in ms.
const LEASE_TIME_IS_WITHIN_MS: u64 = 2_000;
/// What an invocation before the measurement has, in ms: all the time in the world.
const LONG_MS: u64 = 900_000;
/// Receives that are under way at once when claims are counted.
const RECEIVES_TOGETHER: usize = 16;

/// Runs it. Exit code 0 only if each connection was claimed.
///
/// # Errors
/// When the measurement itself cannot run.
pub async fn run(arguments: &Arguments, output: &Output) -> Result<ExitCode> {
    let stage = Arc::new(Stage::new(arguments.latency_ms).await?);
    let (live, dead) = (SessionId::new("live"), SessionId::new("dead"));
    note(&format!("writing {} rows", arguments.connections));
    let now_ms = stage.clock.wall_ms();
    stage.fill((0..arguments.connections).map(|number| orphan(number, &dead, now_ms))).await?;
    stage.register(&live, stage.clock.wall_ms() + stage.timing.lease_ms).await?;
    // A task of its own: the embedded engine answers at once, and a run on it may not pause for long.
    let mut alive = tokio::spawn({
        let stage = stage.clone();
        async move { stage.keep_alive(&live).await }
    });
    let report = tokio::select! {
        report = measure(arguments, &stage, &dead) => report?,
        ended = &mut alive => {
            ended.context("the live session's renewals panicked")??;
            bail!("the live session's renewals ended");
        }
    };
    alive.abort();
    if arguments.json {
        output.json(&report)?;
    } else {
        report.print(output)?;
    }
    Ok(if report.all_claimed_s.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A row as its owner has left it.
fn orphan(number: u32, owner: &SessionId, now_ms: u64) -> Item {
    let id = ConnectionId::new(format!("conn-{number:07}")).expect("digits and letters are an id");
    let mut row = spec::minimal_item(&id, true, &format!("wss://feed.example.com/v1/streams/{id}")).into_inner();
    row.insert(attr::LEASE_OWNER.into(), AttributeValue::S(owner.as_str().into()));
    row.insert(attr::LEASE_EPOCH.into(), AttributeValue::N(now_ms.to_string()));
    row.insert(attr::OBSERVED_STATE.into(), AttributeValue::S("CONNECTED".into()));
    row.insert(attr::OBSERVED_SINCE_MS.into(), AttributeValue::N(now_ms.to_string()));
    row.insert(attr::LAST_SEQ.into(), AttributeValue::N("123456".into()));
    row.into()
}

async fn measure(arguments: &Arguments, stage: &Stage, dead: &SessionId) -> Result<Report> {
    let function = stage.reconcile();
    let deadline_ms = arguments.deadline_s * 1_000;
    wait_for_the_death(stage, &function, dead).await?;
    // What that took is no part of the measurement.
    let _ = stage.asked.take();
    let mut report = Report::new(arguments.connections, arguments.deadline_s, arguments.latency_ms);
    report.memory_before_bytes = memory::peak_bytes();
    let mut claimed = HashSet::new();
    let began_ms = stage.clock.mono_ms();
    for number in 0..arguments.invocations {
        let slot_ms = stage.clock.mono_ms();
        let (invocation, ended_ms) = invoke(&function, stage, number.is_multiple_of(A_MINUTE), deadline_ms).await;
        report.add(invocation);
        let received = count_claims(stage, &mut claimed).await?;
        report.count(received, claimed.len() as u64);
        if report.claims_distinct >= u64::from(arguments.connections) {
            report.all_claimed_s = Some(seconds(ended_ms - began_ms));
            break;
        }
        note(&format!("{} of {} connections are claimed", claimed.len(), arguments.connections));
        let took_ms = stage.clock.mono_ms() - slot_ms;
        sleep(Duration::from_millis(stage.timing.look_interval_ms.saturating_sub(took_ms))).await;
    }
    report.memory_peak_bytes = memory::peak_bytes();
    Ok(report)
}

/// The worker lives, and a run of a minute learns how large the table is; then it renews no more, and there are looks until its lease is over.
/// Without looks nobody would know whether the store was away, and suspicion would come before the fence.
async fn wait_for_the_death(stage: &Stage, function: &Reconcile, dead: &SessionId) -> Result<()> {
    note("waiting for the lease of the dead worker to end");
    let timing = stage.timing;
    stage.register(dead, stage.clock.wall_ms() + timing.lease_ms).await?;
    let lapse_ms = stage.clock.mono_ms() + timing.lease_ms;
    let mut event = json!({});
    while stage.clock.mono_ms() < lapse_ms {
        let answer = function.handle(event, LONG_MS).await.context("a look before the death failed")?;
        ensure!(answer["fenced"] == 0, "this machine is too slow: the worker was fenced before the measurement");
        event = tick();
        sleep(Duration::from_millis(timing.look_interval_ms - LEASE_TIME_IS_WITHIN_MS)).await;
    }
    let over_ms = lapse_ms + timing.max_clock_skew_ms + LEASE_TIME_IS_WITHIN_MS;
    sleep(Duration::from_millis(over_ms.saturating_sub(stage.clock.mono_ms()))).await;
    Ok(())
}

/// What a delayed tick wakes the function with.
fn tick() -> Value {
    json!({ "Records": [{ "messageId": "1", "body": tick_body() }] })
}

/// One invocation, and when it ended.
async fn invoke(function: &Reconcile, stage: &Stage, minute: bool, deadline_ms: u64) -> (Invocation, u64) {
    let event = if minute { json!({}) } else { tick() };
    let began_ms = stage.clock.mono_ms();
    let answer = function.handle(event, deadline_ms).await;
    let ended_ms = stage.clock.mono_ms();
    let (by_owner_pages, scanned_pages) = stage.asked.take();
    let invocation = Invocation {
        minute,
        seconds: seconds(ended_ms - began_ms),
        by_owner_pages,
        scanned_pages,
        ..Invocation::default()
    };
    let invocation = match answer {
        Ok(summary) => Invocation {
            claimed: summary["claimed"].as_u64().unwrap_or(0),
            fenced: summary["fenced"].as_u64().unwrap_or(0),
            cut_short: summary["cut_short"].as_u64().unwrap_or(0),
            ..invocation
        },
        Err(error) => Invocation { error: Some(error.to_string()), ..invocation },
    };
    (invocation, ended_ms)
}

fn seconds(ms: u64) -> f64 {
    Duration::from_millis(ms).as_secs_f64()
}

/// Receives and deletes every claim. Returns how many there were.
async fn count_claims(stage: &Stage, claimed: &mut HashSet<ConnectionId>) -> Result<u64> {
    let mut count = 0;
    loop {
        let mut bodies = Vec::new();
        for taken in together((0..RECEIVES_TOGETHER).map(|_| stage.take_claims()).collect()).await {
            bodies.extend(taken?);
        }
        if bodies.is_empty() {
            return Ok(count);
        }
        count += bodies.len() as u64;
        for body in bodies {
            claimed.insert(Claim::from_body(&body)?.connection_id);
        }
    }
}
