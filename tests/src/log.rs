//! What this process logs, for tests that look for what must not be in it.

use std::io::Write;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// Collects what is logged.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Logs at the finest level that people set, through the filter of the binaries. One a process, since it has one subscriber.
    pub fn of_this_process() -> Self {
        static LOG: LazyLock<Log> = LazyLock::new(|| {
            let log = Log::default();
            let writer = log.clone();
            let subscriber = tracing_subscriber::fmt().json().with_env_filter(leasehold::logging::filter("debug"));
            let subscriber = subscriber.with_writer(move || writer.clone()).finish();
            tracing::subscriber::set_global_default(subscriber).expect("nothing else in this process logs");
            log
        });
        LOG.clone()
    }

    /// All of it.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}
