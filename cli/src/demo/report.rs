//! The verdict as people read it.

use comfy_table::{CellAlignment, Table, presets};
use leasehold_local::trial::verdict::Verdict;

/// Renders it.
#[must_use]
pub fn render(verdict: &Verdict) -> String {
    let mut text = String::new();
    text.push_str(&facts(verdict));
    text.push_str("\n\ngap from the last message stored before to the first stored after, in seconds\n");
    text.push_str(&gaps(verdict));
    text.push_str("\n\nwrite units per connection-hour (tables and indexes)\n");
    text.push_str(&units(verdict));
    text.push_str("\n\n");
    if verdict.green {
        text.push_str("GREEN: nothing replayable lost, nothing doubled, all in order, everything owned and connected");
    } else {
        text.push_str("RED:");
        for fault in &verdict.faults {
            text.push_str(&format!("\n  - {fault}"));
        }
    }
    text
}

fn table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table
}

fn facts(verdict: &Verdict) -> String {
    let mut table = table();
    let rows = [
        ("connections", verdict.connections.to_string(), "started"),
        ("owned", verdict.owned.to_string(), "by a live session, at the end"),
        ("connected", verdict.connected.to_string(), "one open socket, by the feed's log, at the end"),
        ("sent", verdict.sent.to_string(), "by the feed while started"),
        ("stored", verdict.stored.to_string(), "of these"),
        ("lost", verdict.lost.to_string(), "sent, replayable, not stored"),
        ("missed", verdict.missed.to_string(), "sent by feeds that cannot replay, not stored"),
        ("doubled", verdict.doubled.to_string(), "one payload under two keys"),
        ("out of order", verdict.out_of_order.to_string(), "stored behind one that was sent later"),
        ("silent", verdict.silent.to_string(), "connections of which nothing at all is stored"),
        ("overlap", format!("{:.1} s", verdict.overlap.forbidden_s), "two open sockets, beyond what is allowed"),
        ("", format!("{:.1} s", verdict.overlap.suspended_s), "two open sockets, one of a suspended process (allowed)"),
        ("", format!("{:.1} s", verdict.overlap.too_short_to_tell_s), "too short for the feed's log to tell"),
        ("took", format!("{:.0} s", verdict.seconds), ""),
    ];
    for (name, value, note) in rows {
        table.add_row([name, value.as_str(), note]);
    }
    right(&mut table, &[1]);
    table.to_string()
}

fn gaps(verdict: &Verdict) -> String {
    let mut table = table();
    table.set_header(["cause", "connections", "p50", "p99", "worst"]);
    for (cause, gap) in &verdict.gaps {
        table.add_row([
            (*cause).to_owned(),
            gap.connections.to_string(),
            format!("{:.2}", gap.p50_s),
            format!("{:.2}", gap.p99_s),
            format!("{:.2}", gap.worst_s),
        ]);
    }
    right(&mut table, &[1, 2, 3, 4]);
    table.to_string()
}

fn units(verdict: &Verdict) -> String {
    let mut table = table();
    for (class, units) in &verdict.write_units_per_connection_hour {
        table.add_row([(*class).to_owned(), format!("{units:.2}")]);
    }
    right(&mut table, &[1]);
    table.to_string()
}

fn right(table: &mut Table, columns: &[usize]) {
    for index in columns {
        if let Some(column) = table.column_mut(*index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_local::trial::verdict::OverlapSeconds;
    use std::collections::BTreeMap;

    /// Each count is another number.
    fn verdict() -> Verdict {
        Verdict {
            green: false,
            faults: vec!["17 messages are stored behind one that was sent later".into()],
            broken: None,
            connections: 11,
            owned: 12,
            connected: 13,
            sent: 21,
            stored: 22,
            lost: 14,
            missed: 15,
            doubled: 16,
            out_of_order: 17,
            silent: 18,
            overlap: OverlapSeconds { forbidden_s: 1.9, ..OverlapSeconds::default() },
            gaps: BTreeMap::new(),
            write_units_per_connection_hour: BTreeMap::new(),
            seconds: 20.0,
        }
    }

    #[test]
    fn whatever_is_judged_has_a_row_with_its_own_number() {
        let facts = facts(&verdict());
        let rows: Vec<&str> = facts.lines().map(str::trim).collect();
        let judged = [
            ("connections", "11"),
            ("owned", "12"),
            ("connected", "13"),
            ("lost", "14"),
            ("doubled", "16"),
            ("out of order", "17"),
            ("silent", "18"),
            ("overlap", "1.9 s"),
        ];
        for (name, value) in judged {
            let wanted = |row: &&str| row.strip_prefix(name).is_some_and(|rest| rest.trim_start().starts_with(value));
            assert!(rows.iter().any(wanted), "no row {name} with {value} in:\n{facts}");
        }
    }

    #[test]
    fn a_red_verdict_says_why() {
        let text = render(&verdict());
        assert!(text.ends_with("RED:\n  - 17 messages are stored behind one that was sent later"), "{text}");
    }
}
