//! What users write: the wish and the spec of a connection. Never the lease, the progress or the status.

use super::error::StoreError;
use super::store::{SdkItem, Store, Written};
use super::update::{Update, s};
use crate::model::connection::{DesiredState, attr as row};
use crate::model::spec::attr;
use crate::model::{ConnectionId, Item, RowError, Spec};
use aws_sdk_dynamodb::types::AttributeValue;
use std::collections::HashMap;

/// The spec as a user gives it. What is absent or empty is left as it is on the row; what is given replaces its attribute whole.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct GivenSpec {
    /// `ws_url`.
    pub ws_url: Option<String>,
    /// `headers`: name and value.
    pub headers: Vec<(String, String)>,
    /// `subprotocols`.
    pub subprotocols: Vec<String>,
    /// `on_open`: text messages, in order.
    pub on_open: Vec<String>,
    /// `resume`: its parts (`query`, `header`, `on_open`) and their templates.
    pub resume: Vec<(&'static str, String)>,
    /// `sequence_pointer`.
    pub sequence_pointer: Option<String>,
}

/// What [`Store::start`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// There was no such row: it was made.
    Made,
    /// The row was there.
    Changed,
}

/// Why a wish was not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserError {
    /// The table.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The row as it would be is not of our format; workers would park it.
    #[error(transparent)]
    Spec(#[from] RowError),
    /// There is no such row, and nothing to make one of.
    #[error("there is no connection {0}")]
    NoSuchRow(ConnectionId),
    /// The row was made or removed while we looked, more often than we tried.
    #[error("connection {0} is being made and removed by somebody else: try again")]
    Busy(ConnectionId),
}

/// How often a write is tried when the row comes or goes between our read and our write.
const TRIES: u32 = 3;

impl GivenSpec {
    /// True when nothing was given.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The attributes to write.
    fn attributes(&self) -> Vec<(&'static str, AttributeValue)> {
        let mut out = Vec::new();
        if let Some(url) = &self.ws_url {
            out.push((attr::WS_URL, s(url)));
        }
        if !self.headers.is_empty() {
            out.push((attr::HEADERS, string_map(self.headers.iter().map(|(name, value)| (name.as_str(), value)))));
        }
        if !self.subprotocols.is_empty() {
            out.push((attr::SUBPROTOCOLS, strings(&self.subprotocols)));
        }
        if !self.on_open.is_empty() {
            out.push((attr::ON_OPEN, strings(&self.on_open)));
        }
        if !self.resume.is_empty() {
            out.push((attr::RESUME, string_map(self.resume.iter().map(|(name, value)| (*name, value)))));
        }
        if let Some(pointer) = &self.sequence_pointer {
            out.push((attr::SEQUENCE_POINTER, s(pointer)));
        }
        out
    }

    /// The spec that the row will have, read as every reader reads it. `on` is the row that is there.
    ///
    /// # Errors
    /// [`RowError`] naming the attribute and what belongs there.
    pub fn check(&self, on: Option<&Item>) -> Result<Spec, RowError> {
        let mut item: HashMap<String, crate::model::AttributeValue> =
            on.map(|item| item.iter().map(|(name, value)| (name.clone(), value.clone())).collect()).unwrap_or_default();
        let given: SdkItem = self.attributes().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let given: Item = given.into();
        item.extend(given.into_inner());
        Spec::from_item(&item.into())
    }
}

impl Store {
    /// Writes that a connection should be STARTED, with what is given of its spec, in one update. On a row that is there a given spec also
    /// sets `spec_changed`, which wakes the owner and which it removes.
    ///
    /// # Errors
    /// [`UserError`]: `NoSuchRow` when there is no row and no URL to make one with.
    pub async fn start(&self, id: &ConnectionId, given: &GivenSpec) -> Result<Started, UserError> {
        for _ in 0..TRIES {
            let found = self.connection(id).await?;
            if found.is_none() && given.ws_url.is_none() {
                return Err(UserError::NoSuchRow(id.clone()));
            }
            given.check(found.as_ref())?;
            let changed_at_ms = self.time().clock().wall_ms();
            let update = start_update(given, found.is_some(), changed_at_ms);
            if self.update_by_user(id, update).await?.is_applied() {
                return Ok(if found.is_some() { Started::Changed } else { Started::Made });
            }
        }
        Err(UserError::Busy(id.clone()))
    }

    /// Writes that a connection should be STOPPED.
    ///
    /// # Errors
    /// [`UserError`]: `NoSuchRow` when there is none.
    pub async fn stop(&self, id: &ConnectionId) -> Result<(), UserError> {
        let update = Update::new().set(row::DESIRED_STATE, s(DesiredState::STOPPED)).require_exists(row::PK);
        match self.update_by_user(id, update).await? {
            Written::Applied(_) => Ok(()),
            Written::Refused(_) => Err(UserError::NoSuchRow(id.clone())),
        }
    }

    async fn update_by_user(&self, id: &ConnectionId, update: Update) -> Result<Written, StoreError> {
        self.update(&self.clients.bulk, &self.tables.connections, (row::PK, id.pk()), update).await
    }
}

/// `spec_changed` is a text that differs from change to change; nothing is read out of it.
fn start_update(given: &GivenSpec, exists: bool, changed_at_ms: u64) -> Update {
    let mut update = Update::new().set(row::DESIRED_STATE, s(DesiredState::STARTED));
    for (name, value) in given.attributes() {
        update = update.set(name, value);
    }
    if !exists {
        return update.require_absent(row::PK);
    }
    if !given.is_empty() {
        update = update.set(row::SPEC_CHANGED, s(changed_at_ms.to_string()));
    }
    update.require_exists(row::PK)
}

fn strings(values: &[String]) -> AttributeValue {
    AttributeValue::L(values.iter().map(s).collect())
}

fn string_map<'a>(entries: impl Iterator<Item = (&'a str, &'a String)>) -> AttributeValue {
    AttributeValue::M(entries.map(|(name, value)| (name.to_owned(), s(value))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url() -> GivenSpec {
        GivenSpec { ws_url: Some("wss://a.example/".into()), ..GivenSpec::default() }
    }

    #[test]
    fn a_new_row_carries_no_flag_and_a_changed_spec_does() {
        let made = start_update(&url(), false, 7);
        assert_eq!(made.expression().unwrap(), "SET #desired_state = :v0, #ws_url = :v1");
        assert_eq!(made.condition().unwrap(), "attribute_not_exists(#Pk)");
        let changed = start_update(&url(), true, 7);
        assert_eq!(changed.expression().unwrap(), "SET #desired_state = :v0, #ws_url = :v1, #spec_changed = :v2");
        assert_eq!(changed.condition().unwrap(), "attribute_exists(#Pk)");
    }

    #[test]
    fn a_bare_start_of_a_row_changes_the_wish_only() {
        let update = start_update(&GivenSpec::default(), true, 7);
        assert_eq!(update.expression().unwrap(), "SET #desired_state = :v0");
    }

    #[test]
    fn what_is_given_is_checked_together_with_what_is_there() {
        let there = crate::model::spec::minimal_item(&ConnectionId::new("a").unwrap(), true, "wss://old.example/");
        let pointer = GivenSpec { sequence_pointer: Some("/seq".into()), ..GivenSpec::default() };
        let spec = pointer.check(Some(&there)).unwrap();
        assert_eq!((spec.ws_url.as_str(), spec.sequence_pointer.as_deref()), ("wss://old.example/", Some("/seq")));
        let bad = GivenSpec { resume: vec![("query", "from=1".into())], ..url() };
        let error = bad.check(None).unwrap_err().to_string();
        assert!(error.starts_with("resume is without {last_seq} in query"), "{error}");
        assert!(pointer.check(None).unwrap_err().to_string().starts_with("ws_url is missing"));
    }
}
