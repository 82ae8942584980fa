//! The file of what drivers said of their devices, as upstream writes it: plain JSON without a checksum.
//!
//! Mirrors upstream's healthinfo.go and state/state.go of cm/dra at v1.36.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{DeviceHealth, DeviceKey, Health, HealthCache, HealthRecord};
use crate::claims::names::DriverName;

/// The file's name in the agent's root folder.
pub const HEALTH_FILE: &str = "dra_health_state";

/// Why the file is of no use.
#[derive(Debug, Error)]
#[error("it does not read as the health of devices")]
pub struct HealthStateFlaw(#[source] serde_json::Error);

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DriverRecord {
    /// By `pool/device`.
    #[serde(default)]
    devices: Option<BTreeMap<String, DeviceRecord>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DeviceRecord {
    pool_name: String,
    device_name: String,
    health: String,
    last_updated: Timestamp,
    /// Nanoseconds.
    #[serde(default)]
    health_check_timeout: i64,
    #[serde(default)]
    message: String,
}

impl HealthStateFlaw {
    /// Returns whether the file may be of use later: never, its content does not change.
    pub fn transient(&self) -> bool {
        let Self(_) = self;
        false
    }
}

/// The content of the file.
pub fn encode_health(cache: &HealthCache) -> Vec<u8> {
    let drivers = cache.drivers.iter();
    let drivers = drivers.map(|(driver, devices)| {
        let devices = devices.iter().map(|(key, record)| {
            let (pool, device) = key;
            (format!("{pool}/{device}"), DeviceRecord::new(key, record))
        });
        let devices = Some(devices.collect());
        (driver, DriverRecord { devices })
    });
    let drivers: BTreeMap<&DriverName, DriverRecord> = drivers.collect();
    serde_json::to_vec(&drivers).expect("names and times are plain data")
}

/// Reads the file; an empty one knows nothing.
///
/// # Errors
///
/// It is no such file.
pub fn decode_health(bytes: &[u8]) -> Result<HealthCache, HealthStateFlaw> {
    if bytes.is_empty() {
        return Ok(HealthCache::default());
    }
    let drivers: BTreeMap<DriverName, DriverRecord> =
        serde_json::from_slice(bytes).map_err(HealthStateFlaw)?;
    let drivers = drivers.into_iter().map(|(driver, record)| {
        let devices = record.devices.unwrap_or_default().into_values();
        (driver, devices.map(DeviceRecord::read).collect())
    });
    Ok(HealthCache {
        drivers: drivers.collect(),
    })
}

impl DeviceRecord {
    fn new((pool, device): &DeviceKey, record: &HealthRecord) -> Self {
        let nanos = record.said.timeout.as_nanos();
        Self {
            pool_name: pool.clone(),
            device_name: device.clone(),
            health: record.said.health.as_str().to_owned(),
            last_updated: record.at,
            health_check_timeout: i64::try_from(nanos).unwrap_or(i64::MAX),
            message: record.said.message.clone(),
        }
    }

    fn read(self) -> (DeviceKey, HealthRecord) {
        let nanos = u64::try_from(self.health_check_timeout).unwrap_or(0);
        let said = DeviceHealth {
            health: Health::from_name(&self.health),
            timeout: Duration::from_nanos(nanos),
            message: self.message,
        };
        let at = self.last_updated;
        (
            (self.pool_name, self.device_name),
            HealthRecord { said, at },
        )
    }
}
