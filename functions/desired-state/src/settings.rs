//! Settings, out of the environment.

use leasehold::aws::Tables;
use leasehold::decide::timing::Timing;
use leasehold::settings::{Lookup, SettingError, lease_tables, queue_url, timing};

/// What the function must be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `CONNECTIONS_TABLE` and `SESSIONS_TABLE`.
    pub tables: Tables,
    /// `CLAIMS_QUEUE_URL`.
    pub claims_queue_url: String,
    /// `LEASE_MS` and so on, if they are not the defaults.
    pub timing: Timing,
}

impl Settings {
    /// Reads the settings.
    ///
    /// # Errors
    /// [`SettingError`] naming the variable and what belongs there.
    pub fn parse(lookup: Lookup<'_>) -> Result<Self, SettingError> {
        Ok(Self {
            tables: lease_tables(lookup)?,
            claims_queue_url: queue_url(lookup, "CLAIMS_QUEUE_URL")?,
            timing: timing(lookup)?,
        })
    }
}
