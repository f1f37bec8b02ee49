//! The schedule of a case: drawn from the seed before it begins.

use crate::case::step::{Step, Target, Timed};
use crate::case::{Config, Options};
use crate::faults::Kind;
use crate::faults::Spell;
use crate::workload::Edit;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Nothing is done before, so that the first sessions and sockets are there.
const BEGIN_MS: u64 = 12_000;

/// By how much workers are behind and functions ahead, in ms, where faults reach beyond the allowance: so much that only the allowance
/// itself keeps a fence from coming before the worker's own deadline.
pub const BEYOND_MS: i64 = 4_400;
/// Within the allowance one's estimate is off by so much, in ms.
pub const DATE_OFF_MS: i64 = 1_500;

/// A case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The cluster.
    pub config: Config,
    /// What is done to it, in order.
    pub steps: Vec<Timed>,
}

impl Plan {
    /// The case of a seed.
    #[must_use]
    pub fn draw(seed: u64, options: Options) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let config = Config::draw(seed, options, &mut rng);
        let mut drawing = Drawing { config: &config, rng, steps: Vec::new() };
        drawing.edits();
        drawing.upstreams();
        for kind in &config.kinds {
            drawing.faults(*kind);
        }
        let mut steps = drawing.steps;
        // Stable, so that steps of one moment keep their order.
        steps.sort_by_key(|timed| timed.at_ms);
        Self { config, steps }
    }
}

struct Drawing<'a> {
    config: &'a Config,
    rng: StdRng,
    steps: Vec<Timed>,
}

impl Drawing<'_> {
    fn at(&mut self) -> u64 {
        self.rng.random_range(BEGIN_MS..self.config.active_ms)
    }

    fn add(&mut self, at_ms: u64, step: Step) {
        if at_ms < self.config.active_ms {
            self.steps.push(Timed { at_ms, step });
        }
    }

    fn place(&mut self) -> usize {
        self.rng.random_range(0..self.config.workers)
    }

    fn connection(&mut self) -> usize {
        self.rng.random_range(0..self.config.connections.len())
    }

    /// About four a minute.
    fn edits(&mut self) {
        let count = self.config.active_ms / 15_000;
        for _ in 0..count {
            let (at_ms, connection) = (self.at(), self.connection());
            match self.rng.random_range(0..16) {
                0..=2 => self.add(at_ms, Step::Edit(connection, Edit::Stop)),
                3..=5 => self.add(at_ms, Step::Edit(connection, Edit::Start)),
                6 => self.add(at_ms, Step::Edit(connection, Edit::NewUrl)),
                7 => self.add(at_ms, Step::Edit(connection, Edit::NewUrlByHand)),
                8 => self.add(at_ms, Step::Edit(connection, Edit::Overwrite)),
                9 => self.add(at_ms, Step::Edit(connection, Edit::OverwriteMinimal)),
                10 => self.add(at_ms, Step::Edit(connection, Edit::Delete)),
                11 => self.add(at_ms, Step::Edit(connection, Edit::Recreate)),
                12 | 13 => self.toggle(at_ms, connection),
                _ => self.burst(at_ms),
            }
        }
        self.start_all();
    }

    /// START, STOP, START within a second, or the other way round.
    fn toggle(&mut self, at_ms: u64, connection: usize) {
        let first_stop = self.rng.random_range(0..2) == 0;
        let mut at_ms = at_ms;
        for turn in 0..3 {
            let stop = (turn % 2 == 0) == first_stop;
            self.add(at_ms, Step::Edit(connection, if stop { Edit::Stop } else { Edit::Start }));
            at_ms += self.rng.random_range(50..=450);
        }
    }

    /// Stops and new URLs of several rows within one heartbeat, one after the other; starts later.
    fn burst(&mut self, at_ms: u64) {
        let back_ms = at_ms + self.rng.random_range(15_000..=60_000);
        for connection in 0..self.config.connections.len() {
            let edit_ms = at_ms + self.rng.random_range(0..=5_000);
            match self.rng.random_range(0..3) {
                0 => {}
                1 => self.add(edit_ms, Step::Edit(connection, Edit::NewUrl)),
                _ => {
                    self.add(edit_ms, Step::Edit(connection, Edit::Stop));
                    self.add(back_ms, Step::Edit(connection, Edit::Start));
                }
            }
        }
    }

    /// Most rows are wanted in the end, so that the calm shows something.
    fn start_all(&mut self) {
        let last_ms = self.config.active_ms - 1;
        for connection in 0..self.config.connections.len() {
            if self.rng.random_range(0..4) > 0 {
                self.add(last_ms, Step::Edit(connection, Edit::Start));
            }
        }
    }

    fn upstreams(&mut self) {
        for _ in 0..self.config.active_ms / 60_000 {
            let (at_ms, connection) = (self.at(), self.connection());
            let code = [None, Some(1000), Some(1001), Some(1011)][self.rng.random_range(0..4)];
            self.add(at_ms, Step::UpstreamCloses(connection, code));
            if self.rng.random_range(0..3) == 0 {
                let for_ms = self.rng.random_range(1_000..=10_000);
                self.add(at_ms, Step::UpstreamRefuses(connection, for_ms));
            }
        }
    }

    /// Each kind comes one to three times.
    fn faults(&mut self, kind: Kind) {
        for _ in 0..self.rng.random_range(1..=3) {
            let at_ms = self.at();
            self.fault(kind, at_ms);
        }
    }

    fn fault(&mut self, kind: Kind, at_ms: u64) {
        let place = self.place();
        match kind {
            Kind::Crash => {
                let told = self.rng.random_range(0..2) == 0;
                let told_after_ms = told.then(|| self.rng.random_range(500..=15_000));
                let back_after_ms = self.rng.random_range(1_000..=40_000);
                self.add(at_ms, Step::Crash { place, told_after_ms, back_after_ms });
            }
            Kind::Sigterm => self.add(at_ms, Step::Terminate(place)),
            Kind::Suspended => {
                let for_ms = self.rng.random_range(2_000..=70_000);
                self.add(at_ms, Step::Suspend(place, for_ms));
            }
            Kind::WallJump => {
                let by_ms = self.rng.random_range(-3_600_000..=3_600_000);
                self.add(at_ms, Step::WallJump(place, by_ms));
            }
            // From the beginning.
            Kind::Drift | Kind::WriteLimit => {}
            Kind::TaskLies => self.add(at_ms, Step::TaskLies(place)),
            Kind::SessionsGone => self.sessions_gone(at_ms, place),
            Kind::ClaimsLost => self.claims_lost(at_ms, place),
            _ => self.spell(kind, at_ms, place),
        }
    }

    /// Rows of sessions go; half the time while renewals of one of them are still under way.
    fn sessions_gone(&mut self, at_ms: u64, place: usize) {
        if self.rng.random_range(0..2) == 0 {
            let over_ms = self.rng.random_range(1_000..=60_000);
            return self.add(at_ms, Step::ForgetSessions(over_ms));
        }
        let late = Spell { kind: Kind::LandLate, until_ms: 6_000, per_mille: 1_000, ms: 60_000 };
        self.add(at_ms, Step::Begin(Target::Place(place), late));
        self.add(at_ms + 7_000, Step::Terminate(place));
        self.add(at_ms + 17_000, Step::ForgetSessions(0));
    }

    /// The claims for what a process held are lost; soon after a minute has begun, so that the sweep is far.
    fn claims_lost(&mut self, at_ms: u64, place: usize) {
        let at_ms = at_ms.next_multiple_of(60_000) + 2_000;
        let lost = Spell { kind: Kind::ClaimsLost, until_ms: 3_000, per_mille: 1_000, ms: 0 };
        self.add(at_ms, Step::Begin(Target::Functions, lost));
        let back_after_ms = self.rng.random_range(10_000..=40_000);
        self.add(at_ms + 1_000, Step::Crash { place, told_after_ms: Some(500), back_after_ms });
    }

    fn spell(&mut self, kind: Kind, at_ms: u64, place: usize) {
        let rng = &mut self.rng;
        let at_functions = rng.random_range(0..4) == 0;
        let anybody = if at_functions { Target::Functions } else { Target::Place(place) };
        let (target, for_ms, per_mille, ms) = match kind {
            Kind::CutDynamo | Kind::CutBoth | Kind::CutAnswers => {
                (Target::Place(place), rng.random_range(3_000..=60_000), 1_000, 0)
            }
            Kind::CutSqs => (anybody, rng.random_range(3_000..=60_000), 1_000, 0),
            Kind::Throttled => (anybody, rng.random_range(5_000..=40_000), rng.random_range(200..=600), 0),
            Kind::LostAnswers => {
                // Rows are acquired meanwhile.
                self.burst(at_ms);
                let rng = &mut self.rng;
                (anybody, rng.random_range(20_000..=60_000), rng.random_range(200..=600), 0)
            }
            Kind::Slow => {
                // Rows are edited meanwhile: marks come while others are acted on.
                self.burst(at_ms);
                let rng = &mut self.rng;
                (anybody, rng.random_range(5_000..=40_000), rng.random_range(200..=900), rng.random_range(50..=700))
            }
            Kind::LandLate => {
                let late_ms = rng.random_range(1_500..=60_000);
                (anybody, rng.random_range(10_000..=60_000), rng.random_range(50..=300), late_ms)
            }
            Kind::DateOff => return self.dates_off(at_ms, anybody),
            Kind::StaleIndexes => {
                (Target::Everybody, rng.random_range(20_000..=60_000), 1_000, rng.random_range(500..=8_000))
            }
            Kind::StoreAway => (Target::Everybody, rng.random_range(5_000..=75_000), 1_000, 0),
            _ => (Target::Functions, rng.random_range(15_000..=60_000), rng.random_range(200..=900), 0),
        };
        self.add(at_ms, Step::Begin(target, Spell { kind, until_ms: for_ms, per_mille, ms }));
    }

    /// Within the allowance one process's estimate is off by up to a second and a half. Beyond it workers are behind and functions ahead, by
    /// more than the allowance together.
    fn dates_off(&mut self, at_ms: u64, target: Target) {
        let for_ms = self.rng.random_range(20_000..=120_000);
        let spell = |ms: i64| Spell { kind: Kind::DateOff, until_ms: for_ms, per_mille: 1_000, ms };
        if self.config.beyond {
            // For good, and several of them would add up.
            let (at_ms, for_ms) = (BEGIN_MS, self.config.active_ms);
            if self.steps.iter().any(|timed| timed.step.kind() == Some(Kind::DateOff)) {
                return;
            }
            let spell = |ms: i64| Spell { until_ms: for_ms, ..spell(ms) };
            for place in 0..self.config.workers {
                self.add(at_ms, Step::Begin(Target::Place(place), spell(-BEYOND_MS)));
            }
            return self.add(at_ms, Step::Begin(Target::Functions, spell(BEYOND_MS)));
        }
        let off_ms = self.rng.random_range(-DATE_OFF_MS..=DATE_OFF_MS);
        self.add(at_ms, Step::Begin(target, spell(off_ms)));
    }
}
