//! How many devices the node has, for its status and for the admission of pods.
//!
//! Mirrors upstream's `GetCapacity` and `sanitizeNodeAllocatable` of devicemanager/manager.go at v1.36.

use std::collections::{BTreeMap, BTreeSet};

use logic_api::pod::requests::{ResourceAmounts, quantity};
use logic_api::quantity::QuantityFormat;
use logic_api::types::PodUid;

use super::DeviceInventory;
use crate::topology::HeldAssignments;

/// How many devices of each resource the node's status shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeDevices {
    /// All that there are.
    pub capacity: BTreeMap<String, usize>,
    /// Those that can be used.
    pub allocatable: BTreeMap<String, usize>,
    /// Resources that were there and are no more: the status is to show none of them.
    pub removed: BTreeSet<String>,
}

impl DeviceInventory {
    /// What the node has, beside resources that have been removed.
    pub fn node_devices(&self, removed: &BTreeSet<String>) -> NodeDevices {
        let resources = || {
            self.resources()
                .map(|(name, resource)| (name.to_owned(), resource))
        };
        let capacity: BTreeMap<String, usize> = resources()
            .map(|(name, resource)| (name, resource.devices().len()))
            .collect();
        let is_there = |name: &String| capacity.contains_key(name);
        NodeDevices {
            removed: removed
                .iter()
                .filter(|name| !is_there(name))
                .cloned()
                .collect(),
            allocatable: resources()
                .map(|(name, resource)| (name, resource.healthy().count()))
                .collect(),
            capacity,
        }
    }
}

/// Raises what is allocatable to what pods hold, for a pod that holds devices already: it stays where it is though a
/// plugin has failed. Other pods are judged by what is there.
pub fn cover_held(allocatable: &mut ResourceAmounts, held: &HeldAssignments, pod: &PodUid) {
    let holds_devices = held.get(pod).is_some_and(|held| {
        let mut containers = held.containers.values();
        containers.any(|container| !container.devices.is_empty())
    });
    if !holds_devices {
        return;
    }
    let mut in_use = BTreeMap::<&str, BTreeSet<&str>>::new();
    for assigned in held.values().flat_map(|held| held.containers.values()) {
        for (resource, ids) in &assigned.devices {
            let ids = ids.iter().map(String::as_str);
            in_use.entry(resource).or_default().extend(ids);
        }
    }
    for (resource, ids) in in_use {
        let needed = i64::try_from(ids.len()).unwrap_or(i64::MAX);
        let there = allocatable.get(resource).map(|amount| amount.value());
        if there.is_none_or(|there| there < needed) {
            let amount = quantity(needed, QuantityFormat::DecimalSI);
            allocatable.insert(resource.to_owned(), amount);
        }
    }
}
