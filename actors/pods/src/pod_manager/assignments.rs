//! What each pod has to itself: from its admission until nothing of it runs, over restarts of the agent too.
//!
//! Upstream: the `removeStaleState` of pkg/kubelet/cm/{cpumanager,memorymanager} (1.36).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use logic_api::types::{ContainerState, PodUid, RuntimeContainer, RuntimePod};
use logic_placement::NodePlacement;
use logic_placement::devices::DeviceInventory;
use logic_placement::memory::release_ended;
use logic_placement::topology::{Assignment, HeldAssignments, ManagedResource, PlacementCount};
use metrics::pods::placement as counted;
use state::placement_files;

use super::workers::PodWorkers;
use crate::pod_manager::devices::DevicePlugins;
use crate::worker;

/// Counts a decision about a pod, as far as it is about what it has to itself: nothing of one that was refused before, or
/// that waits.
pub(super) fn count(counts: &[PlacementCount], took: Duration) {
    for step in counts {
        add(*step, 1);
    }
    if !counts.is_empty() {
        counted::ADMISSION_DURATION.observe(took.as_secs_f64() * 1000.0);
    }
}

/// Adds to the counter of a step; nothing makes its series be there.
fn add(step: PlacementCount, times: u64) {
    let (series, labels) = match step {
        PlacementCount::Requested => return counted::ADMISSIONS.inc_by(times),
        PlacementCount::Refused => return counted::REFUSALS.inc_by(times),
        PlacementCount::PinningRequested(ManagedResource::Cpu) => {
            return counted::CPU_REQUESTS.inc_by(times);
        }
        PlacementCount::PinningRequested(ManagedResource::Memory) => {
            return counted::MEMORY_REQUESTS.inc_by(times);
        }
        PlacementCount::PinningFailed(ManagedResource::Cpu) => {
            return counted::CPU_ERRORS.inc_by(times);
        }
        PlacementCount::PinningFailed(ManagedResource::Memory) => {
            return counted::MEMORY_ERRORS.inc_by(times);
        }
        PlacementCount::Aligned(scope, boundary) => {
            (&counted::ALIGNED, [scope.as_str(), boundary.as_str()])
        }
        PlacementCount::NotAligned(scope, boundary) => {
            (&counted::NOT_ALIGNED, [scope.as_str(), boundary.as_str()])
        }
        PlacementCount::Allocated(resource, source) => {
            (&counted::ALLOCATIONS, [resource.as_str(), source.as_str()])
        }
        PlacementCount::AllocationFailed(resource, source) => (
            &counted::ALLOCATION_ERRORS,
            [resource.as_str(), source.as_str()],
        ),
        PlacementCount::Assigned(resource, manner) => {
            (&counted::ASSIGNMENTS, [resource.as_str(), manner.as_str()])
        }
    };
    series.with_label_values(&labels).inc_by(times);
}

impl PodWorkers {
    /// Decides what pods have to themselves.
    pub(super) fn placement(&self) -> &NodePlacement {
        &self.peers().assignments.placement
    }

    /// What each pod has to itself; those that have nothing are absent.
    pub(super) fn assignments(&self) -> Arc<HeldAssignments> {
        self.peers().assignments.held()
    }

    /// Has a pod hold what it is assigned, until nothing of it runs any more.
    pub(super) fn assign(&self, uid: &PodUid, assigned: Assignment) {
        self.change(|held| {
            if assigned.is_empty() {
                held.remove(uid);
            } else {
                held.insert(uid.clone(), Arc::new(assigned));
            }
        });
    }

    /// Frees the memory of init containers that have ended: the next container of their pod runs.
    pub(super) fn note_started(&self, observed: &RuntimePod) {
        let held = self.assignments();
        let Some(own) = held.get(&observed.uid) else {
            return;
        };
        let Some(goal) = self.desired(&observed.uid) else {
            return;
        };
        let mut left = Assignment::clone(own);
        let is_running = |container: &&RuntimeContainer| container.state == ContainerState::Running;
        for container in observed.containers.iter().filter(is_running) {
            release_ended(&mut left, &goal.allocated, &container.name);
        }
        self.assign(&observed.uid, left);
    }

    pub(super) fn release(&self, uid: &PodUid) {
        if self.assignments().contains_key(uid) {
            self.change(|held| drop(held.remove(uid)));
            self.peers().devices.forget(uid);
        }
    }

    /// Releases what pods hold of an earlier life that are unknown now.
    pub(super) fn retain_assignments(&self, is_known: impl Fn(&PodUid) -> bool) {
        let held = self.assignments();
        for uid in held.keys().filter(|uid| !is_known(uid)) {
            self.release(uid);
        }
    }

    /// The devices of device plugins.
    pub(super) fn devices(&self) -> Arc<DeviceInventory> {
        self.peers().assignments.devices()
    }

    /// The way to device plugins.
    pub(super) fn plugins(&self) -> DevicePlugins {
        self.peers().devices.clone()
    }

    /// Takes in the devices of device plugins, and has the status of pods written anew whose devices have changed.
    pub(super) fn set_devices(&self, inventory: Arc<DeviceInventory>, pods: &BTreeSet<PodUid>) {
        self.peers().assignments.set_devices(inventory);
        self.wake(pods);
    }

    /// Has the workers of these pods look at them again.
    pub(super) fn wake(&self, pods: &BTreeSet<PodUid>) {
        for uid in pods {
            self.tell(uid, worker::Msg::Wake);
        }
    }

    /// What one pod takes, others lose: their workers move their containers.
    fn change(&self, change: impl FnOnce(&mut BTreeMap<PodUid, Arc<Assignment>>)) {
        if !self.peers().assignments.update(change) {
            return;
        }
        self.show();
        let files = &self.peers().state.placement_files;
        // A mailbox that is full holds such a message already.
        drop(files.tell(placement_files::Msg::Changed));
        self.tell_all(|| worker::Msg::Wake);
    }

    /// Makes the metrics of what pods have to themselves be there.
    pub(super) fn begin_to_count(&self) {
        for step in self.placement().first_counts() {
            add(step, 0);
        }
        if self.placement().pins_cpus() {
            self.show();
        }
    }

    /// Sets the gauges of what is held.
    fn show(&self) {
        let (placement, held) = (self.placement(), self.assignments());
        let shared = placement.shared_cpus(&held);
        // Reserved CPUs run shared containers too, unless that is forbidden, and are not counted.
        let shared = shared.difference(&placement.reserved_cpus());
        counted::SHARED_CPUS.set(f64::from(shared.len()) * 1000.0);
        let by_node = placement.exclusive_cpus(&held);
        counted::EXCLUSIVE_CPUS.set(f64::from(by_node.values().sum::<u32>()));
        for (node, cpus) in by_node {
            let node = node.get().to_string();
            let gauge = counted::CPUS_BY_NODE.with_label_values(&[&node]);
            gauge.set(f64::from(cpus));
        }
    }
}

#[cfg(test)]
mod tests {
    use logic_placement::topology::AlignmentBoundary::{NumaNode, PhysicalCpu, UncoreCache};
    use logic_placement::topology::AllocationSource::{Node, Pod};
    use logic_placement::topology::AssignmentType::{NodeExclusive, PodExclusive, PodShared};
    use logic_placement::topology::ManagedResource::{Cpu, Memory};
    use logic_placement::topology::PlacementCount::{
        Aligned, Allocated, AllocationFailed, Assigned, NotAligned, PinningFailed,
        PinningRequested, Refused, Requested,
    };
    use logic_placement::topology::TopologyScope as Scope;

    use super::*;

    /// What a scrape says of a series: nothing where it is not there.
    fn value(series: &str) -> Option<String> {
        let text = metrics::text();
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
        Some(line.to_owned())
    }

    /// By upstream's names and labels.
    const SERIES: [(PlacementCount, &str); 17] = [
        (
            Requested,
            "kubelet_topology_manager_admission_requests_total",
        ),
        (Refused, "kubelet_topology_manager_admission_errors_total"),
        (
            PinningRequested(Cpu),
            "kubelet_cpu_manager_pinning_requests_total",
        ),
        (
            PinningFailed(Cpu),
            "kubelet_cpu_manager_pinning_errors_total",
        ),
        (
            PinningRequested(Memory),
            "kubelet_memory_manager_pinning_requests_total",
        ),
        (
            PinningFailed(Memory),
            "kubelet_memory_manager_pinning_errors_total",
        ),
        (
            Aligned(Scope::Container, PhysicalCpu),
            r#"kubelet_container_aligned_compute_resources_count{boundary="physical_cpu",scope="container"}"#,
        ),
        (
            Aligned(Scope::Container, UncoreCache),
            r#"kubelet_container_aligned_compute_resources_count{boundary="uncore_cache",scope="container"}"#,
        ),
        (
            Aligned(Scope::Pod, NumaNode),
            r#"kubelet_container_aligned_compute_resources_count{boundary="numa_node",scope="pod"}"#,
        ),
        (
            NotAligned(Scope::Container, PhysicalCpu),
            r#"kubelet_container_aligned_compute_resources_failure_count{boundary="physical_cpu",scope="container"}"#,
        ),
        (
            NotAligned(Scope::Pod, NumaNode),
            r#"kubelet_container_aligned_compute_resources_failure_count{boundary="numa_node",scope="pod"}"#,
        ),
        (
            Allocated(Cpu, Node),
            r#"resource_manager_allocations_total{resource_name="cpu",source="node"}"#,
        ),
        (
            Allocated(Memory, Pod),
            r#"resource_manager_allocations_total{resource_name="memory",source="pod"}"#,
        ),
        (
            AllocationFailed(Memory, Node),
            r#"resource_manager_allocation_errors_total{resource_name="memory",source="node"}"#,
        ),
        (
            Assigned(Cpu, NodeExclusive),
            r#"resource_manager_container_assignments{assignment_type="node_exclusive",resource_name="cpu"}"#,
        ),
        (
            Assigned(Memory, PodShared),
            r#"resource_manager_container_assignments{assignment_type="pod_shared",resource_name="memory"}"#,
        ),
        (
            Assigned(Cpu, PodExclusive),
            r#"resource_manager_container_assignments{assignment_type="pod_exclusive",resource_name="cpu"}"#,
        ),
    ];

    #[test]
    fn each_step_is_one_of_its_series() {
        for (step, series) in SERIES {
            // Series with labels are there once they are counted, or from the start.
            assert_eq!(value(series).is_none(), series.contains('{'), "{series}");
            add(step, 0);
            assert_eq!(value(series).as_deref(), Some("0"), "{series}");
            count(&[step], Duration::from_millis(1));
            assert_eq!(value(series).as_deref(), Some("1"), "{series}");
        }
        let took = "kubelet_topology_manager_admission_duration_ms_count";
        assert_eq!(value(took), Some(SERIES.len().to_string()));
        count(&[], Duration::from_millis(1));
        assert_eq!(
            value(took),
            Some(SERIES.len().to_string()),
            "nobody was asked"
        );
    }
}
