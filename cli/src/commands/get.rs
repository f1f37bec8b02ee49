//! `leasehold get`: all that the row says of one connection.

use super::view::{ConnectionView, Row, SpecView};
use super::{connection_id, now_ms};
use crate::failure::Failure;
use crate::output::Output;
use crate::target::{Target, no_such_connection};
use crate::visible::span;
use leasehold::model::ConnectionId;

/// Show all that is known of one connection.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Values of headers and of the URL's query are never shown, nor what is sent when the socket is open.

--json prints one object: id, desired_state, observed_state, reason, observed_since_ms, error, spec (ws_url, header_names, subprotocols,
on_open_messages, resume_query_names, resume_header_name, resume_on_open, sequence_pointer; null where `error` says why), spec_changed,
lease_owner, lease_epoch, lease_expires_at_ms, last_seq, series, former_owners. What is not there is null. Times are ms since 1970.")]
pub struct Arguments {
    /// The connection
    #[arg(value_parser = connection_id)]
    id: ConnectionId,
    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

impl Arguments {
    /// Runs the command.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn run(self, target: &Target, output: &Output) -> Result<(), Failure> {
        let item = target.store.connection(&self.id).await.map_err(|error| target.failure(error))?;
        let Some(item) = item else { return Err(no_such_connection(self.id.as_str())) };
        match Row::from_item(&item) {
            Row::Bad(bad) => Err(Failure::Failed(format!("the row of {} cannot be read: {}", self.id, bad.error))),
            Row::Connection(view) if self.json => output.json(&view),
            Row::Connection(view) => output.record(&fields(&view, now_ms(&target.store))),
        }
    }
}

fn fields(view: &ConnectionView, now_ms: u64) -> Vec<(&'static str, String)> {
    let ago = |at: u64| format!("{} ago", span(now_ms.saturating_sub(at)));
    let mut out = vec![("id", view.id.clone()), ("desired state", view.desired_state.clone())];
    out.push(("observed state", view.observed_state.to_owned()));
    push(&mut out, "reason", view.reason.clone());
    push(&mut out, "since", view.observed_since_ms.map(ago));
    push(&mut out, "to repair", view.error.clone());
    push(&mut out, "owner", view.lease_owner.clone());
    push(&mut out, "epoch", view.lease_epoch.map(|epoch| epoch.to_string()));
    push(&mut out, "free", view.lease_expires_at_ms.map(|at| free(at, now_ms)));
    if let Some(spec) = &view.spec {
        push_spec(&mut out, spec);
    }
    push(&mut out, "spec changed", view.spec_changed.then(|| "yes, and the owner has not said so yet".to_owned()));
    push(&mut out, "last seq", view.last_seq.map(|seq| seq.to_string()));
    push(&mut out, "series", view.series.clone());
    push(&mut out, "former owners", joined(&view.former_owners, "; "));
    out
}

fn push_spec(out: &mut Vec<(&'static str, String)>, spec: &SpecView) {
    out.push(("url", spec.ws_url.clone()));
    push(out, "headers", joined(&spec.header_names, ", "));
    push(out, "subprotocols", joined(&spec.subprotocols, ", "));
    push(out, "on open", (spec.on_open_messages > 0).then(|| format!("{} messages", spec.on_open_messages)));
    let mut resume: Vec<String> = spec.resume_query_names.iter().map(|name| format!("query {name}=…")).collect();
    resume.extend(spec.resume_header_name.as_ref().map(|name| format!("header {name}")));
    resume.extend(spec.resume_on_open.then(|| "a message".to_owned()));
    push(out, "resume by", joined(&resume, ", "));
    push(out, "sequence pointer", spec.sequence_pointer.clone());
}

fn push(out: &mut Vec<(&'static str, String)>, name: &'static str, value: Option<String>) {
    if let Some(value) = value {
        out.push((name, value));
    }
}

fn joined(texts: &[String], separator: &str) -> Option<String> {
    (!texts.is_empty()).then(|| texts.join(separator))
}

fn free(at_ms: u64, now_ms: u64) -> String {
    if at_ms <= now_ms { "now".to_owned() } else { format!("in {}", span(at_ms - now_ms)) }
}
