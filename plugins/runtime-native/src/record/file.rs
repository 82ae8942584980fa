//! Records as files: written whole or not at all, read within bounds, set aside when they are damaged.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::layout::private_dir;

const NAME: &str = "record.json";
const NEW_NAME: &str = "record.json.new";
/// A configuration has at most a few hundred KiB: longer is no record of ours.
const MAX_BYTES: u64 = 8 << 20;

/// Why a record cannot be kept.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    #[error("cannot write record {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot read records in {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot remove {}", path.display())]
    Remove { path: PathBuf, source: io::Error },
}

/// The records of one kind: a folder with a folder for each.
#[derive(Clone, Debug)]
pub(crate) struct RecordStore {
    folder: PathBuf,
    damaged: PathBuf,
}

impl RecordStore {
    pub(crate) fn new(folder: PathBuf, damaged: PathBuf) -> RecordStore {
        RecordStore { folder, damaged }
    }

    /// Writes a record, on disk when this returns: a crash leaves the old one or the new one.
    pub(crate) fn write<T: Serialize>(&self, id: &str, record: &T) -> Result<(), RecordError> {
        let folder = self.folder.join(id);
        let path = folder.join(NAME);
        self.replace(&folder, record)
            .map_err(|source| RecordError::Write { path, source })
    }

    fn replace<T: Serialize>(&self, folder: &Path, record: &T) -> io::Result<()> {
        let known = folder.is_dir();
        private_dir(folder)?;
        let new = folder.join(NEW_NAME);
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(&serde_json::to_vec(record)?)?;
        file.sync_all()?;
        fs::rename(&new, folder.join(NAME))?;
        File::open(folder)?.sync_all()?;
        if !known {
            File::open(&self.folder)?.sync_all()?;
        }
        Ok(())
    }

    /// Removes a record and its folder: the last step of a removal. What is gone already is no error.
    ///
    /// The folder must hold nothing that is mounted: it is looked for by the caller.
    pub(crate) fn remove(&self, id: &str) -> Result<(), RecordError> {
        let folder = self.folder.join(id);
        let failed = |source| RecordError::Remove {
            path: folder.clone(),
            source,
        };
        // The record last: while it is there a successor knows what else is.
        for entry in self.others(&folder).map_err(failed)? {
            remove_any(&entry).map_err(failed)?;
        }
        remove_any(&folder).map_err(failed)?;
        File::open(&self.folder)
            .and_then(|folder| folder.sync_all())
            .map_err(failed)
    }

    fn others(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut paths = Vec::new();
        for entry in entries {
            let entry = entry?;
            if entry.file_name() != NAME {
                paths.push(entry.path());
            }
        }
        Ok(paths)
    }

    /// Reads every record. A folder whose record is damaged is set aside and named in the log: nothing of it is removed.
    pub(crate) fn read_all<T: DeserializeOwned>(&self) -> Result<Vec<T>, RecordError> {
        let failed = |source| RecordError::Read {
            path: self.folder.clone(),
            source,
        };
        let mut records = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(failed)? {
            let folder = entry.map_err(failed)?.path();
            match read(&folder.join(NAME)) {
                Ok(record) => records.push(record),
                Err(error) => self.set_aside(&folder, &error).map_err(failed)?,
            }
        }
        Ok(records)
    }

    fn set_aside(&self, folder: &Path, why: &io::Error) -> io::Result<()> {
        if why.kind() == io::ErrorKind::InvalidData {
            return self.keep_damaged(folder, why);
        }
        if why.kind() != io::ErrorKind::NotFound {
            // The disk does not answer: that is no reason to believe that the record is bad.
            return Err(io::Error::new(why.kind(), why.to_string()));
        }
        // A folder that was made, and killed before its record: it holds nothing. A full one is kept.
        let emptied = fs::remove_dir(folder).or_else(|_| {
            fs::remove_file(folder.join(NEW_NAME))?;
            fs::remove_dir(folder)
        });
        emptied.or_else(|_| self.keep_damaged(folder, why))
    }

    fn keep_damaged(&self, folder: &Path, why: &io::Error) -> io::Result<()> {
        let name = folder.file_name().unwrap_or_default();
        let kept = self.damaged.join(name);
        tracing::error!(record = %folder.display(), kept = %kept.display(), error = %why, "a record is damaged and set aside");
        fs::rename(folder, kept)
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)?;
    let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    if bytes.len() as u64 > MAX_BYTES {
        return Err(wrong(format!("longer than {MAX_BYTES} bytes")));
    }
    serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))
}

/// Removes a file or a folder without following links; what is gone already is no error.
fn remove_any(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}
