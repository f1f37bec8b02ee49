//! `leasehold messages`: what a connection has received, in order, newest last.

use super::assemble::{Assembler, Message};
use super::connection_id;
use crate::failure::Failure;
use crate::output::{Output, note};
use crate::target::{Target, no_such_connection};
use crate::visible::cut;
use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};
use leasehold::aws::messages::Body;
use leasehold::aws::store::SdkItem;
use leasehold::aws::update::s;
use leasehold::model::ConnectionId;
use leasehold::model::message::attr;
use serde::Serialize;
use std::fmt::Write;
use std::time::Duration;

/// How often new messages are looked for.
const POLL: Duration = Duration::from_secs(1);
/// How many looks in a row may fail before following ends.
const FAILED_POLLS: u32 = 10;
/// Items in one page of following.
const PAGE: i32 = 500;
/// The most of a message that a line shows, in characters of text and in bytes.
const TEXT_CHARS: usize = 1_000;
const BINARY_BYTES: usize = 32;

/// Show the messages that a connection has received: the newest ones, oldest first.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A line is: when it was received (UTC), its number (number+n: the n-th more with or after that number), its text. Control characters are
written as \\n or \\u{1b}; long texts are cut; binary messages are shown as the first bytes in hex. A line `series …` stands before the first
message of each series of numbers.

--json prints {\"messages\":[…]}, each with series, seq, sub, received_at_ms, and text (whole) or hex (binary, whole), missing_parts (0 unless
a part of a large message is gone). With --follow each message is an object of its own, one a line.")]
pub struct Arguments {
    /// The connection
    #[arg(value_parser = connection_id)]
    id: ConnectionId,
    /// How many messages
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    limit: u16,
    /// The oldest messages instead of the newest
    #[arg(long)]
    from_start: bool,
    /// Go on with what comes after, until Ctrl-C
    #[arg(long)]
    follow: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Document {
    messages: Vec<MessageView>,
}

#[derive(Serialize)]
struct MessageView {
    series: String,
    seq: u64,
    sub: u64,
    received_at_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hex: Option<String>,
    missing_parts: u32,
}

impl Arguments {
    /// Runs the command.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn run(self, target: &Target, output: &Output) -> Result<(), Failure> {
        if !self.follow {
            return self.show(target, output).await;
        }
        tokio::select! {
            shown = self.show(target, output) => shown,
            // Whatever the reason that Ctrl-C cannot be listened to: the default of the signal ends us then.
            Ok(()) = tokio::signal::ctrl_c() => Ok(()),
        }
    }

    async fn show(&self, target: &Target, output: &Output) -> Result<(), Failure> {
        let messages = self.first(target).await?;
        if messages.is_empty() {
            let row = target.store.connection(&self.id).await.map_err(|error| target.failure(error))?;
            if row.is_none() {
                return Err(no_such_connection(self.id.as_str()));
            }
        }
        let mut printer = Printer { output, json: self.json, series: None };
        let mut position = messages.last().map(|message| message.last_sk.clone());
        if self.json && !self.follow {
            return output.json(&Document { messages: messages.into_iter().map(view).collect() });
        }
        printer.print(messages)?;
        if self.follow {
            self.follow(target, &mut printer, &mut position).await?;
        }
        Ok(())
    }

    /// The newest messages, or the oldest; in order.
    async fn first(&self, target: &Target) -> Result<Vec<Message>, Failure> {
        let limit = usize::from(self.limit);
        let (mut assembler, mut messages) = (Assembler::default(), Vec::new());
        let mut from = None;
        loop {
            let page = target.store.messages(&self.id, !self.from_start, i32::from(self.limit), from).await;
            let page = page.map_err(|error| target.failure(error))?;
            for item in &page.items {
                assembler.push(item, &mut messages);
            }
            from = page.next;
            if messages.len() >= limit || from.is_none() {
                break;
            }
        }
        messages.extend(assembler.finish());
        messages.truncate(limit);
        if !self.from_start {
            messages.reverse();
        }
        if assembler.strangers > 0 {
            note(&format!("{} items are no messages and are left out", assembler.strangers));
        }
        Ok(messages)
    }

    /// Prints what comes after `position`, for ever.
    async fn follow(
        &self,
        target: &Target,
        printer: &mut Printer<'_>,
        position: &mut Option<String>,
    ) -> Result<(), Failure> {
        let mut failed = 0;
        loop {
            match self.after(target, printer, position).await {
                Ok(()) => failed = 0,
                Err(Failure::Store { error, .. }) if error.is_transient() && failed < FAILED_POLLS => failed += 1,
                Err(failure) => return Err(failure),
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Prints what is there after `position`, page by page.
    async fn after(
        &self,
        target: &Target,
        printer: &mut Printer<'_>,
        position: &mut Option<String>,
    ) -> Result<(), Failure> {
        let mut assembler = Assembler::default();
        let mut from = position.as_ref().map(|sk| self.key(sk));
        loop {
            let page = target.store.messages(&self.id, false, PAGE, from).await;
            let page = page.map_err(|error| target.failure(error))?;
            let mut messages = Vec::new();
            for item in &page.items {
                assembler.push(item, &mut messages);
            }
            if let Some(last) = messages.last() {
                *position = Some(last.last_sk.clone());
            }
            printer.print(messages)?;
            // A message whose last part is not to be seen yet is read again at the next look.
            from = page.next;
            if from.is_none() {
                return Ok(());
            }
        }
    }

    fn key(&self, sk: &str) -> SdkItem {
        SdkItem::from([(attr::PK.to_owned(), s(self.id.pk())), (attr::SK.to_owned(), s(sk))])
    }
}

/// Prints messages as they come.
struct Printer<'a> {
    output: &'a Output,
    json: bool,
    series: Option<String>,
}

impl Printer<'_> {
    fn print(&mut self, messages: Vec<Message>) -> Result<(), Failure> {
        for message in messages {
            if self.json {
                self.output.json_line(&view(message))?;
                continue;
            }
            if self.series.as_deref() != Some(message.key.series.as_str()) {
                self.output.line(&format!("series {}", message.key.series))?;
                self.series = Some(message.key.series.to_string());
            }
            self.output.line(&line(&message))?;
        }
        Ok(())
    }
}

fn line(message: &Message) -> String {
    let received = DateTime::from_millis(i64::try_from(message.received_at_ms).unwrap_or(i64::MAX));
    let received = received.fmt(DateTimeFormat::DateTime).unwrap_or_else(|_| message.received_at_ms.to_string());
    let sub = if message.key.sub > 0 { "+" } else { "" };
    let body = match &message.body {
        Body::Text(text) => cut(text, TEXT_CHARS),
        Body::Binary(bytes) => {
            let more = if bytes.len() > BINARY_BYTES { "…" } else { "" };
            format!("({} bytes) {}{more}", bytes.len(), hex(&bytes[..bytes.len().min(BINARY_BYTES)]))
        }
    };
    let missing = match message.missing_parts {
        0 => String::new(),
        parts => format!("  ({parts} parts are gone)"),
    };
    format!("{received}  {}{sub}  {body}{missing}", message.key.seq)
}

fn view(message: Message) -> MessageView {
    let (text, hex) = match message.body {
        Body::Text(text) => (Some(text), None),
        Body::Binary(bytes) => (None, Some(hex(&bytes))),
    };
    MessageView {
        series: message.key.series.to_string(),
        seq: message.key.seq,
        sub: message.key.sub,
        received_at_ms: message.received_at_ms,
        text,
        hex,
        missing_parts: message.missing_parts,
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(out, "{byte:02x}");
    }
    out
}
