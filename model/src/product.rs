//! The model's rows in the product's types, so that the product's own decisions are asked.

use crate::state::{SESSIONS, Set};
use crate::store::{Expected, Life, Observed, Row, SessionRow};
use leasehold::decide::acquire::{self, OwnerView};
use leasehold::decide::desired;
use leasehold::decide::reconcile::over;
use leasehold::model::connection::attr;
use leasehold::model::{
    AttributeValue, Connection, ConnectionId, DesiredState, Item, Lease, ObservedState, Progress, Session, SessionId,
    SessionState, Suspicion,
};
use std::collections::BTreeSet;

/// The name of a connection.
///
/// # Panics
/// Never: the name is of the allowed form.
#[must_use]
pub fn connection_id(c: u8) -> ConnectionId {
    ConnectionId::new(format!("c{c}")).expect("a letter and a digit are an id")
}

/// The name of a session.
#[must_use]
pub fn session_id(session: u8) -> SessionId {
    SessionId::new(format!("s{session}"))
}

/// The number of a session.
///
/// # Panics
/// If the name is none of [`session_id`]: a fault of the model.
#[must_use]
pub fn session_number(id: &SessionId) -> u8 {
    id.as_str()[1..].parse().expect("a name that the model gave")
}

/// The name of a session's task.
#[must_use]
pub fn task(session: u8) -> String {
    format!("task-{session}")
}

/// The tasks of these sessions.
#[must_use]
pub fn tasks(sessions: Set) -> BTreeSet<String> {
    (0..SESSIONS as u8).filter(|session| sessions >> session & 1 == 1).map(task).collect()
}

/// A row as the product reads it.
#[must_use]
pub fn connection(c: u8, row: &Row) -> Connection {
    let (observed_state, observed_since_ms) = match row.observed {
        Observed::Pending => (ObservedState::Pending, None),
        Observed::Connecting(since_ms) => (ObservedState::Connecting, Some(since_ms.into())),
        Observed::Connected => (ObservedState::Connected, None),
        Observed::Stopped => (ObservedState::Stopped, None),
    };
    Connection {
        id: connection_id(c),
        desired_state: if row.started { DesiredState::Started } else { DesiredState::Stopped },
        lease: Lease {
            owner: row.owner.map(session_id),
            epoch: row.epoch.map(u64::from),
            expires_at_ms: row.expires_ms.map(u64::from),
        },
        progress: Progress::default(),
        observed_state,
        reason: None,
        observed_since_ms,
        owners: Vec::new(),
        spec_changed: false,
    }
}

/// A row as functions read it, whatever is in it.
#[must_use]
pub fn row(c: u8, row: Option<Row>) -> desired::Row {
    match row {
        None => desired::Row::Gone,
        Some(row) => desired::Row::Readable { row: Box::new(connection(c, &row)), fault: None },
    }
}

/// What a stream record, or an index, shows of a row.
#[must_use]
pub fn image(c: u8, row: &Row) -> Item {
    let text = |text: &str| AttributeValue::S(text.into());
    let wish = if row.started { DesiredState::STARTED } else { DesiredState::STOPPED };
    let mut item = Item::default();
    item.insert(attr::PK.into(), text(&connection_id(c).pk()));
    item.insert(attr::DESIRED_STATE.into(), text(wish));
    if let Some(owner) = row.owner {
        item.insert(attr::LEASE_OWNER.into(), text(session_id(owner).as_str()));
    }
    if let Some(epoch) = row.epoch {
        item.insert(attr::LEASE_EPOCH.into(), AttributeValue::N(epoch.to_string()));
    }
    item
}

/// A session as the product reads it.
#[must_use]
pub fn session(session: u8, row: &SessionRow) -> Session {
    let state = match row.life {
        Life::Active => SessionState::Active,
        Life::Fenced => SessionState::Fenced,
        Life::Ended => SessionState::Ended,
    };
    let suspicion =
        row.suspicion.map(|(heartbeat, at_ms)| Suspicion { heartbeat: heartbeat.into(), at_ms: at_ms.into() });
    Session {
        task_arn: Some(task(session)),
        heartbeat: row.heartbeat.into(),
        lease_expires_at_ms: row.expires_ms.into(),
        over_at_ms: state.is_over().then_some(0),
        empty_since_ms: row.empty.then_some(0),
        suspicion,
        ..Session::sample(session_id(session).as_str(), state)
    }
}

/// What is known of an owner.
pub enum Known {
    /// No look was needed.
    NotNeeded,
    /// There is no such row.
    Gone,
    /// As it was read.
    Session(Box<Session>),
}

impl Known {
    /// As the product's decisions take it.
    #[must_use]
    pub fn view(&self) -> OwnerView<'_> {
        match self {
            Self::NotNeeded => OwnerView::NotNeeded,
            Self::Gone => OwnerView::Gone,
            Self::Session(session) => OwnerView::Session(session),
        }
    }
}

/// The lease as read, and that it is free or past by now where that decides.
#[must_use]
pub fn expected(expected: &acquire::Expected) -> Expected {
    Expected {
        owner: expected.owner.as_ref().map(session_number),
        epoch: expected.epoch.map(crate::numbers::ms),
        expired_by_ms: expected.expired_by_ms.map(crate::numbers::ms),
    }
}

/// What an index shows of a row of an over session; nothing when it is to wait, which it never is here: each look serves all rows.
#[must_use]
pub fn index_row(c: u8, row: &Row, turns: leasehold::decide::reconcile::Turns) -> Option<over::IndexRow> {
    over::index_row(&image(c, row), true, turns).ok()
}
