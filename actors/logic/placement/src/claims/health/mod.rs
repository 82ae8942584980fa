//! The health of drivers' devices, as the drivers report it, and until when that holds.
//!
//! A driver reports all its devices each time. What it reports holds for a while only: after that nothing is known.
//! Mirrors upstream's cm/dra/healthinfo.go at v1.36.

mod checkpoint;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

pub use self::checkpoint::{HEALTH_FILE, HealthStateFlaw, decode_health, encode_health};
pub use self::status::{KnownClaims, show_health};
use super::names::DriverName;

/// How long a report holds that does not say so itself.
pub(super) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// Bytes of the longest message that a pod's status takes.
const MESSAGE_MAX: usize = 1024;
const ELLIPSIS: &str = "...";

/// Whether a device works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Health {
    Healthy,
    Unhealthy,
    /// The driver does not know, or has not said anything for too long.
    #[default]
    Unknown,
}

/// What a driver says of a device, or what is known of it now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceHealth {
    pub health: Health,
    /// How long this holds; nought: half a minute.
    pub timeout: Duration,
    /// The driver's words; empty where it has none.
    pub message: String,
}

/// A device of a driver: its pool and its name.
pub type DeviceKey = (String, String);

/// The health of devices by driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthCache {
    drivers: BTreeMap<DriverName, BTreeMap<DeviceKey, HealthRecord>>,
}

/// What a driver said of a device, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HealthRecord {
    said: DeviceHealth,
    /// By the agent's clock, when it heard of it.
    at: Timestamp,
}

impl Health {
    /// As the API writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "Healthy",
            Self::Unhealthy => "Unhealthy",
            Self::Unknown => "Unknown",
        }
    }

    /// What that word means; any other means that nothing is known.
    fn from_name(name: &str) -> Self {
        match name {
            "Healthy" => Self::Healthy,
            "Unhealthy" => Self::Unhealthy,
            _ => Self::Unknown,
        }
    }
}

impl DeviceHealth {
    /// A report with `timeout` in seconds, of which only what is above nought counts, and with a message that a pod's
    /// status can take.
    pub fn reported(health: Health, timeout: i64, message: &str) -> Self {
        let timeout = u64::try_from(timeout).unwrap_or(0);
        Self {
            health,
            timeout: match timeout {
                0 => DEFAULT_TIMEOUT,
                seconds => Duration::from_secs(seconds),
            },
            message: shortened(message),
        }
    }

    fn unknown(self) -> Self {
        Self {
            health: Health::Unknown,
            message: String::new(),
            ..self
        }
    }
}

impl HealthRecord {
    fn is_stale(&self, now: Timestamp) -> bool {
        let timeout = match self.said.timeout {
            Duration::ZERO => DEFAULT_TIMEOUT,
            timeout => timeout,
        };
        let age = now.duration_since(self.at);
        Duration::try_from(age).is_ok_and(|age| age > timeout)
    }
}

impl HealthCache {
    /// What is known of a device now.
    pub fn get(
        &self,
        now: Timestamp,
        driver: &DriverName,
        pool: &str,
        device: &str,
    ) -> DeviceHealth {
        let key = (pool.to_owned(), device.to_owned());
        let devices = self.drivers.get(driver);
        let record = devices.and_then(|devices| devices.get(&key));
        match record {
            Some(record) if !record.is_stale(now) => record.said.clone(),
            Some(_) | None => DeviceHealth::default(),
        }
    }

    /// Takes in a driver's report of all its devices; returns those of which something else is known now. A device
    /// that the report leaves out is unknown once what was said of it holds no longer.
    pub fn update(
        &mut self,
        now: Timestamp,
        driver: &DriverName,
        report: BTreeMap<DeviceKey, DeviceHealth>,
    ) -> BTreeSet<DeviceKey> {
        let devices = self.drivers.entry(driver.clone()).or_default();
        let mut changed = BTreeSet::new();
        for (key, record) in devices.iter_mut() {
            let known = record.said.health != Health::Unknown;
            if !report.contains_key(key) && known && record.is_stale(now) {
                record.said = record.said.clone().unknown();
                record.at = now;
                changed.insert(key.clone());
            }
        }
        for (key, said) in report {
            if devices.get(&key).is_none_or(|record| record.said != said) {
                changed.insert(key.clone());
            }
            devices.insert(key, HealthRecord { said, at: now });
        }
        changed
    }

    /// Forgets what a driver said: it says nothing any more. Returns the devices of which something was known.
    pub fn clear(&mut self, driver: &DriverName) -> BTreeSet<DeviceKey> {
        let devices = self.drivers.remove(driver).unwrap_or_default();
        let known = devices
            .into_iter()
            .filter(|(_, record)| record.said.health != Health::Unknown);
        known.map(|(key, _)| key).collect()
    }
}

/// A message of at most [`MESSAGE_MAX`] bytes; a longer one ends in an ellipsis.
fn shortened(message: &str) -> String {
    if message.len() <= MESSAGE_MAX {
        return message.to_owned();
    }
    let end = message.floor_char_boundary(MESSAGE_MAX - ELLIPSIS.len());
    let (start, _) = message.split_at(end);
    format!("{start}{ELLIPSIS}")
}
