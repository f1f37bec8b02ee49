//! The world of these tests: engine, queue, clock, and functions with a script.

pub use aws_sdk_dynamodb::types as ddb;
pub use aws_sdk_sqs::types::QueueAttributeName;
pub use futures_util::FutureExt;
pub use futures_util::future::BoxFuture;
pub use leasehold::clock::SharedClock;
pub use leasehold_local::clock::VirtualClock;
pub use leasehold_local::engine::{EmbeddedDynamo, clients};
pub use leasehold_local::events::asynchronous::{AsyncInvoker, AsyncSettings};
pub use leasehold_local::events::destination::Destination;
pub use leasehold_local::events::filter::Filters;
pub use leasehold_local::events::schedule::Schedule;
pub use leasehold_local::events::shards::{Progress, StartAt};
pub use leasehold_local::events::sqs::{SqsParts, SqsSettings, SqsSource};
pub use leasehold_local::events::stream::{StreamParts, StreamSettings, StreamSource};
pub use leasehold_local::events::{DESIRED_STATE_FILTERS, Function, InvokeError, Invoker};
pub use leasehold_local::queue::EmbeddedSqs;
pub use serde_json::{Value, json};
pub use std::sync::{Arc, Mutex};
pub use std::time::Duration;
pub use tokio::sync::watch;

/// 2025-06-01T12:00:00Z.
pub const START_MS: u64 = 1_748_779_200_000;

pub struct World {
    pub clock: SharedClock,
    pub dynamo: aws_sdk_dynamodb::Client,
    pub streams: aws_sdk_dynamodbstreams::Client,
    pub sqs: aws_sdk_sqs::Client,
    pub stream_arn: String,
}

impl World {
    pub async fn new() -> Self {
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

    pub async fn put(&self, id: &str, state: &str) {
        let row = self.dynamo.put_item().table_name("connections");
        let row = row
            .item("Pk", ddb::AttributeValue::S(format!("CONN#{id}")))
            .item("desired_state", ddb::AttributeValue::S(state.into()));
        row.item("ws_url", ddb::AttributeValue::S("wss://example.com".into())).send().await.expect("put");
    }

    pub async fn update(&self, id: &str, expression: &str) {
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

    pub async fn queue(&self, name: &str, attributes: &[(QueueAttributeName, &str)]) -> String {
        let mut request = self.sqs.create_queue().queue_name(name);
        for (attribute, value) in attributes {
            request = request.attributes(attribute.clone(), *value);
        }
        request.send().await.expect("a queue").queue_url.expect("a URL")
    }

    pub async fn bodies(&self, queue_url: &str) -> Vec<Value> {
        let received =
            self.sqs.receive_message().queue_url(queue_url).max_number_of_messages(10).send().await.expect("receive");
        received
            .messages()
            .iter()
            .map(|message| serde_json::from_str(message.body().expect("a body")).expect("JSON"))
            .collect()
    }

    pub fn stream_source(
        &self,
        invoker: &Arc<Invoker>,
        destination: Option<String>,
        progress: Progress,
    ) -> StreamSource {
        self.stream_source_with(invoker, destination, progress, StreamSettings::default())
    }

    pub fn stream_source_with(
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

    pub fn sqs_source(&self, invoker: &Arc<Invoker>, queue_url: &str) -> SqsSource {
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

pub type Answer = Result<Value, String>;

/// A function that keeps the events it saw and answers as it is told.
pub struct Scripted<F> {
    pub seen: Arc<Mutex<Vec<Value>>>,
    pub answer: F,
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

pub type Seen = Arc<Mutex<Vec<Value>>>;

pub fn scripted(answer: impl Fn(&Value) -> Answer + Send + Sync + 'static) -> (Arc<Invoker>, Seen) {
    let seen = Seen::default();
    let function = Scripted { seen: Arc::clone(&seen), answer };
    (Arc::new(Invoker::new(Arc::new(function), 30_000)), seen)
}

pub fn succeed(_: &Value) -> Answer {
    Ok(json!({"batchItemFailures": []}))
}

/// The connection ids of each invocation so far.
pub fn ids(seen: &Seen) -> Vec<Vec<String>> {
    let id = |record: &Value| record["dynamodb"]["Keys"]["Pk"]["S"].as_str().unwrap_or("?").replace("CONN#", "");
    let seen = seen.lock().expect("not poisoned");
    seen.iter().map(|event| event["Records"].as_array().expect("records").iter().map(id).collect()).collect()
}

pub fn bodies_of(event: &Value) -> Vec<String> {
    let records = event["Records"].as_array().expect("records");
    records.iter().map(|record| record["body"].as_str().expect("a body").to_owned()).collect()
}

/// An answer that names the records of which `is_bad` holds by `identifier`.
pub fn failures(event: &Value, is_bad: impl Fn(&Value) -> bool, identifier: impl Fn(&Value) -> Value) -> Answer {
    let records = event["Records"].as_array().expect("records");
    let bad = records.iter().filter(|record| is_bad(record));
    Ok(
        json!({"batchItemFailures": bad.map(|record| json!({"itemIdentifier": identifier(record)})).collect::<Vec<_>>()}),
    )
}

pub fn is_poison(record: &Value) -> bool {
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

pub fn keys(value: &Value) -> Vec<&String> {
    value.as_object().expect("an object").keys().collect()
}
