//! What a function's answer says about its batch.
//!
//! "Configuring partial batch response with DynamoDB and Lambda" and "Handling errors for an SQS event source in Lambda"
//! (Lambda Developer Guide): an empty or null answer or list is a success; an empty or null identifier, a wrong key
//! name, and for us also an unknown identifier, fail the whole batch.

use serde_json::Value;

/// What of a batch has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Everything succeeded.
    Success,
    /// Nothing is known to have succeeded: the answer cannot be read, for this reason.
    Failure(String),
    /// The records at these positions of the batch failed: rising, without repetition, never empty.
    Partial(Vec<usize>),
}

/// Reads the answer to a batch whose records have these identifiers (sequence numbers or message ids), in order.
#[must_use]
pub fn read_answer(answer: &Value, identifiers: &[String]) -> Answer {
    let fields = match answer {
        Value::Null => return Answer::Success,
        Value::Object(fields) => fields,
        other => return Answer::Failure(format!("the answer is no object: {other}")),
    };
    let failures = match fields.get("batchItemFailures") {
        None | Some(Value::Null) => return Answer::Success,
        Some(Value::Array(failures)) => failures,
        Some(other) => return Answer::Failure(format!("batchItemFailures is no list: {other}")),
    };
    let mut failed = Vec::with_capacity(failures.len());
    for failure in failures {
        let Some(identifier) = failure.get("itemIdentifier").and_then(Value::as_str) else {
            return Answer::Failure(format!("an item failure without a string itemIdentifier: {failure}"));
        };
        if identifier.is_empty() {
            return Answer::Failure("an item failure with an empty itemIdentifier".to_owned());
        }
        let Some(position) = identifiers.iter().position(|known| known == identifier) else {
            return Answer::Failure(format!("an item failure that is not of this batch: {identifier}"));
        };
        failed.push(position);
    }
    failed.sort_unstable();
    failed.dedup();
    if failed.is_empty() { Answer::Success } else { Answer::Partial(failed) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(answer: Value) -> Answer {
        read_answer(&answer, &["1".to_owned(), "2".to_owned(), "3".to_owned()])
    }

    // The four successes of "Success and failure conditions".
    #[test]
    fn an_empty_answer_is_a_success() {
        for answer in [json!(null), json!({}), json!({"batchItemFailures": null}), json!({"batchItemFailures": []})] {
            assert_eq!(read(answer), Answer::Success);
        }
    }

    // awsdocs/aws-lambda-developer-guide #320: an empty identifier failed the whole batch, for ever.
    #[test]
    fn an_empty_or_unreadable_identifier_fails_the_whole_batch() {
        for item in [
            json!({"itemIdentifier": ""}),
            json!({"itemIdentifier": null}),
            json!({"id": "1"}),
            json!({"itemIdentifier": "9"}),
        ] {
            let answer = read(json!({"batchItemFailures": [{"itemIdentifier": "2"}, item]}));
            assert!(matches!(answer, Answer::Failure(_)), "{answer:?}");
        }
        assert!(matches!(read(json!("done")), Answer::Failure(_)));
        assert!(matches!(read(json!({"batchItemFailures": "2"})), Answer::Failure(_)));
    }

    #[test]
    fn failures_come_in_the_order_of_the_batch_and_once() {
        let items = json!([{"itemIdentifier": "3"}, {"itemIdentifier": "2"}, {"itemIdentifier": "3"}]);
        assert_eq!(read(json!({"batchItemFailures": items})), Answer::Partial(vec![1, 2]));
    }
}
