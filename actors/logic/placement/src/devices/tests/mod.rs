//! Devices by upstream's cases.

mod admission;
mod affinity;
mod allocating;
mod answers;
mod checkpoint;
mod hints;
mod init_containers;
mod inventory;
mod node_set;
mod registration;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use logic_api::pod::PodView;
use logic_api::testing::*;

use super::*;
use crate::topology::{
    AssignedResources, Assignment, AssignmentError, AssignmentRequest, HeldAssignments,
    HintProvider, NumaMask, NumaNodeId, TopologyHint,
};

const RESOURCE: &str = "domain1.com/resource1";
const OTHER_RESOURCE: &str = "domain2.com/resource2";

/// A list of a plugin: ids with the NUMA nodes that they are close to.
type Listed<'a> = &'a [(&'a str, &'a [i64])];

fn mask(nodes: &[i64]) -> NumaMask {
    let nodes = nodes.iter().map(|node| NumaNodeId::new(*node).unwrap());
    nodes.collect()
}

fn ids(ids: &[&str]) -> BTreeSet<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

fn device(id: &str, health: &str, nodes: &[i64]) -> ListedDevice {
    ListedDevice {
        id: id.to_owned(),
        health: health.to_owned(),
        nodes: nodes.to_vec(),
    }
}

/// Devices that can be used.
fn healthy(devices: Listed<'_>) -> Vec<ListedDevice> {
    let devices = devices.iter();
    devices
        .map(|(id, nodes)| device(id, "Healthy", nodes))
        .collect()
}

/// A plugin that is there, and its devices.
fn add(inventory: &mut DeviceInventory, resource: &str, devices: Vec<ListedDevice>) {
    inventory.registered(resource, PluginOptions::default());
    inventory.listed(resource, devices).unwrap();
}

fn inventory(resources: &[(&str, Listed<'_>)]) -> DeviceInventory {
    let mut inventory = DeviceInventory::default();
    for (resource, devices) in resources {
        add(&mut inventory, resource, healthy(devices));
    }
    inventory
}

/// The devices of one resource, whose plugin wants to be asked for its preference.
fn asking(devices: Listed<'_>) -> DeviceInventory {
    let mut inventory = DeviceInventory::default();
    let options = PluginOptions {
        preferred_allocation: true,
        ..PluginOptions::default()
    };
    inventory.registered(RESOURCE, options);
    inventory.listed(RESOURCE, healthy(devices)).unwrap();
    inventory
}

fn limits(container: &mut Container, amounts: &[(&str, &str)]) {
    container.resources = Some(ResourceRequirements {
        limits: Some(quantities(amounts)),
        ..ResourceRequirements::default()
    });
}

fn asks(pod: Pod, name: &str, amounts: &[(&str, &str)]) -> Pod {
    pod.app_with(name, |container| limits(container, amounts))
}

fn init_asks(pod: Pod, name: &str, amounts: &[(&str, &str)]) -> Pod {
    pod.init(name).spec_with(|spec| {
        let init = spec.init_containers.as_mut().unwrap();
        limits(init.last_mut().unwrap(), amounts);
    })
}

fn sidecar_asks(pod: Pod, name: &str, amounts: &[(&str, &str)]) -> Pod {
    init_asks(pod, name, amounts).spec_with(|spec| {
        let init = spec.init_containers.as_mut().unwrap();
        init.last_mut().unwrap().restart_policy = Some("Always".into());
    })
}

/// What pods hold: the pod, its container, the resource, the ids.
fn held(devices: &[(&str, &str, &str, &[&str])]) -> HeldAssignments {
    let mut pods = BTreeMap::<_, Assignment>::new();
    for (pod, container, resource, devices) in devices {
        let resources = AssignedResources {
            devices: [((*resource).to_owned(), ids(devices))].into(),
            ..AssignedResources::default()
        };
        let pod = pods.entry((*pod).into()).or_default();
        pod.assign(container, resources);
    }
    let pods = pods.into_iter();
    pods.map(|(pod, held)| (pod, Arc::new(held))).collect()
}

/// A request of a pod before anything is assigned, on a machine of two nodes.
struct Rig {
    pod: Pod,
    held: HeldAssignments,
    assigned: Assignment,
    inventory: DeviceInventory,
    preferences: DevicePreferences,
    provider: DeviceProvider,
}

impl Rig {
    fn new(pod: Pod, inventory: DeviceInventory) -> Self {
        Self {
            pod,
            held: HeldAssignments::new(),
            assigned: Assignment::default(),
            inventory,
            preferences: DevicePreferences::default(),
            provider: DeviceProvider::new(mask(&[0, 1]), DraResources::Off),
        }
    }

    fn holding(self, held: HeldAssignments) -> Self {
        Self { held, ..self }
    }

    fn on(self, machine: &[i64]) -> Self {
        let provider = DeviceProvider::new(mask(machine), DraResources::Off);
        Self { provider, ..self }
    }

    fn request(&self) -> AssignmentRequest<'_> {
        AssignmentRequest {
            pod: &self.pod,
            held: &self.held,
            assigned: &self.assigned,
            devices: &self.inventory,
            preferences: &self.preferences,
        }
    }

    fn container(&self, name: &str) -> &Container {
        let mut all = self.pod.all_containers();
        all.find(|(_, container)| container.name == name).unwrap().1
    }

    fn assign(
        &self,
        container: &str,
        nodes: Option<NumaMask>,
    ) -> Result<AssignedResources, AssignmentError> {
        let hint = TopologyHint {
            nodes,
            preferred: true,
        };
        let container = self.container(container);
        self.provider.assign(&self.request(), container, hint)
    }

    /// The ids that a container is given of one resource.
    fn ids(&self, container: &str, resource: &str, nodes: Option<NumaMask>) -> BTreeSet<String> {
        let assigned = self.assign(container, nodes).unwrap();
        assigned.devices.get(resource).cloned().unwrap_or_default()
    }

    fn refusal(&self, container: &str) -> String {
        let refused = self.assign(container, None);
        let Err(AssignmentError::Unexpected(why)) = refused else {
            panic!("{refused:?}");
        };
        why
    }
}
