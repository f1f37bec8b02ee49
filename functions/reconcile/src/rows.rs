//! Rows that an index shows: of sessions that are over, and those that nobody owns.

use crate::run::{Looked, Run};
use leasehold::aws::connections::by_owner_key;
use leasehold::aws::store::Page;
use leasehold::aws::together::together;
use leasehold::decide::desired::{Plan, Row};
use leasehold::decide::reconcile::over::{index_row, keep, key_of, looks_often, read_row};
use leasehold::decide::reconcile::{IndexRow, Keep, Turns, some_of};
use leasehold::decide::scope::index_until_ms;
use leasehold::model::connection::attr;
use leasehold::model::{AttributeValue, ConnectionId, Item, Session};

/// The most claims in one run, besides those of unclaimed connections; others come at their next turns.
const MAX_CLAIMS: usize = 20_000;
/// After so many rows, or claims, the time is looked at: a page of an index holds more than fit what is kept of the time for the end.
const AT_ONCE: usize = 1_000;
/// The most rows among which these are chosen.
const MAX_WAITING: usize = 10 * MAX_CLAIMS;

impl Run<'_> {
    /// Claims or reaps what an over session owns, as `by_owner` has it. A request can land late, so a row may come to name a session
    /// long after it was over: this look is repeated for a day.
    ///
    /// What nobody has claimed since the session was fenced is claimed at once, from where the last run ended: its place is noted again and
    /// again.
    pub(crate) async fn over_session(&mut self, session: &Session, looked: &Looked) {
        let often = looks_often(session, looked.now, &self.function.timing);
        let turns = if often { looked.turns } else { looked.minute_turns };
        let place = session.unclaimed_from.as_deref().filter(|pk| !pk.is_empty());
        let mut from = place.map(|pk| by_owner_key(&session.id, pk));
        let mut empty = true;
        loop {
            if !self.has_time() {
                return;
            }
            let outcome = self.store.by_owner(&session.id, from).await;
            let Some(page) = self.note("read by_owner", outcome) else { return };
            empty &= page.items.is_empty();
            if !self.over_page(&page, session, turns, looked).await {
                return;
            }
            from = page.next;
            if from.is_none() {
                break;
            }
        }
        if place.is_none() {
            self.keep_or_remove(session, empty, looked).await;
        }
    }

    /// Returns whether the whole page was done. Where time ends, or claims cannot be sent, the next run goes on from what is noted.
    async fn over_page(&mut self, page: &Page, session: &Session, turns: Turns, looked: &Looked) -> bool {
        let mut rest = page.items.as_slice();
        loop {
            let (rows, others) = rest.split_at(rest.len().min(AT_ONCE));
            if !self.over_rows(rows, session, turns, looked).await {
                return false;
            }
            let place = if others.is_empty() { page.next_key(attr::PK) } else { rows.last().and_then(pk_of) };
            if session.unclaimed_from.is_some() {
                let outcome = self.store.note_unclaimed(&session.id, place).await;
                self.note("note what is claimed", outcome);
            }
            if others.is_empty() {
                return true;
            }
            if !self.has_time() {
                return false;
            }
            rest = others;
        }
    }

    /// Returns whether all claims that are sent at once were.
    async fn over_rows(&mut self, items: &[Item], session: &Session, turns: Turns, looked: &Looked) -> bool {
        let (mut claims, mut reads) = (Vec::new(), Vec::new());
        let unclaimed = session.unclaimed_from.is_some();
        for item in items {
            match index_row(item, unclaimed, turns) {
                Ok(IndexRow::Claim(id)) => claims.push(id),
                Ok(IndexRow::Read(id)) => reads.push(id),
                Ok(IndexRow::Wait(id)) => _ = self.pending.see(&id, false),
                Err(error) => self.bad_key(&error),
            }
        }
        let mut sent = true;
        if unclaimed {
            // Nobody has claimed these, and somebody waits for each: they are not held up by what is in the queue.
            sent = self.claim("claim for an over session", &claims, "its owner is over").await;
            for id in &claims {
                self.pending.see(id, sent);
            }
        } else {
            self.wait_for_the_queue(claims);
        }
        let rows = self.read(reads).await;
        let now = self.now(looked);
        let mut plans = Vec::new();
        for (id, row) in rows {
            self.count_unreadable(&id, &row);
            plans.push(Plan { id, decision: read_row(&row, &session.id, now, &self.function.timing) });
        }
        self.apply("reap", &plans, now).await;
        sent
    }

    /// Reads rows consistently; those that cannot be read now are left to the next run.
    async fn read(&mut self, ids: Vec<ConnectionId>) -> Vec<(ConnectionId, Row)> {
        let store = &self.store;
        let mut reads = Vec::new();
        for id in ids {
            reads.push(async move {
                let answer = store.connection(&id).await;
                (id, answer)
            });
        }
        let mut rows = Vec::new();
        for (id, answer) in together(reads).await {
            if let Some(item) = self.note("read a row", answer) {
                rows.push((id, Row::read(item.as_ref())));
            }
        }
        rows
    }

    async fn keep_or_remove(&mut self, session: &Session, empty: bool, looked: &Looked) {
        match keep(session, empty, self.now(looked), &self.function.timing) {
            Keep::AsItIs => {}
            Keep::NoteEmpty(since_ms) => {
                let outcome = self.store.note_empty(&session.id, since_ms).await;
                self.note("note that a session owns nothing", outcome);
            }
            Keep::Remove => {
                let outcome = self.store.remove_session(&session.id).await;
                if self.note("remove a session", outcome).is_some() {
                    tracing::info!(event = "remove_session", session = %session.id, "over for long, and owns nothing");
                    self.summary.removed += 1;
                }
            }
        }
    }

    /// STARTED rows that nobody owns, as `by_expiry` has them; where rows are leased by themselves, those too whose lease is past.
    pub(crate) async fn unowned_rows(&mut self, looked: &Looked) {
        let timing = self.function.timing;
        let mut from = None;
        loop {
            if !self.has_time() {
                break;
            }
            let until_ms = index_until_ms(looked.store_may_have_been_away, self.now(looked), &timing);
            let outcome = self.store.by_expiry(until_ms, from).await;
            let Some(page) = self.note("read by_expiry", outcome) else { break };
            self.summary.unowned += page.items.len() as u64;
            let claims = self.with_turns(&page.items, looked.turns);
            self.wait_for_the_queue(claims);
            from = page.next;
            if from.is_none() {
                break;
            }
        }
    }

    fn with_turns(&mut self, items: &[Item], turns: Turns) -> Vec<ConnectionId> {
        let mut ids = Vec::new();
        for item in items {
            match key_of(item) {
                Ok(id) if turns.has(id.as_str()) => ids.push(id),
                Ok(id) => _ = self.pending.see(&id, false),
                Err(error) => self.bad_key(&error),
            }
        }
        ids
    }

    fn wait_for_the_queue(&mut self, claims: Vec<ConnectionId>) {
        for id in claims {
            if self.pending.see(&id, true) && self.pending.claims.len() < MAX_WAITING {
                self.pending.claims.push(id);
            }
        }
    }

    /// Sends what waits for it, unless the queue holds more claims than there are rows: workers are behind then, and more claims would not
    /// help them. The queue's counts lag, which is why rows are claimed again only after a while in any case.
    pub(crate) async fn claim_pending(&mut self, looked: &Looked) {
        let claims = std::mem::take(&mut self.pending.claims);
        if claims.is_empty() {
            return;
        }
        let rows = self.pending.rows();
        let outcome = self.function.claims.depth().await;
        let Some(depth) = self.note("read the depth of claims", outcome) else { return };
        if depth > rows {
            tracing::info!(event = "no_claims", depth, rows, "the queue holds enough claims");
            return;
        }
        let round = self.now(looked).lower_ms / self.function.timing.claim_again_ms.max(1);
        let claims = some_of(claims, MAX_CLAIMS, round);
        for (index, some) in claims.chunks(AT_ONCE).enumerate() {
            if index > 0 && !self.has_time() {
                return;
            }
            self.claim("claim rows", some, "its owner is over, or it has none").await;
        }
    }

    pub(crate) fn bad_key(&mut self, error: &leasehold::model::RowError) {
        self.summary.bad_rows += 1;
        tracing::error!(event = "bad_row", %error, "a row of connections has a key of another kind");
    }

    pub(crate) fn count_unreadable(&mut self, id: &ConnectionId, row: &Row) {
        if let Row::Unreadable { fault, .. } = row {
            self.summary.bad_rows += 1;
            tracing::error!(event = "bad_row", connection = %id, fault, "a row cannot be read");
        }
    }
}

/// The key of a row; the table has texts only.
fn pk_of(item: &Item) -> Option<&str> {
    match item.get(attr::PK) {
        Some(AttributeValue::S(pk)) => Some(pk),
        _ => None,
    }
}
