//! The CPU manager: which CPUs a container has to itself, which ones it shares, and where they lie.
//!
//! Mirrors upstream's cpumanager/cpu_manager.go and policy_static.go at v1.36. Upstream's policy keeps a state; here
//! what every pod holds comes with each request, and the default set is what nobody holds. Three differences: a container
//! or pod that holds CPUs already keeps them without being judged again; CPUs of init containers that are used again
//! count as available for `full-pcpus-only`; and each CPU is given once, however the machine is built.

use k8s_openapi::api::core::v1::{Container, Pod};
use logic_api::pod::{PodView, is_sidecar};
use logic_api::types::ContainerKind;

use super::assigned::{all_held, cpus_of};
use super::cpu_set::CpuSet;
use super::demand::{CpuDemand, qualifies};
use super::machine::CpuMachine;
use super::policy::{CpuManagerError, CpuPolicy, CpuSettings, ExclusiveQuota, StaticPolicy};
use crate::topology::{Assignment, HeldAssignments};

/// The CPU manager.
#[derive(Debug)]
pub struct CpuManager {
    /// None where the policy is none.
    pub(super) policy: Option<StaticPolicy>,
    pub(super) demand: CpuDemand,
    quota: ExclusiveQuota,
}

impl CpuManager {
    /// The manager of a machine's CPUs.
    ///
    /// # Errors
    ///
    /// The settings are wrong, or do not suit the machine.
    pub fn new(settings: &CpuSettings<'_>, machine: CpuMachine) -> Result<Self, CpuManagerError> {
        let unknown = || CpuManagerError::UnknownPolicy(settings.policy.to_owned());
        let policy = match CpuPolicy::from_name(settings.policy).ok_or_else(unknown)? {
            CpuPolicy::None if settings.options.is_empty() => None,
            CpuPolicy::None => {
                let options = settings.options.iter();
                let options: Vec<_> = options.map(|(name, on)| format!("{name}:{on}")).collect();
                return Err(CpuManagerError::OptionsWithoutPolicy(options.join(" ")));
            }
            CpuPolicy::Static => Some(StaticPolicy::new(settings, machine)?),
        };
        Ok(Self::with_policy(settings, policy))
    }

    pub(super) fn with_policy(settings: &CpuSettings<'_>, policy: Option<StaticPolicy>) -> Self {
        Self {
            policy,
            demand: CpuDemand {
                pod_level: settings.pod_level,
            },
            quota: settings.quota,
        }
    }

    /// Which policy it has.
    pub fn policy(&self) -> CpuPolicy {
        match self.policy {
            None => CpuPolicy::None,
            Some(_) => CpuPolicy::Static,
        }
    }

    /// The CPUs that containers may have to themselves: none without a policy.
    pub fn allocatable(&self) -> CpuSet {
        self.policy
            .as_ref()
            .map(StaticPolicy::allocatable)
            .unwrap_or_default()
    }

    /// The CPUs of everybody that has none of its own; empty without a policy, which is no constraint.
    pub fn shared(&self, held: &HeldAssignments) -> CpuSet {
        let policy = self.policy.as_ref();
        policy
            .map(|policy| policy.shared(&all_held(held)))
            .unwrap_or_default()
    }

    /// The CPUs that a container runs on: its own ones, those that its pod's containers share, or those of everybody.
    /// Empty without a policy, which is no constraint.
    pub fn affinity(&self, pod: &Pod, container: &str, held: &HeldAssignments) -> CpuSet {
        let given = self.given(pod, container, held);
        match given.is_empty() {
            true => self.shared(held),
            false => given,
        }
    }

    /// The same without those of everybody: what the container is assigned, as upstream's state has it.
    pub fn given(&self, pod: &Pod, container: &str, held: &HeldAssignments) -> CpuSet {
        if self.policy.is_none() {
            return CpuSet::default();
        }
        let of_pod = held.get(&pod.uid());
        let own = of_pod.and_then(|assigned| assigned.containers.get(container));
        let own = own.map(cpus_of).filter(|cpus| !cpus.is_empty());
        let is_known = pod
            .all_containers()
            .any(|(_, known)| known.name == container);
        let of_pod = || of_pod.map(|assigned| self.shared_by_pod(pod, assigned));
        let of_pod = || of_pod().filter(|cpus| is_known && !cpus.is_empty());
        own.or_else(of_pod).unwrap_or_default()
    }

    /// What the containers of a pod share. An assignment that is read from the state file has all of the pod's CPUs
    /// there, with those that its containers have to themselves.
    fn shared_by_pod(&self, pod: &Pod, assigned: &Assignment) -> CpuSet {
        let lasting = pod
            .all_containers()
            .filter(|(kind, own)| *kind != ContainerKind::Init || is_sidecar(own));
        let exclusive = lasting.filter(|(_, own)| self.demand.of_container(pod, own) > 0);
        let own = exclusive.filter_map(|(_, own)| assigned.containers.get(&own.name));
        own.fold(cpus_of(&assigned.pod), |shared, own| {
            shared.difference(&cpus_of(own))
        })
    }

    /// Whether a container has CPUs that no other container runs on, not even one of its pod.
    pub fn is_exclusive(&self, pod: &Pod, container: &Container, held: &HeldAssignments) -> bool {
        let assigned = held.get(&pod.uid());
        let own = assigned.and_then(|assigned| assigned.containers.get(&container.name));
        let has_own = own.is_some_and(|own| !own.cpus.is_empty());
        has_own && (!self.demand.is_pod_level(pod) || qualifies(container))
    }

    /// Whether a container runs without a CFS quota, as its CPUs are its own.
    pub fn container_has_no_quota(
        &self,
        pod: &Pod,
        container: &Container,
        held: &HeldAssignments,
    ) -> bool {
        self.quota == ExclusiveQuota::Off && self.is_exclusive(pod, container, held)
    }

    /// Whether a pod runs without a CFS quota: one of its containers does; every one, where the quota is that of its
    /// pod-level resources.
    pub fn pod_has_no_quota(&self, pod: &Pod, held: &HeldAssignments) -> bool {
        let mut containers = pod.all_containers().map(|(_, container)| container);
        let has_none = |container: &Container| self.container_has_no_quota(pod, container, held);
        match self.demand.is_pod_level(pod) {
            true => containers.all(has_none),
            false => containers.any(has_none),
        }
    }
}
