//! What follows when faults stop: everybody does what they do, in a fixed order, one step of time after the other. From every state that the
//! checker reaches this must lead to a good one within [`CALM_STEPS`].
//!
//! This is stronger than "eventually", and it needs no fairness.

use crate::protocol::{Protocol, Way};
use crate::requests::{Transit, says_connected};
use crate::state::{Budget, CONNECTIONS, Ending, Process, SESSIONS, State, WORKERS, Worker, Write, bit};
use crate::store::{Row, Witness};
use crate::worker::Step;
use leasehold::decide::renewal::Trust;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;

/// So many steps until all is well: a lease, its fencing, a stamp ahead, a row that its owner does not know of.
pub const CALM_STEPS: u8 = 20;

/// What works while it is calm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum World {
    /// Changes and claims under way arrive; indexes are right; nobody sweeps.
    Events,
    /// All changes and claims under way are lost; indexes are right; nobody sweeps.
    Index,
    /// All changes and claims under way are lost; indexes show nothing; the sweep comes by, and each held row is looked at.
    Sweep,
    /// Everything works.
    Everything,
}

impl World {
    fn has_events(self) -> bool {
        matches!(self, Self::Events | Self::Everything)
    }

    fn has_index(self) -> bool {
        self != Self::Sweep
    }

    fn has_sweep(self) -> bool {
        matches!(self, Self::Sweep | Self::Everything)
    }
}

/// States from which it is known how many steps of calm lead to a good one. Ways through the calm soon meet.
#[derive(Debug, Default)]
pub struct Verified(Mutex<HashMap<u64, u8>>);

impl Verified {
    fn get(&self, key: u64) -> Option<u8> {
        self.0.lock().ok()?.get(&key).copied()
    }

    fn note(&self, keys: &[u64], steps: u8) {
        let Ok(mut known) = self.0.lock() else { return };
        for (before, key) in keys.iter().rev().enumerate() {
            known.insert(*key, steps.saturating_add(u8::try_from(before).unwrap_or(u8::MAX)));
        }
    }
}

impl Protocol {
    /// Whether calm leads from here to a good state, whether suspended workers wake or not.
    pub(crate) fn ends_well(&self, state: &State, world: World) -> bool {
        let paused = state.workers.iter().any(|worker| worker.process == Process::Paused);
        self.calms_down(state, world, true) && (!paused || self.calms_down(state, world, false))
    }

    fn calms_down(&self, state: &State, world: World, wakes: bool) -> bool {
        let mut state = state.clone();
        self.faults_stop(&mut state, world, wakes);
        let mut passed = Vec::new();
        let mut steps = None;
        for _ in 0..CALM_STEPS {
            let key = key(&state, world);
            steps = self.verified.get(key);
            if steps.is_some() {
                break;
            }
            passed.push(key);
            self.calm_step(&mut state, world);
            if self.is_good(&state, world) {
                steps = Some(0);
                break;
            }
            self.pass_time(&mut state);
        }
        let Some(steps) = steps else { return false };
        // The last one passed needs one step more than where it led.
        self.verified.note(&passed, steps + 1);
        usize::from(steps) + passed.len() <= usize::from(CALM_STEPS)
    }

    /// Nothing under way lands any more; whoever waits gives up, and whoever sleeps wakes, or never will.
    fn faults_stop(&self, state: &mut State, world: World, wakes: bool) {
        state.away_since = None;
        state.looks.clear();
        state.budget = Budget::default();
        for request in state.requests.clone() {
            if request.awaited && matches!(request.write, Write::Register { .. }) {
                if request.answer.is_none() {
                    self.transit(state, &Transit::Lands(request));
                }
            } else if request.awaited {
                self.transit(state, &Transit::IsGivenUp(request));
            }
        }
        for request in std::mem::take(&mut state.requests) {
            if request.answer.is_some() {
                self.transit(state, &Transit::IsAnswered(request));
            }
        }
        state.requests.clear();
        for p in 0..self.bounds.workers {
            if state.workers[usize::from(p)].process == Process::Paused {
                if wakes { self.wake(state, p) } else { self.kill(state, p) }
            }
        }
        if !world.has_events() {
            state.events.clear();
            state.claims = 0;
            state.delayed_claims = [None; CONNECTIONS];
        }
        state.store.witness = Witness::default();
    }

    fn calm_step(&self, state: &mut State, world: World) {
        let index = |state: &mut State| {
            state.store.index = if world.has_index() { state.store.rows } else { [None; CONNECTIONS] };
        };
        index(state);
        for event in std::mem::take(&mut state.events) {
            self.handle(state, &event);
        }
        index(state);
        for p in 0..self.bounds.workers {
            self.calm_worker(state, p, world);
            index(state);
        }
        if !state.workers.iter().any(has_room) && state.next_session < SESSIONS as u8 {
            self.start_anew(state, 0, Way::Fast);
        }
        self.look_now(state, 0);
        if self.repairs.second_look {
            self.look_at_over_sessions(state);
        }
        index(state);
        for c in self.connections() {
            self.unowned(state, c);
            if world.has_sweep() && self.repairs.sweep {
                self.sweep(state, c);
            }
            self.calm_claim(state, c);
        }
        index(state);
    }

    fn calm_worker(&self, state: &mut State, p: u8, world: World) {
        let w = usize::from(p);
        if state.workers[w].process == Process::Starting && state.next_session < SESSIONS as u8 {
            self.start_anew(state, p, Way::Fast);
        }
        if state.workers[w].process != Process::Running {
            return;
        }
        if state.workers[w].ending != Ending::No {
            if state.workers[w].ending == Ending::Closing {
                state.workers[w].slots.iter_mut().for_each(|slot| slot.socket = false);
                self.work(state, p, Step::End(Way::Fast));
            }
            if world.has_events() {
                self.work(state, p, Step::SendClaims);
            }
            return self.kill(state, p);
        }
        self.work(state, p, Step::Renew(Way::Fast));
        self.renew_rows(state, p);
        for c in self.connections() {
            let worker = state.workers[w];
            if worker.process == Process::Running && self.trust(state, p) == Trust::Valid {
                self.calm_slot(state, p, c, world);
            }
        }
        if state.workers[w].marks.is_some() && state.workers[w].to_look == 0 {
            self.work(state, p, Step::RemoveMarks(Way::Fast));
        }
    }

    fn renew_rows(&self, state: &mut State, p: u8) {
        for c in self.connections() {
            let held = state.workers[usize::from(p)].slots[usize::from(c)].held.is_some();
            if held && self.timing.scope.renews_rows() {
                self.work(state, p, Step::RenewRow(c, Way::Fast));
            }
        }
    }

    fn calm_slot(&self, state: &mut State, p: u8, c: u8, world: World) {
        let w = usize::from(p);
        let worker = state.workers[w];
        let slot = worker.slots[usize::from(c)];
        if slot.socket && slot.held.is_none() {
            self.work(state, p, Step::Close(c));
        }
        let due = world.has_sweep() && slot.held.is_some();
        if due || self.is_odd(state, &worker, c) {
            state.workers[w].to_look |= bit(c);
        }
        // A look may lead to another one: to close, and then to acquire anew.
        for _ in 0..2 {
            if state.workers[w].to_look & bit(c) != 0 {
                self.work(state, p, Step::Look(c, Way::Fast));
            }
        }
        self.calm_open(state, p, c);
    }

    fn calm_open(&self, state: &mut State, p: u8, c: u8) {
        let slot = state.workers[usize::from(p)].slots[usize::from(c)];
        if slot.held.is_some() {
            self.work(state, p, if slot.socket { Step::Status(c, Way::Fast) } else { Step::Open(c, Way::Fast) });
        }
    }

    fn calm_claim(&self, state: &mut State, c: u8) {
        for p in 0..self.bounds.workers {
            let room = has_room(&state.workers[usize::from(p)]) && self.trust(state, p) == Trust::Valid;
            if room && state.claims & bit(c) != 0 {
                self.work(state, p, Step::Claim(c, Way::Fast));
                self.calm_open(state, p, c);
            }
        }
    }

    /// Every row is as it should be.
    fn is_good(&self, state: &State, world: World) -> bool {
        let room = state.workers.iter().any(|worker| self.can_have_room(state, worker));
        let is_good = |c| match state.store.row(c) {
            Some(row) if world == World::Index && self.no_index_shows(state, &row) => true,
            Some(row) if world == World::Sweep && self.no_sweep_sees(state, c, &row) => true,
            Some(row) if row.started => !room || self.is_held(state, c, &row, world),
            Some(row) => self.sockets(state, c) == 0 && (row.owner.is_none() || !room),
            None => self.sockets(state, c) == 0,
        };
        self.connections().all(is_good)
    }

    /// A process that runs has a session, or gets a new one while there are any left in the model.
    fn can_have_room(&self, state: &State, worker: &Worker) -> bool {
        let alive = has_room(worker) || worker.process == Process::Starting;
        alive && (!self.is_over(state, worker.session) || state.next_session < SESSIONS as u8)
    }

    /// What only changes or the sweep can find: a row without a stamp, one whose owner's session is gone, a change that a live owner has
    /// not heard of.
    fn no_index_shows(&self, state: &State, row: &Row) -> bool {
        match row.owner {
            None => row.epoch.is_none(),
            // Its renewal hears of all, or its lease ends.
            Some(owner) if row.expires_ms.is_some() && !self.is_over(state, owner) => false,
            Some(owner) => state.store.session(owner).is_none() || (!row.started && !self.is_over(state, owner)),
        }
    }

    /// What only a comparison or a change can find: a row that says CONNECTED, of a live owner that does not hold it.
    fn no_sweep_sees(&self, state: &State, c: u8, row: &Row) -> bool {
        let Some(owner) = row.owner.filter(|owner| !self.is_over(state, *owner) && row.expires_ms.is_none()) else {
            return false;
        };
        let holds = |worker: &Worker| worker.session == owner && worker.slots[usize::from(c)].held.is_some();
        says_connected(row) && !state.workers.iter().any(holds)
    }

    fn is_held(&self, state: &State, c: u8, row: &Row, world: World) -> bool {
        let mut open = 0;
        for p in 0..WORKERS {
            let worker = &state.workers[p];
            let slot = worker.slots[usize::from(c)];
            if !slot.socket || worker.process != Process::Running {
                continue;
            }
            let spec_is_right = slot.spec == row.spec || world == World::Index;
            let is_owner = row.owner == Some(worker.session) && row.epoch == slot.held && spec_is_right;
            if !is_owner || self.slot_trust(state, p as u8, c) != Trust::Valid {
                return false;
            }
            open += 1;
        }
        open == 1
    }

    fn sockets(&self, state: &State, c: u8) -> usize {
        let open = |worker: &&Worker| worker.process == Process::Running && worker.slots[usize::from(c)].socket;
        state.workers.iter().filter(open).count()
    }
}

fn has_room(worker: &Worker) -> bool {
    worker.process == Process::Running && worker.ending == Ending::No
}

fn key(state: &State, world: World) -> u64 {
    let mut hasher = DefaultHasher::new();
    (state, world).hash(&mut hasher);
    hasher.finish()
}
