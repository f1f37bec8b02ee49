//! A worker's session: how far its lease is trusted, how it is lost, and how a new one begins.

use crate::numbers::{STEP_MS, ms};
use crate::protocol::{Protocol, Way};
use crate::state::{Ending, Process, State, Worker, Write, bit, insert};
use leasehold::decide::renewal::{OnStoreOutage, Trust, trust};

impl Protocol {
    /// How far a worker trusts its lease.
    pub(crate) fn trust(&self, state: &State, p: u8) -> Trust {
        self.lease_trust(state, state.workers[usize::from(p)].renewed)
    }

    /// How far a lease is trusted that was last renewed in this step.
    fn lease_trust(&self, state: &State, renewed: u8) -> Trust {
        let at = |step: u8| u64::from(step) * u64::from(STEP_MS);
        let policy = if self.bounds.hold { OnStoreOutage::Hold } else { OnStoreOutage::Close };
        trust(at(renewed), at(state.step), policy, &self.timing, self.repairs.rules)
    }

    /// The same of a row's own lease; where rows have none, their session's is all there is.
    pub(crate) fn row_trust(&self, state: &State, renewed: u8) -> Trust {
        if self.timing.scope.renews_rows() { self.lease_trust(state, renewed) } else { Trust::Valid }
    }

    /// The step from which a row's own lease counts; always the same where rows have none.
    pub(crate) fn row_step(&self, state: &State) -> u8 {
        if self.timing.scope.renews_rows() { state.step } else { 0 }
    }

    /// How far a worker trusts what it holds a connection with.
    pub(crate) fn slot_trust(&self, state: &State, p: u8, c: u8) -> Trust {
        let renewed = state.workers[usize::from(p)].slots[usize::from(c)].renewed;
        self.trust(state, p).max(self.row_trust(state, renewed))
    }

    /// A worker that runs looks at its deadline before anything else.
    pub(crate) fn mind_deadline(&self, state: &mut State, p: u8) {
        if state.workers[usize::from(p)].process != Process::Running {
            return;
        }
        match self.trust(state, p) {
            Trust::Valid | Trust::Holding => self.mind_rows(state, p),
            Trust::Dropped => {
                let worker = &mut state.workers[usize::from(p)];
                if worker.ending == Ending::No {
                    worker.to_look |= worker.held();
                }
                worker.slots = Default::default();
            }
            Trust::StartOver => self.lose_session(state, p),
        }
    }

    /// A row whose own lease is past its deadline is dropped, and looked at.
    fn mind_rows(&self, state: &mut State, p: u8) {
        for c in self.connections() {
            let held = state.workers[usize::from(p)].slots[usize::from(c)].held.is_some();
            if held && matches!(self.slot_trust(state, p, c), Trust::Dropped | Trust::StartOver) {
                self.drop_slot(state, p, c);
                let worker = &mut state.workers[usize::from(p)];
                if worker.ending == Ending::No {
                    worker.to_look |= bit(c);
                } else {
                    worker.gave_up |= bit(c);
                }
            }
        }
    }

    /// The lease is lost for good: everything is dropped. What was held is claimed after the old session has ended.
    pub(crate) fn lose_session(&self, state: &mut State, p: u8) {
        let mut gave_up = state.workers[usize::from(p)].held() | state.workers[usize::from(p)].to_look;
        for request in state.requests.iter().filter(|request| request.from == p && request.awaited) {
            gave_up |= request.write.connection().map_or(0, bit);
        }
        let ending = state.workers[usize::from(p)].ending;
        self.kill(state, p);
        let worker = &mut state.workers[usize::from(p)];
        if ending == Ending::No {
            (worker.process, worker.gave_up) = (Process::Starting, gave_up);
        }
    }

    /// A process is gone, or as good as: it hears nothing more.
    pub(crate) fn kill(&self, state: &mut State, p: u8) {
        let session = state.workers[usize::from(p)].session;
        state.workers[usize::from(p)] = Worker::unborn(session);
        let requests = std::mem::take(&mut state.requests);
        for mut request in requests {
            if request.from == p && request.awaited {
                if request.answer.is_some() {
                    continue;
                }
                request.awaited = false;
            }
            insert(&mut state.requests, request);
        }
    }

    /// Whether a new session's number is left, and none is being registered.
    pub(super) fn may_start(&self, state: &State, p: u8) -> bool {
        state.next_session < self.bounds.sessions
            && !self.awaits(state, p, |write| matches!(write, Write::Register { .. }))
    }

    /// Ends the old session, claims what it held, and registers a new one.
    pub(crate) fn start_anew(&self, state: &mut State, p: u8, way: Way) -> bool {
        let worker = &mut state.workers[usize::from(p)];
        let gave_up = std::mem::take(&mut worker.gave_up);
        if worker.process == Process::Starting {
            state.store.end(worker.session);
            state.claims |= gave_up;
        }
        worker.process = Process::Starting;
        worker.session = state.next_session;
        state.next_session += 1;
        let expires_ms = ms(self.worker_now(state, p).upper_ms + self.timing.lease_ms);
        let sent = state.step;
        self.ask(state, p, Write::Register { sent, expires_ms }, way)
    }

    /// The session has ended itself.
    pub(crate) fn ended(&self, state: &mut State, p: u8) {
        let worker = &mut state.workers[usize::from(p)];
        worker.ending = Ending::Ended;
        worker.gave_up |= worker.held();
        for slot in &mut worker.slots {
            slot.held = None;
        }
    }
}
