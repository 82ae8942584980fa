//! Assignments as sets of CPUs.

use super::cpu_set::CpuSet;
use crate::topology::{AssignedResources, Assignment, HeldAssignments};

pub(super) fn cpus_of(resources: &AssignedResources) -> CpuSet {
    CpuSet::from_numbers(resources.cpus.iter().copied())
}

pub(super) fn assigned_cpus(cpus: &CpuSet) -> AssignedResources {
    AssignedResources {
        cpus: cpus.numbers(),
        ..AssignedResources::default()
    }
}

/// All CPUs of a pod.
pub(super) fn all_of(assigned: &Assignment) -> CpuSet {
    let own = assigned.containers.values().chain([&assigned.pod]);
    CpuSet::from_numbers(own.flat_map(|own| own.cpus.iter().copied()))
}

/// All CPUs that pods have to themselves.
pub(super) fn all_held(held: &HeldAssignments) -> CpuSet {
    let pods = held.values().map(|assigned| all_of(assigned));
    pods.fold(CpuSet::default(), |all, cpus| all.union(&cpus))
}

/// An assignment without what others have assigned.
pub(super) fn cpus_alone(held: &Assignment) -> Assignment {
    let mut alone = Assignment {
        pod: assigned_cpus(&cpus_of(&held.pod)),
        ..Assignment::default()
    };
    for (container, own) in &held.containers {
        alone.assign(container, assigned_cpus(&cpus_of(own)));
    }
    alone
}
