//! Which write belongs to what: the classes of the bill.

use crate::engine::meter::Applied;
use serde_json::Value;

/// Renewals, registrations, fences: whatever is written to sessions.
pub const LEASE: &str = "lease";
/// Changes of owner: stamp, acquire, release, reap.
pub const OWNERSHIP: &str = "ownership";
/// Checkpoints of progress alone.
pub const CHECKPOINT: &str = "checkpoint";
/// Status of a connection (with the checkpoint that rides along).
pub const STATUS: &str = "status";
/// Received messages.
pub const MESSAGES: &str = "messages";
/// Marks and reconcile's memory.
pub const CONTROL: &str = "control";
/// What users write.
pub const USER: &str = "user";

/// Names the class of a write; reads have none.
#[must_use]
pub fn classify(applied: &Applied<'_>) -> Option<&'static str> {
    let table = match applied.operation {
        "PutItem" | "UpdateItem" | "DeleteItem" => applied.request["TableName"].as_str()?,
        "TransactWriteItems" | "BatchWriteItem" => return Some(MESSAGES),
        _ => return None,
    };
    if table.ends_with("messages") {
        return Some(MESSAGES);
    }
    if table.ends_with("sessions") {
        let key = key_of(applied.request);
        return Some(if key.contains('#') { CONTROL } else { LEASE });
    }
    let expression = applied.request["UpdateExpression"].as_str().unwrap_or("");
    let mentions = |name: &str| expression.contains(name);
    Some(if mentions("#lease_owner") || mentions("#lease_epoch") {
        OWNERSHIP
    } else if mentions("#observed_state") {
        STATUS
    } else if mentions("#last_seq") {
        CHECKPOINT
    } else {
        USER
    })
}

fn key_of(request: &Value) -> &str {
    let key = if request["Key"].is_object() { &request["Key"] } else { &request["Item"] };
    key["session_id"]["S"].as_str().unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn class(operation: &str, request: &Value) -> Option<&'static str> {
        classify(&Applied { operation, request, answer: &Value::Null, at_ms: 0 })
    }

    #[test]
    fn each_kind_of_write_has_its_own_class() {
        let update = |table: &str, expression: &str| json!({"TableName": table, "Key": {"Pk": {"S": "CONN#a"}}, "UpdateExpression": expression});
        let acquire = update("x-connections", "SET #lease_owner = :v0, #observed_state = :v1 REMOVE #reason");
        assert_eq!(class("UpdateItem", &acquire), Some(OWNERSHIP));
        assert_eq!(class("UpdateItem", &update("x-connections", "SET #observed_state = :v0")), Some(STATUS));
        assert_eq!(class("UpdateItem", &update("x-connections", "SET #last_seq = :v0")), Some(CHECKPOINT));
        assert_eq!(class("UpdateItem", &update("x-connections", "SET #desired_state = :v0")), Some(USER));
        assert_eq!(class("PutItem", &json!({"TableName": "x-messages", "Item": {}})), Some(MESSAGES));
        let marks = json!({"TableName": "x-sessions", "Key": {"session_id": {"S": "s#marks"}}});
        assert_eq!(class("UpdateItem", &marks), Some(CONTROL));
        let renewal = json!({"TableName": "x-sessions", "Key": {"session_id": {"S": "s"}}});
        assert_eq!(class("UpdateItem", &renewal), Some(LEASE));
        assert_eq!(class("GetItem", &json!({"TableName": "x-sessions"})), None);
    }
}
