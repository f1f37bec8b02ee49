//! FIFO queues. Facts: developer guide, "FIFO queue delivery logic" and "Exactly-once processing"; API reference of
//! SendMessage and ReceiveMessage.

use crate::kit::*;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::Message;
use tokio::time::Instant;

pub async fn messages_of_a_group_come_in_order(sqs: &Client) {
    let url = fifo_queue(sqs, &[]).await;
    for body in ["1", "2", "3"] {
        send_to_group(sqs, &url, "g", body).await;
    }
    for body in ["1", "2", "3"] {
        let message = receive(sqs, &url, 1).await.remove(0);
        assert_eq!(message.body(), Some(body));
        delete(sqs, &url, &message).await;
    }
}

pub async fn a_message_in_flight_holds_its_group_back(sqs: &Client) {
    let url = fifo_queue(sqs, &[]).await;
    send_to_group(sqs, &url, "g", "1").await;
    send_to_group(sqs, &url, "g", "2").await;
    let first = receive(sqs, &url, 1).await.remove(0);
    assert!(receive(sqs, &url, 10).await.is_empty());
    delete(sqs, &url, &first).await;
    assert_eq!(bodies(&receive(sqs, &url, 10).await), ["2"]);
}

pub async fn one_receive_takes_several_of_a_group_in_order(sqs: &Client) {
    let url = fifo_queue(sqs, &[]).await;
    for (group, body) in [("a", "a1"), ("b", "b1"), ("a", "a2"), ("b", "b2"), ("a", "a3")] {
        send_to_group(sqs, &url, group, body).await;
    }
    // As many of one group as there are, then the next group.
    assert_eq!(bodies(&receive(sqs, &url, 4).await), ["a1", "a2", "a3", "b1"]);
    assert!(receive(sqs, &url, 10).await.is_empty());
}

pub async fn a_group_in_flight_does_not_hold_others_back(sqs: &Client) {
    let url = fifo_queue(sqs, &[]).await;
    send_to_group(sqs, &url, "a", "a1").await;
    receive(sqs, &url, 1).await;
    send_to_group(sqs, &url, "a", "a2").await;
    send_to_group(sqs, &url, "b", "b1").await;
    assert_eq!(bodies(&receive(sqs, &url, 10).await), ["b1"]);
}

pub async fn a_group_opens_when_its_message_is_given_up_or_times_out(sqs: &Client) {
    let url = fifo_queue(sqs, &[("VisibilityTimeout", "5")]).await;
    send_to_group(sqs, &url, "g", "1").await;
    send_to_group(sqs, &url, "g", "2").await;
    let first = receive(sqs, &url, 1).await.remove(0);
    hide(sqs, &url, &first, 0).await;
    assert_eq!(bodies(&receive(sqs, &url, 1).await), ["1"]);
    seconds(5).await;
    assert_eq!(bodies(&receive(sqs, &url, 10).await), ["1", "2"]);
}

pub async fn a_message_behind_one_in_flight_waits_after_its_own_time_out(sqs: &Client) {
    let url = fifo_queue(sqs, &[("VisibilityTimeout", "5")]).await;
    for body in ["1", "2", "3"] {
        send_to_group(sqs, &url, "g", body).await;
    }
    let taken: Vec<Message> = receive(sqs, &url, 2).await;
    hide(sqs, &url, &taken[0], 20).await;
    seconds(10).await;
    // 2 is visible and 3 was never taken, but 1 is in flight.
    assert!(receive(sqs, &url, 10).await.is_empty());
    delete(sqs, &url, &taken[0]).await;
    assert_eq!(bodies(&receive(sqs, &url, 10).await), ["2", "3"]);
}

pub async fn deleting_the_head_wakes_a_long_poll(sqs: &Client) {
    let url = fifo_queue(sqs, &[]).await;
    send_to_group(sqs, &url, "g", "1").await;
    send_to_group(sqs, &url, "g", "2").await;
    let first = receive(sqs, &url, 1).await.remove(0);
    let started = Instant::now();
    let worker = async {
        seconds(2).await;
        delete(sqs, &url, &first).await;
    };
    let (received, ()) = tokio::join!(poll(sqs, &url, 20), worker);
    assert_eq!(received, ["2"]);
    assert_eq!(started.elapsed().as_secs(), 2);
}

pub async fn the_same_deduplication_id_is_taken_once_in_five_minutes(sqs: &Client) {
    let url = fifo_queue(sqs, &[]).await;
    let request = |body: &str| sqs.send_message().queue_url(&url).message_body(body).message_deduplication_id("d");
    let first = request("one").message_group_id("g").send().await.unwrap();
    seconds(200).await;
    let second = request("two").message_group_id("h").send().await.unwrap();
    assert_eq!(second.message_id(), first.message_id());
    assert_eq!(second.sequence_number(), first.sequence_number());
    // The interval counts from the first, not from the duplicate.
    seconds(101).await;
    request("three").message_group_id("h").send().await.unwrap();
    assert_eq!(bodies(&receive(sqs, &url, 10).await), ["one", "three"]);
}

pub async fn deduplication_outlives_the_message(sqs: &Client) {
    let url = fifo_queue(sqs, &[]).await;
    send_to_group(sqs, &url, "g", "x").await;
    let message = receive(sqs, &url, 1).await.remove(0);
    delete(sqs, &url, &message).await;
    send_to_group(sqs, &url, "g", "x").await;
    assert!(receive(sqs, &url, 10).await.is_empty());
    seconds(301).await;
    send_to_group(sqs, &url, "g", "x").await;
    assert_eq!(receive(sqs, &url, 10).await.len(), 1);
}

pub async fn content_stands_in_for_the_deduplication_id(sqs: &Client) {
    let url = fifo_queue(sqs, &[("ContentBasedDeduplication", "true")]).await;
    let request = |body: &str| sqs.send_message().queue_url(&url).message_body(body).message_group_id("g");
    request("abc").send().await.unwrap();
    request("abc").send().await.unwrap();
    request("abcd").send().await.unwrap();
    // An id of one's own overrides the content's; one that equals the content's digest (FIPS 180-2, B.1) is the same.
    request("abc").message_deduplication_id("own").send().await.unwrap();
    let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    request("other").message_deduplication_id(digest).send().await.unwrap();
    let messages = receive(sqs, &url, 10).await;
    assert_eq!(bodies(&messages), ["abc", "abcd", "abc"]);
    assert_eq!(system(&messages[0], "MessageDeduplicationId"), digest);
    assert_eq!(system(&messages[2], "MessageDeduplicationId"), "own");
}

pub async fn deduplication_can_count_by_group(sqs: &Client) {
    let url = fifo_queue(sqs, &[("DeduplicationScope", "messageGroup")]).await;
    let request =
        |group: &str| sqs.send_message().queue_url(&url).message_group_id(group).message_deduplication_id("d");
    for (group, body) in [("a", "a1"), ("b", "b1"), ("a", "a2")] {
        request(group).message_body(body).send().await.unwrap();
    }
    assert_eq!(bodies(&receive(sqs, &url, 10).await), ["a1", "b1"]);
}

pub async fn a_group_id_and_a_deduplication_id_are_required(sqs: &Client) {
    let url = fifo_queue(sqs, &[]).await;
    let request = || sqs.send_message().queue_url(&url).message_body("x");
    assert_eq!(code(request().message_deduplication_id("d").send().await), "MissingParameter");
    assert_eq!(code(request().message_group_id("g").send().await), "InvalidParameterValue");
    for bad in [" ", "é", "", &"x".repeat(129)] {
        let refused = request().message_group_id(bad).message_deduplication_id("d").send().await;
        assert_eq!(code(refused), "InvalidParameterValue", "{bad}");
        let refused = request().message_group_id("g").message_deduplication_id(bad).send().await;
        assert_eq!(code(refused), "InvalidParameterValue", "{bad}");
    }
}

pub async fn a_message_takes_no_delay_of_its_own(sqs: &Client) {
    let url = fifo_queue(sqs, &[("DelaySeconds", "5")]).await;
    let request = sqs.send_message().queue_url(&url).message_body("x").message_group_id("g");
    let request = request.message_deduplication_id("d");
    assert_eq!(code(request.clone().delay_seconds(1).send().await), "InvalidParameterValue");
    request.send().await.unwrap();
    assert!(receive(sqs, &url, 1).await.is_empty());
    seconds(5).await;
    assert_eq!(receive(sqs, &url, 1).await.len(), 1);
}

pub async fn a_new_queue_delay_holds_for_waiting_messages(sqs: &Client) {
    let url = fifo_queue(sqs, &[("DelaySeconds", "100")]).await;
    send_to_group(sqs, &url, "g", "x").await;
    set(sqs, &url, "DelaySeconds", "5").await;
    seconds(5).await;
    assert_eq!(receive(sqs, &url, 1).await.len(), 1);
}

pub async fn an_expired_receipt_handle_deletes_nothing_and_says_so(sqs: &Client) {
    let url = fifo_queue(sqs, &[("VisibilityTimeout", "5")]).await;
    send_to_group(sqs, &url, "g", "x").await;
    let message = receive(sqs, &url, 1).await.remove(0);
    seconds(5).await;
    let late = sqs.delete_message().queue_url(&url).receipt_handle(handle(&message)).send().await;
    assert_eq!(code(late), "InvalidParameterValue");
    assert_eq!(receive(sqs, &url, 1).await.len(), 1);
}

pub async fn sequence_numbers_grow(sqs: &Client) {
    let url = fifo_queue(sqs, &[]).await;
    let mut numbers = Vec::new();
    for body in ["1", "2"] {
        let request = sqs.send_message().queue_url(&url).message_body(body).message_group_id("g");
        let sent = request.message_deduplication_id(body).send().await.unwrap();
        numbers.push(sent.sequence_number.unwrap());
    }
    // 20 digits, so the order of texts is the order of numbers.
    assert!(numbers[0].len() == 20 && numbers[0] < numbers[1], "{numbers:?}");
    let messages = receive(sqs, &url, 10).await;
    assert_eq!(system(&messages[1], "SequenceNumber"), numbers[1]);
    assert_eq!(system(&messages[1], "MessageGroupId"), "g");
}
