//! What must become so when nothing goes wrong any more; and how long rows are without a socket meanwhile.

use super::NOTHING_LOST;
use crate::faults::Kind;
use crate::ledger::Book;
use crate::ledger::book::raise;
use crate::ledger::image::{number, text};
use crate::ledger::notes::{ProcessNote, RowNote};
use std::collections::BTreeMap;

/// What was published less than this before may be on its way, in ms.
const ON_ITS_WAY_MS: u64 = 8_000;

/// Measures for how long STARTED rows have no socket.
pub fn note_down(book: &mut Book) {
    let Book { rows, sockets, processes, world_faults, tally, now_ms, .. } = book;
    let runs = |name: &str| processes.get(name).is_some_and(|process| !process.suspended);
    for (connection, row) in rows.iter_mut() {
        let open = sockets.values().find(|socket| socket.connection == *connection && runs(&socket.process));
        if let Some(open) = open {
            row.holder.clone_from(&open.process);
        }
        if open.is_some() || !row.wish.started {
            if let Some((since_ms, cause)) = row.down_since.take().filter(|_| open.is_some()) {
                raise(&mut tally.longest_down_ms, cause, *now_ms - since_ms);
            }
        } else if row.down_since.is_none() {
            row.down_since = Some((*now_ms, cause(row, processes, world_faults, *now_ms)));
        }
    }
}

fn cause(
    row: &RowNote,
    processes: &BTreeMap<String, ProcessNote>,
    world: &BTreeMap<Kind, u64>,
    now_ms: u64,
) -> &'static str {
    let recently = |ms: u64| now_ms.saturating_sub(ms);
    if row.wish.edited_ms >= recently(15_000) {
        return "edit";
    }
    if let Some(process) = processes.get(&row.holder) {
        if process.terminating {
            return Kind::Sigterm.name();
        }
        if !process.alive {
            return Kind::Crash.name();
        }
        let hindering = |kind: Kind| kind.hinders_renewal() || kind == Kind::TaskLies;
        let worst = process.faults.iter().filter(|(kind, until)| hindering(**kind) && **until >= recently(30_000));
        if let Some((kind, _)) = worst.max_by_key(|(_, until)| **until) {
            return kind.name();
        }
    }
    if world.get(&Kind::StoreAway).is_some_and(|until| *until >= recently(30_000)) {
        return Kind::StoreAway.name();
    }
    if row.upstream_trouble_ms.is_some_and(|at| at >= recently(45_000)) { "upstream" } else { "other" }
}

/// What is not settled yet; `None` when everything is.
#[must_use]
pub fn unsettled(book: &Book) -> Option<(Option<String>, String)> {
    for (connection, row) in &book.rows {
        if let Some(what) = unsettled_row(book, connection, row) {
            return Some((Some(connection.clone()), what));
        }
    }
    for (session, note) in &book.sessions {
        let Some(image) = note.image.as_ref().filter(|_| note.over_ms.is_none()) else { continue };
        let process = book.processes.get(&note.process);
        if process.is_none_or(|process| !process.alive || process.session.as_ref() != Some(session)) {
            return Some((None, format!("session {session} of {} is ACTIVE still", note.process)));
        }
        if number(image, "suspect_heartbeat") == number(image, "heartbeat") {
            return Some((None, format!("session {session} is suspect still")));
        }
        if let Some(marks) = book.marks.get(session) {
            return Some((None, format!("marks of {session} wait still: {marks}")));
        }
    }
    None
}

fn unsettled_row(book: &Book, connection: &str, row: &RowNote) -> Option<String> {
    let open: Vec<_> = book.sockets.values().filter(|socket| socket.connection == connection).collect();
    let owner = row.image.as_ref().and_then(|image| text(image, "lease_owner"));
    if !row.wish.started || row.image.is_none() {
        if !open.is_empty() {
            return Some(format!("it is not wanted, and {} has a socket open", open[0].process));
        }
        return owner.map(|owner| format!("it is not wanted, and names {owner}"));
    }
    let Some(owner) = owner else { return Some("it is STARTED, and nobody owns it".into()) };
    let Some(process) = book.process_of(owner).filter(|_| !book.is_over(owner)) else {
        return Some(format!("it is STARTED, and names {owner}, which is over"));
    };
    match open.as_slice() {
        [] => Some(format!("it is STARTED, and its owner {process} has no socket open")),
        [one] if one.process != process => Some(format!("{process} owns it, and {} has its socket", one.process)),
        [one] if one.generation != row.wish.generation => {
            Some(format!("its socket is open to url {}, not {}", one.generation, row.wish.generation))
        }
        [_] => None,
        _ => Some(format!("it has {} sockets", open.len())),
    }
}

/// Once everything has settled: whether each message that was published for a started row is stored.
pub fn check_nothing_lost(book: &mut Book) {
    let before_ms = book.now_ms.saturating_sub(ON_ITS_WAY_MS);
    let mut missing = None;
    for (connection, row) in &book.rows {
        if !row.wish.started || !row.wish.numbered {
            continue;
        }
        let Some(feed) = book.feeds.get(&(connection.clone(), row.wish.generation)) else { continue };
        for (index, at_ms) in feed.published_ms.iter().enumerate() {
            let number = index as u64 + 1;
            if *at_ms <= before_ms && !feed.stored.contains_key(&number) {
                missing.get_or_insert((connection.clone(), number, *at_ms));
            }
        }
    }
    if let Some((connection, number, at_ms)) = missing {
        let what = format!("number {number}, published at {at_ms} ms, is not stored");
        book.break_promise(NOTHING_LOST, Some(&connection), what);
    }
}
