//! Settings of every binary: environment variables with their unit in the name. `main` hands its lookup in, tests a map.

use crate::aws::Tables;
use crate::decide::scope::LeaseScope;
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
    /// It is no whole number, or one beyond its bounds.
    #[error("{name} is {found:?}: it must be a whole number{unit} from {lowest} to {highest}")]
    OutOfBounds {
        /// The variable.
        name: &'static str,
        /// What was found.
        found: String,
        /// What the number counts, such as " of milliseconds"; may be empty.
        unit: &'static str,
        /// The lowest that is allowed.
        lowest: u64,
        /// The highest that is allowed.
        highest: u64,
    },
}

/// A day: no number of the protocol needs more, and sums of them and of times cannot overflow.
const MAX_MS: u64 = 86_400_000;

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
/// [`SettingError::OutOfBounds`].
pub fn number(
    lookup: Lookup<'_>,
    name: &'static str,
    default: u64,
    bounds: std::ops::RangeInclusive<u64>,
) -> Result<u64, SettingError> {
    bounded(lookup, name, "", bounds).map(|value| value.unwrap_or(default))
}

fn bounded(
    lookup: Lookup<'_>,
    name: &'static str,
    unit: &'static str,
    bounds: std::ops::RangeInclusive<u64>,
) -> Result<Option<u64>, SettingError> {
    let Some(found) = optional(lookup, name) else { return Ok(None) };
    match found.trim().parse() {
        Ok(value) if bounds.contains(&value) => Ok(Some(value)),
        _ => {
            let (lowest, highest) = bounds.into_inner();
            Err(SettingError::OutOfBounds { name, found, unit, lowest, highest })
        }
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
    let lease = lease_tables(lookup)?;
    Ok(Tables { messages: table(lookup, "MESSAGES_TABLE")?, ..lease })
}

/// The tables of who has no business with messages: `CONNECTIONS_TABLE` and `SESSIONS_TABLE`. The table of messages has no name then.
///
/// # Errors
/// [`SettingError::Missing`].
pub fn lease_tables(lookup: Lookup<'_>) -> Result<Tables, SettingError> {
    let connections = table(lookup, "CONNECTIONS_TABLE")?;
    Ok(Tables { connections, sessions: table(lookup, "SESSIONS_TABLE")?, messages: String::new() })
}

fn table(lookup: Lookup<'_>, name: &'static str) -> Result<String, SettingError> {
    required(lookup, name, "the name of a DynamoDB table")
}

/// What is leased (`LEASE_SCOPE`) and the protocol's numbers: the defaults, less what is set, such as `LEASE_MS`. All processes of a deployment need the same.
///
/// # Errors
/// [`SettingError`] naming the variable and what belongs there.
pub fn timing(lookup: Lookup<'_>) -> Result<Timing, SettingError> {
    let mut timing = Timing { scope: lease_scope(lookup)?, ..Timing::default() };
    for (name, field) in fields(&mut timing) {
        if let Some(value) = bounded(lookup, name, " of milliseconds", 1..=MAX_MS)? {
            *field = value;
        }
    }
    check(timing)
}

const LEASE_SCOPE: &str = "LEASE_SCOPE";

fn lease_scope(lookup: Lookup<'_>) -> Result<LeaseScope, SettingError> {
    let Some(found) = optional(lookup, LEASE_SCOPE) else { return Ok(LeaseScope::default()) };
    LeaseScope::from_text(&found).ok_or(SettingError::Wrong {
        name: LEASE_SCOPE,
        found,
        wanted: "worker or connection",
    })
}

/// The variables that say these numbers, for a process that is to have the same.
#[must_use]
pub fn timing_variables(timing: &Timing) -> Vec<(&'static str, String)> {
    let numbers = fields(&mut timing.clone()).map(|(name, field)| (name, field.to_string()));
    [(LEASE_SCOPE, timing.scope.as_str().to_owned())].into_iter().chain(numbers).collect()
}

/// Each number under the name of its variable.
fn fields(timing: &mut Timing) -> [(&'static str, &mut u64); 13] {
    [
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
    ]
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
        assert_eq!(error, "LEASE_MS is \"20s\": it must be a whole number of milliseconds from 1 to 86400000");
        assert!(with("LEASE_MS", "0").is_err());
        let error = tables(&|_| None).unwrap_err().to_string();
        assert_eq!(error, "CONNECTIONS_TABLE is not set: it must be the name of a DynamoDB table");
        let error = queue_url(&|_| Some("claims".into()), "CLAIMS_QUEUE_URL").unwrap_err().to_string();
        assert!(error.starts_with("CLAIMS_QUEUE_URL is \"claims\": it must be the URL"), "{error}");
    }

    #[test]
    fn no_number_of_the_protocol_is_longer_than_a_day() {
        assert_eq!(with("OVER_KEEP_MS", "86400000"), Ok(Timing::default()));
        for value in ["86400001", "18446744073709551615"] {
            let error = with("HEARTBEAT_MS", value).unwrap_err();
            let words = "it must be a whole number of milliseconds from 1 to 86400000";
            assert_eq!(error, format!("HEARTBEAT_MS is \"{value}\": {words}"));
        }
        let error = number(&|_| Some("9".into()), "X", 1, 2..=8).unwrap_err().to_string();
        assert_eq!(error, "X is \"9\": it must be a whole number from 2 to 8");
    }

    #[test]
    fn the_lease_scope_is_one_of_two_words_and_reaches_other_processes() {
        assert_eq!(with("LEASE_SCOPE", "worker"), Ok(Timing::default()));
        let connection = with("LEASE_SCOPE", "connection").unwrap();
        assert_eq!(connection.scope, LeaseScope::Connection);
        let error = with("LEASE_SCOPE", "row").unwrap_err();
        assert_eq!(error, "LEASE_SCOPE is \"row\": it must be worker or connection");
        let variables = timing_variables(&connection);
        let lookup = |name: &str| variables.iter().find(|(said, _)| *said == name).map(|(_, value)| value.clone());
        assert_eq!(timing(&lookup), Ok(connection));
    }

    #[test]
    fn only_who_stores_messages_needs_their_table() {
        let lookup = |name: &str| (name != "MESSAGES_TABLE").then(|| name.to_lowercase());
        assert!(lease_tables(&lookup).is_ok());
        assert!(tables(&lookup).unwrap_err().to_string().starts_with("MESSAGES_TABLE is not set"));
    }

    #[test]
    fn a_lease_that_ends_before_its_worker_gives_up_is_refused() {
        assert_eq!(with("GIVE_UP_MS", "20000").unwrap_err(), "GIVE_UP_MS is \"20000\": it must be less than LEASE_MS");
        assert!(with("HEARTBEAT_MS", "7000").unwrap_err().contains("half of GIVE_UP_MS"));
    }
}
