//! The look at the sessions: who is fenced.

use crate::HandlerError;
use crate::run::{Looked, Run};
use leasehold::aws::sessions::{BadSession, Memory};
use leasehold::aws::together::together;
use leasehold::aws::{Store, StoreError, Written};
use leasehold::decide::lease_time::Now;
use leasehold::decide::reconcile::unreadable::{self, Step};
use leasehold::decide::reconcile::{Evidence, Look, Looks, SessionAction, Turns, look};
use leasehold::model::{Session, SessionId, SessionState};
use std::collections::BTreeSet;

impl Run<'_> {
    /// Looks at the sessions, and fences.
    pub(crate) async fn look(&mut self, stopped_tasks: &BTreeSet<String>) -> Result<Looked, HandlerError> {
        let timing = self.function.timing;
        let memory = self.store.memory().await.map_err(HandlerError::Look)?;
        let all = self.store.all_sessions().await.map_err(HandlerError::Look)?;
        let now = self.store.time().now().ok_or(HandlerError::NoLeaseTime)?;
        let mut memory = memory.without_impossible_times(now, &timing);
        let mut sessions = all.readable;
        let looks = Looks { last_look_ms: memory.last_look_ms, grace_until_ms: memory.grace_until_ms };
        let look = self.decide(&sessions, looks, stopped_tasks, now).await;
        for session in sessions.iter().filter(|session| !session.state.is_over()) {
            self.summary.active_sessions += 1;
            self.summary.clock_skew_ms = self.summary.clock_skew_ms.max(session.clock_skew_ms.unsigned_abs());
        }
        self.summary.all_silent = look.all_silent;
        if look.all_silent {
            tracing::warn!(
                event = "all_silent",
                sessions = self.summary.active_sessions,
                "no session renews: nobody is fenced"
            );
        }
        self.write_sessions(look.actions, &mut sessions, now).await;
        sessions.extend(self.unreadable_sessions(&all.unreadable, now).await);
        let turns = Turns::since(memory.last_look_ms, now.lower_ms, &timing);
        let minute_turns = Turns::since(memory.last_minute_ms, now.lower_ms, &timing);
        memory.last_look_ms = look.looks.last_look_ms;
        memory.grace_until_ms = look.looks.grace_until_ms;
        if self.minute {
            memory.last_minute_ms = memory.last_look_ms;
        }
        self.remember(&memory).await;
        let store_may_have_been_away = look.store_may_have_been_away;
        Ok(Looked { sessions, memory, turns, minute_turns, store_may_have_been_away, now })
    }

    /// Notes which rows cannot be read, and fences those that could not be for long enough; returns these.
    async fn unreadable_sessions(&mut self, sessions: &[BadSession], now: Now) -> Vec<Session> {
        self.summary.bad_sessions = sessions.len() as u64;
        let mut fenced = Vec::new();
        for session in sessions {
            let BadSession { id, error, .. } = session;
            let outcome = match unreadable::step(session.since_ms, now, &self.function.timing) {
                Step::Note => self.store.note_unreadable(id, now.upper_ms).await,
                Step::Fence if self.function.rules.fence => {
                    let reason = format!("its row cannot be read: {error}");
                    tracing::error!(event = "fence", session = %id, reason, "its connections find a new owner");
                    self.store.fence_unreadable(session, &reason, now.upper_ms).await
                }
                Step::Fence | Step::Wait => continue,
            };
            let Some(Written::Applied(item)) = self.note("write sessions", outcome) else { continue };
            if let Ok(session) = Session::from_item(&item) {
                self.summary.fenced += 1;
                fenced.push(session);
            }
        }
        fenced
    }

    async fn remember(&mut self, memory: &Memory) {
        // Not remembered, the next look takes it for a gap, and suspects before it fences.
        let outcome = self.store.remember_look(memory).await;
        self.note("remember the look", outcome);
    }

    /// Decides, and asks ECS only where its view can end a doubt.
    async fn decide(&mut self, sessions: &[Session], looks: Looks, stopped_tasks: &BTreeSet<String>, now: Now) -> Look {
        let (timing, rules) = (self.function.timing, self.function.rules);
        let evidence = Evidence { stopped_tasks, running_tasks: None };
        let first = look(sessions, looks, evidence, now, &timing, rules);
        let Some(fleet) = self.function.fleet.as_ref().filter(|_| first.in_doubt) else { return first };
        let outcome = fleet.running_tasks().await;
        let Some(running) = self.note("list tasks", outcome) else { return first };
        let evidence = Evidence { stopped_tasks, running_tasks: Some(&running) };
        look(sessions, looks, evidence, now, &timing, rules)
    }

    /// Applies the actions, to `sessions` as well.
    async fn write_sessions(&mut self, actions: Vec<SessionAction>, sessions: &mut [Session], now: Now) {
        let store = &self.store;
        let mut writes = Vec::new();
        for action in actions {
            writes.push(async move {
                let outcome = write(store, &action, now).await;
                (action, outcome)
            });
        }
        for (action, outcome) in together(writes).await {
            let Some(written) = self.note("write sessions", outcome) else { continue };
            if !written.is_applied() {
                // It has renewed, or ended, since it was read.
                tracing::info!(event = "moved", ?action, "a session has changed since it was read");
                continue;
            }
            tracing::info!(event = "session", ?action);
            match action {
                SessionAction::Suspect { .. } => self.summary.suspected += 1,
                SessionAction::ClearSuspicion { .. } => self.summary.cleared += 1,
                SessionAction::RewriteExpiry { .. } => self.summary.rewritten += 1,
                SessionAction::Fence { id, reason, .. } => {
                    self.summary.fenced += 1;
                    tracing::warn!(event = "fence", session = %id, reason);
                    set_fenced(sessions, &id, now);
                }
            }
        }
    }
}

async fn write(store: &Store, action: &SessionAction, now: Now) -> Result<Written, StoreError> {
    match action {
        SessionAction::Fence { id, heartbeat, reason } => store.fence(id, *heartbeat, reason, now.upper_ms).await,
        SessionAction::Suspect { id, suspicion } => store.suspect(id, suspicion.heartbeat, Some(*suspicion)).await,
        SessionAction::ClearSuspicion { id, heartbeat } => store.suspect(id, *heartbeat, None).await,
        SessionAction::RewriteExpiry { id, heartbeat, expires_at_ms } => {
            store.rewrite_expiry(id, *heartbeat, *expires_at_ms).await
        }
    }
}

fn set_fenced(sessions: &mut [Session], id: &SessionId, now: Now) {
    if let Some(session) = sessions.iter_mut().find(|session| session.id == *id) {
        session.state = SessionState::Fenced;
        session.over_at_ms = Some(now.upper_ms);
        session.unclaimed_from = Some(String::new());
    }
}
