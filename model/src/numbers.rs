//! Time in the model: whole steps. The product's own numbers are shrunk to a few of them.

use leasehold::decide::lease_time::Now;
use leasehold::decide::timing::Timing;

/// One step of time, in ms: a heartbeat and a look.
///
/// It is longer than the tolerance for late looks (5 s, a constant of the product), so that one look that is left out is a gap.
pub const STEP_MS: u32 = 10_000;

/// Lease time at the beginning, in ms. Not 0, which means "free now" on a row and "never" in reconcile's memory.
pub const START_MS: u32 = 1_000_000;

/// The protocol's numbers: a lease of three steps, given up by its owner after two.
#[must_use]
pub fn timing() -> Timing {
    let steps = |count: u64| count * u64::from(STEP_MS);
    Timing {
        lease_ms: steps(3),
        heartbeat_ms: steps(1),
        give_up_ms: steps(2),
        max_clock_skew_ms: 3_000,
        look_interval_ms: steps(1),
        suspect_ms: steps(1),
        hold_max_ms: steps(3),
        compare_ms: steps(COMPARE_STEPS.into()),
        sweep_ms: steps(6),
        margin_ms: steps(1),
        // Each look claims all that it finds.
        claim_again_ms: steps(1),
        ..Timing::default()
    }
}

/// How often a worker compares what it holds with the index, in steps.
pub const COMPARE_STEPS: u8 = 2;

/// Lease time as somebody knows it whose estimate is off by `error_ms`.
#[must_use]
pub fn now(lease_time_ms: u32, error_ms: i32) -> Now {
    let ms = u64::from(lease_time_ms.saturating_add_signed(error_ms));
    Now { lower_ms: ms, upper_ms: ms }
}

/// A time of the product in the model's width.
#[must_use]
pub fn ms(product_ms: u64) -> u32 {
    u32::try_from(product_ms).unwrap_or(u32::MAX)
}
