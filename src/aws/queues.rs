//! The queues: claims and delayed ticks.

use super::error::{StoreError, sort};
use super::sdk::timeouts;
use crate::model::{Claim, ConnectionId};
use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::retry::RetryConfig;
use aws_sdk_sqs::types::{MessageSystemAttributeName, QueueAttributeName, SendMessageBatchRequestEntry};
use futures_util::{StreamExt, stream};
use std::time::Duration;

/// The service's name in errors.
const SQS: &str = "SQS";

/// Entries of one batch request (SQS quotas).
const BATCH: usize = 10;
/// Batches under way at once.
const BATCHES_AT_ONCE: usize = 10;
/// The longest delay of a message (SQS quotas).
pub const MAX_DELAY_S: u64 = 900;

/// A queue that was received from, and how to answer.
#[derive(Clone, Debug)]
pub struct Received {
    /// The message's text.
    pub body: String,
    /// What deletes it.
    pub receipt: String,
    /// How often it was received.
    pub receive_count: u64,
}

/// Access to one queue.
#[derive(Clone, Debug)]
pub struct Queue {
    client: Client,
    url: String,
}

impl Queue {
    /// The queue at `url`.
    #[must_use]
    pub fn new(base: aws_sdk_sqs::config::Builder, url: impl Into<String>) -> Self {
        let config = base
            // A long poll takes 20 s.
            .timeout_config(timeouts(Duration::from_secs(25), Duration::from_secs(30)))
            .retry_config(RetryConfig::standard().with_max_attempts(3))
            .build();
        Self { client: Client::from_conf(config), url: url.into() }
    }

    /// Sends claims, each after `delay_s` seconds. Every batch's partial failures are looked at.
    ///
    /// # Errors
    /// The first [`StoreError`]; the other claims were sent all the same.
    pub async fn send_claims(&self, ids: &[ConnectionId], delay_s: u64) -> Result<(), StoreError> {
        let bodies: Vec<String> = ids.iter().map(|id| Claim { connection_id: id.clone() }.to_body()).collect();
        let batches: Vec<Vec<String>> = bodies.chunks(BATCH).map(<[String]>::to_vec).collect();
        let sends = stream::iter(batches.into_iter().map(|batch| self.send_batch(batch, delay_s)));
        let results: Vec<_> = sends.buffer_unordered(BATCHES_AT_ONCE).collect().await;
        results.into_iter().collect()
    }

    async fn send_batch(&self, bodies: Vec<String>, delay_s: u64) -> Result<(), StoreError> {
        let mut request = self.client.send_message_batch().queue_url(&self.url);
        for (index, body) in bodies.into_iter().enumerate() {
            let entry = SendMessageBatchRequestEntry::builder()
                .id(index.to_string())
                .message_body(body)
                .set_delay_seconds(delay(delay_s))
                .build()
                .map_err(|error| StoreError::Invalid { service: SQS, message: error.to_string() })?;
            request = request.entries(entry);
        }
        let answer = request.send().await.map_err(|error| sort(SQS, &error))?;
        match answer.failed.first() {
            None => Ok(()),
            Some(failed) => Err(StoreError::Throttled {
                service: SQS,
                message: format!("{} of a batch were not sent: {}", answer.failed.len(), failed.code),
            }),
        }
    }

    /// Sends one message after `delay_s` seconds.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn send(&self, body: &str, delay_s: u64) -> Result<(), StoreError> {
        let request = self.client.send_message().queue_url(&self.url).message_body(body);
        request.set_delay_seconds(delay(delay_s)).send().await.map_err(|error| sort(SQS, &error))?;
        Ok(())
    }

    /// Receives up to `most` (10 at most) messages, waiting up to `wait_s` (20 at most) for the first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn receive(&self, most: u64, wait_s: i32) -> Result<Vec<Received>, StoreError> {
        let answer = self
            .client
            .receive_message()
            .queue_url(&self.url)
            .max_number_of_messages(i32::try_from(most.clamp(1, 10)).unwrap_or(10))
            .wait_time_seconds(wait_s)
            .message_system_attribute_names(MessageSystemAttributeName::ApproximateReceiveCount)
            .send()
            .await
            .map_err(|error| sort(SQS, &error))?;
        let mut received = Vec::new();
        for message in answer.messages.unwrap_or_default() {
            let count = message.attributes.as_ref().and_then(|attributes| {
                attributes.get(&MessageSystemAttributeName::ApproximateReceiveCount)?.parse().ok()
            });
            received.push(Received {
                body: message.body.unwrap_or_default(),
                receipt: message.receipt_handle.unwrap_or_default(),
                receive_count: count.unwrap_or(1),
            });
        }
        Ok(received)
    }

    /// Deletes a message.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn delete(&self, receipt: &str) -> Result<(), StoreError> {
        let request = self.client.delete_message().queue_url(&self.url).receipt_handle(receipt);
        request.send().await.map_err(|error| sort(SQS, &error))?;
        Ok(())
    }

    /// Gives a message back: others see it after `after_s` seconds.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn give_back(&self, receipt: &str, after_s: u64) -> Result<(), StoreError> {
        self.client
            .change_message_visibility()
            .queue_url(&self.url)
            .receipt_handle(receipt)
            .visibility_timeout(i32::try_from(after_s.min(43_200)).unwrap_or(43_200))
            .send()
            .await
            .map_err(|error| sort(SQS, &error))?;
        Ok(())
    }

    /// Messages that wait, are in flight or delayed, approximately and a little late.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn depth(&self) -> Result<u64, StoreError> {
        let names = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
            QueueAttributeName::ApproximateNumberOfMessagesDelayed,
        ];
        let request = self.client.get_queue_attributes().queue_url(&self.url);
        let answer = request.set_attribute_names(Some(names.to_vec())).send().await;
        let attributes = answer.map_err(|error| sort(SQS, &error))?.attributes.unwrap_or_default();
        Ok(names.iter().filter_map(|name| attributes.get(name)?.parse::<u64>().ok()).sum())
    }
}

/// SQS takes whole seconds up to its quota; no delay is no parameter.
fn delay(delay_s: u64) -> Option<i32> {
    (delay_s > 0).then(|| i32::try_from(delay_s.min(MAX_DELAY_S)).unwrap_or(900))
}
