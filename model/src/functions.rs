//! What the functions do: `desired-state` with a change of a row, reconcile part by part. Each part reads the world again, so a run that ends
//! anywhere is one whose later parts do not happen; only the look is cut into its reads and its writes.

use crate::numbers::ms;
use crate::product::{self, Known};
use crate::protocol::{Action, Protocol, Way};
use crate::state::{Event, FUNCTIONS, Process, Request, SESSIONS, SlowLook, State, Write, bit, insert, remove};
use crate::store::{Life, Row};
use leasehold::decide::desired::{self, Seen, decide};
use leasehold::decide::lease_time::Now;
use leasehold::decide::reconcile::{IndexRow, Keep, Turns, over, sweep};
use leasehold::decide::scope::index_until_ms;
use leasehold::decide::timing::Timing;

mod look;

/// What a function may do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// `desired-state` handles a change.
    Event(Event),
    /// The same, and the change comes again.
    EventTwice(Event),
    /// Its first write is under way and not answered, so the change comes again.
    EventUnanswered(Event),
    /// Its first mark is lost, so the change comes again.
    EventMarkLost(Event),
    /// A look at the sessions: reads, decides, writes.
    Look,
    /// It reads and decides.
    LookBegins,
    /// It does its next write, or remembers that it looked.
    LookWrites(SlowLook),
    /// It ends half-way.
    LookDies(SlowLook),
    /// ECS reports a session's task as stopped.
    TaskReport(u8),
    /// A look at what an over session owns.
    Over(u8),
    /// The same, and what it reaps lands late.
    OverLate(u8),
    /// A look at a row that nobody owns.
    Unowned(u8),
    /// The sweep comes to a row.
    Sweep(u8),
    /// A day later: whether an over session's row may go.
    Keep(u8),
}

/// How a function's writes go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writes {
    Land,
    AreUnderWay,
    MarksAreLost,
}

/// A day and more after everything: the times at which over sessions may go.
const LATER: Now = Now { lower_ms: 1_000_000_000, upper_ms: 1_000_000_000 };

impl Protocol {
    pub(crate) fn function_steps(&self, state: &State, actions: &mut Vec<Action>) {
        let mut offer = |step| actions.push(Action::Function(step));
        for slow in &state.looks {
            offer(Step::LookDies(slow.clone()));
        }
        if state.away_since.is_some() && !self.bounds.outage_of_workers_only {
            return;
        }
        let late = state.budget.late_requests > 0;
        for event in &state.events {
            offer(Step::Event(*event));
            if state.budget.doubled > 0 {
                offer(Step::EventTwice(*event));
            }
            if late {
                offer(Step::EventUnanswered(*event));
            }
            if state.budget.lost_marks > 0 {
                offer(Step::EventMarkLost(*event));
            }
        }
        if state.store.last_look_ms < self.lease_time_ms(state) {
            offer(Step::Look);
            if state.budget.slow_looks > 0 && state.looks.len() < 2 {
                offer(Step::LookBegins);
            }
        }
        for slow in &state.looks {
            offer(Step::LookWrites(slow.clone()));
        }
        for session in 0..SESSIONS as u8 {
            let Some(row) = state.store.session(session) else { continue };
            if row.life == Life::Active {
                let dead = !self.has_task(state, session);
                if (self.bounds.task_reports && dead) || (!dead && state.budget.wrong_task_reports > 0) {
                    offer(Step::TaskReport(session));
                }
            } else if state.budget.removed_sessions > 0 {
                offer(Step::Keep(session));
            }
            if !self.repairs.second_look || !self.owns_by_index(state, session) {
                continue;
            }
            let row = product::session(session, &row);
            if over::is_over(&row, self.now(state), &self.timing, self.repairs.rules) {
                offer(Step::Over(session));
                if late {
                    offer(Step::OverLate(session));
                }
            }
        }
        for c in self.connections() {
            offer(Step::Unowned(c));
            if state.budget.sweeps > 0 && self.repairs.sweep {
                offer(Step::Sweep(c));
            }
        }
    }

    /// Does it. False: it cannot be done.
    pub(crate) fn function(&self, state: &mut State, step: &Step) -> bool {
        match step {
            Step::Event(event) => {
                remove(&mut state.events, event);
                self.event(state, event, Writes::Land);
            }
            Step::EventTwice(event) => {
                state.budget.doubled -= 1;
                self.event(state, event, Writes::Land);
            }
            Step::EventUnanswered(event) => {
                state.budget.late_requests -= 1;
                return self.event(state, event, Writes::AreUnderWay);
            }
            Step::EventMarkLost(event) => {
                state.budget.lost_marks -= 1;
                return self.event(state, event, Writes::MarksAreLost);
            }
            Step::Look => self.look_now(state, 0),
            Step::LookBegins => {
                state.budget.slow_looks -= 1;
                let decided = self.decide_look(state, 0);
                insert(&mut state.looks, decided);
            }
            Step::LookWrites(slow) => {
                remove(&mut state.looks, slow);
                let mut slow = slow.clone();
                if let Some(write) = slow.writes.pop() {
                    self.write_session(state, write);
                    insert(&mut state.looks, slow);
                } else {
                    state.store.remember_look(slow.last_look_ms, slow.grace_until_ms);
                }
            }
            Step::LookDies(slow) => remove(&mut state.looks, slow),
            Step::TaskReport(session) => {
                let witness = state.store.witness.live_fenced;
                if self.has_task(state, *session) {
                    state.budget.wrong_task_reports -= 1;
                }
                self.look_now(state, bit(*session));
                state.store.witness.live_fenced = witness;
            }
            Step::Over(session) => self.over_session(state, *session, Writes::Land),
            Step::OverLate(session) => {
                state.budget.late_requests -= 1;
                self.over_session(state, *session, Writes::AreUnderWay);
            }
            Step::Unowned(c) => self.unowned(state, *c),
            Step::Sweep(c) => {
                state.budget.sweeps -= 1;
                self.sweep(state, *c);
            }
            Step::Keep(session) => return self.keep(state, *session),
        }
        true
    }

    /// A change wakes, and says who owned the row before. Returns whether it went as asked.
    fn event(&self, state: &mut State, event: &Event, writes: Writes) -> bool {
        let c = event.connection;
        let found = state.store.row(c);
        let known = self.known(state, found.and_then(|row| row.owner));
        let row = product::row(c, found);
        let old_owner = event.old_owner.filter(|_| self.repairs.old_owner_hears_first);
        let old = old_owner.map(|old| (product::session_id(old), self.known(state, Some(old))));
        let old: Vec<_> = old.iter().map(|(id, known)| (id.clone(), known.view())).collect();
        let seen = Seen { old_owners: &old, row: &row, owner: known.view() };
        let decision = decide(&seen, self.now(state), &self.timing, self.repairs.rules);
        self.carry_out(state, c, &decision.actions, writes)
    }

    /// Marks first, then writes to the row, then the claim; what follows a failure is left undone.
    fn carry_out(&self, state: &mut State, c: u8, actions: &[desired::Action], writes: Writes) -> bool {
        for action in actions {
            let (session, write) = match action {
                desired::Action::Mark(owner) => (product::session_number(owner), Write::Mark { connection: c }),
                desired::Action::Reap(expected) => {
                    (0, Write::Reap { connection: c, expected: product::expected(expected) })
                }
                desired::Action::Stamp { free_at_ms } => {
                    (0, Write::Stamp { connection: c, free_at_ms: ms(*free_at_ms) })
                }
                desired::Action::Restamp { owner, epoch, expires_at_ms, free_at_ms } => {
                    let owner = owner.as_ref().map(product::session_number);
                    state.store.restamp(c, owner, ms(*epoch), ms(*expires_at_ms), ms(*free_at_ms));
                    continue;
                }
                // Every row of the model is usable.
                desired::Action::WriteFault(_) => continue,
                desired::Action::Claim { delay_ms } => {
                    let at_ms = self.lease_time_ms(state) + ms(*delay_ms);
                    self.delay_claim(state, c, at_ms);
                    continue;
                }
            };
            let is_mark = matches!(write, Write::Mark { .. });
            match writes {
                Writes::AreUnderWay => {
                    let request = Request { from: FUNCTIONS, session, write, awaited: false, answer: None };
                    insert(&mut state.requests, request);
                    return true;
                }
                Writes::MarksAreLost if is_mark => return true,
                Writes::MarksAreLost | Writes::Land => {
                    let request = Request { from: FUNCTIONS, session, write, awaited: false, answer: None };
                    self.send(state, request, Way::Fast);
                }
            }
        }
        writes == Writes::Land
    }

    /// A claim is visible then.
    pub(crate) fn delay_claim(&self, state: &mut State, c: u8, at_ms: u32) {
        if at_ms <= self.lease_time_ms(state) {
            state.claims |= bit(c);
            return;
        }
        let delayed = &mut state.delayed_claims[usize::from(c)];
        *delayed = Some(delayed.map_or(at_ms, |before_ms| before_ms.min(at_ms)));
    }

    /// A run that looks at an over session looks at each of its rows; which claims wait for their turn is not modelled.
    fn over_session(&self, state: &mut State, session: u8, writes: Writes) {
        let Some(row) = state.store.session(session) else { return };
        let now = self.now(state);
        if !over::is_over(&product::session(session, &row), now, &self.timing, self.repairs.rules) {
            return;
        }
        let turns = Turns::since(0, now.lower_ms, &self.timing);
        for c in self.connections() {
            let Some(row) = state.store.indexed(c).filter(|row| row.owner == Some(session)) else { continue };
            match product::index_row(c, &row, turns) {
                Some(IndexRow::Claim(_)) => state.claims |= bit(c),
                Some(IndexRow::Read(_)) => {
                    let row = product::row(c, state.store.row(c));
                    let decision = over::read_row(&row, &product::session_id(session), now, &self.timing);
                    self.carry_out(state, c, &decision.actions, writes);
                }
                _ => {}
            }
        }
    }

    /// As the index shows it: STARTED, and free by now, or leased by itself and past.
    pub(crate) fn unowned(&self, state: &mut State, c: u8) {
        let until_ms = ms(index_until_ms(self.store_may_have_been_away(state), self.now(state), &self.timing));
        let due = |row: Row| row.started && row.expires_ms.is_some_and(|at_ms| at_ms <= until_ms);
        let due = state.store.indexed(c).is_some_and(due);
        if due {
            state.claims |= bit(c);
        }
    }

    pub(crate) fn look_at_over_sessions(&self, state: &mut State) {
        for session in 0..SESSIONS as u8 {
            self.over_session(state, session, Writes::Land);
        }
    }

    pub(crate) fn handle(&self, state: &mut State, event: &Event) {
        self.event(state, event, Writes::Land);
    }

    pub(crate) fn sweep(&self, state: &mut State, c: u8) {
        let found = state.store.row(c);
        let known = self.known(state, found.and_then(|row| row.owner));
        let mut timing = self.timing;
        if !self.repairs.sweep_stamps_ahead {
            timing = Timing { compare_ms: 0, margin_ms: 0, heartbeat_ms: 0, ..timing };
        }
        let (row, away) = (product::row(c, found), self.store_may_have_been_away(state));
        let mut decision = sweep::row(&row, known.view(), away, self.now(state), &timing, self.repairs.rules);
        if !self.repairs.sweep_marks_live_owners {
            decision.actions.retain(|action| !matches!(action, desired::Action::Mark(_)));
        }
        self.carry_out(state, c, &decision.actions, Writes::Land);
    }

    fn keep(&self, state: &mut State, session: u8) -> bool {
        let Some(row) = state.store.session(session) else { return false };
        let empty = !self.owns_by_index(state, session);
        let note = match over::keep(&product::session(session, &row), empty, LATER, &self.timing) {
            Keep::AsItIs => return false,
            Keep::NoteEmpty(since_ms) => since_ms.is_some(),
            Keep::Remove => {
                state.budget.removed_sessions -= 1;
                state.store.remove_session(session);
                return true;
            }
        };
        if let Some(row) = &mut state.store.sessions[usize::from(session)] {
            row.empty = note;
        }
        true
    }

    fn owns_by_index(&self, state: &State, session: u8) -> bool {
        state.store.index.iter().flatten().any(|row| row.owner == Some(session))
    }

    /// Whether a session's process is there.
    fn has_task(&self, state: &State, session: u8) -> bool {
        state.workers.iter().any(|worker| worker.session == session && worker.process != Process::Dead)
    }

    /// The owner's view of a session is the product's.
    pub(crate) fn is_over(&self, state: &State, session: u8) -> bool {
        match self.known(state, Some(session)) {
            Known::Session(session) => session.state.is_over(),
            _ => true,
        }
    }
}
