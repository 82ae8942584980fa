//! What holds after every step.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use logic_api::pod::{PodView, is_sidecar};
use logic_api::types::{ContainerKind, PodUid};
use logic_resources::qos::Qos;

use super::Life;
use super::machine::RESOURCES;
use super::pods::PodPlan;
use crate::cpus::CpuSet;
use crate::topology::testing::counted as shown;
use crate::topology::{
    AlignmentBoundary, AssignedResources, Assignment, HeldAssignments, MemoryBlock, NumaMask,
    PlacementCount, TopologyAdmission,
};
use crate::{ContainerPlacement, StateFile};

const MI: u64 = 1 << 20;

type Devices = BTreeMap<String, BTreeSet<String>>;

pub(super) fn check(life: &Life<'_>) {
    cpus(life);
    memory(life);
    devices(life);
    for uid in life.held.keys() {
        assert!(life.pods.contains_key(uid), "{uid} holds something");
    }
}

/// The CPUs that are shared, and the managers' files.
pub(super) fn idle(life: &Life<'_>) -> (CpuSet, Vec<StateFile>) {
    let files = life.placement.state_files(&life.held);
    (life.placement.shared_cpus(&life.held), files)
}

/// What is counted of one decision.
pub(super) fn counted(admission: &TopologyAdmission) {
    let counts = &admission.counts;
    let is_failure = |step: &&PlacementCount| match step {
        PlacementCount::Refused
        | PlacementCount::PinningFailed(_)
        | PlacementCount::NotAligned(..)
        | PlacementCount::AllocationFailed(..) => true,
        PlacementCount::Requested
        | PlacementCount::PinningRequested(_)
        | PlacementCount::Aligned(..)
        | PlacementCount::Allocated(..)
        | PlacementCount::Assigned(..) => false,
    };
    let requests = counts
        .iter()
        .filter(|step| **step == PlacementCount::Requested);
    assert_eq!(requests.count(), 1);
    if admission.outcome.is_ok() {
        assert_eq!(counts.iter().find(is_failure), None, "{}", shown(counts));
    }
}

/// What is counted of a pod that is admitted with something, then again, and when it is found running.
pub(super) fn counted_again(
    first: &[PlacementCount],
    again: &[PlacementCount],
    running: &[PlacementCount],
) {
    let is_new = |step: &PlacementCount| match step {
        PlacementCount::Allocated(..)
        | PlacementCount::Assigned(..)
        | PlacementCount::Aligned(_, AlignmentBoundary::UncoreCache) => true,
        PlacementCount::Aligned(
            _,
            AlignmentBoundary::NumaNode | AlignmentBoundary::PhysicalCpu,
        )
        | PlacementCount::Requested
        | PlacementCount::Refused
        | PlacementCount::PinningRequested(_)
        | PlacementCount::PinningFailed(_)
        | PlacementCount::NotAligned(..)
        | PlacementCount::AllocationFailed(..) => false,
    };
    assert!(!again.iter().any(is_new), "{}", shown(again));
    let requests = |counts: &[PlacementCount]| {
        let mut counts = counts.to_vec();
        counts.retain(|step| matches!(step, PlacementCount::PinningRequested(_)));
        shown(&counts)
    };
    assert_eq!(requests(again), requests(first));
    assert_eq!(shown(running), shown(again));
}

fn all(own: &Assignment) -> impl Iterator<Item = &AssignedResources> {
    own.containers.values().chain([&own.pod])
}

fn set(own: &AssignedResources) -> CpuSet {
    CpuSet::from_numbers(own.cpus.iter().copied())
}

/// All CPUs of a pod.
fn cpus_of(own: &Assignment) -> CpuSet {
    all(own).fold(CpuSet::default(), |taken, own| taken.union(&set(own)))
}

/// The containers of a pod that run at the same time in the end.
fn lasting(pod: &Pod) -> impl Iterator<Item = &str> {
    let containers = pod.all_containers();
    let lasting = containers.filter(|(kind, own)| *kind != ContainerKind::Init || is_sidecar(own));
    lasting.map(|(_, own)| own.name.as_str())
}

fn cpus(life: &Life<'_>) {
    let placement = &life.placement;
    let mut taken = CpuSet::default();
    for (uid, own) in &life.held {
        let (plan, pod) = &life.pods[uid];
        let cpus = cpus_of(own);
        assert!(cpus.is_empty() || plan.qos == Qos::Guaranteed, "{uid}");
        assert_eq!(taken.common(&cpus), 0, "{uid} has CPUs of another pod");
        taken = taken.union(&cpus);
        let mut running = CpuSet::default();
        for name in lasting(pod) {
            let own = own.containers.get(name).map(set).unwrap_or_default();
            assert_eq!(running.common(&own), 0, "{uid} {name}");
            running = running.union(&own);
        }
    }
    assert_eq!(taken.common(&placement.reserved_cpus()), 0);
    assert!(taken.is_subset(&placement.allocatable_cpus()));
    let by_node = placement.exclusive_cpus(&life.held);
    assert_eq!(by_node.values().sum::<u32>(), taken.len());
    let shared = placement.shared_cpus(&life.held);
    if placement.pins_cpus() {
        let with_reserved = shared.union(&taken).union(&placement.reserved_cpus());
        assert_eq!(shared.common(&taken), 0);
        assert_eq!(with_reserved, *placement.machine().cpus());
    } else {
        assert!(taken.is_empty());
    }
    let nothing = Assignment::default();
    for (uid, (_, pod)) in &life.pods {
        let own = life.held.get(uid).map(|own| cpus_of(own));
        let containers = life.held.get(uid).map_or(&nothing, |own| own);
        let containers = &containers.containers;
        let exclusive = lasting(pod).filter_map(|name| containers.get(name));
        let exclusive = exclusive.fold(CpuSet::default(), |all, own| all.union(&set(own)));
        let has_own = |name: &str| containers.get(name).is_some_and(|own| !own.cpus.is_empty());
        for name in lasting(pod).filter(|name| !has_own(name)) {
            let runs = life.placement.container(&life.held, pod, name);
            assert_eq!(runs.cpus.common(&exclusive), 0, "{uid} {name}");
        }
        let others = taken.difference(&own.unwrap_or_default());
        for (_, container) in pod.all_containers() {
            let runs = placement.container(&life.held, pod, &container.name);
            assert_eq!(runs.cpus.common(&others), 0, "{uid} {}", container.name);
        }
    }
}

/// What the pod's memory comes to: the pod's own where it has some, of which its containers' is a part.
fn blocks(own: &Assignment) -> impl Iterator<Item = &MemoryBlock> {
    let of_pod = own.pod.memory.iter();
    let is_whole = !own.pod.memory.is_empty();
    let containers = own.containers.values().filter(move |_| !is_whole);
    of_pod.chain(containers.flat_map(|own| &own.memory))
}

fn memory(life: &Life<'_>) {
    let mut zones = BTreeMap::<(NumaMask, &str), u64>::new();
    for (uid, own) in &life.held {
        for block in blocks(own) {
            assert_eq!(life.pods[uid].0.qos, Qos::Guaranteed, "{uid}");
            *zones.entry((block.nodes, &block.resource)).or_default() += block.bytes;
        }
    }
    let allocatable = life.placement.allocatable_memory();
    for ((nodes, resource), taken) in &zones {
        let others = zones.keys().filter(|(other, _)| other != nodes);
        for (other, _) in others {
            assert!(!other.intersects(*nodes), "{other:?} and {nodes:?} overlap");
        }
        let within = allocatable
            .iter()
            .filter(|block| block.resource == *resource && block.nodes.intersects(*nodes));
        let there: u64 = within.map(|block| block.bytes).sum();
        assert!(
            *taken <= there,
            "{resource} of {nodes:?}: {taken} of {there}"
        );
    }
}

fn devices(life: &Life<'_>) {
    let mut holders = BTreeMap::<(&str, &str), &PodUid>::new();
    for (uid, own) in &life.held {
        let (_, pod) = &life.pods[uid];
        assert!(own.pod.devices.is_empty());
        for (resource, id) in own.containers.values().flat_map(|own| ids(&own.devices)) {
            let before = holders.insert((resource, id), uid);
            assert!(
                before.is_none_or(|before| before == uid),
                "{id} is given twice"
            );
            let known = RESOURCES.iter().position(|known| *known == resource);
            let all = life.machine.listed(known.unwrap(), 255, 255);
            assert!(all.iter().any(|device| device.id == id), "{id}");
        }
        let mut running = BTreeSet::new();
        for name in lasting(pod) {
            let own = own.containers.get(name).map(|own| &own.devices);
            for device in own.into_iter().flat_map(ids) {
                assert!(running.insert(device), "{device:?} runs twice in {uid}");
            }
        }
    }
    let allocated = life.allocations.held();
    let allocated = allocated.values().flat_map(|own| own.containers.values());
    let allocated: BTreeSet<_> = allocated.flat_map(|own| ids(&own.devices)).collect();
    let held: BTreeSet<_> = holders.into_keys().collect();
    assert_eq!(allocated, held, "the device manager knows of them");
}

fn ids(devices: &Devices) -> impl Iterator<Item = (&str, &str)> {
    devices.iter().flat_map(|(resource, ids)| {
        let id = move |id| (resource.as_str(), String::as_str(id));
        ids.iter().map(id)
    })
}

/// A pod that is admitted has all that it asks for, and of devices only those that can be used.
pub(super) fn admitted(life: &Life<'_>, plan: &PodPlan, pod: &Pod, assigned: &Assignment) {
    let nothing = AssignedResources::default();
    for (kind, container) in pod.all_containers() {
        let own = assigned.containers.get(&container.name);
        let own = own.unwrap_or(&nothing);
        let place = container.name.rsplit('-').next().unwrap();
        let asked = plan.ordered()[place.parse::<usize>().unwrap()];
        for (resource, count) in RESOURCES.iter().zip(asked.devices) {
            let ids = own.devices.get(*resource);
            let given = ids.map_or(0, BTreeSet::len);
            let known = life.inventory.resource(resource);
            assert_eq!(given, usize::try_from(count).unwrap(), "{resource}");
            let is_healthy = |id: &String| known.is_some_and(|known| known.is_healthy(id));
            assert!(ids.into_iter().flatten().all(is_healthy), "{ids:?}");
        }
        if plan.qos != Qos::Guaranteed || plan.whole.is_some() {
            continue;
        }
        if life.placement.pins_cpus() {
            let whole = asked.milli_cpus.is_multiple_of(1000);
            let count = if whole { asked.milli_cpus / 1000 } else { 0 };
            assert_eq!(set(own).len(), count, "{}", container.name);
        }
        let memory = own.memory.iter().filter(|own| own.resource == "memory");
        let bytes: u64 = memory.map(|block| block.bytes).sum();
        let lasts = kind == ContainerKind::App || is_sidecar(container);
        if life.machine.memory_policy == "Static" && lasts {
            assert_eq!(bytes, asked.mib * MI, "{}", container.name);
        }
    }
}

/// Where every container runs.
pub(super) fn placements(life: &Life<'_>) -> Vec<ContainerPlacement> {
    let containers = life.pods.values().flat_map(|(_, pod)| {
        let containers = pod.all_containers();
        containers.map(move |(_, own)| life.placement.container(&life.held, pod, &own.name))
    });
    containers.collect()
}

/// What is read from the files is what pods held; but for CPUs that a pod's containers share, which the files do not tell
/// from the pod's others.
pub(super) fn restored(before: &HeldAssignments, after: &HeldAssignments) {
    assert!(before.keys().eq(after.keys()), "{before:?}\n{after:?}");
    for (uid, own) in before {
        let after = &after[uid];
        assert_eq!(after.containers, own.containers, "{uid}");
        assert_eq!(cpus_of(after), cpus_of(own), "{uid}");
        assert_eq!(after.pod.memory, own.pod.memory, "{uid}");
    }
}

/// A pod that is resized keeps its devices.
pub(super) fn resized(life: &Life<'_>, uid: &PodUid, assigned: &Assignment) {
    let of = |own: &Assignment| -> BTreeMap<String, Devices> {
        let containers = own.containers.iter();
        let some = containers.filter(|(_, own)| !own.devices.is_empty());
        some.map(|(name, own)| (name.clone(), own.devices.clone()))
            .collect()
    };
    let before = life.held.get(uid).map(|own| of(own)).unwrap_or_default();
    assert_eq!(of(assigned), before, "{uid}");
}
