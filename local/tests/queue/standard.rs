//! Messages of standard queues. Facts: API reference of SendMessage, ReceiveMessage, DeleteMessage and
//! ChangeMessageVisibility; developer guide on visibility timeouts, delay queues, long polling.

use crate::kit::*;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::primitives::Blob;
use aws_sdk_sqs::types::{MessageAttributeValue, MessageSystemAttributeName as System};
use std::time::Duration;
use tokio::time::Instant;

pub async fn a_received_message_hides_for_the_visibility_timeout(sqs: &Client) {
    let url = standard_queue(sqs, &[("VisibilityTimeout", "5")]).await;
    send(sqs, &url, "x").await;
    assert_eq!(receive(sqs, &url, 10).await.len(), 1);
    seconds(4).await;
    assert!(receive(sqs, &url, 10).await.is_empty());
    seconds(1).await;
    assert_eq!(receive(sqs, &url, 10).await.len(), 1);
}

pub async fn a_receive_can_override_the_visibility_timeout(sqs: &Client) {
    let url = standard_queue(sqs, &[("VisibilityTimeout", "5")]).await;
    send(sqs, &url, "x").await;
    sqs.receive_message().queue_url(&url).visibility_timeout(10).send().await.unwrap();
    seconds(9).await;
    assert!(receive(sqs, &url, 1).await.is_empty());
    seconds(1).await;
    // Zero: visible again at once.
    sqs.receive_message().queue_url(&url).visibility_timeout(0).send().await.unwrap();
    assert_eq!(receive(sqs, &url, 1).await.len(), 1);
}

pub async fn a_deleted_message_does_not_come_back(sqs: &Client) {
    let url = standard_queue(sqs, &[("VisibilityTimeout", "1")]).await;
    send(sqs, &url, "x").await;
    let message = receive(sqs, &url, 1).await.remove(0);
    delete(sqs, &url, &message).await;
    seconds(2).await;
    assert!(receive(sqs, &url, 1).await.is_empty());
    // Deleting again is fine.
    delete(sqs, &url, &message).await;
}

pub async fn an_old_receipt_handle_succeeds_and_deletes_nothing(sqs: &Client) {
    let url = standard_queue(sqs, &[("VisibilityTimeout", "1")]).await;
    send(sqs, &url, "x").await;
    let first = receive(sqs, &url, 1).await.remove(0);
    seconds(1).await;
    let second = receive(sqs, &url, 1).await.remove(0);
    assert_ne!(handle(&first), handle(&second));
    delete(sqs, &url, &first).await;
    seconds(1).await;
    assert_eq!(receive(sqs, &url, 1).await.len(), 1);
}

pub async fn the_latest_receipt_handle_deletes_after_the_visibility_timeout(sqs: &Client) {
    let url = standard_queue(sqs, &[("VisibilityTimeout", "1")]).await;
    send(sqs, &url, "x").await;
    let message = receive(sqs, &url, 1).await.remove(0);
    seconds(2).await;
    delete(sqs, &url, &message).await;
    assert!(receive(sqs, &url, 1).await.is_empty());
}

pub async fn a_receipt_handle_of_another_queue_is_invalid(sqs: &Client) {
    let (url, other) = (standard_queue(sqs, &[]).await, standard_queue(sqs, &[]).await);
    send(sqs, &url, "x").await;
    let message = receive(sqs, &url, 1).await.remove(0);
    for bad in [handle(&message), "nonsense"] {
        let refused = sqs.delete_message().queue_url(&other).receipt_handle(bad).send().await;
        assert!(refused.unwrap_err().as_service_error().unwrap().is_receipt_handle_is_invalid());
    }
}

pub async fn visibility_is_prolonged_and_given_up(sqs: &Client) {
    let url = standard_queue(sqs, &[("VisibilityTimeout", "5")]).await;
    send(sqs, &url, "x").await;
    let message = receive(sqs, &url, 1).await.remove(0);
    seconds(3).await;
    // Ten seconds count from now.
    hide(sqs, &url, &message, 10).await;
    seconds(9).await;
    assert!(receive(sqs, &url, 1).await.is_empty());
    hide(sqs, &url, &message, 0).await;
    assert_eq!(receive(sqs, &url, 1).await.len(), 1);
}

pub async fn visibility_of_a_visible_or_deleted_message_cannot_change(sqs: &Client) {
    let url = standard_queue(sqs, &[("VisibilityTimeout", "1")]).await;
    send(sqs, &url, "x").await;
    let message = receive(sqs, &url, 1).await.remove(0);
    seconds(1).await;
    let request =
        sqs.change_message_visibility().queue_url(&url).receipt_handle(handle(&message)).visibility_timeout(9);
    let visible = request.clone().send().await;
    assert!(visible.unwrap_err().as_service_error().unwrap().is_message_not_inflight());
    delete(sqs, &url, &message).await;
    assert_eq!(code(request.send().await), "InvalidParameterValue");
}

pub async fn visibility_ends_twelve_hours_after_the_receive(sqs: &Client) {
    let url = standard_queue(sqs, &[("VisibilityTimeout", "60")]).await;
    send(sqs, &url, "x").await;
    let message = receive(sqs, &url, 1).await.remove(0);
    seconds(30).await;
    let request = sqs.change_message_visibility().queue_url(&url).receipt_handle(handle(&message));
    assert_eq!(code(request.clone().visibility_timeout(43_171).send().await), "InvalidParameterValue");
    request.visibility_timeout(43_170).send().await.unwrap();
}

pub async fn a_message_delay_hides_it_and_overrides_the_queues(sqs: &Client) {
    let url = standard_queue(sqs, &[("DelaySeconds", "100")]).await;
    sqs.send_message().queue_url(&url).message_body("soon").delay_seconds(5).send().await.unwrap();
    sqs.send_message().queue_url(&url).message_body("now").delay_seconds(0).send().await.unwrap();
    send(sqs, &url, "late").await;
    assert_eq!(bodies(&receive(sqs, &url, 10).await), ["now"]);
    seconds(4).await;
    assert!(receive(sqs, &url, 10).await.is_empty());
    seconds(1).await;
    assert_eq!(bodies(&receive(sqs, &url, 10).await), ["soon"]);
}

pub async fn a_queue_delay_holds_for_new_messages_only(sqs: &Client) {
    let url = standard_queue(sqs, &[("DelaySeconds", "10")]).await;
    send(sqs, &url, "old").await;
    set(sqs, &url, "DelaySeconds", "0").await;
    send(sqs, &url, "new").await;
    assert_eq!(bodies(&receive(sqs, &url, 10).await), ["new"]);
    seconds(10).await;
    assert_eq!(bodies(&receive(sqs, &url, 10).await), ["old"]);
}

pub async fn retention_deletes_old_messages_even_in_flight(sqs: &Client) {
    let url = standard_queue(sqs, &[("MessageRetentionPeriod", "60"), ("VisibilityTimeout", "50")]).await;
    send(sqs, &url, "taken").await;
    send(sqs, &url, "untaken").await;
    seconds(20).await;
    send(sqs, &url, "young").await;
    receive(sqs, &url, 1).await;
    seconds(55).await;
    assert_eq!(bodies(&receive(sqs, &url, 10).await), ["young"]);
}

pub async fn a_long_poll_returns_when_a_message_arrives(sqs: &Client) {
    let url = standard_queue(sqs, &[]).await;
    let started = Instant::now();
    let sender = async {
        seconds(3).await;
        send(sqs, &url, "x").await;
    };
    let (received, ()) = tokio::join!(poll(sqs, &url, 20), sender);
    assert_eq!(received, ["x"]);
    assert_eq!(started.elapsed().as_secs(), 3);
}

pub async fn a_long_poll_returns_when_a_delay_or_a_visibility_ends(sqs: &Client) {
    let url = standard_queue(sqs, &[("VisibilityTimeout", "7")]).await;
    sqs.send_message().queue_url(&url).message_body("x").delay_seconds(4).send().await.unwrap();
    let started = Instant::now();
    assert_eq!(poll(sqs, &url, 20).await, ["x"]);
    assert_eq!(started.elapsed().as_secs(), 4);
    assert_eq!(poll(sqs, &url, 20).await, ["x"]);
    assert_eq!(started.elapsed().as_secs(), 11);
}

pub async fn a_long_poll_ends_empty_after_its_time(sqs: &Client) {
    let url = standard_queue(sqs, &[]).await;
    let started = Instant::now();
    let answer = sqs.receive_message().queue_url(&url).wait_time_seconds(20).send().await.unwrap();
    assert!(answer.messages.is_none());
    assert_eq!(started.elapsed().as_secs(), 20);
}

pub async fn the_queues_wait_time_is_the_default(sqs: &Client) {
    let url = standard_queue(sqs, &[("ReceiveMessageWaitTimeSeconds", "2")]).await;
    let started = Instant::now();
    sqs.receive_message().queue_url(&url).send().await.unwrap();
    assert_eq!(started.elapsed().as_secs(), 2);
    sqs.receive_message().queue_url(&url).wait_time_seconds(0).send().await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(3));
}

pub async fn two_long_polls_share_no_message(sqs: &Client) {
    let url = standard_queue(sqs, &[]).await;
    let sender = async {
        seconds(1).await;
        send(sqs, &url, "one").await;
        seconds(1).await;
        send(sqs, &url, "two").await;
    };
    let (first, second, ()) = tokio::join!(poll(sqs, &url, 20), poll(sqs, &url, 20), sender);
    let mut both = [first, second].concat();
    both.sort_unstable();
    assert_eq!(both, ["one", "two"]);
}

pub async fn system_attributes_tell_the_story_of_a_message(sqs: &Client) {
    let url = standard_queue(sqs, &[("VisibilityTimeout", "3")]).await;
    let sent = sqs.send_message().queue_url(&url).message_body("x").send().await.unwrap();
    seconds(2).await;
    let first = receive(sqs, &url, 1).await.remove(0);
    seconds(3).await;
    let second = receive(sqs, &url, 1).await.remove(0);
    assert_eq!(second.message_id(), sent.message_id());
    assert_eq!(system(&first, "ApproximateReceiveCount"), "1");
    assert_eq!(system(&second, "ApproximateReceiveCount"), "2");
    let sent_ms: u64 = system(&second, "SentTimestamp").parse().unwrap();
    let received_ms: u64 = system(&second, "ApproximateFirstReceiveTimestamp").parse().unwrap();
    // A few milliseconds of the network of an emulator are allowed for.
    assert!((2_000..2_500).contains(&(received_ms - sent_ms)), "{sent_ms} {received_ms}");
    assert!(!system(&second, "SenderId").is_empty());
    seconds(3).await;
    let plain = sqs.receive_message().queue_url(&url).send().await.unwrap().messages.unwrap();
    assert!(plain[0].attributes().is_none());
    seconds(30).await;
    let request = sqs.receive_message().queue_url(&url).message_system_attribute_names(System::SentTimestamp);
    let one = request.send().await.unwrap().messages.unwrap();
    assert_eq!(one[0].attributes().unwrap().len(), 1);
}

fn value(data_type: &str, text: &str) -> MessageAttributeValue {
    MessageAttributeValue::builder().data_type(data_type).string_value(text).build().unwrap()
}

pub async fn message_attributes_come_back_with_the_documented_digest(sqs: &Client) {
    let url = standard_queue(sqs, &[]).await;
    let binary =
        MessageAttributeValue::builder().data_type("Binary").binary_value(Blob::new([0, 255, 7])).build().unwrap();
    let request =
        sqs.send_message().queue_url(&url).message_body("x").message_attributes("count", value("Number", "1"));
    let sent = request
        .message_attributes("blob", binary)
        .message_attributes("a", value("String.x", "é"))
        .send()
        .await
        .unwrap();
    // Computed by hand from the algorithm of the developer guide, with Python's hashlib.
    assert_eq!(sent.md5_of_message_attributes(), Some("2bcdb63cc744f0f7bbb1b09c5f671653"));
    assert_eq!(sent.md5_of_message_body(), Some("9dd4e461268c8034f5c8564e155c67a6"));
    let message = receive(sqs, &url, 1).await.remove(0);
    assert_eq!(message.md5_of_message_attributes(), sent.md5_of_message_attributes());
    assert_eq!(message.md5_of_body(), sent.md5_of_message_body());
    let attributes = message.message_attributes().unwrap();
    assert_eq!(attributes["count"], value("Number", "1"));
    assert_eq!(attributes["a"], value("String.x", "é"));
    assert_eq!(attributes["blob"].binary_value().unwrap().as_ref(), [0, 255, 7]);
}

pub async fn attributes_are_filtered_by_name_and_prefix(sqs: &Client) {
    let url = standard_queue(sqs, &[]).await;
    let request =
        sqs.send_message().queue_url(&url).message_body("x").message_attributes("bar.a", value("String", "1"));
    let request =
        request.message_attributes("bar.b", value("String", "2")).message_attributes("foo", value("String", "3"));
    request.message_attributes("baz", value("String", "4")).send().await.unwrap();
    let request = sqs.receive_message().queue_url(&url).message_attribute_names("bar.*").message_attribute_names("foo");
    let message = request.send().await.unwrap().messages.unwrap().remove(0);
    let mut names: Vec<_> = message.message_attributes().unwrap().keys().cloned().collect();
    names.sort_unstable();
    assert_eq!(names, ["bar.a", "bar.b", "foo"]);
}

pub async fn bad_messages_are_refused(sqs: &Client) {
    let url = standard_queue(sqs, &[("MaximumMessageSize", "1024")]).await;
    let request = || sqs.send_message().queue_url(&url);
    let control = request().message_body("bell \u{7}").send().await;
    assert!(control.unwrap_err().as_service_error().unwrap().is_invalid_message_contents());
    request().message_body("tab \t, emoji \u{1F600}").send().await.unwrap();
    assert_eq!(code(request().message_body("").send().await), "MissingParameter");
    request().message_body("x".repeat(1_024)).send().await.unwrap();
    assert_eq!(code(request().message_body("x".repeat(1_025)).send().await), "InvalidParameterValue");
    // Attributes count towards the size: name, type and value.
    let long = request().message_body("x".repeat(1_012)).message_attributes("name", value("String", "abc"));
    assert_eq!(code(long.send().await), "InvalidParameterValue");
    assert_eq!(code(request().message_body("x").delay_seconds(901).send().await), "InvalidParameterValue");
    assert_eq!(code(request().message_body("x").message_deduplication_id("d").send().await), "InvalidParameterValue");
    for name in ["AWS.x", "amazon.x", ".x", "x.", "x..y", "x y", ""] {
        let bad = request().message_body("x").message_attributes(name, value("String", "1")).send().await;
        assert_eq!(code(bad), "InvalidParameterValue", "{name}");
    }
    for bad in [value("Text", "1"), value("Number", "one"), value("String", ""), value("Binary", "text")] {
        let refused = request().message_body("x").message_attributes("a", bad).send().await;
        assert_eq!(code(refused), "InvalidParameterValue");
    }
}

pub async fn bad_receives_are_refused(sqs: &Client) {
    let url = standard_queue(sqs, &[]).await;
    let request = || sqs.receive_message().queue_url(&url);
    for bad in [
        request().max_number_of_messages(0),
        request().max_number_of_messages(11),
        request().wait_time_seconds(21),
        request().wait_time_seconds(-1),
        request().visibility_timeout(43_201),
    ] {
        assert_eq!(code(bad.send().await), "InvalidParameterValue");
    }
}
