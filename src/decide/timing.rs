//! The numbers of the protocol, in milliseconds, and the rules that hold it together.

use super::scope::LeaseScope;

/// Settings of the protocol. The defaults are the documented ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// What is leased and renewed.
    pub scope: LeaseScope,
    /// How long a session lives after a renewal, and so does a row's own lease.
    pub lease_ms: u64,
    /// How often a session renews, and each row that is leased by itself.
    pub heartbeat_ms: u64,
    /// When a worker gives its own lease, or a row's, up, counted from before it sent the last renewal that succeeded.
    pub give_up_ms: u64,
    /// What may remain between two estimates of lease time.
    pub max_clock_skew_ms: u64,
    /// How often reconcile looks.
    pub look_interval_ms: u64,
    /// How long a suspect has to move its heartbeat.
    pub suspect_ms: u64,
    /// How long `hold` keeps sockets past that, without a renewal.
    pub hold_max_ms: u64,
    /// How often a worker compares what it holds with `by_owner`.
    pub compare_ms: u64,
    /// Within which a worker compares every held row's spec, and the sweep sees the whole table.
    pub sweep_ms: u64,
    /// What is added where an old owner must first hear of a change.
    pub margin_ms: u64,
    /// How often a row may be claimed again.
    pub claim_again_ms: u64,
    /// How long over sessions are looked at in each run; afterwards each minute.
    pub over_often_ms: u64,
    /// How long over sessions stay at least.
    pub over_keep_ms: u64,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            scope: LeaseScope::default(),
            lease_ms: 20_000,
            heartbeat_ms: 5_000,
            give_up_ms: 14_000,
            max_clock_skew_ms: 3_000,
            look_interval_ms: 10_000,
            suspect_ms: 10_000,
            hold_max_ms: 300_000,
            compare_ms: 60_000,
            sweep_ms: 3_600_000,
            margin_ms: 10_000,
            claim_again_ms: 30_000,
            over_often_ms: 600_000,
            over_keep_ms: 86_400_000,
        }
    }
}

impl Timing {
    /// How far ahead a row is stamped that was overwritten under a live owner which has been marked: a heartbeat and a margin.
    #[must_use]
    pub fn overwritten_ms(&self) -> u64 {
        self.heartbeat_ms + self.margin_ms
    }

    /// How far ahead the sweep stamps a row of which it cannot know whether somebody holds it: a comparison and a margin.
    #[must_use]
    pub fn unknown_ms(&self) -> u64 {
        self.compare_ms + self.margin_ms + self.heartbeat_ms
    }
}

/// The rules that keep two owners apart. All hold; only the demonstration's `--break` takes some out, to show that its verdict can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// A session is fenced before its connections are taken.
    pub fence: bool,
    /// Writes to a row require its owner and epoch.
    pub epoch_conditions: bool,
    /// A worker gives up by itself when it could not renew.
    pub local_deadline: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self { fence: true, epoch_conditions: true, local_deadline: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sessions_row_stays_longer_than_its_late_registration_can_take() {
        // "Elements of an AWS API request signature": a request is refused 15 minutes after its time stamp. One that registers makes a row.
        assert!(Timing::default().over_keep_ms > 15 * 60_000);
    }
}
