//! How much memory of each NUMA node is free, and which nodes are used together.
//!
//! A node is used alone or in one group at a time. A group's memory is taken from its lowest node on, so that what a node
//! of a group has free depends on the order in which the group's memory came and went; of the group as a whole it does
//! not. Mirrors `NUMANodeMap` of upstream's memorymanager/state and `updateMachineState` of policy_static.go at v1.36.

use std::collections::BTreeMap;

use logic_api::pod::requests::MEMORY;

use super::amount::MemoryAmounts;
use super::machine::{MachineMemory, NumaMemory, huge_pages_resource};
use super::reserved::ReservedMemory;
use crate::topology::{Assignment, MemoryBlock, NumaMask, NumaNodeId};

/// Bytes of one resource on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MemoryTable {
    /// Of memory those of huge pages as well.
    pub(super) total: u64,
    /// Never assigned to a pod.
    pub(super) system_reserved: u64,
    /// What pods may have.
    pub(super) allocatable: u64,
    /// What pods have.
    pub(super) reserved: u64,
    pub(super) free: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeState {
    /// How many memory blocks lie on the node, each of one container and one resource.
    pub(super) assignments: u64,
    pub(super) tables: BTreeMap<String, MemoryTable>,
    /// The nodes that it is used together with, itself among them.
    pub(super) group: NumaMask,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MachineState {
    pub(super) nodes: BTreeMap<NumaNodeId, NodeState>,
}

impl MachineState {
    /// A machine of which nothing is assigned.
    pub(super) fn unassigned(machine: &MachineMemory, reserved: &ReservedMemory) -> Self {
        let none = MemoryAmounts::new();
        let node = |(id, memory): (&NumaNodeId, &NumaMemory)| {
            let reserved = reserved.get(id).unwrap_or(&none);
            let state = NodeState {
                assignments: 0,
                tables: tables(memory, reserved),
                group: NumaMask::from_iter([*id]),
            };
            (*id, state)
        };
        Self {
            nodes: machine.iter().map(node).collect(),
        }
    }

    /// All nodes.
    pub(super) fn mask(&self) -> NumaMask {
        self.nodes.keys().copied().collect()
    }

    /// What pods may have of the resource on all of these nodes.
    pub(super) fn allocatable(&self, nodes: NumaMask, resource: &str) -> u64 {
        self.sum(nodes, resource, |table| table.allocatable)
    }

    /// What nobody has of the resource on all of these nodes.
    pub(super) fn free(&self, nodes: NumaMask, resource: &str) -> u64 {
        self.sum(nodes, resource, |table| table.free)
    }

    fn sum(&self, nodes: NumaMask, resource: &str, of: impl Fn(&MemoryTable) -> u64) -> u64 {
        let states = nodes.nodes().filter_map(|node| self.nodes.get(&node));
        let tables = states.filter_map(|state| state.tables.get(resource));
        tables.map(of).fold(0, u64::saturating_add)
    }

    /// Whether one of the nodes is in use otherwise than together with exactly the others.
    pub(super) fn is_used_otherwise(&self, nodes: NumaMask) -> bool {
        let mut states = nodes.nodes().filter_map(|node| self.nodes.get(&node));
        states.any(|state| state.assignments > 0 && state.group != nodes)
    }

    /// Takes what a pod holds: as a whole if it is assigned memory as a whole, of which its containers have parts.
    pub(super) fn take_all(&mut self, assignment: &Assignment) {
        for block in held_blocks(assignment) {
            self.take(block);
        }
    }

    fn take(&mut self, block: &MemoryBlock) {
        let mut left = block.bytes;
        for node in block.nodes.nodes() {
            let Some(state) = self.nodes.get_mut(&node) else {
                continue;
            };
            state.assignments += 1;
            state.group = block.nodes;
            if let Some(table) = state.tables.get_mut(&block.resource) {
                let taken = left.min(table.free);
                table.free -= taken;
                table.reserved += taken;
                left -= taken;
            }
        }
    }
}

/// The blocks by which a pod's memory counts.
pub(super) fn held_blocks(assignment: &Assignment) -> impl Iterator<Item = &MemoryBlock> {
    let containers = assignment.containers.values();
    let containers = containers.filter(|_| assignment.pod.memory.is_empty());
    let of_containers = containers.flat_map(|own| &own.memory);
    assignment.pod.memory.iter().chain(of_containers)
}

fn tables(memory: &NumaMemory, reserved: &MemoryAmounts) -> BTreeMap<String, MemoryTable> {
    let table = |resource: &str, total: u64, other: u64| {
        let system_reserved = reserved.get(resource).copied().unwrap_or(0);
        let allocatable = total.saturating_sub(other).saturating_sub(system_reserved);
        MemoryTable {
            total,
            system_reserved,
            allocatable,
            reserved: 0,
            free: allocatable,
        }
    };
    let sizes = memory.huge_pages.iter();
    let sizes =
        sizes.map(|(size, pages)| (huge_pages_resource(*size), size.saturating_mul(*pages)));
    let sizes: MemoryAmounts = sizes.collect();
    let in_huge_pages = sizes.values().copied().fold(0, u64::saturating_add);
    let huge = sizes.iter();
    let huge = huge.map(|(resource, total)| (resource.clone(), table(resource, *total, 0)));
    let whole = table(MEMORY, memory.bytes, in_huge_pages);
    huge.chain([(MEMORY.to_owned(), whole)]).collect()
}
