//! What a command prints: tables, lines, and with `--json` one document. Everything goes through [`visible`].

use crate::failure::Failure;
use crate::visible::{visible, visible_json};
use comfy_table::{Table, presets};
use serde::Serialize;
use std::io::{self, IsTerminal, Write};

/// The way to standard output.
#[derive(Debug)]
pub struct Output {
    terminal: bool,
}

impl Output {
    /// Standard output of this process.
    #[must_use]
    pub fn new() -> Self {
        Self { terminal: io::stdout().is_terminal() }
    }

    /// A table: with lines on a terminal, with spaces only in a pipe.
    ///
    /// # Errors
    /// [`Failure::Closed`] or [`Failure::Output`].
    pub fn table(&self, header: &[&str], rows: &[Vec<String>]) -> Result<(), Failure> {
        let mut table = Table::new();
        table.set_header(header.iter().copied());
        self.write(&self.render(table, rows))
    }

    /// The fields of one thing: name and value.
    ///
    /// # Errors
    /// [`Failure::Closed`] or [`Failure::Output`].
    pub fn record(&self, fields: &[(&str, String)]) -> Result<(), Failure> {
        let rows: Vec<Vec<String>> =
            fields.iter().map(|(name, value)| vec![(*name).to_owned(), value.clone()]).collect();
        self.write(&self.render(Table::new(), &rows))
    }

    fn render(&self, mut table: Table, rows: &[Vec<String>]) -> String {
        for row in rows {
            table.add_row(row.iter().map(|cell| visible(cell)));
        }
        if self.terminal {
            table.load_style(presets::UTF8_FULL_CONDENSED);
            return table.to_string();
        }
        table.load_style(presets::NOTHING);
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        table.trim_fmt()
    }

    /// One line.
    ///
    /// # Errors
    /// [`Failure::Closed`] or [`Failure::Output`].
    pub fn line(&self, text: &str) -> Result<(), Failure> {
        self.write(&visible(text))
    }

    /// One JSON document.
    ///
    /// # Errors
    /// [`Failure::Closed`] or [`Failure::Output`].
    pub fn json(&self, document: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(document).map_err(io::Error::other)?;
        self.write(&visible_json(&text))
    }

    /// One JSON document in one line, for those that follow one another.
    ///
    /// # Errors
    /// [`Failure::Closed`] or [`Failure::Output`].
    pub fn json_line(&self, document: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(document).map_err(io::Error::other)?;
        self.write(&visible_json(&text))
    }

    fn write(&self, text: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        writeln!(out, "{text}")?;
        out.flush()?;
        Ok(())
    }
}

/// Says something beside the output, on standard error.
pub fn note(text: &str) {
    // Where nobody listens to standard error there is nobody to tell.
    let _ = writeln!(io::stderr(), "leasehold: {}", visible(text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_lines_on_a_terminal_and_one_line_a_row_everywhere() {
        let rows = [vec!["a\u{1b}[2J".to_owned(), "two\nlines".to_owned()]];
        let render = |terminal| Output { terminal }.render(Table::new(), &rows);
        assert_eq!(render(false), "a\\u{1b}[2J  two\\nlines");
        let shown = render(true);
        let shown: Vec<&str> = shown.lines().collect();
        assert_eq!(shown[1], "│ a\\u{1b}[2J ┆ two\\nlines │");
        assert_eq!(shown.len(), 3);
    }
}
