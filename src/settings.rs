//! Settings of every binary: environment variables with their unit in the name. `main` hands its lookup in, tests a map.

use crate::aws::Tables;
use crate::decide::timing::Timing;

/// Finds a variable by name.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A variable is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// It is not set, or empty.
    #[error("{name} is not set: it must be {wanted}")]
    Missing {
        /// The variable.
        name: &'static str,
        /// What belongs there.
        wanted: &'static str,
    },
    /// It is something else.
    #[error("{name} is {found:?}: it must be {wanted}")]
    Wrong {
        /// The variable.
        name: &'static str,
        /// What was found.
        found: String,
        /// What belongs there.
        wanted: &'static str,
    },
}

/// A variable that must be there.
///
/// # Errors
/// [`SettingError::Missing`]; empty counts as missing.
pub fn required(lookup: Lookup<'_>, name: &'static str, wanted: &'static str) -> Result<String, SettingError> {
    optional(lookup, name).ok_or(SettingError::Missing { name, wanted })
}

/// A variable that may be there; empty counts as absent.
#[must_use]
pub fn optional(lookup: Lookup<'_>, name: &str) -> Option<String> {
    lookup(name).filter(|value| !value.trim().is_empty())
}

/// A whole number within bounds; absent means the default.
///
/// # Errors
/// [`SettingError::Wrong`].
pub fn number(
    lookup: Lookup<'_>,
    name: &'static str,
    default: u64,
    bounds: std::ops::RangeInclusive<u64>,
) -> Result<u64, SettingError> {
    let Some(found) = optional(lookup, name) else { return Ok(default) };
    match found.trim().parse() {
        Ok(value) if bounds.contains(&value) => Ok(value),
        _ => Err(SettingError::Wrong { name, found, wanted: "a whole number within the bounds of docs/settings.md" }),
    }
}

/// The URL of a queue.
///
/// # Errors
/// [`SettingError`] when it is missing or no URL.
pub fn queue_url(lookup: Lookup<'_>, name: &'static str) -> Result<String, SettingError> {
    let wanted = "the URL of an SQS queue, https://sqs.<region>.amazonaws.com/<account>/<name>";
    let found = required(lookup, name, wanted)?;
    if url::Url::parse(&found).is_err() {
        return Err(SettingError::Wrong { name, found, wanted });
    }
    Ok(found)
}

/// The tables: `CONNECTIONS_TABLE`, `SESSIONS_TABLE`, `MESSAGES_TABLE`.
///
/// # Errors
/// [`SettingError::Missing`].
pub fn tables(lookup: Lookup<'_>) -> Result<Tables, SettingError> {
    let table = |name| required(lookup, name, "the name of a DynamoDB table");
    Ok(Tables {
        connections: table("CONNECTIONS_TABLE")?,
        sessions: table("SESSIONS_TABLE")?,
        messages: table("MESSAGES_TABLE")?,
    })
}

/// The protocol's numbers: the defaults, less what is set, such as `LEASE_MS`. All processes of a deployment need the same.
///
/// # Errors
/// [`SettingError::Wrong`].
pub fn timing(lookup: Lookup<'_>) -> Result<Timing, SettingError> {
    let mut timing = Timing::default();
    let fields: [(&'static str, &mut u64); 13] = [
        ("LEASE_MS", &mut timing.lease_ms),
        ("HEARTBEAT_MS", &mut timing.heartbeat_ms),
        ("GIVE_UP_MS", &mut timing.give_up_ms),
        ("MAX_CLOCK_SKEW_MS", &mut timing.max_clock_skew_ms),
        ("LOOK_INTERVAL_MS", &mut timing.look_interval_ms),
        ("SUSPECT_MS", &mut timing.suspect_ms),
        ("HOLD_MAX_MS", &mut timing.hold_max_ms),
        ("COMPARE_MS", &mut timing.compare_ms),
        ("SWEEP_MS", &mut timing.sweep_ms),
        ("MARGIN_MS", &mut timing.margin_ms),
        ("CLAIM_AGAIN_MS", &mut timing.claim_again_ms),
        ("OVER_OFTEN_MS", &mut timing.over_often_ms),
        ("OVER_KEEP_MS", &mut timing.over_keep_ms),
    ];
    for (name, field) in fields {
        let Some(found) = optional(lookup, name) else { continue };
        let wanted = "a whole number of milliseconds, 1 or more";
        match found.trim().parse() {
            Ok(value) if value > 0 => *field = value,
            _ => return Err(SettingError::Wrong { name, found, wanted }),
        }
    }
    check(timing)
}

/// A lease must outlive a few renewals, and a worker must give up before it ends.
fn check(timing: Timing) -> Result<Timing, SettingError> {
    if timing.give_up_ms >= timing.lease_ms {
        let found = timing.give_up_ms.to_string();
        return Err(SettingError::Wrong { name: "GIVE_UP_MS", found, wanted: "less than LEASE_MS" });
    }
    if 2 * timing.heartbeat_ms >= timing.give_up_ms {
        let found = timing.heartbeat_ms.to_string();
        return Err(SettingError::Wrong { name: "HEARTBEAT_MS", found, wanted: "less than half of GIVE_UP_MS" });
    }
    Ok(timing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &str, value: &str) -> Result<Timing, String> {
        timing(&|asked| (asked == name).then(|| value.to_owned())).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_not_set_keeps_its_default() {
        assert_eq!(with("X", "1"), Ok(Timing::default()));
        assert_eq!(with("LEASE_MS", ""), Ok(Timing::default()));
        assert_eq!(with("LEASE_MS", "30000"), Ok(Timing { lease_ms: 30_000, ..Timing::default() }));
    }

    #[test]
    fn an_error_names_the_variable_and_what_belongs_there() {
        let error = with("LEASE_MS", "20s").unwrap_err();
        assert_eq!(error, "LEASE_MS is \"20s\": it must be a whole number of milliseconds, 1 or more");
        assert!(with("LEASE_MS", "0").is_err());
        let error = tables(&|_| None).unwrap_err().to_string();
        assert_eq!(error, "CONNECTIONS_TABLE is not set: it must be the name of a DynamoDB table");
        let error = queue_url(&|_| Some("claims".into()), "CLAIMS_QUEUE_URL").unwrap_err().to_string();
        assert!(error.starts_with("CLAIMS_QUEUE_URL is \"claims\": it must be the URL"), "{error}");
    }

    #[test]
    fn a_lease_that_ends_before_its_worker_gives_up_is_refused() {
        assert_eq!(with("GIVE_UP_MS", "20000").unwrap_err(), "GIVE_UP_MS is \"20000\": it must be less than LEASE_MS");
        assert!(with("HEARTBEAT_MS", "7000").unwrap_err().contains("half of GIVE_UP_MS"));
    }
}
