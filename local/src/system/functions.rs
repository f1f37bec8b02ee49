//! The handlers as the event sources call them. The real ones: only the transport of Lambda is missing.

use crate::events::Function;
use futures_util::future::BoxFuture;
use leasehold_desired_state::DesiredState;
use leasehold_reconcile::Reconcile;
use serde_json::Value;

/// The function on the stream of `connections`.
pub struct DesiredStateFunction(pub DesiredState);

impl Function for DesiredStateFunction {
    fn name(&self) -> &str {
        "leasehold-desired-state"
    }

    fn invoke(&self, event: Value, _remaining_ms: u64) -> BoxFuture<'_, Result<Value, String>> {
        Box::pin(async move { self.0.handle(event).await.map_err(|error| error.to_string()) })
    }
}

/// The function on the schedule, on the ticks, and on task events.
pub struct ReconcileFunction(pub Reconcile);

impl Function for ReconcileFunction {
    fn name(&self) -> &str {
        "leasehold-reconcile"
    }

    fn invoke(&self, event: Value, remaining_ms: u64) -> BoxFuture<'_, Result<Value, String>> {
        Box::pin(async move { self.0.handle(event, remaining_ms).await.map_err(|error| error.to_string()) })
    }
}
