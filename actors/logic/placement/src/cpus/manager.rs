//! The CPU manager: which CPUs a container has to itself, which ones it shares, and where they lie.
//!
//! Mirrors upstream's cpumanager/cpu_manager.go and policy_static.go at v1.36. Upstream's policy keeps a state; here
//! what every pod holds comes with each request, and the default set is what nobody holds. Three differences: a container
//! or pod that holds CPUs already keeps them without being judged again; CPUs of init containers that are used again
//! count as available for `full-pcpus-only`; and each CPU is given once, however the machine is built.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use logic_api::pod::{PodView, is_sidecar};
use logic_api::types::ContainerKind;

use super::cpu_set::CpuSet;
use super::demand::{CpuDemand, qualifies};
use super::hints::HintFinder;
use super::machine::CpuMachine;
use super::options::CpuPolicyOption;
use super::policy::{CpuManagerError, CpuPolicy, CpuSettings, ExclusiveQuota, StaticPolicy};
use crate::topology::{
    AssignedResources, Assignment, AssignmentError, AssignmentRequest, HeldAssignments,
    HintProvider, NumaMask, ProviderHints, ResourceHints, TopologyHint,
};

/// The resource of the hints.
const RESOURCE: &str = "cpu";

/// The CPU manager.
#[derive(Debug)]
pub struct CpuManager {
    /// None where the policy is none.
    pub(super) policy: Option<StaticPolicy>,
    pub(super) demand: CpuDemand,
    quota: ExclusiveQuota,
}

impl CpuManager {
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
        if self.policy.is_none() {
            return CpuSet::default();
        }
        let of_pod = held.get(&pod.uid());
        let own = of_pod.and_then(|assigned| assigned.containers.get(container));
        let own = own.map(cpus_of).filter(|cpus| !cpus.is_empty());
        let is_lasting = pod
            .all_containers()
            .any(|(_, known)| known.name == container);
        let of_pod = || of_pod.map(|assigned| cpus_of(&assigned.pod));
        let of_pod = || of_pod().filter(|cpus| is_lasting && !cpus.is_empty());
        own.or_else(of_pod).unwrap_or_else(|| self.shared(held))
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

    /// The CPUs that nobody has been assigned and that may be.
    fn available(policy: &StaticPolicy, request: &AssignmentRequest<'_>) -> CpuSet {
        let taken = all_held(request.held).union(&all_of(request.assigned));
        policy.allocatable().difference(&taken)
    }

    /// Allocates by the hint: from its nodes first, the rest from anywhere.
    fn allocate(
        policy: &StaticPolicy,
        available: &CpuSet,
        count: u32,
        hint: TopologyHint,
    ) -> Result<CpuSet, AssignmentError> {
        let near = hint.nodes.map(|nodes| near(policy, nodes));
        let near = near.unwrap_or_default().intersection(available);
        let aligned = count.min(near.len());
        let first = policy.take(&near, aligned).map_err(unexpected)?;
        let rest = available.difference(&first);
        let rest = policy.take(&rest, count - aligned).map_err(unexpected)?;
        Ok(first.union(&rest))
    }

    /// Whole cores are available for so many CPUs, if they have to be whole.
    fn check_cores(
        policy: &StaticPolicy,
        available: &CpuSet,
        count: u32,
    ) -> Result<(), AssignmentError> {
        let per_core = policy.machine.cpus_per_core();
        let whole = available.difference(&policy.reserved_cores).len();
        let message = match policy.has(CpuPolicyOption::FullPhysicalCpusOnly) {
            true if !count.is_multiple_of(per_core) => smt_multiple(count, per_core),
            true if count > whole => smt_available(whole, count, per_core),
            true | false => return Ok(()),
        };
        Err(AssignmentError::Refused {
            reason: "SMTAlignmentError",
            message,
        })
    }

    /// The parts of a pod with pod-level resources, out of the CPUs of the whole pod.
    fn divide(
        &self,
        policy: &StaticPolicy,
        pod: &Pod,
        whole: &CpuSet,
    ) -> Result<Assignment, AssignmentError> {
        let mut assigned = Assignment::default();
        let mut rest = whole.clone();
        for (kind, container) in pod.all_containers() {
            let count = self.demand.of_container(pod, container);
            let passes = kind == ContainerKind::Init && !is_sidecar(container);
            let own = match count {
                0 if passes => rest.clone(),
                0 => continue,
                count => policy.take(&rest, count).map_err(unexpected)?,
            };
            if !passes {
                rest = rest.difference(&own);
            }
            assigned.assign(&container.name, assigned_cpus(&own));
        }
        assigned.pod = assigned_cpus(&rest);
        Ok(assigned)
    }
}

impl HintProvider for CpuManager {
    fn hints(&self, request: &AssignmentRequest<'_>, container: &Container) -> ProviderHints {
        let count = self.demand.of_container(request.pod, container);
        let Some(policy) = self.asked(request, count) else {
            return ProviderHints::new();
        };
        let finder = HintFinder::new(policy, count);
        let held = request.held.get(&request.pod.uid());
        let kept = held.and_then(|held| held.containers.get(&container.name));
        let kept = kept.map(cpus_of).filter(|cpus| !cpus.is_empty());
        by_resource(match kept {
            Some(kept) if kept.len() != count => Vec::new(),
            Some(kept) => finder.hints(&kept, &CpuSet::default()),
            None => finder.hints(&Self::available(policy, request), &reusable(request)),
        })
    }

    fn pod_hints(&self, request: &AssignmentRequest<'_>) -> ProviderHints {
        let pod = request.pod;
        let count = self.demand.of_pod(pod);
        let Some(policy) = self.asked(request, count) else {
            return ProviderHints::new();
        };
        if self.demand.is_pod_level(pod) && self.demand.check_shared_pool(pod).is_err() {
            return by_resource(Vec::new());
        }
        let held = request.held.get(&pod.uid());
        let kept = held.map(|held| all_of(held)).unwrap_or_default();
        let changes = !self.demand.is_pod_level(pod)
            && pod.all_containers().any(|(_, container)| {
                let own = held.and_then(|held| held.containers.get(&container.name));
                let own = own.map(cpus_of).filter(|cpus| !cpus.is_empty());
                own.is_some_and(|own| own.len() != self.demand.of_container(pod, container))
            });
        let finder = HintFinder::new(policy, count);
        by_resource(match changes {
            true => Vec::new(),
            false if kept.len() == count => finder.hints(&kept, &CpuSet::default()),
            false => finder.hints(&Self::available(policy, request), &kept),
        })
    }

    fn assign(
        &self,
        request: &AssignmentRequest<'_>,
        container: &Container,
        hint: TopologyHint,
    ) -> Result<AssignedResources, AssignmentError> {
        let count = self.demand.of_container(request.pod, container);
        let Some(policy) = self.asked(request, count) else {
            return Ok(AssignedResources::default());
        };
        let held = request.held.get(&request.pod.uid());
        let kept = held.and_then(|held| held.containers.get(&container.name));
        if let Some(kept) = kept.map(cpus_of).filter(|cpus| !cpus.is_empty()) {
            return Ok(assigned_cpus(&kept));
        }
        let available = Self::available(policy, request).union(&reusable(request));
        Self::check_cores(policy, &available, count)?;
        let cpus = Self::allocate(policy, &available, count, hint)?;
        Ok(assigned_cpus(&cpus))
    }

    fn assign_pod(
        &self,
        request: &AssignmentRequest<'_>,
        hint: TopologyHint,
    ) -> Result<Assignment, AssignmentError> {
        let pod = request.pod;
        let count = self.demand.of_pod(pod);
        let Some(policy) = self.asked(request, count) else {
            return Ok(Assignment::default());
        };
        let held = request.held.get(&pod.uid());
        if let Some(held) = held.filter(|held| !all_of(held).is_empty()) {
            return Ok(cpus_alone(held));
        }
        let refused = |message: &str| AssignmentError::Refused {
            reason: "EmptyPodSharedPoolError",
            message: message.to_owned(),
        };
        self.demand.check_shared_pool(pod).map_err(refused)?;
        let available = Self::available(policy, request);
        Self::check_cores(policy, &available, count)?;
        let whole = Self::allocate(policy, &available, count, hint)?;
        self.divide(policy, pod, &whole)
    }
}

impl CpuManager {
    /// The policy, if it has anything to do for this request.
    fn asked(&self, request: &AssignmentRequest<'_>, count: u32) -> Option<&StaticPolicy> {
        let asked = count > 0 && !self.demand.is_left_out(request.pod);
        self.policy.as_ref().filter(|_| asked)
    }
}

/// The CPUs of a hint's nodes; of their whole sockets with `align-by-socket`.
fn near(policy: &StaticPolicy, nodes: NumaMask) -> CpuSet {
    let machine = &policy.machine;
    match policy.has(CpuPolicyOption::AlignBySocket) {
        false => machine.cpus_in_nodes(nodes),
        true => {
            let sockets = machine.sockets_in_nodes(nodes);
            let cpus = sockets.iter().filter_map(|id| machine.sockets().get(id));
            cpus.fold(CpuSet::default(), |all, cpus| all.union(cpus))
        }
    }
}

/// What init containers of this request have had and later containers have not taken again. Sidecars keep theirs.
fn reusable(request: &AssignmentRequest<'_>) -> CpuSet {
    let mut reusable = CpuSet::default();
    for (kind, container) in request.pod.all_containers() {
        let Some(own) = request.assigned.containers.get(&container.name) else {
            continue;
        };
        reusable = match kind == ContainerKind::Init && !is_sidecar(container) {
            true => reusable.union(&cpus_of(own)),
            false => reusable.difference(&cpus_of(own)),
        };
    }
    reusable
}

fn by_resource(hints: Vec<TopologyHint>) -> ProviderHints {
    BTreeMap::from([(RESOURCE.to_owned(), ResourceHints::Possible(hints))])
}

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
fn cpus_alone(held: &Assignment) -> Assignment {
    let mut alone = Assignment {
        pod: assigned_cpus(&cpus_of(&held.pod)),
        ..Assignment::default()
    };
    for (container, own) in &held.containers {
        alone.assign(container, assigned_cpus(&cpus_of(own)));
    }
    alone
}

fn unexpected(error: impl std::fmt::Display) -> AssignmentError {
    AssignmentError::Unexpected(error.to_string())
}

fn smt_multiple(requested: u32, per_core: u32) -> String {
    format!(
        "SMT Alignment Error: requested {requested} cpus not multiple cpus per core = {per_core}"
    )
}

fn smt_available(available: u32, requested: u32, per_core: u32) -> String {
    format!(
        "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {available}, \
         requested CPUs = {requested}, CPUs per core = {per_core}"
    )
}
