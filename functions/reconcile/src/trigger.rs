//! What wakes a run. Triggers wake, they do not inform, except for a task that ECS reports as stopped.

use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Why the function runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// The schedule, or anything else that somebody sent by hand: a run of a whole minute.
    Minute,
    /// Messages of the queue `ticks`: how many are ticks, and how many are not.
    Ticks {
        /// Ticks.
        good: u64,
        /// Messages that can never become ticks: they are deleted.
        bad: u64,
    },
    /// ECS reports a change of a task: ARNs of tasks whose every container has ended.
    Tasks(BTreeSet<String>),
}

/// What a tick says.
#[must_use]
pub fn tick_body() -> String {
    json!({ "kind": "tick" }).to_string()
}

impl Trigger {
    /// Reads an event. There is no wrong one: what is neither ticks nor a task's change means "run once".
    #[must_use]
    pub fn of(event: &Value) -> Self {
        if let Some(records) = event["Records"].as_array() {
            return ticks(records);
        }
        if event["detail-type"] == "ECS Task State Change" {
            return Self::Tasks(stopped_task(&event["detail"]).into_iter().collect());
        }
        Self::Minute
    }
}

fn ticks(records: &[Value]) -> Trigger {
    let (mut good, mut bad) = (0, 0);
    for record in records {
        let body = record["body"].as_str().and_then(|body| serde_json::from_str::<Value>(body).ok());
        if body.is_some_and(|body| body["kind"] == "tick") {
            good += 1;
        } else {
            bad += 1;
            tracing::error!(
                event = "bad_tick",
                message = record["messageId"].as_str().unwrap_or("without an id"),
                "a message of the queue of ticks is none, and is deleted"
            );
        }
    }
    Trigger::Ticks { good, bad }
}

/// States that come after the last container has ended: "Amazon ECS task lifecycle". A task can be reported in them before its
/// containers are (containers-roadmap #324), so each container must have an exit code as well.
const ENDED: [&str; 3] = ["DEPROVISIONING", "STOPPED", "DELETED"];

/// The ARN of a task that has surely ended; anything less only wakes the run.
fn stopped_task(detail: &Value) -> Option<String> {
    let ended = ENDED.iter().any(|status| detail["lastStatus"] == *status);
    let containers = detail["containers"].as_array()?;
    let exited = !containers.is_empty() && containers.iter().all(|container| container["exitCode"].is_i64());
    if !(ended && exited) {
        return None;
    }
    Some(detail["taskArn"].as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(status: &str, containers: Value) -> Trigger {
        let detail = json!({"taskArn": "arn:task/1", "lastStatus": status, "containers": containers});
        Trigger::of(&json!({"detail-type": "ECS Task State Change", "source": "aws.ecs", "detail": detail}))
    }

    fn nobody() -> Trigger {
        Trigger::Tasks(BTreeSet::new())
    }

    #[test]
    fn a_report_without_every_exit_code_only_hastens_the_look() {
        assert_eq!(task("STOPPED", json!([{"exitCode": 0}, {"name": "sidecar"}])), nobody());
        assert_eq!(task("STOPPED", json!([])), nobody());
        assert_eq!(task("STOPPING", json!([{"exitCode": 0}])), nobody());
        assert_eq!(task("STOPPED", json!(null)), nobody());
    }

    #[test]
    fn a_task_whose_containers_have_all_ended_is_reported_from_deprovisioning_on() {
        for status in ["DEPROVISIONING", "STOPPED"] {
            let expected = Trigger::Tasks(BTreeSet::from(["arn:task/1".to_owned()]));
            assert_eq!(task(status, json!([{"exitCode": 137}, {"exitCode": 0}])), expected);
        }
    }

    #[test]
    fn an_empty_event_and_a_hand_made_one_mean_run_once() {
        for event in [json!({}), json!(null), json!({"hello": "world"}), json!({"source": "aws.events", "detail": {}})]
        {
            assert_eq!(Trigger::of(&event), Trigger::Minute, "{event}");
        }
    }

    #[test]
    fn a_bad_tick_does_not_spoil_the_others() {
        let records =
            json!({"Records": [{"body": tick_body(), "messageId": "1"}, {"body": "hello"}, {}, {"body": "[]"}]});
        assert_eq!(Trigger::of(&records), Trigger::Ticks { good: 1, bad: 3 });
    }
}
