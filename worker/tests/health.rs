//! The health check answers while the runtime of the sockets is stuck.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use leasehold::aws::Store;
use leasehold::aws::queues::Queue;
use leasehold::aws::sdk::DynamoClients;
use leasehold::clock::{SharedClock, SystemClock};
use leasehold_local::engine::{EmbeddedDynamo, clients};
use leasehold_local::queue::EmbeddedSqs;
use leasehold_worker::connector::NetConnector;
use leasehold_worker::context::{Parts, Seeds};
use leasehold_worker::counters::Gauges;
use leasehold_worker::health;
use leasehold_worker::settings::Settings;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle};
use tokio::sync::Semaphore;

fn parts(keeper: Handle) -> Parts {
    let clock: SharedClock = Arc::new(SystemClock);
    let variable = |name: &str| match name {
        "CLAIMS_QUEUE_URL" => Some("http://sqs.local/000000000000/claims".to_owned()),
        name if name.ends_with("_TABLE") => Some("table".to_owned()),
        _ => None,
    };
    let settings = Settings::read(&variable).unwrap();
    let engine = EmbeddedDynamo::memory(clock.clone()).unwrap();
    let dynamo = DynamoClients::new(clients::dynamodb_config(engine, None), clock.clone());
    let store = Store::new(dynamo, settings.tables.clone());
    let queue = clients::sqs_config(EmbeddedSqs::new(clock.clone()), None);
    Parts {
        store: store.clone(),
        keeper_store: store,
        claims: Queue::new(queue, settings.claims_queue_url.clone()),
        connector: NetConnector::new(clock.clone()),
        keeper_runtime: keeper,
        seeds: Seeds::new(1),
        counters: Arc::default(),
        gauges: Arc::new(Gauges::starting_at(clock.mono_ms())),
        buffer_kib: Arc::new(Semaphore::new(1)),
        settings: Arc::new(settings),
        clock,
    }
}

/// Asks with a runtime of its own, as `worker healthcheck` does.
fn ask(address: SocketAddr) -> Result<String, String> {
    Builder::new_current_thread().enable_all().build().unwrap().block_on(health::check(address))
}

#[test]
fn the_health_check_answers_while_the_runtime_of_the_sockets_does_nothing_else_than_one_task() {
    let keeper = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listener = keeper.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let parts = parts(keeper.handle().clone());
    keeper.spawn(health::serve(listener, parts.clone()));
    let release = Arc::new(AtomicBool::new(false));
    let stuck = release.clone();
    let sockets = std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            while !stuck.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
    });
    let saturated = ask(address);
    // As after half a minute in which the loop did not run once.
    parts.gauges.loop_ran_ms.store(parts.clock.mono_ms().saturating_sub(31_000), Ordering::Relaxed);
    let stuck_for_long = ask(address);
    release.store(true, Ordering::Relaxed);
    sockets.join().unwrap();
    assert!(saturated.is_ok_and(|body| body.contains("\"healthy\":true")));
    assert!(stuck_for_long.is_err_and(|error| error.starts_with("unhealthy")));
}

/// The health check is asked before the event loop was measured for the first time; the machine has been up for longer than that.
#[test]
fn a_worker_that_has_just_started_is_healthy() {
    let keeper = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listener = keeper.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let parts = parts(keeper.handle().clone());
    assert!(parts.clock.mono_ms() > 30_000, "this machine has just started: the test shows nothing");
    keeper.spawn(health::serve(listener, parts));
    assert!(ask(address).is_ok_and(|body| body.contains("\"healthy\":true")));
}
