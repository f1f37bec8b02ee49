//! The fault layers around the embedded engine.

mod dynamo;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{AttributeValue, PutRequest, WriteRequest};
use dynamo::{TABLE, Tested, World, create_table, empty_world, number, put, set, text, world};
use leasehold_local::engine::clients;
use leasehold_local::faults::{Call, Fault, Faulty, SmallPages, StaleIndexes, WriteLimit};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const SECOND: Duration = Duration::from_secs(1);

/// A layer that does `fault` to every update.
fn faulty(world: &World, fault: Fault) -> Faulty {
    let plan = move |call: &Call<'_>| (call.operation == "UpdateItem").then(|| fault.clone());
    Faulty::new(world.engine.clone(), world.clock.clone(), Arc::new(plan))
}

async fn mark(client: &Client, value: u64) -> Result<(), SdkError<UpdateItemError>> {
    set(client, "CONN#a", "mark", value).send().await.map(|_| ())
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_was_applied_and_a_lost_request_was_not() -> Tested {
    for (fault, expected) in [(Fault::LostAfter, Some("1".to_owned())), (Fault::LostBefore, None)] {
        let world = world().await?;
        let outcome = mark(&world.client(faulty(&world, fault.clone())), 1).await;
        assert!(matches!(outcome, Err(SdkError::DispatchFailure(_))), "{outcome:?}");
        assert_eq!(world.number("CONN#a", "mark").await?, expected, "{fault:?}");
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_request_can_land_after_its_caller_has_seen_a_time_out() -> Tested {
    let world = world().await?;
    let late = Fault::LandLate { answer_after: 2 * SECOND, apply_after: 30 * SECOND };
    let began = Instant::now();
    let outcome = mark(&world.client(faulty(&world, late)), 1).await;
    assert!(matches!(outcome, Err(SdkError::DispatchFailure(failure)) if failure.is_timeout()));
    assert_eq!(began.elapsed(), 2 * SECOND);
    sleep(27 * SECOND).await;
    assert_eq!(world.number("CONN#a", "mark").await?, None);
    sleep(2 * SECOND).await;
    assert_eq!(world.number("CONN#a", "mark").await?.as_deref(), Some("1"));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_request_lands_late_although_its_caller_gave_up_before() -> Tested {
    let world = world().await?;
    let late = Fault::LandLate { answer_after: 60 * SECOND, apply_after: 5 * SECOND };
    let client = world.client(faulty(&world, late));
    assert!(tokio::time::timeout(SECOND, mark(&client, 1)).await.is_err());
    sleep(5 * SECOND).await;
    assert_eq!(world.number("CONN#a", "mark").await?.as_deref(), Some("1"));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn after_the_callers_time_out_a_delayed_request_is_void_and_a_delayed_answer_is_not() -> Tested {
    let cases = [(Fault::Delay(10 * SECOND), None), (Fault::DelayAnswer(10 * SECOND), Some("1".to_owned()))];
    for (fault, expected) in cases {
        let world = world().await?;
        let config = clients::dynamodb_config(faulty(&world, fault.clone()), Some(world.time));
        let timeouts = TimeoutConfig::builder().operation_attempt_timeout(2 * SECOND).build();
        let config = config.retry_config(RetryConfig::disabled()).timeout_config(timeouts);
        let began = Instant::now();
        let outcome = mark(&Client::from_conf(config.build()), 1).await;
        assert!(matches!(outcome, Err(SdkError::TimeoutError(_))), "{outcome:?}");
        assert_eq!(began.elapsed(), 2 * SECOND);
        sleep(20 * SECOND).await;
        assert_eq!(world.number("CONN#a", "mark").await?, expected, "{fault:?}");
    }
    Ok(())
}

/// AWS, "Error handling with DynamoDB": both are HTTP 400 and retried by the SDK.
#[tokio::test(start_paused = true)]
async fn a_throttled_request_is_retried_and_the_plan_sees_each_attempt() -> Tested {
    for code in ["ThrottlingException", "ProvisionedThroughputExceededException"] {
        let world = world().await?;
        let plan = move |call: &Call<'_>| {
            let ours = call.target == Some(TABLE) && call.names("Pk", "CONN#a");
            (ours && call.attempt < 3).then_some(Fault::Throttle(code))
        };
        let layer = Faulty::new(world.engine.clone(), world.clock.clone(), Arc::new(plan));
        let once = mark(&world.client(layer.clone()), 1).await.err().ok_or("the first attempt is throttled")?;
        assert_eq!(once.code(), Some(code));
        assert_eq!(world.number("CONN#a", "mark").await?, None);
        mark(&clients::dynamodb(layer.clone(), Some(world.time)), 2).await?;
        assert_eq!(world.number("CONN#a", "mark").await?.as_deref(), Some("2"));
        layer.set_plan(Arc::new(|_| Some(Fault::Http500)));
        let failed = mark(&world.client(layer), 3).await.err().ok_or("the service fails")?;
        assert_eq!(failed.raw_response().map(|answer| answer.status().as_u16()), Some(500));
    }
    Ok(())
}

/// AWS: "a maximum capacity of … 1,000 write units per second" for a partition, and two writes on an index for a move.
#[tokio::test(start_paused = true)]
async fn renewals_of_all_connections_meet_the_limit_of_the_one_key_of_their_index() -> Tested {
    let world = world().await?;
    let layer = WriteLimit::new(world.engine.clone(), world.clock.clone(), WriteLimit::DYNAMODB)?;
    let client = world.client(layer);
    for row in 0..50 {
        put(&world.client(world.engine.clone()), &format!("CONN#{row}"), 1).await?;
    }
    // One second to use up the burst, then three at the steady rate: 800 renewals a second are asked for.
    renew(&client, 2_000, 1).await?;
    let mut passed = 0;
    for tenth in 0..30 {
        passed += renew(&client, 80, 10_000 + 80 * tenth).await?;
        sleep(Duration::from_millis(100)).await;
    }
    assert!((1_400..=1_600).contains(&passed), "{passed} renewals in 3 s");

    // The key of the index is used up: what does not touch the index passes all the same.
    renew(&client, 2_000, 100_000).await?;
    let moved = set(&client, "CONN#1", "lease_expires_at_ms", 9).send().await.err().ok_or("no units are left")?;
    assert_eq!(moved.code(), Some("ProvisionedThroughputExceededException"));
    assert!(moved.message().is_some_and(|message| message.contains("by_expiry")), "{moved:?}");
    assert_ne!(world.number("CONN#1", "lease_expires_at_ms").await?.as_deref(), Some("9"));
    for beat in 0..100 {
        set(&client, "CONN#1", "heartbeat", beat).send().await?;
    }
    Ok(())
}

/// Moves rows in `by_expiry`; returns how many moves were accepted.
async fn renew(client: &Client, times: u64, first: u64) -> Result<u64, Box<dyn std::error::Error>> {
    let mut passed = 0;
    for time in 0..times {
        let row = format!("CONN#{}", time % 50);
        match set(client, &row, "lease_expires_at_ms", first + time).send().await {
            Ok(_) => passed += 1,
            Err(error) if error.code() == Some("ProvisionedThroughputExceededException") => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(passed)
}

#[tokio::test(start_paused = true)]
async fn one_item_takes_its_keys_limit_and_another_item_is_not_concerned() -> Tested {
    let world = world().await?;
    let client = world.client(WriteLimit::new(world.engine.clone(), world.clock.clone(), 10)?);
    // 4,000 bytes are 4 units a write: three writes pass, the third one into debt.
    let large = || AttributeValue::S("x".repeat(4_000));
    let write = |id: &str| client.put_item().table_name(TABLE).item("Pk", text(id)).item("large", large()).send();
    for _ in 0..3 {
        write("CONN#a").await?;
    }
    assert!(write("CONN#a").await.is_err());
    write("CONN#b").await?;
    sleep(Duration::from_millis(300)).await;
    write("CONN#a").await?;
    Ok(())
}

/// AWS, `BatchWriteItem`: entries that exceed the throughput are returned as `UnprocessedItems`, and the whole fails only if
/// none of them could be processed.
#[tokio::test(start_paused = true)]
async fn of_a_batch_only_what_is_over_the_limit_is_left_unprocessed() -> Tested {
    let world = world().await?;
    let client = world.client(WriteLimit::new(world.engine.clone(), world.clock.clone(), 1)?);
    set(&client, "CONN#a", "mark", 1).send().await?;
    let entry = |id: &str| -> Result<WriteRequest, Box<dyn std::error::Error>> {
        let put = PutRequest::builder().item("Pk", text(id)).item("mark", number(2)).build()?;
        Ok(WriteRequest::builder().put_request(put).build())
    };
    let batch = client.batch_write_item().request_items(TABLE, vec![entry("CONN#a")?, entry("CONN#b")?]).send().await?;
    let unprocessed = batch.unprocessed_items().and_then(|tables| tables.get(TABLE)).ok_or("one is over the limit")?;
    assert_eq!(*unprocessed, [entry("CONN#a")?]);
    assert_eq!(world.number("CONN#a", "mark").await?.as_deref(), Some("1"));
    assert_eq!(world.number("CONN#b", "mark").await?.as_deref(), Some("2"));
    let again = client.batch_write_item().request_items(TABLE, vec![entry("CONN#a")?]).send().await;
    assert_eq!(
        again.err().as_ref().and_then(ProvideErrorMetadata::code),
        Some("ProvisionedThroughputExceededException")
    );
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_failed_condition_takes_nothing_from_an_index() -> Tested {
    let world = world().await?;
    let client = world.client(WriteLimit::new(world.engine.clone(), world.clock.clone(), 10)?);
    put(&world.client(world.engine.clone()), "CONN#a", 1).await?;
    for other in 0..20 {
        let id = format!("CONN#{other}");
        let put = client.put_item().table_name(TABLE).item("Pk", text(&id)).item("desired_state", text("STARTED"));
        let put = put.item("lease_expires_at_ms", number(1)).condition_expression("attribute_exists(Pk)");
        assert!(put.send().await.is_err());
    }
    set(&client, "CONN#a", "lease_expires_at_ms", 2).send().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_index_shows_the_old_state_until_the_lag_is_over() -> Tested {
    let world = empty_world()?;
    let lag_ms = Arc::new(AtomicU64::new(2_000));
    let layer = StaleIndexes::new(world.engine.clone(), world.clock.clone(), lag_ms.clone())?;
    let client = world.client(layer);
    create_table(&client).await?;
    put(&client, "CONN#a", 7).await?;
    assert_eq!(indexed(&client).await?, Vec::<String>::new());
    sleep(2 * SECOND).await;
    assert_eq!(indexed(&client).await?, ["7"]);

    set(&client, "CONN#a", "lease_expires_at_ms", 8).send().await?;
    sleep(Duration::from_millis(1_999)).await;
    assert_eq!(indexed(&client).await?, ["7"]);
    let row = client.get_item().table_name(TABLE).key("Pk", text("CONN#a")).send().await?;
    assert_eq!(row.item().and_then(|item| item.get("lease_expires_at_ms")), Some(&number(8)));
    sleep(Duration::from_millis(1)).await;
    assert_eq!(indexed(&client).await?, ["8"]);

    client.delete_item().table_name(TABLE).key("Pk", text("CONN#a")).send().await?;
    assert_eq!(indexed(&client).await?, ["8"]);
    lag_ms.store(0, Ordering::Relaxed);
    assert_eq!(indexed(&client).await?, Vec::<String>::new());
    Ok(())
}

/// AWS, "DynamoDB read consistency": reads are eventually consistent unless they set `ConsistentRead`.
#[tokio::test(start_paused = true)]
async fn a_read_of_the_table_can_be_behind_unless_it_is_consistent() -> Tested {
    let world = empty_world()?;
    let layer = StaleIndexes::new(world.engine.clone(), world.clock.clone(), Arc::new(AtomicU64::new(1_000)))?;
    let client = world.client(layer.and_tables());
    create_table(&client).await?;
    put(&client, "CONN#a", 7).await?;
    let get = || client.get_item().table_name(TABLE).key("Pk", text("CONN#a"));
    assert!(get().send().await?.item().is_none());
    assert!(get().consistent_read(true).send().await?.item().is_some());
    sleep(SECOND).await;
    assert!(get().send().await?.item().is_some());
    Ok(())
}

/// The expiry times that the index shows.
async fn indexed(client: &Client) -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let query = client.query().table_name(TABLE).index_name("by_expiry").key_condition_expression("desired_state = :s");
    let found = query.expression_attribute_values(":s", text("STARTED")).send().await?;
    let expiry = found.items().iter().filter_map(|item| item.get("lease_expires_at_ms")?.as_n().ok().cloned());
    Ok(expiry.collect())
}

#[tokio::test(start_paused = true)]
async fn small_pages_end_early_and_go_on() -> Tested {
    let world = world().await?;
    for id in ["CONN#a", "CONN#b", "CONN#c"] {
        put(&world.client(world.engine.clone()), id, 0).await?;
    }
    let client = world.client(SmallPages::new(world.engine.clone(), 2));
    let first = client.scan().table_name(TABLE).send().await?;
    let next = client.scan().table_name(TABLE).set_exclusive_start_key(first.last_evaluated_key.clone()).send().await?;
    assert_eq!((first.items().len(), next.items().len()), (2, 1));
    assert_eq!(
        client.scan().table_name(TABLE).limit(1).send().await?.items().len(),
        1,
        "whoever asks for less gets it"
    );
    Ok(())
}
