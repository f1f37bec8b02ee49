//! `leasehold stop`: writes that a connection should be STOPPED.

use super::connection_id;
use crate::failure::Failure;
use crate::output::Output;
use crate::target::Target;
use leasehold::model::ConnectionId;

/// Say that a connection should be STOPPED: its owner closes the socket. The row stays.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The connection
    #[arg(value_parser = connection_id)]
    id: ConnectionId,
}

impl Arguments {
    /// Runs the command.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn run(self, target: &Target, output: &Output) -> Result<(), Failure> {
        target.store.stop(&self.id).await.map_err(|error| target.user_failure(error))?;
        output.line(&format!("{} is to be STOPPED", self.id))
    }
}
