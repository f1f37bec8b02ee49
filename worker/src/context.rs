//! What every part of one session shares.

use crate::connector::Connector;
use crate::counters::{Counters, Gauges};
use crate::guard::Guard;
use crate::settings::Settings;
use crate::stop::Stop;
use leasehold::aws::Store;
use leasehold::aws::queues::Queue;
use leasehold::clock::SharedClock;
use leasehold::decide::lease_time::Now;
use leasehold::model::SessionId;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;

/// What a worker process is built from; `main` and tests make it.
#[derive(Clone)]
pub struct Parts {
    /// The settings.
    pub settings: Arc<Settings>,
    /// The tables, for everything but the lease.
    pub store: Store,
    /// The tables, for the lease: a client of its own, so that its connections live on the keeper's runtime.
    pub keeper_store: Store,
    /// The queue of claims.
    pub claims: Queue,
    /// What opens sockets.
    pub connector: Arc<dyn Connector>,
    /// The process's clocks.
    pub clock: SharedClock,
    /// Where the renewal, the deadline and the health check run; busy sockets cannot starve it.
    pub keeper_runtime: tokio::runtime::Handle,
    /// Where randomness comes from.
    pub seeds: Seeds,
    /// What was counted since the process started.
    pub counters: Arc<Counters>,
    /// What there is right now.
    pub gauges: Arc<Gauges>,
    /// Bytes, in KiB, that may wait to be stored.
    pub buffer_kib: Arc<Semaphore>,
}

impl Parts {
    /// Lease time, as either client knows it.
    #[must_use]
    pub fn now(&self) -> Option<Now> {
        self.store.time().now().or_else(|| self.keeper_store.time().now())
    }

    /// Lease time for stamps that decide nothing, 0 before there is one.
    #[must_use]
    pub fn stamp_ms(&self) -> u64 {
        self.now().map_or(0, |now| now.upper_ms)
    }
}

/// Hands out generators, each with a seed from the first.
#[derive(Clone, Debug)]
pub struct Seeds(Arc<Mutex<StdRng>>);

impl Seeds {
    /// From a seed: the same seed gives the same generators.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(StdRng::seed_from_u64(seed))))
    }

    /// A new generator.
    #[must_use]
    pub fn rng(&self) -> StdRng {
        let mut rng = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        StdRng::seed_from_u64(rng.random())
    }
}

/// One session, as its slots see it; and one connection that is held, with a lease of its own.
#[derive(Clone)]
pub struct Context {
    /// The process.
    pub parts: Parts,
    /// The session's id.
    pub session: SessionId,
    /// Its lease; of a connection whose row is leased by itself, that row's.
    pub guard: Arc<Guard>,
    /// True once the worker shuts down.
    pub stopping: Stop,
}

impl Context {
    /// Waits until the worker shuts down.
    pub async fn stopped(&self) {
        self.stopping.told().await;
    }

    /// True once the worker shuts down.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping.is_told()
    }

    /// Lease time.
    #[must_use]
    pub fn now(&self) -> Option<Now> {
        self.parts.now()
    }

    /// Lease time for stamps that decide nothing, 0 before there is one.
    #[must_use]
    pub fn stamp_ms(&self) -> u64 {
        self.parts.stamp_ms()
    }

    /// The worker's settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.parts.settings
    }

    /// Counts one.
    pub fn count(&self, name: &'static str) {
        self.parts.counters.add(name);
    }
}
