//! Each step of the plan, carried out.

use crate::case::{Config, Step, Target};
use crate::cluster::driver::{Cluster, Later};
use crate::cluster::process::task_arn;
use crate::faults::Kind;
use crate::faults::Spell;
use std::sync::atomic::Ordering;

/// A request that lands late does so within this, in ms, and what its sender did before it gave up.
const MOST_LATE_MS: u64 = 75_000;
/// Faults that the ways to AWS do not know of end so soon after their moment, in ms.
const MOMENT_MS: u64 = 1_000;

impl Cluster<'_> {
    pub(super) fn do_step(&mut self, step: &Step) {
        let now_ms = self.clock.now_ms();
        match *step {
            Step::Edit(connection, edit) => self.editor.make(&Config::connection(connection), edit),
            Step::Crash { place, told_after_ms, back_after_ms } => self.crash(place, told_after_ms, back_after_ms),
            Step::Terminate(place) => self.terminate(place),
            Step::Suspend(place, for_ms) => self.suspend(place, for_ms),
            Step::WallJump(place, by_ms) => {
                if let Some(process) = self.places[place].last() {
                    process.clock.jump(by_ms);
                    self.ledger.open().disturb(&process.name, Kind::WallJump, now_ms);
                }
            }
            Step::Begin(target, spell) => self.begin(target, Spell { until_ms: now_ms + spell.until_ms, ..spell }),
            Step::TaskLies(place) => {
                if let Some(process) = self.places[place].last() {
                    self.ledger.open().disturb(&process.name, Kind::TaskLies, now_ms + MOMENT_MS);
                    self.aws.task_stopped(&task_arn(&process.name));
                }
            }
            Step::ForgetSessions(over_ms) => self.forget_sessions(over_ms),
            Step::UpstreamCloses(connection, code) => self.feeds.close(&Config::connection(connection), code),
            Step::UpstreamRefuses(connection, for_ms) => {
                self.feeds.refuse(&Config::connection(connection), now_ms + for_ms);
            }
        }
    }

    fn crash(&mut self, place: usize, told_after_ms: Option<u64>, back_after_ms: u64) {
        let Some(process) = self.places[place].pop() else { return };
        let (now_ms, name) = (self.clock.now_ms(), process.name.clone());
        self.ledger.open().disturb(&name, Kind::Crash, now_ms + MOMENT_MS);
        self.end(&name, "killed");
        // Every task is gone at once, and with them the sockets; what was sent already is on its way.
        drop(process);
        self.later.retain(|(_, later)| !matches!(later, Later::Resume(_, of) if *of == name));
        self.schedule(back_after_ms, Later::Start(place));
        if let Some(told_after_ms) = told_after_ms {
            self.schedule(told_after_ms, Later::TaskStopped(name));
        }
    }

    fn terminate(&mut self, place: usize) {
        let now_ms = self.clock.now_ms();
        let Some(process) = self.places[place].last_mut().filter(|process| !process.is_terminating()) else { return };
        process.terminate(now_ms);
        let mut book = self.ledger.open();
        book.process(&process.name).terminating = true;
        book.disturb(&process.name, Kind::Sigterm, now_ms + MOMENT_MS);
        drop(book);
        self.start(place);
    }

    fn suspend(&mut self, place: usize, for_ms: u64) {
        let now_ms = self.clock.now_ms();
        let Some(process) = self.places[place].last_mut().filter(|process| !process.is_suspended()) else { return };
        process.suspend(now_ms);
        let name = process.name.clone();
        let mut book = self.ledger.open();
        book.process(&name).suspended = true;
        book.disturb(&name, Kind::Suspended, now_ms + for_ms);
        drop(book);
        self.schedule(for_ms, Later::Resume(place, name));
    }

    fn resume(&mut self, place: usize, name: &str) {
        let now_ms = self.clock.now_ms();
        let Some(process) = self.places[place].iter_mut().find(|process| process.name == name) else { return };
        let mut book = self.ledger.open();
        book.process(name).suspended = false;
        // Also where it is woken before its time.
        book.process(name).faults.insert(Kind::Suspended, now_ms);
        book.write("simulation", name, "runs again".into());
        drop(book);
        process.resume(now_ms);
    }

    fn begin(&mut self, target: Target, spell: Spell) {
        let mut book = self.ledger.open();
        match (target, spell.kind) {
            (_, Kind::StaleIndexes) => {
                book.disturb_all(spell.kind, spell.until_ms);
                self.aws.lag_ms.store(spell.ms.unsigned_abs(), Ordering::Relaxed);
                let for_ms = spell.until_ms - book.now_ms;
                drop(book);
                self.schedule(for_ms, Later::IndexesCatchUp);
            }
            (Target::Everybody, _) => {
                book.disturb_all(spell.kind, spell.until_ms);
                self.aws.weather.begin(spell);
                for process in self.places.iter().flatten() {
                    process.weather.begin(spell);
                }
                self.everywhere.push(spell);
            }
            (Target::Functions, _) => {
                book.disturb_all(spell.kind, spell.until_ms);
                self.aws.weather.begin(spell);
                self.aws.mishaps.begin(spell);
            }
            (Target::Place(place), _) => {
                if let Some(process) = self.places[place].last() {
                    book.disturb(&process.name, spell.kind, spell.until_ms);
                    process.weather.begin(spell);
                }
            }
        }
    }

    /// Removes rows of over sessions, but for those whose registration may still be under way: it would make the row anew. Neither it nor any
    /// other request can land a day later, when they go in earnest: DynamoDB refuses what was signed 15 minutes before.
    fn forget_sessions(&mut self, over_ms: u64) {
        let (table, now_ms) = (self.aws.names.tables.sessions.clone(), self.clock.now_ms());
        let mut book = self.ledger.open();
        book.disturb_all(Kind::SessionsGone, now_ms + MOMENT_MS);
        let old = |since_ms: Option<u64>| since_ms.is_some_and(|since_ms| now_ms.saturating_sub(since_ms) >= over_ms);
        let settled = |registered_ms: u64| now_ms.saturating_sub(registered_ms) > MOST_LATE_MS;
        let gone = book.sessions.iter().filter(|(_, note)| note.image.is_some() && old(note.over_ms));
        let gone = gone.filter(|(_, note)| settled(note.registered_ms));
        let gone: Vec<String> = gone.map(|(id, _)| id.clone()).collect();
        drop(book);
        for id in gone {
            self.editor.remove_session(&table, &id);
        }
    }

    pub(super) fn schedule(&mut self, after_ms: u64, later: Later) {
        self.later.push((self.clock.now_ms() + after_ms, later));
    }

    /// Does what is due.
    pub(super) fn do_later(&mut self) {
        let now_ms = self.clock.now_ms();
        while let Some(index) = self.later.iter().position(|(at_ms, _)| *at_ms <= now_ms) {
            match self.later.remove(index).1 {
                Later::Start(place) => self.start(place),
                Later::TaskStopped(name) => self.aws.task_stopped(&task_arn(&name)),
                Later::Resume(place, name) => self.resume(place, &name),
                Later::IndexesCatchUp => self.aws.lag_ms.store(0, Ordering::Relaxed),
            }
        }
    }

    /// Nothing goes wrong from now on: who sleeps wakes, and who is missing comes back.
    pub(super) fn end_all_faults(&mut self) {
        let now_ms = self.clock.now_ms();
        self.ledger.open().write("plan", "cluster", "every fault ends".into());
        self.aws.weather.clear();
        self.aws.mishaps.clear();
        self.feeds.calm();
        self.everywhere.clear();
        for process in self.places.iter().flatten() {
            process.weather.clear();
        }
        for (at_ms, later) in &mut self.later {
            if !matches!(later, Later::TaskStopped(_)) {
                *at_ms = now_ms;
            }
        }
        let mut book = self.ledger.open();
        let faults = book.processes.values_mut().map(|process| &mut process.faults);
        for until_ms in faults.flat_map(|faults| faults.values_mut()) {
            *until_ms = (*until_ms).min(now_ms);
        }
        for until_ms in book.world_faults.values_mut() {
            *until_ms = (*until_ms).min(now_ms);
        }
    }
}
