//! A schedule of EventBridge: "Amazon EventBridge scheduled rules", a rate.

use super::asynchronous::AsyncInvoker;
use super::record::region_of;
use super::{Stop, iso_seconds, pause, random_id};
use leasehold::clock::SharedClock;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::{Value, json};

/// The event of a schedule. `wall_ms` is the time in milliseconds since the Unix epoch, `id` a UUID.
#[must_use]
pub fn scheduled_event(rule_arn: &str, wall_ms: u64, id: &str) -> Value {
    json!({
        "version": "0",
        "id": id,
        "detail-type": "Scheduled Event",
        "source": "aws.events",
        "account": account_of(rule_arn),
        "time": iso_seconds(wall_ms),
        "region": region_of(rule_arn),
        "resources": [rule_arn],
        "detail": {},
    })
}

/// The account in an ARN, or an empty string.
pub(super) fn account_of(arn: &str) -> &str {
    arn.split(':').nth(4).unwrap_or_default()
}

/// A rule that sends an event at a rate.
pub struct Schedule {
    /// The function's queue.
    pub target: AsyncInvoker,
    /// The rule, for the events.
    pub rule_arn: String,
    /// Time between two events in milliseconds.
    pub interval_ms: u64,
    /// The clock of the events' time.
    pub clock: SharedClock,
    /// Seeds the events' ids.
    pub seed: u64,
}

impl Schedule {
    /// Sends an event after each interval until `stop`. An event that the queue refuses is left out, as the next one says
    /// the same.
    pub async fn run(&self, mut stop: Stop) {
        let mut rng = StdRng::seed_from_u64(self.seed);
        let mut due_ms = self.clock.mono_ms().saturating_add(self.interval_ms);
        while pause(due_ms.saturating_sub(self.clock.mono_ms()), &mut stop).await {
            let event = scheduled_event(&self.rule_arn, self.clock.wall_ms(), &random_id(&mut rng));
            if let Err(error) = self.target.send(event) {
                tracing::error!(rule = self.rule_arn, %error, "a scheduled event is left out");
            }
            // After a pause of the machine there is one event, not one for each interval that was missed.
            due_ms = due_ms.saturating_add(self.interval_ms).max(self.clock.mono_ms());
        }
    }
}
