//! Message move tasks: dead letters on their way back.

use super::error::SqsError;
use super::limits;
use super::redrive_policy::name_in_arn;
use super::store::Store;
use serde::{Deserialize, Serialize};

/// How a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// Messages are left to move.
    Running,
    /// None were left.
    Completed,
    /// It was told to stop.
    Cancelled,
    /// It met a message that it had no place for; see [`MoveTask::failure`].
    Failed,
}

/// A task that moves the visible messages of a dead-letter queue. It works whenever the queues are looked at: every
/// second the rate's worth of messages, or all at once without a rate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveTask {
    /// Names the task.
    pub handle: String,
    /// The dead-letter queue's name.
    pub source: String,
    /// Where to move; back to where each message came from when absent.
    pub destination: Option<String>,
    /// Messages a second, 1 to 500.
    pub rate: Option<u64>,
    /// When it started, milliseconds since the Unix epoch.
    pub started_ms: u64,
    /// Messages moved.
    pub moved: u64,
    /// Messages there were to move at the start.
    pub to_move: u64,
    /// How it stands.
    pub status: Status,
    /// Why it failed.
    pub failure: Option<String>,
}

impl Store {
    /// Starts moving the messages of a dead-letter queue; returns the task's handle.
    ///
    /// # Errors
    /// [`SqsError::ResourceNotFound`], and [`SqsError::InvalidParameter`] if the source is nobody's dead-letter queue, is
    /// being moved already, or the rate is not 1 to 500.
    pub fn start_task(
        &mut self,
        now_ms: u64,
        source_arn: &str,
        destination_arn: Option<&str>,
        rate: Option<i64>,
    ) -> Result<String, SqsError> {
        self.advance_tasks(now_ms);
        let state = &mut self.queue_in_arn(source_arn, "SourceArn")?.state;
        let (source, to_move) = (state.name.clone(), state.counts(now_ms).visible as u64);
        if let Some(arn) = destination_arn {
            self.queue_in_arn(arn, "DestinationArn")?;
        }
        let rate = rate.map(check_rate).transpose()?;
        if self.dead_letter_sources(&source).is_empty() {
            return Err(SqsError::InvalidParameter("source queue must be configured as a Dead Letter Queue.".into()));
        }
        if self.tasks.iter().any(|task| task.source == source && task.status == Status::Running) {
            let text =
                "there is already a task running. Only one active task is allowed for a source queue arn at a time.";
            return Err(SqsError::InvalidParameter(text.into()));
        }
        self.last_number += 1;
        let handle = super::message_id(self.last_number);
        self.tasks.push(MoveTask {
            handle: handle.clone(),
            destination: destination_arn.and_then(name_in_arn).map(str::to_owned),
            source: source.clone(),
            rate,
            started_ms: now_ms,
            moved: 0,
            to_move,
            status: Status::Running,
            failure: None,
        });
        self.forget_old_tasks(&source);
        self.advance_tasks(now_ms);
        // Every poll computes anew how long it can sleep.
        for queue in self.queues.values() {
            queue.arrivals.notify_waiters();
        }
        Ok(handle)
    }

    /// Stops a task; returns how many messages it has moved.
    ///
    /// # Errors
    /// [`SqsError::ResourceNotFound`] for a handle of no task, [`SqsError::Unsupported`] for one that is not running.
    pub fn cancel_task(&mut self, now_ms: u64, handle: &str) -> Result<u64, SqsError> {
        self.advance_tasks(now_ms);
        let task = self.tasks.iter_mut().find(|task| task.handle == handle);
        let task = task.ok_or(SqsError::ResourceNotFound("TaskHandle"))?;
        if task.status != Status::Running {
            return Err(SqsError::Unsupported("only active tasks can be cancelled.".into()));
        }
        task.status = Status::Cancelled;
        Ok(task.moved)
    }

    /// The tasks of a source queue, the latest first.
    ///
    /// # Errors
    /// [`SqsError::ResourceNotFound`].
    pub fn tasks_of(&mut self, now_ms: u64, source_arn: &str) -> Result<Vec<MoveTask>, SqsError> {
        self.advance_tasks(now_ms);
        let source = self.queue_in_arn(source_arn, "SourceArn")?.state.name.clone();
        Ok(self.tasks.iter().rev().filter(|task| task.source == source).cloned().collect())
    }

    /// Lets every running task do what it should have done by now.
    pub fn advance_tasks(&mut self, now_ms: u64) {
        let mut tasks = std::mem::take(&mut self.tasks);
        for task in &mut tasks {
            if task.status == Status::Running {
                self.advance_task(now_ms, task);
            }
        }
        self.tasks = tasks;
    }

    /// When a running task next has something to do.
    #[must_use]
    pub fn next_task_step_ms(&self) -> Option<u64> {
        let running = self.tasks.iter().filter(|task| task.status == Status::Running);
        running.filter_map(|task| Some(task.started_ms + (task.moved / task.rate?) * 1_000)).min()
    }

    fn advance_task(&mut self, now_ms: u64, task: &mut MoveTask) {
        let seconds_begun = now_ms.saturating_sub(task.started_ms) / 1_000 + 1;
        let budget = task.rate.map_or(u64::MAX, |rate| rate.saturating_mul(seconds_begun));
        while task.moved < budget {
            match self.move_one(now_ms, task) {
                Ok(true) => task.moved += 1,
                Ok(false) => {
                    task.status = Status::Completed;
                    return;
                }
                Err(reason) => {
                    task.status = Status::Failed;
                    task.failure = Some(reason.to_owned());
                    return;
                }
            }
        }
    }

    /// Moves one message. Says whether there was one.
    fn move_one(&mut self, now_ms: u64, task: &MoveTask) -> Result<bool, &'static str> {
        let Some(source) = self.queues.get_mut(&task.source) else {
            return Err("AWS.SimpleQueueService.NonExistentQueue");
        };
        source.state.advance(now_ms);
        let Some(message) = source.state.first_ready() else { return Ok(false) };
        let number = message.number;
        let size_bytes = message.size_bytes;
        let destination = task.destination.clone().or_else(|| message.dead_letter_source.clone());
        let destination = destination.ok_or("CouldNotDetermineMessageSource")?;
        let queue = self.queues.get(&destination).ok_or("AWS.SimpleQueueService.NonExistentQueue")?;
        if !queue.state.has_room_for(size_bytes) {
            return Err("RequestThrottled");
        }
        let taken = self.queues.get_mut(&task.source).and_then(|source| source.state.take(number));
        self.last_number += 1;
        let number = self.last_number;
        if let (Some(message), Some(queue)) = (taken, self.queues.get_mut(&destination)) {
            queue.state.accept_redriven(now_ms, number, message);
            queue.arrivals.notify_waiters();
        }
        Ok(true)
    }

    fn forget_old_tasks(&mut self, source: &str) {
        let mut excess =
            self.tasks.iter().filter(|task| task.source == source).count().saturating_sub(limits::MAX_MOVE_TASKS);
        self.tasks.retain(|task| {
            let forget = excess > 0 && task.source == source;
            excess -= usize::from(forget);
            !forget
        });
    }
}

fn check_rate(rate: i64) -> Result<u64, SqsError> {
    match u64::try_from(rate) {
        Ok(rate @ 1..=limits::MAX_MOVE_RATE) => Ok(rate),
        _ => Err(SqsError::invalid(rate, "MaxNumberOfMessagesPerSecond", "must be between 1 and 500.")),
    }
}
