//! One socket at a time.

use super::{FRESH_ACQUIRE, ONE_SOCKET};
use crate::faults::Kind;
use crate::ledger::Book;
use crate::ledger::book::raise;
use crate::ledger::notes::SocketNote;
use leasehold::decide::renewal::OnStoreOutage;

/// How long a process that runs again has to drop its sockets, in ms: two steps and what it finds to do.
const AWAKE_MS: u64 = 400;
/// How long the answer to a renewal takes at most, with its repetitions, where nothing is wrong, in ms.
const ANSWER_MS: u64 = 3_000;

/// A socket has opened.
pub fn opened(book: &mut Book, number: u64, socket: SocketNote) {
    let (connection, process) = (socket.connection.clone(), socket.process.clone());
    book.write(&process, &connection, format!("socket {number} opened to url {}", socket.generation));
    book.tally.sockets += 1;
    let now_ms = book.now_ms;
    book.row(&connection).opened_ms = now_ms;
    book.sockets.insert(number, socket);
    check_fresh(book, &connection, &process);
    check(book, &connection);
}

/// A socket is gone.
pub fn gone(book: &mut Book, number: u64) {
    let Some(socket) = book.sockets.remove(&number) else { return };
    book.write(&socket.process, &socket.connection, format!("socket {number} gone"));
    check(book, &socket.connection);
}

/// Looks at every connection that has two sockets: an excuse may have ended.
pub fn check_doubles(book: &mut Book) {
    let connections: Vec<String> = book.doubles.keys().cloned().collect();
    for connection in connections {
        check(book, &connection);
    }
}

fn check(book: &mut Book, connection: &str) {
    let open = book.sockets_of(connection);
    if open.len() < 2 {
        if let Some((since_ms, cause)) = book.doubles.remove(connection) {
            raise(&mut book.tally.longest_double_ms, cause, book.now_ms - since_ms);
        }
        return;
    }
    for (older, newer) in open.iter().zip(&open[1..]) {
        let Some(cause) = excuse(book, older, newer) else {
            let what = format!(
                "{} has one since {} ms, {} since {} ms",
                older.process, older.opened_ms, newer.process, newer.opened_ms
            );
            return book.break_promise(ONE_SOCKET, Some(connection), what);
        };
        let now_ms = book.now_ms;
        book.row(connection).doubled_ms = Some(now_ms);
        if !book.doubles.contains_key(connection) {
            book.doubles.insert(connection.to_owned(), (book.now_ms, cause));
            *book.tally.doubles.entry(cause).or_default() += 1;
            book.write("simulation", connection, format!("two sockets, excused: {cause}"));
        }
    }
}

/// Why two sockets may be open, if they may.
fn excuse(book: &Book, older: &SocketNote, newer: &SocketNote) -> Option<&'static str> {
    let now_ms = book.now_ms;
    let process = |name: &str| book.processes.get(name);
    let slept = |name: &str| {
        process(name).is_some_and(|it| {
            it.suspended || it.suffered(now_ms.saturating_sub(AWAKE_MS), |kind| kind == Kind::Suspended)
        })
    };
    if slept(&older.process) || slept(&newer.process) {
        return Some("suspended process");
    }
    // Either may be the new owner's: whoever does not know yet opens its socket anew when its upstream closes it.
    if let Some(lie) = lied_about(book, &older.process).max(lied_about(book, &newer.process)) {
        let within = book.timing.give_up_ms + AWAKE_MS;
        if now_ms.saturating_sub(lie) <= within {
            return Some("lying task event");
        }
    }
    let hindered = |within_ms: u64| {
        process(&older.process).is_some_and(|it| it.suffered(now_ms.saturating_sub(within_ms), Kind::hinders_renewal))
            || book.all_suffered(now_ms.saturating_sub(within_ms), |kind| {
                kind == Kind::StoreAway || (kind == Kind::WriteLimit && book.timing.scope.renews_rows())
            })
    };
    if book.policy == OnStoreOutage::Hold && hindered(book.timing.heartbeat_ms + ANSWER_MS) {
        return Some("hold, owner cut off");
    }
    let wish = &book.rows.get(&older.connection)?.wish;
    // The comparison finds it, whatever became of events; while it cannot, the deadline does.
    let mut within = book.timing.unknown_ms() + ANSWER_MS;
    if hindered(within) {
        within += 60_000;
    }
    let recent = |at_ms: Option<u64>| at_ms.is_some_and(|at| now_ms.saturating_sub(at) <= within);
    if recent(wish.deleted_ms) {
        return Some("re-created row");
    }
    recent(wish.overwritten_ms).then_some("overwritten row")
}

/// When the session of a process was fenced for a task event that lied.
fn lied_about(book: &Book, process: &str) -> Option<u64> {
    let sessions = book.sessions.values().filter(|session| session.process == process && session.by_a_lie);
    sessions.filter_map(|session| session.over_ms).max()
}

/// After a process could not renew until its deadline it must take its rows anew before it opens their sockets.
fn check_fresh(book: &mut Book, connection: &str, process: &str) {
    let Some(note) = book.processes.get(process) else { return };
    let (Some(doubt_ms), Some(&acquired_ms)) = (note.doubt_ms, note.acquired.get(connection)) else { return };
    let what =
        format!("{process} opened a socket under an acquire of {acquired_ms} ms, after a doubt at {doubt_ms} ms");
    let hold = book.policy == OnStoreOutage::Hold;
    book.judge(FRESH_ACQUIRE, Some(connection), hold, (acquired_ms < doubt_ms).then_some(what));
}
