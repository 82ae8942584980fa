//! Memory by upstream's cases. Blocks are written `0,1 memory 1Gi`, and what a container has as `main: ` and its blocks.

mod assigning;
mod counts;
mod hints;
mod init_containers;
mod laws;
mod pod_level;
mod requests;
mod reserving;
mod state_files;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use logic_api::pod::requests::{ResourceAmounts, quantity};
use logic_api::quantity::{Quantity, QuantityFormat};
use logic_api::testing::*;

use super::numa_state::MachineState;
use super::*;
use crate::devices::{DeviceInventory, DevicePreferences};
use crate::topology::{
    AssignedResources, Assignment, AssignmentError, AssignmentRequest, HeldAssignments,
    HintProvider, MemoryBlock, NumaMask, NumaNodeId, PodLevelManagers, ProviderHints,
    ResourceHints, TopologyHint, TopologyManager,
};

const MI: u64 = 1 << 20;
const GI: u64 = 1 << 30;

/// Reserved for the system on each node.
const SYSTEM: u64 = 512 * MI;

const ANY: TopologyHint = TopologyHint {
    nodes: None,
    preferred: false,
};
const ANY_PREFERRED: TopologyHint = TopologyHint {
    nodes: None,
    preferred: true,
};

fn node(id: u8) -> NumaNodeId {
    NumaNodeId::new(id.into()).unwrap()
}

fn mask(nodes: &[u8]) -> NumaMask {
    nodes.iter().copied().map(node).collect()
}

/// A preferred hint.
fn on(nodes: &[u8]) -> TopologyHint {
    TopologyHint {
        nodes: Some(mask(nodes)),
        preferred: true,
    }
}

/// A hint that is not preferred.
fn off(nodes: &[u8]) -> TopologyHint {
    TopologyHint {
        preferred: false,
        ..on(nodes)
    }
}

/// A machine whose nodes offer so many MiB of memory and so many huge pages of 1 GiB.
fn machine(nodes: &[(u64, u64)]) -> MachineMemory {
    let memory = |(memory, huge): &(u64, u64)| NumaMemory {
        bytes: memory * MI + huge * GI + SYSTEM,
        huge_pages: BTreeMap::from([(GI, *huge)]),
    };
    (0..).map(node).zip(nodes.iter().map(memory)).collect()
}

fn managed_with(machine: &MachineMemory, pod_level: PodLevelManagers) -> MemoryManager {
    let each = bytes(SYSTEM);
    let reservations: Vec<_> = machine
        .keys()
        .map(|node| MemoryReservation {
            node: node.get().into(),
            limits: ResourceAmounts::from([("memory".to_owned(), each.clone())]),
        })
        .collect();
    let all = SYSTEM * u64::try_from(machine.len()).unwrap();
    let settings = MemorySettings {
        policy: "Static",
        of_node: &ResourceAmounts::from([("memory".to_owned(), bytes(all))]),
        reservations: &reservations,
        pod_level,
    };
    MemoryManager::new(&settings, machine).unwrap()
}

/// The static policy on such a machine.
fn managed(nodes: &[(u64, u64)]) -> MemoryManager {
    managed_with(&machine(nodes), PodLevelManagers::Off)
}

fn bytes(bytes: u64) -> Quantity {
    quantity(i64::try_from(bytes).unwrap(), QuantityFormat::BinarySI)
}

fn requirements(requests: &[(&str, &str)], limits: &[(&str, &str)]) -> ResourceRequirements {
    let list = |list: &[(&str, &str)]| {
        let pair =
            |(name, amount): &(&str, &str)| ((*name).to_owned(), ApiQuantity((*amount).to_owned()));
        Some(list.iter().map(pair).collect())
    };
    ResourceRequirements {
        requests: list(requests),
        limits: list(limits),
        ..ResourceRequirements::default()
    }
}

/// A container that asks for so much memory and so many huge pages of 1 GiB, and a CPU.
fn asking(name: &str, memory: &str, huge: &str) -> Container {
    let amounts = [("cpu", "1"), ("memory", memory), ("hugepages-1Gi", huge)];
    let amounts = match huge {
        "" => &amounts[..2],
        _ => &amounts,
    };
    Container {
        resources: Some(requirements(amounts, amounts)),
        ..spec_container(name)
    }
}

fn sidecar(container: Container) -> Container {
    Container {
        restart_policy: Some("Always".to_owned()),
        ..container
    }
}

/// A pod of one container, `main`.
fn one(name: &str, memory: &str, huge: &str) -> Pod {
    with(name, vec![], vec![asking("main", memory, huge)])
}

fn with(name: &str, init: Vec<Container>, apps: Vec<Container>) -> Pod {
    let mut pod = pod(name).spec_with(|spec| {
        spec.init_containers = Some(init);
        spec.containers = apps;
    });
    pod.metadata.uid = Some(name.to_owned());
    pod
}

fn burstable(name: &str) -> Pod {
    let mut pod = one(name, "1Gi", "1Gi");
    let requests = [("cpu", "1"), ("memory", "1Gi"), ("hugepages-1Gi", "1Gi")];
    let limits = [("cpu", "1"), ("memory", "2Gi"), ("hugepages-1Gi", "2Gi")];
    let containers = &mut pod.spec.as_mut().unwrap().containers;
    containers[0].resources = Some(requirements(&requests, &limits));
    pod
}

/// The same with resources of the pod's own.
fn pod_level(pod: Pod, requests: &[(&str, &str)], limits: &[(&str, &str)]) -> Pod {
    pod.spec_with(|spec| spec.resources = Some(requirements(requests, limits)))
}

/// What one container holds, by the text of its blocks.
fn resources(text: &str) -> AssignedResources {
    let block = |text: &str| {
        let words: Vec<&str> = text.split_whitespace().collect();
        MemoryBlock {
            nodes: words[0]
                .split(',')
                .map(|id| node(id.parse().unwrap()))
                .collect(),
            resource: words[1].to_owned(),
            bytes: u64::try_from(words[2].parse::<Quantity>().unwrap().value()).unwrap(),
        }
    };
    AssignedResources {
        memory: text.split(" + ").map(block).collect(),
        ..AssignedResources::default()
    }
}

/// What pods hold: names of pods and containers, and the text of their blocks.
fn held(containers: &[(&str, &str, &str)]) -> HeldAssignments {
    let mut held: BTreeMap<&str, Assignment> = BTreeMap::new();
    for (pod, container, blocks) in containers {
        let own = held.entry(pod).or_default();
        own.assign(container, resources(blocks));
    }
    let held = held.into_iter();
    held.map(|(pod, own)| (pod.into(), Arc::new(own))).collect()
}

fn ids(nodes: &[u8]) -> String {
    let ids: Vec<String> = nodes.iter().map(u8::to_string).collect();
    ids.join(",")
}

fn show_nodes(nodes: NumaMask) -> String {
    ids(&nodes.nodes().map(NumaNodeId::get).collect::<Vec<u8>>())
}

fn show_blocks(blocks: &[MemoryBlock]) -> String {
    let block = |block: &MemoryBlock| {
        let nodes = show_nodes(block.nodes);
        format!("{nodes} {} {}", block.resource, bytes(block.bytes))
    };
    let blocks: Vec<String> = blocks.iter().map(block).collect();
    blocks.join(" + ")
}

/// Each container's blocks.
fn show(assignment: &Assignment) -> Vec<String> {
    let containers = assignment.containers.iter();
    let show = |(name, own): (&String, &AssignedResources)| {
        format!("{name}: {}", show_blocks(&own.memory))
    };
    containers.map(show).collect()
}

/// Each node's group, the number of blocks on it, and what is free and reserved of each resource.
fn show_state(state: &MachineState) -> Vec<String> {
    let nodes = state.nodes.values().map(|node| {
        let tables = node.tables.iter();
        let tables = tables.map(|(resource, own)| {
            format!(" {resource} {}+{}", bytes(own.free), bytes(own.reserved))
        });
        let tables: String = tables.collect();
        format!("{} x{}{tables}", show_nodes(node.group), node.assignments)
    });
    nodes.collect()
}

/// The machine when pods hold this.
fn state(manager: &MemoryManager, held: &HeldAssignments) -> Vec<String> {
    show_state(&manager.state(held.values().map(Arc::as_ref)))
}

fn request<'a>(
    pod: &'a Pod,
    held: &'a HeldAssignments,
    assigned: &'a Assignment,
) -> AssignmentRequest<'a> {
    static NO_DEVICES: DeviceInventory = DeviceInventory::EMPTY;
    static NO_ANSWERS: DevicePreferences = DevicePreferences::NONE;
    AssignmentRequest {
        devices: &NO_DEVICES,
        preferences: &NO_ANSWERS,
        pod,
        held,
        assigned,
    }
}

/// What the pod's first container is assigned by a hint: its blocks, or the error.
fn assign(
    manager: &MemoryManager,
    pod: &Pod,
    held: &HeldAssignments,
    hint: TopologyHint,
) -> Result<String, String> {
    let none = Assignment::default();
    let container = &pod.spec.as_ref().unwrap().containers[0];
    let assigned = manager.assign(&request(pod, held, &none), container, hint);
    let assigned = assigned.map_err(|error| match &error {
        AssignmentError::Unexpected(text) => text.clone(),
        AssignmentError::TopologyAffinity { .. }
        | AssignmentError::PodLevelTopologyAffinity { .. }
        | AssignmentError::Undecided(_)
        | AssignmentError::Refused { .. } => error.to_string(),
    });
    assigned.map(|own| show_blocks(&own.memory))
}

/// Admits the pod without a topology policy, and holds what it is assigned.
fn admit(
    manager: MemoryManager,
    pod: &Pod,
    held: &mut HeldAssignments,
) -> Result<Vec<String>, String> {
    let mut topology = TopologyManager::default();
    topology.add_hint_provider(Box::new(manager));
    let assigned = topology
        .admit(pod, held)
        .map_err(|error| error.to_string())?;
    let text = show(&assigned);
    let uid = pod.metadata.uid.as_deref().unwrap();
    held.insert(uid.into(), Arc::new(assigned));
    Ok(text)
}

/// Hints for these resources alike.
fn for_all(resources: &[&str], hints: &[TopologyHint]) -> ProviderHints {
    let hints = |resource: &&str| {
        (
            (*resource).to_owned(),
            ResourceHints::Possible(hints.to_vec()),
        )
    };
    resources.iter().map(hints).collect()
}
