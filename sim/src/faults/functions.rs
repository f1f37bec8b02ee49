//! Events that come twice, in another order or never, and invocations that die half-way or run side by side.

use crate::faults::Kind;
use crate::faults::weather::Spell;
use crate::time::WorldClock;
use futures_util::future::BoxFuture;
use leasehold_local::events::Function;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// What is wrong with all functions. Clones share it.
#[derive(Clone)]
pub struct Mishaps(Arc<Mutex<State>>);

struct State {
    rng: StdRng,
    spells: Vec<Spell>,
}

/// What happens to one event.
#[derive(Clone, Copy, Debug, Default)]
struct Fate {
    lost: bool,
    reordered: bool,
    again_after_ms: Option<u64>,
    dies_after_ms: Option<u64>,
}

impl Mishaps {
    /// None.
    #[must_use]
    pub fn none(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State { rng: StdRng::seed_from_u64(seed), spells: Vec::new() })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A spell begins.
    pub fn begin(&self, spell: Spell) {
        self.state().spells.push(spell);
    }

    /// Every spell ends.
    pub fn clear(&self) {
        self.state().spells.clear();
    }

    fn fate(&self, of_stream: bool, now_ms: u64) -> Fate {
        let mut state = self.state();
        let State { rng, spells } = &mut *state;
        spells.retain(|spell| spell.until_ms > now_ms);
        let mut fate = Fate::default();
        for spell in spells.iter() {
            if rng.random_range(0..1_000) >= spell.per_mille {
                continue;
            }
            match spell.kind {
                Kind::StreamLost if of_stream => fate.lost = true,
                Kind::StreamReordered if of_stream => fate.reordered = true,
                Kind::StreamDoubled if of_stream => fate.again_after_ms = Some(rng.random_range(500..=30_000)),
                Kind::FunctionTwice => fate.again_after_ms = Some(rng.random_range(0..=20)),
                Kind::FunctionDies => fate.dies_after_ms = Some(rng.random_range(1..=150)),
                _ => {}
            }
        }
        fate
    }

    /// Shuffles records of different rows; those of one row keep their order.
    fn shuffle(&self, event: &mut Value) {
        let Some(records) = event["Records"].as_array_mut() else { return };
        let key = |record: &Value| record["dynamodb"]["Keys"]["Pk"]["S"].as_str().unwrap_or_default().to_owned();
        let mut state = self.state();
        for end in (1..records.len()).rev() {
            let other = state.rng.random_range(0..=end);
            let moves_over_its_own = (other..=end).any(|place| {
                (place != other && key(&records[place]) == key(&records[other]))
                    || (place != end && key(&records[place]) == key(&records[end]))
            });
            if !moves_over_its_own {
                records.swap(other, end);
            }
        }
    }
}

/// A function to which mishaps happen.
pub struct Unlucky {
    /// The real one.
    pub inner: Arc<dyn Function>,
    /// What happens.
    pub mishaps: Mishaps,
    /// The world's time.
    pub clock: WorldClock,
    /// It is the one on the stream.
    pub of_stream: bool,
}

impl Function for Unlucky {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn invoke(&self, mut event: Value, remaining_ms: u64) -> BoxFuture<'_, Result<Value, String>> {
        let fate = self.mishaps.fate(self.of_stream, self.clock.now_ms());
        if fate.reordered {
            self.mishaps.shuffle(&mut event);
        }
        Box::pin(async move {
            if fate.lost {
                // As after the last retry: nobody handles these records any more.
                return Ok(json!({ "batchItemFailures": [] }));
            }
            if let Some(after_ms) = fate.again_after_ms {
                let (inner, event) = (self.inner.clone(), event.clone());
                tokio::spawn(async move {
                    sleep(Duration::from_millis(after_ms)).await;
                    let _ = inner.invoke(event, remaining_ms).await;
                });
            }
            let Some(dies_ms) = fate.dies_after_ms else { return self.inner.invoke(event, remaining_ms).await };
            let outcome = timeout(Duration::from_millis(dies_ms), self.inner.invoke(event, remaining_ms)).await;
            outcome.unwrap_or_else(|_| Err("it died half-way, as the simulation wished".into()))
        })
    }
}
