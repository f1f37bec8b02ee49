//! All queues, and what goes on between them.

use super::attributes::{self, QueueConfig};
use super::error::SqsError;
use super::limits::{self, QueueLimits};
use super::message::{Message, Outgoing};
use super::move_tasks::MoveTask;
use super::redrive_policy::{arn_of, name_in_arn};
use super::state::{QueueState, Receive, Sent};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;

/// A queue, and who waits for its messages.
#[derive(Clone, Debug)]
pub struct Queue {
    /// The queue.
    pub state: QueueState,
    /// Wakes every long poll on it: a message came, or a wait is to be computed anew.
    pub arrivals: Arc<Notify>,
}

/// The queues of one account in one region.
#[derive(Clone, Debug, Default)]
pub struct Store {
    pub(super) queues: BTreeMap<String, Queue>,
    /// Names that rest, with the time of their deletion.
    pub(super) deleted: BTreeMap<String, u64>,
    /// The number of the latest message.
    pub(super) last_number: u64,
    pub(super) tasks: Vec<MoveTask>,
    pub(super) limits: QueueLimits,
}

impl Store {
    /// No queues yet; each will have these limits.
    #[must_use]
    pub fn new(limits: QueueLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// The queue that a URL means: its last path segment is the name; host and account are ignored.
    ///
    /// # Errors
    /// [`SqsError::QueueDoesNotExist`].
    pub fn queue_at(&mut self, url: &str) -> Result<&mut Queue, SqsError> {
        let path = url.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
        let name = path.rsplit('/').next().unwrap_or_default();
        self.queue(name)
    }

    /// The queue of this name.
    ///
    /// # Errors
    /// [`SqsError::QueueDoesNotExist`].
    pub fn queue(&mut self, name: &str) -> Result<&mut Queue, SqsError> {
        self.queues.get_mut(name).ok_or(SqsError::QueueDoesNotExist)
    }

    /// Names of the queues, in order.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.queues.keys()
    }

    /// Makes a queue, or finds it with the same attributes. Attributes that are not given are not compared.
    ///
    /// # Errors
    /// [`SqsError::QueueNameExists`] if it has others, [`SqsError::QueueDeletedRecently`], and what is wrong with name
    /// or attributes.
    pub fn create(
        &mut self,
        now_ms: u64,
        name: &str,
        given: &BTreeMap<String, String>,
        tags: BTreeMap<String, String>,
    ) -> Result<(), SqsError> {
        let existing = self.queues.get(name).map(|queue| queue.state.config.clone());
        let mut wanted = existing.clone().unwrap_or_default();
        wanted.set(given, true)?;
        check_name(name, wanted.fifo)?;
        if let Some(existing) = existing {
            return match attributes::first_difference(&existing, &wanted) {
                Some(attribute) => Err(SqsError::QueueNameExists(attribute)),
                None => Ok(()),
            };
        }
        self.deleted.retain(|_, deleted_ms| deleted_ms.saturating_add(limits::SETTLE_MS) > now_ms);
        if self.deleted.contains_key(name) {
            return Err(SqsError::QueueDeletedRecently);
        }
        if self.queues.len() >= limits::MAX_QUEUES {
            return Err(SqsError::OverLimit(format!("this process holds at most {} queues", limits::MAX_QUEUES)));
        }
        self.check_redrive(name, &wanted)?;
        let mut state = QueueState::new(name, wanted, self.limits, now_ms);
        state.tags = tags;
        self.queues.insert(name.to_owned(), Queue { state, arrivals: Arc::default() });
        Ok(())
    }

    /// Deletes a queue with its messages. Its name rests for 60 s.
    ///
    /// # Errors
    /// [`SqsError::QueueDoesNotExist`].
    pub fn delete_queue(&mut self, now_ms: u64, url: &str) -> Result<(), SqsError> {
        let queue = self.queue_at(url)?;
        // Polls wake and see that the queue is gone.
        queue.arrivals.notify_waiters();
        let name = queue.state.name.clone();
        self.queues.remove(&name);
        self.deleted.retain(|_, deleted_ms| deleted_ms.saturating_add(limits::SETTLE_MS) > now_ms);
        self.deleted.insert(name, now_ms);
        Ok(())
    }

    /// Changes attributes of a queue: all of them, or none if one is refused.
    ///
    /// # Errors
    /// What is wrong with an attribute; [`SqsError::QueueDoesNotExist`].
    pub fn set_attributes(&mut self, now_ms: u64, url: &str, given: &BTreeMap<String, String>) -> Result<(), SqsError> {
        let state = &self.queue_at(url)?.state;
        let (name, mut wanted) = (state.name.clone(), state.config.clone());
        wanted.set(given, false)?;
        self.check_redrive(&name, &wanted)?;
        let queue = self.queue(&name)?;
        queue.state.config = wanted;
        queue.state.modified_ms = now_ms;
        queue.state.redelay();
        queue.arrivals.notify_waiters();
        Ok(())
    }

    fn check_redrive(&self, name: &str, config: &QueueConfig) -> Result<(), SqsError> {
        let Some(policy) = &config.redrive else { return Ok(()) };
        let refuse = |reason: &str| Err(SqsError::invalid(policy.show(), "RedrivePolicy", reason));
        let target_name = policy.target_name().unwrap_or_default();
        let Some(target) = self.queues.get(target_name) else {
            return refuse("dead letter target does not exist.");
        };
        if target_name == name {
            return refuse("a queue cannot be its own dead letter target.");
        }
        if target.state.config.fifo != config.fifo {
            return refuse("dead letter queue must be of the same type as the source.");
        }
        if target.state.config.redrive_allow.as_ref().is_some_and(|allow| !allow.allows(&arn_of(name))) {
            return refuse("the dead letter target does not allow this queue (RedriveAllowPolicy).");
        }
        Ok(())
    }

    /// Names of the queues that have this one as their dead-letter queue.
    #[must_use]
    pub fn dead_letter_sources(&self, name: &str) -> Vec<String> {
        let mut sources = Vec::new();
        for (source, queue) in &self.queues {
            let target = queue.state.config.redrive.as_ref().and_then(|policy| policy.target_name());
            if target == Some(name) {
                sources.push(source.clone());
            }
        }
        sources
    }

    /// Sends a message, and wakes who waits for it.
    ///
    /// # Errors
    /// See [`QueueState::send`].
    pub fn send(&mut self, now_ms: u64, url: &str, outgoing: Outgoing) -> Result<Sent, SqsError> {
        let number = self.last_number + 1;
        let queue = self.queue_at(url)?;
        let sent = queue.state.send(now_ms, number, outgoing)?;
        if !sent.duplicate {
            queue.arrivals.notify_waiters();
            self.last_number = number;
        }
        Ok(sent)
    }

    /// Receives messages, and moves dead letters on the way.
    ///
    /// # Errors
    /// See [`QueueState::receive`].
    pub fn receive(
        &mut self,
        now_ms: u64,
        url: &str,
        max: usize,
        visibility_s: Option<u64>,
    ) -> Result<Vec<Message>, SqsError> {
        self.advance_tasks(now_ms);
        let state = &self.queue_at(url)?.state;
        let (name, policy) = (state.name.clone(), state.config.redrive.clone());
        let target = policy.as_ref().and_then(|policy| policy.target_name()).map(str::to_owned);
        // Without a place to go, a message goes on being delivered: nothing is lost.
        let dead_after = match (&policy, &target) {
            (Some(policy), Some(target)) if self.takes_dead_letters(now_ms, target) => Some(policy.max_receive_count),
            _ => None,
        };
        let received = self.queue(&name)?.state.receive(now_ms, Receive { max, visibility_s, dead_after })?;
        for message in received.dead {
            self.last_number += 1;
            let number = self.last_number;
            let Some(queue) = target.as_ref().and_then(|target| self.queues.get_mut(target)) else { continue };
            queue.state.accept_dead_letter(now_ms, number, &name, message);
            queue.arrivals.notify_waiters();
        }
        Ok(received.messages)
    }

    /// One receive may move as many messages as the source holds, so a dead-letter queue counts as full at its limit and
    /// can exceed it by that many.
    fn takes_dead_letters(&mut self, now_ms: u64, target: &str) -> bool {
        let Some(queue) = self.queues.get_mut(target) else { return false };
        queue.state.advance(now_ms);
        queue.state.has_room_for(limits::MAX_MESSAGE_BYTES)
    }

    /// When a receive on this queue should look again without being woken.
    pub fn next_change_ms(&mut self, url: &str) -> Option<u64> {
        let task = self.next_task_step_ms();
        let visible = self.queue_at(url).ok().and_then(|queue| queue.state.next_visible_ms());
        task.into_iter().chain(visible).min()
    }

    /// The queue in an ARN.
    ///
    /// # Errors
    /// [`SqsError::ResourceNotFound`] that names `parameter`.
    pub fn queue_in_arn(&mut self, arn: &str, parameter: &'static str) -> Result<&mut Queue, SqsError> {
        let name = name_in_arn(arn).unwrap_or_default();
        self.queues.get_mut(name).ok_or(SqsError::ResourceNotFound(parameter))
    }
}

/// Source: "Amazon SQS queue quotas": up to 80 alphanumeric characters, hyphens and underscores; FIFO names end in `.fifo`.
fn check_name(name: &str, fifo: bool) -> Result<(), SqsError> {
    let stem = if fifo { name.strip_suffix(".fifo") } else { Some(name) };
    let Some(stem) = stem else {
        return Err(SqsError::invalid(name, "QueueName", "the name of a FIFO queue must end with .fifo."));
    };
    let allowed = stem.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    if stem.is_empty() || name.len() > 80 || !allowed {
        let reason = "can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length; .fifo is for FIFO queues.";
        return Err(SqsError::invalid(name.chars().take(100).collect::<String>(), "QueueName", reason));
    }
    Ok(())
}
