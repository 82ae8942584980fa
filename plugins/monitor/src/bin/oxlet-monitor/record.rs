//! What is on disk of a container, so that a successor knows what was meant and what was reached.
//!
//! A record is replaced whole (a new file, renamed). An intent is written before the deed, the outcome after it and before
//! it is told. A copy follows it, which is read where the record is damaged. Neither is synced: no container outlives a loss
//! of power, and the runtime plugin, which keeps the ends of containers for longer, asks no monitor about another boot.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use monitor::{Create, End, Phase, ProcessIdentity};
use serde::{Deserialize, Serialize};

use crate::owner::IdRange;

const FILE: &str = "record.json";
const COPY: &str = "record.copy.json";
/// Written in every record; a successor that finds a newer one does not guess.
pub(crate) const FORMAT: u32 = 1;
/// The largest record that is read, in bytes.
const MAX_RECORD_BYTES: u64 = 1 << 20;

/// A container as the disk knows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) format: u32,
    pub(crate) create: Create,
    /// The container's ranges of user ids, if it has a user namespace.
    #[serde(default)]
    pub(crate) user_ids: Vec<IdRange>,
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
            user_ids: Vec::new(),
            phase: Phase::Creating,
            process: None,
            oom_counter: None,
            created_at: 0,
            started_at: 0,
            end: None,
        }
    }

    /// Replaces the record in a container's folder; once this returns a successor reads it, however this process ends.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        let text = serde_json::to_vec(self)?;
        let next = folder.join("record.next");
        fs::write(&next, &text)?;
        fs::rename(&next, folder.join(FILE))?;
        // Nothing is done that the record says before this returns, so a copy that is one step behind is as true.
        fs::write(&next, &text)?;
        fs::rename(&next, folder.join(COPY))
    }

    /// Reads the record in a container's folder.
    pub(crate) fn read(folder: &Path) -> Found {
        let (record, copy) = (read(folder, FILE), read(folder, COPY));
        match (record, copy) {
            (Ok(Some(record)), _) => Found::Whole(Box::new(record)),
            (Err(damage), Ok(Some(copy))) => Found::Copy(Box::new(copy), damage.to_string()),
            (Ok(None), Ok(Some(copy))) => Found::Copy(Box::new(copy), "it is missing".to_owned()),
            // A copy is never alone: its record was there before it.
            (Ok(None), Ok(None)) => Found::Nothing,
            (Ok(None), Err(damage)) | (Err(damage), Ok(None) | Err(_)) => {
                Found::Damaged(damage.to_string())
            }
        }
    }
}

/// What is left of a record.
#[derive(Debug)]
pub(crate) enum Found {
    Whole(Box<Record>),
    /// The copy alone, and what is wrong with the record.
    Copy(Box<Record>, String),
    /// Neither can be used, and why.
    Damaged(String),
    /// The container was never meant to be.
    Nothing,
}

fn read(folder: &Path, name: &str) -> io::Result<Option<Record>> {
    let text = match files::read_regular(folder, Path::new(name), MAX_RECORD_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    let record: Record = serde_json::from_slice(&text)?;
    if record.format > FORMAT {
        let format = record.format;
        return Err(io::Error::other(format!(
            "record has format {format}, this monitor reads {FORMAT}"
        )));
    }
    // A container is named by its folder: a record of another one says nothing of it.
    if folder.file_name() != Some(record.create.container.as_ref()) {
        let id = record.create.container;
        return Err(io::Error::other(format!("record is of container {id:?}")));
    }
    Ok(Some(record))
}

/// Makes a folder for root alone.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}
