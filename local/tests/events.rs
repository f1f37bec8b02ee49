//! Event sources over the embedded engine and queue, in virtual time.

use aws_sdk_dynamodb::types as ddb;
use aws_sdk_sqs::types::QueueAttributeName;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use leasehold::clock::SharedClock;
use leasehold_local::clock::VirtualClock;
use leasehold_local::engine::{EmbeddedDynamo, clients};
use leasehold_local::events::asynchronous::{AsyncInvoker, AsyncSettings};
use leasehold_local::events::destination::Destination;
use leasehold_local::events::filter::Filters;
use leasehold_local::events::schedule::Schedule;
use leasehold_local::events::shards::{Progress, StartAt};
use leasehold_local::events::sqs::{SqsParts, SqsSettings, SqsSource};
use leasehold_local::events::stream::{StreamParts, StreamSettings, StreamSource};
use leasehold_local::events::{DESIRED_STATE_FILTERS, Function, InvokeError, Invoker};
use leasehold_local::queue::EmbeddedSqs;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

/// 2025-06-01T12:00:00Z.
const START_MS: u64 = 1_748_779_200_000;

struct World {
    clock: SharedClock,
    dynamo: aws_sdk_dynamodb::Client,
    streams: aws_sdk_dynamodbstreams::Client,
    sqs: aws_sdk_sqs::Client,
    stream_arn: String,
}

impl World {
    async fn new() -> Self {
        let time = VirtualClock::starting_at(START_MS);
        let clock: SharedClock = Arc::new(time);
        let engine = EmbeddedDynamo::memory(clock.clone()).expect("memory");
        let queues = EmbeddedSqs::new(clock.clone());
        let dynamo = clients::dynamodb(engine.clone(), Some(time));
        let attribute =
            ddb::AttributeDefinition::builder().attribute_name("Pk").attribute_type(ddb::ScalarAttributeType::S);
        let key = ddb::KeySchemaElement::builder().attribute_name("Pk").key_type(ddb::KeyType::Hash);
        let stream = ddb::StreamSpecification::builder()
            .stream_enabled(true)
            .stream_view_type(ddb::StreamViewType::NewAndOldImages);
        let created = dynamo
            .create_table()
            .table_name("connections")
            .attribute_definitions(attribute.build().expect("complete"))
            .key_schema(key.build().expect("complete"))
            .billing_mode(ddb::BillingMode::PayPerRequest)
            .stream_specification(stream.build().expect("complete"))
            .send()
            .await
            .expect("a table");
        let stream_arn =
            created.table_description().and_then(|table| table.latest_stream_arn()).expect("a stream").to_owned();
        Self {
            clock,
            dynamo,
            streams: clients::streams(engine, Some(time)),
            sqs: clients::sqs(queues, Some(time)),
            stream_arn,
        }
    }

    async fn put(&self, id: &str, state: &str) {
        let row = self.dynamo.put_item().table_name("connections");
        let row = row
            .item("Pk", ddb::AttributeValue::S(format!("CONN#{id}")))
            .item("desired_state", ddb::AttributeValue::S(state.into()));
        row.item("ws_url", ddb::AttributeValue::S("wss://example.com".into())).send().await.expect("put");
    }

    async fn update(&self, id: &str, expression: &str) {
        let update =
            self.dynamo.update_item().table_name("connections").key("Pk", ddb::AttributeValue::S(format!("CONN#{id}")));
        let mut update = update.update_expression(expression);
        let values =
            [(":n", ddb::AttributeValue::N("1748779200000".into())), (":s", ddb::AttributeValue::S("STOPPED".into()))];
        for (name, value) in values {
            if expression.contains(name) {
                update = update.expression_attribute_values(name, value);
            }
        }
        update.send().await.expect("update");
    }

    async fn queue(&self, name: &str, attributes: &[(QueueAttributeName, &str)]) -> String {
        let mut request = self.sqs.create_queue().queue_name(name);
        for (attribute, value) in attributes {
            request = request.attributes(attribute.clone(), *value);
        }
        request.send().await.expect("a queue").queue_url.expect("a URL")
    }

    async fn bodies(&self, queue_url: &str) -> Vec<Value> {
        let received =
            self.sqs.receive_message().queue_url(queue_url).max_number_of_messages(10).send().await.expect("receive");
        received
            .messages()
            .iter()
            .map(|message| serde_json::from_str(message.body().expect("a body")).expect("JSON"))
            .collect()
    }

    fn stream_source(&self, invoker: &Arc<Invoker>, destination: Option<String>, progress: Progress) -> StreamSource {
        self.stream_source_with(invoker, destination, progress, StreamSettings::default())
    }

    fn stream_source_with(
        &self,
        invoker: &Arc<Invoker>,
        destination: Option<String>,
        progress: Progress,
        settings: StreamSettings,
    ) -> StreamSource {
        let parts = StreamParts {
            client: self.streams.clone(),
            stream_arn: self.stream_arn.clone(),
            invoker: Arc::clone(invoker),
            filters: Filters::parse(DESIRED_STATE_FILTERS).expect("valid"),
            settings,
            destination: destination.map(|queue_url| Destination { client: self.sqs.clone(), queue_url }),
            clock: self.clock.clone(),
            seed: 1,
        };
        StreamSource::new(parts, progress)
    }

    fn sqs_source(&self, invoker: &Arc<Invoker>, queue_url: &str) -> SqsSource {
        let name = queue_url.rsplit('/').next().unwrap_or_default();
        SqsSource::new(SqsParts {
            client: self.sqs.clone(),
            queue_url: queue_url.to_owned(),
            queue_arn: format!("arn:aws:sqs:us-east-1:000000000000:{name}"),
            invoker: Arc::clone(invoker),
            filters: Filters::default(),
            settings: SqsSettings::default(),
            clock: self.clock.clone(),
            seed: 1,
        })
    }
}

type Answer = Result<Value, String>;

/// A function that keeps the events it saw and answers as it is told.
struct Scripted<F> {
    seen: Arc<Mutex<Vec<Value>>>,
    answer: F,
}

impl<F: Fn(&Value) -> Answer + Send + Sync> Function for Scripted<F> {
    fn name(&self) -> &str {
        "scripted"
    }

    fn invoke(&self, event: Value, _remaining_ms: u64) -> BoxFuture<'_, Answer> {
        async move {
            let answer = (self.answer)(&event);
            self.seen.lock().expect("not poisoned").push(event);
            answer
        }
        .boxed()
    }
}

type Seen = Arc<Mutex<Vec<Value>>>;

fn scripted(answer: impl Fn(&Value) -> Answer + Send + Sync + 'static) -> (Arc<Invoker>, Seen) {
    let seen = Seen::default();
    let function = Scripted { seen: Arc::clone(&seen), answer };
    (Arc::new(Invoker::new(Arc::new(function), 30_000)), seen)
}

fn succeed(_: &Value) -> Answer {
    Ok(json!({"batchItemFailures": []}))
}

/// The connection ids of each invocation so far.
fn ids(seen: &Seen) -> Vec<Vec<String>> {
    let id = |record: &Value| record["dynamodb"]["Keys"]["Pk"]["S"].as_str().unwrap_or("?").replace("CONN#", "");
    let seen = seen.lock().expect("not poisoned");
    seen.iter().map(|event| event["Records"].as_array().expect("records").iter().map(id).collect()).collect()
}

fn bodies_of(event: &Value) -> Vec<String> {
    let records = event["Records"].as_array().expect("records");
    records.iter().map(|record| record["body"].as_str().expect("a body").to_owned()).collect()
}

/// An answer that names the records of which `is_bad` holds by `identifier`.
fn failures(event: &Value, is_bad: impl Fn(&Value) -> bool, identifier: impl Fn(&Value) -> Value) -> Answer {
    let records = event["Records"].as_array().expect("records");
    let bad = records.iter().filter(|record| is_bad(record));
    Ok(
        json!({"batchItemFailures": bad.map(|record| json!({"itemIdentifier": identifier(record)})).collect::<Vec<_>>()}),
    )
}

fn is_poison(record: &Value) -> bool {
    record["dynamodb"]["Keys"]["Pk"]["S"] == "CONN#poison"
}

/// Runs something for `ms` of virtual time and stops it.
macro_rules! run_for {
    ($ms:expr, $source:expr) => {{
        let (stop, stopped) = watch::channel(false);
        let source = $source;
        let running = tokio::spawn(async move { source.run(stopped).await });
        tokio::time::sleep(Duration::from_millis($ms)).await;
        stop.send_replace(true);
        running.await.expect("no panic");
    }};
}

// F7, localstack #6096: the filter was ignored.
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

// F8, solita.github.com #376: a poison record blocked a shard for a day, then good records expired.
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

// F3, oxbow #8: one invalid record stalled everything behind it.
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

// F4, aws-lambda-developer-guide #320: an empty itemIdentifier fails the whole batch; here not for ever.
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

/// A function that takes its time.
struct Slow(u64);

impl Function for Slow {
    fn name(&self) -> &str {
        "slow"
    }

    fn invoke(&self, _event: Value, _remaining_ms: u64) -> BoxFuture<'_, Answer> {
        async move {
            tokio::time::sleep(Duration::from_millis(self.0)).await;
            Ok(Value::Null)
        }
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_function_dies_at_its_time_out_and_is_throttled_at_its_concurrency() {
    let invoker = Arc::new(Invoker::new(Arc::new(Slow(10_000)), 3_000).with_max_concurrency(1));
    let first = tokio::spawn({
        let invoker = Arc::clone(&invoker);
        async move { invoker.invoke(Value::Null).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(invoker.invoke(Value::Null).await, Err(InvokeError::Throttled));
    let error = first.await.expect("no panic").expect_err("timed out");
    assert_eq!(error.to_string(), "Task timed out after 3.00 seconds");
    let counts = invoker.counts();
    assert_eq!((counts.invocations, counts.errors, counts.timeouts, counts.throttles), (1, 1, 1, 1));
    // The dropped invocation gave its place up.
    assert_eq!(invoker.invoke(Value::Null).await, Err(InvokeError::TimedOut { timeout_ms: 3_000 }));
}

#[tokio::test(start_paused = true)]
async fn a_function_that_panics_is_a_function_error() {
    let (invoker, _) = scripted(|_| panic!("a bug"));
    let error = invoker.invoke(Value::Null).await.expect_err("panicked");
    assert!(error.is_function_error());
}

// F3 on a queue: only the record that failed stays.
#[tokio::test(start_paused = true)]
async fn one_invalid_message_fails_alone() {
    let world = World::new().await;
    let queue = world.queue("ticks", &[(QueueAttributeName::VisibilityTimeout, "10")]).await;
    let (invoker, seen) =
        scripted(|event| failures(event, |record| record["body"] == "{", |record| record["messageId"].clone()));
    for body in ["{\"kind\":\"tick\"}", "{", "{\"kind\":\"tick\"}"] {
        world.sqs.send_message().queue_url(&queue).message_body(body).send().await.expect("send");
    }
    let source = world.sqs_source(&invoker, &queue);
    run_for!(15_000, source.clone());
    let events = seen.lock().expect("not poisoned").clone();
    let again = bodies_of(events.last().expect("invoked"));
    assert_eq!(again, ["{"]);
    assert_eq!(source.counts().deleted, 2);
    let record = &events.last().expect("invoked")["Records"][0];
    assert_eq!(record["attributes"]["ApproximateReceiveCount"], "2");
    assert_eq!((&record["eventSource"], &record["awsRegion"]), (&json!("aws:sqs"), &json!("us-east-1")));
}

// F4 on a queue.
#[tokio::test(start_paused = true)]
async fn an_empty_identifier_leaves_every_message() {
    let world = World::new().await;
    let queue = world.queue("ticks", &[]).await;
    let (invoker, _) = scripted(|event| failures(event, |_| true, |_| json!("")));
    for body in ["1", "2"] {
        world.sqs.send_message().queue_url(&queue).message_body(body).send().await.expect("send");
    }
    let source = world.sqs_source(&invoker, &queue);
    run_for!(5_000, source.clone());
    assert_eq!((source.counts().deleted, source.counts().left), (0, 2));
}

// F6, powertools-lambda-python #1927: record 3 failed, 4 and 5 were acknowledged.
#[tokio::test(start_paused = true)]
async fn a_group_goes_on_with_the_record_that_failed() {
    let world = World::new().await;
    let attributes = [
        (QueueAttributeName::FifoQueue, "true"),
        (QueueAttributeName::ContentBasedDeduplication, "true"),
        (QueueAttributeName::VisibilityTimeout, "10"),
    ];
    let queue = world.queue("scaling.fifo", &attributes).await;
    let clock = world.clock.clone();
    // Until it is repaired, the function fails at 3 and names everything from there on.
    let (invoker, seen) = scripted(move |event| {
        if clock.mono_ms() > 5_000 {
            return succeed(event);
        }
        failures(event, |record| record["body"].as_str() >= Some("3"), |record| record["messageId"].clone())
    });
    for body in ["1", "2", "3", "4", "5"] {
        let message = world.sqs.send_message().queue_url(&queue).message_body(body).message_group_id("fleet");
        message.send().await.expect("send");
    }
    let source = world.sqs_source(&invoker, &queue);
    run_for!(60_000, source.clone());

    let events: Vec<Vec<String>> = seen.lock().expect("not poisoned").iter().map(bodies_of).collect();
    assert_eq!(events, [vec!["1", "2", "3", "4", "5"], vec!["3", "4", "5"]]);
    assert_eq!(source.counts().deleted, 5);
    let record = seen.lock().expect("not poisoned")[0]["Records"][0].clone();
    assert_eq!(record["attributes"]["MessageGroupId"], "fleet");
}

#[tokio::test(start_paused = true)]
async fn a_schedule_sends_an_event_each_minute_and_a_failing_one_is_retried_twice() {
    let world = World::new().await;
    let failed = world.queue("failed", &[]).await;
    let (invoker, seen) = scripted(|_| Err("broken".to_owned()));
    let destination = Destination { client: world.sqs.clone(), queue_url: failed.clone() };
    let target =
        AsyncInvoker::new(Arc::clone(&invoker), AsyncSettings::default(), Some(destination), world.clock.clone(), 1);
    let rule_arn = "arn:aws:events:us-east-1:123456789012:rule/reconcile-every-minute".to_owned();
    let schedule =
        Schedule { target: target.clone(), rule_arn, interval_ms: 60_000, clock: world.clock.clone(), seed: 1 };
    let (stop, stopped) = watch::channel(false);
    let queue = tokio::spawn({
        let (target, stopped) = (target.clone(), stopped.clone());
        async move { target.run(stopped).await }
    });
    let timer = tokio::spawn(async move { schedule.run(stopped).await });
    // Events at 1, 2, 3, 4 minutes; the first is tried at 1, 2 and 4.
    tokio::time::sleep(Duration::from_secs(250)).await;
    stop.send_replace(true);
    timer.await.expect("no panic");
    queue.await.expect("no panic");

    assert_eq!(invoker.counts().invocations, 1 + 2 + 2 + 3);
    assert_eq!(target.given_up(), 1);
    let message = &world.bodies(&failed).await[0];
    assert_eq!(message["requestContext"]["condition"], "RetriesExhausted");
    assert_eq!(message["requestContext"]["approximateInvokeCount"], 3);
    assert_eq!(message["requestPayload"]["time"], "2025-06-01T12:01:00Z");
    let event = seen.lock().expect("not poisoned")[0].clone();
    let sample: Value = serde_json::from_str(include_str!("../../events/schedule.json")).expect("JSON");
    assert_eq!(keys(&event), keys(&sample));
    assert_eq!(event["resources"], sample["resources"]);
}

fn keys(value: &Value) -> Vec<&String> {
    value.as_object().expect("an object").keys().collect()
}
