//! The keeper's runtime apart from the others. In real time, because two runtimes share no virtual one; in a file, and so a process, of
//! its own, because other tests would take its time.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use leasehold_tests::cluster::{Cluster, eventually};
use tokio::runtime::Builder;

/// The keeper's runtime is stuck and says nothing, and the socket is quiet.
#[tokio::test]
async fn a_keeper_that_is_stuck_cannot_keep_a_quiet_socket_past_the_deadline() {
    let keeper = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let cluster = Cluster::new().await;
    let _worker = cluster.worker_kept_on("w", keeper.handle().clone(), |settings| {
        settings.timing.heartbeat_ms = 200;
        settings.timing.give_up_ms = 2_000;
        settings.timing.lease_ms = 60_000;
    });
    cluster.connected("a").await;
    let (release, stuck) = std::sync::mpsc::channel::<()>();
    keeper.spawn(async move { stuck.recv() });
    eventually("the socket is dropped", 10_000, async || cluster.upstreams.open_now("a") == 0).await;
    drop(release);
    keeper.shutdown_background();
}
