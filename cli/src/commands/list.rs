//! `leasehold list`: all connections, bad rows among them.

use super::now_ms;
use super::view::{ConnectionView, Row};
use crate::failure::Failure;
use crate::output::Output;
use crate::target::Target;
use crate::visible::{cut, span};
use leasehold::model::connection::attr;
use leasehold::model::{DesiredState, ObservedState, SessionId};
use serde::Serialize;

/// The most of a reason that a table shows.
const REASON_CHARS: usize = 60;

/// List the connections.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A row that cannot be read is listed with its error, unless a filter is given.

--json prints {\"connections\":[…]}, each as `leasehold get --json` prints it; one that cannot be read as {\"key\",\"error\"}.")]
pub struct Arguments {
    /// Only those whose observed state is this: PENDING, CONNECTING, CONNECTED, BACKOFF, PARKED or STOPPED
    #[arg(long, value_name = "STATE", value_parser = observed_state)]
    state: Option<ObservedState>,
    /// Only those whose desired state is this: STARTED or STOPPED
    #[arg(long, value_name = "STATE", value_parser = desired_state)]
    desired: Option<&'static str>,
    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Document {
    connections: Vec<Row>,
}

impl Arguments {
    /// Runs the command.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn run(self, target: &Target, output: &Output) -> Result<(), Failure> {
        let mut connections = self.rows(target).await?;
        connections.sort_by(|a, b| key(a).cmp(key(b)));
        if self.json {
            return output.json(&Document { connections });
        }
        let now_ms = now_ms(&target.store);
        let cells: Vec<Vec<String>> = connections.iter().map(|row| cells(row, now_ms)).collect();
        output.table(&["ID", "DESIRED", "OBSERVED", "OWNER", "SINCE", "REASON"], &cells)
    }

    async fn rows(&self, target: &Target) -> Result<Vec<Row>, Failure> {
        let mut rows = Vec::new();
        let mut from: Option<String> = None;
        loop {
            let page = target.store.scan_connections(from.as_deref()).await.map_err(|error| target.failure(error))?;
            rows.extend(page.items.iter().map(Row::from_item).filter(|row| self.wants(row)));
            from = page.next_key(attr::PK).map(str::to_owned);
            if from.is_none() {
                return Ok(rows);
            }
        }
    }

    fn wants(&self, row: &Row) -> bool {
        match row {
            Row::Bad(_) => self.state.is_none() && self.desired.is_none(),
            Row::Connection(view) => {
                self.state.is_none_or(|state| view.observed_state == state.as_str())
                    && self.desired.is_none_or(|desired| view.desired_state == desired)
            }
        }
    }
}

fn key(row: &Row) -> &str {
    match row {
        Row::Connection(view) => &view.id,
        Row::Bad(bad) => &bad.key,
    }
}

fn cells(row: &Row, now_ms: u64) -> Vec<String> {
    match row {
        Row::Bad(bad) => {
            let mut cells = vec![cut(&bad.key, REASON_CHARS)];
            cells.extend(["?", "?", "-", "-"].map(str::to_owned));
            cells.push(bad.error.clone());
            cells
        }
        Row::Connection(view) => connection_cells(view, now_ms),
    }
}

fn connection_cells(view: &ConnectionView, now_ms: u64) -> Vec<String> {
    let none = || "-".to_owned();
    let owner = view.lease_owner.as_ref().map(|owner| SessionId::new(owner).short().to_owned());
    let since = view.observed_since_ms.map(|at| span(now_ms.saturating_sub(at)));
    // What is to be repaired is said whole: it is what the reader came for.
    let reason = view.error.clone().or_else(|| view.reason.as_ref().map(|reason| cut(reason, REASON_CHARS)));
    vec![
        view.id.clone(),
        cut(&view.desired_state, REASON_CHARS),
        view.observed_state.to_owned(),
        owner.unwrap_or_else(none),
        since.unwrap_or_else(none),
        reason.unwrap_or_default(),
    ]
}

fn observed_state(text: &str) -> Result<ObservedState, String> {
    let found = ObservedState::ALL.into_iter().find(|state| state.as_str().eq_ignore_ascii_case(text));
    found.ok_or_else(|| format!("it must be one of {}", ObservedState::ALL.map(ObservedState::as_str).join(", ")))
}

fn desired_state(text: &str) -> Result<&'static str, String> {
    let states = [DesiredState::STARTED, DesiredState::STOPPED];
    let found = states.into_iter().find(|state| state.eq_ignore_ascii_case(text));
    found.ok_or_else(|| "it must be STARTED or STOPPED".to_owned())
}
