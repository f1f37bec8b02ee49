//! What a file-backed system keeps over a restart: the engine's file, the queues, and how far the stream was read.

use super::SystemError;
use crate::events::shards::Progress;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io;
use std::path::PathBuf;

/// The directory of a file-backed system.
#[derive(Clone, Debug)]
pub struct Files {
    directory: PathBuf,
}

/// What is written down beside the engine's own file.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Kept {
    /// The queues' snapshot; null before the first.
    pub queues: Value,
    /// How far the stream was read.
    pub stream: Progress,
}

impl Files {
    /// Opens the directory, and makes it where it is not there.
    ///
    /// # Errors
    /// [`SystemError::Io`].
    pub fn open(directory: &PathBuf) -> Result<Self, SystemError> {
        std::fs::create_dir_all(directory).map_err(|error| SystemError::Io {
            what: format!("the directory {} cannot be made", directory.display()),
            error,
        })?;
        Ok(Self { directory: directory.clone() })
    }

    /// The engine's file.
    #[must_use]
    pub fn engine(&self) -> PathBuf {
        self.directory.join("engine.db")
    }

    fn kept(&self) -> PathBuf {
        self.directory.join("queues.json")
    }

    /// Reads what was written down; the default where there is nothing.
    ///
    /// # Errors
    /// [`SystemError::Io`], naming the file to remove where it cannot be read.
    pub fn load(&self) -> Result<Kept, SystemError> {
        let path = self.kept();
        let read = std::fs::read_to_string(&path);
        let parsed = match read {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Kept::default()),
            Err(error) => Err(error),
            Ok(text) => serde_json::from_str(&text).map_err(io::Error::other),
        };
        parsed.map_err(|error| SystemError::Io {
            what: format!("{} cannot be read (without it the system starts with empty queues)", path.display()),
            error,
        })
    }

    /// Writes it down: whole, or not at all.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn save(&self, kept: &Kept) -> io::Result<()> {
        let text = serde_json::to_string(kept).map_err(io::Error::other)?;
        let beside = self.directory.join("queues.json.new");
        std::fs::write(&beside, text)?;
        std::fs::rename(beside, self.kept())
    }
}
