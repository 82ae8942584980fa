//! From which NUMA nodes the devices of one resource could come.
//!
//! Mirrors upstream's `generateDeviceTopologyHints` and `deviceNUMANodes` of devicemanager/topology_hints.go at v1.36.

use std::collections::{BTreeMap, BTreeSet};

use super::inventory::DeviceResource;
use crate::topology::{NumaMask, TopologyHint};

/// Devices of one resource that could be given, by id.
#[derive(Debug, Default)]
pub(super) struct Offer {
    pub available: BTreeSet<String>,
    /// To be given first: a hint has to include where they lie.
    pub reusable: BTreeSet<String>,
}

/// How many devices lie close to the same nodes.
#[derive(Debug, Default)]
struct Count {
    all: usize,
    available: usize,
    reusable: usize,
}

/// Hints for as many devices as are asked for: one for each set of nodes that has enough, preferred where no smaller
/// set of nodes could ever have. Only nodes that have devices at all are looked at, which keeps their sets few.
pub(super) fn generate(
    resource: &DeviceResource,
    machine: NumaMask,
    offer: &Offer,
    asked: usize,
) -> Vec<TopologyHint> {
    let counts = counts(resource, offer);
    let with_devices = counts.keys().fold(NumaMask::EMPTY, |all, one| all | *one) & machine;
    let nodes = match with_devices.is_empty() {
        true => machine,
        false => with_devices,
    };
    let mut least = nodes.len();
    let mut possible = Vec::new();
    for set in nodes.subsets() {
        let close = || counts.iter().filter(|(nodes, _)| nodes.intersects(set));
        if close().map(|(_, count)| count.all).sum::<usize>() >= asked {
            least = least.min(set.len());
        }
        let misses_reusable = counts
            .iter()
            .any(|(nodes, count)| count.reusable > 0 && !nodes.intersects(set));
        let matching: usize = close().map(|(_, c)| c.available + c.reusable).sum();
        if !misses_reusable && matching >= asked {
            possible.push(set);
        }
    }
    let hint = |nodes: NumaMask| TopologyHint {
        nodes: Some(nodes),
        preferred: nodes.len() == least,
    };
    possible.into_iter().map(hint).collect()
}

/// The devices that say where they lie, by the nodes that they are close to.
fn counts(resource: &DeviceResource, offer: &Offer) -> BTreeMap<NumaMask, Count> {
    let mut counts = BTreeMap::<NumaMask, Count>::new();
    let placed = resource.devices().iter();
    for (id, device) in placed.filter(|(_, device)| !device.nodes.is_empty()) {
        let count = counts.entry(device.nodes).or_default();
        count.all += 1;
        count.available += usize::from(offer.available.contains(id));
        count.reusable += usize::from(offer.reusable.contains(id));
    }
    counts
}
