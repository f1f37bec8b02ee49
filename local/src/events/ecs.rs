//! Events of a task's state changes: "Amazon ECS task state change events" (ECS Developer Guide).

use super::iso_millis;
use super::iso_seconds;
use super::record::region_of;
use super::schedule::account_of;
use serde_json::{Map, Value, json};

/// A container of the task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerState {
    /// Its name in the task definition.
    pub name: String,
    /// `lastStatus`: RUNNING, STOPPED, ...
    pub last_status: String,
    /// Known once the container has stopped. A report without one proves nothing about the process.
    pub exit_code: Option<i32>,
    /// Why it stopped, e.g. `OutOfMemoryError: Container killed due to memory usage`.
    pub reason: Option<String>,
}

/// A task's state, as one event reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskState {
    /// `arn:aws:ecs:<region>:<account>:task/<cluster>/<id>`.
    pub task_arn: String,
    /// The cluster.
    pub cluster_arn: String,
    /// The task definition with its revision.
    pub task_definition_arn: String,
    /// `service:<name>` or `family:<name>`.
    pub group: String,
    /// `lastStatus`: RUNNING, DEACTIVATING, STOPPING, DEPROVISIONING, STOPPED, ...
    pub last_status: String,
    /// `desiredStatus`: RUNNING or STOPPED.
    pub desired_status: String,
    /// `stopCode`: TaskFailedToStart, EssentialContainerExited, UserInitiated, ServiceSchedulerInitiated,
    /// SpotInterruption, TerminationNotice.
    pub stop_code: Option<String>,
    /// `stoppedReason`: text for people.
    pub stopped_reason: Option<String>,
    /// The containers.
    pub containers: Vec<ContainerState>,
    /// Rises with every change of the task: tells late events from new ones.
    pub version: u64,
    /// When the task was created, in milliseconds since the Unix epoch.
    pub created_ms: u64,
    /// When its last container stopped.
    pub stopped_ms: Option<u64>,
}

/// The event that reports `task`. `wall_ms` is the time in milliseconds since the Unix epoch, `id` a UUID.
#[must_use]
pub fn task_state_change(task: &TaskState, wall_ms: u64, id: &str) -> Value {
    json!({
        "version": "0",
        "id": id,
        "detail-type": "ECS Task State Change",
        "source": "aws.ecs",
        "account": account_of(&task.task_arn),
        "time": iso_seconds(wall_ms),
        "region": region_of(&task.task_arn),
        "resources": [task.task_arn],
        "detail": detail(task, wall_ms),
    })
}

fn detail(task: &TaskState, wall_ms: u64) -> Value {
    let mut detail = json!({
        "attachments": [],
        "clusterArn": task.cluster_arn,
        "containers": task.containers.iter().map(|container| container_json(container, task)).collect::<Vec<_>>(),
        "createdAt": iso_millis(task.created_ms),
        "desiredStatus": task.desired_status,
        "group": task.group,
        "launchType": "FARGATE",
        "lastStatus": task.last_status,
        "overrides": {"containerOverrides": []},
        "platformVersion": "1.4.0",
        "taskArn": task.task_arn,
        "taskDefinitionArn": task.task_definition_arn,
        "updatedAt": iso_millis(wall_ms),
        "version": task.version,
    });
    // AWS leaves these out until they are known.
    let optional = [
        ("stopCode", task.stop_code.clone()),
        ("stoppedReason", task.stopped_reason.clone()),
        ("stoppedAt", task.stopped_ms.map(iso_millis)),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            detail[name] = json!(value);
        }
    }
    detail
}

fn container_json(container: &ContainerState, task: &TaskState) -> Value {
    let mut json = Map::new();
    json.insert("name".into(), json!(container.name));
    json.insert("lastStatus".into(), json!(container.last_status));
    json.insert("taskArn".into(), json!(task.task_arn));
    if let Some(exit_code) = container.exit_code {
        json.insert("exitCode".into(), json!(exit_code));
    }
    if let Some(reason) = &container.reason {
        json.insert("reason".into(), json!(reason));
    }
    Value::Object(json)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2025-06-01T12:00:00Z.
    const START_MS: u64 = 1_748_779_200_000;

    fn keys(value: &Value) -> Vec<&String> {
        value.as_object().expect("an object").keys().collect()
    }

    #[test]
    fn the_event_of_a_stopped_task_looks_like_the_documented_one() {
        let sample: Value = serde_json::from_str(include_str!("../../../events/ecs-task-stopped.json")).expect("JSON");
        let text = |value: &Value| value.as_str().expect("a string").to_owned();
        let detail = &sample["detail"];
        let task = TaskState {
            task_arn: text(&detail["taskArn"]),
            cluster_arn: text(&detail["clusterArn"]),
            task_definition_arn: text(&detail["taskDefinitionArn"]),
            group: text(&detail["group"]),
            last_status: "STOPPED".into(),
            desired_status: "STOPPED".into(),
            stop_code: Some(text(&detail["stopCode"])),
            stopped_reason: Some(text(&detail["stoppedReason"])),
            containers: vec![ContainerState {
                name: "worker".into(),
                last_status: "STOPPED".into(),
                exit_code: Some(137),
                reason: None,
            }],
            version: 6,
            created_ms: START_MS - 10_800_000,
            stopped_ms: Some(START_MS + 13_789),
        };
        let event = task_state_change(&task, START_MS + 13_789, &text(&sample["id"]));
        assert_eq!(keys(&event), keys(&sample));
        for field in ["id", "account", "region", "time", "resources", "source", "detail-type"] {
            assert_eq!(event[field], sample[field], "{field}");
        }
        for field in [
            "clusterArn",
            "createdAt",
            "desiredStatus",
            "group",
            "lastStatus",
            "stopCode",
            "stoppedAt",
            "stoppedReason",
            "taskArn",
            "updatedAt",
            "version",
        ] {
            assert_eq!(event["detail"][field], detail[field], "{field}");
        }
        assert_eq!(event["detail"]["containers"][0]["exitCode"], 137);
        let unknown =
            TaskState { containers: vec![ContainerState { exit_code: None, ..task.containers[0].clone() }], ..task };
        let event = task_state_change(&unknown, START_MS, "id");
        assert!(event["detail"]["containers"][0].get("exitCode").is_none());
    }
}
