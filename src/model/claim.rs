//! A claim: "look at this connection, it may want an owner". A hint: the row is read, the claim proves nothing.

use super::{ConnectionId, IdError};
use serde::{Deserialize, Serialize};
use serde_json::error::Category;
use std::fmt;

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

/// How and where JSON is not as it should be. Nothing of it is quoted, as `serde_json`'s own words do: any value may be a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonFault {
    kind: &'static str,
    line: usize,
    column: usize,
}

impl From<serde_json::Error> for JsonFault {
    fn from(error: serde_json::Error) -> Self {
        let kind = match error.classify() {
            Category::Io => "it could not be read",
            Category::Syntax => "no JSON",
            Category::Data => "JSON of another form",
            Category::Eof => "it ends too early",
        };
        Self { kind, line: error.line(), column: error.column() }
    }
}

impl fmt::Display for JsonFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            // What was parsed before has no lines.
            0 => f.write_str(self.kind),
            line => write!(f, "{} at line {line}, column {}", self.kind, self.column),
        }
    }
}

/// Why a message is no claim.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Not JSON of the right form.
    #[error("the claim is not {{\"connection_id\": \"…\"}}: {0}")]
    Json(JsonFault),
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
        let body: Body = serde_json::from_str(body).map_err(|error| ClaimError::Json(error.into()))?;
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

    #[test]
    fn an_error_says_where_and_quotes_nothing() {
        let cases = [
            ("\"SECRET\"", "JSON of another form at line 1, column 8"),
            ("{\"connection_id\":\n[\"SECRET\"]}", "JSON of another form at line 2, column 0"),
            ("SECRET", "no JSON at line 1, column 1"),
            ("{\"SECRET\":", "it ends too early at line 1, column 10"),
        ];
        for (body, words) in cases {
            let error = Claim::from_body(body).unwrap_err();
            assert!(error.to_string().ends_with(words), "{error}");
            assert!(!format!("{error} {error:?}").contains("SECRET"), "{error:?}");
        }
    }
}
