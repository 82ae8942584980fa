//! Records as files: written whole or not at all, read within bounds, set aside when they are damaged.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::id::is_id;
use super::{ContainerRecord, SandboxRecord};
use crate::layout::{Layout, private_dir};

pub(super) const NAME: &str = "record.json";
const NEW_NAME: &str = "record.json.new";
/// When a container was started, beside its record.
const STARTED: &str = "started";
/// The longest record, in bytes. A configuration has at most a few hundred KiB.
const MAX_RECORD_BYTES: u64 = 8 << 20;
/// The longest note of a start, in bytes: a number.
const MAX_STARTED_BYTES: u64 = 32;
/// How many damaged records are kept; the oldest go first.
const MAX_DAMAGED: usize = 32;

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

/// Whose records a store has.
pub(crate) trait Recorded: Serialize + DeserializeOwned {
    /// One word for a record's subject.
    const KIND: &'static str;

    fn id(&self) -> &str;
}

impl Recorded for SandboxRecord {
    const KIND: &'static str = "sandbox";

    fn id(&self) -> &str {
        &self.id
    }
}

impl Recorded for ContainerRecord {
    const KIND: &'static str = "container";

    fn id(&self) -> &str {
        &self.id
    }
}

/// The records of one kind: a folder with a folder for each.
#[derive(Clone, Debug)]
pub(crate) struct RecordStore {
    folder: PathBuf,
    layout: Layout,
}

/// What a store has.
#[derive(Debug, PartialEq)]
pub(crate) struct Records<T> {
    pub(crate) sound: Vec<T>,
    /// The ids of subjects whose record is damaged or missing. Their folders are where they were.
    pub(crate) lost: Vec<String>,
}

impl RecordStore {
    /// Names the records in `folder`, which is one of the layout's.
    pub(crate) fn new(folder: PathBuf, layout: Layout) -> RecordStore {
        RecordStore { folder, layout }
    }

    /// Writes a record, on disk when this returns: a loss of power leaves the old one or the new one.
    pub(crate) fn write<T: Recorded>(&self, record: &T) -> Result<(), RecordError> {
        self.put(record, true)
    }

    /// Writes a record for a successor of this process. A loss of power may leave none of it.
    pub(crate) fn note<T: Recorded>(&self, record: &T) -> Result<(), RecordError> {
        self.put(record, false)
    }

    /// The folder of a record.
    pub(crate) fn folder(&self, id: &str) -> PathBuf {
        self.folder.join(id)
    }

    fn put<T: Recorded>(&self, record: &T, is_synced: bool) -> Result<(), RecordError> {
        let folder = self.folder(record.id());
        self.replace(&folder, record, is_synced)
            .map_err(|source| RecordError::Write {
                path: folder.join(NAME),
                source,
            })
    }

    fn replace<T: Recorded>(&self, folder: &Path, record: &T, is_synced: bool) -> io::Result<()> {
        let text = serde_json::to_vec(record)?;
        if text.len() as u64 > MAX_RECORD_BYTES {
            // It could not be read again.
            let why = format!(
                "it has {} bytes, expected at most {MAX_RECORD_BYTES}",
                text.len()
            );
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
        }
        private_dir(folder)?;
        let new = folder.join(NEW_NAME);
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(&text)?;
        if is_synced {
            file.sync_all()?;
        }
        fs::rename(&new, folder.join(NAME))?;
        if is_synced {
            // What was noted before may have made the folder a moment ago.
            File::open(folder)?.sync_all()?;
            File::open(&self.folder)?.sync_all()?;
        }
        Ok(())
    }

    /// Takes a record away with its folder, in one step: the last one of a removal. What is gone already is no error.
    /// Returns where the folder lies now, which is to be removed.
    ///
    /// The folder must hold nothing that is mounted: the caller has looked for that.
    pub(crate) fn remove(&self, id: &str) -> Result<Option<PathBuf>, RecordError> {
        let path = self.folder.join(id);
        self.layout
            .discard(&path, id)
            .map_err(|source| RecordError::Remove { path, source })
    }

    /// Notes when a container was started, in nanoseconds since 1970. It is not synced: it is of use within this boot alone.
    pub(crate) fn note_start(&self, id: &str, started: i64) -> Result<(), RecordError> {
        let path = self.folder.join(id).join(STARTED);
        // The end of the line tells a whole number from a part of one.
        fs::write(&path, format!("{started}\n"))
            .map_err(|source| RecordError::Write { path, source })
    }

    /// Returns when a container was started; 0 without a note that can be read.
    pub(crate) fn noted_start(&self, id: &str) -> i64 {
        let folder = self.folder.join(id);
        let bytes = files::read_regular(&folder, Path::new(STARTED), MAX_STARTED_BYTES);
        let text = bytes.ok().and_then(|bytes| String::from_utf8(bytes).ok());
        text.and_then(|text| text.strip_suffix('\n')?.parse().ok())
            .filter(|started| *started > 0)
            .unwrap_or(0)
    }

    /// Reads every record. A damaged one is set aside, and its subject is lost. What has not the name of an id is not
    /// ours, and stays.
    ///
    /// # Errors
    /// A disk that does not answer: that is no reason to believe that a record is damaged.
    pub(crate) fn read_all<T: Recorded>(&self) -> Result<Records<T>, RecordError> {
        let failed = |source| RecordError::Read {
            path: self.folder.clone(),
            source,
        };
        let mut records = Records {
            sound: Vec::new(),
            lost: Vec::new(),
        };
        for entry in fs::read_dir(&self.folder).map_err(failed)? {
            let folder = entry.map_err(failed)?.path();
            let name = folder.file_name().and_then(|name| name.to_str());
            let Some(id) = name.filter(|name| is_id(name) && folder.is_dir()) else {
                tracing::warn!(path = %folder.display(), "this is not ours, and stays");
                continue;
            };
            match read::<T>(&folder, id) {
                Ok(record) => records.sound.push(record),
                Err(error) => {
                    self.set_aside::<T>(id, error).map_err(failed)?;
                    records.lost.push(id.to_owned());
                }
            }
        }
        Ok(records)
    }

    fn set_aside<T: Recorded>(&self, id: &str, why: io::Error) -> io::Result<()> {
        let record = self.folder.join(id).join(NAME);
        if why.kind() == io::ErrorKind::NotFound {
            // It was killed before its first record was written.
            return Ok(());
        }
        let of_damage = [
            io::ErrorKind::InvalidData,
            io::ErrorKind::InvalidInput,
            io::ErrorKind::FileTooLarge,
        ];
        if !of_damage.contains(&why.kind()) && Errno::from_io_error(&why) != Some(Errno::LOOP) {
            return Err(why);
        }
        let damaged = self.layout.damaged();
        let kept = damaged.join(format!("{}-{id}.json", T::KIND));
        tracing::error!(
            record = %record.display(),
            kept = %kept.display(),
            error = %why,
            "the record of a {} is damaged and set aside: its processes are ended",
            T::KIND
        );
        fs::rename(&record, kept)?;
        keep_latest(&damaged)
    }
}

/// Removes the oldest of the damaged records beyond [`MAX_DAMAGED`].
fn keep_latest(damaged: &Path) -> io::Result<()> {
    let mut kept: Vec<(SystemTime, PathBuf)> = fs::read_dir(damaged)?
        .flatten()
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    kept.sort();
    let excess = kept.len().saturating_sub(MAX_DAMAGED);
    kept.iter()
        .take(excess)
        .try_for_each(|(_, path)| files::remove_tree(path))
}

fn read<T: Recorded>(folder: &Path, id: &str) -> io::Result<T> {
    let damaged = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let bytes = files::read_regular(folder, Path::new(NAME), MAX_RECORD_BYTES)?;
    let record: T = serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
    match record.id() == id {
        true => Ok(record),
        false => Err(damaged(format!("it is of {}, expected {id}", record.id()))),
    }
}
