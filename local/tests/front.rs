//! The engine over HTTP.

mod dynamo;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::error::SdkError;
use aws_smithy_runtime_api::client::http::HttpConnector;
use dynamo::{EPOCH_DATE, EPOCH_MS, TABLE, Tested, create_table, put, text};
use leasehold::clock::{Clock, SharedClock};
use leasehold_local::engine::{EmbeddedDynamo, clients};
use leasehold_local::faults::{Call, Fault, Faulty};
use leasehold_local::front;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

/// A clock that stands still, far from the machine's.
#[derive(Debug)]
struct Still;

impl Clock for Still {
    fn mono_ms(&self) -> u64 {
        0
    }

    fn wall_ms(&self) -> u64 {
        EPOCH_MS
    }
}

struct Server {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<io::Result<()>>,
}

async fn start(connector: impl HttpConnector + 'static) -> io::Result<Server> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let shutdown = async move {
        let _ = stopped.await;
    };
    let task = tokio::spawn(front::serve(listener, connector, shutdown));
    Ok(Server { address, stop, task })
}

impl Server {
    /// A client with the SDK's own HTTP, one attempt.
    fn client(&self, engine: &EmbeddedDynamo) -> Client {
        let http = aws_smithy_http_client::Builder::new().build_http();
        let config = clients::dynamodb_config(engine.clone(), None).http_client(http);
        let config = config.endpoint_url(format!("http://{}", self.address));
        Client::from_conf(config.retry_config(RetryConfig::disabled()).build())
    }

    /// What comes back, to the byte, for `body` of `declared` bytes.
    async fn raw(&self, operation: &str, declared: usize, body: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect(self.address).await?;
        let head = format!(
            "POST / HTTP/1.1\r\nhost: local\r\nx-amz-target: DynamoDB_20120810.{operation}\r\n\
             connection: close\r\ncontent-length: {declared}\r\n\r\n{body}"
        );
        stream.write_all(head.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }
}

fn engine() -> Result<(EmbeddedDynamo, SharedClock), Box<dyn std::error::Error>> {
    let clock: SharedClock = Arc::new(Still);
    Ok((EmbeddedDynamo::memory(clock.clone())?, clock))
}

#[tokio::test]
async fn the_sdk_talks_to_the_engine_over_http() -> Tested {
    let (engine, _) = engine()?;
    let server = start(engine.clone()).await?;
    let client = server.client(&engine);
    create_table(&client).await?;
    put(&client, "CONN#a", 7).await?;
    let row = client.get_item().table_name(TABLE).key("Pk", text("CONN#a")).send().await?;
    assert!(row.item().is_some());
    Ok(())
}

/// RFC 9110, section 6.6.1: a message has one `Date`.
#[tokio::test]
async fn the_date_is_the_engines_and_there_is_only_one() -> Tested {
    let (engine, _) = engine()?;
    let server = start(engine).await?;
    let answer = server.raw("ListTables", 2, "{}").await?;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let dates: Vec<_> = answer.lines().filter_map(|line| line.strip_prefix("date: ")).collect();
    assert_eq!(dates, [EPOCH_DATE]);
    Ok(())
}

#[tokio::test]
async fn a_lost_request_is_a_dropped_connection_and_not_an_answer() -> Tested {
    let (engine, clock) = engine()?;
    let plan = |call: &Call<'_>| match call.operation {
        "PutItem" => Some(Fault::LostAfter),
        "ListTables" => Some(Fault::LostBefore),
        _ => None,
    };
    let server = start(Faulty::new(engine.clone(), clock, Arc::new(plan))).await?;
    let client = server.client(&engine);
    create_table(&client).await?;
    let lost = client.put_item().table_name(TABLE).item("Pk", text("CONN#a")).send().await;
    assert!(matches!(lost, Err(SdkError::DispatchFailure(_))), "{lost:?}");
    let row = client.get_item().table_name(TABLE).key("Pk", text("CONN#a")).send().await?;
    assert!(row.item().is_some(), "the request was applied and the next connection works");
    assert_eq!(server.raw("ListTables", 2, "{}").await?, "");
    Ok(())
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused() -> Tested {
    let (engine, _) = engine()?;
    let server = start(engine).await?;
    let answer = server.raw("PutItem", 16 * 1024 * 1024 + 1, "{").await?;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    Ok(())
}

#[tokio::test]
async fn a_shutdown_does_not_wait_for_a_slow_request() -> Tested {
    let (engine, clock) = engine()?;
    let arrived = Arc::new(Notify::new());
    let notice = arrived.clone();
    let slow = move |_: &Call<'_>| {
        notice.notify_one();
        Some(Fault::Delay(Duration::from_secs(600)))
    };
    let server = start(Faulty::new(engine, clock, Arc::new(slow))).await?;
    let mut stream = TcpStream::connect(server.address).await?;
    stream.write_all(b"POST / HTTP/1.1\r\nhost: local\r\ncontent-length: 2\r\n\r\n{}").await?;
    arrived.notified().await;
    server.stop.send(()).map_err(|()| "the server runs")?;
    tokio::time::timeout(Duration::from_secs(20), server.task).await???;
    Ok(())
}
