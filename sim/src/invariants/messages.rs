//! Stored messages.

use super::{IN_ORDER, ONE_KEY, STAYS};
use crate::ledger::Book;
use crate::ledger::image::text;
use crate::ledger::observed::Applied;
use crate::workload::feeds;
use leasehold::model::{Feed, MessageKey};
use serde_json::Value;

/// Two sockets that are excused may begin a series each, where the feed has none yet. What they heard is stored within so many ms.
const UNDER_WAY_MS: u64 = 2_000;

/// Takes a write to `messages` into the book.
pub fn written(book: &mut Book, applied: &Applied<'_>) {
    let (Some(connection), Some(sk)) = (text(applied.key, "Pk"), text(applied.key, "Sk")) else { return };
    let connection = connection.trim_start_matches("CONN#").to_owned();
    let body = applied.new.as_ref().and_then(|new| text(new, "body")).unwrap_or_default().to_owned();
    book.write(applied.who, &connection, format!("message {sk}: {body}"));
    let before = book.bodies.insert((connection.clone(), sk.to_owned()), body.clone());
    if before.is_none() {
        book.tally.messages += 1;
    }
    if before.is_some_and(|before| before != body) {
        return book.break_promise(
            STAYS,
            Some(&connection),
            format!("{} wrote another message over {sk}", applied.who),
        );
    }
    let Some((key, _)) = MessageKey::from_sk(sk) else { return };
    let highest = book.series.entry((connection.clone(), key.series.as_str().to_owned())).or_default();
    *highest = (*highest).max(key.seq);
    let message: Value = serde_json::from_str(&body).unwrap_or_default();
    let (Some(number), Some(generation)) = (message["seq"].as_u64(), message["url"].as_u64()) else { return };
    let url = feeds::url(&connection, generation);
    // A row that was overwritten has lost its sequence pointer: its messages are counted, not numbered.
    if key.series.is_of(Feed { ws_url: &url, sequence_pointer: Some(feeds::POINTER) }) {
        numbered(book, applied.who, &connection, generation, number, sk);
    }
}

fn numbered(book: &mut Book, who: &str, connection: &str, generation: u64, number: u64, sk: &str) {
    let feed = book.feeds.entry((connection.to_owned(), generation)).or_default();
    let last = feed.stored.keys().next_back().copied().unwrap_or(0);
    let before = feed.stored.insert(number, sk.to_owned());
    if before.is_none() {
        book.judge(ONE_KEY, Some(connection), false, None);
    }
    let other = before.filter(|other| other != sk);
    if let Some(other) = other {
        let two_sockets = book.row(connection).doubled_ms.is_some_and(|at_ms| at_ms + UNDER_WAY_MS >= book.now_ms);
        let what = format!("{who} stored number {number} as {sk}; it was {other}");
        book.judge(ONE_KEY, Some(connection), two_sockets, Some(what));
    } else if number > last + 1 {
        book.break_promise(IN_ORDER, Some(connection), format!("{who} stored number {number} after {last}"));
    }
}
