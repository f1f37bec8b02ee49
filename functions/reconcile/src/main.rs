//! The Lambda function `reconcile`, on a schedule, on the queue `ticks`, and on task state changes of ECS.

// The futures of the SDK lie deep inside each other. How deep the compiler gets depends on how it is called.
#![recursion_limit = "256"]

use lambda_runtime::{Error, LambdaEvent, run, service_fn};
use leasehold::clock::{Clock, SystemClock};
use leasehold_reconcile::{Reconcile, Settings};
use serde_json::Value;
use std::process::ExitCode;

/// What a run gets whose deadline is over before it begins: `cargo lambda watch` gives a duration in its place.
const UNKNOWN_DEADLINE_MS: u64 = 60_000;

#[tokio::main]
async fn main() -> ExitCode {
    match serve().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> Result<(), Error> {
    #[expect(clippy::disallowed_methods, reason = "settings are read here, once")]
    let variable = |name: &str| std::env::var(name).ok();
    leasehold::logging::start(&variable("LOG_LEVEL").unwrap_or_else(|| "info".into()))?;
    let settings = Settings::parse(&variable)?;
    let function = &Reconcile::connect(settings).await;
    run(service_fn(|event: LambdaEvent<Value>| async move {
        // The deadline is on the machine's clock, as Lambda gives it.
        let remaining_ms = match event.context.deadline.saturating_sub(SystemClock.wall_ms()) {
            0 => UNKNOWN_DEADLINE_MS,
            remaining_ms => remaining_ms,
        };
        function.handle(event.payload, remaining_ms).await
    }))
    .await
}
