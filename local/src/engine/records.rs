//! Two corrections that the engine's stream records need to be those of DynamoDB.

use dynoxide::DynoxideError;
use serde_json::Value;

/// Corrects an answer of `GetRecords`.
///
/// - A write that changed nothing makes no record: "if you perform a PutItem or UpdateItem operation that does not
///   change any data in an item, DynamoDB Streams does not write a stream record" (AWS, "Change data capture for
///   DynamoDB Streams"). The engine writes a MODIFY with two equal images. It can only be told with both images
///   in the record, that is on a stream of `NEW_AND_OLD_IMAGES`.
/// - The members of `userIdentity` are `Type` and `PrincipalId` in this API (AWS, `streams_Identity`).
pub(super) fn corrected(answer: Vec<u8>) -> Result<Vec<u8>, DynoxideError> {
    let read = serde_json::from_slice(&answer);
    let mut answer: Value = read.map_err(|error| DynoxideError::InternalServerError(error.to_string()))?;
    if let Some(records) = answer.get_mut("Records").and_then(Value::as_array_mut) {
        records.retain(|record| !changed_nothing(record));
        for record in records {
            rename_identity(record);
        }
    }
    super::dispatch::to_json(&answer)
}

fn changed_nothing(record: &Value) -> bool {
    let old = &record["dynamodb"]["OldImage"];
    record["eventName"] == "MODIFY" && old.is_object() && *old == record["dynamodb"]["NewImage"]
}

fn rename_identity(record: &mut Value) {
    let Some(identity) = record.get_mut("userIdentity").and_then(Value::as_object_mut) else { return };
    for (theirs, ours) in [("type", "Type"), ("principalId", "PrincipalId")] {
        if let Some(value) = identity.remove(theirs) {
            identity.insert(ours.to_owned(), value);
        }
    }
}
