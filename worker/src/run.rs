//! Sessions, one after the other, until the worker is told to stop.

use crate::context::{Context, Parts};
use crate::guard::Guard;
use crate::keeper::{self, Keeper};
use crate::stop::Stop;
use crate::supervisor::Supervisor;
use crate::{claims, compare, ending};
use futures_util::future::select_all;
use leasehold::aws::StoreError;
use leasehold::decide::renewal::Trust;
use leasehold::model::{Marks, SessionId};
use rand::RngExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// Why a session's run ended.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    Stopped,
    Lost,
    /// One of its tasks ended, most likely by a panic.
    Broken,
}

/// Runs until `stop` turns true.
///
/// # Errors
/// [`StoreError`] when the first session cannot be registered for a reason that waiting does not mend: a missing table, no credentials.
pub async fn run(parts: Parts, stop: watch::Receiver<bool>) -> Result<(), StoreError> {
    let stop = Stop::following(stop);
    let lag = tokio::spawn(measure_loop(parts.clone()));
    let (mut first, mut broken) = (true, 0_u32);
    let result = loop {
        match one_session(&parts, stop.clone(), first).await {
            Ok(Ended::Stopped) => break Ok(()),
            Ok(Ended::Lost) => broken = 0,
            Ok(Ended::Broken) => {
                // What panics at once in every session must not spin.
                let wait_ms = parts.settings.backoff.wait_ms(broken, &mut parts.seeds.rng()).max(500);
                broken = broken.saturating_add(1);
                tokio::select! {
                    biased;
                    () = sleep(Duration::from_millis(wait_ms)) => {}
                    () = stop.told() => {}
                }
            }
            Err(error) => break Err(error),
        }
        first = false;
    };
    lag.abort();
    result
}

async fn one_session(parts: &Parts, stop: Stop, first: bool) -> Result<Ended, StoreError> {
    let session = new_session_id(parts);
    let Some(registered_ms) = register(parts, &session, stop.clone(), first).await? else { return Ok(Ended::Stopped) };
    tracing::info!(event = "session_started", %session, capacity = parts.settings.capacity, "registered");
    parts.gauges.draining.store(false, Ordering::Relaxed);
    let settings = &parts.settings;
    let guard =
        Guard::new(parts.clock.clone(), settings.timing, settings.rules, settings.on_store_outage, registered_ms);
    let guard = Arc::new(guard);
    let context = Arc::new(Context { parts: parts.clone(), session, guard, stopping: stop });
    let supervisor = Supervisor::new(context.clone());
    let mut tasks = start_tasks(&context, &supervisor);
    let ended = tokio::select! {
        // In this order: the tasks end by themselves when the session is over or stops.
        biased;
        () = context.guard.over() => Ended::Lost,
        () = context.stopped() => Ended::Stopped,
        (result, index, _) = select_all(tasks.iter_mut()) => {
            let ended = after_a_task(context.guard.trust(), context.is_stopping());
            if ended == Ended::Broken {
                context.count("session_tasks_ended");
                let error = result.err().map(|error| error.to_string());
                tracing::error!(
                    event = "session_task_ended", session = %context.session, task = TASKS[index], error,
                    "no session goes on without it: its sockets are dropped and a new one begins"
                );
            }
            ended
        }
    };
    match ended {
        Ended::Stopped => ending::shut_down(&context, &supervisor).await,
        Ended::Lost => ending::start_over(&context, &supervisor, "lease lost").await,
        Ended::Broken => ending::start_over(&context, &supervisor, "a task of the worker ended").await,
    }
    for task in tasks {
        task.abort();
    }
    Ok(ended)
}

/// Why a run ended one of whose tasks has ended. A task may hear of the end of the session, or of the worker, before the run does: those who
/// wait for a change are woken one after the other.
fn after_a_task(trust: Trust, stopping: bool) -> Ended {
    match trust {
        Trust::StartOver => Ended::Lost,
        _ if stopping => Ended::Stopped,
        _ => Ended::Broken,
    }
}

/// What runs for as long as a session does, in the order of [`start_tasks`].
const TASKS: [&str; 5] = ["keeper", "deadline", "claims", "compare", "converge"];

fn start_tasks(context: &Arc<Context>, supervisor: &Arc<Supervisor>) -> [JoinHandle<()>; TASKS.len()] {
    let (marks_sender, marks) = mpsc::channel(1);
    let keeper = Keeper {
        parts: context.parts.clone(),
        session: context.session.clone(),
        guard: context.guard.clone(),
        marks: marks_sender,
    };
    let guard = context.guard.clone();
    [
        context.parts.keeper_runtime.spawn(keeper.run()),
        // The keeper looks at the deadline too. Here as well, so that its runtime alone cannot keep a lease trusted.
        tokio::spawn(async move { keeper::watch_deadline(&guard, keeper::DEADLINE_TICK_MS).await }),
        tokio::spawn(claims::run(context.clone(), supervisor.clone())),
        tokio::spawn(compare::run(context.clone(), supervisor.clone())),
        tokio::spawn(converge(context.clone(), supervisor.clone(), marks)),
    ]
}

/// `None`: told to stop before it was registered.
async fn register(parts: &Parts, session: &SessionId, stop: Stop, first: bool) -> Result<Option<u64>, StoreError> {
    let sent = Arc::new(AtomicBool::new(false));
    loop {
        // Registered on the keeper's runtime, where its client's connections are to live.
        let (owned, id, note) = (parts.clone(), session.clone(), sent.clone());
        let mut registering = parts.keeper_runtime.spawn(async move { keeper::register(&owned, &id, &note).await });
        let registered = tokio::select! {
            biased;
            registered = &mut registering => Some(registered),
            () = stop.told() => None,
        };
        let Some(registered) = registered else {
            registering.abort();
            // Waited for, so that nothing is sent after its end is.
            let _ = registering.await;
            if sent.load(Ordering::Acquire) {
                ending::end_unused(parts, session).await;
            }
            return Ok(None);
        };
        match registered {
            Ok(Ok(sent_ms)) => return Ok(Some(sent_ms)),
            Ok(Err(error)) if first => return Err(error),
            Ok(Err(error)) => tracing::error!(event = "register_failed", %error, "trying again"),
            Err(error) => tracing::error!(event = "register_failed", %error, "trying again"),
        }
        let wait_ms = parts.settings.backoff.wait_ms(4, &mut parts.seeds.rng()).max(500);
        tokio::select! {
            biased;
            () = sleep(Duration::from_millis(wait_ms)) => {}
            () = stop.told() => {}
        }
    }
}

/// A UUIDv7 (RFC 9562, section 5.7) of the process's own clock and generator.
fn new_session_id(parts: &Parts) -> SessionId {
    let random: [u8; 10] = parts.seeds.rng().random();
    let uuid = uuid::Builder::from_unix_timestamp_millis(parts.clock.wall_ms(), &random).into_uuid();
    SessionId::new(uuid.to_string())
}

/// Acts on marks, then removes them if nothing was added meanwhile.
async fn converge(context: Arc<Context>, supervisor: Arc<Supervisor>, mut marks: mpsc::Receiver<Marks>) {
    while let Some(read) = marks.recv().await {
        context.count("marks_read");
        let acted = supervisor.converge(&read).await;
        let removed = match acted {
            Ok(true) => context.parts.store.remove_marks(&context.session, read.version).await.map(|_| ()),
            Ok(false) => {
                tracing::debug!(
                    event = "marks_kept",
                    "a connection is busy: the marks are acted on again with the next renewal"
                );
                Ok(())
            }
            Err(error) => Err(error),
        };
        if let Err(error) = removed {
            tracing::warn!(event = "marks_kept", %error, "the marks are acted on again with the next renewal");
        }
    }
}

/// Measures how late the event loop runs its timers.
async fn measure_loop(parts: Parts) {
    const EVERY_MS: u64 = 100;
    let mut recent = [0_u64; 10];
    for round in 0.. {
        let before_ms = parts.clock.mono_ms();
        sleep(Duration::from_millis(EVERY_MS)).await;
        let now_ms = parts.clock.mono_ms();
        recent[round % recent.len()] = now_ms.saturating_sub(before_ms).saturating_sub(EVERY_MS);
        let worst = recent.iter().copied().max().unwrap_or(0);
        parts.gauges.loop_lag_ms.store(worst, Ordering::Relaxed);
        parts.gauges.loop_ran_ms.store(now_ms, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_hears_of_the_end_first_does_not_make_it_a_breakdown() {
        assert_eq!(after_a_task(Trust::Valid, true), Ended::Stopped);
        assert_eq!(after_a_task(Trust::StartOver, false), Ended::Lost);
        assert_eq!(after_a_task(Trust::StartOver, true), Ended::Lost);
        assert_eq!(after_a_task(Trust::Valid, false), Ended::Broken);
    }
}
