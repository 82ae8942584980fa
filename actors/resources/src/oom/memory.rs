//! The place in the kernel's messages up to which kills were told.

use std::future::Future;
use std::path::{Path, PathBuf};

use kernel::checkpoint::{CheckpointFile, LoadOutcome, Schema};
use serde::{Deserialize, Serialize};

const SCHEMA: Schema = Schema {
    kind: 51,
    version: 1,
};

/// The file's content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct ToldUpTo {
    boot_id: String,
    /// Of the last message of the last kill; none before the first.
    sequence: Option<u64>,
}

/// The place, and how far it is on its way to the disk.
#[derive(Debug, Default)]
pub(super) struct KmsgPlace {
    file: PathBuf,
    told: ToldUpTo,
    writing: bool,
    /// Whether it has moved since it was taken to be written.
    moved: bool,
}

impl KmsgPlace {
    /// Reads the place of an earlier life; in another boot the messages are others. What cannot be read costs events that are
    /// told twice.
    pub(super) fn load(file: &Path, boot_id: &str) -> Self {
        let loaded = CheckpointFile::new(file.to_owned(), SCHEMA).load::<ToldUpTo>();
        let found = match loaded {
            Ok(LoadOutcome::Found(found)) => Some(found),
            Ok(LoadOutcome::Fresh) => None,
            Ok(LoadOutcome::SetAside { moved_to, why }) => {
                tracing::warn!(
                    "which kills were told is not known, it is set aside as {}: {why}",
                    moved_to.display()
                );
                None
            }
            Err(error) => {
                tracing::warn!("which kills were told is not known: {error}");
                None
            }
        };
        let same_boot = found.filter(|found| found.boot_id == boot_id);
        KmsgPlace {
            file: file.to_owned(),
            told: same_boot.unwrap_or(ToldUpTo {
                boot_id: boot_id.to_owned(),
                sequence: None,
            }),
            writing: false,
            moved: false,
        }
    }

    /// Moves on to this message; false where it was passed before.
    pub(super) fn advance(&mut self, sequence: u64) -> bool {
        let is_new = self.told.sequence.is_none_or(|told| told < sequence);
        if is_new {
            self.told.sequence = Some(sequence);
            self.moved = true;
        }
        is_new
    }

    /// The write that is due, if none is under way.
    pub(super) fn write(&mut self) -> Option<impl Future<Output = Result<(), String>> + use<>> {
        if self.writing || !self.moved {
            return None;
        }
        (self.writing, self.moved) = (true, false);
        let (file, told) = (self.file.clone(), self.told.clone());
        let saved = kernel::spawn_blocking(move || {
            let saved = CheckpointFile::new(file, SCHEMA).save(&told);
            saved.map(drop).map_err(|error| kernel::error_chain(&error))
        });
        Some(async move { saved.await.unwrap_or_else(|error| Err(error.to_string())) })
    }

    /// The write has ended.
    pub(super) fn written(&mut self) {
        self.writing = false;
    }
}
