//! A claim: "look at this connection, it may want an owner". A hint: the row is read, the claim proves nothing.

use super::{ConnectionId, IdError};
use serde::{Deserialize, Serialize};

/// A message of the `claims` queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The connection to look at.
    pub connection_id: ConnectionId,
}

#[derive(Serialize, Deserialize)]
struct Body {
    connection_id: String,
}

/// Why a message is no claim.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Not JSON of the right form.
    #[error("the claim is not {{\"connection_id\": \"…\"}}: {0}")]
    Json(#[from] serde_json::Error),
    /// The id is none.
    #[error("the claim names no connection: {0}")]
    Id(#[from] IdError),
}

impl Claim {
    /// Reads a message's body.
    ///
    /// # Errors
    /// [`ClaimError`] when it is no claim; such a message is dropped and counted, since it can never become one.
    pub fn from_body(body: &str) -> Result<Self, ClaimError> {
        let body: Body = serde_json::from_str(body)?;
        Ok(Self { connection_id: ConnectionId::new(body.connection_id)? })
    }

    /// Renders the body.
    #[must_use]
    pub fn to_body(&self) -> String {
        serde_json::json!({ "connection_id": self.connection_id.as_str() }).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_survives_its_own_rendering() {
        let claim = Claim { connection_id: ConnectionId::new("a-1").unwrap() };
        assert_eq!(Claim::from_body(&claim.to_body()).unwrap(), claim);
    }

    #[test]
    fn a_body_that_is_no_claim_says_what_one_looks_like() {
        let error = Claim::from_body("hello").unwrap_err().to_string();
        assert!(error.contains("{\"connection_id\""), "{error}");
        assert!(Claim::from_body("{\"connection_id\":\"a b\"}").is_err());
    }
}
