//! State that outlives the process: one file, one value, written whole or not at all.
//!
//! A [`CheckpointFile`] writes a temporary file, syncs it, renames it over the old one and syncs the directory, so
//! that a power cut leaves either the old value or the new. An unchanged value is not written: flash wears out. A file
//! that cannot be read is set aside under another name, with a reason, and never taken for "nothing there". Blocking;
//! a handler uses a [`CheckpointWriter`].

mod frame;
mod pending_write;
mod writer;

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

pub use frame::{EncodeError, Flaw, LIMIT, Schema, decode, parse};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
pub use writer::{CheckpointWriter, WriteProgress, WriteResult, WriteTask};

use crate::checkpoint::pending_write::{Fingerprint, PendingWrite};

/// Files of one name that are kept aside, the newest first.
const KEPT_ASIDE: u32 = 3;

/// One file of one kind.
#[derive(Debug)]
pub struct CheckpointFile {
    path: PathBuf,
    schema: Schema,
    /// The fingerprint of the file's content; none if it is not known.
    on_disk: Cell<Option<Fingerprint>>,
    stats: Stats,
}

/// The result of [`CheckpointFile::load`].
#[derive(Debug, PartialEq, Eq)]
pub enum LoadOutcome<T> {
    /// There is no file: the first start, or a new node.
    Fresh,
    /// The value that was saved last.
    Found(T),
    /// There was a file, but it can't be used. An actor that needs the value must report that it is lost.
    SetAside {
        /// Where it can be looked at.
        moved_to: PathBuf,
        /// Why it can't be used.
        why: String,
    },
}

/// The result of [`CheckpointFile::save`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Saved {
    /// The file holds the value now.
    Written {
        /// The file's length in bytes.
        bytes: u64,
    },
    /// The file held the value already.
    Unchanged,
}

/// Writes of a checkpoint file since the start of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stats {
    /// Files written.
    pub writes: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Writes spared because nothing had changed.
    pub skipped: u64,
}

/// Why a checkpoint could not be read or written at all.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The value cannot become a checkpoint.
    #[error("cannot encode checkpoint {}", path.display())]
    Encode {
        /// The file it was for.
        path: PathBuf,
        /// The encoder's error.
        source: EncodeError,
    },
    /// The file could not be read or written.
    #[error("cannot {action} checkpoint {}", path.display())]
    Io {
        /// The failed action, as a verb.
        action: &'static str,
        /// The file's path.
        path: PathBuf,
        /// Why it did not work.
        source: io::Error,
    },
}

impl CheckpointError {
    /// Returns whether the same call may succeed later.
    pub fn transient(&self) -> bool {
        match self {
            CheckpointError::Encode { .. } => false,
            CheckpointError::Io { .. } => true,
        }
    }
}

impl CheckpointFile {
    /// Names the file; nothing is read or written yet.
    pub fn new(path: PathBuf, schema: Schema) -> CheckpointFile {
        CheckpointFile {
            path,
            schema,
            on_disk: Cell::new(None),
            stats: Stats::default(),
        }
    }

    /// Returns the file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns what the store cost its disk so far.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Reads the value. A file of an older schema version is set aside, as a damaged one is.
    ///
    /// # Errors
    /// [`CheckpointError::Io`] where the file cannot be read. A file that makes no sense is no error: it is
    /// [`LoadOutcome::SetAside`].
    pub fn load<T: DeserializeOwned>(&self) -> Result<LoadOutcome<T>, CheckpointError> {
        let wanted = self.schema.version;
        self.load_migrating(|found, _| Err(Flaw::Older { found, wanted }))
    }

    /// As [`load`](CheckpointFile::load), with a way to make the value of an older version's payload.
    pub fn load_migrating<T: DeserializeOwned>(
        &self,
        migrate: impl FnOnce(u16, &[u8]) -> Result<T, Flaw>,
    ) -> Result<LoadOutcome<T>, CheckpointError> {
        self.remove_leftovers();
        let bytes = match self.read() {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(LoadOutcome::Fresh),
            Err(ReadFailure::Flawed(why)) => return self.set_aside(why),
            Err(ReadFailure::Io(source)) => return Err(self.failed("read", source)),
        };
        let value = frame::open(self.schema, &bytes).and_then(|(version, payload)| {
            match version == self.schema.version {
                true => decode(payload),
                false => migrate(version, payload),
            }
        });
        match value {
            Ok(value) => {
                self.on_disk.set(Some(Fingerprint::of(&bytes)));
                Ok(LoadOutcome::Found(value))
            }
            Err(why) => self.set_aside(why),
        }
    }

    /// Writes the value, unless the file holds it already.
    ///
    /// # Errors
    /// [`CheckpointError::Encode`] for a value that no file can hold; [`CheckpointError::Io`] where it cannot be
    /// written, and the old file stands.
    pub fn save<T: Serialize>(&mut self, value: &T) -> Result<Saved, CheckpointError> {
        match self.pending(value)? {
            None => Ok(Saved::Unchanged),
            Some(pending) => {
                let result = pending.write();
                self.settle(&pending, result)
            }
        }
    }

    /// Encodes the value, or returns `None` when the file holds it already.
    fn pending<T: Serialize>(
        &mut self,
        value: &T,
    ) -> Result<Option<PendingWrite>, CheckpointError> {
        let encoded = frame::encode(self.schema, value);
        let bytes = encoded.map_err(|source| {
            let path = self.path.clone();
            CheckpointError::Encode { path, source }
        })?;
        if self.on_disk.get() == Some(Fingerprint::of(&bytes)) && self.path.exists() {
            self.stats.skipped += 1;
            return Ok(None);
        }
        Ok(Some(PendingWrite::new(self.path.clone(), bytes)))
    }

    /// Takes note of how a pending write went.
    fn settle(
        &mut self,
        pending: &PendingWrite,
        result: io::Result<()>,
    ) -> Result<Saved, CheckpointError> {
        if let Err(source) = result {
            self.on_disk.set(None);
            return Err(self.failed("write", source));
        }
        let bytes = pending.bytes().len() as u64;
        self.on_disk.set(Some(Fingerprint::of(pending.bytes())));
        self.stats.writes += 1;
        self.stats.bytes += bytes;
        Ok(Saved::Written { bytes })
    }

    fn read(&self) -> Result<Option<Vec<u8>>, ReadFailure> {
        // A link or a FIFO in the file's place is not followed and not opened: it could be anything.
        let found = match fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            found => found?,
        };
        if !found.is_file() {
            return Err(ReadFailure::Flawed(Flaw::NoCheckpoint(
                "it is no regular file",
            )));
        }
        let limit = (LIMIT + frame::HEADER) as u64;
        if found.len() > limit {
            let why = "it is larger than any checkpoint";
            return Err(ReadFailure::Flawed(Flaw::NoCheckpoint(why)));
        }
        let mut bytes = Vec::new();
        File::open(&self.path)?
            .take(limit + 1)
            .read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    fn set_aside<T>(&self, why: Flaw) -> Result<LoadOutcome<T>, CheckpointError> {
        let word = why.label();
        let aside = |n: u32| self.beside(&format!(".{word}-{n}"));
        for n in (1..KEPT_ASIDE).rev() {
            if aside(n).symlink_metadata().is_ok() {
                drop(files::remove_tree(&aside(n + 1)));
                fs::rename(aside(n), aside(n + 1))
                    .map_err(|error| self.failed("set aside", error))?;
            }
        }
        let moved_to = aside(1);
        fs::rename(&self.path, &moved_to).map_err(|error| self.failed("set aside", error))?;
        tracing::error!(
            checkpoint = %self.path.display(),
            moved_to = %moved_to.display(),
            %why,
            "checkpoint is of no use and set aside"
        );
        Ok(LoadOutcome::SetAside {
            moved_to,
            why: why.to_string(),
        })
    }

    /// Removes what a process that died while it wrote has left.
    fn remove_leftovers(&self) {
        let prefix = self.beside(".tmp-");
        let (Some(folder), Some(prefix)) = (prefix.parent(), prefix.file_name()) else {
            return;
        };
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name
                .as_encoded_bytes()
                .starts_with(prefix.as_encoded_bytes())
            {
                drop(fs::remove_file(entry.path()));
            }
        }
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        pending_write::beside(&self.path, suffix)
    }

    fn failed(&self, action: &'static str, source: io::Error) -> CheckpointError {
        CheckpointError::Io {
            action,
            path: self.path.clone(),
            source,
        }
    }
}

impl Flaw {
    /// The word in the name of a file set aside.
    fn label(&self) -> &'static str {
        match self {
            Flaw::Newer { .. } => "newer",
            Flaw::Older { .. } => "older",
            Flaw::NoCheckpoint(_)
            | Flaw::Length { .. }
            | Flaw::Checksum { .. }
            | Flaw::Kind { .. }
            | Flaw::Content(_) => "damaged",
        }
    }
}

/// Why a file's bytes are not there.
enum ReadFailure {
    Flawed(Flaw),
    Io(io::Error),
}

impl From<io::Error> for ReadFailure {
    fn from(error: io::Error) -> ReadFailure {
        ReadFailure::Io(error)
    }
}
