//! The look at the sessions: who is fenced.

use crate::HandlerError;
use crate::run::{Looked, Run};
use leasehold::aws::sessions::Memory;
use leasehold::aws::together::together;
use leasehold::aws::{Store, StoreError, Written};
use leasehold::decide::lease_time::Now;
use leasehold::decide::reconcile::{Evidence, Look, Looks, SessionAction, Turns, look};
use leasehold::model::{Session, SessionId, SessionState};
use std::collections::BTreeSet;

impl Run<'_> {
    /// Looks at the sessions, and fences.
    pub(crate) async fn look(&mut self, stopped_tasks: &BTreeSet<String>) -> Result<Looked, HandlerError> {
        let mut memory = self.store.memory().await.map_err(HandlerError::Look)?;
        let mut sessions = self.store.sessions().await.map_err(HandlerError::Look)?;
        let now = self.store.time().now().ok_or(HandlerError::NoLeaseTime)?;
        let looks = Looks { last_look_ms: memory.last_look_ms, grace_until_ms: memory.grace_until_ms };
        let look = self.decide(&sessions, looks, stopped_tasks, now).await;
        self.summary.active_sessions = sessions.iter().filter(|session| !session.state.is_over()).count() as u64;
        self.summary.all_silent = look.all_silent;
        if look.all_silent {
            tracing::warn!(
                event = "all_silent",
                sessions = self.summary.active_sessions,
                "no session renews: nobody is fenced"
            );
        }
        let fresh = self.write_sessions(look.actions, &mut sessions, now).await;
        let turns = Turns::since(memory.last_look_ms, now.lower_ms, &self.function.timing);
        memory.last_look_ms = look.looks.last_look_ms;
        memory.grace_until_ms = look.looks.grace_until_ms;
        self.remember(&memory).await;
        Ok(Looked { sessions, fresh, memory, turns, now })
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

    /// Applies the actions; returns who was fenced.
    async fn write_sessions(
        &mut self,
        actions: Vec<SessionAction>,
        sessions: &mut [Session],
        now: Now,
    ) -> BTreeSet<SessionId> {
        let store = &self.store;
        let mut writes = Vec::new();
        for action in actions {
            writes.push(async move {
                let outcome = write(store, &action, now).await;
                (action, outcome)
            });
        }
        let mut fresh = BTreeSet::new();
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
                    fresh.insert(id);
                }
            }
        }
        fresh
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
    }
}
