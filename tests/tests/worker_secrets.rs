//! No secret is logged or shown: one log for both tests, since a process has one subscriber.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use aws_sdk_dynamodb::types::AttributeValue;
use leasehold::decide::outcome::End;
use leasehold_local::faults::Fault;
use leasehold_tests::cluster::{Cluster, eventually, map, pass_ms, s};
use leasehold_tests::connector::{Answer, Script};
use leasehold_tests::log::Log;
use leasehold_worker::connector::{Connector, Frame, NetConnector, Open};
use std::sync::Arc;

fn text(text: &str) -> Frame {
    Frame::Text(text.to_owned())
}

fn is_message_write(operation: &str) -> bool {
    matches!(operation, "PutItem" | "TransactWriteItems")
}

/// Query values, header values and message bodies may be secrets: none of them is logged, or shown on the row.
#[tokio::test(start_paused = true)]
async fn logs_and_reasons_show_no_secret() {
    let log = Log::of_this_process();
    let cluster = Cluster::new().await;
    let worker = cluster.worker("w");
    let attributes = [
        ("ws_url", s("wss://user:SECRET1@feed.example/a?token=SECRET2")),
        ("headers", map(&[("authorization", "Bearer SECRET3")])),
        ("on_open", AttributeValue::L(vec![s("{\"login\":\"SECRET4\"}")])),
        ("sequence_pointer", s("/seq")),
        ("resume", map(&[("header", "x-from: SECRET5{last_seq}")])),
    ];
    let answers = [
        Answer::Refuse(End::Failed("connection refused".into())),
        Answer::AcceptThenClose(1011),
        Answer::Accept,
        Answer::Refuse(End::Status { status: 403, retry_after_ms: None }),
        Answer::Accept,
    ];
    cluster.upstreams.script("a", Script { answers: answers.to_vec(), ..Script::default() });
    cluster.start_with("a", &attributes).await;
    eventually("it is open", 30_000, async || cluster.upstreams.open_now("a") == 1).await;
    cluster.upstreams.send("a", &text("SECRET6 is not json"));
    cluster.upstreams.publish("a", 1..=3);
    pass_ms(100).await;
    worker.break_with(|call| is_message_write(call.operation).then_some(Fault::Http500));
    cluster.upstreams.send("a", &text("{\"seq\":4,\"x\":\"SECRET7\"}"));
    pass_ms(3_000).await;
    worker.repair();
    cluster.upstreams.send("a", &Frame::Close(Some(1012)));
    pass_ms(30_000).await;
    cluster.change("a", "headers", Some(map(&[("authorization", "SECRET8\u{7}")]))).await;
    pass_ms(10_000).await;
    cluster.change("a", "ws_url", Some(s("http://user:SECRET9@feed.example/?SECRET10"))).await;
    cluster.change("a", "headers", None).await;
    pass_ms(10_000).await;
    let reason = cluster.row("a").await.reason.unwrap_or_default();
    assert!(reason.starts_with("ws_url is of scheme"), "{reason}");
    assert!(!reason.contains("SECRET"), "{reason}");
    worker.terminate();
    worker.ended().await.unwrap();
    let logged = log.text();
    for event in ["acquired", "backoff", "parked", "spec_changed", "message_without_number", "session_ended"] {
        assert!(logged.contains(event), "{event} is logged");
    }
    let leaks: Vec<&str> = logged.lines().filter(|line| line.contains("SECRET")).collect();
    assert!(leaks.is_empty(), "{leaks:#?}");
}

/// The same for the real connector, whose libraries see the request.
#[tokio::test]
async fn the_real_connector_logs_no_secret() {
    let log = Log::of_this_process();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        for answer in ["HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n", "nonsense\r\n\r\n", ""] {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    let connector = NetConnector::new(Arc::new(leasehold::clock::SystemClock));
    let open = |header: &str| Open {
        url: url::Url::parse(&format!("ws://user:SECRET@{address}/x?token=SECRET")).unwrap(),
        headers: vec![("authorization".into(), header.into())],
        subprotocols: vec![],
        max_message_bytes: 1024,
    };
    let mut ends = Vec::new();
    for header in ["SECRET", "SECRET", "SECRET", "SECRET\u{7}"] {
        match connector.open(open(header)).await {
            Ok(_) => panic!("nothing was opened"),
            Err(end) => ends.push(end),
        }
    }
    server.await.unwrap();
    ends.extend(connector.open(open("SECRET")).await.err());
    assert_eq!(ends.len(), 5);
    assert_eq!(ends[0], End::Status { status: 401, retry_after_ms: None });
    let told = format!("{ends:?} {}", log.text());
    assert!(!told.contains("SECRET"), "{told}");
}
