//! What must become so within some time, where nothing is in its way.

use super::{OPENS, STARTED, STOPPED, STRANDED};
use crate::faults::Kind;
use crate::ledger::Book;
use crate::ledger::book::{Due, Expected};
use crate::ledger::image::{number, text};
use crate::ledger::notes::{ProcessNote, RowNote};

/// STOPPED closes the socket within so many ms.
pub const STOP_WITHIN_MS: u64 = 10_000;
/// STARTED opens one within so many ms: the stream, a claim, the acquire, a slow handshake.
pub const START_WITHIN_MS: u64 = 15_000;
/// Who acquires a row opens its socket within so many ms.
pub const OPEN_WITHIN_MS: u64 = 12_000;
/// Before an edit that is timed nothing may have gone wrong for so long, in ms: sessions are fenced and rows claimed by then.
const CALM_BEFORE_MS: u64 = 90_000;
/// A row of an over session is claimed within so many ms: a turn, a look, and the hand-over.
const STRANDED_MS: u64 = 45_000;
/// So long after its last fault reconcile runs in its rhythm again, in ms.
const RHYTHM_MS: u64 = 75_000;
/// An upstream that closed or refused is tried again within so many ms.
const UPSTREAM_MS: u64 = 60_000;

/// Looks at everything that is due.
pub fn check(book: &mut Book) {
    let now_ms = book.now_ms;
    if book.due.iter().any(|due| due.at_ms <= now_ms) {
        let (now, later) = std::mem::take(&mut book.due).into_iter().partition(|due| due.at_ms <= now_ms);
        book.due = later;
        for due in now {
            check_due(book, &due);
        }
    }
    check_stranded(book);
}

fn check_due(book: &mut Book, due: &Due) {
    let Some(row) = book.rows.get(&due.connection) else { return };
    let open = book.sockets.values().any(|socket| socket.connection == due.connection);
    match &due.what {
        Expected::Closed => {
            let judged = is_timed(book, row, due.at_ms - STOP_WITHIN_MS) && !row.wish.started;
            if judged && open {
                let what = format!("its socket is open {STOP_WITHIN_MS} ms after it was stopped");
                book.break_promise(STOPPED, Some(&due.connection), what);
            }
        }
        Expected::Open => {
            let judged = is_timed(book, row, due.at_ms - START_WITHIN_MS) && row.wish.started;
            if judged && upstream_is_well(row, due.at_ms) && !open {
                let what = format!("it has no socket {START_WITHIN_MS} ms after it was started");
                book.break_promise(STARTED, Some(&due.connection), what);
            }
        }
        Expected::Worked(process, epoch) => {
            let acquired_ms = due.at_ms - OPEN_WITHIN_MS;
            let same = row.image.as_ref().and_then(|image| number(image, "lease_epoch")) == Some(*epoch);
            let judged =
                same && row.wish.started && row.wish.edited_ms < acquired_ms && upstream_is_well(row, due.at_ms);
            if judged && row.opened_ms < acquired_ms && only_answers_lost(book, process, acquired_ms) {
                let what = format!("{process} acquired it at {acquired_ms} ms, and opened no socket");
                book.break_promise(OPENS, Some(&due.connection), what);
            }
        }
    }
}

/// Whether an edit is the last one, and nothing went wrong for long before it and since.
fn is_timed(book: &Book, row: &RowNote, edited_ms: u64) -> bool {
    let unclear_ms = row.wish.overwritten_ms.max(row.wish.deleted_ms).unwrap_or(0);
    let calm = book.calm_since_ms().max(unclear_ms) + CALM_BEFORE_MS <= edited_ms;
    calm && row.wish.edited_ms == edited_ms && !book.tight
}

fn upstream_is_well(row: &RowNote, now_ms: u64) -> bool {
    row.upstream_trouble_ms.is_none_or(|at_ms| at_ms + UPSTREAM_MS <= now_ms)
}

/// Whether a process had nothing in its way since then but answers that were lost, and its lease is good.
fn only_answers_lost(book: &Book, process: &str, since_ms: u64) -> bool {
    let before_ms = since_ms.saturating_sub(RHYTHM_MS);
    let hinders = |kind: Kind| !matches!(kind, Kind::LostAnswers | Kind::Drift | Kind::WallJump);
    let store = |kind: Kind| matches!(kind, Kind::StoreAway | Kind::WriteLimit);
    let Some(note) = book.processes.get(process) else { return false };
    let good = note.session.as_ref().is_some_and(|session| !book.is_over(session));
    good && note.alive && !note.suffered(before_ms, hinders) && !book.all_suffered(before_ms, store)
}

fn check_stranded(book: &mut Book) {
    let now_ms = book.now_ms;
    let late = |row: &RowNote| row.stranded_since_ms.is_some_and(|since_ms| since_ms + STRANDED_MS <= now_ms);
    let Some((connection, row)) = book.rows.iter().find(|(_, row)| late(row)) else { return };
    let since_ms = row.stranded_since_ms.unwrap_or(now_ms);
    let untouched = row.wish.edited_ms < since_ms;
    let hinders = |kind: Kind| !matches!(kind, Kind::Drift | Kind::WallJump);
    let reconcile_works = !book.all_suffered(since_ms.saturating_sub(RHYTHM_MS), hinders);
    let well = |process: &ProcessNote| {
        process.alive && !process.terminating && !process.suffered(since_ms.saturating_sub(RHYTHM_MS), hinders)
    };
    let had_lease = |process: &ProcessNote| {
        let session = process.session.as_ref().and_then(|session| book.sessions.get(session));
        session.is_some_and(|session| {
            let started_ms =
                session.image.as_ref().and_then(|image| number(image, "started_at_ms")).unwrap_or(u64::MAX);
            !session.is_over() && started_ms <= crate::time::EPOCH_MS + since_ms
        })
    };
    let somebody_works = book.processes.values().any(|process| well(process) && had_lease(process));
    if untouched && reconcile_works && somebody_works && !book.tight {
        let owner = row.image.as_ref().and_then(|image| text(image, "lease_owner")).unwrap_or_default();
        let what = format!("it has named {owner}, which is over, since {since_ms} ms");
        let connection = connection.clone();
        book.break_promise(STRANDED, Some(&connection), what);
    }
}
