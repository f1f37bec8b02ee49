//! The Lambda function `desired-state`, on the stream of `connections`.

// The futures of the SDK lie deep inside each other. How deep the compiler gets depends on how it is called.
#![recursion_limit = "256"]

use lambda_runtime::{Error, LambdaEvent, run, service_fn};
use leasehold_desired_state::{DesiredState, Settings};
use serde_json::Value;
use std::process::ExitCode;

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
    let function = &DesiredState::connect(settings).await;
    run(service_fn(|event: LambdaEvent<Value>| async move { function.handle(event.payload).await })).await
}
