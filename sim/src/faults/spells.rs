//! What is wrong right now, and the generator that says whom it strikes.

use crate::faults::Kind;
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// For how long something is wrong, and how badly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spell {
    /// What.
    pub kind: Kind,
    /// Until then, in ms of the world.
    pub until_ms: u64,
    /// How many of 1,000 requests, or events, suffer, where not all do.
    pub per_mille: u32,
    /// How far the Date is off, or how late requests land at most, in ms.
    pub ms: i64,
}

/// The spells of one process, or of the functions. Clones share them.
#[derive(Clone)]
pub struct Spells(Arc<Mutex<State>>);

pub(crate) struct State {
    pub rng: StdRng,
    pub spells: Vec<Spell>,
}

impl Spells {
    /// None yet.
    #[must_use]
    pub fn none(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State { rng: StdRng::seed_from_u64(seed), spells: Vec::new() })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One begins.
    pub fn begin(&self, spell: Spell) {
        self.state().spells.push(spell);
    }

    /// Every one ends.
    pub fn clear(&self) {
        self.state().spells.clear();
    }

    /// Those that last at `now_ms` of the world.
    pub(crate) fn at(&self, now_ms: u64) -> MutexGuard<'_, State> {
        let mut state = self.state();
        state.spells.retain(|spell| spell.until_ms > now_ms);
        state
    }
}
