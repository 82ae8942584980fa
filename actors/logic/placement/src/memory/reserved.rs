//! The memory that is reserved for the system on each NUMA node: `reservedMemory` of the configuration.
//!
//! Mirrors `validateReservedMemory`, `convertReserved` and `getSystemReservedMemory` of upstream's
//! memorymanager/memory_manager.go at v1.36.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use logic_api::pod::requests::{self, ResourceAmounts};
use logic_api::quantity::{Quantity, compare};
use thiserror::Error;

use super::amount::{MemoryAmounts, is_memory, whole_units};
use super::machine::MachineMemory;
use crate::topology::NumaNodeId;

/// Bytes by NUMA node and resource: every node of the machine is there.
pub(super) type ReservedMemory = BTreeMap<NumaNodeId, MemoryAmounts>;

/// One entry of `reservedMemory`.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryReservation {
    /// The NUMA node's number.
    pub node: i32,
    /// `memory` and huge pages.
    pub limits: ResourceAmounts,
}

/// Why memory cannot be reserved like this.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReservedMemoryError {
    #[error(
        "the reserved memory configuration references a NUMA node {0} that does not exist on this machine"
    )]
    UnknownNode(i32),
    #[error(
        "the total amount {total:?} of type {resource:?} is not equal to the value {expected:?} determined by Node \
         Allocatable feature"
    )]
    UnlikeAllocatable {
        total: String,
        resource: String,
        expected: String,
    },
    /// In upstream's spelling.
    #[error("could not covert a variable of type Quantity to int64")]
    NotAnInteger,
}

/// What is reserved on each node. `of_node` is what the node as a whole reserves of each resource: `kubeReserved`,
/// `systemReserved` and the threshold of hard eviction together.
pub(super) fn reserved_memory(
    machine: &MachineMemory,
    of_node: &ResourceAmounts,
    reservations: &[MemoryReservation],
) -> Result<ReservedMemory, ReservedMemoryError> {
    let known = |id: i32| {
        let node = NumaNodeId::new(id.into()).ok();
        let node = node.filter(|node| machine.contains_key(node));
        node.ok_or(ReservedMemoryError::UnknownNode(id))
    };
    let mut total = ResourceAmounts::new();
    for reservation in reservations {
        known(reservation.node)?;
        requests::add(&mut total, &reservation.limits);
    }
    same_totals(&total, of_node)?;
    let mut reserved: ReservedMemory = machine
        .keys()
        .map(|node| (*node, BTreeMap::new()))
        .collect();
    for reservation in reservations {
        let own = reserved.entry(known(reservation.node)?).or_default();
        for (resource, amount) in &reservation.limits {
            let units = whole_units(amount).ok_or(ReservedMemoryError::NotAnInteger)?;
            own.insert(resource.clone(), units);
        }
    }
    Ok(reserved)
}

fn same_totals(
    total: &ResourceAmounts,
    of_node: &ResourceAmounts,
) -> Result<(), ReservedMemoryError> {
    let of_node_names = of_node.keys().filter(|name| is_memory(name));
    let names: BTreeSet<&String> = total.keys().chain(of_node_names).collect();
    let zero = Quantity::zero();
    for resource in names {
        let total = total.get(resource).unwrap_or(&zero);
        let expected = of_node.get(resource).unwrap_or(&zero);
        if compare(total, expected) != Ordering::Equal {
            return Err(ReservedMemoryError::UnlikeAllocatable {
                total: canonical(total),
                resource: resource.clone(),
                expected: canonical(expected),
            });
        }
    }
    Ok(())
}

/// The amount in the form of a sum, whatever form it was written in.
fn canonical(amount: &Quantity) -> String {
    let sum = Quantity::zero().plus(amount);
    sum.as_ref().unwrap_or(amount).to_string()
}
