//! What is wrong on one way to AWS right now: decides about each request.

use crate::faults::Kind;
use crate::faults::spells::{Spell, Spells, State};
use rand::RngExt;
use rand::rngs::StdRng;

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
    /// Claims are answered as sent, and are not; anything else is answered.
    ClaimsLost,
}

impl Spells {
    /// Decides about a request at `now_ms` of the world.
    #[must_use]
    pub fn fate(&self, service: Service, now_ms: u64) -> Fate {
        let mut state = self.at(now_ms);
        let State { rng, spells } = &mut *state;
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
        Kind::ClaimsLost if hit && !dynamo => End::ClaimsLost,
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
