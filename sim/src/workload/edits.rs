//! Hand edits of rows, past all faults: a person's table editor works.

use crate::invariants::timed::{REOPEN_WITHIN_MS, SLOW_STOP_WITHIN_MS, START_WITHIN_MS, STOP_WITHIN_MS};
use crate::ledger::book::{Due, Expected};
use crate::ledger::notes::Wish;
use crate::ledger::{Book, Ledger};
use crate::workload::feeds;
use aws_smithy_runtime_api::client::http::{HttpConnector, SharedHttpConnector};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_types::body::SdkBody;
use futures_util::FutureExt;
use leasehold_local::engine::wire;
use serde_json::{Value, json};
use std::collections::VecDeque;

/// What a person does to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// `desired_state` = STARTED; a row that is not there is written.
    Start,
    /// `desired_state` = STOPPED.
    Stop,
    /// Another URL, as our tools write it: with the flag.
    NewUrl,
    /// Another URL, by hand.
    NewUrlByHand,
    /// The whole row anew, with its spec and without the lease.
    Overwrite,
    /// The three attributes that people write.
    OverwriteMinimal,
    /// The row goes.
    Delete,
    /// The row goes, and comes back at once.
    Recreate,
}

/// Makes edits.
pub struct Editor {
    stack: SharedHttpConnector,
    table: String,
    ledger: Ledger,
    flags: u64,
    waiting: VecDeque<(&'static str, Value)>,
}

impl Editor {
    /// An editor of the table behind `stack`.
    pub fn new(stack: SharedHttpConnector, table: String, ledger: Ledger) -> Self {
        Self { stack, table, ledger, flags: 0, waiting: VecDeque::new() }
    }

    /// Writes a new row.
    pub fn create(&mut self, connection: &str, started: bool, numbered: bool) {
        let wish = Wish { exists: true, started, numbered, ..Wish::default() };
        self.note(connection, wish);
        self.put(connection, true);
    }

    /// Makes an edit. What makes no sense for the row as it is becomes a start.
    pub fn make(&mut self, connection: &str, edit: Edit) {
        let mut wish = self.ledger.open().row(connection).wish.clone();
        if !wish.exists {
            let (generation, numbered) = (wish.generation + u64::from(!wish.numbered), true);
            self.note(connection, Wish { exists: true, started: true, generation, numbered, ..wish });
            return self.put(connection, true);
        }
        match edit {
            Edit::Start => {
                let was_stopped = !wish.started;
                wish.started = true;
                self.note(connection, wish);
                self.set(connection, "desired_state", "STARTED", false);
                if was_stopped {
                    note_due(&mut self.ledger.open(), connection, START_WITHIN_MS, Expected::Open);
                }
            }
            Edit::Stop => {
                wish.started = false;
                self.note(connection, wish);
                self.set(connection, "desired_state", "STOPPED", false);
                let mut book = self.ledger.open();
                note_due(&mut book, connection, STOP_WITHIN_MS, Expected::Closed);
                note_due(&mut book, connection, SLOW_STOP_WITHIN_MS, Expected::ClosedSlowly);
            }
            Edit::NewUrl | Edit::NewUrlByHand => {
                wish.generation += 1;
                let url = feeds::url(connection, wish.generation).to_string();
                self.note(connection, wish);
                self.set(connection, "ws_url", &url, edit == Edit::NewUrl);
                if edit == Edit::NewUrl {
                    note_due(&mut self.ledger.open(), connection, REOPEN_WITHIN_MS, Expected::Reopened);
                }
            }
            Edit::Overwrite | Edit::OverwriteMinimal => {
                let numbered = edit == Edit::Overwrite;
                // With its numbers a feed would begin anew: a person who writes a row by hand again names another one.
                wish.generation += u64::from(numbered && !wish.numbered);
                wish.numbered = numbered;
                self.note(connection, wish);
                self.put(connection, numbered);
            }
            Edit::Delete => {
                self.note(connection, Wish { exists: false, started: false, ..wish });
                self.delete(connection);
            }
            Edit::Recreate => {
                self.note(connection, Wish { started: true, ..wish.clone() });
                self.delete(connection);
                self.put(connection, wish.numbered);
            }
        }
    }

    /// Removes the rows of a session, as its clean-up does.
    pub fn remove_session(&mut self, table: &str, session: &str) {
        for key in [session.to_owned(), format!("{session}#marks")] {
            self.ask("DeleteItem", &json!({ "TableName": table, "Key": { "session_id": { "S": key } } }));
        }
    }

    fn note(&self, connection: &str, wish: Wish) {
        let mut book = self.ledger.open();
        let edited_ms = book.now_ms;
        let row = book.row(connection);
        // These two are the record's.
        let (overwritten_ms, deleted_ms) = (row.wish.overwritten_ms, row.wish.deleted_ms);
        row.wish = Wish { edited_ms, overwritten_ms, deleted_ms, ..wish };
    }

    fn put(&mut self, connection: &str, numbered: bool) {
        let wish = self.ledger.open().row(connection).wish.clone();
        let desired = if wish.started { "STARTED" } else { "STOPPED" };
        let url = feeds::url(connection, wish.generation).to_string();
        let mut item = json!({
            "Pk": { "S": pk(connection) },
            "desired_state": { "S": desired },
            "ws_url": { "S": url },
        });
        if numbered {
            item["sequence_pointer"] = json!({ "S": feeds::POINTER });
            item["headers"] = json!({ "M": { feeds::REPLAY_HEADER: { "S": "1" } } });
            item["resume"] = json!({ "M": { "query": { "S": "from={last_seq}" } } });
        }
        self.ask("PutItem", &json!({ "TableName": &self.table, "Item": item }));
    }

    fn set(&mut self, connection: &str, name: &str, value: &str, flagged: bool) {
        let mut update = json!({
            "TableName": self.table,
            "Key": { "Pk": { "S": pk(connection) } },
            "UpdateExpression": "SET #n = :v",
            "ExpressionAttributeNames": { "#n": name },
            "ExpressionAttributeValues": { ":v": { "S": value } },
        });
        if flagged {
            self.flags += 1;
            update["UpdateExpression"] = "SET #n = :v, spec_changed = :f".into();
            update["ExpressionAttributeValues"][":f"] = json!({ "S": format!("edit-{}", self.flags) });
        }
        self.ask("UpdateItem", &update);
    }

    fn delete(&mut self, connection: &str) {
        self.ask("DeleteItem", &json!({ "TableName": self.table, "Key": { "Pk": { "S": pk(connection) } } }));
    }

    fn ask(&mut self, operation: &'static str, body: &Value) {
        self.waiting.push_back((operation, body.clone()));
        self.go_on();
    }

    /// Sends what waits, in order: a limit of writes may refuse a hand as well, which tries again.
    pub fn go_on(&mut self) {
        while let Some((operation, body)) = self.waiting.front() {
            let mut request = HttpRequest::new(SdkBody::empty());
            request.headers_mut().insert("x-amz-target", format!("DynamoDB_20120810.{operation}"));
            wire::set_json(&mut request, body);
            // The embedded engine answers at once.
            let answer = self.stack.call(request).now_or_never();
            if !answer.is_some_and(|answer| answer.is_ok_and(|answer| answer.status().is_success())) {
                return;
            }
            self.waiting.pop_front();
        }
    }
}

fn note_due(book: &mut Book, connection: &str, within_ms: u64, what: Expected) {
    book.due.push(Due { at_ms: book.now_ms + within_ms, connection: connection.to_owned(), what });
}

fn pk(connection: &str) -> String {
    format!("CONN#{connection}")
}
