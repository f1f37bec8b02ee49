//! The embedded engine and the meter around it.

mod dynamo;

use aws_sdk_dynamodb::types::{ReturnValuesOnConditionCheckFailure, TimeToLiveSpecification};
use aws_sdk_dynamodbstreams::types::{OperationType, Record, ShardIteratorType};
use aws_smithy_runtime_api::client::http::HttpConnector;
use dynamo::{EPOCH_DATE, EPOCH_MS, TABLE, Tested, World, create_table, number, put, request, set, text, world};
use leasehold_local::engine::meter::{Applied, Meter, Units};
use leasehold_local::engine::{EmbeddedDynamo, clients};
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::sleep;

/// AWS, `UpdateItem`: "Use ReturnValuesOnConditionCheckFailure to get the item attributes for an UpdateItem operation that
/// failed a condition check."
#[tokio::test(start_paused = true)]
async fn a_failed_condition_returns_the_old_item() -> Tested {
    let world = world().await?;
    let client = world.client(world.engine.clone());
    put(&client, "CONN#a", 7).await?;
    let update = set(&client, "CONN#a", "lease_epoch", 1).condition_expression("attribute_exists(lease_owner)");
    let returned = ReturnValuesOnConditionCheckFailure::AllOld;
    let refused = update.return_values_on_condition_check_failure(returned).send().await;
    let error = refused.err().ok_or("the condition does not hold")?.into_service_error();
    let aws_sdk_dynamodb::operation::update_item::UpdateItemError::ConditionalCheckFailedException(failed) = error
    else {
        return Err(error.into());
    };
    let old = failed.item().ok_or("the old item was asked for")?;
    assert_eq!(old.get("lease_expires_at_ms"), Some(&number(7)));
    assert_eq!(old.get("lease_epoch"), None);
    Ok(())
}

/// AWS, "Change data capture for DynamoDB Streams": an update "that does not change any data in an item" makes no record.
#[tokio::test(start_paused = true)]
async fn an_update_that_changes_nothing_makes_no_stream_record() -> Tested {
    let world = world().await?;
    let client = world.client(world.engine.clone());
    put(&client, "CONN#a", 7).await?;
    set(&client, "CONN#a", "lease_expires_at_ms", 7).send().await?;
    set(&client, "CONN#a", "lease_expires_at_ms", 8).send().await?;
    let names: Vec<_> = stream_records(&world).await?.into_iter().filter_map(|record| record.event_name).collect();
    assert_eq!(names, [OperationType::Insert, OperationType::Modify]);
    Ok(())
}

/// AWS, "DynamoDB Streams and Time to Live": `userIdentity` is `Service` and `dynamodb.amazonaws.com`.
#[tokio::test(start_paused = true)]
async fn an_expired_item_is_removed_by_virtual_time_and_in_the_name_of_the_service() -> Tested {
    let world = world().await?;
    let client = world.client(world.engine.clone());
    let ttl = TimeToLiveSpecification::builder().enabled(true).attribute_name("expires_at").build()?;
    client.update_time_to_live().table_name(TABLE).time_to_live_specification(ttl).send().await?;
    let expires_at = number(EPOCH_MS / 1_000 + 3_600);
    client.put_item().table_name(TABLE).item("Pk", text("CONN#a")).item("expires_at", expires_at).send().await?;
    assert_eq!(world.engine.sweep_ttl()?, 0);
    sleep(Duration::from_secs(3_700)).await;
    assert_eq!(world.engine.sweep_ttl()?, 1);
    let records = stream_records(&world).await?;
    let removal = records.last().ok_or("a removal is on the stream")?;
    let identity = removal.user_identity().ok_or("the service removed it")?;
    assert_eq!(identity.r#type(), Some("Service"));
    assert_eq!(identity.principal_id(), Some("dynamodb.amazonaws.com"));
    Ok(())
}

/// RFC 9110, section 5.6.7: the preferred format of dates.
#[tokio::test(start_paused = true)]
async fn answers_carry_the_date_of_the_virtual_clock() -> Tested {
    let world = world().await?;
    let first = world.engine.call(request("ListTables", "{}")).await?;
    assert_eq!(first.headers().get("date"), Some(EPOCH_DATE));
    assert!(first.headers().get("x-amzn-requestid").is_some());
    sleep(Duration::from_millis(1_999)).await;
    let refused = world.engine.call(request("DescribeTable", r#"{"TableName":"no-such-table"}"#)).await?;
    assert_eq!(refused.status().as_u16(), 400);
    assert_eq!(refused.headers().get("date"), Some("Fri, 15 Jan 2027 08:00:01 GMT"));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_is_no_request_is_refused_and_nothing_panics() -> Tested {
    let world = world().await?;
    let cases = [
        ("NoSuchOperation", "{}", "#UnknownOperationException"),
        ("", "{}", "#UnknownOperationException"),
        ("PutItem", "", "#SerializationException"),
        ("PutItem", "[1, 2", "#SerializationException"),
        ("GetRecords", r#"{"ShardIterator":"nonsense"}"#, "#ValidationException"),
        ("UpdateItem", r#"{"TableName":"connections","Key":{"Pk":{"X":1}}}"#, "Exception"),
    ];
    for (operation, body, expected) in cases {
        let answer = world.engine.call(request(operation, body)).await?;
        let body: serde_json::Value = serde_json::from_slice(answer.body().bytes().unwrap_or_default())?;
        assert_eq!(answer.status().as_u16(), 400, "{operation} {body}");
        assert!(body["__type"].as_str().is_some_and(|kind| kind.ends_with(expected)), "{operation}: {body}");
    }
    Ok(())
}

#[tokio::test]
async fn a_file_keeps_its_tables() -> Tested {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("engine.db");
    let clock: leasehold::clock::SharedClock = Arc::new(leasehold::clock::SystemClock);
    {
        let client = clients::dynamodb(EmbeddedDynamo::file(&path, clock.clone())?, None);
        create_table(&client).await?;
        put(&client, "CONN#a", 7).await?;
    }
    let client = clients::dynamodb(EmbeddedDynamo::file(&path, clock.clone())?, None);
    let row = client.get_item().table_name(TABLE).key("Pk", text("CONN#a")).send().await?;
    assert!(row.item().is_some());
    let unreachable = directory.path().join("no/such/directory/engine.db");
    assert!(EmbeddedDynamo::file(&unreachable, clock).is_err());
    Ok(())
}

/// AWS, "Provisioned throughput considerations for Global Secondary Indexes": an update that "changes the value of an indexed key
/// attribute" takes two writes on the index, one that leaves the entry alone takes none.
#[tokio::test(start_paused = true)]
async fn the_meter_counts_table_and_index_units_by_class() -> Tested {
    let world = world().await?;
    let stored = Arc::new(Mutex::new(Vec::new()));
    let log = stored.clone();
    let meter = Meter::new(world.engine.clone(), world.clock.clone(), Arc::new(class_of));
    let meter = meter.observed_by(Arc::new(move |applied| {
        if let Ok(mut log) = log.lock() {
            log.push((applied.operation.to_owned(), applied.at_ms));
        }
    }));
    let client = world.client(meter.clone());
    put(&client, "CONN#a", 7).await?;
    sleep(Duration::from_millis(250)).await;
    set(&client, "CONN#a", "lease_expires_at_ms", 8).send().await?;
    set(&client, "CONN#a", "held", 8).send().await?;
    let refused = set(&client, "CONN#a", "held", 9).condition_expression("attribute_exists(nothing)").send().await;
    assert!(refused.is_err());
    client.get_item().table_name(TABLE).key("Pk", text("CONN#a")).consistent_read(true).send().await?;

    let totals = meter.totals();
    assert_eq!(totals["put"], Units { table: 1.0, index: 1.0, read: 0.0, requests: 1 });
    assert_eq!(totals["update"], Units { table: 2.0, index: 2.0, read: 0.0, requests: 2 });
    assert_eq!(totals["other"], Units { table: 0.0, index: 0.0, read: 1.0, requests: 1 });
    let stored = stored.lock().map_err(|_| "an observer panicked")?.clone();
    let expected = [("PutItem", 0), ("UpdateItem", 250), ("UpdateItem", 250), ("GetItem", 250)];
    assert_eq!(stored, expected.map(|(operation, at_ms)| (operation.to_owned(), at_ms)));
    Ok(())
}

fn class_of(applied: &Applied<'_>) -> Option<&'static str> {
    Some(match applied.operation {
        "PutItem" => "put",
        "UpdateItem" => "update",
        _ => "other",
    })
}

/// All records of the table's only shard.
async fn stream_records(world: &World) -> Result<Vec<Record>, Box<dyn Error>> {
    let client = clients::streams(world.engine.clone(), Some(world.time));
    let streams = client.list_streams().table_name(TABLE).send().await?;
    let arn = streams.streams().first().and_then(|stream| stream.stream_arn()).ok_or("the table has a stream")?;
    let described = client.describe_stream().stream_arn(arn).send().await?;
    let shards = described.stream_description().map(|stream| stream.shards()).unwrap_or_default();
    let shard = shards.first().and_then(|shard| shard.shard_id()).ok_or("the stream has a shard")?;
    let iterator = client.get_shard_iterator().stream_arn(arn).shard_id(shard);
    let iterator = iterator.shard_iterator_type(ShardIteratorType::TrimHorizon).send().await?;
    let records = client.get_records().set_shard_iterator(iterator.shard_iterator).send().await?;
    Ok(records.records.unwrap_or_default())
}
