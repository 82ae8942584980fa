//! What pods hold and what the machine has, to and from the file's form.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::StateFileError;
use super::content::{Entries, FileBlock, FileNode, FileTable, PodEntries, PodEntry, StateFile};
use crate::memory::numa_state::{MachineState, MemoryTable, NodeState};
use crate::topology::{
    AssignedResources, Assignment, HeldAssignments, MemoryBlock, NumaMask, NumaNodeId,
};

/// The nodes as the file has them.
pub(super) fn machine_state(state: &MachineState) -> BTreeMap<i64, Option<FileNode>> {
    let node = |(id, state): (&NumaNodeId, &NodeState)| {
        let tables = state.tables.iter();
        let tables = tables.map(|(resource, own)| (resource.clone(), Some(table(own))));
        let node = FileNode {
            number_of_assignments: i64::try_from(state.assignments).unwrap_or(i64::MAX),
            memory_map: Some(tables.collect()),
            cells: Some(ids(state.group)),
        };
        (i64::from(id.get()), Some(node))
    };
    state.nodes.iter().map(node).collect()
}

fn table(table: &MemoryTable) -> FileTable {
    FileTable {
        total: table.total,
        system_reserved: table.system_reserved,
        allocatable: table.allocatable,
        reserved: table.reserved,
        free: table.free,
    }
}

fn ids(nodes: NumaMask) -> Vec<i64> {
    nodes.nodes().map(|node| node.get().into()).collect()
}

/// The memory of all containers.
pub(super) fn entries(held: &HeldAssignments) -> Entries {
    let containers = |held: &Assignment| -> BTreeMap<_, _> {
        let containers = held.containers.iter();
        let with_memory = containers.filter(|(_, own)| !own.memory.is_empty());
        let blocks = |(name, own): (&String, &AssignedResources)| {
            (name.clone(), Some(own.memory.iter().map(block).collect()))
        };
        with_memory.map(blocks).collect()
    };
    let pods = held.iter();
    let pods = pods.map(|(uid, held)| (uid.to_string(), Some(containers(held))));
    pods.filter(|(_, own)| own.as_ref().is_some_and(|own| !own.is_empty()))
        .collect()
}

/// The memory that pods have as a whole.
pub(super) fn pod_entries(held: &HeldAssignments) -> PodEntries {
    let pods = held.iter();
    let with_memory = pods.filter(|(_, held)| !held.pod.memory.is_empty());
    let entry = |held: &Assignment| PodEntry {
        memory_blocks: Some(held.pod.memory.iter().map(block).collect()),
    };
    with_memory
        .map(|(uid, held)| (uid.to_string(), entry(held)))
        .collect()
}

fn block(block: &MemoryBlock) -> FileBlock {
    FileBlock {
        numa_affinity: Some(ids(block.nodes)),
        resource: block.resource.clone(),
        size: block.bytes,
    }
}

/// What pods hold by the file, all of it on nodes and of resources of this machine. A pod without containers holds
/// nothing.
pub(super) fn held(
    file: &StateFile,
    machine: &MachineState,
) -> Result<HeldAssignments, StateFileError> {
    let mut held = HeldAssignments::new();
    for (uid, containers) in file.entries.iter().flatten() {
        let pods = file.pod_entries.as_ref();
        let whole = pods
            .and_then(|pods| pods.get(uid))
            .and_then(|pod| pod.memory_blocks.as_deref());
        let mut assignment = Assignment {
            pod: resources(whole, (uid, ""), machine)?,
            ..Assignment::default()
        };
        for (container, blocks) in containers.iter().flatten() {
            let own = resources(blocks.as_deref(), (uid, container), machine)?;
            assignment.assign(container, own);
        }
        if !assignment.is_empty() {
            held.insert(uid.as_str().into(), Arc::new(assignment));
        }
    }
    Ok(held)
}

fn resources(
    blocks: Option<&[FileBlock]>,
    (pod, container): (&str, &str),
    machine: &MachineState,
) -> Result<AssignedResources, StateFileError> {
    let block = |block: &FileBlock| {
        let ids = block.numa_affinity.iter().flatten();
        let node = |id: &i64| {
            NumaNodeId::new(*id)
                .ok()
                .filter(|node| machine.nodes.contains_key(node))
        };
        let nodes: Option<NumaMask> = ids.map(node).collect();
        let nodes = nodes.ok_or_else(|| StateFileError::NoSuchNode {
            pod: pod.to_owned(),
            container: container.to_owned(),
        })?;
        let mut states = nodes.nodes().filter_map(|node| machine.nodes.get(&node));
        match states.all(|state| state.tables.contains_key(&block.resource)) {
            true => Ok(MemoryBlock {
                resource: block.resource.clone(),
                nodes,
                bytes: block.size,
            }),
            false => Err(StateFileError::NoSuchResource {
                pod: pod.to_owned(),
                container: container.to_owned(),
            }),
        }
    };
    let memory: Result<_, _> = blocks.into_iter().flatten().map(block).collect();
    Ok(AssignedResources {
        memory: memory?,
        ..AssignedResources::default()
    })
}

/// Whether the file's machine is the one that follows from what pods hold. In a group of nodes only the sums count.
pub(super) fn is_same_machine(file: &StateFile, expected: &MachineState) -> bool {
    let expected = machine_state(expected);
    let Some(found) = &file.machine_state else {
        return false;
    };
    let alike = |(id, node): (&i64, &Option<FileNode>)| {
        let nodes = node.as_ref().zip(expected.get(id).and_then(Option::as_ref));
        nodes.is_some_and(|(node, other)| is_same_node(node, other, found, &expected))
    };
    found.len() == expected.len() && found.iter().all(alike)
}

type FileNodes = BTreeMap<i64, Option<FileNode>>;

fn is_same_node(
    node: &FileNode,
    other: &FileNode,
    found: &FileNodes,
    expected: &FileNodes,
) -> bool {
    let group = |node: &FileNode| {
        let mut cells = node.cells.clone().unwrap_or_default();
        cells.sort_unstable();
        cells
    };
    let fixed = |node: &FileNode| {
        let tables = node.memory_map.iter().flatten();
        let fixed = tables.map(|(resource, table)| {
            let table = table.clone().unwrap_or_default();
            (
                resource.clone(),
                (table.total, table.system_reserved, table.allocatable),
            )
        });
        fixed.collect::<BTreeMap<_, _>>()
    };
    let resources: BTreeSet<&String> = node.memory_map.iter().flat_map(BTreeMap::keys).collect();
    let sums = |nodes: &FileNodes, resource: &str| {
        let tables = group(other).into_iter();
        let tables = tables.filter_map(|id| file_table(nodes, id, resource));
        tables.fold((0_u128, 0_u128), |(reserved, free), table| {
            (
                reserved + u128::from(table.reserved),
                free + u128::from(table.free),
            )
        })
    };
    node.number_of_assignments == other.number_of_assignments
        && group(node) == group(other)
        && fixed(node) == fixed(other)
        && resources
            .into_iter()
            .all(|resource| sums(found, resource) == sums(expected, resource))
}

fn file_table<'a>(nodes: &'a FileNodes, id: i64, resource: &str) -> Option<&'a FileTable> {
    let tables = nodes.get(&id)?.as_ref()?.memory_map.as_ref()?;
    tables.get(resource)?.as_ref()
}
