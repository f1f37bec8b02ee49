//! The worker as a process: exit codes, signals, health check, log lines. Real processes, on loopback.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use leasehold::clock::{SharedClock, SystemClock};
use leasehold_local::engine::{EmbeddedDynamo, clients};
use leasehold_local::front;
use leasehold_local::queue::EmbeddedSqs;
use leasehold_local::stack::{self, Names, QueueUrls};
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

/// Engine and queue over loopback HTTP.
struct Aws {
    dynamodb: String,
    sqs: String,
    names: Names,
    queues: QueueUrls,
}

impl Aws {
    async fn start() -> Self {
        let clock: SharedClock = Arc::new(SystemClock);
        let engine = EmbeddedDynamo::memory(clock.clone()).unwrap();
        let sqs = EmbeddedSqs::new(clock);
        let names = Names::default();
        let (dynamo_client, sqs_client) = (clients::dynamodb(engine.clone(), None), clients::sqs(sqs.clone(), None));
        let queues = stack::create(&dynamo_client, &sqs_client, &names).await.unwrap();
        let dynamodb = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let queue = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = |listener: &TcpListener| format!("http://{}", listener.local_addr().unwrap());
        let aws = Self { dynamodb: url(&dynamodb), sqs: url(&queue), names, queues };
        tokio::spawn(front::serve(dynamodb, engine, std::future::pending::<()>()));
        tokio::spawn(front::serve(queue, sqs, std::future::pending::<()>()));
        aws
    }

    fn worker(&self) -> Command {
        let mut command = bare();
        command
            .env("AWS_ENDPOINT_URL_DYNAMODB", &self.dynamodb)
            .env("AWS_ENDPOINT_URL_SQS", &self.sqs)
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", "local")
            .env("AWS_SECRET_ACCESS_KEY", "local")
            .env("CONNECTIONS_TABLE", &self.names.tables.connections)
            .env("SESSIONS_TABLE", &self.names.tables.sessions)
            .env("MESSAGES_TABLE", &self.names.tables.messages)
            .env("CLAIMS_QUEUE_URL", &self.queues.claims)
            .env("HEALTH_ADDR", "off");
        command
    }
}

/// The binary with an empty environment, and no way to the instance metadata of a cloud.
fn bare() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_worker"));
    command
        .env_clear()
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

async fn finish(mut command: Command) -> (Option<i32>, String) {
    let output: Output = timeout(Duration::from_secs(60), command.output()).await.expect("it ends").unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

async fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string()
}

fn terminate(worker: &Child) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(worker.id().unwrap()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
}

async fn healthy(aws: &Aws, address: &str) -> bool {
    let mut check = aws.worker();
    check.arg("healthcheck").env("HEALTH_ADDR", address);
    finish(check).await.0 == Some(0)
}

async fn wait_until_healthy(aws: &Aws, address: &str) {
    for _ in 0..200 {
        if healthy(aws, address).await {
            return;
        }
        sleep(Duration::from_millis(100)).await;
    }
    panic!("the worker at {address} never became healthy");
}

#[tokio::test]
async fn a_worker_without_settings_says_which_is_missing_and_ends_with_2() {
    let (code, error) = finish(bare()).await;
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("CONNECTIONS_TABLE is not set: it must be"), "{error}");
}

#[tokio::test]
async fn a_worker_whose_tables_are_missing_says_what_to_check_and_ends_with_3() {
    let aws = Aws::start().await;
    let mut command = aws.worker();
    command.env("SESSIONS_TABLE", "nowhere");
    let (code, error) = finish(command).await;
    assert_eq!(code, Some(3), "{error}");
    assert!(error.contains("knows no such table") && error.contains("SESSIONS_TABLE"), "{error}");
}

#[tokio::test]
async fn a_worker_without_credentials_says_so_and_ends_with_3() {
    let aws = Aws::start().await;
    let mut command = aws.worker();
    command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
    let (code, error) = finish(command).await;
    assert_eq!(code, Some(3), "{error}");
    assert!(error.contains("credentials"), "{error}");
}

#[tokio::test]
async fn sigterm_ends_a_worker_with_0_and_its_session_is_ended_in_the_table() {
    let aws = Aws::start().await;
    let address = free_address().await;
    let mut command = aws.worker();
    let mut worker = command.env("HEALTH_ADDR", &address).spawn().unwrap();
    wait_until_healthy(&aws, &address).await;
    terminate(&worker);
    let status = timeout(Duration::from_secs(10), worker.wait()).await.expect("SIGTERM is heard").unwrap();
    assert_eq!(status.code(), Some(0));
}

#[tokio::test]
async fn log_lines_are_json() {
    let aws = Aws::start().await;
    let address = free_address().await;
    let mut command = aws.worker();
    let worker = command.env("HEALTH_ADDR", &address).spawn().unwrap();
    wait_until_healthy(&aws, &address).await;
    terminate(&worker);
    let output = timeout(Duration::from_secs(10), worker.wait_with_output()).await.expect("it ends").unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert!(lines.iter().any(|line| line["event"] == "session_started"), "{text}");
    assert!(lines.iter().any(|line| line["event"] == "session_ended"), "{text}");
}

#[tokio::test]
async fn two_workers_with_one_environment_both_work_and_a_taken_health_address_is_named() {
    let aws = Aws::start().await;
    let address = free_address().await;
    let mut first = aws.worker();
    let mut first = first.env("HEALTH_ADDR", &address).spawn().unwrap();
    wait_until_healthy(&aws, &address).await;

    let mut same = aws.worker();
    same.env("HEALTH_ADDR", &address);
    let (code, error) = finish(same).await;
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("is another worker running here?"), "{error}");

    let mut second = aws.worker().spawn().unwrap();
    sleep(Duration::from_secs(1)).await;
    assert!(second.try_wait().unwrap().is_none(), "without a health address of its own it runs beside the first");
    assert!(first.try_wait().unwrap().is_none(), "and the first goes on");
}

#[tokio::test]
async fn a_health_check_without_a_worker_fails_and_says_where_it_asked() {
    let aws = Aws::start().await;
    let address = free_address().await;
    let mut check = aws.worker();
    check.arg("healthcheck").env("HEALTH_ADDR", &address);
    let (code, error) = finish(check).await;
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains(&address), "{error}");
}
