//! DynamoDB away for a minute, for everybody: the two answers to it side by side, `close` and `hold`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use leasehold::decide::renewal::OnStoreOutage;
use leasehold::model::SessionState;
use leasehold_local::faults::Fault;
use leasehold_tests::cluster::{Cluster, Worker, eventually, is_renewal, is_row_renewal, numbered, pass_ms};
use leasehold_tests::connector::{Script, What};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const CONNECTIONS: usize = 90;
const WORKERS: usize = 3;
const AWAY_S: u64 = 60;
/// A heartbeat.
const RENEWED_EVERY_S: u64 = 5;

fn ids() -> Vec<String> {
    (0..CONNECTIONS).map(|number| format!("c{number}")).collect()
}

struct Outage {
    cluster: Cluster,
    workers: Vec<Worker>,
    published: u64,
    /// Requests for renewals since the store is back.
    renewals: Arc<AtomicU64>,
}

impl Outage {
    /// Everything is connected, and the first messages are stored.
    async fn begin(policy: OnStoreOutage) -> Self {
        let cluster = Cluster::new().await;
        let mut workers = Vec::new();
        for number in 0..WORKERS {
            let capacity = (CONNECTIONS / WORKERS) as u64 + 10;
            workers.push(cluster.worker_with(&format!("w{number}"), |settings| {
                settings.on_store_outage = policy;
                settings.capacity = capacity;
            }));
        }
        for id in ids() {
            cluster.upstreams.script(&id, Script { replay: Some(0), ..Script::default() });
            cluster.start_with(&id, &numbered()).await;
        }
        let mut outage = Self { cluster, workers, published: 0, renewals: Arc::default() };
        eventually("all are connected", 30_000, async || outage.open() == CONNECTIONS).await;
        outage.pass(30).await;
        outage
    }

    /// Nothing reaches DynamoDB, neither from workers nor from functions.
    fn away(&self) {
        for worker in &self.workers {
            worker.break_with(|_| Some(Fault::LostBefore));
        }
        self.cluster.world.break_with(Arc::new(|_| Some(Fault::LostBefore)));
    }

    fn back(&self) {
        for worker in &self.workers {
            let renewals = self.renewals.clone();
            worker.break_with(move |call| {
                let (operation, request) = (call.operation, call.request);
                let is = is_renewal(operation, request) || is_row_renewal(operation, request);
                renewals.fetch_add(u64::from(is), Ordering::Relaxed);
                None
            });
        }
        self.cluster.world.repair();
    }

    /// Each upstream sends a message every five seconds; reconcile looks every ten, and may fail.
    async fn pass(&mut self, seconds: u64) {
        for second in 1..=seconds {
            pass_ms(1_000).await;
            if second % 5 == 0 {
                self.published += 1;
                for id in ids() {
                    self.cluster.upstreams.publish(&id, [self.published]);
                }
            }
            if second % 10 == 0 {
                let tick =
                    serde_json::json!({ "Records": [{ "messageId": "1", "body": leasehold_reconcile::tick_body() }] });
                let reconcile = self.cluster.world.reconcile();
                // It may fail while the store is away; Lambda would try again.
                let _ = reconcile.handle(tick, 9_000).await;
            }
        }
    }

    fn open(&self) -> usize {
        ids().iter().map(|id| self.cluster.upstreams.open_now(id)).sum()
    }

    /// The most attempts of one worker within any 10 ms since `from_ms`.
    fn most_attempts_in_10_ms(&self, from_ms: u64) -> usize {
        let log = self.cluster.upstreams.log();
        let most = self.workers.iter().map(|worker| {
            let attempts = log.iter().filter(|event| event.worker == worker.name);
            let attempts =
                attempts.filter(|event| matches!(event.what, What::Attempt { .. }) && event.at_ms >= from_ms);
            let times: Vec<u64> = attempts.map(|event| event.at_ms).collect();
            let within = |from: u64| times.iter().filter(|at| (from..from + 10).contains(*at)).count();
            times.iter().map(|from| within(*from)).max().unwrap_or(0)
        });
        most.max().unwrap_or(0)
    }

    /// Every lease has been renewed once a heartbeat since the store was back `seconds` ago, give or take one, or two at the beginning.
    fn assert_renewals_are_no_storm(&self, seconds: u64) {
        let rows = if self.cluster.world.timing.scope.renews_rows() { CONNECTIONS } else { 0 };
        let leases = (WORKERS + rows) as u64;
        let beats = self.renewals.load(Ordering::Relaxed) as f64 / leases as f64;
        let expected = (seconds / RENEWED_EVERY_S) as f64;
        assert!((expected - 2.0..=expected + 2.0).contains(&beats), "{beats} renewals of each of {leases} leases");
    }

    async fn active(&self) -> BTreeSet<String> {
        let sessions = self.cluster.world.table().sessions().await.unwrap();
        let active = sessions.into_iter().filter(|session| session.state == SessionState::Active);
        active.map(|session| session.id.as_str().to_owned()).collect()
    }

    async fn fenced(&self) -> usize {
        let sessions = self.cluster.world.table().sessions().await.unwrap();
        sessions.iter().filter(|session| session.state == SessionState::Fenced).count()
    }

    /// Every message of every upstream, once and in order.
    async fn assert_complete(&self) {
        // The last one is on its way.
        pass_ms(1_000).await;
        for id in ids() {
            let expected: Vec<u64> = (1..=self.published).collect();
            assert_eq!(self.cluster.numbers(&id).await, expected, "{id}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn with_hold_an_outage_of_a_minute_costs_nobody_a_socket_a_message_or_a_session() {
    let mut outage = Outage::begin(OnStoreOutage::Hold).await;
    let before = outage.active().await;
    outage.away();
    for _ in 0..AWAY_S / 10 {
        outage.pass(10).await;
        assert_eq!(outage.open(), CONNECTIONS, "every socket stays");
    }
    outage.back();
    let back_ms = outage.cluster.now_ms();
    outage.pass(60).await;
    for id in ids() {
        assert_eq!(outage.cluster.upstreams.opens(&id).len(), 1, "{id} was never opened again");
    }
    outage.assert_complete().await;
    assert_eq!((outage.fenced().await, outage.most_attempts_in_10_ms(back_ms)), (0, 0));
    assert_eq!((outage.active().await, before.len()), (before, WORKERS), "and every session is the one it was");
    outage.assert_renewals_are_no_storm(61);
}

#[tokio::test(start_paused = true)]
async fn with_close_no_socket_outlives_the_deadline_and_afterwards_nobody_storms() {
    let mut outage = Outage::begin(OnStoreOutage::Close).await;
    outage.away();
    outage.pass(15).await;
    assert_eq!(outage.open(), 0, "the deadline is 14 s after the last renewal was sent");
    outage.pass(AWAY_S - 15).await;
    assert_eq!(outage.open(), 0);
    outage.back();
    let back_ms = outage.cluster.now_ms();
    outage.pass(90).await;
    assert_eq!(outage.open(), CONNECTIONS, "all are back");
    for id in ids() {
        assert_eq!(outage.cluster.upstreams.most_at_once(&id), 1, "{id}");
    }
    outage.assert_complete().await;
    assert_eq!(outage.fenced().await, 0, "each worker has ended its session itself");
    let most = outage.most_attempts_in_10_ms(back_ms);
    assert!((1..20).contains(&most), "{most} attempts within 10 ms");
    outage.assert_renewals_are_no_storm(91);
}

/// The store comes back between the deadline and the end of the lease: each worker still has its session, and takes everything again.
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_valid_again_takes_its_connections_again_one_after_the_other() {
    let mut outage = Outage::begin(OnStoreOutage::Close).await;
    outage.away();
    while outage.open() > 0 {
        pass_ms(100).await;
    }
    outage.back();
    let back_ms = outage.cluster.now_ms();
    outage.pass(30).await;
    assert_eq!(outage.open(), CONNECTIONS);
    // 30 connections within 60 ms: in any 10 ms about 5, and never all of them.
    let most = outage.most_attempts_in_10_ms(back_ms);
    assert!((1..20).contains(&most), "{most} attempts within 10 ms");
    outage.assert_renewals_are_no_storm(31);
    outage.assert_complete().await;
}
