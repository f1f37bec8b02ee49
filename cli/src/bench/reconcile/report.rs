//! What was measured, as a table and as one document.

use crate::failure::Failure;
use crate::output::Output;
use serde::Serialize;

/// One invocation of the function.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Invocation {
    /// As by the schedule, which sweeps as well.
    pub minute: bool,
    /// How long it took.
    pub seconds: f64,
    /// Claims, by its own count.
    pub claimed: u64,
    /// Sessions fenced.
    pub fenced: u64,
    /// Parts that had to stop for want of time.
    pub cut_short: u64,
    /// Pages of the index `by_owner`.
    pub by_owner_pages: u64,
    /// Pages of scans: of the sessions, and of the table in a sweep.
    pub scanned_pages: u64,
    /// What failed.
    pub error: Option<String>,
}

/// The whole measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Rows of the dead session.
    pub connections: u32,
    /// What an invocation may take, in seconds.
    pub deadline_s: u64,
    /// What each request takes longer than the embedded engines, in ms.
    pub latency_ms: u64,
    /// In order.
    pub invocations: Vec<Invocation>,
    /// Claims received from the queue.
    pub claims_sent: u64,
    /// Different connections in them.
    pub claims_distinct: u64,
    /// Claims for a connection that had one before.
    pub claims_repeated: u64,
    /// Sessions fenced.
    pub sessions_fenced: u64,
    /// From the beginning of the first invocation to the end of the one after which each connection had been claimed.
    pub all_claimed_s: Option<f64>,
    /// The process's peak, engine and rows and claims included, when the measurement began.
    pub memory_before_bytes: Option<u64>,
    /// The same at its end.
    pub memory_peak_bytes: Option<u64>,
}

impl Report {
    /// Nothing measured yet.
    #[must_use]
    pub fn new(connections: u32, deadline_s: u64, latency_ms: u64) -> Self {
        Self {
            connections,
            deadline_s,
            latency_ms,
            invocations: Vec::new(),
            claims_sent: 0,
            claims_distinct: 0,
            claims_repeated: 0,
            sessions_fenced: 0,
            all_claimed_s: None,
            memory_before_bytes: None,
            memory_peak_bytes: None,
        }
    }

    /// Adds an invocation.
    pub fn add(&mut self, invocation: Invocation) {
        self.sessions_fenced += invocation.fenced;
        self.invocations.push(invocation);
    }

    /// Adds what was received since: so many claims, and so many different connections in all.
    pub fn count(&mut self, received: u64, distinct: u64) {
        self.claims_sent += received;
        self.claims_distinct = distinct;
        self.claims_repeated = self.claims_sent - distinct;
    }

    /// Prints it as tables.
    ///
    /// # Errors
    /// [`Failure::Closed`] or [`Failure::Output`].
    pub fn print(&self, output: &Output) -> Result<(), Failure> {
        let header = [
            "invocation",
            "by",
            "seconds",
            "claimed",
            "fenced",
            "cut short",
            "by_owner pages",
            "scanned pages",
            "failed",
        ];
        let rows: Vec<Vec<String>> =
            self.invocations.iter().enumerate().map(|(index, one)| row(index + 1, one)).collect();
        output.table(&header, &rows)?;
        output.line("")?;
        let all_claimed = self.all_claimed_s.map_or("never: given up".to_owned(), |seconds| format!("{seconds:.1} s"));
        output.record(&[
            ("connections", self.connections.to_string()),
            ("all claimed after", all_claimed),
            (
                "claims",
                format!(
                    "{} sent, {} distinct, {} repeated",
                    self.claims_sent, self.claims_distinct, self.claims_repeated
                ),
            ),
            ("sessions fenced", self.sessions_fenced.to_string()),
            ("an invocation has", format!("{} s", self.deadline_s)),
            ("a request takes", format!("{} ms and what the embedded engines need", self.latency_ms)),
            (
                "memory",
                format!(
                    "{} before, {} at most (with the engine and all rows)",
                    mib(self.memory_before_bytes),
                    mib(self.memory_peak_bytes)
                ),
            ),
        ])
    }
}

fn row(number: usize, one: &Invocation) -> Vec<String> {
    vec![
        number.to_string(),
        if one.minute { "schedule" } else { "tick" }.to_owned(),
        format!("{:.2}", one.seconds),
        one.claimed.to_string(),
        one.fenced.to_string(),
        one.cut_short.to_string(),
        one.by_owner_pages.to_string(),
        one.scanned_pages.to_string(),
        one.error.clone().unwrap_or_default(),
    ]
}

fn mib(bytes: Option<u64>) -> String {
    bytes.map_or("unknown".to_owned(), |bytes| format!("{} MiB", bytes / (1024 * 1024)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_for_a_connection_that_had_one_is_a_repeat() {
        let mut report = Report::new(10, 60, 0);
        report.count(10, 6);
        report.count(5, 10);
        assert_eq!((report.claims_sent, report.claims_distinct, report.claims_repeated), (15, 10, 5));
    }
}
