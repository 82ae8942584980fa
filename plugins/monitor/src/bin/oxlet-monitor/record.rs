//! What is on disk of a container, so that a successor knows what was meant and what was reached.
//!
//! A record is replaced whole (a new file, synced, renamed, the folder synced). An intent is written before the
//! deed, the outcome after it and before it is told.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use monitor::{Create, End, Phase, ProcessIdentity};
use serde::{Deserialize, Serialize};

const FILE: &str = "record.json";
/// Written in every record; a successor that finds a newer one does not guess.
pub(crate) const FORMAT: u32 = 1;
/// The largest record that is read, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// A container as the disk knows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) format: u32,
    pub(crate) create: Create,
    pub(crate) phase: Phase,
    pub(crate) process: Option<ProcessIdentity>,
    /// The file that counts what the kernel killed for memory in the container's cgroup.
    pub(crate) oom_counter: Option<PathBuf>,
    pub(crate) created_at: i64,
    pub(crate) started_at: i64,
    pub(crate) end: Option<End>,
}

impl Record {
    pub(crate) fn new(create: Create) -> Record {
        Record {
            format: FORMAT,
            create,
            phase: Phase::Creating,
            process: None,
            oom_counter: None,
            created_at: 0,
            started_at: 0,
            end: None,
        }
    }

    /// Replaces the record in a container's folder; once this returns it survives a loss of power.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        let next = folder.join("record.next");
        let mut file = File::create(&next)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        file.sync_all()?;
        fs::rename(&next, folder.join(FILE))?;
        File::open(folder)?.sync_all()
    }

    /// Reads the record in a container's folder; none when the container was never meant to be.
    pub(crate) fn read(folder: &Path) -> io::Result<Option<Record>> {
        let path = folder.join(FILE);
        let length = match fs::metadata(&path) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if length > MAX_BYTES {
            return Err(io::Error::other("record is longer than 1 MiB"));
        }
        let record: Record = serde_json::from_slice(&fs::read(&path)?)?;
        if record.format > FORMAT {
            let format = record.format;
            return Err(io::Error::other(format!(
                "record has format {format}, this monitor reads {FORMAT}"
            )));
        }
        Ok(Some(record))
    }
}

/// Makes a folder for root alone.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}
