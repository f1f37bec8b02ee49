//! Logs: JSON lines on standard output. Libraries are heard from `warn` on only: their finer lines could show URLs and headers.

use crate::settings::SettingError;
use tracing_subscriber::EnvFilter;

/// Our own crates, as log targets begin.
const OURS: [&str; 4] = ["leasehold", "leasehold_worker", "leasehold_desired_state", "leasehold_reconcile"];

/// Starts logging at `level` (`error`, `warn`, `info`, `debug` or `trace`; the setting `LOG_LEVEL`) for our own crates.
///
/// # Errors
/// [`SettingError::Wrong`] when the level is none.
pub fn start(level: &str) -> Result<(), SettingError> {
    let wanted = "error, warn, info, debug or trace";
    if !["error", "warn", "info", "debug", "trace"].contains(&level) {
        return Err(SettingError::Wrong { name: "LOG_LEVEL", found: level.to_owned(), wanted });
    }
    let subscriber = tracing_subscriber::fmt().json().flatten_event(true).with_env_filter(filter(level)).finish();
    // A second start in one process keeps the first.
    let _ = tracing::subscriber::set_global_default(subscriber);
    Ok(())
}

/// What is heard at `level`: our own crates from there on, libraries from `warn` on.
#[must_use]
pub fn filter(level: &str) -> EnvFilter {
    let ours = OURS.map(|target| format!("{target}={level}")).join(",");
    EnvFilter::new(format!("warn,{ours}"))
}
