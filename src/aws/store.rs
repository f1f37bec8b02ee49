//! The tables, and the one way in which each kind of request is sent.

use super::date::LeaseClock;
use super::error::{StoreError, sort};
use super::sdk::DynamoClients;
use super::update::Update;
use crate::model::Item;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure};
use std::collections::HashMap;

/// An item as the SDK has it.
pub type SdkItem = HashMap<String, AttributeValue>;

/// The names of the tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tables {
    /// Lock, wish list and progress record.
    pub connections: String,
    /// Workers' sessions, marks, and reconcile's memory.
    pub sessions: String,
    /// Received messages.
    pub messages: String,
}

/// Access to the tables.
#[derive(Clone, Debug)]
pub struct Store {
    pub(super) clients: DynamoClients,
    pub(super) tables: Tables,
}

/// The outcome of a conditional write that was answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Written {
    /// It was applied; the item as it is now.
    Applied(Item),
    /// The condition failed; the item that is there, if there is one.
    Refused(Option<Item>),
}

impl Written {
    /// True when it was applied.
    #[must_use]
    pub fn is_applied(&self) -> bool {
        matches!(self, Self::Applied(_))
    }
}

/// One page of a query or scan.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The items.
    pub items: Vec<Item>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<SdkItem>,
}

impl Page {
    /// The string attribute `name` of the key that this page ended with.
    #[must_use]
    pub fn next_key(&self, name: &str) -> Option<&str> {
        self.next.as_ref()?.get(name)?.as_s().ok().map(String::as_str)
    }
}

/// The service's name in errors.
pub(super) const DYNAMODB: &str = "DynamoDB";

impl Store {
    /// Access to `tables` through `clients`.
    #[must_use]
    pub fn new(clients: DynamoClients, tables: Tables) -> Self {
        Self { clients, tables }
    }

    /// The same tables with a lease time that knows nothing yet: for one invocation of a function.
    #[must_use]
    pub fn anew(&self) -> Self {
        Self { clients: self.clients.anew(), tables: self.tables.clone() }
    }

    /// Lease time.
    #[must_use]
    pub fn time(&self) -> &LeaseClock {
        &self.clients.time
    }

    /// The tables' names.
    #[must_use]
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Sends a conditional update.
    pub(super) async fn update(
        &self,
        client: &Client,
        table: &str,
        key: (&str, String),
        update: Update,
    ) -> Result<Written, StoreError> {
        let request = client
            .update_item()
            .table_name(table)
            .key(key.0, AttributeValue::S(key.1))
            .set_update_expression(update.expression())
            .set_condition_expression(update.condition())
            .return_values(ReturnValue::AllNew)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let (names, values) = update.into_names_and_values();
        let answer =
            request.set_expression_attribute_names(Some(names)).set_expression_attribute_values(values).send().await;
        match answer {
            Ok(output) => Ok(Written::Applied(output.attributes.unwrap_or_default().into())),
            Err(SdkError::ServiceError(context)) if is_refusal(context.err()) => {
                Ok(Written::Refused(found(context.into_err())))
            }
            Err(error) => Err(sort(DYNAMODB, &error)),
        }
    }

    /// A consistent read of one item.
    pub(super) async fn get(&self, client: &Client, table: &str, key: SdkItem) -> Result<Option<Item>, StoreError> {
        let answer = client
            .get_item()
            .table_name(table)
            .set_key(Some(key))
            .consistent_read(true)
            .send()
            .await
            .map_err(|error| sort(DYNAMODB, &error))?;
        Ok(answer.item.map(Into::into))
    }

    /// One page of a scan; `consistent` where what it misses would be missed for long.
    pub(super) async fn scan(&self, table: &str, consistent: bool, from: Option<SdkItem>) -> Result<Page, StoreError> {
        let answer = self
            .clients
            .bulk
            .scan()
            .table_name(table)
            .consistent_read(consistent)
            .set_exclusive_start_key(from)
            .send()
            .await
            .map_err(|error| sort(DYNAMODB, &error))?;
        Ok(page(answer.items, answer.last_evaluated_key))
    }
}

pub(super) fn page(items: Option<Vec<SdkItem>>, next: Option<SdkItem>) -> Page {
    Page { items: items.unwrap_or_default().into_iter().map(Into::into).collect(), next }
}

/// A key of one string attribute.
pub(super) fn key(name: &str, value: impl Into<String>) -> SdkItem {
    HashMap::from([(name.to_owned(), AttributeValue::S(value.into()))])
}

fn is_refusal(error: &UpdateItemError) -> bool {
    error.is_conditional_check_failed_exception()
}

fn found(error: UpdateItemError) -> Option<Item> {
    match error {
        UpdateItemError::ConditionalCheckFailedException(refusal) => refusal.item.map(Into::into),
        _ => None,
    }
}
