//! `cpu_manager_state`: the file in which the kubelet keeps what the CPU manager has given, byte for byte, so that a
//! node can be taken over from it and handed back.
//!
//! Mirrors upstream's cpumanager/state at v1.36.

mod checkpoint;
mod restore;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use logic_api::pod::{PodView, is_sidecar};
use logic_api::types::{ContainerKind, PodUid};
use thiserror::Error;

use super::assigned::{all_of, assigned_cpus, cpus_of};
use super::cpu_set::{CpuListError, CpuSet};
use super::manager::CpuManager;
use crate::topology::{Assignment, HeldAssignments};

/// What the CPU manager has given, as the file has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuState {
    /// The CPUs of everybody that has none of its own.
    pub default: CpuSet,
    /// The CPUs of each container that does not run on those.
    pub containers: BTreeMap<PodUid, BTreeMap<String, CpuSet>>,
    /// All CPUs of each pod that was given them as a whole.
    pub pods: BTreeMap<PodUid, CpuSet>,
}

/// A file that cannot be the state of this CPU manager.
#[derive(Debug, Error)]
pub enum CpuStateFileError {
    #[error("unexpected end of JSON input")]
    Truncated,
    #[error("it does not read as a state of the CPU manager")]
    Malformed(#[source] serde_json::Error),
    /// A field is of another type.
    #[error("its field {0:?} is none of a state of the CPU manager")]
    Field(&'static str),
    #[error("checkpoint is corrupted")]
    Checksum,
    #[error(
        "failed to migrate checkpoint from v1 to v2: containerID '{0}' not found in initial \
         containers list"
    )]
    UnknownContainer(String),
    #[error("configured policy {configured:?} differs from state checkpoint policy {found:?}")]
    OtherPolicy {
        configured: &'static str,
        found: String,
    },
    #[error("could not parse default cpu set {text:?}")]
    DefaultSet {
        text: String,
        #[source]
        error: CpuListError,
    },
    #[error("could not parse cpuset {text:?} for container {container:?} in pod \"{pod}\"")]
    ContainerSet {
        text: String,
        container: String,
        pod: PodUid,
        #[source]
        error: CpuListError,
    },
}

/// A state that cannot be on this machine with these settings.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CpuStateError {
    #[error("default cpuset cannot be empty")]
    NoDefault,
    #[error(
        "some of strictly reserved cpus: \"{reserved}\" are present in defaultCpuSet: \"{default}\""
    )]
    Reserved { reserved: CpuSet, default: CpuSet },
    #[error("not all reserved cpus: \"{reserved}\" are present in defaultCpuSet: \"{default}\"")]
    NotReserved { reserved: CpuSet, default: CpuSet },
    #[error(
        "pod: {pod}, container: {container} cpuset: \"{own}\" overlaps with default cpuset \
         \"{default}\""
    )]
    Overlap {
        pod: PodUid,
        container: String,
        own: CpuSet,
        default: CpuSet,
    },
    #[error(
        "current set of available CPUs \"{machine}\" doesn't match with CPUs in state \"{known}\""
    )]
    OtherMachine { machine: CpuSet, known: CpuSet },
}

impl CpuState {
    /// What each pod holds by this state. Of a pod that is known, the containers that share its CPUs have none of their
    /// own; of one that is not, each has what the file names, and the pod all of its CPUs.
    pub fn held(&self, pods: &BTreeMap<PodUid, Arc<Pod>>) -> HeldAssignments {
        let uids = self.containers.keys().chain(self.pods.keys());
        let of_pod = |uid: &PodUid| {
            let assigned = self.assignment(uid, pods.get(uid).map(Arc::as_ref));
            (uid.clone(), Arc::new(assigned))
        };
        let held = uids.map(of_pod);
        held.filter(|(_, assigned)| !assigned.is_empty()).collect()
    }

    fn assignment(&self, uid: &PodUid, pod: Option<&Pod>) -> Assignment {
        let mut assigned = Assignment::default();
        let whole = self.pods.get(uid);
        for (name, cpus) in self.containers.get(uid).into_iter().flatten() {
            let shares = whole.is_some() && pod.is_some_and(|pod| shares(pod, name));
            if !shares {
                assigned.assign(name, assigned_cpus(cpus));
            }
        }
        if let Some(whole) = whole {
            let lasting = assigned.containers.iter();
            let lasting = lasting.filter(|(name, _)| pod.is_some_and(|pod| !passes(pod, name)));
            let own = lasting.map(|(_, own)| cpus_of(own));
            let own = own.fold(CpuSet::default(), |all, cpus| all.union(&cpus));
            assigned.pod = assigned_cpus(&whole.difference(&own));
        }
        assigned
    }
}

impl CpuManager {
    /// The state of what pods hold. Containers that share their pod's CPUs are named in it if the pod is known.
    pub fn state(&self, held: &HeldAssignments, pods: &BTreeMap<PodUid, Arc<Pod>>) -> CpuState {
        let mut state = CpuState {
            default: self.shared(held),
            ..CpuState::default()
        };
        for (uid, assigned) in held {
            let own = assigned.containers.iter();
            let own = own.map(|(name, own)| (name.clone(), cpus_of(own)));
            let mut containers: BTreeMap<String, CpuSet> =
                own.filter(|(_, cpus)| !cpus.is_empty()).collect();
            let rest = cpus_of(&assigned.pod);
            if !rest.is_empty() {
                let names = pods
                    .get(uid)
                    .into_iter()
                    .flat_map(|pod| pod.all_containers());
                for (_, container) in names {
                    let own = containers.entry(container.name.clone());
                    own.or_insert_with(|| rest.clone());
                }
                state.pods.insert(uid.clone(), all_of(assigned));
            }
            if !containers.is_empty() {
                state.containers.insert(uid.clone(), containers);
            }
        }
        state
    }
}

/// Whether a container runs on what its pod's containers share.
fn shares(pod: &Pod, name: &str) -> bool {
    let mut containers = pod.all_containers();
    let known = containers.find(|(_, container)| container.name == name);
    known.is_some_and(|(_, container)| !passes(pod, name) && !super::demand::qualifies(container))
}

/// Whether a container ends before the others begin.
fn passes(pod: &Pod, name: &str) -> bool {
    let mut containers = pod.all_containers();
    containers.any(|(kind, container)| {
        container.name == name && kind == ContainerKind::Init && !is_sidecar(container)
    })
}
