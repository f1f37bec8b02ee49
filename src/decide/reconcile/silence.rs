//! Who is fenced. An outage of the store must not look like the death of the fleet.

use crate::decide::lease_time::Now;
use crate::decide::timing::{Rules, Timing};
use crate::model::{Session, SessionId, Suspicion};
use std::collections::BTreeSet;

/// How much later than its interval a look may come without counting as missed, in ms: delayed messages are not punctual.
const LATE_LOOK_MS: u64 = 5_000;

/// What is remembered of earlier looks, in lease time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looks {
    /// The last look (0: never).
    pub last_look_ms: u64,
    /// Until when expired sessions are suspected first.
    pub grace_until_ms: u64,
}

/// What ECS says.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// ARNs of tasks that are reported DEPROVISIONING or later, with an exit code for every container.
    pub stopped_tasks: &'a BTreeSet<String>,
    /// ARNs of the tasks that run, if ECS was asked.
    pub running_tasks: Option<&'a BTreeSet<String>>,
}

/// A write to a session, on condition that it is ACTIVE and its heartbeat is still this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionAction {
    /// It can never renew again.
    Fence {
        /// The session.
        id: SessionId,
        /// As read.
        heartbeat: u64,
        /// Why.
        reason: String,
    },
    /// It is fenced at a later look, unless its heartbeat moves.
    Suspect {
        /// The session.
        id: SessionId,
        /// With its heartbeat, as read.
        suspicion: Suspicion,
    },
    /// It is suspected no more.
    ClearSuspicion {
        /// The session.
        id: SessionId,
        /// As read.
        heartbeat: u64,
    },
    /// Its expiry lies too far ahead.
    RewriteExpiry {
        /// The session.
        id: SessionId,
        /// As read.
        heartbeat: u64,
        /// The new expiry, in lease time.
        expires_at_ms: u64,
    },
}

/// What a look at the sessions leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// What is written.
    pub actions: Vec<SessionAction>,
    /// What is remembered, after that.
    pub looks: Looks,
    /// Every session is silent: the store or the network is away, or the whole fleet is dead.
    pub all_silent: bool,
    /// Some session is expired and was not fenced: a view of the fleet could end the doubt.
    pub in_doubt: bool,
    /// The store may have been away of late, so that rows which are leased by themselves may have expired under live owners: these renew first.
    pub store_may_have_been_away: bool,
}

/// Looks at the sessions.
#[must_use]
pub fn look(
    sessions: &[Session],
    looks: Looks,
    evidence: Evidence<'_>,
    now: Now,
    timing: &Timing,
    rules: Rules,
) -> Look {
    let active: Vec<&Session> = sessions.iter().filter(|session| !session.state.is_over()).collect();
    let silent = active.iter().filter(|session| is_silent(session, now, timing)).count();
    let all_silent = silent > 0 && silent == active.len();
    let grace_until_ms = grace_until(active.len(), silent, looks, now, timing);
    let doubt = Doubt { all_silent, grace: now.lower_ms < grace_until_ms };
    let away = all_silent || (doubt.grace && (silent > 0 || !begins_anew(looks, now)));
    let mut out = Look {
        actions: Vec::new(),
        looks: Looks { last_look_ms: now.lower_ms, grace_until_ms },
        all_silent,
        in_doubt: false,
        store_may_have_been_away: away,
    };
    for session in active {
        let action = judge(session, doubt, evidence, now, timing);
        let fences = matches!(action, Some(SessionAction::Fence { .. }));
        out.in_doubt |= is_expired(session, now, timing) && !fences;
        // Without the fence (the demonstration's --break) nobody is told that it is over.
        out.actions.extend(action.filter(|_| rules.fence || !fences));
    }
    out
}

/// No renewal for two heartbeats.
fn is_silent(session: &Session, now: Now, timing: &Timing) -> bool {
    let renewed_at_ms = session.lease_expires_at_ms.saturating_sub(timing.lease_ms);
    now.lower_ms > renewed_at_ms.saturating_add(2 * timing.heartbeat_ms)
}

fn is_expired(session: &Session, now: Now, timing: &Timing) -> bool {
    now.lower_ms > session.lease_expires_at_ms.saturating_add(timing.max_clock_skew_ms)
}

/// Until when expired sessions are suspected before they are fenced.
fn grace_until(active: usize, silent: usize, looks: Looks, now: Now, timing: &Timing) -> u64 {
    if silent > 0 && silent == active {
        // The next look, where they may be back one by one, is within it.
        return now.lower_ms + 2 * timing.look_interval_ms;
    }
    // Without a look in the last interval nobody knows whether the store was away meanwhile.
    let gap = now.lower_ms.saturating_sub(looks.last_look_ms) > timing.look_interval_ms + LATE_LOOK_MS;
    let half = silent >= 2 && 2 * silent >= active;
    if gap || half {
        return looks.grace_until_ms.max(now.lower_ms + timing.suspect_ms);
    }
    looks.grace_until_ms
}

/// Whether grace was on at the last look and has run out since. Begun anew by a gap alone, it says no more than that looks are apart as a rule,
/// as where ticks queue down: doubt would never end.
fn begins_anew(looks: Looks, now: Now) -> bool {
    looks.last_look_ms < looks.grace_until_ms && looks.grace_until_ms <= now.lower_ms
}

#[derive(Clone, Copy)]
struct Doubt {
    all_silent: bool,
    grace: bool,
}

fn judge(session: &Session, doubt: Doubt, evidence: Evidence<'_>, now: Now, timing: &Timing) -> Option<SessionAction> {
    let (id, heartbeat) = (session.id.clone(), session.heartbeat);
    let fence = |reason: String| Some(SessionAction::Fence { id: id.clone(), heartbeat, reason });
    let task = session.task_arn.as_ref();
    if task.is_some_and(|arn| evidence.stopped_tasks.contains(arn)) {
        return fence("its task is reported stopped".into());
    }
    let farthest_ms = now.upper_ms + timing.lease_ms + timing.max_clock_skew_ms;
    if session.lease_expires_at_ms > farthest_ms {
        let expires_at_ms = now.upper_ms + timing.lease_ms;
        return Some(SessionAction::RewriteExpiry { id, heartbeat, expires_at_ms });
    }
    let expired = is_expired(session, now, timing);
    let overdue_ms = now.lower_ms.saturating_sub(session.lease_expires_at_ms);
    let task_is_gone = task.zip(evidence.running_tasks).is_some_and(|(arn, running)| !running.contains(arn));
    if expired && task_is_gone && (doubt.all_silent || doubt.grace) {
        return fence(format!("expired for {overdue_ms} ms, and ECS runs no such task"));
    }
    if doubt.all_silent {
        return session.suspicion.map(|_| SessionAction::ClearSuspicion { id, heartbeat });
    }
    if !expired {
        return None;
    }
    // A suspicion is void once the heartbeat has moved.
    match session.suspicion.filter(|suspicion| suspicion.heartbeat == heartbeat) {
        Some(suspicion) if now.lower_ms >= suspicion.at_ms.saturating_add(timing.suspect_ms) => {
            fence(format!("expired for {overdue_ms} ms, suspected, and its heartbeat did not move"))
        }
        Some(_) => None,
        None if doubt.grace => {
            Some(SessionAction::Suspect { id, suspicion: Suspicion { heartbeat, at_ms: now.lower_ms } })
        }
        None => fence(format!("expired for {overdue_ms} ms")),
    }
}

#[cfg(test)]
mod tests;
