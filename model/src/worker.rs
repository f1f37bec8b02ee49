//! What a worker does. Every decision is the product's; what is here is the order of things (`worker/src`).

use crate::numbers::ms;
use crate::product;
use crate::protocol::{Action, Protocol, Way};
use crate::requests::says_connected;
use crate::state::{Ending, Process, Request, Set, Slot, State, Worker, Write, bit};
use crate::store::Row;
use leasehold::decide::acquire::{Acquire, ClaimStep, LookStep, on_claim, on_look};
use leasehold::decide::renewal::Trust;
use leasehold::decide::scope::row_expiry_ms;

mod lease;

/// What a worker may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "steps of the protocol by their names; numbers are connections")]
pub enum Step {
    Renew(Way),
    Claim(u8, Way),
    /// The same, and the claim comes back although it was done.
    ClaimTwice(u8),
    Look(u8, Way),
    Compare(u8),
    Open(u8, Way),
    Status(u8, Way),
    RenewRow(u8, Way),
    Release(u8, Way),
    RemoveMarks(Way),
    Close(u8),
    End(Way),
    SendClaims,
    Exit,
    StartAnew(Way),
}

/// Numbers of renewals within a step. They rise with every attempt; that they also rise with time only renames them.
const ATTEMPTS_A_STEP: u16 = 16;

impl Protocol {
    pub(crate) fn worker_steps(&self, state: &State, p: u8, actions: &mut Vec<Action>) {
        let worker = &state.workers[usize::from(p)];
        let mut offer = |step| actions.push(Action::Worker(p, step));
        let late = state.budget.late_requests > 0;
        let mut ways = |step: fn(Way) -> Step| {
            offer(step(Way::Fast));
            if late {
                offer(step(Way::Slow));
            }
        };
        if worker.process == Process::Starting && state.away_since.is_none() && self.may_start(state, p) {
            ways(Step::StartAnew);
        }
        if worker.process != Process::Running {
            return;
        }
        if state.away_since.is_none() {
            if worker.ending != Ending::Ended && !self.awaits(state, p, |write| matches!(write, Write::Renew { .. })) {
                ways(Step::Renew);
            }
            if self.has_acted_on_marks(state, p) {
                ways(Step::RemoveMarks);
            }
            if self.may_end(state, p) {
                ways(Step::End);
            }
        }
        if worker.ending == Ending::Ended {
            offer(Step::Exit);
            if worker.gave_up != 0 {
                offer(Step::SendClaims);
            }
        }
        for c in self.connections() {
            self.slot_steps(state, p, c, actions);
        }
    }

    fn slot_steps(&self, state: &State, p: u8, c: u8, actions: &mut Vec<Action>) {
        let worker = &state.workers[usize::from(p)];
        let slot = worker.slots[usize::from(c)];
        self.row_steps(state, p, c, actions);
        let mut offer = |step| actions.push(Action::Worker(p, step));
        let unreleased = slot.held.is_none() && slot.socket;
        if slot.socket && (worker.ending == Ending::Closing || unreleased) {
            offer(Step::Close(c));
        }
        let trust = self.trust(state, p);
        let busy = self.repairs.one_request_at_a_time && self.is_busy(state, p, c);
        if state.away_since.is_some()
            || worker.ending != Ending::No
            || busy
            || !matches!(trust, Trust::Valid | Trust::Holding)
        {
            return;
        }
        let late = state.budget.late_requests > 0;
        let valid = trust == Trust::Valid;
        let mut ways = |step: fn(u8, Way) -> Step| {
            offer(step(c, Way::Fast));
            if late {
                offer(step(c, Way::Slow));
            }
        };
        if worker.to_look & bit(c) != 0 {
            if valid || slot.held.is_some() {
                ways(Step::Look);
            }
        } else if valid && self.is_odd(state, worker, c) {
            actions.push(Action::Worker(p, Step::Compare(c)));
        }
        self.more_slot_steps(state, p, c, actions);
    }

    /// Where rows are leased by themselves, each held one is renewed beside everything else, and released at a shutdown.
    fn row_steps(&self, state: &State, p: u8, c: u8, actions: &mut Vec<Action>) {
        let worker = &state.workers[usize::from(p)];
        let slot = worker.slots[usize::from(c)];
        if !self.timing.scope.renews_rows() || slot.held.is_none() || state.away_since.is_some() {
            return;
        }
        let late = state.budget.late_requests > 0;
        let mut ways = |step: fn(u8, Way) -> Step| {
            actions.push(Action::Worker(p, step(c, Way::Fast)));
            if late {
                actions.push(Action::Worker(p, step(c, Way::Slow)));
            }
        };
        let renews = |write: &Write| matches!(write, Write::RenewRow { connection, .. } if *connection == c);
        match worker.ending {
            Ending::No if !self.awaits(state, p, renews) => ways(Step::RenewRow),
            Ending::Closing if !slot.socket && !self.is_busy(state, p, c) => ways(Step::Release),
            _ => {}
        }
    }

    fn more_slot_steps(&self, state: &State, p: u8, c: u8, actions: &mut Vec<Action>) {
        if self.trust(state, p) != Trust::Valid {
            return;
        }
        let worker = &state.workers[usize::from(p)];
        let slot = worker.slots[usize::from(c)];
        let late = state.budget.late_requests > 0;
        let mut offer = |step| actions.push(Action::Worker(p, step));
        if state.claims & bit(c) != 0 {
            offer(Step::Claim(c, Way::Fast));
            if late {
                offer(Step::Claim(c, Way::Slow));
            }
            if state.budget.doubled > 0 {
                offer(Step::ClaimTwice(c));
            }
        }
        let Some(epoch) = slot.held.filter(|_| self.slot_trust(state, p, c) == Trust::Valid) else { return };
        if !slot.socket {
            offer(Step::Open(c, Way::Fast));
        } else {
            // A status that changes nothing is left out.
            let told = state.store.row(c).is_some_and(|row| {
                row.owner == Some(worker.session) && row.epoch == Some(epoch) && says_connected(&row)
            });
            if !told {
                offer(Step::Status(c, Way::Fast));
            }
        }
        if late {
            offer(if slot.socket { Step::Status(c, Way::Slow) } else { Step::Open(c, Way::Slow) });
        }
    }

    /// Does it. False: it cannot be done.
    pub(crate) fn work(&self, state: &mut State, p: u8, step: Step) -> bool {
        let w = usize::from(p);
        match step {
            Step::Renew(way) => self.renew(state, p, way),
            Step::Claim(c, way) => self.claim(state, p, c, way),
            Step::ClaimTwice(c) => {
                state.budget.doubled -= 1;
                let done = self.claim(state, p, c, Way::Fast);
                state.claims |= bit(c);
                done
            }
            Step::Look(c, way) => self.look(state, p, c, way),
            Step::Compare(c) => {
                state.workers[w].to_look |= bit(c);
                true
            }
            Step::Open(c, way) => {
                let slot = &mut state.workers[w].slots[usize::from(c)];
                slot.socket = true;
                let (epoch, session) = (slot.held, state.workers[w].session);
                let mine = |row: Row| row.owner == Some(session) && row.epoch == epoch;
                // The socket is there before the status is refused.
                let is_split = way == Way::Fast && !state.store.row(c).is_some_and(mine);
                is_split || self.tell(state, p, c, way)
            }
            Step::Status(c, way) => self.tell(state, p, c, way),
            Step::RenewRow(c, way) => self.renew_row(state, p, c, way),
            Step::Release(c, way) => self.release_at_the_end(state, p, c, way),
            Step::RemoveMarks(way) => {
                let Some((version, _)) = state.workers[w].marks else { return false };
                self.ask(state, p, Write::RemoveMarks { version }, way)
            }
            Step::Close(c) => {
                state.workers[w].slots[usize::from(c)].socket = false;
                true
            }
            Step::End(way) => self.ask(state, p, Write::End, way),
            Step::SendClaims => {
                state.claims |= std::mem::take(&mut state.workers[w].gave_up);
                true
            }
            Step::Exit => {
                self.kill(state, p);
                true
            }
            Step::StartAnew(way) => self.start_anew(state, p, way),
        }
    }

    /// A request of a worker, for its session.
    fn ask(&self, state: &mut State, p: u8, write: Write, way: Way) -> bool {
        let session = state.workers[usize::from(p)].session;
        self.send(state, Request { from: p, session, write, awaited: true, answer: None }, way)
    }

    fn renew(&self, state: &mut State, p: u8, way: Way) -> bool {
        let worker = &mut state.workers[usize::from(p)];
        let marks = state.store.marks[usize::from(worker.session)];
        let listens = worker.marks.is_none() && worker.ending == Ending::No;
        let has_marks = listens && (marks.ids != 0 || marks.resync);
        if way == Way::Fast && worker.renewed == state.step && !has_marks {
            return false;
        }
        let heartbeat = (worker.heartbeat + 1).max(u16::from(state.step) * ATTEMPTS_A_STEP);
        if heartbeat >= (u16::from(state.step) + 1) * ATTEMPTS_A_STEP {
            return false;
        }
        worker.heartbeat = heartbeat;
        let expires_ms = ms(self.worker_now(state, p).upper_ms + self.timing.lease_ms);
        let write = Write::Renew { sent: state.step, heartbeat, expires_ms };
        self.ask(state, p, write, way)
    }

    /// A renewal counts from before it was sent. The marks are read with it.
    pub(crate) fn renewed(&self, state: &mut State, p: u8, sent: u8) {
        let worker = &mut state.workers[usize::from(p)];
        worker.renewed = worker.renewed.max(sent);
        let marks = state.store.marks[usize::from(worker.session)];
        if worker.marks.is_some() || worker.ending != Ending::No || (marks.ids == 0 && !marks.resync) {
            return;
        }
        let mut ids = marks.ids;
        if marks.resync {
            let mine = |c: &u8| state.store.indexed(*c).is_some_and(|row| row.owner == Some(worker.session));
            ids |= worker.held() | self.connections().filter(mine).fold(0, |all: Set, c| all | bit(c));
        }
        worker.to_look |= ids;
        worker.marks = Some((marks.version, ids));
    }

    fn renew_row(&self, state: &mut State, p: u8, c: u8, way: Way) -> bool {
        let Some(epoch) = state.workers[usize::from(p)].slots[usize::from(c)].held else { return false };
        let Some(expires_ms) = row_expiry_ms(self.worker_now(state, p), &self.timing) else { return false };
        let write = Write::RenewRow { connection: c, epoch, sent: state.step, expires_ms: ms(expires_ms) };
        self.ask(state, p, write, way)
    }

    /// A row that is leased by itself is released by itself; its claim is sent with the others.
    fn release_at_the_end(&self, state: &mut State, p: u8, c: u8, way: Way) -> bool {
        let Some(epoch) = state.workers[usize::from(p)].slots[usize::from(c)].held else { return false };
        self.drop_slot(state, p, c);
        state.workers[usize::from(p)].gave_up |= bit(c);
        self.release(state, p, c, epoch, way)
    }

    fn claim(&self, state: &mut State, p: u8, c: u8, way: Way) -> bool {
        let worker = &state.workers[usize::from(p)];
        if worker.slots[usize::from(c)].held.is_some() {
            // Held already: a claim has nothing to add.
            state.claims &= !bit(c);
            return way == Way::Fast;
        }
        let row = state.store.row(c);
        let owner = row.and_then(|row| row.owner).filter(|owner| *owner != worker.session);
        let known = self.known(state, owner);
        let me = product::session_id(worker.session);
        let row = row.map(|row| product::connection(c, &row));
        let now = self.worker_now(state, p);
        match on_claim(row.as_ref(), known.view(), &me, now, &self.timing, self.repairs.rules) {
            ClaimStep::Nothing(_) | ClaimStep::Fault(_) => {
                state.claims &= !bit(c);
                way == Way::Fast
            }
            ClaimStep::Later(wait_ms) => {
                state.claims &= !bit(c);
                let at_ms = self.lease_time_ms(state) + ms(wait_ms);
                self.delay_claim(state, c, at_ms);
                way == Way::Fast
            }
            ClaimStep::Acquire(acquire) => self.acquire(state, p, c, &acquire, way),
        }
    }

    fn acquire(&self, state: &mut State, p: u8, c: u8, acquire: &Acquire, way: Way) -> bool {
        let epoch = if self.repairs.epochs_follow_time {
            ms(acquire.epoch)
        } else {
            acquire.expected.epoch.map_or(1, |epoch| ms(epoch) + 1)
        };
        let since_ms = ms(self.worker_now(state, p).upper_ms);
        let mut expected = product::expected(&acquire.expected);
        if !self.repairs.taking_needs_expiry {
            expected.expired_by_ms = None;
        }
        let (sent, expires_ms) = (self.row_step(state), acquire.expires_at_ms.map(ms));
        self.ask(state, p, Write::Acquire { connection: c, expected, epoch, since_ms, sent, expires_ms }, way)
    }

    fn look(&self, state: &mut State, p: u8, c: u8, way: Way) -> bool {
        let worker = &mut state.workers[usize::from(p)];
        worker.to_look &= !bit(c);
        let slot = worker.slots[usize::from(c)];
        let me = product::session_id(worker.session);
        let session = worker.session;
        let row = state.store.row(c);
        let same = row.is_some_and(|row| row.spec == slot.spec);
        let found = row.map(|row| product::connection(c, &row));
        let now = self.worker_now(state, p);
        match on_look(found.as_ref(), &me, slot.held.map(u64::from), same, Some(now), &self.timing) {
            LookStep::Keep | LookStep::Nothing | LookStep::Fault(_) => way == Way::Fast,
            LookStep::Reconnect => {
                self.drop_slot(state, p, c);
                state.workers[usize::from(p)].to_look |= bit(c);
                way == Way::Fast
            }
            LookStep::CloseAndRelease => {
                self.drop_slot(state, p, c);
                state.workers[usize::from(p)].slots[usize::from(c)].socket =
                    slot.socket && !self.repairs.close_before_release;
                slot.held.is_some_and(|epoch| self.release(state, p, c, epoch, way))
            }
            LookStep::Drop(_) => {
                self.drop_slot(state, p, c);
                if row.is_some_and(|row| row.owner == Some(session)) {
                    state.workers[usize::from(p)].to_look |= bit(c);
                }
                way == Way::Fast
            }
            LookStep::Release(epoch) => self.release(state, p, c, ms(epoch), way),
            LookStep::Reacquire(acquire) if self.repairs.reacquire => self.acquire(state, p, c, &acquire, way),
            LookStep::Reacquire(_) => {
                let row = row.unwrap_or(Row::written_by_hand(0));
                let slot = Slot { held: row.epoch, socket: false, spec: row.spec, renewed: self.row_step(state) };
                state.workers[usize::from(p)].slots[usize::from(c)] = slot;
                way == Way::Fast
            }
        }
    }

    /// Nothing is released without a valid lease.
    fn release(&self, state: &mut State, p: u8, c: u8, epoch: u32, way: Way) -> bool {
        if self.trust(state, p) != Trust::Valid {
            return way == Way::Fast;
        }
        self.ask(state, p, Write::Release { connection: c, epoch }, way)
    }

    fn tell(&self, state: &mut State, p: u8, c: u8, way: Way) -> bool {
        let Some(epoch) = state.workers[usize::from(p)].slots[usize::from(c)].held else { return false };
        self.ask(state, p, Write::Status { connection: c, epoch }, way)
    }

    /// Drops a socket, and what is known of its connection.
    pub(crate) fn drop_slot(&self, state: &mut State, p: u8, c: u8) {
        state.workers[usize::from(p)].slots[usize::from(c)] = Slot::default();
    }

    /// What is held against what the index shows: missing, extra, other epoch.
    pub(crate) fn is_odd(&self, state: &State, worker: &Worker, c: u8) -> bool {
        let owned = state.store.indexed(c).filter(|row| row.owner == Some(worker.session));
        match (owned, worker.slots[usize::from(c)].held) {
            (None, None) => false,
            (Some(row), Some(epoch)) => row.epoch != Some(epoch),
            _ => true,
        }
    }

    fn has_acted_on_marks(&self, state: &State, p: u8) -> bool {
        let worker = &state.workers[usize::from(p)];
        worker.ending == Ending::No
            && worker.marks.is_some_and(|(_, ids)| worker.to_look & ids == 0)
            && !self.awaits(state, p, |write| matches!(write, Write::RemoveMarks { .. }))
    }

    fn may_end(&self, state: &State, p: u8) -> bool {
        let worker = &state.workers[usize::from(p)];
        let closed = worker.slots.iter().all(|slot| !slot.socket) || !self.repairs.close_before_end;
        worker.ending == Ending::Closing && closed && !self.awaits(state, p, |write| *write == Write::End)
    }

    fn awaits(&self, state: &State, p: u8, is: impl Fn(&Write) -> bool) -> bool {
        state.requests.iter().any(|request| request.from == p && request.awaited && is(&request.write))
    }
}
