//! The real binary against a real engine: what it writes, prints and answers with.
#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

mod kit;

use aws_sdk_dynamodb::types::AttributeValue;
use kit::{World, describe, n, run, s, world};
use leasehold::aws::Tables;
use leasehold::aws::messages::{Body, PART_BYTES, StoredMessage};
use leasehold::aws::sessions::{Identity, Load};
use leasehold::model::{ConnectionId, MessageKey, Series, SessionId};
use serde_json::{Value, json};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};

const URL: &str = "wss://feed.example/v1?token=hush1";

fn id() -> ConnectionId {
    ConnectionId::new("feed-1").unwrap()
}

async fn start(world: &World, more: &[&str]) {
    let mut arguments = vec!["start", "feed-1", "--url", URL];
    arguments.extend(more);
    let ran = world.run(&arguments).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

async fn store_message(world: &World, seq: u64, body: Body) {
    let key = MessageKey { series: Series::from_stored("0000000000000007.0000000000.s.u"), seq, sub: 0 };
    // 2027-01-15T08:00:00Z
    let message = StoredMessage { key, body, received_at_ms: 1_800_000_000_000, expires_at_s: 4_000_000_000 };
    world.store.store_messages(&id(), &[message]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_started_shown_and_stopped() {
    let world = world().await;
    start(&world, &["--sequence-pointer", "/seq", "--resume-query", "from={last_seq}"]).await;
    let row = world.row("feed-1").await;
    assert_eq!(row.len(), 5, "Pk, desired_state, ws_url, resume, sequence_pointer and nothing of the lease: {row:?}");

    let shown = world.json(&["get", "feed-1"]).await;
    assert_eq!((&shown["id"], &shown["desired_state"]), (&json!("feed-1"), &json!("STARTED")));
    assert_eq!((&shown["observed_state"], &shown["error"]), (&json!("PENDING"), &Value::Null));
    assert_eq!(shown["spec"]["resume_query_names"], json!(["from"]));

    let listed = world.run(&["list"]).await;
    assert!(listed.out.starts_with("ID "), "{listed:?}");
    assert!(listed.out.lines().any(|line| line.starts_with("feed-1  STARTED")), "{listed:?}");

    let stopped = world.run(&["stop", "feed-1"]).await;
    assert_eq!((stopped.code, stopped.out.as_str()), (Some(0), "feed-1 is to be STOPPED\n"));
    assert_eq!(world.row("feed-1").await["desired_state"], s("STOPPED"));
    let started = world.json(&["list", "--desired", "started"]).await;
    assert_eq!(started, json!({ "connections": [] }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_of_an_existing_row_keeps_what_is_not_given_and_never_touches_the_lease() {
    let world = world().await;
    let lease = [("lease_owner", s("w1")), ("lease_epoch", n(7)), ("last_seq", n(9)), ("sequence_pointer", s("/seq"))];
    let mut attributes =
        vec![("Pk", s("CONN#feed-1")), ("desired_state", s("STOPPED")), ("ws_url", s("ws://old.example/"))];
    attributes.extend(lease.clone());
    world.put(&world.tables.connections, &attributes).await;

    let ran = world.run(&["start", "feed-1"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let row = world.row("feed-1").await;
    assert_eq!(row["desired_state"], s("STARTED"));
    assert!(!row.contains_key("spec_changed"), "nothing of the spec was given: {row:?}");

    start(&world, &[]).await;
    let row = world.row("feed-1").await;
    assert_eq!(row["ws_url"], s(URL));
    assert!(matches!(&row["spec_changed"], AttributeValue::S(flag) if !flag.is_empty()), "{row:?}");
    for (name, value) in lease {
        assert_eq!(row[name], value, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_workers_would_refuse_is_refused_with_what_belongs_there() {
    let world = world().await;
    let cases: [(&[&str], &str); 5] = [
        (&["--url", "https://a.example/"], "ws_url is of scheme \"https\": it must be a ws:// or wss:// URL"),
        (&["--url", URL, "--resume-query", "from=1"], "resume is without {last_seq} in query"),
        (&["--url", URL, "--sequence-pointer", "seq"], "sequence_pointer is \"seq\": it must be a JSON pointer"),
        (&["--url", URL, "--header", "hush2"], "header 1 has no colon"),
        (
            &["--url", URL, "--header", "a b: hush2"],
            "headers is with a name that is none (it is not shown: it may be a secret)",
        ),
    ];
    for (arguments, message) in cases {
        let ran = world.run(&[&["start", "feed-1"], arguments].concat()).await;
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.err.starts_with(&format!("leasehold: {message}")), "{ran:?}");
        assert!(!ran.err.contains("hush"), "{ran:?}");
    }
    assert!(world.store.connection(&id()).await.unwrap().is_none(), "nothing was written");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_is_said_with_exit_code_1() {
    let world = world().await;
    for command in ["get", "stop", "start", "messages"] {
        let ran = world.run(&[command, "feed-9"]).await;
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{command}");
        assert!(ran.err.starts_with("leasehold: there is no connection feed-9: `leasehold list` shows"), "{ran:?}");
    }
    let ran = world.run(&["get", "feed 9"]).await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn values_of_headers_and_queries_are_never_shown() {
    let world = world().await;
    let more =
        ["--header", "Authorization: hush2", "--on-open", "hush3", "--resume-query", "key=hush4&from={last_seq}"];
    start(&world, &more).await;
    start(&world, &["--resume-header", "X-From: hush5 {last_seq}"]).await;
    for command in [&["get", "feed-1"][..], &["get", "feed-1", "--json"], &["list"], &["list", "--json"]] {
        let ran = world.run(command).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(!ran.out.contains("hush") && !ran.err.contains("hush"), "{ran:?}");
    }
    let shown = world.run(&["get", "feed-1"]).await.out;
    for text in ["wss://feed.example/v1?token=…", "Authorization", "1 messages", "header X-From"] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_row_is_listed_with_its_error_among_the_good_ones() {
    let world = world().await;
    start(&world, &[]).await;
    let table = &world.tables.connections;
    world.put(table, &[("Pk", s("CONN#a\u{1b}[2Jb")), ("desired_state", s("STARTED"))]).await;
    world.put(table, &[("Pk", s("CONN#no-wish")), ("ws_url", s(URL))]).await;
    world.put(table, &[("Pk", s("CONN#no-url")), ("desired_state", s("STARTED"))]).await;
    world.put(table, &[("Pk", s("CONN#odd")), ("desired_state", s("started")), ("ws_url", s(URL))]).await;

    let listed = world.run(&["list"]).await;
    assert_eq!(listed.code, Some(0), "{listed:?}");
    assert!(!listed.out.contains('\u{1b}'), "{listed:?}");
    let row = |start: &str| listed.out.lines().find(|line| line.starts_with(start)).unwrap_or_default();
    assert!(row("feed-1 ").contains("STARTED"), "{listed:?}");
    assert!(row("CONN#no-wish").contains("desired_state is missing: it must be STARTED or STOPPED"), "{listed:?}");
    assert!(row("CONN#a\\u{1b}").contains("is no connection id"), "{listed:?}");
    assert!(row("no-url").contains("ws_url is missing"), "{listed:?}");
    assert!(row("odd").contains("desired_state is \"started\": it must be STARTED or STOPPED"), "{listed:?}");

    let document = world.json(&["list"]).await;
    assert_eq!(document["connections"].as_array().unwrap().len(), 5);
    let ran = world.run(&["get", "no-wish"]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("desired_state is missing"), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_is_whole_beyond_one_page() {
    let world = world().await;
    // A page of a scan has 1 MB ("Scan" in the API reference): these are three.
    let filler = "x".repeat(300_000);
    for index in 0..8 {
        let pk = format!("CONN#c{index}");
        let row = [("Pk", s(&pk)), ("desired_state", s("STOPPED")), ("ws_url", s(URL)), ("note", s(&filler))];
        world.put(&world.tables.connections, &row).await;
    }
    let document = world.json(&["list", "--state", "pending"]).await;
    assert_eq!(document["connections"].as_array().unwrap().len(), 8);
    assert_eq!(document["connections"][7]["id"], "c7");
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_come_in_order_whole_and_without_control_characters() {
    let world = world().await;
    start(&world, &[]).await;
    assert_eq!(world.json(&["messages", "feed-1"]).await, json!({ "messages": [] }));
    // Two parts, cut within a character of two bytes.
    let large = format!("a{}", "ü".repeat(PART_BYTES / 2 + 5));
    store_message(&world, 8, Body::Text("oldest".into())).await;
    store_message(&world, 9, Body::Text(large.clone())).await;
    store_message(&world, 10, Body::Binary(vec![0, 0xff])).await;
    store_message(&world, 11, Body::Text("red \u{1b}[31m\u{9b}2J\nx".into())).await;

    let ran = world.run(&["messages", "feed-1", "--limit", "2"]).await;
    let expected = "series 0000000000000007.0000000000.s.u\n\
                    2027-01-15T08:00:00Z  10  (2 bytes) 00ff\n\
                    2027-01-15T08:00:00Z  11  red \\u{1b}[31m\\u{9b}2J\\nx\n";
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), expected), "{ran:?}");

    let document = world.json(&["messages", "feed-1", "--limit", "3"]).await;
    let messages = document["messages"].as_array().unwrap();
    let numbers: Vec<u64> = messages.iter().filter_map(|message| message["seq"].as_u64()).collect();
    assert_eq!(numbers, [9, 10, 11]);
    assert!(messages[0]["text"] == large && messages[0]["missing_parts"] == 0);
    assert_eq!((&messages[1]["hex"], messages[1].get("text")), (&json!("00ff"), None));
    assert_eq!(messages[2]["text"], "red \u{1b}[31m\u{9b}2J\nx");

    let oldest = world.json(&["messages", "feed-1", "--limit", "1", "--from-start"]).await;
    assert_eq!(oldest["messages"][0]["text"], "oldest");
}

#[tokio::test(flavor = "multi_thread")]
async fn following_shows_each_message_once_and_ctrl_c_ends_it() {
    let world = world().await;
    start(&world, &[]).await;
    store_message(&world, 1, Body::Text("one".into())).await;
    let mut command = kit::command(world.state_dir.path(), &["messages", "feed-1", "--follow", "--json"], &[]);
    let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut next = async || {
        let line = tokio::time::timeout(Duration::from_secs(60), lines.next_line()).await.unwrap().unwrap();
        line.map(|line| serde_json::from_str::<Value>(&line).unwrap()["text"].clone())
    };
    assert_eq!(next().await, Some(json!("one")));
    store_message(&world, 2, Body::Text("two".into())).await;
    store_message(&world, 3, Body::Text("three".into())).await;
    assert_eq!((next().await, next().await), (Some(json!("two")), Some(json!("three"))));

    let pid = rustix::process::Pid::from_raw(process.id().unwrap().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(next().await, None);
    assert_eq!(process.wait().await.unwrap().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_are_listed_live_ones_first() {
    let world = world().await;
    let identity = Identity { task_arn: None, version: "1.2.3".into() };
    for name in ["gone", "here"] {
        let load = Load { capacity: 50, ..Load::default() };
        let registered = world.store.register(&SessionId::new(name), &identity, &load, 1, 4_000_000_000_000).await;
        assert!(registered.unwrap());
    }
    world.store.end(&SessionId::new("gone"), "asked \u{1b}[1m to", 5).await.unwrap();
    let ran = world.run(&["workers"]).await;
    let lines: Vec<&str> = ran.out.lines().collect();
    assert!(lines[0].starts_with("SESSION") && lines[1].starts_with("here") && lines[2].starts_with("gone"), "{ran:?}");
    assert!(lines[1].contains("ACTIVE") && lines[1].contains("0/50") && lines[1].contains("1.2.3"), "{ran:?}");
    assert!(lines[2].contains("ENDED") && lines[2].contains("asked \\u{1b}[1m to"), "{ran:?}");
    let document = world.json(&["workers"]).await;
    assert_eq!(document["workers"][1]["over_reason"], "asked \u{1b}[1m to");
    assert!(document["workers"][0]["lease_left_ms"].as_i64().unwrap() > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_any_system_the_hint_says_how_to_get_one() {
    let empty = tempfile::tempdir().unwrap();
    let ran = run(empty.path(), &["list"], &[]).await;
    assert_eq!((ran.code, ran.out.as_str()), (Some(3), ""), "{ran:?}");
    assert!(ran.err.contains("start one with `leasehold local`, or set AWS_REGION"), "{ran:?}");
    let ran = run(empty.path(), &["list"], &[("AWS_REGION", "eu-west-1")]).await;
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.err.contains("no credentials") && ran.err.contains("start one with `leasehold local`"), "{ran:?}");
    assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_or_broken_description_is_said_to_be_so() {
    let directory = tempfile::tempdir().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let name = || "t".to_owned();
    let tables = Tables { connections: name(), sessions: name(), messages: name() };
    describe(directory.path(), &url, "t", &tables);
    let ran = run(directory.path(), &["list"], &[]).await;
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.err.contains("(process 4242) does not answer") && ran.err.contains("start it again"), "{ran:?}");
    std::fs::write(directory.path().join("local.json"), "{").unwrap();
    let ran = run(directory.path(), &["list"], &[]).await;
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.err.contains("local.json cannot be read"), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_table_is_said_with_what_to_set() {
    let world = world().await;
    world.describe("elsewhere");
    let ran = world.run(&["list"]).await;
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.err.contains("stop `leasehold local` and start it again"), "{ran:?}");

    let empty = tempfile::tempdir().unwrap();
    let aws = [
        ("AWS_REGION", "eu-west-1"),
        ("AWS_ACCESS_KEY_ID", "k"),
        ("AWS_SECRET_ACCESS_KEY", "s"),
        ("AWS_ENDPOINT_URL_DYNAMODB", world.url.as_str()),
    ];
    let ran = run(empty.path(), &["list"], &aws).await;
    assert_eq!((ran.code, ran.out.lines().count()), (Some(0), 1), "the default names are the stack's: {ran:?}");
    let elsewhere = [&aws[..], &[("CONNECTIONS_TABLE", "elsewhere")]].concat();
    let ran = run(empty.path(), &["start", "a", "--url", URL], &elsewhere).await;
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.err.contains("set CONNECTIONS_TABLE") && ran.err.contains("now elsewhere"), "{ran:?}");
}
