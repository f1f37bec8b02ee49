//! Moves everything, step by step, and looks at it after each.

use crate::case::{Plan, Step, Timed};
use crate::cluster::aws::Aws;
use crate::cluster::lane::Lane;
use crate::cluster::process::{Making, Process};
use crate::faults::Kind;
use crate::faults::Spell;
use crate::invariants::{self, calm, sockets, timed};
use crate::ledger::book::{Line, Tally, Violation};
use crate::ledger::{Book, Ledger};
use crate::time::WorldClock;
use crate::workload::{Editor, Feeds};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::Serialize;

/// World time of one step, in ms: processes see each other that late.
pub const STEP_MS: u64 = 100;
/// What has settled must stay so, in ms.
const STABLE_MS: u64 = 12_000;

/// What became of a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// Its seed.
    pub seed: u64,
    /// How long it ran, in virtual ms.
    pub ran_ms: u64,
    /// Everything that happened, as a number: the same seed gives the same.
    pub hash: u64,
    /// Numbers.
    pub tally: Tally,
    /// The promise that was broken, if one was.
    pub violation: Option<Violation>,
    /// What happened, if it was asked for or a promise was broken.
    #[serde(skip)]
    pub lines: Vec<Line>,
}

/// A case while it runs.
pub(crate) struct Cluster<'a> {
    pub plan: &'a Plan,
    pub clock: WorldClock,
    pub ledger: Ledger,
    pub aws: Aws,
    pub feeds: Feeds,
    pub editor: Editor,
    /// One or, while another ends, two processes a place.
    pub places: Vec<Vec<Process>>,
    pub generations: Vec<u64>,
    /// What comes later: in ms, in order.
    pub later: Vec<(u64, Later)>,
    /// Spells of everybody: they meet processes that start later, too.
    pub everywhere: Vec<Spell>,
    publishing: Vec<u64>,
    rng: StdRng,
    // Dropped last: processes leave tasks in it.
    world: Lane,
}

/// What follows from a step of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Later {
    /// A process starts in this place.
    Start(usize),
    /// ECS tells that this process's task has stopped.
    TaskStopped(String),
    /// The named process of a place runs again.
    Resume(usize, String),
    /// Indexes are up to date again.
    IndexesCatchUp,
}

/// Runs a case to its end, or to the first broken promise. Everything runs on this thread.
#[must_use]
pub fn run(plan: &Plan) -> Outcome {
    // The SDK's jitter and the ids of its invocations.
    fastrand::seed(plan.config.seed);
    let mut cluster = Cluster::new(plan);
    cluster.run();
    let ran_ms = cluster.clock.now_ms();
    let mut book = cluster.ledger.open();
    let (hash, tally) = (book.hash(), std::mem::take(&mut book.tally));
    let (violation, lines) = (book.violation.clone(), std::mem::take(&mut book.lines));
    drop(book);
    Outcome { seed: plan.config.seed, ran_ms, hash, tally, violation, lines }
}

impl<'a> Cluster<'a> {
    fn new(plan: &'a Plan) -> Self {
        let config = &plan.config;
        let clock = WorldClock::default();
        let book = Book::new(config);
        let ledger = Ledger::new(clock.clone(), book);
        let world = Lane::new(0);
        let stale = plan.steps.iter().any(|timed| timed.step.kind() == Some(Kind::StaleIndexes));
        let aws = world.enter(Aws::start(config, &clock, &ledger, stale));
        let editor = Editor::new(aws.tables.clone(), aws.names.tables.connections.clone(), ledger.clone());
        let feeds = Feeds::new(ledger.clone());
        let mut rng = StdRng::seed_from_u64(config.seed ^ 0x2f);
        let publishing =
            config.connections.iter().map(|_| rng.random_range(5_000..5_000 + config.message_ms)).collect();
        let (places, generations) = ((0..config.workers).map(|_| Vec::new()).collect(), vec![0; config.workers]);
        let later = (0..config.workers).map(|place| (rng.random_range(0..2_000), Later::Start(place))).collect();
        Self {
            plan,
            clock,
            ledger,
            aws,
            feeds,
            editor,
            places,
            generations,
            later,
            everywhere: Vec::new(),
            publishing,
            rng,
            world,
        }
    }

    fn run(&mut self) {
        for (index, numbered) in self.plan.config.connections.iter().enumerate() {
            self.editor.create(&crate::case::Config::connection(index), true, *numbered);
        }
        if self.plan.config.write_limit.is_some() {
            self.ledger.open().disturb_all(Kind::WriteLimit, self.plan.config.active_ms);
        }
        for drift_ppm in &self.plan.config.drift_ppm {
            if *drift_ppm != 0 {
                self.ledger.open().disturb_all(Kind::Drift, self.plan.config.active_ms);
            }
        }
        let mut steps = self.plan.steps.iter().peekable();
        while self.clock.now_ms() < self.plan.config.active_ms {
            while let Some(Timed { step, .. }) = steps.next_if(|timed| timed.at_ms <= self.clock.now_ms()) {
                self.carry_out(step);
            }
            if self.step() {
                return;
            }
        }
        self.end_all_faults();
        self.settle();
    }

    fn carry_out(&mut self, step: &Step) {
        let line = Timed { at_ms: self.clock.now_ms(), step: *step }.to_string();
        self.ledger.open().write("plan", "cluster", line.trim_start().to_owned());
        self.do_step(step);
    }

    /// Moves everything by one step. True when a promise is broken.
    fn step(&mut self) -> bool {
        self.do_later();
        self.editor.go_on();
        self.publish();
        let places = self.places.len();
        let turn = usize::try_from(self.clock.now_ms() / STEP_MS).unwrap_or(0);
        self.world.step(STEP_MS);
        for offset in 0..places {
            // Another one is first each time.
            for process in &mut self.places[(turn + offset) % places] {
                process.step(STEP_MS);
            }
        }
        self.clock.advance(STEP_MS);
        self.bury();
        let mut book = self.ledger.open();
        sockets::check_doubles(&mut book);
        timed::check(&mut book);
        calm::note_down(&mut book);
        book.violation.is_some()
    }

    fn publish(&mut self) {
        let now_ms = self.clock.now_ms();
        for index in 0..self.publishing.len() {
            if self.publishing[index] <= now_ms {
                let every_ms = self.plan.config.message_ms;
                self.publishing[index] = now_ms + self.rng.random_range(every_ms / 2..=every_ms * 3 / 2);
                let connection = crate::case::Config::connection(index);
                if self.ledger.open().row(&connection).wish.started {
                    self.feeds.publish(&connection);
                }
            }
        }
    }

    /// Removes processes that have ended.
    fn bury(&mut self) {
        let now_ms = self.clock.now_ms();
        for place in 0..self.places.len() {
            while let Some(index) = self.places[place].iter().position(|process| process.is_over(now_ms)) {
                let process = self.places[place].remove(index);
                self.end(&process.name, "ended");
                // Its sockets, if there are any left, go with it.
                drop(process);
            }
        }
    }

    pub(crate) fn end(&mut self, name: &str, how: &str) {
        let mut book = self.ledger.open();
        book.process(name).alive = false;
        book.process(name).suspended = false;
        book.write("simulation", name, how.to_owned());
    }

    pub(crate) fn start(&mut self, place: usize) {
        let generation = self.generations[place];
        self.generations[place] += 1;
        let world = self.world.handle();
        let making =
            Making { config: &self.plan.config, aws: &self.aws, feeds: &self.feeds, clock: &self.clock, world: &world };
        let process = Process::start(making, place, generation);
        self.everywhere.iter().for_each(|spell| process.weather.begin(*spell));
        let mut book = self.ledger.open();
        book.process(&process.name).alive = true;
        book.write("simulation", &process.name, "started".into());
        drop(book);
        self.places[place].push(process);
    }

    /// Waits until everything has settled, and stays so.
    fn settle(&mut self) {
        let began_ms = self.clock.now_ms();
        let timing = &self.plan.config.timing;
        // A minute's run finds what no index shows, the row it stamps is free later, its claim has a turn; and once more for what was under way.
        let bound_ms = 60_000 + timing.unknown_ms() + timing.claim_again_ms + timing.sweep_ms + 60_000;
        let mut settled_since_ms = None;
        loop {
            if self.step() {
                return;
            }
            let now_ms = self.clock.now_ms();
            if !now_ms.is_multiple_of(500) {
                continue;
            }
            let mut book = self.ledger.open();
            match calm::unsettled(&book) {
                None => {
                    let since_ms = *settled_since_ms.get_or_insert(now_ms);
                    if now_ms - since_ms >= STABLE_MS {
                        calm::check_nothing_lost(&mut book);
                        return;
                    }
                }
                Some((connection, what)) => {
                    settled_since_ms = None;
                    if now_ms - began_ms > bound_ms {
                        let what = format!("{bound_ms} ms after the last fault: {what}");
                        return book.break_promise(invariants::SETTLES, connection.as_deref(), what);
                    }
                }
            }
        }
    }
}
