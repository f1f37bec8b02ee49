//! A connection as it may be shown: no value of a header or of a query, no text that is sent.

use leasehold::model::connection::attr;
use leasehold::model::spec::shown_url;
use leasehold::model::{Connection, DesiredState, Item, Spec, fields};
use serde::Serialize;

/// A row that can be read; its fields are those of `--json`.
#[derive(Debug, Serialize)]
pub struct ConnectionView {
    /// The user's id.
    pub id: String,
    /// The wish, as it is written.
    pub desired_state: String,
    /// How it is, as its owner last said.
    pub observed_state: &'static str,
    /// The sentence beside the status.
    pub reason: Option<String>,
    /// Since when the status holds, in lease time.
    pub observed_since_ms: Option<u64>,
    /// What the user has to repair: the wish or the spec.
    pub error: Option<String>,
    /// The spec, where it can be read.
    pub spec: Option<SpecView>,
    /// A tool has changed the spec and the owner has not written since.
    pub spec_changed: bool,
    /// The owner's session.
    pub lease_owner: Option<String>,
    /// The fencing token.
    pub lease_epoch: Option<u64>,
    /// When a free row may be taken, in lease time; 0: at once.
    pub lease_expires_at_ms: Option<u64>,
    /// The resume point.
    pub last_seq: Option<u64>,
    /// The series that `last_seq` counts in.
    pub series: Option<String>,
    /// The last few owners and why each ended, oldest first.
    pub former_owners: Vec<String>,
}

/// A spec without its secrets.
#[derive(Debug, Serialize)]
pub struct SpecView {
    /// Without user, password and query values.
    pub ws_url: String,
    /// Names only.
    pub header_names: Vec<String>,
    /// Offered subprotocols.
    pub subprotocols: Vec<String>,
    /// How many messages are sent when the socket is open.
    pub on_open_messages: usize,
    /// The names of the query values that resume it.
    pub resume_query_names: Vec<String>,
    /// The name of the header that resumes it.
    pub resume_header_name: Option<String>,
    /// Whether a message resumes it.
    pub resume_on_open: bool,
    /// Where a message carries its number.
    pub sequence_pointer: Option<String>,
}

/// A row that cannot be read.
#[derive(Debug, Serialize)]
pub struct BadRow {
    /// Its key, as it is.
    pub key: String,
    /// What is wrong, and what belongs there.
    pub error: String,
}

/// Either.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Row {
    /// It can be read.
    Connection(Box<ConnectionView>),
    /// It cannot.
    Bad(BadRow),
}

impl Row {
    /// Reads a row.
    #[must_use]
    pub fn from_item(item: &Item) -> Self {
        match Connection::from_item(item) {
            Ok(row) => Self::Connection(Box::new(ConnectionView::new(row, item))),
            Err(error) => {
                let key = fields::string(item, attr::PK).ok().flatten().unwrap_or_default();
                Self::Bad(BadRow { key, error: error.to_string() })
            }
        }
    }
}

impl ConnectionView {
    fn new(row: Connection, item: &Item) -> Self {
        let spec = Spec::from_item(item);
        // A stopped row without a URL is nobody's problem yet, but `start` would refuse it: it is said.
        let error = row.bad_wish().or_else(|| spec.as_ref().err().map(ToString::to_string));
        Self {
            id: row.id.to_string(),
            desired_state: match row.desired_state {
                DesiredState::Started => DesiredState::STARTED.to_owned(),
                DesiredState::Stopped => DesiredState::STOPPED.to_owned(),
                DesiredState::Unknown(text) => text,
            },
            observed_state: row.observed_state.as_str(),
            reason: row.reason,
            observed_since_ms: row.observed_since_ms,
            error,
            spec: spec.ok().map(SpecView::new),
            spec_changed: row.spec_changed,
            lease_owner: row.lease.owner.map(|owner| owner.as_str().to_owned()),
            lease_epoch: row.lease.epoch,
            lease_expires_at_ms: row.lease.expires_at_ms,
            last_seq: row.progress.last_seq,
            series: row.progress.series,
            former_owners: row.owners,
        }
    }
}

impl SpecView {
    fn new(spec: Spec) -> Self {
        let query = spec.resume.query.unwrap_or_default();
        let names = url::form_urlencoded::parse(query.as_bytes()).map(|(name, _)| name.into_owned());
        Self {
            ws_url: shown_url(&spec.ws_url),
            header_names: spec.headers.into_iter().map(|(name, _)| name).collect(),
            subprotocols: spec.subprotocols,
            on_open_messages: spec.on_open.len(),
            resume_query_names: names.collect(),
            resume_header_name: spec.resume.header.map(|(name, _)| name),
            resume_on_open: spec.resume.on_open.is_some(),
            sequence_pointer: spec.sequence_pointer,
        }
    }
}
