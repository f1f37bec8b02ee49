//! A system for the real binary: the engine behind loopback HTTP, and a state directory that describes it.
#![allow(clippy::unwrap_used, reason = "a test ends where its world cannot be built")]

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue;
use leasehold::aws::sdk::DynamoClients;
use leasehold::aws::{Store, Tables};
use leasehold::clock::{SharedClock, SystemClock};
use leasehold::model::ConnectionId;
use leasehold_local::engine::{EmbeddedDynamo, clients};
use leasehold_local::front;
use leasehold_local::queue::EmbeddedSqs;
use leasehold_local::stack::{self, Names};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::process::Command;

/// Long for a machine under load; nothing here takes a second by itself.
const DEADLINE: Duration = Duration::from_secs(60);

pub struct World {
    pub store: Store,
    pub client: Client,
    pub tables: Tables,
    pub url: String,
    pub state_dir: TempDir,
}

/// What a run of the binary said.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

pub async fn world() -> World {
    let clock: SharedClock = Arc::new(SystemClock);
    let engine = EmbeddedDynamo::memory(clock.clone()).unwrap();
    let sqs = EmbeddedSqs::new(clock.clone());
    let client = clients::dynamodb(engine.clone(), None);
    let names = Names::default();
    stack::create(&client, &clients::sqs(sqs, None), &names).await.unwrap();
    let config = clients::dynamodb_config(engine.clone(), None);
    let store = Store::new(DynamoClients::new(config, clock), names.tables.clone());

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(front::serve(listener, engine, std::future::pending()));
    let world = World { store, client, tables: names.tables, url, state_dir: tempfile::tempdir().unwrap() };
    world.describe(&world.tables.connections);
    world
}

impl World {
    /// Writes local.json, with this name for the table of connections.
    pub fn describe(&self, connections: &str) {
        describe(self.state_dir.path(), &self.url, connections, &self.tables);
    }

    /// Runs the binary on the local system.
    pub async fn run(&self, arguments: &[&str]) -> Ran {
        run(self.state_dir.path(), arguments, &[]).await
    }

    /// As [`World::run`] with `--json`, which must succeed.
    pub async fn json(&self, arguments: &[&str]) -> Value {
        let mut arguments = arguments.to_vec();
        arguments.push("--json");
        let ran = self.run(&arguments).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        serde_json::from_str(&ran.out).unwrap()
    }

    /// Puts a row as somebody would by hand.
    pub async fn put(&self, table: &str, attributes: &[(&str, AttributeValue)]) {
        let item: HashMap<String, AttributeValue> =
            attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        self.client.put_item().table_name(table).set_item(Some(item)).send().await.unwrap();
    }

    /// The row as the table has it.
    pub async fn row(&self, id: &str) -> HashMap<String, AttributeValue> {
        let request = self.client.get_item().table_name(&self.tables.connections).consistent_read(true);
        let key = ConnectionId::new(id).unwrap().pk();
        request.key("Pk", s(&key)).send().await.unwrap().item.unwrap()
    }
}

pub fn describe(state_dir: &Path, url: &str, connections: &str, tables: &Tables) {
    let system = json!({
        "pid": 4_242, "dynamodb": url, "sqs": "http://127.0.0.1:1",
        "tables": { "connections": connections, "sessions": tables.sessions, "messages": tables.messages },
        "queues": { "claims": "http://127.0.0.1:1/claims", "ticks": "http://127.0.0.1:1/ticks" },
    });
    std::fs::write(state_dir.join("local.json"), system.to_string()).unwrap();
}

/// Runs the binary with nothing but these variables in its environment.
pub async fn run(state_dir: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Ran {
    let output = command(state_dir, arguments, variables).output();
    let output = tokio::time::timeout(DEADLINE, output).await.unwrap().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

pub fn command(state_dir: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(arguments).env_clear().kill_on_drop(true).stdin(Stdio::null());
    command.env("LEASEHOLD_STATE_DIR", state_dir);
    // Without it the last resort for credentials is a look into the network.
    command.env("AWS_EC2_METADATA_DISABLED", "true").envs(variables.iter().copied());
    command
}

pub fn s(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

pub fn n(number: u64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}
