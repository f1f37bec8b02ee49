//! Rows of `messages`: what the sockets delivered.

use super::error::{StoreError, sort};
use super::store::{DYNAMODB, Page, SdkItem, Store, page};
use super::update::{n, s};
use crate::model::message::attr;
use crate::model::{ConnectionId, Item, MessageKey, fields};
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::error::TransactionCanceledException;
use aws_sdk_dynamodb::types::{AttributeValue, Put, TransactWriteItem};
use std::collections::HashMap;

/// A message on its way into the table.
#[derive(Clone, PartialEq)]
pub struct StoredMessage {
    /// Where it goes.
    pub key: MessageKey,
    /// Text or binary, as the socket delivered it.
    pub body: Body,
    /// When it was read from the socket, in lease time (ms).
    pub received_at_ms: u64,
    /// When the table may forget it (seconds since the Unix epoch; DynamoDB TTL).
    pub expires_at_s: u64,
}

/// What a message carries.
#[derive(Clone, PartialEq, Eq)]
pub enum Body {
    /// A text message.
    Text(String),
    /// A binary message.
    Binary(Vec<u8>),
}

/// Message bodies are users' data: `Debug` shows the key and the size only.
impl std::fmt::Debug for StoredMessage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredMessage").field("key", &self.key).field("bytes", &self.body.len()).finish_non_exhaustive()
    }
}

/// The most that one item carries of a body. An item may have 400 KB with its names and keys (DynamoDB quotas).
pub const PART_BYTES: usize = 380 * 1024;

/// The most that one transaction carries: 100 actions and 4 MB (DynamoDB quotas).
pub const TRANSACTION_ITEMS: usize = 100;
/// See [`TRANSACTION_ITEMS`].
pub const TRANSACTION_BYTES: usize = 3_500 * 1024;

impl Body {
    /// Its size.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Binary(bytes) => bytes.len(),
        }
    }

    /// True when there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many items it takes.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.len().div_ceil(PART_BYTES).max(1)
    }

    fn part(&self, index: usize) -> AttributeValue {
        let parts = self.parts();
        match self {
            Self::Text(text) if parts == 1 => s(text),
            Self::Binary(bytes) if parts == 1 => AttributeValue::B(bytes.clone().into()),
            // Parts are cut anywhere, so text is stored as bytes; `parts` says so to the reader.
            Self::Text(text) => AttributeValue::B(slice(text.as_bytes(), index).to_vec().into()),
            Self::Binary(bytes) => AttributeValue::B(slice(bytes, index).to_vec().into()),
        }
    }
}

fn slice(bytes: &[u8], index: usize) -> &[u8] {
    let from = (index * PART_BYTES).min(bytes.len());
    &bytes[from..(from + PART_BYTES).min(bytes.len())]
}

/// Which of a connection's messages.
#[derive(Default)]
struct Query {
    /// What their sort keys begin with; empty for all.
    prefix: String,
    newest_first: bool,
    consistent: bool,
    limit: i32,
    from: Option<SdkItem>,
}

impl Store {
    /// Stores messages of one connection so that never a later one is there without an earlier one: one item alone, several (or the
    /// parts of a large one) in one transaction. Storing the same again is harmless.
    ///
    /// # Errors
    /// [`StoreError`]; nothing or all of it was stored.
    pub async fn store_messages(&self, id: &ConnectionId, messages: &[StoredMessage]) -> Result<(), StoreError> {
        let mut items = Vec::new();
        for message in messages {
            for part in 0..message.body.parts() {
                items.push(item(id, message, part));
            }
        }
        if items.len() == 1 {
            let request = self.clients.bulk.put_item().table_name(&self.tables.messages).set_item(items.pop());
            request.send().await.map_err(|error| sort(DYNAMODB, &error))?;
            return Ok(());
        }
        let mut writes = Vec::with_capacity(items.len());
        for item in items {
            let put = Put::builder().table_name(&self.tables.messages).set_item(Some(item)).build();
            let put = put.map_err(|error| StoreError::Invalid { service: DYNAMODB, message: error.to_string() })?;
            writes.push(TransactWriteItem::builder().put(put).build());
        }
        let answer = self.clients.bulk.transact_write_items().set_transact_items(Some(writes)).send().await;
        answer.map_err(|error| match error.as_service_error() {
            Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) => cancellation(cancelled),
            _ => sort(DYNAMODB, &error),
        })?;
        Ok(())
    }

    /// The key of the newest stored message, read consistently.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn newest_message(&self, id: &ConnectionId) -> Result<Option<MessageKey>, StoreError> {
        let newest = Query { newest_first: true, consistent: true, limit: 1, ..Query::default() };
        let page = self.query_messages(id, newest).await?;
        let sk = page.items.first().and_then(|item| fields::string(item, attr::SK).ok().flatten());
        Ok(sk.and_then(|sk| MessageKey::from_sk(&sk)).map(|(key, _)| key))
    }

    /// Whether exactly this body (the first part of a large one) is stored behind the number of `key`, among the first messages there.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn has_message(&self, id: &ConnectionId, key: &MessageKey, body: &Body) -> Result<bool, StoreError> {
        const LOOKED_AT: i32 = 100;
        let query = Query { prefix: key.number_prefix(), consistent: true, limit: LOOKED_AT, ..Query::default() };
        let page = self.query_messages(id, query).await?;
        let wanted = body.part(0);
        let is_same = |item: Item| SdkItem::from(item).get(attr::BODY) == Some(&wanted);
        Ok(page.items.into_iter().any(is_same))
    }

    /// One page of a connection's messages, in order.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn messages(
        &self,
        id: &ConnectionId,
        newest_first: bool,
        limit: i32,
        from: Option<SdkItem>,
    ) -> Result<Page, StoreError> {
        self.query_messages(id, Query { newest_first, limit, from, ..Query::default() }).await
    }

    async fn query_messages(&self, id: &ConnectionId, query: Query) -> Result<Page, StoreError> {
        let request = self
            .clients
            .bulk
            .query()
            .table_name(&self.tables.messages)
            .expression_attribute_names("#pk", attr::PK)
            .expression_attribute_values(":pk", s(id.pk()))
            .scan_index_forward(!query.newest_first)
            .consistent_read(query.consistent)
            .limit(query.limit)
            .set_exclusive_start_key(query.from);
        let request = if query.prefix.is_empty() {
            request.key_condition_expression("#pk = :pk")
        } else {
            request
                .key_condition_expression("#pk = :pk AND begins_with(#sk, :prefix)")
                .expression_attribute_names("#sk", attr::SK)
                .expression_attribute_values(":prefix", s(query.prefix))
        };
        let answer = request.send().await.map_err(|error| sort(DYNAMODB, &error))?;
        Ok(page(answer.items, answer.last_evaluated_key))
    }

    /// One page of all messages of all connections.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn scan_messages(&self, from: Option<SdkItem>) -> Result<Page, StoreError> {
        self.scan(&self.tables.messages, true, from).await
    }
}

/// Why a transaction was cancelled, by the codes of its reasons (DynamoDB API reference, TransactWriteItems): a conflict (a stale owner may
/// be writing the same keys) or a limit passes, anything else does not.
fn cancellation(cancelled: &TransactionCanceledException) -> StoreError {
    let codes: Vec<&str> = cancelled.cancellation_reasons().iter().filter_map(|reason| reason.code()).collect();
    let message = format!("the transaction was cancelled ({})", codes.join(", "));
    let passes = |code: &&str| {
        ["None", "TransactionConflict", "ProvisionedThroughputExceeded", "ThrottlingError"].contains(code)
    };
    if codes.iter().all(passes) {
        StoreError::Throttled { service: DYNAMODB, message }
    } else {
        StoreError::Invalid { service: DYNAMODB, message }
    }
}

fn item(id: &ConnectionId, message: &StoredMessage, part: usize) -> SdkItem {
    let mut item: SdkItem = HashMap::from([
        (attr::PK.to_owned(), s(id.pk())),
        (attr::SK.to_owned(), s(message.key.sk(u32::try_from(part).unwrap_or(u32::MAX)))),
        (attr::BODY.to_owned(), message.body.part(part)),
        (attr::RECEIVED_AT_MS.to_owned(), n(message.received_at_ms)),
        (attr::EXPIRES_AT.to_owned(), n(message.expires_at_s)),
    ]);
    if message.body.parts() > 1 {
        item.insert(attr::PARTS.to_owned(), n(message.body.parts()));
    }
    item
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_sdk_dynamodb::types::CancellationReason;

    fn cancelled(codes: &[&str]) -> StoreError {
        let reasons = codes.iter().map(|code| CancellationReason::builder().code(*code).build()).collect();
        cancellation(&TransactionCanceledException::builder().set_cancellation_reasons(Some(reasons)).build())
    }

    #[test]
    fn a_conflict_is_tried_again_and_a_message_that_cannot_be_stored_is_not() {
        assert!(cancelled(&["None", "TransactionConflict"]).is_transient());
        assert!(cancelled(&["ThrottlingError"]).is_transient());
        assert!(!cancelled(&["None", "ValidationError"]).is_transient());
    }
}
