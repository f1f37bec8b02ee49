//! What the sockets deliver is stored once, whole and in order.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use aws_sdk_dynamodb::types::AttributeValue;
use leasehold::decide::outcome::End;
use leasehold_local::faults::Fault;
use leasehold_tests::cluster::{Cluster, eventually, map, numbered, pass_ms, s};
use leasehold_tests::connector::{Script, What};
use leasehold_worker::connector::Frame;

fn text(text: &str) -> Frame {
    Frame::Text(text.to_owned())
}

async fn bodies(cluster: &Cluster, id: &str) -> Vec<String> {
    let messages = cluster.messages(id).await;
    messages.into_iter().map(|(_, _, body)| String::from_utf8_lossy(&body).into_owned()).collect()
}

fn is_message_write(operation: &str) -> bool {
    matches!(operation, "PutItem" | "TransactWriteItems")
}

#[tokio::test(start_paused = true)]
async fn a_message_without_a_number_is_stored_behind_the_one_before_it_and_counted() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker("w");
    cluster.connected_with("a", &numbered()).await;
    let sent = ["{\"seq\":7}", "not json", "{\"seq\":-1}", "{\"other\":1}", "", "{\"seq\":\"8\"}", "{\"seq\":8.5}"];
    for body in sent {
        cluster.upstreams.send("a", &text(body));
    }
    cluster.upstreams.send("a", &Frame::Binary(b"{\"seq\":9}".to_vec()));
    eventually("all are stored", 2_000, async || cluster.messages("a").await.len() == 8).await;
    let stored: Vec<(u64, bool, String)> = cluster
        .messages("a")
        .await
        .into_iter()
        .map(|(key, _, body)| (key.seq, key.sub == 0, String::from_utf8(body).unwrap()))
        .collect();
    let places = [(7, true), (7, false), (7, false), (7, false), (7, false), (8, true), (8, false)];
    let expected = places.into_iter().zip(sent);
    let mut expected: Vec<_> = expected.map(|((seq, numbered), body)| (seq, numbered, body.to_owned())).collect();
    expected.push((9, true, "{\"seq\":9}".to_owned()));
    assert_eq!(stored, expected);
    assert_eq!(worker.count("messages_without_number"), 5);
}

/// DynamoDB quotas: an item has 400 KB at most.
#[tokio::test(start_paused = true)]
async fn a_message_over_400_kb_is_stored_in_parts_and_whole() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker("w");
    cluster.connected("a").await;
    let large: String = (0..1_000_000_u32).map(|n| char::from(b'a' + u8::try_from(n % 23).unwrap())).collect();
    let largest = vec![7_u8; 3 << 20];
    cluster.upstreams.send("a", &text("before"));
    cluster.upstreams.send("a", &Frame::Text(large.clone()));
    cluster.upstreams.send("a", &text("after"));
    cluster.upstreams.send("a", &Frame::Binary(largest.clone()));
    eventually("all are stored", 5_000, async || worker.count("messages_stored") == 4).await;
    let messages = cluster.messages("a").await;
    let whole = |seq: u64| -> Vec<u8> {
        let parts = messages.iter().filter(|(key, ..)| key.seq == seq);
        parts.flat_map(|(_, _, body)| body.clone()).collect()
    };
    assert_eq!(whole(2), large.into_bytes());
    assert_eq!(whole(4), largest);
    assert_eq!((whole(1), whole(3)), (b"before".to_vec(), b"after".to_vec()));
    assert_eq!(messages.iter().filter(|(key, ..)| key.seq == 2).count(), 3);
}

#[tokio::test(start_paused = true)]
async fn query_header_and_on_open_message_carry_the_resume_point() {
    let cluster = Cluster::new().await;
    let _worker = cluster.worker("w");
    let resume =
        [("query", "from={last_seq}&x=1"), ("header", "x-from: {last_seq}"), ("on_open", "{\"resume\":{last_seq}}")];
    let attributes = [
        ("sequence_pointer", s("/seq")),
        ("resume", map(&resume)),
        ("ws_url", s("wss://feed.example/a?key=1")),
        ("on_open", AttributeValue::L(vec![s("hello"), s("subscribe")])),
    ];
    cluster.connected_with("a", &attributes).await;
    let texts = |from: usize| -> Vec<String> {
        let events = cluster.upstreams.events("a", |what| matches!(what, What::Text(_)));
        events
            .into_iter()
            .skip(from)
            .map(|event| if let What::Text(text) = event.what { text } else { panic!() })
            .collect()
    };
    let attempt = |number: usize| {
        let events = cluster.upstreams.events("a", |what| matches!(what, What::Attempt { .. }));
        match events[number].what.clone() {
            What::Attempt { query, headers } => (query, headers),
            other => panic!("{other:?}"),
        }
    };
    eventually("it greets", 100, async || texts(0).len() == 2).await;
    assert_eq!(attempt(0), ("key=1".to_owned(), vec![]), "no resume point, no template");
    assert_eq!(texts(0), ["hello", "subscribe"]);
    cluster.upstreams.publish("a", 1..=12);
    pass_ms(100).await;
    cluster.upstreams.end("a", &End::Failed("reset".into()));
    eventually("it is opened again", 2_000, async || texts(0).len() == 5).await;
    assert_eq!(attempt(1), ("key=1&from=12&x=1".to_owned(), vec![("x-from".to_owned(), "12".to_owned())]));
    assert_eq!(texts(2), ["hello", "subscribe", "{\"resume\":12}"]);
}

/// An upstream that repeats some messages before the resume point, or all of them.
#[tokio::test(start_paused = true)]
async fn an_overlapping_replay_stores_nothing_twice() {
    for overlap in [0, 1, 3, 1_000] {
        let cluster = Cluster::new().await;
        let worker = cluster.worker("w");
        cluster.upstreams.script("a", Script { replay: Some(overlap), ..Script::default() });
        cluster.connected_with("a", &numbered()).await;
        cluster.upstreams.publish("a", 1..=10);
        pass_ms(100).await;
        cluster.upstreams.end("a", &End::Failed("reset".into()));
        eventually("it is opened again", 2_000, async || cluster.upstreams.opens("a").len() == 2).await;
        cluster.upstreams.publish("a", 11..=15);
        eventually("all are stored", 2_000, async || cluster.numbers("a").await.len() >= 15).await;
        pass_ms(500).await;
        assert_eq!(cluster.numbers("a").await, (1..=15).collect::<Vec<_>>(), "overlap {overlap}");
        assert_eq!(worker.count("messages_repeated"), overlap.min(10));
        assert_eq!(worker.count("sequence_resets"), 0);
    }
}

/// coinbase-pro-trading-toolkit #39: a snapshot numbered 1 after 4118596218 made a reconnect loop.
#[tokio::test(start_paused = true)]
async fn numbers_that_begin_anew_begin_a_series_and_no_loop() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker("w");
    cluster.connected_with("a", &numbered()).await;
    cluster.upstreams.publish("a", 4_118_596_216..=4_118_596_218);
    pass_ms(100).await;
    // On the same socket, and after a reconnect.
    cluster.upstreams.publish("a", 1..=3);
    pass_ms(100).await;
    cluster.upstreams.end("a", &End::Failed("reset".into()));
    eventually("it is opened again", 2_000, async || cluster.upstreams.opens("a").len() == 2).await;
    for number in 1..=2 {
        cluster.upstreams.send("a", &Frame::Text(format!("{{\"seq\":{number},\"new\":true}}")));
    }
    eventually("all are stored", 2_000, async || cluster.messages("a").await.len() == 8).await;
    let expected = [4_118_596_216, 4_118_596_217, 4_118_596_218, 1, 2, 3, 1, 2];
    assert_eq!(cluster.numbers("a").await, expected);
    assert_eq!(worker.count("sequence_resets"), 2, "on one socket, and after a reconnect");
    assert_eq!(cluster.upstreams.attempts("a"), 2);
}

/// An upstream without numbers: every owner, and every spec, counts under a series of its own.
#[tokio::test(start_paused = true)]
async fn without_numbers_nothing_is_overwritten_by_reconnects_and_failovers() {
    let cluster = Cluster::new().await;
    let old = cluster.worker("old");
    cluster.connected("a").await;
    let mut sent = 0;
    for round in 0..3 {
        for _ in 0..4 {
            sent += 1;
            cluster.upstreams.send("a", &Frame::Text(format!("m{sent:03}")));
        }
        pass_ms(100).await;
        if round < 2 {
            cluster.upstreams.end("a", &End::Failed("reset".into()));
            eventually("it is opened again", 2_000, async || cluster.upstreams.opens("a").len() == round + 2).await;
        }
    }
    let _new = cluster.worker("new");
    pass_ms(1_000).await;
    old.terminate();
    eventually("another owns it", 2_000, async || cluster.upstreams.opens("a").len() == 4).await;
    for _ in 0..4 {
        sent += 1;
        cluster.upstreams.send("a", &Frame::Text(format!("m{sent:03}")));
    }
    eventually("all are stored", 2_000, async || cluster.messages("a").await.len() == sent).await;
    assert_eq!(bodies(&cluster, "a").await, (1..=sent).map(|n| format!("m{n:03}")).collect::<Vec<_>>(), "in order");
}

/// The sink stalls for a minute. Memory stays bounded, then reading stops; nothing that was accepted is lost.
#[tokio::test(start_paused = true)]
async fn a_sink_that_stalls_stops_the_reading_and_loses_nothing() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker_with("w", |settings| settings.buffer_messages = 50);
    cluster.upstreams.script("a", Script { replay: Some(0), ..Script::default() });
    cluster.connected_with("a", &numbered()).await;
    worker.break_with(|call| {
        is_message_write(call.operation).then_some(Fault::Throttle("ProvisionedThroughputExceededException"))
    });
    for batch in 0..60 {
        cluster.upstreams.publish("a", batch * 20 + 1..=batch * 20 + 20);
        pass_ms(1_000).await;
    }
    assert!(worker.count("messages_received") <= 152, "{} were read", worker.count("messages_received"));
    assert_eq!(cluster.session(&worker).await.held, 1, "renewals go on");
    worker.repair();
    eventually("all are stored", 60_000, async || cluster.numbers("a").await.len() >= 1_200).await;
    assert_eq!(cluster.numbers("a").await, (1..=1_200).collect::<Vec<_>>());
}

/// Answers of writes are lost, and writes land late: what is stored is the same.
#[tokio::test(start_paused = true)]
async fn writes_whose_answers_are_lost_store_each_message_once_and_in_order() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker("w");
    cluster.connected_with("a", &numbered()).await;
    worker.break_with(|call| match call.number % 3 {
        _ if !is_message_write(call.operation) => None,
        0 => Some(Fault::LostAfter),
        1 => Some(Fault::Http500),
        _ => None,
    });
    for number in 1..=200 {
        cluster.upstreams.publish("a", [number]);
        pass_ms(3).await;
    }
    eventually("all are stored", 60_000, async || cluster.numbers("a").await.len() >= 200).await;
    assert_eq!(cluster.numbers("a").await, (1..=200).collect::<Vec<_>>());
}

/// `last_seq` never runs ahead of what is stored.
#[tokio::test(start_paused = true)]
async fn the_checkpoint_follows_what_is_stored_and_nothing_else() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker_with("w", |settings| settings.checkpoint_interval_ms = 10_000);
    cluster.connected_with("a", &numbered()).await;
    cluster.upstreams.publish("a", 1..=10);
    pass_ms(11_000).await;
    assert_eq!(cluster.row("a").await.progress.last_seq, Some(10));
    worker.break_with(|call| is_message_write(call.operation).then_some(Fault::Http500));
    cluster.upstreams.publish("a", 11..=20);
    pass_ms(30_000).await;
    assert_eq!(cluster.row("a").await.progress.last_seq, Some(10));
    worker.repair();
    eventually("it follows", 50_000, async || cluster.row("a").await.progress.last_seq == Some(20)).await;
    // An hour of messages costs a checkpoint each 10 s at most.
    let before = cluster.row_writes("a").len();
    for number in 21..=80 {
        cluster.upstreams.publish("a", [number]);
        pass_ms(1_000).await;
    }
    assert!(cluster.row_writes("a").len() - before <= 7);
}

/// Promise 4: a message that the sink acknowledged is never lost, not even one without a number that each socket begins with.
#[tokio::test(start_paused = true)]
async fn a_greeting_of_the_next_socket_overwrites_nothing() {
    let cluster = Cluster::new().await;
    let _worker = cluster.worker("w");
    cluster.connected_with("a", &numbered()).await;
    cluster.upstreams.publish("a", 1..=3);
    for socket in 2..=4 {
        cluster.upstreams.end("a", &End::Failed("reset".into()));
        eventually("it is opened again", 4_000, async || cluster.upstreams.opens("a").len() == socket).await;
        cluster.upstreams.send("a", &Frame::Text(format!("welcome to socket {socket}")));
        pass_ms(100).await;
    }
    let mut expected: Vec<String> = (1..=3).map(|number| format!("{{\"seq\":{number}}}")).collect();
    expected.extend((2..=4).map(|socket| format!("welcome to socket {socket}")));
    assert_eq!(bodies(&cluster, "a").await, expected);
}

/// The smallest buffer that can be set takes the largest message that can be received.
#[tokio::test(start_paused = true)]
async fn a_message_larger_than_the_buffer_is_stored() {
    let cluster = Cluster::new().await;
    let worker = cluster.worker_with("w", |settings| settings.buffer_bytes = 1 << 20);
    cluster.connected("a").await;
    cluster.upstreams.send("a", &Frame::Binary(vec![7; 3 << 20]));
    cluster.upstreams.send("a", &text("after"));
    eventually("both are stored", 2_000, async || worker.count("messages_stored") == 2).await;
}

/// The same over failovers; and a replay of messages without numbers behind the resume point is no new message.
#[tokio::test(start_paused = true)]
async fn messages_without_numbers_survive_failovers_and_their_replay_is_recognised() {
    let cluster = Cluster::new().await;
    let mut owner = cluster.worker("w1");
    cluster.connected_with("a", &numbered()).await;
    let all = ["{\"seq\":1}", "status: open", "status: busy"];
    for body in all {
        cluster.upstreams.send("a", &text(body));
    }
    for number in 2..=3 {
        let next = cluster.worker(&format!("w{number}"));
        pass_ms(1_000).await;
        owner.terminate();
        owner = next;
        eventually("the next one owns it", 3_000, async || cluster.upstreams.opens("a").len() == number).await;
        // It repeats what comes after number 1, then something new that the old owner never saw.
        for body in &all[1..] {
            cluster.upstreams.send("a", &text(body));
        }
        cluster.upstreams.send("a", &Frame::Text(format!("hello w{number}")));
        pass_ms(500).await;
    }
    let stored = bodies(&cluster, "a").await;
    assert_eq!(stored[..4], ["{\"seq\":1}", "status: open", "status: busy", "hello w2"]);
    assert_eq!(stored.last().unwrap(), "hello w3");
    assert_eq!(stored.len(), 5);
}
