//! Upstream's checkpoint files: a text of data, and beside it a checksum of that text.
//!
//! Upstream: pkg/kubelet/checkpointmanager, pkg/kubelet/allocation/state/checkpoint.go (1.34 to 1.36; 1.37 names a
//! version, and keeps the older data for older readers).

use logic_api::pod::hash::fnv32a;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The versions whose data we read: none is named up to 1.36.
const KNOWN: [&str; 2] = ["", "v2"];

#[derive(Serialize, Deserialize)]
struct CheckpointEnvelope {
    #[serde(default, skip_serializing)]
    version: String,
    data: String,
    checksum: u64,
}

/// Why a checkpoint is of no use.
#[derive(Debug, Error)]
pub enum CheckpointFlaw {
    #[error("it does not read as a checkpoint")]
    Envelope(#[source] serde_json::Error),
    #[error("it is of version {found:?}, expected one of {KNOWN:?}")]
    Version { found: String },
    #[error("its checksum is {found}, expected {expected}")]
    Checksum { found: u64, expected: u64 },
    #[error("its data does not read as resources of pods")]
    Data(#[source] serde_json::Error),
}

impl CheckpointFlaw {
    /// Never: the file's content does not change.
    pub fn transient(&self) -> bool {
        match self {
            Self::Envelope(_) | Self::Version { .. } | Self::Checksum { .. } | Self::Data(_) => {
                false
            }
        }
    }
}

/// The data of a whole checkpoint.
pub(super) fn decode_checkpoint(bytes: &[u8]) -> Result<String, CheckpointFlaw> {
    let envelope: CheckpointEnvelope =
        serde_json::from_slice(bytes).map_err(CheckpointFlaw::Envelope)?;
    if !KNOWN.contains(&envelope.version.as_str()) {
        return Err(CheckpointFlaw::Version {
            found: envelope.version,
        });
    }
    let expected = checksum(&envelope.data);
    match envelope.checksum == expected {
        true => Ok(envelope.data),
        false => Err(CheckpointFlaw::Checksum {
            found: envelope.checksum,
            expected,
        }),
    }
}

pub(super) fn encode_checkpoint(data: String) -> Vec<u8> {
    let envelope = CheckpointEnvelope {
        version: String::new(),
        checksum: checksum(&data),
        data,
    };
    serde_json::to_vec(&envelope).expect("text and a number are plain data")
}

/// Upstream hashes its debug dump of the text, which names the type.
fn checksum(data: &str) -> u64 {
    fnv32a(format!("(string){data}").as_bytes()).into()
}
