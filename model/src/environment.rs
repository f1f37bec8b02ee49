//! Everything that neither a worker nor a function does: time, people, and what goes wrong.

use crate::numbers::COMPARE_STEPS;
use crate::product;
use crate::protocol::{Action, Protocol, Way};
use crate::state::{Ending, Event, Process, State, Worker, bit, insert};
use crate::store::Row;
use leasehold::decide::desired::wants_look;
use leasehold::model::AttributeValue;
use leasehold::model::connection::attr;

/// Something that happens. Numbers are workers or connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each says what happens")]
pub enum Happening {
    TimePasses,
    WorkerPauses(u8),
    WorkerWakes(u8),
    WorkerDies(u8),
    WorkerIsBorn(u8),
    WorkerIsToldToStop(u8),
    UserStops(u8),
    UserStarts(u8),
    UserChangesSpec(u8),
    UserOverwrites(u8),
    UserDeletes(u8),
    UserCreates(u8),
    IndexFollows(u8),
    EventIsLost(Event),
    ClaimIsLost(u8),
    StoreGoesAway,
    StoreComesBack,
}

/// So much later than it was deleted a row is made again, in ms: longer than there are acquires within a step, each of which raises the epoch.
pub const REMADE_MS: u32 = 10;

impl Protocol {
    pub(crate) fn happenings(&self, state: &State, actions: &mut Vec<Action>) {
        let budget = &state.budget;
        let mut offer = |happening| actions.push(Action::Happens(happening));
        if state.step < self.bounds.last_step && self.time_may_pass(state) {
            offer(Happening::TimePasses);
        }
        for p in 0..self.bounds.workers {
            let worker = &state.workers[usize::from(p)];
            match worker.process {
                Process::Running => {
                    if budget.pauses > 0 {
                        offer(Happening::WorkerPauses(p));
                    }
                    if budget.kills > 0 {
                        offer(Happening::WorkerDies(p));
                    }
                    if budget.shutdowns > 0 && worker.ending == Ending::No {
                        offer(Happening::WorkerIsToldToStop(p));
                    }
                }
                Process::Paused => offer(Happening::WorkerWakes(p)),
                Process::Dead
                    if budget.births > 0 && state.next_session < self.bounds.sessions && state.away_since.is_none() =>
                {
                    offer(Happening::WorkerIsBorn(p));
                }
                _ => {}
            }
        }
        if budget.lost_events > 0 {
            for event in &state.events {
                offer(Happening::EventIsLost(*event));
            }
        }
        if let Some(since) = state.away_since {
            if state.step >= since + self.bounds.outage_steps {
                offer(Happening::StoreComesBack);
            }
            return;
        }
        if budget.outages > 0 {
            offer(Happening::StoreGoesAway);
        }
        for c in self.connections() {
            self.changes(state, c, actions);
        }
    }

    fn changes(&self, state: &State, c: u8, actions: &mut Vec<Action>) {
        let budget = &state.budget;
        let mut offer = |happening| actions.push(Action::Happens(happening));
        if budget.lost_claims > 0 && state.claims & bit(c) != 0 {
            offer(Happening::ClaimIsLost(c));
        }
        if state.store.indexed(c) != state.store.row(c) {
            offer(Happening::IndexFollows(c));
        }
        let Some(row) = state.store.row(c) else {
            if budget.creates > 0 {
                offer(Happening::UserCreates(c));
            }
            return;
        };
        if row.started && budget.stops > 0 {
            offer(Happening::UserStops(c));
        }
        if !row.started && budget.starts > 0 {
            offer(Happening::UserStarts(c));
        }
        for (left, happening) in [
            (budget.changes, Happening::UserChangesSpec(c)),
            (budget.overwrites, Happening::UserOverwrites(c)),
            (budget.deletes, Happening::UserDeletes(c)),
        ] {
            if left > 0 {
                offer(happening);
            }
        }
    }

    pub(crate) fn happen(&self, state: &mut State, happening: Happening) -> bool {
        match happening {
            Happening::TimePasses => self.pass_time(state),
            Happening::WorkerPauses(p) => {
                state.budget.pauses -= 1;
                state.workers[usize::from(p)].process = Process::Paused;
            }
            Happening::WorkerWakes(p) => self.wake(state, p),
            Happening::WorkerDies(p) => {
                state.budget.kills -= 1;
                self.kill(state, p);
            }
            Happening::WorkerIsBorn(p) => {
                state.budget.births -= 1;
                let late = state.budget.late_requests > 0 && self.bounds.registrations_are_late;
                return self.start_anew(state, p, if late { Way::Slow } else { Way::Fast });
            }
            Happening::WorkerIsToldToStop(p) => {
                state.budget.shutdowns -= 1;
                let worker = &mut state.workers[usize::from(p)];
                *worker = Worker { ending: Ending::Closing, to_look: 0, marks: None, ..*worker };
            }
            Happening::IndexFollows(c) => state.store.index[usize::from(c)] = state.store.row(c),
            Happening::EventIsLost(event) => {
                state.budget.lost_events -= 1;
                crate::state::remove(&mut state.events, &event);
            }
            Happening::ClaimIsLost(c) => {
                state.budget.lost_claims -= 1;
                state.claims &= !bit(c);
            }
            Happening::StoreGoesAway => {
                state.budget.outages -= 1;
                state.away_since = Some(state.step);
            }
            Happening::StoreComesBack => state.away_since = None,
            change => self.change(state, change),
        }
        true
    }

    /// People write, and the stream shows it.
    fn change(&self, state: &mut State, change: Happening) {
        let budget = &mut state.budget;
        let (c, left) = match change {
            Happening::UserStops(c) => (c, &mut budget.stops),
            Happening::UserStarts(c) => (c, &mut budget.starts),
            Happening::UserChangesSpec(c) => (c, &mut budget.changes),
            Happening::UserOverwrites(c) => (c, &mut budget.overwrites),
            Happening::UserDeletes(c) => (c, &mut budget.deletes),
            Happening::UserCreates(c) => (c, &mut budget.creates),
            _ => return,
        };
        *left -= 1;
        let old = state.store.row(c);
        let spec = old.map_or(9, |row| row.spec + 1);
        let new = match change {
            Happening::UserStops(_) => old.map(|row| Row { started: false, ..row }),
            Happening::UserStarts(_) => old.map(|row| Row { started: true, ..row }),
            Happening::UserChangesSpec(_) => old.map(|row| Row { spec, ..row }),
            Happening::UserOverwrites(_) => Some(Row::written_by_hand(spec)),
            Happening::UserDeletes(_) => None,
            _ => {
                // By then time has passed. Where clocks differ by less than that, epochs rise.
                state.extra_ms += REMADE_MS;
                Some(Row::written_by_hand(spec))
            }
        };
        state.store.rows[usize::from(c)] = new;
        let old_image = old.map(|row| product::image(c, &row));
        let mut new_image = new.map(|row| product::image(c, &row));
        if let (Happening::UserChangesSpec(_), Some(image)) = (change, &mut new_image) {
            image.insert(attr::SPEC_CHANGED.into(), AttributeValue::S("changed".into()));
        }
        if wants_look(old_image.as_ref(), new_image.as_ref()) {
            insert(&mut state.events, Event { connection: c, old_owner: old.and_then(|row| row.owner) });
        }
    }

    pub(crate) fn wake(&self, state: &mut State, p: u8) {
        state.workers[usize::from(p)].process = Process::Running;
        self.mind_deadline(state, p);
    }

    /// One step of time. A worker that runs minds its deadline before anything else does.
    pub(crate) fn pass_time(&self, state: &mut State) {
        state.step += 1;
        let now_ms = self.lease_time_ms(state);
        for c in self.connections() {
            let delayed = &mut state.delayed_claims[usize::from(c)];
            if delayed.is_some_and(|at_ms| at_ms <= now_ms) {
                *delayed = None;
                state.claims |= bit(c);
            }
        }
        // A grace that is over is none.
        if state.store.grace_until_ms <= now_ms {
            state.store.grace_until_ms = 0;
        }
        for p in 0..self.bounds.workers {
            self.mind_deadline(state, p);
        }
    }

    /// Where everything is prompt, time passes only when all is done that can be done.
    fn time_may_pass(&self, state: &State) -> bool {
        if !self.bounds.prompt {
            return true;
        }
        let functions_are_cut_off = state.away_since.is_some() && !self.bounds.outage_of_workers_only;
        let functions_are_done =
            functions_are_cut_off || (state.events.is_empty() && state.store.last_look_ms == self.lease_time_ms(state));
        let comparing = (state.step + 1).is_multiple_of(COMPARE_STEPS);
        let is_done = |worker: &Worker| {
            let odd = |c| self.is_odd(state, worker, c);
            worker.process != Process::Running
                || worker.ending != Ending::No
                || (worker.renewed == state.step
                    && worker.marks.is_none()
                    && worker.to_look == 0
                    && !(comparing && self.connections().any(odd)))
        };
        functions_are_done
            && (state.away_since.is_some() || (state.requests.is_empty() && state.workers.iter().all(is_done)))
    }
}
