//! Owners and epochs of rows.

use super::{
    CHECKPOINT, CLOSE_FIRST, EPOCHS_RISE, FENCE_FIRST, LEASE_FORWARD, NO_UPSERT, OWNER_WRITES, PAIRS, ROW_NOT_GIVEN_UP,
};
use crate::case::plan::{BEYOND_MS, DATE_OFF_MS};
use crate::faults::Kind;
use crate::invariants::timed::{OPEN_WITHIN_MS, judge_stranded};
use crate::ledger::Book;
use crate::ledger::book::{Due, Expected};
use crate::ledger::image::{brief, number, text};
use crate::ledger::observed::Applied;
use crate::time::EPOCH_MS;
use serde_json::Value;

/// Two clock errors: a row that is deleted and made again within these may repeat an epoch (`max_clock_skew`, and what a Date leaves open).
const TWO_CLOCK_ERRORS_MS: u64 = 10_000;

/// What was done to a row, or to its owner's way to the store, less than this before may be why it is taken anew, in ms.
const UNCLEAR_MS: u64 = 60_000;
/// A row's own lease is good that runs for so long yet, in ms: of 20 s, and 2 s that a stamp may lie ahead, it was renewed in the last 10 s.
const GOOD_FOR_MS: u64 = 12_000;
/// A socket that closed less than this before was dropped for what follows, in ms.
const JUST_NOW_MS: u64 = 5_000;

/// Owner and epoch of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lease<'a> {
    owner: Option<&'a str>,
    epoch: Option<u64>,
    expires_at_ms: Option<u64>,
}

impl<'a> Lease<'a> {
    fn of(image: Option<&'a Value>) -> Self {
        let Some(image) = image else { return Self::default() };
        Self {
            owner: text(image, "lease_owner"),
            epoch: number(image, "lease_epoch"),
            expires_at_ms: number(image, "lease_expires_at_ms"),
        }
    }
}

/// Takes a write to `connections` into the book.
pub fn written(book: &mut Book, applied: &Applied<'_>) {
    let connection = text(applied.key, "Pk").unwrap_or_default().trim_start_matches("CONN#").to_owned();
    let old = book.row(&connection).image.take();
    let new = applied.new.clone();
    let shown = new.as_ref().map_or_else(|| "(no row)".to_owned(), brief);
    book.write(applied.who, &connection, format!("row: {shown}"));
    if applied.who != "hand" {
        check(book, &connection, applied.who, old.as_ref(), new.as_ref());
    }
    if applied.who == "hand" {
        note_wish(book, &connection, old.as_ref(), new.as_ref());
    }
    note_stranded(book, &connection, old.as_ref(), new.as_ref());
    book.row(&connection).image = new;
}

fn check(book: &mut Book, connection: &str, who: &str, old: Option<&Value>, new: Option<&Value>) {
    let Some(old) = old else {
        return book.break_promise(NO_UPSERT, Some(connection), format!("{who} wrote to a row that is not there"));
    };
    let (was, is) = (Lease::of(Some(old)), Lease::of(new));
    match is.owner {
        Some(owner) if (was.owner, was.epoch) != (is.owner, is.epoch) => {
            acquired(book, connection, who, was, owner, is.epoch.unwrap_or(0))
        }
        _ => changed(book, connection, who, was, is),
    }
    if let Some(new) = new {
        check_progress(book, connection, who, old, new);
    }
}

fn acquired(book: &mut Book, connection: &str, who: &str, was: Lease<'_>, owner: &str, epoch: u64) {
    if book.process_of(owner) != Some(who) {
        let what = format!("{who} made {owner} the owner, which is no session of its own");
        book.break_promise(OWNER_WRITES, Some(connection), what);
    }
    if let Some(former) = was.owner.filter(|former| *former != owner) {
        if !book.is_over(former) && !has_expired(book, was) {
            let what = format!("{who} took it from {former}, which is not over");
            book.break_promise(FENCE_FIRST, Some(connection), what);
        }
        book.tally.hand_overs += 1;
    }
    if was.owner == Some(owner) {
        acquired_anew(book, connection, who, was);
    }
    let now_ms = book.now_ms;
    book.process(who).acquired.insert(connection.to_owned(), now_ms);
    let what = Expected::Worked(who.to_owned(), epoch);
    book.due.push(Due { at_ms: now_ms + OPEN_WITHIN_MS, connection: connection.to_owned(), what });
    let row = book.row(connection);
    let (highest, at_ms) = row.highest_epoch;
    let rises_in_row = was.epoch.is_none_or(|was| epoch > was);
    let recent = row.wish.overwritten_ms.max(row.wish.deleted_ms).is_some_and(|lost_ms| lost_ms >= at_ms);
    let excused = recent && now_ms.saturating_sub(at_ms) <= TWO_CLOCK_ERRORS_MS;
    row.highest_epoch = if epoch >= highest { (epoch, now_ms) } else { row.highest_epoch };
    let new_pair = row.pairs.insert((owner.to_owned(), epoch));
    if !rises_in_row || (epoch <= highest && highest > 0 && !excused) {
        let what = format!("{who} took it with epoch {epoch}; it had {:?}, the highest was {highest}", was.epoch);
        book.break_promise(EPOCHS_RISE, Some(connection), what);
    }
    if !new_pair {
        book.break_promise(PAIRS, Some(connection), format!("{owner} had it before with epoch {epoch}"));
    }
}

/// A worker takes a row anew that it had open, and whose own lease is good: for an edit, or where it may have been cut off.
fn acquired_anew(book: &mut Book, connection: &str, who: &str, was: Lease<'_>) {
    let (now_ms, since_ms) = (book.now_ms, book.now_ms.saturating_sub(UNCLEAR_MS));
    let good = was.expires_at_ms.is_some_and(|at_ms| at_ms >= EPOCH_MS + now_ms + GOOD_FOR_MS);
    let row = book.row(connection);
    let had_it = row.holder == who && row.down_since.is_none_or(|(at_ms, _)| at_ms + JUST_NOW_MS >= now_ms);
    if !good || !had_it {
        return;
    }
    let edited_ms = row.wish.edited_ms.max(row.wish.overwritten_ms.max(row.wish.deleted_ms).unwrap_or(0));
    let hinders = |kind: Kind| kind == Kind::TaskLies || (kind.hinders_renewal() && kind != Kind::LostAnswers);
    let disturbed = book.process(who).suffered(since_ms, hinders);
    let away = book.all_suffered(since_ms, |kind| matches!(kind, Kind::StoreAway | Kind::WriteLimit | Kind::DateOff));
    if edited_ms < since_ms && !disturbed && !away {
        let what = format!("{who} had it open under {:?}, and took it anew", was.epoch);
        book.break_promise(ROW_NOT_GIVEN_UP, Some(connection), what);
    }
}

/// Whether the row's own lease is past, where rows are leased by themselves: by the world's time, as far as anybody can know it.
fn has_expired(book: &Book, was: Lease<'_>) -> bool {
    let known_within_ms = if book.beyond { BEYOND_MS } else { DATE_OFF_MS };
    let sure_ms = EPOCH_MS + book.now_ms + known_within_ms.unsigned_abs();
    let past = |expires_at_ms: u64| expires_at_ms + book.timing.max_clock_skew_ms <= sure_ms;
    book.timing.scope.renews_rows() && was.expires_at_ms.is_some_and(past)
}

/// A write that made nobody the owner.
fn changed(book: &mut Book, connection: &str, who: &str, was: Lease<'_>, is: Lease<'_>) {
    let Some(owner) = was.owner else { return };
    if is.owner.is_some() && is.expires_at_ms < was.expires_at_ms {
        book.break_promise(LEASE_FORWARD, Some(connection), format!("{who} moved the row's lease back"));
    }
    let process = book.process_of(owner).map(str::to_owned);
    let by_owner = process.as_deref() == Some(who);
    if !by_owner && (is_worker(who) || !(book.is_over(owner) || has_expired(book, was))) {
        let what = format!("{who} wrote to a row of {owner} ({})", process.as_deref().unwrap_or("no process"));
        book.break_promise(OWNER_WRITES, Some(connection), what);
    }
    if is.owner.is_none() && by_owner {
        let open = book.sockets.values().any(|it| it.connection == connection && it.process == who);
        let what = open.then(|| format!("{who} released it with its socket open"));
        book.judge(CLOSE_FIRST, Some(connection), false, what);
    }
}

fn check_progress(book: &mut Book, connection: &str, who: &str, old: &Value, new: &Value) {
    let (Some(last_seq), Some(series)) = (number(new, "last_seq"), text(new, "series")) else { return };
    if number(old, "last_seq") == Some(last_seq) && text(old, "series") == Some(series) {
        return;
    }
    if is_worker(who) && text(new, "lease_owner").is_none() {
        let what = format!("{who} wrote progress to a row that nobody owns");
        book.break_promise(OWNER_WRITES, Some(connection), what);
    }
    let stored = book.series.get(&(connection.to_owned(), series.to_owned())).copied().unwrap_or(0);
    if last_seq > stored {
        let what = format!("{who} wrote last_seq {last_seq}, and {stored} is stored in {series}");
        book.break_promise(CHECKPOINT, Some(connection), what);
    }
}

fn is_worker(who: &str) -> bool {
    who.starts_with('w')
}

/// What a person has just written.
fn note_wish(book: &mut Book, connection: &str, old: Option<&Value>, new: Option<&Value>) {
    let now_ms = book.now_ms;
    let row = book.row(connection);
    match new {
        None => row.wish.deleted_ms = Some(now_ms),
        Some(new) => {
            let lost = Lease::of(old).epoch.is_some() && Lease::of(Some(new)).epoch.is_none();
            if lost {
                row.wish.overwritten_ms = Some(now_ms);
            }
        }
    }
}

/// Writes that leave a row with the same owner, which is over, leave it stranded since when it was.
fn note_stranded(book: &mut Book, connection: &str, old: Option<&Value>, new: Option<&Value>) {
    let wanted = |image: &&Value| text(image, "desired_state") == Some("STARTED");
    let owner = |image: &'_ Value| text(image, "lease_owner").map(str::to_owned);
    let (was, is) = (old.filter(wanted).and_then(owner), new.filter(wanted).and_then(owner));
    if is.is_some() && is == was {
        return;
    }
    let since_ms = is.as_ref().filter(|owner| book.is_over(owner)).map(|_| book.now_ms);
    let before = std::mem::replace(&mut book.row(connection).stranded_since_ms, since_ms);
    if let Some(since_ms) = before.filter(|_| is.is_some()) {
        judge_stranded(book, connection, since_ms, None);
    }
}
