//! Which system a command talks to: the local one of a state directory, or AWS.

use crate::failure::Failure;
use aws_credential_types::provider::ProvideCredentials;
use aws_sdk_dynamodb::config::{BehaviorVersion, Builder, Credentials, Region};
use leasehold::aws::sdk::{self, DynamoClients};
use leasehold::aws::user::UserError;
use leasehold::aws::{Store, StoreError, Tables};
use leasehold::clock::SystemClock;
use leasehold::settings::{Lookup, optional};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use url::Url;

/// The file that describes a running local system, in its state directory.
pub const LOCAL_FILE: &str = "local.json";

/// The region of local systems, which is part of their queues' names and means nothing else.
pub const LOCAL_REGION: &str = "us-east-1";

/// How long a local system may take to accept a connection.
const LOCAL_CONNECT: Duration = Duration::from_secs(1);
/// How long credentials may take: the last resort asks the network (IMDS).
const CREDENTIALS: Duration = Duration::from_secs(10);

/// A running local system, as `leasehold local` describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalSystem {
    /// Its process.
    pub pid: u32,
    /// The URL of its DynamoDB.
    pub dynamodb: String,
    /// The URL of its SQS.
    pub sqs: String,
    /// The tables' names.
    pub tables: LocalTables,
    /// The queues' URLs.
    pub queues: LocalQueues,
}

/// The tables of a local system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalTables {
    /// The table of connections.
    pub connections: String,
    /// The table of sessions.
    pub sessions: String,
    /// The table of messages.
    pub messages: String,
}

/// The queues of a local system, by URL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalQueues {
    /// The queue of claims.
    pub claims: String,
    /// The queue of delayed ticks.
    pub ticks: String,
}

impl LocalSystem {
    /// Reads a description; `None` where there is none.
    ///
    /// # Errors
    /// The file cannot be read, or is no description (`InvalidData`).
    pub fn read(file: &Path) -> io::Result<Option<Self>> {
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(Some(serde_json::from_str(&text)?))
    }

    /// Writes a description so that a reader finds the whole of it, or none.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, file: &Path) -> io::Result<()> {
        let unfinished = file.with_extension("json.new");
        std::fs::write(&unfinished, serde_json::to_string_pretty(self)?)?;
        std::fs::rename(&unfinished, file)
    }
}

/// The system that a command talks to.
#[derive(Debug)]
pub struct Target {
    /// Its tables.
    pub store: Store,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Local { file: PathBuf, pid: u32, url: String },
    Aws { name: String },
}

impl Target {
    /// Finds the system: the local one that `state_dir` describes, otherwise AWS as the usual settings have it.
    ///
    /// # Errors
    /// A [`Failure`] that says what to start or to set.
    pub async fn open(state_dir: &Path, lookup: Lookup<'_>) -> Result<Self, Failure> {
        let file = state_dir.join(LOCAL_FILE);
        match LocalSystem::read(&file) {
            Ok(Some(system)) => open_local(file, system).await,
            Ok(None) => open_aws(state_dir, lookup).await,
            Err(error) => Err(Failure::BadLocalFile { file, why: error.to_string() }),
        }
    }

    /// A failed request, as a failure that says what to do about it here.
    #[must_use]
    pub fn failure(&self, error: StoreError) -> Failure {
        match (&self.place, &error) {
            (Place::Local { file, pid, url }, StoreError::Unknown { .. }) => {
                Failure::Stale { file: file.clone(), pid: *pid, url: url.clone() }
            }
            (Place::Local { url, .. }, _) => {
                let hint = "stop `leasehold local` and start it again".to_owned();
                Failure::Store { place: format!("the local system at {url}"), error, hint }
            }
            (Place::Aws { name }, _) => {
                let hint = self.hint(&error);
                Failure::Store { place: name.clone(), error, hint }
            }
        }
    }

    /// As [`Target::failure`], for what users write.
    #[must_use]
    pub fn user_failure(&self, error: UserError) -> Failure {
        match error {
            UserError::Store(error) => self.failure(error),
            UserError::Spec(error) => Failure::Usage(error.to_string()),
            UserError::NoSuchRow(id) => no_such_connection(id.as_str()),
            UserError::Busy(_) => Failure::Failed(error.to_string()),
        }
    }

    fn hint(&self, error: &StoreError) -> String {
        match error {
            StoreError::Missing { .. } => {
                let Tables { connections, sessions, messages } = self.store.tables();
                format!(
                    "deploy the stack, or set CONNECTIONS_TABLE, SESSIONS_TABLE and MESSAGES_TABLE (now {connections}, {sessions} and \
                     {messages}) and AWS_REGION to those of yours"
                )
            }
            StoreError::Denied { .. } => "set AWS_PROFILE to a profile that may use the tables".to_owned(),
            StoreError::Unknown { .. } => "check the network and AWS_REGION, and try again".to_owned(),
            StoreError::Throttled { .. } => "try again in a minute".to_owned(),
            StoreError::Invalid { .. } => "check that the tables are those of this version's stack".to_owned(),
        }
    }
}

/// There is no such row.
#[must_use]
pub fn no_such_connection(id: &str) -> Failure {
    Failure::Failed(format!(
        "there is no connection {id}: `leasehold list` shows what there is, `leasehold start {id} --url wss://…` makes it"
    ))
}

async fn open_local(file: PathBuf, system: LocalSystem) -> Result<Target, Failure> {
    let url = system.dynamodb.clone();
    let LocalTables { connections, sessions, messages } = system.tables;
    let Some(address) = address_of(&url) else {
        return Err(Failure::BadLocalFile { file, why: format!("{url} is not http://127.0.0.1:PORT") });
    };
    // Asked by hand first: the SDK would take its time and its retries to find out that nobody is there.
    if !matches!(timeout(LOCAL_CONNECT, TcpStream::connect(address)).await, Ok(Ok(_))) {
        return Err(Failure::Stale { file, pid: system.pid, url });
    }
    let config = Builder::new()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(LOCAL_REGION))
        .credentials_provider(Credentials::new("local", "local", None, None, "leasehold-local"))
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .endpoint_url(&url);
    let store = Store::new(clients(config), Tables { connections, sessions, messages });
    Ok(Target { store, place: Place::Local { file, pid: system.pid, url } })
}

fn address_of(url: &str) -> Option<(String, u16)> {
    let url = Url::parse(url).ok()?;
    Some((url.host_str()?.to_owned(), url.port_or_known_default()?))
}

async fn open_aws(state_dir: &Path, lookup: Lookup<'_>) -> Result<Target, Failure> {
    let no_system = |why: String| Failure::NoSystem { state_dir: state_dir.to_owned(), why };
    let config = sdk::load().await;
    let Some(region) = config.region() else { return Err(no_system("no region".to_owned())) };
    let name = match optional(lookup, "AWS_ENDPOINT_URL_DYNAMODB").or_else(|| optional(lookup, "AWS_ENDPOINT_URL")) {
        Some(endpoint) => format!("DynamoDB at {endpoint}"),
        None => format!("DynamoDB in {region}"),
    };
    let Some(provider) = config.credentials_provider() else { return Err(no_system("no credentials".to_owned())) };
    // Asked first: within a request they would look like a request without an answer.
    match timeout(CREDENTIALS, provider.provide_credentials()).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => return Err(no_system(format!("no credentials: {error}"))),
        Err(_) => return Err(no_system("credentials took too long".to_owned())),
    }
    let table = |name: &str, default: &str| optional(lookup, name).unwrap_or_else(|| default.to_owned());
    let tables = Tables {
        connections: table("CONNECTIONS_TABLE", "leasehold-connections"),
        sessions: table("SESSIONS_TABLE", "leasehold-sessions"),
        messages: table("MESSAGES_TABLE", "leasehold-messages"),
    };
    Ok(Target { store: Store::new(clients(Builder::from(&config)), tables), place: Place::Aws { name } })
}

fn clients(config: Builder) -> DynamoClients {
    DynamoClients::new(config, Arc::new(SystemClock))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_reads_back_as_it_was_written_and_none_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(LOCAL_FILE);
        assert_eq!(LocalSystem::read(&file).unwrap(), None);
        let name = |text: &str| text.to_owned();
        let system = LocalSystem {
            pid: 7,
            dynamodb: name("http://127.0.0.1:4100"),
            sqs: name("http://127.0.0.1:4101"),
            tables: LocalTables { connections: name("c"), sessions: name("s"), messages: name("m") },
            queues: LocalQueues { claims: name("q"), ticks: name("t") },
        };
        system.write(&file).unwrap();
        assert_eq!(LocalSystem::read(&file).unwrap(), Some(system));
        std::fs::write(&file, "{}").unwrap();
        assert_eq!(LocalSystem::read(&file).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
