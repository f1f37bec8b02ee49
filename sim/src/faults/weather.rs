//! What is wrong on one way to AWS right now: decides about each request.

use crate::faults::Kind;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// For how long something is wrong, and how badly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spell {
    /// What.
    pub kind: Kind,
    /// Until then, in ms of the world.
    pub until_ms: u64,
    /// How many of 1,000 requests suffer, where not all do.
    pub per_mille: u32,
    /// How far the Date is off, or how late requests land at most, in ms.
    pub ms: i64,
}

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Tables.
    Dynamo,
    /// Queues.
    Sqs,
}

/// What becomes of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// It arrives so many ms after it was sent.
    pub before_ms: u64,
    /// Its answer takes so many ms.
    pub after_ms: u64,
    /// The rest.
    pub end: End,
    /// By how much the answer's Date is off, in ms.
    pub date_off_ms: i64,
}

/// How a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It is answered.
    Answered,
    /// It never arrives, and nothing is answered.
    Nowhere,
    /// It is applied, and nothing is answered.
    Mute,
    /// It is refused.
    Throttled,
    /// It is applied, then the connection breaks.
    Lost,
    /// The connection breaks; it is applied so many ms later all the same.
    Late(u64),
}

struct State {
    rng: StdRng,
    spells: Vec<Spell>,
}

/// The weather on the way of one process, or of the functions. Clones share it.
#[derive(Clone)]
pub struct Weather(Arc<Mutex<State>>);

impl Weather {
    /// Fair. `seed` is for the delays of every request.
    #[must_use]
    pub fn fair(seed: u64) -> Self {
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

    /// Decides about a request at `now_ms` of the world.
    #[must_use]
    pub fn fate(&self, service: Service, now_ms: u64) -> Fate {
        let mut state = self.state();
        let State { rng, spells } = &mut *state;
        spells.retain(|spell| spell.until_ms > now_ms);
        let (before_ms, after_ms) = (rng.random_range(1..=12), rng.random_range(1..=12));
        let mut fate = Fate { before_ms, after_ms, end: End::Answered, date_off_ms: 0 };
        for spell in spells.iter() {
            let hit = rng.random_range(0..1_000) < spell.per_mille;
            suffer(&mut fate, *spell, service, hit, rng);
        }
        fate
    }
}

fn suffer(fate: &mut Fate, spell: Spell, service: Service, hit: bool, rng: &mut StdRng) {
    let dynamo = service == Service::Dynamo;
    let most_ms = spell.ms.unsigned_abs().max(1);
    let end = match spell.kind {
        Kind::CutDynamo | Kind::StoreAway if dynamo => End::Nowhere,
        Kind::CutSqs if !dynamo => End::Nowhere,
        Kind::CutBoth => End::Nowhere,
        Kind::CutAnswers if dynamo => End::Mute,
        Kind::Throttled if hit => End::Throttled,
        Kind::LostAnswers if hit => End::Lost,
        Kind::LandLate if hit && dynamo => End::Late(rng.random_range(500..=most_ms.max(1_000))),
        Kind::Slow if hit => {
            fate.before_ms += rng.random_range(0..=most_ms);
            fate.after_ms += rng.random_range(0..=most_ms);
            return;
        }
        Kind::DateOff => {
            fate.date_off_ms += spell.ms;
            return;
        }
        _ => return,
    };
    // The first that strikes counts; nothing is worse than not to arrive.
    if fate.end == End::Answered || end == End::Nowhere {
        fate.end = end;
    }
}
