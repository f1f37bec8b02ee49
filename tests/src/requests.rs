//! Which of the protocol's requests a request to DynamoDB is, by its expressions.

use serde_json::Value;

/// True for the renewal of a session.
pub fn is_renewal(operation: &str, request: &Value) -> bool {
    operation == "UpdateItem"
        && request["ConditionExpression"].as_str().is_some_and(|text| text.contains("#heartbeat <"))
}

/// True for the renewal of a row, where rows are leased by themselves.
pub fn is_row_renewal(operation: &str, request: &Value) -> bool {
    operation == "UpdateItem" && request["UpdateExpression"] == "SET #lease_expires_at_ms = :v0" && is_mine(request)
}

/// True for a release.
pub fn is_release(operation: &str, request: &Value) -> bool {
    let frees = request["UpdateExpression"].as_str().is_some_and(|text| text.contains("REMOVE #lease_owner"));
    operation == "UpdateItem" && frees && is_mine(request)
}

/// True for a write of an owner: it requires its epoch.
fn is_mine(request: &Value) -> bool {
    request["ConditionExpression"].as_str().is_some_and(|text| text.contains("#lease_epoch ="))
}

/// True for an acquire.
pub fn is_acquire(operation: &str, request: &Value) -> bool {
    operation == "UpdateItem"
        && request["UpdateExpression"].as_str().is_some_and(|text| text.contains("#lease_owner ="))
}
