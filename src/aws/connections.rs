//! Rows of `connections`: every write to them, with its condition.

use super::error::{StoreError, sort};
use super::store::{DYNAMODB, Page, SdkItem, Store, Written, key, page};
use super::update::{Update, n, s};
use crate::decide::acquire::{Acquire, Expected};
use crate::decide::timing::Rules;
use crate::model::connection::{DesiredState, INDEX_BY_EXPIRY, INDEX_BY_OWNER, attr};
use crate::model::{ConnectionId, Item, ObservedState, SessionId};
use aws_sdk_dynamodb::types::AttributeValue;

/// What an owner says about its connection. Written on change, and seldom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// State, reason and since when (lease time, ms), if it changed.
    pub observed: Option<Observed>,
    /// The checkpoint, if it moved: series and number.
    pub progress: Option<(String, u64)>,
}

/// How a connection is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The state.
    pub state: ObservedState,
    /// The sentence beside it.
    pub reason: Option<String>,
    /// Since when, in lease time.
    pub since_ms: u64,
}

/// Where a page of `by_owner` begins that follows the row `pk`, which need not be there any more.
#[must_use]
pub fn by_owner_key(owner: &SessionId, pk: &str) -> SdkItem {
    let mut from = key(attr::PK, pk);
    from.extend(key(attr::LEASE_OWNER, owner.as_str()));
    from
}

impl Store {
    /// A consistent read of a row.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn connection(&self, id: &ConnectionId) -> Result<Option<Item>, StoreError> {
        self.get(&self.clients.bulk, &self.tables.connections, key(attr::PK, id.pk())).await
    }

    /// Takes a connection: STARTED, and the lease as it was read.
    ///
    /// # Errors
    /// [`StoreError`]; after `Unknown` the same `acquire` may be sent again until it is answered.
    pub async fn acquire(
        &self,
        id: &ConnectionId,
        me: &SessionId,
        acquire: &Acquire,
        since_ms: u64,
    ) -> Result<Written, StoreError> {
        let update = Update::new()
            .set(attr::LEASE_OWNER, s(me.as_str()))
            .set(attr::LEASE_EPOCH, n(acquire.epoch))
            .set(attr::OBSERVED_STATE, s(ObservedState::Connecting.as_str()))
            .set(attr::OBSERVED_SINCE_MS, n(since_ms))
            .set(attr::OWNERS, AttributeValue::L(acquire.owners.iter().map(s).collect()))
            .set_or_remove(attr::LEASE_EXPIRES_AT_MS, acquire.expires_at_ms.map(n))
            .remove(attr::SPEC_CHANGED)
            .remove(attr::REASON)
            .require(attr::DESIRED_STATE, s(DesiredState::STARTED));
        self.update_connection(id, require_expected(update, &acquire.expected)).await
    }

    /// Renews the lease of one row, where rows are leased by themselves. The answer is the row: what its user wants now. So the flag that
    /// wakes its owner has done its work: if it stayed, each renewal would come back from the stream as a change. The expiry only rises, so
    /// that no renewal that lands late moves it back.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn renew_row(
        &self,
        id: &ConnectionId,
        me: &SessionId,
        epoch: u64,
        expires_at_ms: u64,
    ) -> Result<Written, StoreError> {
        let update = Update::new()
            .set(attr::LEASE_EXPIRES_AT_MS, n(expires_at_ms))
            .remove(attr::SPEC_CHANGED)
            .require(attr::LEASE_OWNER, s(me.as_str()))
            .require(attr::LEASE_EPOCH, n(epoch))
            .require_rise(attr::LEASE_EXPIRES_AT_MS, expires_at_ms);
        self.update_connection(id, update).await
    }

    /// Writes status and checkpoint, as the owner.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn write_status(
        &self,
        id: &ConnectionId,
        me: &SessionId,
        epoch: u64,
        status: &Status,
        rules: Rules,
    ) -> Result<Written, StoreError> {
        let mut update = Update::new().remove(attr::SPEC_CHANGED);
        update = set_status(update, status);
        self.update_connection(id, require_mine(update, me, epoch, rules)).await
    }

    /// Gives a connection up, after its socket is closed: free at once, the epoch stays.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn release(
        &self,
        id: &ConnectionId,
        me: &SessionId,
        epoch: u64,
        status: &Status,
        owners: &[String],
        rules: Rules,
    ) -> Result<Written, StoreError> {
        let update = set_status(free(Update::new()), status)
            .set(attr::OWNERS, AttributeValue::L(owners.iter().map(s).collect()))
            .remove(attr::SPEC_CHANGED);
        self.update_connection(id, require_mine(update, me, epoch, rules)).await
    }

    /// Frees a row that is not wanted, whose owner is over: the lease as read.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn reap(&self, id: &ConnectionId, expected: &Expected, since_ms: u64) -> Result<Written, StoreError> {
        let update = free(Update::new())
            .set(attr::OBSERVED_STATE, s(ObservedState::Stopped.as_str()))
            .set(attr::OBSERVED_SINCE_MS, n(since_ms))
            .require_not(attr::DESIRED_STATE, s(DesiredState::STARTED));
        self.update_connection(id, require_expected(update, expected)).await
    }

    /// Stamps a row that people wrote by hand: epoch 0, free at `free_at_ms` (0: at once).
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn stamp(&self, id: &ConnectionId, free_at_ms: u64) -> Result<Written, StoreError> {
        let update = Update::new()
            .set(attr::LEASE_EPOCH, n(0))
            .set(attr::LEASE_EXPIRES_AT_MS, n(free_at_ms))
            .require_exists(attr::PK)
            .require_absent(attr::LEASE_OWNER)
            .require_absent(attr::LEASE_EPOCH);
        self.update_connection(id, update).await
    }

    /// Writes a time anew that lies too far ahead: owner, epoch and expiry as read.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn restamp(
        &self,
        id: &ConnectionId,
        owner: Option<&SessionId>,
        epoch: u64,
        expires_at_ms: u64,
        free_at_ms: u64,
    ) -> Result<Written, StoreError> {
        let update = Update::new()
            .set(attr::LEASE_EXPIRES_AT_MS, n(free_at_ms))
            .require_exists(attr::PK)
            .require_as_read(attr::LEASE_OWNER, owner.map(|owner| s(owner.as_str())))
            .require(attr::LEASE_EPOCH, n(epoch))
            .require(attr::LEASE_EXPIRES_AT_MS, n(expires_at_ms));
        self.update_connection(id, update).await
    }

    /// Says on a row what is wrong with it, while nobody owns it.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn write_fault(&self, id: &ConnectionId, reason: &str, since_ms: u64) -> Result<Written, StoreError> {
        let update = Update::new()
            .set(attr::OBSERVED_STATE, s(ObservedState::Parked.as_str()))
            .set(attr::OBSERVED_SINCE_MS, n(since_ms))
            .set(attr::REASON, s(reason))
            .require_exists(attr::PK)
            .require_absent(attr::LEASE_OWNER);
        self.update_connection(id, update).await
    }

    /// One page of the rows that name `owner`, as the index has them (key, epoch and desired state).
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn by_owner(&self, owner: &SessionId, from: Option<SdkItem>) -> Result<Page, StoreError> {
        let answer = self
            .clients
            .bulk
            .query()
            .table_name(&self.tables.connections)
            .index_name(INDEX_BY_OWNER)
            .key_condition_expression("#o = :o")
            .expression_attribute_names("#o", attr::LEASE_OWNER)
            .expression_attribute_values(":o", s(owner.as_str()))
            .set_exclusive_start_key(from)
            .send()
            .await
            .map_err(|error| sort(DYNAMODB, &error))?;
        Ok(page(answer.items, answer.last_evaluated_key))
    }

    /// One page of the STARTED rows whose time is `until_ms` or earlier, as the index has them: free ones, and owned ones that are leased by
    /// themselves.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn by_expiry(&self, until_ms: u64, from: Option<SdkItem>) -> Result<Page, StoreError> {
        let answer = self
            .clients
            .bulk
            .query()
            .table_name(&self.tables.connections)
            .index_name(INDEX_BY_EXPIRY)
            .key_condition_expression("#d = :d AND #e <= :e")
            .expression_attribute_names("#d", attr::DESIRED_STATE)
            .expression_attribute_names("#e", attr::LEASE_EXPIRES_AT_MS)
            .expression_attribute_values(":d", s(DesiredState::STARTED))
            .expression_attribute_values(":e", n(until_ms))
            .set_exclusive_start_key(from)
            .send()
            .await
            .map_err(|error| sort(DYNAMODB, &error))?;
        Ok(page(answer.items, answer.last_evaluated_key))
    }

    /// One page of the whole table, from the key that the last one ended with.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn scan_connections(&self, from: Option<&str>) -> Result<Page, StoreError> {
        self.scan(&self.tables.connections, true, from.map(|pk| key(attr::PK, pk))).await
    }

    async fn update_connection(&self, id: &ConnectionId, update: Update) -> Result<Written, StoreError> {
        self.update(&self.clients.lease, &self.tables.connections, (attr::PK, id.pk()), update).await
    }
}

fn free(update: Update) -> Update {
    update.remove(attr::LEASE_OWNER).set(attr::LEASE_EXPIRES_AT_MS, n(0))
}

fn require_expected(update: Update, expected: &Expected) -> Update {
    let update = update
        .require_exists(attr::PK)
        .require_as_read(attr::LEASE_OWNER, expected.owner.as_ref().map(|owner| s(owner.as_str())))
        .require_as_read(attr::LEASE_EPOCH, expected.epoch.map(n));
    match expected.expired_by_ms {
        Some(by_ms) => update.require_absent_or_at_most(attr::LEASE_EXPIRES_AT_MS, by_ms),
        None => update,
    }
}

fn require_mine(update: Update, me: &SessionId, epoch: u64, rules: Rules) -> Update {
    if !rules.epoch_conditions {
        return update.require_exists(attr::PK);
    }
    update.require(attr::LEASE_OWNER, s(me.as_str())).require(attr::LEASE_EPOCH, n(epoch))
}

fn set_status(mut update: Update, status: &Status) -> Update {
    if let Some(observed) = &status.observed {
        update = update
            .set(attr::OBSERVED_STATE, s(observed.state.as_str()))
            .set(attr::OBSERVED_SINCE_MS, n(observed.since_ms))
            .set_or_remove(attr::REASON, observed.reason.as_ref().map(s));
    }
    if let Some((series, last_seq)) = &status.progress {
        update = update
            .set(attr::SERIES, s(series))
            .set(attr::LAST_SEQ, n(last_seq))
            .require_progress((attr::LAST_SEQ, *last_seq), (attr::SERIES, series));
    }
    update
}
