//! The health of a pod's devices in its status: `allocatedResourcesStatus`.
//!
//! Mirrors upstream's `UpdateAllocatedResourcesStatus` of devicemanager/manager.go at v1.36 (feature gate
//! `ResourceHealthStatus`): the health is what the plugin has told last, and a device that it never told is healthy.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{ContainerStatus, ResourceHealth, ResourceStatus};

use super::inventory::{DeviceHealth, DeviceInventory};
use crate::topology::Assignment;

/// The health of the devices that a container holds, ids by resource name.
pub fn resource_health(
    devices: &BTreeMap<String, BTreeSet<String>>,
    inventory: &DeviceInventory,
) -> Vec<ResourceStatus> {
    let health = |resource: &str, id: &str| {
        let known = inventory.resource(resource);
        let device = known.and_then(|known| known.devices().get(id));
        device.map_or(DeviceHealth::Healthy, |device| device.health)
    };
    let status = |(resource, ids): (&String, &BTreeSet<String>)| ResourceStatus {
        name: resource.clone(),
        resources: Some(
            ids.iter()
                .map(|id| ResourceHealth {
                    health: Some(health(resource, id).as_str().to_owned()),
                    resource_id: id.clone(),
                    ..ResourceHealth::default()
                })
                .collect(),
        ),
    };
    devices.iter().map(status).collect()
}

/// Writes the health of the devices that containers hold into their statuses; what others have written stays.
pub fn update_health<'a>(
    statuses: impl IntoIterator<Item = &'a mut ContainerStatus>,
    held: &Assignment,
    inventory: &DeviceInventory,
) {
    for status in statuses {
        let Some(own) = held.containers.get(&status.name) else {
            continue;
        };
        for new in resource_health(&own.devices, inventory) {
            let list = status.allocated_resources_status.get_or_insert_default();
            match list.iter_mut().find(|old| old.name == new.name) {
                Some(old) => *old = new,
                None => list.push(new),
            }
        }
    }
}
