//! The sweep: a few pages of the whole table in each run of a minute.

use crate::run::{Looked, Run};
use leasehold::aws::owners::Owners;
use leasehold::aws::sessions::Memory;
use leasehold::aws::store::Page;
use leasehold::decide::desired::{Action, Decision, Plan, Row};
use leasehold::decide::reconcile::over::key_of;
use leasehold::decide::reconcile::sweep;
use leasehold::model::connection::attr;

/// So many runs sweep a page of which something fails, before the sweep goes on without it.
const PAGE_TRIES: u64 = 3;

impl Run<'_> {
    /// Sweeps this run's share of the table, from where the last run ended.
    pub(crate) async fn sweep(&mut self, looked: &Looked) {
        let mut memory = looked.memory.clone();
        let mut owners = Owners::knowing(&looked.sessions);
        for _ in 0..sweep::pages(memory.table_pages, &self.function.timing) {
            if !self.has_time() {
                return;
            }
            let outcome = self.store.scan_connections(memory.sweep_from.as_deref()).await;
            let Some(page) = self.note("scan connections", outcome) else { return };
            // A page of which something failed is swept again by the next run, but it does not hold up all that come after it.
            let swept = self.sweep_page(&page, &mut owners, looked).await;
            let goes_on = swept || memory.sweep_failures + 1 >= PAGE_TRIES;
            if goes_on {
                self.count_page(swept, &memory);
                advance(&mut memory, &page);
            } else {
                memory.sweep_failures += 1;
            }
            let outcome = self.store.remember_sweep(&memory).await;
            let remembered = self.note("remember the sweep", outcome).is_some();
            if !goes_on || !remembered || memory.sweep_from.is_none() {
                return;
            }
        }
    }

    fn count_page(&mut self, swept: bool, memory: &Memory) {
        if swept {
            self.summary.swept_pages += 1;
            return;
        }
        self.summary.given_up_pages += 1;
        let after = memory.sweep_from.as_deref().unwrap_or("the beginning");
        tracing::error!(event = "page_given_up", after, "something on this page fails each time: the sweep goes on");
    }

    async fn sweep_page(&mut self, page: &Page, owners: &mut Owners, looked: &Looked) -> bool {
        let mut rows = Vec::new();
        for item in &page.items {
            match key_of(item) {
                Ok(id) => rows.push((id, Row::read(Some(item)))),
                Err(error) => self.bad_key(&error),
            }
        }
        let mut complete = self.learn(owners, &rows).await;
        let now = self.now(looked);
        let mut plans = Vec::new();
        for (id, row) in rows {
            self.count_unreadable(&id, &row);
            if let Some(owner) = owners.view(row.owner()) {
                let (timing, rules) = (&self.function.timing, self.function.rules);
                let decision = sweep::row(&row, owner, looked.store_may_have_been_away, now, timing, rules);
                if !(is_claim(&decision) && row.owner().is_some_and(|owner| looked.claims_now(owner))) {
                    plans.push(Plan { id, decision });
                }
            }
        }
        complete &= self.apply("sweep", &plans, now).await;
        complete
    }
}

fn is_claim(decision: &Decision) -> bool {
    matches!(decision.actions[..], [Action::Claim { .. }])
}

fn advance(memory: &mut Memory, page: &Page) {
    memory.sweep_pages += 1;
    memory.sweep_failures = 0;
    memory.sweep_from = page.next_key(attr::PK).map(str::to_owned);
    if memory.sweep_from.is_none() {
        memory.table_pages = memory.sweep_pages;
        memory.sweep_pages = 0;
    }
}
