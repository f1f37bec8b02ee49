//! Requests under way: they land late or never, twice, and their answers are heard or lost.

use crate::product;
use crate::protocol::{Action, Protocol, Way};
use crate::state::{Answer, Ending, FUNCTIONS, Process, Request, State, Write, bit, insert, remove};
use crate::store::{Observed, Row, Written};
use leasehold::decide::acquire::{self, won_anyway};
use leasehold::decide::renewal::{Renewed, Trust, refused_renewal};
use leasehold::decide::scope::{RowRenewed, refused_row_renewal};

/// What may become of a request under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Transit {
    /// It lands.
    Lands(Request),
    /// It lands, and will once more: a client sent it twice.
    LandsTwice(Request),
    /// Its sender hears the answer.
    IsAnswered(Request),
    /// Its sender gives up waiting. It may still land.
    IsGivenUp(Request),
}

/// Requests under way at most.
const MOST: usize = 3;

impl Protocol {
    pub(crate) fn transits(&self, state: &State, actions: &mut Vec<Action>) {
        for request in &state.requests {
            if request.answer.is_none() && state.away_since.is_none() {
                actions.push(Action::Request(Transit::Lands(*request)));
                if state.budget.doubled > 0 && request.from != FUNCTIONS {
                    actions.push(Action::Request(Transit::LandsTwice(*request)));
                }
            }
            if request.awaited && self.listens(state, request) {
                if request.answer.is_some() {
                    actions.push(Action::Request(Transit::IsAnswered(*request)));
                }
                // A registration is repeated until it is answered.
                if !matches!(request.write, Write::Register { .. }) {
                    actions.push(Action::Request(Transit::IsGivenUp(*request)));
                }
            }
        }
    }

    fn listens(&self, state: &State, request: &Request) -> bool {
        let process = state.workers[usize::from(request.from)].process;
        process == Process::Running || process == Process::Starting
    }

    pub(crate) fn transit(&self, state: &mut State, transit: &Transit) -> bool {
        match transit {
            Transit::Lands(request) => {
                remove(&mut state.requests, request);
                let answer = self.land(state, request);
                if request.awaited {
                    insert(&mut state.requests, Request { answer: Some(answer), ..*request });
                }
            }
            Transit::LandsTwice(request) => {
                state.budget.doubled -= 1;
                self.transit(state, &Transit::Lands(*request));
                insert(&mut state.requests, Request { awaited: false, ..*request });
            }
            Transit::IsAnswered(request) => {
                remove(&mut state.requests, request);
                if let Some(answer) = request.answer {
                    self.hear(state, request, answer);
                }
            }
            Transit::IsGivenUp(request) => {
                remove(&mut state.requests, request);
                if request.answer.is_none() {
                    insert(&mut state.requests, Request { awaited: false, ..*request });
                }
                self.give_up(state, request);
            }
        }
        true
    }

    /// Sends a request. False: there are enough under way.
    pub(crate) fn send(&self, state: &mut State, request: Request, way: Way) -> bool {
        match way {
            Way::Fast => {
                let answer = self.land(state, &request);
                if request.awaited {
                    self.hear(state, &request, answer);
                }
            }
            Way::Slow if state.budget.late_requests == 0 || state.requests.len() >= MOST => return false,
            Way::Slow => {
                state.budget.late_requests -= 1;
                insert(&mut state.requests, request);
            }
        }
        true
    }

    /// The store's side.
    fn land(&self, state: &mut State, request: &Request) -> Answer {
        let (session, repairs) = (request.session, &self.repairs);
        let store = &mut state.store;
        match request.write {
            Write::Register { expires_ms, .. } => store.register(session, expires_ms, repairs),
            Write::Renew { heartbeat, expires_ms, .. } => {
                return match store.renew(session, heartbeat, expires_ms, repairs) {
                    Written::Applied(_) => Answer::Renewed,
                    Written::Refused(found) => {
                        let found = found.map(|row| product::session(session, &row));
                        match refused_renewal(heartbeat.into(), found.as_ref()) {
                            Renewed::Yes => Answer::Renewed,
                            Renewed::Over(_) => Answer::Over,
                            Renewed::TryAgain => Answer::TryAgain,
                        }
                    }
                };
            }
            Write::End => {
                store.end(session);
            }
            Write::RemoveMarks { version } => store.remove_marks(session, version, repairs),
            Write::Acquire { connection, expected, epoch, since_ms, expires_ms, .. } => {
                return match store.acquire(connection, session, &expected, epoch, since_ms, expires_ms) {
                    Written::Applied(row) => Answer::Won(row),
                    Written::Refused(found) => judge_refused(connection, session, epoch, found),
                };
            }
            Write::RenewRow { connection, epoch, expires_ms, .. } => {
                return match store.renew_row(connection, session, epoch, expires_ms, repairs) {
                    Written::Applied(row) => Answer::Seen(row),
                    Written::Refused(found) => judge_row_renewal(connection, session, epoch, expires_ms, found),
                };
            }
            Write::Release { connection, epoch } => {
                return match store.release(connection, session, epoch, repairs) {
                    Written::Applied(row) | Written::Refused(Some(row)) => {
                        Answer::Free(row.started && row.owner.is_none())
                    }
                    Written::Refused(None) => Answer::Done,
                };
            }
            Write::Status { connection, epoch } => {
                if let Written::Refused(found) = store.status(connection, session, epoch, repairs) {
                    return Answer::Lost(found.is_some_and(|row| row.owner == Some(session)));
                }
            }
            Write::Reap { connection, expected } => store.reap(connection, &expected, repairs),
            Write::Mark { connection } => store.mark(session, connection, self.bounds.most_marks),
            Write::Stamp { connection, free_at_ms } => store.stamp(connection, free_at_ms),
        }
        Answer::Done
    }

    /// The worker's side.
    fn hear(&self, state: &mut State, request: &Request, answer: Answer) {
        let p = request.from;
        match (request.write, answer) {
            (Write::Register { sent, .. }, _) => {
                state.workers[usize::from(p)] = crate::state::Worker::begun(request.session, sent);
                self.mind_deadline(state, p);
            }
            (Write::Renew { sent, .. }, Answer::Renewed) => self.renewed(state, p, sent),
            (Write::Renew { .. }, Answer::Over) => self.lose_session(state, p),
            (Write::End, _) => self.ended(state, p),
            (Write::RemoveMarks { .. }, _) => state.workers[usize::from(p)].marks = None,
            (Write::Acquire { connection, sent, .. }, Answer::Won(row)) => self.won(state, p, connection, &row, sent),
            (Write::RenewRow { connection, epoch, sent, .. }, Answer::Seen(row)) => {
                self.seen(state, p, connection, epoch, &row, sent);
            }
            (Write::Acquire { connection, .. }, _) => {
                state.claims &= !bit(connection);
                self.drop_slot(state, p, connection);
            }
            (Write::Release { connection, .. }, Answer::Free(true)) => state.claims |= bit(connection),
            (Write::Status { connection, .. } | Write::RenewRow { connection, .. }, Answer::Lost(names_me)) => {
                self.drop_slot(state, p, connection);
                if names_me {
                    state.workers[usize::from(p)].to_look |= bit(connection);
                }
            }
            _ => {}
        }
    }

    /// An acquire that came through. The row that it returned says what is opened.
    fn won(&self, state: &mut State, p: u8, c: u8, row: &Row, sent: u8) {
        state.claims &= !bit(c);
        let valid = self.trust(state, p).max(self.row_trust(state, sent)) == Trust::Valid;
        let worker = &mut state.workers[usize::from(p)];
        let slot = &mut worker.slots[usize::from(c)];
        slot.socket = false;
        slot.held = None;
        if worker.ending != Ending::No {
            // It opens nothing, and is claimed with the rest.
            slot.held = row.epoch;
            worker.gave_up |= bit(c);
        } else if valid && row.started {
            (slot.held, slot.spec, slot.renewed) = (row.epoch, row.spec, sent);
        } else {
            worker.to_look |= bit(c);
        }
    }

    /// A renewal of a row counts from before it was sent, and its answer is the row: what it asks for is looked at.
    fn seen(&self, state: &mut State, p: u8, c: u8, epoch: u32, row: &Row, sent: u8) {
        let worker = &mut state.workers[usize::from(p)];
        let slot = &mut worker.slots[usize::from(c)];
        if slot.held != Some(epoch) {
            return;
        }
        slot.renewed = slot.renewed.max(sent);
        if worker.ending == Ending::No && (!row.started || row.spec != slot.spec) {
            worker.to_look |= bit(c);
        }
    }

    /// A sender that waits no more.
    fn give_up(&self, state: &mut State, request: &Request) {
        let worker = &mut state.workers[usize::from(request.from)];
        match request.write {
            Write::RemoveMarks { .. } => worker.marks = None,
            // Its claims are sent only if the end is certain.
            Write::End => (worker.ending, worker.gave_up) = (Ending::Ended, 0),
            Write::Acquire { connection, .. } | Write::Release { connection, .. } if worker.ending == Ending::No => {
                worker.to_look |= bit(connection);
            }
            _ => {}
        }
    }

    /// Whether a worker waits for an answer about this connection.
    pub(crate) fn is_busy(&self, state: &State, p: u8, c: u8) -> bool {
        state
            .requests
            .iter()
            .any(|request| request.from == p && request.awaited && request.write.connection() == Some(c))
    }
}

/// A refused acquire may be won all the same: its answer was lost, or it landed twice.
fn judge_refused(c: u8, me: u8, epoch: u32, found: Option<Row>) -> Answer {
    let Some(row) = found else { return Answer::NotWon };
    let expected = acquire::Expected { owner: None, epoch: None, expired_by_ms: None };
    let wanted = acquire::Acquire { expected, epoch: epoch.into(), expires_at_ms: None, owners: Vec::new() };
    let found = product::connection(c, &row);
    if won_anyway(&wanted, &product::session_id(me), Some(&found)) { Answer::Won(row) } else { Answer::NotWon }
}

/// A refused renewal of a row, judged by the row that was there.
fn judge_row_renewal(c: u8, me: u8, epoch: u32, sent_expires_ms: u32, found: Option<Row>) -> Answer {
    let connection = found.map(|row| product::connection(c, &row));
    let id = product::session_id(me);
    match (refused_row_renewal(sent_expires_ms.into(), &id, epoch.into(), connection.as_ref()), found) {
        (RowRenewed::Yes, Some(row)) => Answer::Seen(row),
        (RowRenewed::TryAgain, _) => Answer::TryAgain,
        (_, found) => Answer::Lost(found.is_some_and(|row| row.owner == Some(me))),
    }
}

/// Whether a row says that its owner has opened it.
pub(crate) fn says_connected(row: &Row) -> bool {
    row.observed == Observed::Connected
}
