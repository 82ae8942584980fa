//! The file `kubelet_internal_checkpoint`: what plugins have allocated, and which resources they had, as upstream writes
//! and reads it.
//!
//! Upstream: devicemanager/checkpoint/checkpoint.go and pkg/kubelet/checkpointmanager/checksum at v1.36. The checksum is
//! that of Go's debug dump of the data ([`dump`]), in which a list that is absent is not one that is empty.

mod dump;

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use logic_api::pod::hash::fnv32a;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// The file's name, below the folder of device plugins.
pub const FILE_NAME: &str = "kubelet_internal_checkpoint";

/// What the file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceCheckpoint {
    pub allocations: Vec<CheckpointEntry>,
    /// The ids of the devices that can be used, by resource.
    pub registered: BTreeMap<String, Vec<String>>,
}

/// What a plugin has allocated to a container of one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct CheckpointEntry {
    #[serde(rename = "PodUID")]
    pub pod: String,
    #[serde(rename = "ContainerName")]
    pub container: String,
    #[serde(rename = "ResourceName")]
    pub resource: String,
    /// Ids by NUMA node, as [`DevicesByNode`](super::DevicesByNode) has them; none where the file has `null`.
    #[serde(rename = "DeviceIDs")]
    pub devices: Option<BTreeMap<i64, Vec<String>>>,
    /// The plugin's answer to Allocate (`ContainerAllocateResponse`) in protobuf's bytes; none where the file has `null`.
    #[serde(rename = "AllocResp", with = "base64_text")]
    pub answer: Option<Vec<u8>>,
}

/// Why a checkpoint is of no use.
#[derive(Debug, Error)]
pub enum CheckpointFlaw {
    #[error("it does not read as a checkpoint of devices")]
    Syntax(#[source] serde_json::Error),
    #[error("its checksum is {found}, expected {expected}")]
    Checksum { found: u64, expected: u64 },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Envelope {
    data: CheckpointData,
    checksum: u64,
}

/// The data as it stands in the file, `null` kept apart from empty.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct CheckpointData {
    pod_device_entries: Option<Vec<CheckpointEntry>>,
    registered_devices: Option<BTreeMap<String, Option<Vec<String>>>>,
}

impl CheckpointFlaw {
    /// Never: the file's content does not change.
    pub fn transient(&self) -> bool {
        match self {
            Self::Syntax(_) | Self::Checksum { .. } => false,
        }
    }
}

impl DeviceCheckpoint {
    /// The file's bytes.
    pub fn encode(self) -> Vec<u8> {
        let registered = self.registered.into_iter();
        let data = CheckpointData {
            // Upstream collects entries in a list that is absent until it has one.
            pod_device_entries: Some(self.allocations).filter(|list| !list.is_empty()),
            registered_devices: Some(registered.map(|(name, ids)| (name, Some(ids))).collect()),
        };
        let checksum = checksum(&data);
        serde_json::to_vec(&Envelope { data, checksum }).expect("texts and numbers are plain data")
    }

    /// # Errors
    ///
    /// The bytes are none of a checkpoint, or have changed since they were written.
    pub fn decode(bytes: &[u8]) -> Result<Self, CheckpointFlaw> {
        let envelope: Envelope = serde_json::from_slice(bytes).map_err(CheckpointFlaw::Syntax)?;
        let (found, expected) = (envelope.checksum, checksum(&envelope.data));
        if found != expected {
            return Err(CheckpointFlaw::Checksum { found, expected });
        }
        let registered = envelope.data.registered_devices.unwrap_or_default();
        let registered = registered.into_iter();
        Ok(Self {
            allocations: envelope.data.pod_device_entries.unwrap_or_default(),
            registered: registered
                .map(|(name, ids)| (name, ids.unwrap_or_default()))
                .collect(),
        })
    }
}

fn checksum(data: &CheckpointData) -> u64 {
    fnv32a(&dump::dump(data)).into()
}

/// Bytes in JSON as Go has them.
mod base64_text {
    use super::*;

    pub(super) fn serialize<S: Serializer>(
        bytes: &Option<Vec<u8>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let text = bytes.as_ref().map(|bytes| STANDARD.encode(bytes));
        text.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Vec<u8>>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        let bytes = text.map(|text| STANDARD.decode(text));
        bytes.transpose().map_err(serde::de::Error::custom)
    }
}
