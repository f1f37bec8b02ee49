//! From an operation's name to its function.

use super::error::SqsError;
use super::move_tasks::{MoveTask, Status};
use super::protocol::{MoveRequest, required};
use super::redrive_policy::arn_of;
use super::store::Store;
use super::{batch, message_operations, queue_operations};
use serde_json::{Value, json};

/// Every operation but `ReceiveMessage`, which can wait.
pub(super) fn dispatch(
    store: &mut Store,
    now_ms: u64,
    base_url: &str,
    operation: &str,
    body: &[u8],
) -> Result<Value, SqsError> {
    store.advance_tasks(now_ms);
    match operation {
        "CreateQueue" => queue_operations::create(store, now_ms, base_url, serde_json::from_slice(body)?),
        "DeleteQueue" => queue_operations::delete(store, now_ms, serde_json::from_slice(body)?),
        "GetQueueUrl" => queue_operations::get_url(store, base_url, serde_json::from_slice(body)?),
        "ListQueues" => queue_operations::list(store, base_url, serde_json::from_slice(body)?),
        "ListDeadLetterSourceQueues" => queue_operations::list_sources(store, base_url, serde_json::from_slice(body)?),
        "GetQueueAttributes" => queue_operations::get_attributes(store, now_ms, serde_json::from_slice(body)?),
        "SetQueueAttributes" => queue_operations::set_attributes(store, now_ms, serde_json::from_slice(body)?),
        "PurgeQueue" => queue_operations::purge(store, now_ms, serde_json::from_slice(body)?),
        "TagQueue" => queue_operations::tag(store, serde_json::from_slice(body)?),
        "UntagQueue" => queue_operations::untag(store, serde_json::from_slice(body)?),
        "ListQueueTags" => queue_operations::list_tags(store, serde_json::from_slice(body)?),
        "SendMessage" => message_operations::send(store, now_ms, serde_json::from_slice(body)?),
        "SendMessageBatch" => batch::send(store, now_ms, serde_json::from_slice(body)?),
        "DeleteMessage" => message_operations::delete(store, now_ms, serde_json::from_slice(body)?),
        "DeleteMessageBatch" => batch::delete(store, now_ms, serde_json::from_slice(body)?),
        "ChangeMessageVisibility" => {
            message_operations::change_visibility(store, now_ms, serde_json::from_slice(body)?)
        }
        "ChangeMessageVisibilityBatch" => batch::change_visibility(store, now_ms, serde_json::from_slice(body)?),
        "StartMessageMoveTask" => start_move(store, now_ms, serde_json::from_slice(body)?),
        "CancelMessageMoveTask" => cancel_move(store, now_ms, serde_json::from_slice(body)?),
        "ListMessageMoveTasks" => list_moves(store, now_ms, serde_json::from_slice(body)?),
        "AddPermission" | "RemovePermission" => {
            Err(SqsError::Unsupported(format!("{operation}: there are no permissions in a queue of one process.")))
        }
        _ => Err(SqsError::UnknownOperation(operation.to_owned())),
    }
}

fn start_move(store: &mut Store, now_ms: u64, request: MoveRequest) -> Result<Value, SqsError> {
    let source = required(request.source_arn, "SourceArn")?;
    let rate = request.max_number_of_messages_per_second;
    let handle = store.start_task(now_ms, &source, request.destination_arn.as_deref(), rate)?;
    Ok(json!({"TaskHandle": handle}))
}

fn cancel_move(store: &mut Store, now_ms: u64, request: MoveRequest) -> Result<Value, SqsError> {
    let moved = store.cancel_task(now_ms, &required(request.task_handle, "TaskHandle")?)?;
    Ok(json!({"ApproximateNumberOfMessagesMoved": moved}))
}

fn list_moves(store: &mut Store, now_ms: u64, request: MoveRequest) -> Result<Value, SqsError> {
    let max = match request.max_results.map(usize::try_from) {
        None => 1,
        Some(Ok(max @ 1..=10)) => max,
        Some(_) => return Err(SqsError::invalid("given", "MaxResults", "must be between 1 and 10.")),
    };
    let tasks = store.tasks_of(now_ms, &required(request.source_arn, "SourceArn")?)?;
    let results: Vec<Value> = tasks.iter().take(max).map(show_task).collect();
    Ok(json!({"Results": results}))
}

fn show_task(task: &MoveTask) -> Value {
    let status = match task.status {
        Status::Running => "RUNNING",
        Status::Completed => "COMPLETED",
        Status::Cancelled => "CANCELLED",
        Status::Failed => "FAILED",
    };
    let mut shown = json!({
        "Status": status,
        "SourceArn": arn_of(&task.source),
        "ApproximateNumberOfMessagesMoved": task.moved,
        "ApproximateNumberOfMessagesToMove": task.to_move,
        "StartedTimestamp": task.started_ms,
    });
    let mut put = |member: &str, value: Option<Value>| {
        if let Some(value) = value {
            shown[member] = value;
        }
    };
    // AWS names the handle of running tasks only.
    put("TaskHandle", (task.status == Status::Running).then(|| json!(task.handle)));
    put("DestinationArn", task.destination.as_deref().map(|name| json!(arn_of(name))));
    put("MaxNumberOfMessagesPerSecond", task.rate.map(|rate| json!(rate)));
    put("FailureReason", task.failure.as_ref().map(|reason| json!(reason)));
    shown
}
