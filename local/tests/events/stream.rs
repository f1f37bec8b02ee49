//! The mapping on a stream.

use super::world::*;

// localstack #6096: the filter was ignored.
#[tokio::test(start_paused = true)]
async fn only_records_that_the_filters_match_are_delivered() {
    let world = World::new().await;
    let (invoker, seen) = scripted(succeed);
    world.put("a", "STARTED").await;
    // Acquire, then checkpoint, then a stop by the user.
    world.update("a", "SET lease_owner = :s, lease_epoch = :n REMOVE lease_expires_at_ms").await;
    world.update("a", "SET last_seq = :n").await;
    world.update("a", "SET desired_state = :s").await;
    let source = world.stream_source(&invoker, None, Progress::default());
    run_for!(2_000, source.clone());
    assert_eq!(ids(&seen), [["a", "a"]]);
    let counts = source.counts();
    assert_eq!((counts.read, counts.filtered, counts.discarded), (4, 2, 0));
    let records = seen.lock().expect("not poisoned")[0]["Records"].clone();
    assert_eq!((&records[0]["eventName"], &records[1]["eventName"]), (&json!("INSERT"), &json!("MODIFY")));
    let record = &records[1];
    assert_eq!(record["eventSource"], "aws:dynamodb");
    assert_eq!(record["eventSourceARN"], json!(world.stream_arn));
    assert_eq!(record["dynamodb"]["OldImage"]["desired_state"], json!({"S": "STARTED"}));
    assert_eq!(record["dynamodb"]["NewImage"]["lease_epoch"], json!({"N": "1748779200000"}));
    assert_eq!(record["dynamodb"]["StreamViewType"], "NEW_AND_OLD_IMAGES");
    assert!(record["dynamodb"]["ApproximateCreationDateTime"].is_number());
}

// solita.github.com #376: a poison record blocked a shard for a day, then good records expired.
#[tokio::test(start_paused = true)]
async fn a_poison_record_ends_at_the_failure_destination_and_later_records_go_on() {
    let world = World::new().await;
    let failed = world.queue("failed", &[]).await;
    let (invoker, seen) = scripted(|event| {
        let poisoned = event["Records"].as_array().expect("records").iter().any(is_poison);
        if poisoned { Err("cannot decode".to_owned()) } else { succeed(event) }
    });
    for id in ["a", "b", "poison", "c"] {
        world.put(id, "STARTED").await;
    }
    let source = world.stream_source(&invoker, Some(failed.clone()), Progress::default());
    run_for!(60_000, source.clone());

    // Halved, then alone: once and three retries, then what came after it.
    let expected: [&[&str]; 8] = [
        &["a", "b", "poison", "c"],
        &["a", "b"],
        &["poison", "c"],
        &["poison"],
        &["poison"],
        &["poison"],
        &["poison"],
        &["c"],
    ];
    assert_eq!(ids(&seen), expected);
    assert_eq!(source.counts().discarded, 1);
    let messages = world.bodies(&failed).await;
    let sequence = seen.lock().expect("not poisoned")[0]["Records"][2]["dynamodb"]["SequenceNumber"].clone();
    assert_eq!(messages[0]["requestContext"]["condition"], "RetryAttemptsExhausted");
    assert_eq!(messages[0]["requestContext"]["approximateInvokeCount"], 6);
    assert_eq!(messages[0]["responseContext"]["functionError"], "Unhandled");
    let batch = &messages[0]["DDBStreamBatchInfo"];
    assert_eq!(
        (&batch["startSequenceNumber"], &batch["endSequenceNumber"], &batch["batchSize"]),
        (&sequence, &sequence, &json!(1))
    );
    assert_eq!(batch["streamArn"], json!(world.stream_arn));
}

// oxbow #8: one invalid record stalled everything behind it.
#[tokio::test(start_paused = true)]
async fn a_record_reported_as_failed_fails_alone() {
    let world = World::new().await;
    let failed = world.queue("failed", &[]).await;
    let (invoker, seen) =
        scripted(|event| failures(event, is_poison, |record| record["dynamodb"]["SequenceNumber"].clone()));
    for id in ["a", "poison", "b", "c"] {
        world.put(id, "STARTED").await;
    }
    let source = world.stream_source(&invoker, Some(failed.clone()), Progress::default());
    run_for!(60_000, source.clone());

    let seen = ids(&seen);
    assert_eq!(seen[..2], [vec!["a", "poison", "b", "c"], vec!["poison", "b", "c"]]);
    assert_eq!(seen.last().expect("invoked"), &["b", "c"]);
    assert_eq!(source.counts().discarded, 1);
    assert_eq!(world.bodies(&failed).await.len(), 1);
}

// aws-lambda-developer-guide #320: an empty itemIdentifier fails the whole batch; here not for ever.
#[tokio::test(start_paused = true)]
async fn an_empty_identifier_fails_the_whole_batch_a_finite_number_of_times() {
    let world = World::new().await;
    let (invoker, seen) = scripted(|event| failures(event, is_poison, |_| json!("")));
    for id in ["a", "poison"] {
        world.put(id, "STARTED").await;
    }
    let source = world.stream_source(&invoker, None, Progress::default());
    run_for!(60_000, source.clone());
    world.put("later", "STARTED").await;
    run_for!(2_000, source.clone());
    // "a" is delivered again although nothing was wrong with it.
    assert_eq!(ids(&seen)[..2], [vec!["a", "poison"], vec!["a"]]);
    assert_eq!(ids(&seen).last().expect("invoked"), &["later"]);
    assert_eq!(source.counts().discarded, 1);
}

#[tokio::test(start_paused = true)]
async fn a_function_that_fails_for_an_hour_loses_its_old_records_only() {
    let world = World::new().await;
    let failed = world.queue("failed", &[]).await;
    let clock = world.clock.clone();
    let (invoker, seen) =
        scripted(move |event| if clock.mono_ms() < 3_900_000 { Err("away".to_owned()) } else { succeed(event) });
    let mut settings = StreamSettings::default();
    settings.failures.max_retries = 10_000;
    let source = world.stream_source_with(&invoker, Some(failed.clone()), Progress::default(), settings);
    world.put("old", "STARTED").await;
    run_for!(1_800_000, source.clone());
    world.put("young", "STARTED").await;
    run_for!(2_400_000, source.clone());
    assert_eq!(world.bodies(&failed).await[0]["requestContext"]["condition"], "RecordAgeExceeded");
    assert_eq!(source.counts().discarded, 1);
    assert_eq!(ids(&seen).last().expect("invoked"), &["young"]);
}

#[tokio::test(start_paused = true)]
async fn a_restarted_mapping_goes_on_from_its_progress() {
    let world = World::new().await;
    let (invoker, seen) = scripted(succeed);
    world.put("a", "STARTED").await;
    let first = world.stream_source(&invoker, None, Progress::default());
    run_for!(1_000, first.clone());
    // Filtered records count as done with, too.
    world.update("a", "SET last_seq = :n, lease_epoch = :n, lease_owner = :s").await;
    run_for!(1_000, first.clone());
    let stored = serde_json::to_string(&first.checkpoint()).expect("plain data");

    world.put("b", "STARTED").await;
    let second = world.stream_source(&invoker, None, serde_json::from_str(&stored).expect("what was stored"));
    run_for!(1_000, second.clone());
    assert_eq!(ids(&seen), [["a"], ["b"]]);
    assert_eq!(second.counts().read, 1);
}

#[tokio::test(start_paused = true)]
async fn a_mapping_from_latest_leaves_old_records_out() {
    let world = World::new().await;
    let (invoker, seen) = scripted(succeed);
    world.put("old", "STARTED").await;
    let settings = StreamSettings { start: StartAt::Latest, ..StreamSettings::default() };
    let source = world.stream_source_with(&invoker, None, Progress::default(), settings);
    let (stop, stopped) = watch::channel(false);
    let running = tokio::spawn(async move { source.run(stopped).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.put("new", "STARTED").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    stop.send_replace(true);
    running.await.expect("no panic");
    assert_eq!(ids(&seen), [["new"]]);
}

#[tokio::test(start_paused = true)]
async fn a_batching_window_collects_records_until_it_is_over_or_the_batch_is_full() {
    let world = World::new().await;
    let (invoker, seen) = scripted(succeed);
    let settings = StreamSettings { window_ms: 5_000, batch_size: 3, ..StreamSettings::default() };
    let source = world.stream_source_with(&invoker, None, Progress::default(), settings);
    let (stop, stopped) = watch::channel(false);
    let running = tokio::spawn(async move { source.run(stopped).await });
    for id in ["a", "b", "c", "d"] {
        world.put(id, "STARTED").await;
        tokio::time::sleep(Duration::from_millis(600)).await;
    }
    assert_eq!(ids(&seen), [["a", "b", "c"]]);
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(ids(&seen).last().expect("invoked"), &["d"]);
    stop.send_replace(true);
    running.await.expect("no panic");
}
