//! Dead letters and their way back. Facts: developer guide, "dead-letter queues" and "dead-letter queue redrive"; API
//! reference of StartMessageMoveTask.

use crate::kit::*;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::QueueAttributeName as Name;
use tokio::time::Instant;

fn policy(target_arn: &str, max: u32) -> String {
    format!(r#"{{"deadLetterTargetArn":"{target_arn}","maxReceiveCount":{max}}}"#)
}

/// A queue that hides for one second and gives a message up after one receive, and its dead-letter queue.
async fn pair(sqs: &Client) -> (String, String) {
    let dead = standard_queue(sqs, &[("VisibilityTimeout", "1")]).await;
    let redrive = policy(&arn(sqs, &dead).await, 1);
    let source = standard_queue(sqs, &[("VisibilityTimeout", "1"), ("RedrivePolicy", &redrive)]).await;
    (source, dead)
}

/// Lets messages of the source become dead letters.
async fn bury(sqs: &Client, source: &str, bodies: &[&str]) {
    for body in bodies {
        send(sqs, source, body).await;
    }
    assert_eq!(receive(sqs, source, 10).await.len(), bodies.len());
    seconds(1).await;
    assert!(receive(sqs, source, 10).await.is_empty());
}

pub async fn a_message_received_too_often_moves_with_its_id_and_time(sqs: &Client) {
    let dead = standard_queue(sqs, &[]).await;
    let redrive = policy(&arn(sqs, &dead).await, 2);
    let url = standard_queue(sqs, &[("VisibilityTimeout", "1"), ("RedrivePolicy", &redrive)]).await;
    send(sqs, &url, "x").await;
    let first = receive(sqs, &url, 1).await.remove(0);
    seconds(1).await;
    assert_eq!(receive(sqs, &url, 1).await.len(), 1);
    seconds(1).await;
    // A poll on the dead-letter queue wakes when the third receive finds the message dead.
    let started = Instant::now();
    let consumer = async {
        seconds(2).await;
        assert!(receive(sqs, &url, 1).await.is_empty());
    };
    let (polled, ()) = tokio::join!(poll(sqs, &dead, 20), consumer);
    assert_eq!((polled.as_slice(), started.elapsed().as_secs()), (["x".to_owned()].as_slice(), 2));
    seconds(30).await;
    let letter = receive(sqs, &dead, 1).await.remove(0);
    assert_eq!(letter.message_id(), first.message_id());
    assert_eq!(system(&letter, "SentTimestamp"), system(&first, "SentTimestamp"));
    assert_eq!(system(&letter, "DeadLetterQueueSourceArn"), arn(sqs, &url).await);
    // Across all queues: two there, two here.
    assert_eq!(system(&letter, "ApproximateReceiveCount"), "4");
}

pub async fn a_fifo_dead_letter_keeps_its_group_and_gets_a_new_time(sqs: &Client) {
    let dead = fifo_queue(sqs, &[]).await;
    let redrive = policy(&arn(sqs, &dead).await, 1);
    let url = fifo_queue(sqs, &[("VisibilityTimeout", "1"), ("RedrivePolicy", &redrive)]).await;
    send_to_group(sqs, &url, "g", "x").await;
    let first = receive(sqs, &url, 1).await.remove(0);
    seconds(1).await;
    assert!(receive(sqs, &url, 1).await.is_empty());
    let letter = receive(sqs, &dead, 1).await.remove(0);
    assert_eq!(system(&letter, "MessageGroupId"), "g");
    assert_eq!(system(&letter, "MessageDeduplicationId"), "x");
    let time = |message| system(message, "SentTimestamp").parse::<u64>().unwrap();
    assert!(time(&letter) >= time(&first) + 1_000);
}

pub async fn a_dead_head_lets_its_group_go_on(sqs: &Client) {
    let dead = fifo_queue(sqs, &[]).await;
    let redrive = policy(&arn(sqs, &dead).await, 1);
    let url = fifo_queue(sqs, &[("VisibilityTimeout", "1"), ("RedrivePolicy", &redrive)]).await;
    send_to_group(sqs, &url, "g", "1").await;
    send_to_group(sqs, &url, "g", "2").await;
    assert_eq!(bodies(&receive(sqs, &url, 1).await), ["1"]);
    seconds(1).await;
    assert_eq!(bodies(&receive(sqs, &url, 1).await), ["2"]);
    assert_eq!(bodies(&receive(sqs, &dead, 10).await), ["1"]);
}

pub async fn redrive_policies_are_checked(sqs: &Client) {
    let url = standard_queue(sqs, &[]).await;
    let own = arn(sqs, &url).await;
    let fifo = arn(sqs, &fifo_queue(sqs, &[]).await).await;
    let good = arn(sqs, &standard_queue(sqs, &[]).await).await;
    let missing = own.replace(":q-", ":missing-");
    for bad in [
        policy(&missing, 3),
        policy(&fifo, 3),
        policy(&good, 0),
        policy(&good, 1_001),
        r#"{"maxReceiveCount":3}"#.to_owned(),
        "not json".to_owned(),
    ] {
        let refused = sqs.set_queue_attributes().queue_url(&url).attributes(Name::RedrivePolicy, &bad).send().await;
        assert_eq!(code(refused), "InvalidParameterValue", "{bad}");
    }
    set(sqs, &url, "RedrivePolicy", &policy(&good, 3)).await;
    assert!(attribute(sqs, &url, "RedrivePolicy").await.unwrap().contains(&good));
    // An empty text takes the policy away.
    set(sqs, &url, "RedrivePolicy", "").await;
    assert_eq!(attribute(sqs, &url, "RedrivePolicy").await, None);
}

pub async fn a_dead_letter_queue_can_refuse_sources(sqs: &Client) {
    let dead = standard_queue(sqs, &[("RedriveAllowPolicy", r#"{"redrivePermission":"denyAll"}"#)]).await;
    let url = standard_queue(sqs, &[]).await;
    let redrive = policy(&arn(sqs, &dead).await, 3);
    let request = sqs.set_queue_attributes().queue_url(&url).attributes(Name::RedrivePolicy, &redrive);
    assert_eq!(code(request.clone().send().await), "InvalidParameterValue");
    let own = arn(sqs, &url).await;
    let by_queue = format!(r#"{{"redrivePermission":"byQueue","sourceQueueArns":["{own}"]}}"#);
    set(sqs, &dead, "RedriveAllowPolicy", &by_queue).await;
    request.send().await.unwrap();
}

pub async fn sources_of_a_dead_letter_queue_are_listed(sqs: &Client) {
    let (source, dead) = pair(sqs).await;
    let listed = sqs.list_dead_letter_source_queues().queue_url(&dead).send().await.unwrap();
    assert_eq!(listed.queue_urls(), [source]);
}

pub async fn redriven_messages_start_anew_in_their_source(sqs: &Client) {
    let (source, dead) = pair(sqs).await;
    bury(sqs, &source, &["1", "2"]).await;
    let old = receive(sqs, &dead, 1).await.remove(0);
    seconds(1).await;
    sqs.start_message_move_task().source_arn(arn(sqs, &dead).await).send().await.unwrap();
    seconds(1).await;
    let back = receive(sqs, &source, 10).await;
    assert_eq!(bodies(&back), ["1", "2"]);
    // New messages: "a new messageID and enqueueTime are assigned to redriven messages".
    assert_ne!(back[0].message_id(), old.message_id());
    assert_ne!(system(&back[0], "SentTimestamp"), system(&old, "SentTimestamp"));
    assert_eq!(system(&back[0], "ApproximateReceiveCount"), "1");
    assert!(receive(sqs, &dead, 10).await.is_empty());
    let tasks = sqs.list_message_move_tasks().source_arn(arn(sqs, &dead).await).send().await.unwrap();
    let task = &tasks.results()[0];
    assert_eq!((task.status(), task.approximate_number_of_messages_moved()), (Some("COMPLETED"), 2));
    assert_eq!(task.task_handle(), None);
}

pub async fn a_redrive_can_go_elsewhere_at_a_rate_and_be_cancelled(sqs: &Client) {
    let (source, dead) = pair(sqs).await;
    bury(sqs, &source, &["1", "2", "3", "4"]).await;
    let elsewhere = standard_queue(sqs, &[]).await;
    let request = sqs.start_message_move_task().source_arn(arn(sqs, &dead).await);
    let request = request.destination_arn(arn(sqs, &elsewhere).await).max_number_of_messages_per_second(1);
    let task = request.clone().send().await.unwrap();
    assert_eq!(code(request.send().await), "InvalidParameterValue");
    let started = Instant::now();
    assert_eq!(poll(sqs, &elsewhere, 20).await, ["1"]);
    // A poll wakes for the next second's message.
    assert_eq!(poll(sqs, &elsewhere, 20).await, ["2"]);
    assert_eq!(started.elapsed().as_secs(), 1);
    let handle = task.task_handle().unwrap();
    let cancelled = sqs.cancel_message_move_task().task_handle(handle).send().await.unwrap();
    assert_eq!(cancelled.approximate_number_of_messages_moved(), 2);
    seconds(5).await;
    assert!(receive(sqs, &elsewhere, 10).await.is_empty());
    assert_eq!(bodies(&receive(sqs, &dead, 10).await), ["3", "4"]);
    assert_eq!(
        code(sqs.cancel_message_move_task().task_handle(handle).send().await),
        "AWS.SimpleQueueService.UnsupportedOperation"
    );
    assert_eq!(code(sqs.cancel_message_move_task().task_handle("none").send().await), "ResourceNotFoundException");
}

pub async fn a_message_without_a_source_fails_the_redrive(sqs: &Client) {
    let (_, dead) = pair(sqs).await;
    send(sqs, &dead, "sent here directly").await;
    sqs.start_message_move_task().source_arn(arn(sqs, &dead).await).send().await.unwrap();
    seconds(1).await;
    let tasks = sqs.list_message_move_tasks().source_arn(arn(sqs, &dead).await).send().await.unwrap();
    assert_eq!(tasks.results()[0].status(), Some("FAILED"));
    assert!(tasks.results()[0].failure_reason().is_some());
    assert_eq!(receive(sqs, &dead, 1).await.len(), 1);
}

pub async fn only_dead_letter_queues_are_redriven(sqs: &Client) {
    let own = arn(sqs, &standard_queue(sqs, &[]).await).await;
    assert_eq!(code(sqs.start_message_move_task().source_arn(&own).send().await), "InvalidParameterValue");
    let missing = own.replace(":q-", ":missing-");
    assert_eq!(code(sqs.start_message_move_task().source_arn(missing).send().await), "ResourceNotFoundException");
}
