//! Identifiers: of connections (chosen by users) and of sessions (made by workers).

use std::fmt;

/// What a connection's key begins with: `Pk` = `CONN#<id>`.
pub const PK_PREFIX: &str = "CONN#";

/// The longest id of a connection, in bytes.
pub const MAX_ID_BYTES: usize = 128;

/// A user's name for a connection: 1 to 128 of `A-Z a-z 0-9 . _ : @ -`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(String);

/// Why a text is no id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Not of the allowed form.
    #[error("{0:?} is no connection id: use 1 to {MAX_ID_BYTES} of A-Z a-z 0-9 . _ : @ -")]
    Form(String),
    /// A key that is not `CONN#<id>`.
    #[error("{0:?} is no key of a connection: Pk must be CONN#<id>")]
    Key(String),
}

impl ConnectionId {
    /// Reads a user's id.
    ///
    /// # Errors
    /// [`IdError::Form`] when it is empty, too long, or has other characters.
    pub fn new(id: impl Into<String>) -> Result<Self, IdError> {
        let id = id.into();
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '@' | '-');
        if id.is_empty() || id.len() > MAX_ID_BYTES || !id.chars().all(allowed) {
            return Err(IdError::Form(id.chars().take(MAX_ID_BYTES).collect()));
        }
        Ok(Self(id))
    }

    /// Reads a table key, `CONN#<id>`.
    ///
    /// # Errors
    /// [`IdError`] when the prefix is missing or the rest is no id.
    pub fn from_pk(pk: &str) -> Result<Self, IdError> {
        match pk.strip_prefix(PK_PREFIX) {
            Some(id) => Self::new(id),
            None => Err(IdError::Key(pk.chars().take(MAX_ID_BYTES).collect())),
        }
    }

    /// The table key.
    #[must_use]
    pub fn pk(&self) -> String {
        format!("{PK_PREFIX}{}", self.0)
    }

    /// The id as the user wrote it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One run of one worker process. Workers make a new UUIDv7 at each start; nothing else may be read out of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(String);

impl SessionId {
    /// Takes an id as it is stored.
    #[must_use]
    pub fn new(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    /// The stored text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The last 12 characters: the random end of a UUIDv7, for names and logs.
    #[must_use]
    pub fn short(&self) -> &str {
        let start = self.0.len().saturating_sub(12);
        self.0.get(start..).unwrap_or(&self.0)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_and_its_id_are_two_forms_of_one_thing() {
        let id = ConnectionId::new("binance.btc-usd@1").unwrap();
        assert_eq!(id.pk(), "CONN#binance.btc-usd@1");
        assert_eq!(ConnectionId::from_pk(&id.pk()), Ok(id));
    }

    #[test]
    fn ids_that_could_break_a_key_or_a_terminal_are_refused() {
        for bad in ["", "a b", "a#b", "a\u{1b}[31m", "ü", &"x".repeat(129)] {
            assert!(ConnectionId::new(bad).is_err(), "{bad:?}");
        }
        assert!(ConnectionId::from_pk("SESSION#x").is_err());
    }
}
