//! A look at the sessions: who is fenced, who is suspected.

use super::Writes;
use crate::numbers::ms;
use crate::product;
use crate::protocol::Protocol;
use crate::state::{Ending, Process, SESSIONS, SessionWrite, Set, SlowLook, State, Worker, bit};
use crate::store::{Life, SessionRow};
use leasehold::decide::lease_time::Now;
use leasehold::decide::reconcile::{Evidence, Look, Looks, SessionAction, look};
use leasehold::model::Session;

impl Protocol {
    pub(crate) fn look_now(&self, state: &mut State, reported: Set) {
        let mut decided = self.decide_look(state, reported);
        while let Some(write) = decided.writes.pop() {
            self.write_session(state, write);
        }
        state.store.remember_look(decided.last_look_ms, decided.grace_until_ms);
    }

    pub(super) fn decide_look(&self, state: &State, reported: Set) -> SlowLook {
        let found = self.found(state, reported);
        let mut writes: Vec<_> = found.actions.into_iter().map(session_write).collect();
        writes.reverse();
        let (last_look_ms, grace_until_ms) = (ms(found.looks.last_look_ms), ms(found.looks.grace_until_ms));
        SlowLook { writes, last_look_ms, grace_until_ms }
    }

    /// Whether rows that are leased by themselves may have expired under owners who live, as a look sees it now.
    pub(super) fn store_may_have_been_away(&self, state: &State) -> bool {
        self.timing.scope.renews_rows() && self.found(state, 0).store_may_have_been_away
    }

    /// Reads the sessions and decides; asks ECS where its view can end a doubt.
    fn found(&self, state: &State, reported: Set) -> Look {
        let now = self.now(state);
        let mut sessions = Vec::new();
        for session in 0..SESSIONS as u8 {
            sessions.extend(state.store.session(session).map(|row| product::session(session, &row)));
        }
        let mut looks =
            Looks { last_look_ms: state.store.last_look_ms.into(), grace_until_ms: state.store.grace_until_ms.into() };
        if !self.repairs.silence_rule {
            // As if most of the fleet renewed, and every look came in time: there is no doubt then.
            sessions.extend((0..9).map(|_| self.awake(now)));
            looks = Looks { last_look_ms: now.lower_ms, grace_until_ms: 0 };
        }
        let stopped_tasks = product::tasks(reported);
        let running =
            product::tasks((0..SESSIONS as u8).filter(|k| self.has_task(state, *k)).fold(0, |all, k| all | bit(k)));
        let ask = |running_tasks| {
            let evidence = Evidence { stopped_tasks: &stopped_tasks, running_tasks };
            look(&sessions, looks, evidence, now, &self.timing, self.repairs.rules)
        };
        let mut found = ask(None);
        if found.in_doubt && self.bounds.fleet_view {
            found = ask(Some(&running));
        }
        found
    }

    /// A session that has just renewed. Nothing is ever decided about it.
    fn awake(&self, now: Now) -> Session {
        let expires_ms = ms(now.lower_ms + self.timing.lease_ms);
        let row = SessionRow { life: Life::Active, heartbeat: 0, expires_ms, suspicion: None, empty: false };
        product::session(SESSIONS as u8, &row)
    }

    pub(super) fn write_session(&self, state: &mut State, (session, heartbeat, write): (u8, u16, SessionWrite)) {
        let applied = state.store.write_session(session, heartbeat, |row| match write {
            SessionWrite::Fence => row.life = Life::Fenced,
            SessionWrite::Suspect(since_ms) => row.suspicion = since_ms.map(|since_ms| (heartbeat, since_ms)),
            SessionWrite::RewriteExpiry(expires_ms) => row.expires_ms = expires_ms,
        });
        if !applied || write != SessionWrite::Fence {
            return;
        }
        let lives = |worker: &Worker| {
            worker.session == session && worker.process == Process::Running && worker.ending == Ending::No
        };
        state.store.witness.live_fenced |= state.workers.iter().any(lives);
        if !self.repairs.second_look {
            // The run that fences is the only one that looks at what the session owned.
            self.over_session(state, session, Writes::Land);
        }
    }
}

fn session_write(action: SessionAction) -> (u8, u16, SessionWrite) {
    let narrow = |heartbeat: u64| u16::try_from(heartbeat).unwrap_or(u16::MAX);
    match action {
        SessionAction::Fence { id, heartbeat, .. } => {
            (product::session_number(&id), narrow(heartbeat), SessionWrite::Fence)
        }
        SessionAction::Suspect { id, suspicion } => {
            let write = SessionWrite::Suspect(Some(ms(suspicion.at_ms)));
            (product::session_number(&id), narrow(suspicion.heartbeat), write)
        }
        SessionAction::ClearSuspicion { id, heartbeat } => {
            (product::session_number(&id), narrow(heartbeat), SessionWrite::Suspect(None))
        }
        SessionAction::RewriteExpiry { id, heartbeat, expires_at_ms } => {
            (product::session_number(&id), narrow(heartbeat), SessionWrite::RewriteExpiry(ms(expires_at_ms)))
        }
    }
}
