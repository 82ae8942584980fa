//! A pod's range as it is written into the pod's directory: upstream's file and format, so that agent and kubelet can
//! take over from each other.

use logic_api::linux::IdRange;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The file's name in the pod's directory.
pub const FILE: &str = "userns";

#[derive(Debug, Serialize, Deserialize)]
struct UserNamespaceRecord {
    #[serde(rename = "uidMappings")]
    users: Vec<IdMapping>,
    #[serde(rename = "gidMappings")]
    groups: Vec<IdMapping>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct IdMapping {
    #[serde(rename = "hostId")]
    node: u32,
    #[serde(rename = "containerId")]
    container: u32,
    length: u32,
}

/// Why a record cannot be used.
#[derive(Debug, Error)]
pub enum UserNamespaceRecordError {
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
pub fn decode_record(text: &[u8]) -> Result<Option<IdRange>, UserNamespaceRecordError> {
    if text.is_empty() {
        return Ok(None);
    }
    let record: UserNamespaceRecord =
        serde_json::from_slice(text).map_err(UserNamespaceRecordError::Json)?;
    let [mapping] = record.users[..] else {
        return Err(UserNamespaceRecordError::Count);
    };
    let [groups] = record.groups[..] else {
        return Err(UserNamespaceRecordError::Groups);
    };
    if groups != mapping {
        return Err(UserNamespaceRecordError::Different);
    }
    if mapping.container != 0 {
        return Err(UserNamespaceRecordError::NoRoot);
    }
    Ok(Some(IdRange {
        first: mapping.node,
        length: mapping.length,
    }))
}

/// The content of a range's record.
pub fn encode_record(range: IdRange) -> String {
    let mapping = IdMapping {
        node: range.first,
        container: 0,
        length: range.length,
    };
    let record = UserNamespaceRecord {
        users: vec![mapping],
        groups: vec![mapping],
    };
    serde_json::to_string(&record).expect("numbers are plain data")
}
