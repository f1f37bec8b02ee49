//! What reconcile remembers from one run to the next: an item beside the sessions.

use crate::aws::error::StoreError;
use crate::aws::store::{Store, Written, key};
use crate::aws::update::{Update, n, s};
use crate::decide::lease_time::Now;
use crate::decide::timing::Timing;
use crate::model::fields;
use crate::model::session::{RECONCILE_KEY, attr};

/// What is remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// When it last looked at the sessions, in lease time.
    pub last_look_ms: u64,
    /// When it last did so in a run of a whole minute, in lease time.
    pub last_minute_ms: u64,
    /// Until when expired sessions are suspected before they are fenced.
    pub grace_until_ms: u64,
    /// The key that the sweep ended with; `None` at the beginning of the table.
    pub sweep_from: Option<String>,
    /// Pages of the sweep under way.
    pub sweep_pages: u64,
    /// How often the page after `sweep_from` has failed.
    pub sweep_failures: u64,
    /// Pages of the last whole sweep; 0 before there was one.
    pub table_pages: u64,
}

const LAST_LOOK_MS: &str = "last_look_ms";
const LAST_MINUTE_MS: &str = "last_minute_ms";
const GRACE_UNTIL_MS: &str = "grace_until_ms";
const SWEEP_FROM: &str = "sweep_from";
const SWEEP_PAGES: &str = "sweep_pages";
const SWEEP_FAILURES: &str = "sweep_failures";
const TABLE_PAGES: &str = "table_pages";

impl Memory {
    /// Times further ahead than this were written by hand, or by a clock that was wrong: no look and no grace lies so far ahead.
    fn farthest_ms(now: Now, timing: &Timing) -> u64 {
        now.upper_ms + 2 * timing.look_interval_ms + timing.suspect_ms + timing.max_clock_skew_ms
    }

    /// The same without times that cannot be: they would keep every later look from being remembered.
    #[must_use]
    pub fn without_impossible_times(mut self, now: Now, timing: &Timing) -> Self {
        for time in [&mut self.last_look_ms, &mut self.last_minute_ms, &mut self.grace_until_ms] {
            if *time > Self::farthest_ms(now, timing) {
                *time = 0;
            }
        }
        self
    }
}

impl Store {
    /// What reconcile remembers.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn memory(&self) -> Result<Memory, StoreError> {
        let item_key = key(attr::SESSION_ID, RECONCILE_KEY);
        let Some(item) = self.get(&self.clients.bulk, &self.tables.sessions, item_key).await? else {
            return Ok(Memory::default());
        };
        let number = |name| fields::number(&item, name).ok().flatten().unwrap_or(0);
        Ok(Memory {
            last_look_ms: number(LAST_LOOK_MS),
            last_minute_ms: number(LAST_MINUTE_MS),
            grace_until_ms: number(GRACE_UNTIL_MS),
            sweep_from: fields::string(&item, SWEEP_FROM).ok().flatten(),
            sweep_pages: number(SWEEP_PAGES),
            sweep_failures: number(SWEEP_FAILURES),
            table_pages: number(TABLE_PAGES),
        })
    }

    /// Remembers a look at the sessions at `memory.last_look_ms`. Runs may overlap: what is remembered only rises, so a slower run takes
    /// nothing back, least of all the grace. The grace goes first: a look without it would be worse than none.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn remember_look(&self, memory: &Memory) -> Result<(), StoreError> {
        let mut times = vec![(GRACE_UNTIL_MS, memory.grace_until_ms), (LAST_MINUTE_MS, memory.last_minute_ms)];
        // A grace of long ago, or a minute that this run is not, is nothing new.
        times.retain(|(_, time_ms)| *time_ms >= memory.last_look_ms);
        times.push((LAST_LOOK_MS, memory.last_look_ms));
        for (name, time_ms) in times {
            let update = Update::new().set(name, n(time_ms)).require_rise(name, time_ms);
            self.remember(update).await?;
        }
        Ok(())
    }

    /// Remembers how far the sweep came.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn remember_sweep(&self, memory: &Memory) -> Result<(), StoreError> {
        let update = Update::new()
            .set_or_remove(SWEEP_FROM, memory.sweep_from.as_ref().map(s))
            .set(SWEEP_PAGES, n(memory.sweep_pages))
            .set(SWEEP_FAILURES, n(memory.sweep_failures))
            .set(TABLE_PAGES, n(memory.table_pages));
        self.remember(update).await?;
        Ok(())
    }

    async fn remember(&self, update: Update) -> Result<Written, StoreError> {
        let table = &self.tables.sessions;
        self.update(&self.clients.bulk, table, (attr::SESSION_ID, RECONCILE_KEY.to_owned()), update).await
    }
}
