//! What must become so within some time, where nothing is in its way.

use super::{OPENS, REOPENED_SLOWLY, STARTED, STOPPED, STOPPED_SLOWLY, STRANDED};
use crate::faults::Kind;
use crate::ledger::Book;
use crate::ledger::book::{Due, Expected};
use crate::ledger::image::{number, text};
use crate::ledger::notes::{ProcessNote, RowNote};

/// STOPPED closes the socket within so many ms.
pub const STOP_WITHIN_MS: u64 = 10_000;
/// While requests are slow it does so within so many ms: a batch of the stream, two heartbeats, as marks may come while others are acted on,
/// and a dozen requests one after the other that take up to 1.4 s each.
pub const SLOW_STOP_WITHIN_MS: u64 = 30_000;
/// So does a new URL, which is acquired and opened besides.
pub const REOPEN_WITHIN_MS: u64 = 40_000;
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
    let (invariant, judged, kept, what) = match &due.what {
        Expected::Closed => {
            let judged = is_timed(book, row, due.at_ms - STOP_WITHIN_MS, |_| false) && !row.wish.started;
            (STOPPED, judged, !open, format!("its socket is open {STOP_WITHIN_MS} ms after it was stopped"))
        }
        Expected::ClosedSlowly => {
            let judged = is_timed(book, row, due.at_ms - SLOW_STOP_WITHIN_MS, is_slowness) && !row.wish.started;
            (STOPPED_SLOWLY, judged, !open, format!("its socket is open {SLOW_STOP_WITHIN_MS} ms after it was stopped"))
        }
        Expected::Reopened => {
            let timed = is_timed(book, row, due.at_ms - REOPEN_WITHIN_MS, is_slowness) && row.wish.started;
            let judged = timed && upstream_is_well(row, due.at_ms) && !book.tight;
            let open = book
                .sockets
                .values()
                .any(|socket| socket.connection == due.connection && socket.generation == row.wish.generation);
            let what = format!("it has no socket to its new URL {REOPEN_WITHIN_MS} ms after it was changed");
            (REOPENED_SLOWLY, judged, open, what)
        }
        Expected::Open => {
            let timed = is_timed(book, row, due.at_ms - START_WITHIN_MS, |_| false) && row.wish.started;
            let judged = timed && upstream_is_well(row, due.at_ms) && !book.tight;
            (STARTED, judged, open, format!("it has no socket {START_WITHIN_MS} ms after it was started"))
        }
        Expected::Worked(process, epoch) => {
            let acquired_ms = due.at_ms - OPEN_WITHIN_MS;
            let same = row.image.as_ref().and_then(|image| number(image, "lease_epoch")) == Some(*epoch);
            let wanted =
                same && row.wish.started && row.wish.edited_ms < acquired_ms && upstream_is_well(row, due.at_ms);
            let judged = wanted && only_answers_lost(book, process, acquired_ms);
            let what = format!("{process} acquired it at {acquired_ms} ms, and opened no socket");
            (OPENS, judged, row.opened_ms >= acquired_ms, what)
        }
    };
    book.judge(invariant, Some(&due.connection), !judged, (!kept).then_some(what));
}

/// Whether an edit is the last one, and nothing but what is `allowed` went wrong for long before it and since.
fn is_timed(book: &Book, row: &RowNote, edited_ms: u64, allowed: impl Fn(Kind) -> bool) -> bool {
    let unclear_ms = row.wish.overwritten_ms.max(row.wish.deleted_ms).unwrap_or(0);
    let calm = book.calm_since_ms(allowed).max(unclear_ms) + CALM_BEFORE_MS <= edited_ms;
    calm && row.wish.edited_ms == edited_ms
}

fn is_slowness(kind: Kind) -> bool {
    kind == Kind::Slow
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

/// Judges each row that has waited for long enough, once.
fn check_stranded(book: &mut Book) {
    let now_ms = book.now_ms;
    let mut late = Vec::new();
    for (connection, row) in &mut book.rows {
        if let Some(since_ms) = row.stranded_since_ms.take_if(|since_ms| *since_ms + STRANDED_MS <= now_ms) {
            late.push((connection.clone(), since_ms));
        }
    }
    for (connection, since_ms) in late {
        let image = book.row(&connection).image.as_ref();
        let owner = image.and_then(|image| text(image, "lease_owner")).unwrap_or_default();
        let what = format!("it has named {owner}, which is over, since {since_ms} ms");
        judge_stranded(book, &connection, since_ms, Some(what));
    }
}

/// A row was stranded since then, and has another owner, or is late.
pub fn judge_stranded(book: &mut Book, connection: &str, since_ms: u64, late: Option<String>) {
    let untouched = book.row(connection).wish.edited_ms < since_ms;
    let judged = untouched && is_served(book, since_ms) && !book.tight;
    book.judge(STRANDED, Some(connection), !judged, late);
}

/// Whether reconcile and a worker have had nothing in their way since then, nor for long before. Claims may have been lost once.
fn is_served(book: &Book, since_ms: u64) -> bool {
    let before_ms = since_ms.saturating_sub(RHYTHM_MS);
    let hinders = |kind: Kind| !matches!(kind, Kind::Drift | Kind::WallJump | Kind::ClaimsLost);
    let well = |process: &ProcessNote| {
        let session = process.session.as_ref().and_then(|session| book.sessions.get(session));
        let has_lease = session.is_some_and(|session| !session.is_over() && session.registered_ms <= since_ms);
        process.alive && !process.terminating && !process.suffered(before_ms, hinders) && has_lease
    };
    !book.all_suffered(before_ms, hinders) && book.processes.values().any(well)
}
