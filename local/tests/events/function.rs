//! Invocations, and a schedule that makes them.

use super::world::*;

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
    let sample: Value = serde_json::from_str(include_str!("../../../events/schedule.json")).expect("JSON");
    assert_eq!(keys(&event), keys(&sample));
    assert_eq!(event["resources"], sample["resources"]);
}
