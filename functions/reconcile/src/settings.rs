//! Settings, out of the environment.

use leasehold::aws::Tables;
use leasehold::decide::timing::Timing;
use leasehold::settings::{Lookup, SettingError, lease_tables, optional, queue_url, required, timing};

/// What the function must be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `CONNECTIONS_TABLE` and `SESSIONS_TABLE`.
    pub tables: Tables,
    /// `CLAIMS_QUEUE_URL`.
    pub claims_queue_url: String,
    /// `TICKS_QUEUE_URL`.
    pub ticks_queue_url: String,
    /// `ECS_CLUSTER` and `ECS_SERVICE`: both, or neither where workers run outside ECS.
    pub fleet: Option<(String, String)>,
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
            ticks_queue_url: queue_url(lookup, "TICKS_QUEUE_URL")?,
            fleet: fleet(lookup)?,
            timing: timing(lookup)?,
        })
    }
}

fn fleet(lookup: Lookup<'_>) -> Result<Option<(String, String)>, SettingError> {
    let cluster = optional(lookup, "ECS_CLUSTER");
    let service = optional(lookup, "ECS_SERVICE");
    if cluster.is_none() && service.is_none() {
        return Ok(None);
    }
    let cluster = required(lookup, "ECS_CLUSTER", "the ECS cluster of the workers, as ECS_SERVICE is set")?;
    let service = required(lookup, "ECS_SERVICE", "the ECS service of the workers, as ECS_CLUSTER is set")?;
    Ok(Some((cluster, service)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_without_a_service_is_refused_by_name() {
        let lookup = |name: &str| match name {
            "ECS_SERVICE" => None,
            name if name.ends_with("_URL") => Some("https://sqs.eu-west-1.amazonaws.com/1/q".to_owned()),
            name if name.ends_with("_TABLE") || name == "ECS_CLUSTER" => Some(name.to_lowercase()),
            _ => None,
        };
        let error = Settings::parse(&lookup).unwrap_err().to_string();
        assert_eq!(error, "ECS_SERVICE is not set: it must be the ECS service of the workers, as ECS_CLUSTER is set");
        let settings = Settings::parse(&|name| lookup(name).filter(|_| name != "ECS_CLUSTER")).unwrap();
        assert_eq!(settings.fleet, None);
    }
}
