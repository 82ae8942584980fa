//! The state file: the claims in use, as upstream writes them.
//!
//! The kubelet's own file, so that a node can be taken over and handed back: a JSON text of the claims, and beside it
//! that text's CRC-32. Mirrors upstream's cm/dra/state/checkpoint.go and state.go at v1.36.

use std::collections::BTreeMap;

use logic_api::types::PodUid;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::cache::ClaimCache;
use super::entry::{ClaimDevice, ClaimEntry, Preparation};
use super::names::{ClaimUid, DriverName};

/// The file's name in the agent's root folder.
pub const STATE_FILE: &str = "dra_manager_state";

const KIND: &str = "DRACheckpoint";
const API_VERSION: &str = "checkpoint.dra.kubelet.k8s.io/v1";

/// Why a state file is of no use.
#[derive(Debug, Error)]
pub enum ClaimStateFlaw {
    #[error("it does not read as a checkpoint")]
    Envelope(#[source] serde_json::Error),
    #[error("checkpoint is corrupted: its checksum is {found}, expected {expected}")]
    Checksum { found: u32, expected: u32 },
    #[error("its data does not read as claims")]
    Data(#[source] serde_json::Error),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Envelope {
    data: String,
    checksum: u32,
}

#[derive(Serialize, Deserialize)]
struct ClaimList {
    #[serde(default)]
    kind: String,
    /// Any version is read: what is not known in it is left out.
    #[serde(default, rename = "apiVersion")]
    api_version: String,
    #[serde(default, rename = "ClaimInfoStateList")]
    claims: Option<Vec<ClaimRecord>>,
}

#[derive(Serialize, Deserialize)]
struct ClaimRecord {
    #[serde(rename = "ClaimUID")]
    uid: ClaimUid,
    #[serde(rename = "ClaimName")]
    name: String,
    #[serde(rename = "Namespace")]
    namespace: String,
    #[serde(default, rename = "PodUIDs")]
    pods: Option<BTreeMap<PodUid, SetMember>>,
    #[serde(default, rename = "DriverState")]
    drivers: Option<BTreeMap<DriverName, DriverRecord>>,
}

/// The value of a member in Go's sets.
#[derive(Serialize, Deserialize)]
struct SetMember {}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DriverRecord {
    #[serde(default)]
    devices: Option<Vec<DeviceRecord>>,
}

/// Lists that are empty are null there.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DeviceRecord {
    #[serde(default)]
    pool_name: String,
    #[serde(default)]
    device_name: String,
    #[serde(default, rename = "ShareID")]
    share: Option<String>,
    #[serde(default)]
    request_names: Option<Vec<String>>,
    #[serde(default, rename = "CDIDeviceIDs")]
    cdi_ids: Option<Vec<String>>,
}

impl ClaimStateFlaw {
    /// Returns whether the file may be of use later: never, its content does not change.
    pub fn transient(&self) -> bool {
        match self {
            Self::Envelope(_) | Self::Checksum { .. } | Self::Data(_) => false,
        }
    }
}

/// The content of the state file for these claims, by namespace and name.
pub fn encode_claims(cache: &ClaimCache) -> Vec<u8> {
    let list = ClaimList {
        kind: KIND.to_owned(),
        api_version: API_VERSION.to_owned(),
        claims: Some(cache.entries().map(ClaimRecord::from).collect()),
    };
    let data = serde_json::to_string(&list).expect("names are plain data");
    let checksum = crc32(data.as_bytes());
    serde_json::to_vec(&Envelope { data, checksum }).expect("text and a number are plain data")
}

/// Reads a state file. None of the claims is prepared: that is not known of the time since.
///
/// # Errors
///
/// It is no such file, or not the one that was written.
pub fn decode_claims(bytes: &[u8]) -> Result<ClaimCache, ClaimStateFlaw> {
    let envelope: Envelope = serde_json::from_slice(bytes).map_err(ClaimStateFlaw::Envelope)?;
    let expected = crc32(envelope.data.as_bytes());
    if envelope.checksum != expected {
        return Err(ClaimStateFlaw::Checksum {
            found: envelope.checksum,
            expected,
        });
    }
    let list: ClaimList = serde_json::from_str(&envelope.data).map_err(ClaimStateFlaw::Data)?;
    let claims = list.claims.unwrap_or_default().into_iter();
    Ok(claims.map(ClaimEntry::from).collect())
}

impl From<&ClaimEntry> for ClaimRecord {
    fn from(entry: &ClaimEntry) -> Self {
        let pods = entry.pods.iter().cloned();
        let drivers = entry.drivers.iter();
        Self {
            uid: entry.uid.clone(),
            name: entry.name.clone(),
            namespace: entry.namespace.clone(),
            pods: Some(pods.map(|pod| (pod, SetMember {})).collect()),
            drivers: Some(
                drivers
                    .map(|(driver, devices)| (driver.clone(), devices.as_slice().into()))
                    .collect(),
            ),
        }
    }
}

impl From<&[ClaimDevice]> for DriverRecord {
    fn from(devices: &[ClaimDevice]) -> Self {
        let devices: Vec<DeviceRecord> = devices.iter().map(DeviceRecord::from).collect();
        Self {
            devices: Some(devices).filter(|devices| !devices.is_empty()),
        }
    }
}

impl From<&ClaimDevice> for DeviceRecord {
    fn from(device: &ClaimDevice) -> Self {
        let list = |list: &Vec<String>| Some(list.clone()).filter(|list| !list.is_empty());
        Self {
            pool_name: device.pool.clone(),
            device_name: device.device.clone(),
            share: device.share.clone(),
            request_names: list(&device.requests),
            cdi_ids: list(&device.cdi_ids),
        }
    }
}

impl From<ClaimRecord> for ClaimEntry {
    fn from(record: ClaimRecord) -> Self {
        let drivers = record.drivers.unwrap_or_default().into_iter();
        Self {
            uid: record.uid,
            namespace: record.namespace,
            name: record.name,
            pods: record.pods.unwrap_or_default().into_keys().collect(),
            drivers: drivers
                .map(|(driver, record)| {
                    let devices = record.devices.unwrap_or_default().into_iter();
                    (driver, devices.map(ClaimDevice::from).collect())
                })
                .collect(),
            preparation: Preparation::Unprepared,
        }
    }
}

impl From<DeviceRecord> for ClaimDevice {
    fn from(record: DeviceRecord) -> Self {
        Self {
            pool: record.pool_name,
            device: record.device_name,
            share: record.share,
            requests: record.request_names.unwrap_or_default(),
            cdi_ids: record.cdi_ids.unwrap_or_default(),
        }
    }
}

/// CRC-32 of IEEE 802.3, bit by bit: a file has few kilobytes.
fn crc32(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0xEDB8_8320;
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            let carry = crc & 1 == 1;
            crc >>= 1;
            if carry {
                crc ^= POLYNOMIAL;
            }
        }
    }
    !crc
}
