//! Whether the node allocates the resources that a pod now desires.
//!
//! Mirrors upstream's allocation_manager.go (`handlePodResourcesResize`, `UpdatePodFromAllocation`) and its
//! resize admit handler at v1.36.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use logic_api::pod::requests::{self, CPU, MEMORY, ResourceAmounts, request, whole};
use logic_api::pod::{PodView, is_sidecar};
use logic_api::quantity::compare;
use logic_api::types::{PodFailure, PodUid};
use logic_placement::devices::{DeviceInventory, DevicePreferences};
use logic_placement::topology::{Assignment, HeldAssignments, PlacementCounts, TopologyManager};
use logic_resources::node::{ExclusiveAllocation, NodeFacts, NodeSwap, PodLevelResize};
use logic_resources::qos::{Qos, pod_qos};
use logic_resources::thresholds::Signal;
use serde::{Deserialize, Serialize};

use super::ResizeRefusal;
use super::change::restarts;
use crate::admission::{self, Admission, Evaluation, Fit, NodeShutdown, PodPresence, Refusal};

/// The resources that the node has allocated to a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AllocatedResources {
    /// The pod-level resources.
    pub pod: Option<ResourceRequirements>,
    /// By name of the app container or sidecar.
    pub containers: BTreeMap<String, ResourceRequirements>,
}

impl AllocatedResources {
    /// Exactly the resources of the pod's spec.
    pub fn of(pod: &Pod) -> Self {
        let own = |c: &Container| (c.name.clone(), c.resources.clone().unwrap_or_default());
        Self {
            pod: pod.spec().and_then(|spec| spec.resources.clone()),
            containers: resizable(pod).map(own).collect(),
        }
    }

    /// Whether anything is allocated. A pod without requests can never request something: its QoS class would change.
    pub fn is_some(&self) -> bool {
        let nothing = ResourceRequirements::default();
        self.pod.is_some() || self.containers.values().any(|own| *own != nothing)
    }
}

/// The input of a resize decision.
#[derive(Clone, Copy, Debug)]
pub struct ResizeInput<'a> {
    /// The pod as its definition has it now.
    pub wanted: &'a Pod,
    pub allocated: &'a AllocatedResources,
    /// The other active pods with what they are allocated.
    pub others: &'a [&'a Pod],
    /// What they hold together, where that is known: one that shrinks holds what it had until it is carried out.
    pub used: Option<&'a ResourceAmounts>,
    pub node: &'a NodeFacts,
    /// Assigns what a pod has to itself.
    pub topology: &'a TopologyManager,
    /// What each pod has to itself, this one as well.
    pub held: &'a HeldAssignments,
    /// The devices of device plugins.
    pub devices: &'a DeviceInventory,
    /// The signals that the node is under pressure of.
    pub pressures: &'a BTreeSet<Signal>,
    pub shutting_down: NodeShutdown,
}

/// The decision about a resize.
#[derive(Clone, Debug, PartialEq)]
pub enum Allocation {
    /// Its spec asks for what is allocated.
    Unchanged,
    Allocated {
        allocated: AllocatedResources,
        /// What the pod has to itself from now on.
        assigned: Assignment,
    },
    /// Is allocated at the price of these, which fail with `failure`.
    Preempt {
        allocated: AllocatedResources,
        victims: Vec<PodUid>,
        failure: PodFailure,
    },
    /// Stays as it is: why, and the message of the condition.
    Refused(ResizeRefusal, String),
}

/// A decision about a resize, and what is counted of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ResizeOutcome {
    pub allocation: Allocation,
    /// Steps of the counters of placement: upstream admits the pod with its new resources.
    pub counts: PlacementCounts,
}

impl From<Allocation> for ResizeOutcome {
    /// Decided without the topology manager.
    fn from(allocation: Allocation) -> Self {
        Self {
            allocation,
            counts: PlacementCounts::new(),
        }
    }
}

/// Decides whether the pod gets its desired resources.
pub fn allocate(input: &ResizeInput<'_>) -> ResizeOutcome {
    if !pod_differs(input.wanted, input.allocated) {
        return Allocation::Unchanged.into();
    }
    if let Some(why) = infeasible(input) {
        return Allocation::Refused(ResizeRefusal::Infeasible, why).into();
    }
    let admission = Admission {
        pod: input.wanted,
        others: input.others,
        used: input.used,
        node: input.node,
        topology: input.topology,
        held: input.held,
        devices: input.devices,
        preferences: &DevicePreferences::NONE,
        pressures: input.pressures,
        shutting_down: input.shutting_down,
        standing: PodPresence::New,
    };
    let allocated = AllocatedResources::of(input.wanted);
    let Evaluation { fit, counts } = admission::evaluate(&admission);
    let allocation = match fit {
        Ok(Fit { victims, assigned }) if victims.is_empty() => Allocation::Allocated {
            allocated,
            assigned,
        },
        Ok(Fit { victims, .. }) => Allocation::Preempt {
            allocated,
            victims,
            failure: admission::preempted(),
        },
        Err(Refusal::Failed(failure)) => {
            Allocation::Refused(ResizeRefusal::Deferred, failure.message)
        }
        // A running pod keeps the devices that it has.
        Err(Refusal::Undecided(_)) => Allocation::Refused(ResizeRefusal::Deferred, String::new()),
    };
    ResizeOutcome { allocation, counts }
}

/// The pod as it is allocated: its spec with the allocated resources.
pub fn apply(pod: &Pod, allocated: &AllocatedResources) -> Pod {
    let mut pod = pod.clone();
    let Some(spec) = pod.spec.as_mut() else {
        return pod;
    };
    spec.resources.clone_from(&allocated.pod);
    let init = spec.init_containers.iter_mut().flatten();
    for container in init.chain(&mut spec.containers) {
        if let Some(resources) = allocated.containers.get(&container.name) {
            let has_some = container.resources.is_some() || !is_empty(resources);
            container.resources = has_some.then(|| resources.clone());
        }
    }
    pod
}

/// Whether the pod's spec differs from its allocation; how an amount is written does not matter.
pub fn pod_differs(pod: &Pod, allocated: &AllocatedResources) -> bool {
    let none = ResourceRequirements::default();
    let differs = |wanted: Option<&ResourceRequirements>, has: Option<&ResourceRequirements>| {
        !is_same(wanted.unwrap_or(&none), has.unwrap_or(&none))
    };
    if differs(
        pod.spec().and_then(|s| s.resources.as_ref()),
        allocated.pod.as_ref(),
    ) {
        return true;
    }
    // A container without an allocation has what its spec asks for.
    resizable(pod).any(|container| {
        let has = allocated.containers.get(&container.name);
        has.is_some_and(|has| differs(container.resources.as_ref(), Some(has)))
    })
}

/// Why the requested resources can never be allocated on this node.
fn infeasible(input: &ResizeInput<'_>) -> Option<String> {
    let ResizeInput { wanted, node, .. } = *input;
    if wanted.is_static() {
        return Some("In-place resize of static-pods is not supported".to_owned());
    }
    if node.swap == NodeSwap::Limited && changes_swap(wanted, input.allocated) {
        return Some("In-place resize of containers with swap is not supported.".to_owned());
    }
    if node.pod_level_resize == PodLevelResize::Fixed && changes_pod_level(wanted, input.allocated)
    {
        return Some("InPlacePodLevelResourcesVerticalScaling is disabled".to_owned());
    }
    exclusive(input).or_else(|| beyond(wanted, node))
}

/// CPUs and memory that are kept apart for guaranteed pods stay as they are.
fn exclusive(input: &ResizeInput<'_>) -> Option<String> {
    if pod_qos(input.wanted) != Qos::Guaranteed {
        return None;
    }
    let node = input.node;
    let kept = [
        (CPU, node.cpu_manager, "CPU Manager policy \"static\""),
        (
            MEMORY,
            node.memory_manager,
            "Memory Manager policy \"Static\"",
        ),
    ];
    let mut kept = kept
        .into_iter()
        .filter(|(_, by, _)| *by == ExclusiveAllocation::Static);
    let (_, _, policy) = kept.find(|(name, _, _)| changes_request(input, name))?;
    Some(format!(
        "Resize is infeasible for Guaranteed Pods alongside {policy}"
    ))
}

/// More than the whole node has for pods.
fn beyond(wanted: &Pod, node: &NodeFacts) -> Option<String> {
    let too_much = |name: &str| {
        let there = node.allocatable_at_most.get(name);
        let capacity = there.map_or(0, |amount| whole(name, amount));
        let requested = request(wanted, name);
        let message = format!(
            "Node didn't have enough capacity: {name}, requested: {requested}, capacity: {capacity}"
        );
        (requested > capacity).then_some(message)
    };
    too_much(MEMORY).or_else(|| too_much(CPU))
}

fn changes_request(input: &ResizeInput<'_>, name: &str) -> bool {
    resizable(input.wanted).any(|container| {
        let has = input.allocated.containers.get(&container.name);
        let wants = container.resources.as_ref();
        !is_same_amount(requested(wants, name), requested(has, name))
    })
}

/// A container's swap follows from its memory request, and only a new instance gets another share.
fn changes_swap(wanted: &Pod, allocated: &AllocatedResources) -> bool {
    if wanted.is_critical() || pod_qos(wanted) != Qos::Burstable {
        return false;
    }
    resizable(wanted).any(|container| {
        let wants = container.resources.as_ref();
        let has = allocated.containers.get(&container.name);
        let policy = container.resize_policy.as_deref().unwrap_or_default();
        !is_same_amount(requested(wants, MEMORY), requested(has, MEMORY))
            && !restarts(policy, MEMORY)
            && (swaps(wants) || swaps(has))
    })
}

/// Whether the container of a burstable pod has swap: not when it asks for no memory or for all that it may use.
fn swaps(resources: Option<&ResourceRequirements>) -> bool {
    let limit = resources.and_then(|r| r.limits.as_ref()?.get(MEMORY));
    !is_same_amount(requested(resources, MEMORY), limit)
}

fn changes_pod_level(wanted: &Pod, allocated: &AllocatedResources) -> bool {
    let none = ResourceRequirements::default();
    let wants = wanted.spec().and_then(|spec| spec.resources.as_ref());
    !is_same(
        wants.unwrap_or(&none),
        allocated.pod.as_ref().unwrap_or(&none),
    )
}

/// What can be resized: app containers and sidecars.
pub(super) fn resizable(pod: &Pod) -> impl Iterator<Item = &Container> {
    let sidecars = pod.init_containers().iter().filter(|c| is_sidecar(c));
    sidecars.chain(pod.app_containers())
}

fn requested<'a>(resources: Option<&'a ResourceRequirements>, name: &str) -> Option<&'a Quantity> {
    resources?.requests.as_ref()?.get(name)
}

/// An absent amount is zero.
fn is_same_amount(a: Option<&Quantity>, b: Option<&Quantity>) -> bool {
    let read = |quantity: Option<&Quantity>| {
        let parsed = quantity.and_then(requests::parse);
        parsed.unwrap_or(logic_api::quantity::Quantity::zero())
    };
    compare(&read(a), &read(b)).is_eq()
}

fn is_same(a: &ResourceRequirements, b: &ResourceRequirements) -> bool {
    let same_list = |a: &Option<BTreeMap<String, Quantity>>, b: &Option<BTreeMap<_, _>>| {
        let (a, b) = (requests::read(a.as_ref()), requests::read(b.as_ref()));
        let mut pairs = a.iter().zip(&b);
        a.len() == b.len() && pairs.all(|(a, b)| a.0 == b.0 && compare(a.1, b.1).is_eq())
    };
    let claims = |r: &ResourceRequirements| r.claims.clone().unwrap_or_default();
    same_list(&a.requests, &b.requests) && same_list(&a.limits, &b.limits) && claims(a) == claims(b)
}

fn is_empty(resources: &ResourceRequirements) -> bool {
    is_same(resources, &ResourceRequirements::default())
}
