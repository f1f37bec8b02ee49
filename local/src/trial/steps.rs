//! What can be done to a worker, and the waiting for what comes of it.

use super::cast::Cast;
use super::seconds;
use super::sight::{Hit, OpenSocket};
use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use std::fmt;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// How long everything may take to open, and to come back after a fault.
const PATIENCE: Duration = Duration::from_secs(75);
/// Within this time the feed has seen the end of every socket of a process that has ended.
const ENDS_SEEN: Duration = Duration::from_millis(300);
/// How long a worker may take to end after SIGTERM.
const SHUTDOWN: Duration = Duration::from_secs(20);

/// When something was done (milliseconds of the process's monotonic clock), and what it hit.
#[derive(Clone, Debug)]
pub struct Done {
    /// When.
    pub at_ms: u64,
    /// What it hit.
    pub hit: Hit,
}

/// What became of the connections that were hit, some time later.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Return {
    /// How many were hit.
    pub all: usize,
    /// How many of them deliver again.
    pub back: usize,
    /// The seconds since: until all did, or until that was given up.
    pub after_s: f64,
}

impl fmt::Display for Return {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { all, back, after_s } = self;
        write!(f, "{all} connections were hit; ")?;
        match all - back {
            0 => write!(f, "all deliver again after {after_s:.1} s"),
            still => write!(f, "{still} of them do not deliver again after {after_s:.1} s"),
        }
    }
}

impl Cast {
    /// SIGKILL, and its end waited for. With `reported`, the task's end is reported as ECS does; a replacement starts at once.
    ///
    /// # Errors
    /// When a process cannot be ended or started.
    pub async fn kill(&mut self, number: u32, reported: bool) -> Result<Done> {
        let (mut worker, before) = (self.take_worker(number)?, self.open_sockets());
        let at_ms = self.clock.mono_ms();
        worker.signal(Signal::KILL)?;
        worker.wait().await?;
        if reported {
            self.system.task_event(&worker.stopped_task(137, self.clock.wall_ms()));
        }
        self.start_worker()?;
        Ok(self.ended(before, at_ms).await)
    }

    /// SIGTERM, and its end waited for. Who replaces it has been started before.
    ///
    /// # Errors
    /// When the worker does not end by itself, or says that it failed.
    pub async fn terminate(&mut self, number: u32) -> Result<Done> {
        let (mut worker, before) = (self.take_worker(number)?, self.open_sockets());
        let at_ms = self.clock.mono_ms();
        worker.signal(Signal::TERM)?;
        let status = timeout(SHUTDOWN, worker.wait()).await.context("SIGTERM is not heard")??;
        if !status.success() {
            bail!("worker {number} ended with {status} after SIGTERM");
        }
        Ok(self.ended(before, at_ms).await)
    }

    /// What the end of a process hit: the sockets open `before` that the feed has seen end since.
    async fn ended(&self, before: Vec<OpenSocket>, at_ms: u64) -> Done {
        sleep(ENDS_SEEN).await;
        Done { at_ms, hit: self.ended_since(before, at_ms) }
    }

    /// SIGSTOP; a replacement starts at once.
    ///
    /// # Errors
    /// When there is no such worker, or the tables cannot be read.
    pub async fn suspend(&mut self, number: u32) -> Result<Done> {
        let hit = self.held_by(number).await?;
        let at_ms = self.clock.mono_ms();
        self.worker(number)?.signal(Signal::STOP)?;
        self.start_worker()?;
        Ok(Done { at_ms, hit })
    }

    /// SIGCONT. Returns when.
    ///
    /// # Errors
    /// When there is no such worker.
    pub fn resume(&self, number: u32) -> Result<u64> {
        let at_ms = self.clock.mono_ms();
        self.worker(number)?.signal(Signal::CONT)?;
        Ok(at_ms)
    }

    /// Waits until every connection has a socket and has delivered since `since_ms`.
    ///
    /// # Errors
    /// When that takes longer than 75 s, or a worker ends by itself.
    pub async fn wait_for_all(&mut self, since_ms: u64) -> Result<()> {
        let wanted = self.ids.len();
        let mut waited = Duration::ZERO;
        while self.stored.connections_since(since_ms) < wanted || self.open_socket_count() < wanted {
            if waited > PATIENCE {
                let delivering = self.stored.connections_since(since_ms);
                bail!("after {} s only {delivering} of {wanted} connections deliver", PATIENCE.as_secs());
            }
            self.watch(STEP).await?;
            waited += STEP;
        }
        Ok(())
    }

    /// Waits until what was hit delivers again over new sockets, 75 s at most. Says how it came out.
    ///
    /// # Errors
    /// When a worker ends by itself.
    pub async fn wait_until_back(&mut self, done: &Done) -> Result<Return> {
        let patience_until_ms = done.at_ms + PATIENCE.as_millis() as u64;
        loop {
            let back = self.back(&done.hit.connections, done.at_ms);
            let now_ms = self.clock.mono_ms();
            let all = done.hit.connections.len();
            if back == all || now_ms >= patience_until_ms {
                return Ok(Return { all, back, after_s: seconds(now_ms - done.at_ms) });
            }
            self.watch(STEP).await?;
        }
    }

    /// Waits, and tells of the state meanwhile.
    ///
    /// # Errors
    /// When a worker ends by itself.
    pub async fn watch(&mut self, time: Duration) -> Result<()> {
        let mut left = time;
        while !left.is_zero() {
            let step = left.min(STEP);
            sleep(step).await;
            left -= step;
            if let Some(on_step) = &self.on_step {
                on_step(self.open_socket_count(), self.stored.count());
            }
            for worker in &mut self.workers {
                if let Some(status) = worker.ended()? {
                    bail!("worker {} ended by itself: {status}", worker.number);
                }
            }
        }
        Ok(())
    }

    /// Ends the workers in order, then everything else.
    ///
    /// # Errors
    /// When a worker is gone already, or what is kept cannot be written down.
    pub async fn end(mut self) -> Result<()> {
        for worker in &self.workers {
            worker.signal(Signal::TERM)?;
        }
        for worker in &mut self.workers {
            // One that does not end in time is killed when it is dropped.
            let _ = timeout(Duration::from_secs(10), worker.wait()).await;
        }
        self.feed.stop().await;
        self.system.stop().await?;
        Ok(())
    }
}

/// How often a waiting trial looks.
const STEP: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_waited_for_in_vain_is_not_said_to_deliver() {
        let back = |back| Return { all: 30, back, after_s: 75.04 }.to_string();
        assert_eq!(back(30), "30 connections were hit; all deliver again after 75.0 s");
        assert_eq!(back(28), "30 connections were hit; 2 of them do not deliver again after 75.0 s");
    }
}
