//! What plugins have allocated to containers: the devices, and what goes with them.
//!
//! Mirrors upstream's devicemanager/pod_devices.go at v1.36.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use logic_api::types::PodUid;

use super::container_devices::{AllocateAnswer, ContainerDevices};
use super::inventory::DeviceInventory;
use crate::topology::{AssignedResources, Assignment, HeldAssignments, NumaMask, NumaNodeId};

/// The key of devices that say nothing about where they lie (upstream's `nodeWithoutTopology`).
const WITHOUT_TOPOLOGY: i64 = -1;

/// Ids of devices by NUMA node. One that is close to several nodes stands at each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DevicesByNode(pub BTreeMap<i64, Vec<String>>);

/// What a plugin has allocated to one container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceAllocation {
    pub devices: DevicesByNode,
    pub answer: AllocateAnswer,
}

type OfContainer = BTreeMap<String, DeviceAllocation>;

/// What has been allocated to the containers of all pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceAllocations(BTreeMap<PodUid, BTreeMap<String, OfContainer>>);

impl DevicesByNode {
    /// These devices, by the nodes that the inventory has for them.
    pub fn of(ids: &BTreeSet<String>, resource: &str, inventory: &DeviceInventory) -> Self {
        let mut devices = BTreeMap::<i64, Vec<String>>::new();
        for id in ids {
            let known = inventory.resource(resource);
            let nodes = known.map_or(NumaMask::EMPTY, |resource| resource.nodes(id));
            if nodes.is_empty() {
                devices
                    .entry(WITHOUT_TOPOLOGY)
                    .or_default()
                    .push(id.clone());
            }
            for node in nodes.nodes() {
                let at = devices.entry(node.get().into()).or_default();
                at.push(id.clone());
            }
        }
        Self(devices)
    }

    /// The ids of all devices.
    pub fn ids(&self) -> BTreeSet<String> {
        self.0.values().flatten().cloned().collect()
    }

    /// The nodes that each device is close to; none for one that did not say.
    pub fn nodes(&self) -> BTreeMap<&str, NumaMask> {
        let mut nodes = BTreeMap::<&str, NumaMask>::new();
        for (node, ids) in &self.0 {
            for id in ids {
                let of_device = nodes.entry(id).or_default();
                if let Ok(node) = NumaNodeId::new(*node) {
                    of_device.insert(node);
                }
            }
        }
        nodes
    }
}

impl DeviceAllocations {
    pub fn insert(&mut self, pod: &PodUid, container: &str, resource: &str, new: DeviceAllocation) {
        let containers = self.0.entry(pod.clone()).or_default();
        let resources = containers.entry(container.to_owned()).or_default();
        resources.insert(resource.to_owned(), new);
    }

    /// A pod's devices are free again; returns whether it had any.
    pub fn forget(&mut self, pod: &PodUid) -> bool {
        self.0.remove(pod).is_some()
    }

    /// What a container has been allocated of a resource.
    pub fn get(&self, pod: &PodUid, container: &str, resource: &str) -> Option<&DeviceAllocation> {
        self.0.get(pod)?.get(container)?.get(resource)
    }

    /// What a container has been allocated, by resource.
    pub fn of_container(
        &self,
        pod: &PodUid,
        container: &str,
    ) -> impl Iterator<Item = (&str, &DeviceAllocation)> {
        let containers = self.0.get(pod);
        let resources = containers.and_then(|containers| containers.get(container));
        let resources = resources.into_iter().flatten();
        resources.map(|(resource, allocation)| (resource.as_str(), allocation))
    }

    /// What the container gets with its devices; none where it has none.
    pub fn container_devices(&self, pod: &PodUid, container: &str) -> Option<ContainerDevices> {
        let resources = self.0.get(pod)?.get(container)?;
        let answers = resources.values().map(|allocation| &allocation.answer);
        Some(ContainerDevices::of(answers))
    }

    /// The devices that each pod holds.
    pub fn held(&self) -> HeldAssignments {
        let devices = |resources: &OfContainer| AssignedResources {
            devices: resources
                .iter()
                .map(|(resource, allocation)| (resource.clone(), allocation.devices.ids()))
                .collect(),
            ..AssignedResources::default()
        };
        let assignment = |containers: &BTreeMap<String, OfContainer>| {
            let mut held = Assignment::default();
            for (container, resources) in containers {
                held.assign(container, devices(resources));
            }
            Arc::new(held)
        };
        let pods = self.0.iter();
        pods.map(|(pod, containers)| (pod.clone(), assignment(containers)))
            .collect()
    }

    /// The pods that have one of these devices.
    pub fn holders(&self, resource: &str, ids: &BTreeSet<String>) -> BTreeSet<PodUid> {
        let has = |resources: &OfContainer| {
            let devices = resources
                .get(resource)
                .map(|allocation| &allocation.devices.0);
            let mut devices = devices.into_iter().flat_map(BTreeMap::values).flatten();
            devices.any(|id| ids.contains(id))
        };
        let pods = self.0.iter();
        let holders = pods.filter(|(_, containers)| containers.values().any(has));
        holders.map(|(pod, _)| pod.clone()).collect()
    }

    /// Every allocation with its pod, container and resource, in this order.
    pub fn iter(&self) -> impl Iterator<Item = (&PodUid, &str, &str, &DeviceAllocation)> {
        self.0.iter().flat_map(|(pod, containers)| {
            containers.iter().flat_map(move |(container, resources)| {
                let of = move |(resource, allocation)| {
                    let resource: &String = resource;
                    (pod, container.as_str(), resource.as_str(), allocation)
                };
                resources.iter().map(of)
            })
        })
    }
}
