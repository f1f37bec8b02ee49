//! Stream records as Lambda delivers them: "Example DynamoDB Streams record event" (Lambda Developer Guide).

use aws_sdk_dynamodbstreams::types::{AttributeValue, Record};
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// One record of a stream, ready for an event.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamRecord {
    /// Its sequence number.
    pub sequence: String,
    /// When it was created, in milliseconds since the Unix epoch (whole seconds), or first read if the stream did not say.
    pub created_ms: u64,
    /// The entry of `Records`.
    pub json: Value,
}

impl StreamRecord {
    /// Converts what GetRecords gave, or `None` if it has no sequence number. `now_ms` stands in for a missing creation
    /// time: such a record counts its age from when it was read, not from 1970.
    #[must_use]
    pub fn from_sdk(record: &Record, stream_arn: &str, now_ms: u64) -> Option<Self> {
        let change = record.dynamodb()?;
        let sequence = change.sequence_number()?.to_owned();
        let created = change.approximate_creation_date_time();
        let created_ms =
            created.and_then(|created| u64::try_from(created.secs()).ok()).map_or(now_ms, |secs| secs * 1_000);

        let mut dynamodb = Map::new();
        if let Some(created) = created {
            dynamodb.insert("ApproximateCreationDateTime".into(), json!(created.secs()));
        }
        for (name, image) in
            [("Keys", change.keys()), ("NewImage", change.new_image()), ("OldImage", change.old_image())]
        {
            if let Some(image) = image {
                dynamodb.insert(name.into(), image_json(image));
            }
        }
        dynamodb.insert("SequenceNumber".into(), json!(sequence));
        dynamodb.insert("SizeBytes".into(), json!(change.size_bytes().unwrap_or(0)));
        if let Some(view) = change.stream_view_type() {
            dynamodb.insert("StreamViewType".into(), json!(view.as_str()));
        }

        let mut json = json!({
            "eventID": record.event_id().unwrap_or_default(),
            "eventName": record.event_name().map_or("", |name| name.as_str()),
            "eventVersion": record.event_version().unwrap_or("1.1"),
            "eventSource": record.event_source().unwrap_or("aws:dynamodb"),
            "awsRegion": record.aws_region().unwrap_or_else(|| region_of(stream_arn)),
            "dynamodb": dynamodb,
            "eventSourceARN": stream_arn,
        });
        // Only deletions by TTL have one.
        if let Some(identity) = record.user_identity() {
            json["userIdentity"] = json!({"principalId": identity.principal_id(), "type": identity.r#type()});
        }
        Some(Self { sequence, created_ms, json })
    }
}

/// The region in an ARN, or an empty string.
#[must_use]
pub fn region_of(arn: &str) -> &str {
    arn.split(':').nth(3).unwrap_or_default()
}

fn image_json(image: &HashMap<String, AttributeValue>) -> Value {
    Value::Object(image.iter().map(|(name, value)| (name.clone(), attribute_json(value))).collect())
}

/// An attribute value in DynamoDB's JSON; binary in base64.
fn attribute_json(value: &AttributeValue) -> Value {
    match value {
        AttributeValue::B(blob) => json!({"B": aws_smithy_types::base64::encode(blob)}),
        AttributeValue::Bool(flag) => json!({"BOOL": flag}),
        AttributeValue::Bs(blobs) => {
            json!({"BS": blobs.iter().map(aws_smithy_types::base64::encode).collect::<Vec<_>>()})
        }
        AttributeValue::L(entries) => json!({"L": entries.iter().map(attribute_json).collect::<Vec<_>>()}),
        AttributeValue::M(fields) => json!({"M": image_json(fields)}),
        AttributeValue::N(number) => json!({"N": number}),
        AttributeValue::Ns(numbers) => json!({"NS": numbers}),
        AttributeValue::Null(_) => json!({"NULL": true}),
        AttributeValue::S(text) => json!({"S": text}),
        AttributeValue::Ss(texts) => json!({"SS": texts}),
        // A type newer than this SDK: nothing can be said about it.
        _ => json!({}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_sdk_dynamodbstreams::types::{OperationType, StreamRecord as SdkChange, StreamViewType};
    use aws_smithy_types::{Blob, DateTime};

    const ARN: &str = "arn:aws:dynamodb:eu-central-1:111122223333:table/connections/stream/2025-01-01T00:00:00.000";

    fn change() -> SdkChange {
        SdkChange::builder()
            .approximate_creation_date_time(DateTime::from_secs(1_479_499_740))
            .keys("Pk", AttributeValue::S("CONN#a".into()))
            .new_image("blob", AttributeValue::B(Blob::new([0, 1, 42, 65])))
            .new_image("list", AttributeValue::L(vec![AttributeValue::N("1".into()), AttributeValue::Bool(true)]))
            .sequence_number("111")
            .size_bytes(26)
            .stream_view_type(StreamViewType::NewAndOldImages)
            .build()
    }

    #[test]
    fn a_record_has_the_fields_that_lambda_delivers() {
        let record = Record::builder().event_id("e1").event_name(OperationType::Insert).dynamodb(change()).build();
        let record = StreamRecord::from_sdk(&record, ARN, 0).expect("has a sequence number");
        assert_eq!((record.sequence.as_str(), record.created_ms), ("111", 1_479_499_740_000));
        let expected = json!({
            "eventID": "e1", "eventName": "INSERT", "eventVersion": "1.1", "eventSource": "aws:dynamodb",
            "awsRegion": "eu-central-1", "eventSourceARN": ARN,
            "dynamodb": {
                "ApproximateCreationDateTime": 1_479_499_740, "Keys": {"Pk": {"S": "CONN#a"}},
                "NewImage": {"blob": {"B": "AAEqQQ=="}, "list": {"L": [{"N": "1"}, {"BOOL": true}]}},
                "SequenceNumber": "111", "SizeBytes": 26, "StreamViewType": "NEW_AND_OLD_IMAGES",
            },
        });
        assert_eq!(record.json, expected);
    }

    // aws-lambda-rust-runtime #889: a missing creation time was read as 1970, which is older than any maximum age.
    #[test]
    fn a_record_without_a_creation_time_counts_from_when_it_was_read() {
        let mut change = change();
        change.approximate_creation_date_time = None;
        let record = Record::builder().dynamodb(change).build();
        let record = StreamRecord::from_sdk(&record, ARN, 5_000).expect("has a sequence number");
        assert_eq!(record.created_ms, 5_000);
        assert!(record.json["dynamodb"].get("ApproximateCreationDateTime").is_none());
    }
}
