//! Leases of sessions.

use super::{CLOSE_FIRST, LEASE_FORWARD, NO_FENCE, NO_UPSERT, NOT_GIVEN_UP, OVER_IS_OVER};
use crate::faults::Kind;
use crate::ledger::Book;
use crate::ledger::image::{brief, number, text};
use crate::ledger::notes::{ProcessNote, SessionNote};
use crate::ledger::observed::Applied;
use leasehold::decide::renewal::OnStoreOutage;
use serde_json::Value;

/// A process that was held up less than this before is expected to be late, in ms: a lease, the skew, a look, and requests on their way.
const AFTERMATH_MS: u64 = 45_000;
/// A session that renewed less than this before is good: well below the deadline of 14 s.
const GOOD_MS: u64 = 12_000;

/// A renewal is applied so much after it was sent at most, in ms.
const LATE_MS: u64 = 3_000;

/// Takes a write to `sessions` into the book.
pub fn written(book: &mut Book, applied: &Applied<'_>) {
    let id = text(applied.key, "session_id").unwrap_or_default().to_owned();
    let shown = applied.new.as_ref().map_or_else(|| "(no row)".to_owned(), brief);
    book.write(applied.who, &id, format!("session: {shown}"));
    if id == "#reconcile" {
        return;
    }
    if let Some(owner) = id.strip_suffix("#marks") {
        return marked(book, owner, applied.new.as_ref());
    }
    match book.sessions.remove(&id) {
        None => registered(book, &id, applied),
        Some(note) => changed(book, &id, note, applied),
    }
}

fn marked(book: &mut Book, owner: &str, new: Option<&Value>) {
    let waiting = new.filter(|new| new["marked_ids"].is_object() || new["resync"].is_object());
    match waiting {
        Some(new) => book.marks.insert(owner.to_owned(), brief(new)),
        None => book.marks.remove(owner),
    };
}

fn registered(book: &mut Book, id: &str, applied: &Applied<'_>) {
    let Some(new) = &applied.new else { return };
    if number(new, "heartbeat") != Some(0) || text(new, "session_state") != Some("ACTIVE") {
        book.break_promise(NO_UPSERT, None, format!("{} made session {id} without a registration", applied.who));
    }
    let note = SessionNote {
        image: Some(new.clone()),
        process: applied.who.to_owned(),
        registered_ms: book.now_ms,
        renewed_ms: book.now_ms,
        over_ms: None,
        by_a_lie: false,
    };
    book.sessions.insert(id.to_owned(), note);
    book.process(applied.who).session = Some(id.to_owned());
}

fn changed(book: &mut Book, id: &str, mut note: SessionNote, applied: &Applied<'_>) {
    let old = note.image.take();
    let was_over = note.over_ms.is_some();
    if old.is_none() && applied.new.is_some() {
        book.break_promise(NO_UPSERT, None, format!("{} wrote to session {id}, which is gone", applied.who));
    }
    if let (Some(old), Some(new)) = (&old, &applied.new) {
        let state = text(new, "session_state").unwrap_or_default();
        if was_over && (differs(old, new, "heartbeat") || differs(old, new, "session_state")) {
            book.break_promise(OVER_IS_OVER, None, format!("{} wrote to session {id}, which is over", applied.who));
        }
        if number(new, "heartbeat") < number(old, "heartbeat") {
            let what = format!("{} moved the heartbeat of {id} back", applied.who);
            book.break_promise(LEASE_FORWARD, None, what);
        }
        if number(new, "heartbeat") > number(old, "heartbeat") {
            note_doubt(book, &note);
            note.renewed_ms = book.now_ms;
        }
        if !was_over && state != "ACTIVE" {
            note.over_ms = Some(book.now_ms);
            ended(book, id, &mut note, new);
        }
    }
    if old.is_some() && applied.new.is_none() && !was_over {
        book.break_promise(OVER_IS_OVER, None, format!("{} removed session {id}, which is not over", applied.who));
    }
    note.image = applied.new.clone();
    let over = note.is_over();
    book.sessions.insert(id.to_owned(), note);
    if over && !was_over {
        strand_rows(book, id);
    }
}

/// Between two renewals that lie so far apart the worker has given its lease up by itself.
fn note_doubt(book: &mut Book, note: &SessionNote) {
    let doubt_ms = note.renewed_ms + book.timing.give_up_ms + LATE_MS;
    if book.now_ms > doubt_ms {
        book.process(&note.process).doubt_ms = Some(doubt_ms);
    }
}

fn differs(old: &Value, new: &Value, name: &str) -> bool {
    old[name] != new[name]
}

/// A session has become over.
fn ended(book: &mut Book, id: &str, note: &mut SessionNote, new: &Value) {
    let since_ms = book.now_ms.saturating_sub(AFTERMATH_MS);
    let process = book.process(&note.process).clone();
    let age_ms = book.now_ms.saturating_sub(note.renewed_ms);
    if text(new, "session_state") == Some("FENCED") {
        let lie_ms = process.faults.get(&Kind::TaskLies).copied();
        note.by_a_lie =
            lie_ms.is_some() && text(new, "over_reason").is_some_and(|why| why.contains("reported stopped"));
        let live = process.alive && !process.terminating && process.session.as_deref() == Some(id);
        if live && !note.by_a_lie && !was_cut_off(book, &process, since_ms, age_ms) {
            let what = format!("{id} of {} was fenced {age_ms} ms after its last renewal", note.process);
            book.break_promise(NO_FENCE, None, what);
        }
        return;
    }
    let mild = |kind: Kind| matches!(kind, Kind::LostAnswers | Kind::LandLate);
    let hindered = process.suffered(since_ms, |kind| kind.hinders_renewal() && !mild(kind));
    let away = book.all_suffered(since_ms, |kind| kind == Kind::StoreAway);
    if !process.terminating && !hindered && !away && age_ms < GOOD_MS {
        let what = format!("{} ended {id} {age_ms} ms after its last renewal", note.process);
        book.break_promise(NOT_GIVEN_UP, None, what);
    }
    closed_before_the_end(book, id, &note.process);
}

/// Whether a process could not renew. Under `close` its worker gives such a session up by itself when the store is away for everybody.
fn was_cut_off(book: &Book, process: &ProcessNote, since_ms: u64, age_ms: u64) -> bool {
    let given_up = book.policy == OnStoreOutage::Close && age_ms >= book.timing.lease_ms;
    let away = given_up && book.all_suffered(since_ms, |kind| kind == Kind::StoreAway);
    away || process.suffered(since_ms, |kind| kind.cuts_off() || (kind == Kind::DateOff && book.beyond))
}

/// Who ends its session has closed the sockets of what the session owns.
fn closed_before_the_end(book: &mut Book, id: &str, process: &str) {
    let owned = |connection: &str| {
        let image = book.rows.get(connection).and_then(|row| row.image.as_ref());
        image.is_some_and(|image| text(image, "lease_owner") == Some(id))
    };
    let open = book.sockets.values().find(|socket| socket.process == process && owned(&socket.connection));
    let open = open.map(|socket| socket.connection.clone());
    let what = open.as_ref().map(|_| format!("{process} ended {id} with its socket open"));
    book.judge(CLOSE_FIRST, open.as_deref(), false, what);
}

fn strand_rows(book: &mut Book, id: &str) {
    let now_ms = book.now_ms;
    for row in book.rows.values_mut() {
        let Some(image) = &row.image else { continue };
        if text(image, "lease_owner") == Some(id) && text(image, "desired_state") == Some("STARTED") {
            row.stranded_since_ms = Some(now_ms);
        }
    }
}
