//! What a plugin lists: one message of its ListAndWatch stream, checked.
//!
//! Upstream (v1.36, devicemanager/manager.go) takes any list; of two devices with one id it counts both and keeps one.
//! Here a list is taken as a whole or refused as a whole, by the name of what is wrong with it.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::topology::{NumaMask, NumaNodeId};

/// Devices of one resource: as many as a message of 4 MiB can hold with ids of 32 bytes.
const DEVICES_MAX: usize = 100_000;
/// Bytes of a device's id. The API says 63, which plugins do not keep to.
const ID_MAX: usize = 1024;
/// The API's word for a device that can be used; upstream takes every other for the opposite.
const HEALTHY: &str = "Healthy";

/// A device as its plugin lists it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedDevice {
    pub id: String,
    /// `Healthy`, or any other word.
    pub health: String,
    /// The NUMA nodes that it is close to, by the kernel's numbers; none where the plugin does not say.
    pub nodes: Vec<i64>,
}

/// Whether a device can be used, by its plugin's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceHealth {
    Healthy,
    Unhealthy,
}

/// A device of the inventory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// As the plugin has told last, be it there or not.
    pub health: DeviceHealth,
    /// The NUMA nodes that it is close to; empty where the plugin names none.
    pub nodes: NumaMask,
}

/// Why a plugin's list is not taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ListingError {
    #[error("{resource} lists {count} devices, more than {DEVICES_MAX}")]
    TooMany { resource: String, count: usize },
    #[error("{resource} lists a device without an id")]
    NoId { resource: String },
    #[error("{resource} lists a device whose id has {length} bytes, more than {ID_MAX}")]
    LongId { resource: String, length: usize },
    #[error("{resource} lists device {id:?}, whose id has control characters")]
    UnprintableId { resource: String, id: String },
    #[error("{resource} lists device {id:?} twice")]
    DuplicateId { resource: String, id: String },
}

impl ListingError {
    /// Whether the same plugin may list better later: a list is as good as its sender.
    pub fn transient(&self) -> bool {
        match self {
            Self::TooMany { .. }
            | Self::NoId { .. }
            | Self::LongId { .. }
            | Self::UnprintableId { .. }
            | Self::DuplicateId { .. } => true,
        }
    }
}

impl DeviceHealth {
    /// The API's word in a pod's status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => HEALTHY,
            Self::Unhealthy => "Unhealthy",
        }
    }
}

/// The devices by id. NUMA nodes beyond 63 are passed over: the kernel has none.
pub(super) fn read(
    resource: &str,
    listed: Vec<ListedDevice>,
) -> Result<BTreeMap<String, Device>, ListingError> {
    let (resource, count) = (resource.to_owned(), listed.len());
    if count > DEVICES_MAX {
        return Err(ListingError::TooMany { resource, count });
    }
    let mut devices = BTreeMap::new();
    for ListedDevice { id, health, nodes } in listed {
        check_id(&resource, &id)?;
        let health = match health == HEALTHY {
            true => DeviceHealth::Healthy,
            false => DeviceHealth::Unhealthy,
        };
        let nodes = nodes
            .into_iter()
            .filter_map(|node| NumaNodeId::new(node).ok());
        let nodes = nodes.collect();
        if devices.contains_key(&id) {
            return Err(ListingError::DuplicateId { resource, id });
        }
        devices.insert(id, Device { health, nodes });
    }
    Ok(devices)
}

fn check_id(resource: &str, id: &str) -> Result<(), ListingError> {
    let resource = resource.to_owned();
    if id.is_empty() {
        return Err(ListingError::NoId { resource });
    }
    let length = id.len();
    if length > ID_MAX {
        return Err(ListingError::LongId { resource, length });
    }
    if id.chars().any(char::is_control) {
        let id = id.to_owned();
        return Err(ListingError::UnprintableId { resource, id });
    }
    Ok(())
}
