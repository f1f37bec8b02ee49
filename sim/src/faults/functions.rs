//! Events that come twice, in another order or never, and invocations that die half-way or run side by side.

use crate::faults::Kind;
use crate::faults::spells::{Spells, State};
use crate::time::WorldClock;
use futures_util::future::BoxFuture;
use leasehold_local::events::Function;
use rand::RngExt;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// What happens to one event.
#[derive(Clone, Copy, Debug, Default)]
struct Mishap {
    lost: bool,
    reordered: bool,
    again_after_ms: Option<u64>,
    dies_after_ms: Option<u64>,
}

impl Spells {
    fn mishap(&self, of_stream: bool, now_ms: u64) -> Mishap {
        let mut state = self.at(now_ms);
        let State { rng, spells } = &mut *state;
        let mut mishap = Mishap::default();
        for spell in spells.iter() {
            if rng.random_range(0..1_000) >= spell.per_mille {
                continue;
            }
            match spell.kind {
                Kind::StreamLost if of_stream => mishap.lost = true,
                Kind::StreamReordered if of_stream => mishap.reordered = true,
                Kind::StreamDoubled if of_stream => mishap.again_after_ms = Some(rng.random_range(500..=30_000)),
                Kind::FunctionTwice => mishap.again_after_ms = Some(rng.random_range(0..=20)),
                Kind::FunctionDies => mishap.dies_after_ms = Some(rng.random_range(1..=150)),
                _ => {}
            }
        }
        mishap
    }

    /// Shuffles records of different rows; those of one row keep their order.
    fn shuffle(&self, event: &mut Value, now_ms: u64) {
        let Some(records) = event["Records"].as_array_mut() else { return };
        let key = |record: &Value| record["dynamodb"]["Keys"]["Pk"]["S"].as_str().unwrap_or_default().to_owned();
        let mut state = self.at(now_ms);
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
    pub mishaps: Spells,
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
        let now_ms = self.clock.now_ms();
        let mishap = self.mishaps.mishap(self.of_stream, now_ms);
        if mishap.reordered {
            self.mishaps.shuffle(&mut event, now_ms);
        }
        Box::pin(async move {
            if mishap.lost {
                // As after the last retry: nobody handles these records any more.
                return Ok(json!({ "batchItemFailures": [] }));
            }
            if let Some(after_ms) = mishap.again_after_ms {
                let (inner, event) = (self.inner.clone(), event.clone());
                tokio::spawn(async move {
                    sleep(Duration::from_millis(after_ms)).await;
                    let _ = inner.invoke(event, remaining_ms).await;
                });
            }
            let Some(dies_ms) = mishap.dies_after_ms else { return self.inner.invoke(event, remaining_ms).await };
            let outcome = timeout(Duration::from_millis(dies_ms), self.inner.invoke(event, remaining_ms)).await;
            outcome.unwrap_or_else(|_| Err("it died half-way, as the simulation wished".into()))
        })
    }
}
