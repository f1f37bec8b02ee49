//! Logs: JSON lines on standard output. Libraries are heard from `warn` on only: their finer lines could show URLs and headers.

use tracing_subscriber::EnvFilter;

/// Starts logging at `level` (`error` to `trace`) for our own crates.
///
/// # Errors
/// A sentence, when the level is none.
pub fn start(level: &str) -> Result<(), String> {
    if !["error", "warn", "info", "debug", "trace"].contains(&level) {
        return Err(format!("LOG_LEVEL is {level:?}: it must be error, warn, info, debug or trace"));
    }
    let filter = EnvFilter::new(format!("warn,leasehold={level},leasehold_worker={level}"));
    let subscriber = tracing_subscriber::fmt().json().flatten_event(true).with_env_filter(filter).finish();
    // A second start in one process keeps the first.
    let _ = tracing::subscriber::set_global_default(subscriber);
    Ok(())
}
