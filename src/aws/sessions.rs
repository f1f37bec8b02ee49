//! Rows of `sessions`: registration, renewal, fencing; the marks beside them; reconcile's memory.

use super::error::{StoreError, sort};
use super::store::{DYNAMODB, SdkItem, Store, Written, key};
use super::update::{Update, n, s};
use crate::model::fields;
use crate::model::session::{MAX_MARKED_IDS, RECONCILE_KEY, attr};
use crate::model::{ConnectionId, Item, Marks, Session, SessionId, SessionState, Suspicion};
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

/// Who a worker is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The ECS task.
    pub task_arn: Option<String>,
    /// The worker's version.
    pub version: String,
}

/// What reconcile remembers from one run to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// When it last looked at the sessions, in lease time.
    pub last_look_ms: u64,
    /// Until when expired sessions are suspected before they are fenced.
    pub grace_until_ms: u64,
    /// The key that the sweep ended with; `None` at the beginning of the table.
    pub sweep_from: Option<String>,
    /// Pages of the sweep under way.
    pub sweep_pages: u64,
    /// Pages of the last whole sweep; 0 before there was one.
    pub table_pages: u64,
}

const LAST_LOOK_MS: &str = "last_look_ms";
const GRACE_UNTIL_MS: &str = "grace_until_ms";
const SWEEP_FROM: &str = "sweep_from";
const SWEEP_PAGES: &str = "sweep_pages";
const TABLE_PAGES: &str = "table_pages";

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

    /// Ends a session of one's own: everything it held is free with this one write.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn end(&self, id: &SessionId, reason: &str, now_ms: u64) -> Result<Written, StoreError> {
        let update = over(SessionState::Ended, reason, now_ms);
        self.update_session(id, update.require(attr::STATE, s(SessionState::Active.as_str()))).await
    }

    /// Fences a session that did not move since it was read.
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
        let update = over(SessionState::Fenced, reason, now_ms);
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

    /// All sessions, read consistently. Rows that are none are logged and left out.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn sessions(&self) -> Result<Vec<Session>, StoreError> {
        let mut sessions = Vec::new();
        let mut from = None;
        loop {
            let page = self.scan(&self.tables.sessions, true, from).await?;
            for item in &page.items {
                if !is_session(item) {
                    continue;
                }
                match Session::from_item(item) {
                    Ok(session) => sessions.push(session),
                    Err(error) => tracing::warn!(event = "bad_session", %error, "a session's row cannot be read"),
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

    /// Reads a session's marks consistently.
    ///
    /// # Errors
    /// [`StoreError`]; a marks item that cannot be read counts as `resync`.
    pub async fn marks(&self, owner: &SessionId) -> Result<Marks, StoreError> {
        let item_key = key(attr::SESSION_ID, Marks::key(owner));
        let Some(item) = self.get(&self.clients.lease, &self.tables.sessions, item_key).await? else {
            return Ok(Marks::default());
        };
        Ok(Marks::from_item(&item).unwrap_or_else(|error| {
            tracing::warn!(event = "bad_marks", %error, "the marks cannot be read: looking at everything");
            Marks { resync: true, ..Marks::default() }
        }))
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

    /// What reconcile remembers.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn memory(&self) -> Result<Memory, StoreError> {
        let item_key = key(attr::SESSION_ID, RECONCILE_KEY);
        let Some(item) = self.get(&self.clients.bulk, &self.tables.sessions, item_key).await? else {
            return Ok(Memory::default());
        };
        let number = |name| fields::number(&item, name).ok().flatten().unwrap_or(0);
        Ok(Memory {
            last_look_ms: number(LAST_LOOK_MS),
            grace_until_ms: number(GRACE_UNTIL_MS),
            sweep_from: fields::string(&item, SWEEP_FROM).ok().flatten(),
            sweep_pages: number(SWEEP_PAGES),
            table_pages: number(TABLE_PAGES),
        })
    }

    /// Remembers a look at the sessions.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn remember_look(&self, memory: &Memory) -> Result<(), StoreError> {
        self.remember(
            Update::new().set(LAST_LOOK_MS, n(memory.last_look_ms)).set(GRACE_UNTIL_MS, n(memory.grace_until_ms)),
        )
        .await
    }

    /// Remembers how far the sweep came.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn remember_sweep(&self, memory: &Memory) -> Result<(), StoreError> {
        self.remember(
            Update::new()
                .set_or_remove(SWEEP_FROM, memory.sweep_from.as_ref().map(s))
                .set(SWEEP_PAGES, n(memory.sweep_pages))
                .set(TABLE_PAGES, n(memory.table_pages)),
        )
        .await
    }

    async fn remember(&self, update: Update) -> Result<(), StoreError> {
        let table = &self.tables.sessions;
        self.update(&self.clients.bulk, table, (attr::SESSION_ID, RECONCILE_KEY.to_owned()), update).await?;
        Ok(())
    }

    async fn update_session(&self, id: &SessionId, update: Update) -> Result<Written, StoreError> {
        let table = &self.tables.sessions;
        self.update(&self.clients.lease, table, (attr::SESSION_ID, id.as_str().to_owned()), update).await
    }
}

/// Marks and reconcile's memory share the table; their keys carry a `#`.
fn is_session(item: &Item) -> bool {
    fields::string(item, attr::SESSION_ID).ok().flatten().is_some_and(|id| !id.contains('#'))
}

fn over(state: SessionState, reason: &str, now_ms: u64) -> Update {
    Update::new()
        .set(attr::STATE, s(state.as_str()))
        .set(attr::OVER_AT_MS, n(now_ms))
        .set(attr::OVER_REASON, s(reason))
        .remove(attr::SUSPECT_HEARTBEAT)
        .remove(attr::SUSPECT_AT_MS)
}

fn require_unmoved(update: Update, heartbeat: u64) -> Update {
    update.require(attr::STATE, s(SessionState::Active.as_str())).require(attr::HEARTBEAT, n(heartbeat))
}
