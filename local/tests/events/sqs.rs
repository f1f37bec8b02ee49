//! The mapping on a queue.

use super::world::*;

// Only the record that failed stays.
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

// An empty identifier on a queue.
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

// powertools-lambda-python #1927: record 3 failed, 4 and 5 were acknowledged.
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
