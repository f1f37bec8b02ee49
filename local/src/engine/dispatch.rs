//! From an operation's name and JSON body to the engine's function of that name.

use dynoxide::{Database, DynoxideError};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Runs one operation. `None` means that there is no such operation.
pub(super) fn run(db: &Database, operation: &str, body: &[u8]) -> Option<Result<Vec<u8>, DynoxideError>> {
    Some(match operation {
        "PutItem" => answer(body, |request| db.put_item(request)),
        "GetItem" => answer(body, |request| db.get_item(request)),
        "UpdateItem" => answer(body, |request| db.update_item(request)),
        "DeleteItem" => answer(body, |request| db.delete_item(request)),
        "Query" => answer(body, |request| db.query(request)),
        "Scan" => answer(body, |request| db.scan(request)),
        "BatchGetItem" => answer(body, |request| db.batch_get_item(request)),
        "BatchWriteItem" => answer(body, |request| db.batch_write_item(request)),
        "TransactGetItems" => answer(body, |request| db.transact_get_items(request)),
        "TransactWriteItems" => answer(body, |request| db.transact_write_items(request)),
        "ExecuteStatement" => answer(body, |request| db.execute_statement(request)),
        "ExecuteTransaction" => answer(body, |request| db.execute_transaction(request)),
        "BatchExecuteStatement" => answer(body, |request| db.batch_execute_statement(request)),
        _ => return run_control(db, operation, body),
    })
}

/// Operations on tables and streams rather than on items.
fn run_control(db: &Database, operation: &str, body: &[u8]) -> Option<Result<Vec<u8>, DynoxideError>> {
    Some(match operation {
        "CreateTable" => answer(body, |request| db.create_table(request)),
        "UpdateTable" => answer(body, |request| db.update_table(request)),
        "DeleteTable" => answer(body, |request| db.delete_table(request)),
        "DescribeTable" => answer(body, |request| db.describe_table(request)),
        "ListTables" => answer(body, |request| db.list_tables(request)),
        "UpdateTimeToLive" => answer(body, |request| db.update_time_to_live(request)),
        "DescribeTimeToLive" => answer(body, |request| db.describe_time_to_live(request)),
        "TagResource" => answer(body, |request| db.tag_resource(request)),
        "UntagResource" => answer(body, |request| db.untag_resource(request)),
        "ListTagsOfResource" => answer(body, |request| db.list_tags_of_resource(request)),
        "ListStreams" => answer(body, |request| db.list_streams(request)),
        "DescribeStream" => answer(body, |request| db.describe_stream(request)),
        "GetShardIterator" => answer(body, |request| db.get_shard_iterator(request)),
        "GetRecords" => answer(body, |request| db.get_records(request)).and_then(super::records::corrected),
        _ => return None,
    })
}

fn answer<Request: DeserializeOwned, Answer: Serialize>(
    body: &[u8],
    run: impl FnOnce(Request) -> Result<Answer, DynoxideError>,
) -> Result<Vec<u8>, DynoxideError> {
    let request = serde_json::from_slice(body).map_err(|error| refusal(&error))?;
    to_json(&run(request)?)
}

pub(super) fn to_json(answer: &impl Serialize) -> Result<Vec<u8>, DynoxideError> {
    serde_json::to_vec(answer).map_err(|error| DynoxideError::InternalServerError(error.to_string()))
}

/// The engine reports validation failures that it meets while it reads a request inside the reader's message.
fn refusal(error: &serde_json::Error) -> DynoxideError {
    let message = error.to_string();
    match message.strip_prefix("VALIDATION:") {
        Some(validation) => DynoxideError::ValidationException(without_position(validation).to_owned()),
        None => DynoxideError::SerializationException(message),
    }
}

/// Cuts serde_json's " at line 1 column 2" off.
fn without_position(message: &str) -> &str {
    message.rsplit_once(" at line ").map_or(message, |(text, _)| text)
}
