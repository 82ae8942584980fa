//! A pod's range as it is written into the pod's folder: upstream's file and form, so that either agent
//! finds what the other gave.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::linux::IdRange;

/// The file's name in the pod's folder.
pub const FILE: &str = "userns";

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    #[serde(rename = "uidMappings")]
    users: Vec<Mapping>,
    #[serde(rename = "gidMappings")]
    groups: Vec<Mapping>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Mapping {
    #[serde(rename = "hostId")]
    node: u32,
    #[serde(rename = "containerId")]
    container: u32,
    length: u32,
}

/// Why a record cannot be used.
#[derive(Debug, Error)]
pub enum RecordError {
    #[error("invalid user namespace mappings file: {0}")]
    Json(serde_json::Error),
    #[error("invalid user namespace configuration: no more than one mapping allowed.")]
    Count,
    #[error("invalid user namespace configuration: GID and UID mappings should be identical.")]
    Groups,
    #[error("invalid user namespace configuration: GID and UID mapping should be identical")]
    Different,
    #[error("invalid user namespace configuration: UID 0 must be mapped")]
    NoRoot,
}

/// Reads a record; none where the file is empty.
pub fn read_record(text: &[u8]) -> Result<Option<IdRange>, RecordError> {
    if text.is_empty() {
        return Ok(None);
    }
    let record: Record = serde_json::from_slice(text).map_err(RecordError::Json)?;
    let [mapping] = record.users[..] else {
        return Err(RecordError::Count);
    };
    let [groups] = record.groups[..] else {
        return Err(RecordError::Groups);
    };
    if groups != mapping {
        return Err(RecordError::Different);
    }
    if mapping.container != 0 {
        return Err(RecordError::NoRoot);
    }
    Ok(Some(IdRange {
        first: mapping.node,
        length: mapping.length,
    }))
}

/// What is written for a range.
pub fn written_record(range: IdRange) -> String {
    let mapping = Mapping {
        node: range.first,
        container: 0,
        length: range.length,
    };
    let record = Record {
        users: vec![mapping],
        groups: vec![mapping],
    };
    serde_json::to_string(&record).expect("numbers are plain data")
}
