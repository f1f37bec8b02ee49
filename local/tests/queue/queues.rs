//! Queues and their attributes. Facts: API reference of CreateQueue, DeleteQueue, PurgeQueue, SetQueueAttributes.

use crate::kit::*;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::QueueAttributeName as Name;

pub async fn creating_a_queue_twice_gives_the_same_url(sqs: &Client) {
    let name = unused_name("twice");
    let first = create(sqs, &name, &[("VisibilityTimeout", "45")]).await;
    assert_eq!(create(sqs, &name, &[("VisibilityTimeout", "45")]).await, first);
    assert_eq!(create(sqs, &name, &[]).await, first);
    let found = sqs.get_queue_url().queue_name(&name).send().await.unwrap();
    assert_eq!(found.queue_url.unwrap(), first);
}

pub async fn creating_a_queue_with_other_attributes_is_refused(sqs: &Client) {
    let name = unused_name("other");
    create(sqs, &name, &[("VisibilityTimeout", "45")]).await;
    let again = sqs.create_queue().queue_name(&name).attributes(Name::VisibilityTimeout, "46").send().await;
    assert!(again.as_ref().unwrap_err().as_service_error().unwrap().is_queue_name_exists());
    assert_eq!(code(again), "QueueAlreadyExists");
}

pub async fn a_fifo_queue_must_be_named_so(sqs: &Client) {
    let name = unused_name("order");
    let fifo = sqs.create_queue().queue_name(&name).attributes(Name::FifoQueue, "true").send().await;
    assert_eq!(code(fifo), "InvalidParameterValue");
    let standard = sqs.create_queue().queue_name(format!("{name}.fifo")).send().await;
    assert_eq!(code(standard), "InvalidParameterValue");
    for bad in ["", "white space", &"x".repeat(81)] {
        assert_eq!(code(sqs.create_queue().queue_name(bad).send().await), "InvalidParameterValue", "{bad}");
    }
}

pub async fn a_name_rests_for_a_minute_after_its_queue_is_deleted(sqs: &Client) {
    let name = unused_name("rest");
    let url = create(sqs, &name, &[]).await;
    sqs.delete_queue().queue_url(&url).send().await.unwrap();
    let early = sqs.create_queue().queue_name(&name).send().await;
    assert!(early.unwrap_err().as_service_error().unwrap().is_queue_deleted_recently());
    seconds(60).await;
    create(sqs, &name, &[]).await;
}

pub async fn a_missing_queue_is_reported_as_such_by_every_operation(sqs: &Client) {
    let url = format!("http://sqs.local/000000000000/{}", unused_name("missing"));
    let expected = "AWS.SimpleQueueService.NonExistentQueue";
    let sent = sqs.send_message().queue_url(&url).message_body("x").send().await;
    assert!(sent.as_ref().unwrap_err().as_service_error().unwrap().is_queue_does_not_exist());
    assert_eq!(code(sent), expected);
    assert_eq!(code(sqs.receive_message().queue_url(&url).wait_time_seconds(20).send().await), expected);
    assert_eq!(code(sqs.delete_message().queue_url(&url).receipt_handle("x").send().await), expected);
    assert_eq!(code(sqs.get_queue_attributes().queue_url(&url).send().await), expected);
    assert_eq!(code(sqs.purge_queue().queue_url(&url).send().await), expected);
    assert_eq!(code(sqs.delete_queue().queue_url(&url).send().await), expected);
    assert_eq!(code(sqs.get_queue_url().queue_name("nobody").send().await), expected);
}

pub async fn queues_are_listed_by_prefix_in_pages(sqs: &Client) {
    let prefix = unused_name("list");
    for letter in ["c", "a", "b"] {
        create(sqs, &format!("{prefix}-{letter}"), &[]).await;
    }
    let first = sqs.list_queues().queue_name_prefix(&prefix).max_results(2).send().await.unwrap();
    let second = sqs.list_queues().queue_name_prefix(&prefix).max_results(2);
    let second = second.next_token(first.next_token().unwrap()).send().await.unwrap();
    let urls = [first.queue_urls(), second.queue_urls()].concat();
    let ends: Vec<&str> = urls.iter().map(|url| &url[url.len() - 1..]).collect();
    assert_eq!(ends, ["a", "b", "c"]);
    assert_eq!(second.next_token(), None);
}

pub async fn attributes_read_back_as_they_were_set(sqs: &Client) {
    let name = format!("{}.fifo", unused_name("set"));
    let url = create(sqs, &name, &[("FifoQueue", "true"), ("MessageRetentionPeriod", "600")]).await;
    set(sqs, &url, "ContentBasedDeduplication", "true").await;
    set(sqs, &url, "ReceiveMessageWaitTimeSeconds", "20").await;
    let all = sqs.get_queue_attributes().queue_url(&url).attribute_names(Name::All).send().await.unwrap();
    let all = all.attributes.unwrap();
    assert_eq!(all[&Name::FifoQueue], "true");
    assert_eq!(all[&Name::ContentBasedDeduplication], "true");
    assert_eq!(all[&Name::MessageRetentionPeriod], "600");
    assert_eq!(all[&Name::ReceiveMessageWaitTimeSeconds], "20");
    // Defaults of CreateQueue.
    assert_eq!(all[&Name::VisibilityTimeout], "30");
    assert_eq!(all[&Name::DelaySeconds], "0");
    assert_eq!(all[&Name::MaximumMessageSize], "1048576");
    assert!(all[&Name::QueueArn].ends_with(&format!(":{name}")));
    assert_eq!(attribute(sqs, &url, "RedrivePolicy").await, None);
}

pub async fn attributes_out_of_range_are_refused_and_change_nothing(sqs: &Client) {
    let url = standard_queue(sqs, &[]).await;
    let bad = [
        (Name::VisibilityTimeout, "43201"),
        (Name::DelaySeconds, "901"),
        (Name::MessageRetentionPeriod, "59"),
        (Name::ReceiveMessageWaitTimeSeconds, "21"),
        (Name::MaximumMessageSize, "1023"),
        (Name::VisibilityTimeout, "soon"),
    ];
    for (name, value) in bad {
        let request = sqs.set_queue_attributes().queue_url(&url).attributes(name.clone(), value);
        let refused = request.attributes(Name::Policy, "{}").send().await;
        assert_eq!(code(refused), "InvalidAttributeValue", "{name:?}");
    }
    assert_eq!(attribute(sqs, &url, "Policy").await, None);
    let unknown = sqs.set_queue_attributes().queue_url(&url).attributes(Name::from("Colour"), "red").send().await;
    assert_eq!(code(unknown), "InvalidAttributeName");
    let unknown = sqs.get_queue_attributes().queue_url(&url).attribute_names(Name::from("Colour")).send().await;
    assert_eq!(code(unknown), "InvalidAttributeName");
}

pub async fn counts_follow_messages_through_their_states(sqs: &Client) {
    let url = standard_queue(sqs, &[]).await;
    send(sqs, &url, "one").await;
    send(sqs, &url, "two").await;
    sqs.send_message().queue_url(&url).message_body("later").delay_seconds(100).send().await.unwrap();
    receive(sqs, &url, 1).await;
    let names =
        ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed"];
    let mut counts = Vec::new();
    for name in names {
        counts.push(attribute(sqs, &url, name).await.unwrap());
    }
    assert_eq!(counts, ["1", "1", "1"]);
}

pub async fn a_purge_deletes_everything_and_is_not_repeated_within_a_minute(sqs: &Client) {
    let url = standard_queue(sqs, &[("VisibilityTimeout", "1")]).await;
    send(sqs, &url, "in flight").await;
    receive(sqs, &url, 1).await;
    send(sqs, &url, "visible").await;
    sqs.purge_queue().queue_url(&url).send().await.unwrap();
    seconds(2).await;
    assert!(receive(sqs, &url, 10).await.is_empty());
    let again = sqs.purge_queue().queue_url(&url).send().await;
    assert!(again.unwrap_err().as_service_error().unwrap().is_purge_queue_in_progress());
    seconds(60).await;
    sqs.purge_queue().queue_url(&url).send().await.unwrap();
}

pub async fn tags_are_kept(sqs: &Client) {
    let name = unused_name("tags");
    let made = sqs.create_queue().queue_name(&name).tags("team", "a").send().await.unwrap();
    let url = made.queue_url.unwrap();
    sqs.tag_queue().queue_url(&url).tags("stage", "test").send().await.unwrap();
    sqs.untag_queue().queue_url(&url).tag_keys("team").send().await.unwrap();
    let tags = sqs.list_queue_tags().queue_url(&url).send().await.unwrap().tags.unwrap();
    assert_eq!(tags.into_iter().collect::<Vec<_>>(), [("stage".to_owned(), "test".to_owned())]);
}

pub async fn only_the_last_segment_of_a_url_names_the_queue(sqs: &Client) {
    let url = standard_queue(sqs, &[]).await;
    let name = url.rsplit('/').next().unwrap();
    let other_host = format!("http://127.0.0.1:4566/000000000000/{name}");
    send(sqs, &other_host, "x").await;
    assert_eq!(bodies(&receive(sqs, &url, 1).await), ["x"]);
}
