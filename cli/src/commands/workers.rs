//! `leasehold workers`: the sessions, live ones first.

use super::now_ms;
use crate::failure::Failure;
use crate::output::Output;
use crate::target::Target;
use crate::visible::{cut, span};
use leasehold::model::{Session, SessionState};
use serde::Serialize;
use std::collections::BTreeMap;

/// The most of a reason that a table shows.
const REASON_CHARS: usize = 60;

/// List the workers' sessions; over ones stay for a day.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
LEASE is what is left of the session's lease, LAG the event loop's, SKEW the machine's clock less DynamoDB's (reported only: it decides
nothing).

--json prints {\"workers\":[…]}, each with session_id, state (ACTIVE, FENCED or ENDED), held, capacity, connected, heartbeat,
lease_expires_at_ms, lease_left_ms (negative: expired), loop_lag_ms, clock_skew_ms, version, task_arn, started_at_ms, over_at_ms,
over_reason, drain, suspected, counters. What is not there is null. Times are ms since 1970.")]
pub struct Arguments {
    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Document {
    workers: Vec<WorkerView>,
}

#[derive(Serialize)]
struct WorkerView {
    session_id: String,
    state: &'static str,
    held: u64,
    capacity: u64,
    connected: u64,
    heartbeat: u64,
    lease_expires_at_ms: u64,
    lease_left_ms: i64,
    loop_lag_ms: u64,
    clock_skew_ms: i64,
    version: Option<String>,
    task_arn: Option<String>,
    started_at_ms: Option<u64>,
    over_at_ms: Option<u64>,
    over_reason: Option<String>,
    drain: bool,
    suspected: bool,
    counters: BTreeMap<String, u64>,
}

impl Arguments {
    /// Runs the command.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn run(self, target: &Target, output: &Output) -> Result<(), Failure> {
        let mut sessions = target.store.sessions().await.map_err(|error| target.failure(error))?;
        sessions.sort_by(|a, b| (a.state.is_over(), a.id.as_str()).cmp(&(b.state.is_over(), b.id.as_str())));
        let now_ms = now_ms(&target.store);
        if self.json {
            let workers = sessions.into_iter().map(|session| view(session, now_ms)).collect();
            return output.json(&Document { workers });
        }
        let header =
            ["SESSION", "STATE", "HELD", "CONNECTED", "HEARTBEAT", "LEASE", "LAG", "SKEW", "VERSION", "OVER BECAUSE"];
        let rows: Vec<Vec<String>> = sessions.iter().map(|session| cells(session, now_ms)).collect();
        output.table(&header, &rows)
    }
}

fn left_ms(session: &Session, now_ms: u64) -> i64 {
    let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    signed(session.lease_expires_at_ms).saturating_sub(signed(now_ms))
}

fn cells(session: &Session, now_ms: u64) -> Vec<String> {
    let left_ms = left_ms(session, now_ms);
    let lease = match session.state {
        SessionState::Active if left_ms < 0 => format!("expired {} ago", span(left_ms.unsigned_abs())),
        SessionState::Active => span(left_ms.unsigned_abs()),
        SessionState::Fenced | SessionState::Ended => "-".to_owned(),
    };
    let mut state = session.state.as_str().to_owned();
    if session.drain && !session.state.is_over() {
        state.push_str(" (draining)");
    }
    vec![
        session.id.as_str().to_owned(),
        state,
        format!("{}/{}", session.held, session.capacity),
        session.connected.to_string(),
        session.heartbeat.to_string(),
        lease,
        format!("{} ms", session.loop_lag_ms),
        format!("{} ms", session.clock_skew_ms),
        session.version.clone().unwrap_or_default(),
        cut(session.over_reason.as_deref().unwrap_or_default(), REASON_CHARS),
    ]
}

fn view(session: Session, now_ms: u64) -> WorkerView {
    WorkerView {
        lease_left_ms: left_ms(&session, now_ms),
        session_id: session.id.as_str().to_owned(),
        state: session.state.as_str(),
        held: session.held,
        capacity: session.capacity,
        connected: session.connected,
        heartbeat: session.heartbeat,
        lease_expires_at_ms: session.lease_expires_at_ms,
        loop_lag_ms: session.loop_lag_ms,
        clock_skew_ms: session.clock_skew_ms,
        version: session.version,
        task_arn: session.task_arn,
        started_at_ms: session.started_at_ms,
        over_at_ms: session.over_at_ms,
        over_reason: session.over_reason,
        drain: session.drain,
        suspected: session.suspicion.is_some(),
        counters: session.counters.into_iter().collect(),
    }
}
