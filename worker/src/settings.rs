//! The worker's settings.

use leasehold::aws::Tables;
use leasehold::decide::backoff::Backoff;
use leasehold::decide::renewal::OnStoreOutage;
use leasehold::decide::timing::{Rules, Timing};
use leasehold::settings::{Lookup, SettingError, number, optional, queue_url, tables, timing};
use std::net::SocketAddr;

/// Everything that can be set, by environment variable.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `CONNECTIONS_TABLE`, `SESSIONS_TABLE`, `MESSAGES_TABLE`.
    pub tables: Tables,
    /// `CLAIMS_QUEUE_URL`.
    pub claims_queue_url: String,
    /// `LEASE_MS`, `HEARTBEAT_MS` and the other numbers of the protocol.
    pub timing: Timing,
    /// All of them; the demonstration alone can take some out.
    pub rules: Rules,
    /// `ON_STORE_OUTAGE`: `close` or `hold`.
    pub on_store_outage: OnStoreOutage,
    /// `CAPACITY`: connections this worker holds at most.
    pub capacity: u64,
    /// `TASK_ARN`: the ECS task, where the environment names it.
    pub task_arn: Option<String>,
    /// `HEALTH_ADDR`: where the health check is answered; `off` for nowhere.
    pub health_addr: Option<SocketAddr>,
    /// `BACKOFF_BASE_MS`, `BACKOFF_CAP_MS`, `STABLE_MS`.
    pub backoff: Backoff,
    /// `HANDSHAKE_TIMEOUT_MS`: name, TCP, TLS and handshake together.
    pub handshake_timeout_ms: u64,
    /// `PING_INTERVAL_MS`: how often a quiet socket is pinged.
    pub ping_interval_ms: u64,
    /// `PONG_TIMEOUT_MS`: how long a pinged socket may stay silent.
    pub pong_timeout_ms: u64,
    /// `STATUS_INTERVAL_MS`: status of one connection is written at most this often.
    pub status_interval_ms: u64,
    /// `CHECKPOINT_INTERVAL_MS`: the checkpoint budget: `last_seq` of one connection is written at most this often.
    pub checkpoint_interval_ms: u64,
    /// `MESSAGE_TTL_S`: how long messages are kept.
    pub message_ttl_s: u64,
    /// `MAX_MESSAGE_BYTES`: a larger message ends its socket.
    pub max_message_bytes: u64,
    /// `BUFFER_MESSAGES`: messages of one connection that wait to be stored.
    pub buffer_messages: u64,
    /// `BUFFER_BYTES`: bytes of all connections that wait to be stored.
    pub buffer_bytes: u64,
    /// `SHUTDOWN_MS`: how long close and flush get together.
    pub shutdown_ms: u64,
    /// `MEMORY_LIMIT_BYTES`: no claims are taken when it comes near; 0 for none.
    pub memory_limit_bytes: u64,
}

/// Where the health check is answered by default.
pub const DEFAULT_HEALTH_ADDR: &str = "127.0.0.1:8971";

impl Settings {
    /// Reads all of them.
    ///
    /// # Errors
    /// [`SettingError`] naming the variable and what belongs there.
    pub fn read(lookup: Lookup<'_>) -> Result<Self, SettingError> {
        let backoff = Backoff::default();
        Ok(Self {
            tables: tables(lookup)?,
            claims_queue_url: queue_url(lookup, "CLAIMS_QUEUE_URL")?,
            timing: timing(lookup)?,
            rules: Rules::default(),
            on_store_outage: on_store_outage(lookup)?,
            capacity: number(lookup, "CAPACITY", 700, 0..=100_000)?,
            task_arn: optional(lookup, "TASK_ARN"),
            health_addr: health_addr(lookup)?,
            backoff: Backoff {
                base_ms: number(lookup, "BACKOFF_BASE_MS", backoff.base_ms, 1..=60_000)?,
                cap_ms: number(lookup, "BACKOFF_CAP_MS", backoff.cap_ms, 1..=3_600_000)?,
                stable_ms: number(lookup, "STABLE_MS", backoff.stable_ms, 0..=3_600_000)?,
            },
            handshake_timeout_ms: number(lookup, "HANDSHAKE_TIMEOUT_MS", 10_000, 100..=120_000)?,
            ping_interval_ms: number(lookup, "PING_INTERVAL_MS", 20_000, 100..=3_600_000)?,
            pong_timeout_ms: number(lookup, "PONG_TIMEOUT_MS", 10_000, 100..=3_600_000)?,
            status_interval_ms: number(lookup, "STATUS_INTERVAL_MS", 5_000, 0..=3_600_000)?,
            checkpoint_interval_ms: number(lookup, "CHECKPOINT_INTERVAL_MS", 300_000, 1_000..=86_400_000)?,
            message_ttl_s: number(lookup, "MESSAGE_TTL_S", 604_800, 60..=315_360_000)?,
            max_message_bytes: number(lookup, "MAX_MESSAGE_BYTES", 3 << 20, 1_024..=3 << 20)?,
            buffer_messages: number(lookup, "BUFFER_MESSAGES", 1_024, 1..=1_000_000)?,
            buffer_bytes: number(lookup, "BUFFER_BYTES", 256 << 20, 1 << 20..=1 << 40)?,
            shutdown_ms: number(lookup, "SHUTDOWN_MS", 1_000, 0..=100_000)?,
            memory_limit_bytes: number(lookup, "MEMORY_LIMIT_BYTES", 0, 0..=1 << 50)?,
        })
    }
}

fn on_store_outage(lookup: Lookup<'_>) -> Result<OnStoreOutage, SettingError> {
    let name = "ON_STORE_OUTAGE";
    match lookup(name).as_deref() {
        None | Some("" | "close") => Ok(OnStoreOutage::Close),
        Some("hold") => Ok(OnStoreOutage::Hold),
        Some(other) => Err(SettingError::Wrong { name, found: other.to_owned(), wanted: "close or hold" }),
    }
}

/// Reads `HEALTH_ADDR` alone: the health check needs nothing else.
///
/// # Errors
/// [`SettingError::Wrong`].
pub fn health_addr(lookup: Lookup<'_>) -> Result<Option<SocketAddr>, SettingError> {
    let name = "HEALTH_ADDR";
    let text = optional(lookup, name).unwrap_or_else(|| DEFAULT_HEALTH_ADDR.to_owned());
    if text == "off" {
        return Ok(None);
    }
    match text.parse() {
        Ok(addr) => Ok(Some(addr)),
        Err(_) => Err(SettingError::Wrong { name, found: text, wanted: "an address such as 127.0.0.1:8971, or off" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minimal(name: &str) -> Option<String> {
        match name {
            "CONNECTIONS_TABLE" | "SESSIONS_TABLE" | "MESSAGES_TABLE" => Some("t".into()),
            "CLAIMS_QUEUE_URL" => Some("http://q/0/claims".into()),
            _ => None,
        }
    }

    #[test]
    fn four_variables_are_enough() {
        let settings = Settings::read(&minimal).unwrap();
        assert_eq!((settings.capacity, settings.on_store_outage), (700, OnStoreOutage::Close));
    }

    #[test]
    fn a_wrong_value_names_its_variable_and_what_belongs_there() {
        let lookup = |name: &str| if name == "ON_STORE_OUTAGE" { Some("panic".into()) } else { minimal(name) };
        let error = Settings::read(&lookup).unwrap_err().to_string();
        assert_eq!(error, "ON_STORE_OUTAGE is \"panic\": it must be close or hold");
    }
}
