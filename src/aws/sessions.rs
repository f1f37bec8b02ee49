//! Rows of `sessions`: registration, renewal, fencing; the marks beside them; in [`memory`] reconcile's memory.

pub mod memory;

pub use memory::Memory;

use super::error::{StoreError, sort};
use super::store::{DYNAMODB, SdkItem, Store, Written, key};
use super::update::{Update, n, s};
use crate::model::fields;
use crate::model::session::{MAX_MARKED_IDS, attr};
use crate::model::{ConnectionId, Item, Marks, RowError, Session, SessionId, SessionState, Suspicion};
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure};
use std::collections::{BTreeMap, HashMap};

/// What a worker says of itself with each renewal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Connections it can hold.
    pub capacity: u64,
    /// Connections it holds.
    pub held: u64,
    /// Sockets that are open.
    pub connected: u64,
    /// Lag of its event loop, in ms.
    pub loop_lag_ms: u64,
    /// The machine's clock less lease time, in ms.
    pub clock_skew_ms: i64,
    /// Counters since its start.
    pub counters: BTreeMap<&'static str, u64>,
}

/// All rows of sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sessions {
    /// Those that can be read.
    pub readable: Vec<Session>,
    /// Those that cannot.
    pub unreadable: Vec<BadSession>,
}

/// A session's row that cannot be read: nobody can know when its lease ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSession {
    /// The session.
    pub id: SessionId,
    /// Since when it is known to be unreadable, in lease time.
    pub since_ms: Option<u64>,
    /// What is wrong with it.
    pub error: RowError,
    /// The row as it was read.
    pub row: Item,
}

/// Who a worker is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The ECS task.
    pub task_arn: Option<String>,
    /// The worker's version.
    pub version: String,
}

impl Store {
    /// Registers a new session. False: the id exists (a registration of ours that landed without its answer, or late).
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn register(
        &self,
        id: &SessionId,
        identity: &Identity,
        load: &Load,
        now_ms: u64,
        expires_at_ms: u64,
    ) -> Result<bool, StoreError> {
        let mut item: SdkItem = HashMap::from([
            (attr::SESSION_ID.to_owned(), s(id.as_str())),
            (attr::VERSION.to_owned(), s(&identity.version)),
            (attr::HEARTBEAT.to_owned(), n(0)),
            (attr::STATE.to_owned(), s(SessionState::Active.as_str())),
            (attr::STARTED_AT_MS.to_owned(), n(now_ms)),
            (attr::LEASE_EXPIRES_AT_MS.to_owned(), n(expires_at_ms)),
            (attr::CAPACITY.to_owned(), n(load.capacity)),
        ]);
        if let Some(arn) = &identity.task_arn {
            item.insert(attr::TASK_ARN.to_owned(), s(arn));
        }
        let answer = self
            .clients
            .lease
            .put_item()
            .table_name(&self.tables.sessions)
            .set_item(Some(item))
            .condition_expression("attribute_not_exists(#id)")
            .expression_attribute_names("#id", attr::SESSION_ID)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await;
        match answer {
            Ok(_) => Ok(true),
            Err(SdkError::ServiceError(error)) if error.err().is_conditional_check_failed_exception() => Ok(false),
            Err(error) => Err(sort(DYNAMODB, &error)),
        }
    }

    /// Renews: exists, ACTIVE, and a higher heartbeat number. Never writes the state.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn renew(
        &self,
        id: &SessionId,
        heartbeat: u64,
        expires_at_ms: u64,
        load: &Load,
    ) -> Result<Written, StoreError> {
        let counters = load.counters.iter().map(|(name, count)| ((*name).to_owned(), n(count))).collect();
        let update = Update::new()
            .set(attr::HEARTBEAT, n(heartbeat))
            .set(attr::LEASE_EXPIRES_AT_MS, n(expires_at_ms))
            .set(attr::CAPACITY, n(load.capacity))
            .set(attr::HELD, n(load.held))
            .set(attr::CONNECTED, n(load.connected))
            .set(attr::LOOP_LAG_MS, n(load.loop_lag_ms))
            .set(attr::CLOCK_SKEW_MS, n(load.clock_skew_ms))
            .set(attr::COUNTERS, AttributeValue::M(counters))
            .require(attr::STATE, s(SessionState::Active.as_str()))
            .require_below(attr::HEARTBEAT, heartbeat);
        self.update_session(id, update).await
    }

    /// Ends a session of one's own: everything it held is free with this one write. Whoever ends it sends the claims; its connections are
    /// noted as unclaimed all the same, in case its answer, or the claims, are lost.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn end(&self, id: &SessionId, reason: &str, now_ms: u64) -> Result<Written, StoreError> {
        let update = over(SessionState::Ended, reason, now_ms).set(attr::UNCLAIMED_FROM, s(""));
        self.update_session(id, update.require(attr::STATE, s(SessionState::Active.as_str()))).await
    }

    /// Fences a session that did not move since it was read, and notes that its connections are unclaimed.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn fence(
        &self,
        id: &SessionId,
        heartbeat: u64,
        reason: &str,
        now_ms: u64,
    ) -> Result<Written, StoreError> {
        let update = over(SessionState::Fenced, reason, now_ms).set(attr::UNCLAIMED_FROM, s(""));
        self.update_session(id, require_unmoved(update, heartbeat)).await
    }

    /// Sets or clears a suspicion, on a session that did not move since it was read.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn suspect(
        &self,
        id: &SessionId,
        heartbeat: u64,
        suspicion: Option<Suspicion>,
    ) -> Result<Written, StoreError> {
        let update = Update::new()
            .set_or_remove(attr::SUSPECT_HEARTBEAT, suspicion.map(|suspicion| n(suspicion.heartbeat)))
            .set_or_remove(attr::SUSPECT_AT_MS, suspicion.map(|suspicion| n(suspicion.at_ms)));
        self.update_session(id, require_unmoved(update, heartbeat)).await
    }

    /// Rewrites an expiry that lies too far ahead, on a session that did not move since it was read.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn rewrite_expiry(
        &self,
        id: &SessionId,
        heartbeat: u64,
        expires_at_ms: u64,
    ) -> Result<Written, StoreError> {
        let update = Update::new().set(attr::LEASE_EXPIRES_AT_MS, n(expires_at_ms));
        self.update_session(id, require_unmoved(update, heartbeat)).await
    }

    /// Notes since when `by_owner` is empty for an over session, or forgets it.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn note_empty(&self, id: &SessionId, since_ms: Option<u64>) -> Result<Written, StoreError> {
        let update = Update::new()
            .set_or_remove(attr::EMPTY_SINCE_MS, since_ms.map(n))
            .require_not(attr::STATE, s(SessionState::Active.as_str()))
            .require_exists(attr::SESSION_ID);
        self.update_session(id, update).await
    }

    /// Notes how far the connections of a fenced session are claimed: up to this key in `by_owner`, or all of them (`None`).
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn note_unclaimed(&self, id: &SessionId, from: Option<&str>) -> Result<Written, StoreError> {
        let update = Update::new()
            .set_or_remove(attr::UNCLAIMED_FROM, from.map(s))
            .require_not(attr::STATE, s(SessionState::Active.as_str()))
            .require_exists(attr::SESSION_ID);
        self.update_session(id, update).await
    }

    /// Removes an over session's row, and its marks.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn remove_session(&self, id: &SessionId) -> Result<(), StoreError> {
        for item_key in [Marks::key(id), id.as_str().to_owned()] {
            let answer = self
                .clients
                .bulk
                .delete_item()
                .table_name(&self.tables.sessions)
                .key(attr::SESSION_ID, s(item_key))
                .condition_expression("attribute_not_exists(#s) OR #s <> :active")
                .expression_attribute_names("#s", attr::STATE)
                .expression_attribute_values(":active", s(SessionState::Active.as_str()))
                .send()
                .await;
            answer.map_err(|error| sort(DYNAMODB, &error))?;
        }
        Ok(())
    }

    /// A consistent read of a session's row.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn session(&self, id: &SessionId) -> Result<Option<Item>, StoreError> {
        self.get(&self.clients.lease, &self.tables.sessions, key(attr::SESSION_ID, id.as_str())).await
    }

    /// Notes since when (lease time) a row that is not over cannot be read.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn note_unreadable(&self, id: &SessionId, since_ms: u64) -> Result<Written, StoreError> {
        let update = Update::new().set(attr::UNREADABLE_SINCE_MS, n(since_ms));
        self.update_session(id, require_not_over(update)).await
    }

    /// Fences a session whose row cannot be read, if what its lease needs is still as it was read: a renewal may have repaired it.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn fence_unreadable(
        &self,
        session: &BadSession,
        reason: &str,
        now_ms: u64,
    ) -> Result<Written, StoreError> {
        let update = over(SessionState::Fenced, reason, now_ms).set(attr::UNCLAIMED_FROM, s(""));
        let mut update = require_not_over(update);
        for name in [attr::STATE, attr::HEARTBEAT, attr::LEASE_EXPIRES_AT_MS, attr::UNREADABLE_SINCE_MS] {
            update = update.require_as_read(name, session.row.get(name).cloned().map(AttributeValue::from));
        }
        self.update_session(&session.id, update).await
    }

    /// All sessions that can be read, read consistently. The others are logged.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn sessions(&self) -> Result<Vec<Session>, StoreError> {
        Ok(self.all_sessions().await?.readable)
    }

    /// All sessions, read consistently.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn all_sessions(&self) -> Result<Sessions, StoreError> {
        let mut sessions = Sessions::default();
        let mut from = None;
        loop {
            let page = self.scan(&self.tables.sessions, true, from).await?;
            for item in &page.items {
                let Some(id) = session_id(item) else { continue };
                match Session::from_item(item) {
                    Ok(session) => sessions.readable.push(session),
                    Err(error) => {
                        tracing::error!(event = "bad_session", session = %id, %error, "a session's row cannot be read");
                        let since_ms = fields::number(item, attr::UNREADABLE_SINCE_MS).ok().flatten();
                        sessions.unreadable.push(BadSession { id, since_ms, error, row: item.clone() });
                    }
                }
            }
            from = page.next;
            if from.is_none() {
                return Ok(sessions);
            }
        }
    }

    /// Marks connections on their owner's session: "look at these rows again". Too many become one `resync`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn mark(&self, owner: &SessionId, ids: &[ConnectionId]) -> Result<(), StoreError> {
        for chunk in ids.chunks(MAX_MARKED_IDS) {
            if !self.mark_ids(owner, chunk).await? {
                return self.mark_resync(owner).await;
            }
        }
        Ok(())
    }

    async fn mark_ids(&self, owner: &SessionId, ids: &[ConnectionId]) -> Result<bool, StoreError> {
        let texts: Vec<String> = ids.iter().map(|id| id.as_str().to_owned()).collect();
        let most = MAX_MARKED_IDS.saturating_sub(texts.len());
        let answer = self
            .clients
            .bulk
            .update_item()
            .table_name(&self.tables.sessions)
            .key(attr::SESSION_ID, s(Marks::key(owner)))
            .update_expression("ADD #ids :ids, #version :one")
            .condition_expression(
                "(attribute_not_exists(#ids) OR size(#ids) <= :most) AND attribute_not_exists(#resync)",
            )
            .expression_attribute_names("#ids", attr::MARKED_IDS)
            .expression_attribute_names("#version", attr::MARKS_VERSION)
            .expression_attribute_names("#resync", attr::RESYNC)
            .expression_attribute_values(":ids", AttributeValue::Ss(texts))
            .expression_attribute_values(":one", n(1))
            .expression_attribute_values(":most", n(most))
            .send()
            .await;
        match answer {
            Ok(_) => Ok(true),
            Err(SdkError::ServiceError(error)) if error.err().is_conditional_check_failed_exception() => Ok(false),
            Err(error) => Err(sort(DYNAMODB, &error)),
        }
    }

    /// Asks a session to look at everything.
    async fn mark_resync(&self, owner: &SessionId) -> Result<(), StoreError> {
        // The version may rise twice when an answer is lost: it only has to differ from every one that was read before.
        self.clients
            .bulk
            .update_item()
            .table_name(&self.tables.sessions)
            .key(attr::SESSION_ID, s(Marks::key(owner)))
            .update_expression("SET #resync = :true REMOVE #ids ADD #version :one")
            .expression_attribute_names("#ids", attr::MARKED_IDS)
            .expression_attribute_names("#version", attr::MARKS_VERSION)
            .expression_attribute_names("#resync", attr::RESYNC)
            .expression_attribute_values(":one", n(1))
            .expression_attribute_values(":true", AttributeValue::Bool(true))
            .send()
            .await
            .map_err(|error| sort(DYNAMODB, &error))?;
        Ok(())
    }

    /// Reads a session's marks consistently. Marks without a version count as `resync`, and get one, so that they can be removed.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn marks(&self, owner: &SessionId) -> Result<Marks, StoreError> {
        let item_key = key(attr::SESSION_ID, Marks::key(owner));
        let Some(item) = self.get(&self.clients.lease, &self.tables.sessions, item_key).await? else {
            return Ok(Marks::default());
        };
        match Marks::from_item(&item) {
            Ok(marks) => Ok(marks),
            Err(error) => {
                tracing::warn!(event = "bad_marks", session = %owner, %error, "the marks cannot be read: looking at everything");
                self.repair_marks(owner, &item).await
            }
        }
    }

    /// Gives marks a version again, if theirs is still the one that was read. Lease time lies above any count, so it was never used before.
    async fn repair_marks(&self, owner: &SessionId, read: &Item) -> Result<Marks, StoreError> {
        let mut marks = Marks { resync: true, ..Marks::default() };
        let Some(now) = self.time().now() else { return Ok(marks) };
        let found = read.get(attr::MARKS_VERSION).cloned().map(AttributeValue::from);
        let update = Update::new()
            .set(attr::MARKS_VERSION, n(now.upper_ms))
            .set(attr::RESYNC, AttributeValue::Bool(true))
            .remove(attr::MARKED_IDS)
            .require_exists(attr::SESSION_ID)
            .require_as_read(attr::MARKS_VERSION, found);
        let item_key = (attr::SESSION_ID, Marks::key(owner));
        if self.update(&self.clients.lease, &self.tables.sessions, item_key, update).await?.is_applied() {
            marks.version = now.upper_ms;
        }
        Ok(marks)
    }

    /// Empties the marks after they were acted on, if nothing was added since. The version stays.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn remove_marks(&self, owner: &SessionId, version: u64) -> Result<Written, StoreError> {
        let update =
            Update::new().remove(attr::MARKED_IDS).remove(attr::RESYNC).require(attr::MARKS_VERSION, n(version));
        self.update(&self.clients.lease, &self.tables.sessions, (attr::SESSION_ID, Marks::key(owner)), update).await
    }

    async fn update_session(&self, id: &SessionId, update: Update) -> Result<Written, StoreError> {
        let table = &self.tables.sessions;
        self.update(&self.clients.lease, table, (attr::SESSION_ID, id.as_str().to_owned()), update).await
    }
}

/// Marks and reconcile's memory share the table; their keys carry a `#`.
fn session_id(item: &Item) -> Option<SessionId> {
    let id = fields::string(item, attr::SESSION_ID).ok().flatten()?;
    (!id.contains('#')).then(|| SessionId::new(id))
}

fn over(state: SessionState, reason: &str, now_ms: u64) -> Update {
    Update::new()
        .set(attr::STATE, s(state.as_str()))
        .set(attr::OVER_AT_MS, n(now_ms))
        .set(attr::OVER_REASON, s(reason))
        .remove(attr::SUSPECT_HEARTBEAT)
        .remove(attr::SUSPECT_AT_MS)
}

/// Exists, and is not over. A state that is none counts as not over.
fn require_not_over(update: Update) -> Update {
    update
        .require_exists(attr::SESSION_ID)
        .require_not(attr::STATE, s(SessionState::Fenced.as_str()))
        .require_not(attr::STATE, s(SessionState::Ended.as_str()))
}

fn require_unmoved(update: Update, heartbeat: u64) -> Update {
    update.require(attr::STATE, s(SessionState::Active.as_str())).require(attr::HEARTBEAT, n(heartbeat))
}
