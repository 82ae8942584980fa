//! Whether a pod may run on this node, with upstream's reason where it may not.
//!
//! [`admit`] checks in upstream's order: pressure, kernel settings, exclusive resources ([`logic_placement::topology`]),
//! system, resources and placement (`fit`, `affinity`, `ports`, `taints`), AppArmor, gates, declared features, shutdown.
//! A critical pod that does not fit preempts others (`preemption`). A pod that already runs is adopted: an admitted pod
//! is not checked again. What each pod has to itself comes in as data, and what this one is assigned goes out with
//! [`AdmissionDecision::Admit`].
//! Mirrors upstream's pkg/kubelet/lifecycle/predicate.go, the admit handlers of kubelet.go,
//! pkg/kubelet/preemption and the eviction and shutdown managers' `Admit` at v1.36.

mod affinity;
mod features;
mod fit;
mod ports;
mod preemption;
mod taints;

use std::collections::BTreeSet;

pub use features::change_not_supported;
pub use fit::Insufficient;
use k8s_openapi::api::core::v1::Pod;
use logic_api::pod::PodView;
use logic_api::pod::requests::{self, OverheadPolicy, RequestBasis, ResourceAmounts};
use logic_api::text::sysctls::SysctlForbidden;
use logic_api::types::{PodFailure, PodUid};
use logic_placement::devices::{DeviceInventory, DevicePreferences, PreferenceQuestion};
use logic_placement::topology::{
    Assignment, AssignmentError, HeldAssignments, PlacementCounts, TopologyAdmission,
    TopologyManager,
};
use logic_resources::node::{NodeFacts, Support};
use logic_resources::thresholds::{PressureCondition, Signal};
use logic_volumes::resolve::event_reasons::ATTACH_LIMIT;
pub use preemption::{is_preemptable, preempted};

/// The input of an admission decision.
#[derive(Clone, Copy, Debug)]
pub struct Admission<'a> {
    pub pod: &'a Pod,
    /// The other active pods with what they are allocated; the pod itself among them is passed over.
    pub others: &'a [&'a Pod],
    /// The sum of the other pods' requests ([`total_requests`]), if the caller has computed it; none computes it here.
    pub used: Option<&'a ResourceAmounts>,
    pub node: &'a NodeFacts,
    /// Assigns what a pod has to itself.
    pub topology: &'a TopologyManager,
    /// What each pod has to itself; this one as well, if an earlier decision has assigned it something.
    pub held: &'a HeldAssignments,
    /// The devices of device plugins.
    pub devices: &'a DeviceInventory,
    /// What device plugins have answered about this pod.
    pub preferences: &'a DevicePreferences,
    /// The signals that the node is under pressure of.
    pub pressures: &'a BTreeSet<Signal>,
    pub shutting_down: NodeShutdown,
    pub standing: PodPresence,
}

/// Whether the node shuts down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeShutdown {
    Yes,
    #[default]
    No,
}

/// Whether the node has seen the pod before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodPresence {
    #[default]
    New,
    /// Something of it already runs here, or has: it is adopted.
    Running,
}

/// The decision about one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdmissionDecision {
    /// With what the pod holds from now on.
    Admit(Assignment),
    /// The pod fails for good; [`event_message`] is the event's text.
    Reject(PodFailure),
    /// Ask again when something has changed.
    Defer { why: String },
    /// Ask again with the answers of device plugins to these questions.
    Ask(Vec<PreferenceQuestion>),
    /// May run when these are gone; each of them fails with `failure`.
    Preempt {
        victims: Vec<PodUid>,
        failure: PodFailure,
    },
}

/// A decision, and what is counted of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionOutcome {
    pub decision: AdmissionDecision,
    /// Steps of the counters of placement; nothing where the topology manager was not asked, or is asked again.
    pub counts: PlacementCounts,
}

/// The prefix of a rejected pod's status message.
const REJECTED: &str = "Pod was rejected: ";

/// The reasons that rejections are counted by (upstream's `admissionRejectionReasons`).
const COUNTED: [&str; 21] = [
    "AppArmor",
    "PodOSSelectorNodeLabelDoesNotMatch",
    "PodOSNotSupported",
    "InvalidNodeInfo",
    "InitContainerRestartPolicyForbidden",
    "SupplementalGroupsPolicyNotSupported",
    "UnexpectedAdmissionError",
    "UnknownReason",
    "UnexpectedPredicateFailureType",
    "OutOfcpu",
    "OutOfmemory",
    "OutOfephemeral-storage",
    "OutOfpods",
    "PodLevelResourcesNotSupported",
    "PodFeatureUnsupported",
    "node(s) had taints that the pod didn't tolerate",
    "Evicted",
    "SysctlForbidden",
    "TopologyAffinityError",
    "NodeShutdown",
    "VolumeAttachmentLimitExceeded",
];

/// A reason of a bounded set: what pods ask for must not make new labels.
pub fn counted_reason(reason: &str) -> &'static str {
    let known = COUNTED.iter().find(|known| **known == reason);
    match known {
        Some(known) => known,
        None if reason.starts_with("OutOf") => "OutOfExtendedResources",
        None => "Other",
    }
}

/// The failure of a pod whose volumes exceed a limit of the node.
pub fn no_room_for_volumes(message: &str) -> PodFailure {
    PodFailure {
        reason: ATTACH_LIMIT.to_owned(),
        message: format!("{REJECTED}{message}"),
        disruption: None,
        ..PodFailure::default()
    }
}

/// The text of the event of a rejection, whose reason is the failure's: the message without its beginning.
pub fn event_message(failure: &PodFailure) -> &str {
    let message = failure.message.as_str();
    message.strip_prefix(REJECTED).unwrap_or(message)
}

/// Decides whether the pod may run.
pub fn admit(input: &Admission<'_>) -> AdmissionOutcome {
    if input.standing == PodPresence::Running {
        let Admission { pod, held, .. } = *input;
        return AdmissionOutcome {
            decision: AdmissionDecision::Admit(kept(input)),
            counts: input.topology.running_counts(pod, held, input.devices),
        };
    }
    let Evaluation { fit, counts } = evaluate(input);
    let decision = match (fit, awaited(input)) {
        (Ok(_), Some(why)) => AdmissionDecision::Defer { why },
        (Ok(Fit { victims, assigned }), None) if victims.is_empty() => {
            AdmissionDecision::Admit(assigned)
        }
        (Ok(Fit { victims, .. }), None) => AdmissionDecision::Preempt {
            victims,
            failure: preempted(),
        },
        (Err(Refusal::Undecided(questions)), _) => AdmissionDecision::Ask(questions),
        (Err(Refusal::Failed(failure)), _) => AdmissionDecision::Reject(rejected(failure)),
    };
    AdmissionOutcome { decision, counts }
}

fn rejected(failure: PodFailure) -> PodFailure {
    let message = format!("{REJECTED}{}", failure.message);
    PodFailure { message, ..failure }
}

/// The failure of an admitted pod that does not get what it was assigned.
pub fn not_assigned(error: &AssignmentError) -> PodFailure {
    rejected(unassigned(error))
}

/// Why a pod does not fit now.
#[derive(Debug)]
pub(crate) enum Refusal {
    Failed(PodFailure),
    /// Device plugins are to be asked these questions first.
    Undecided(Vec<PreferenceQuestion>),
}

impl From<PodFailure> for Refusal {
    fn from(failure: PodFailure) -> Self {
        Self::Failed(failure)
    }
}

/// How a pod fits on the node.
#[derive(Debug)]
pub(crate) struct Fit {
    /// The pods that have to be preempted first. What the pod is assigned then is decided when they are gone.
    pub(crate) victims: Vec<PodUid>,
    pub(crate) assigned: Assignment,
}

/// Whether the pod fits, and what is counted of it.
#[derive(Debug)]
pub(crate) struct Evaluation {
    pub(crate) fit: Result<Fit, Refusal>,
    /// Nothing of a pod that waits for the end of others: it is evaluated again.
    pub(crate) counts: PlacementCounts,
}

/// How the pod fits, or why it may not run. No pod is preempted for one that would be refused all the same, so what
/// upstream checks after preemption is checked before it is carried out. What is assigned is counted even if the pod is
/// refused afterwards, as upstream's managers count it then.
pub(crate) fn evaluate(input: &Admission<'_>) -> Evaluation {
    if let Err(failure) = before_placement(input) {
        return Evaluation {
            fit: Err(failure.into()),
            counts: PlacementCounts::new(),
        };
    }
    let TopologyAdmission { outcome, counts } = assign(input);
    let assigned = outcome.map_err(|error| match error {
        AssignmentError::Undecided(questions) => Refusal::Undecided(questions),
        error @ (AssignmentError::TopologyAffinity { .. }
        | AssignmentError::PodLevelTopologyAffinity { .. }
        | AssignmentError::Refused { .. }
        | AssignmentError::Unexpected(_)) => Refusal::Failed(unassigned(&error)),
    });
    let fit = assigned.and_then(|assigned| after_placement(input, assigned));
    let waits = matches!(&fit, Ok(Fit { victims, .. }) if !victims.is_empty());
    Evaluation {
        fit,
        counts: if waits { Vec::new() } else { counts },
    }
}

fn before_placement(input: &Admission<'_>) -> Result<(), PodFailure> {
    without_pressure(input)?;
    let allowed = input.node.sysctls.admits(input.pod);
    allowed.map_err(|error| refuse(SysctlForbidden::REASON, error.to_string()))
}

fn after_placement(input: &Admission<'_>, assigned: Assignment) -> Result<Fit, Refusal> {
    of_this_system(input)?;
    let victims = place(input)?;
    features::app_armor(input.pod, input.node)?;
    features::gates(input.pod, input.node)?;
    features::declared(input.pod, input.node)?;
    match input.shutting_down {
        NodeShutdown::No => Ok(Fit { victims, assigned }),
        NodeShutdown::Yes => {
            let message = "Pod was rejected as the node is shutting down.";
            Err(refuse("NodeShutdown", message).into())
        }
    }
}

fn refuse(reason: &str, message: impl Into<String>) -> PodFailure {
    PodFailure {
        reason: reason.to_owned(),
        message: message.into(),
        disruption: None,
        ..PodFailure::default()
    }
}

/// What the pod gets to itself. While it waits for devices nothing can be assigned, and nothing is refused.
fn assign(input: &Admission<'_>) -> TopologyAdmission {
    if awaited(input).is_some() {
        return TopologyAdmission {
            outcome: Ok(kept(input)),
            counts: PlacementCounts::new(),
        };
    }
    let Admission { pod, held, .. } = *input;
    let (devices, preferences) = (input.devices, input.preferences);
    let topology = input.topology;
    topology.admit_with_devices(pod, held, devices, preferences)
}

fn unassigned(error: &AssignmentError) -> PodFailure {
    PodFailure {
        detail: error.hints().map(str::to_owned),
        ..refuse(error.reason(), error.to_string())
    }
}

/// What the pod holds already.
fn kept(input: &Admission<'_>) -> Assignment {
    let own = input.held.get(&input.pod.uid());
    own.map(|own| Assignment::clone(own)).unwrap_or_default()
}

/// What the pod has to wait for: devices that were here before a restart are not missing while their
/// plugin comes back.
fn awaited(input: &Admission<'_>) -> Option<String> {
    let asked = requests::pod_requests(input.pod, RequestBasis::Spec, OverheadPolicy::Left);
    let name = asked
        .keys()
        .find(|name| input.node.awaited.contains(*name))?;
    Some(format!("the devices of {name} have not come back yet"))
}

/// A node under pressure takes critical pods, and under memory pressure alone those that ask for memory
/// or tolerate it.
fn without_pressure(input: &Admission<'_>) -> Result<(), PodFailure> {
    if input.pressures.is_empty() || input.pod.is_critical() {
        return Ok(());
    }
    let conditions: BTreeSet<_> = input.pressures.iter().map(|s| s.condition()).collect();
    if conditions == BTreeSet::from([PressureCondition::MemoryPressure])
        && taints::tolerates_memory_pressure(input.pod)
    {
        return Ok(());
    }
    let words: Vec<&str> = conditions
        .iter()
        .map(|condition| condition.as_str())
        .collect();
    let list = words.join(" ");
    let message = format!("The node had condition: [{list}]. ");
    Err(refuse(logic_resources::eviction::REASON, message))
}

/// What room on the node would not help.
fn of_this_system(input: &Admission<'_>) -> Result<(), PodFailure> {
    let Admission { pod, node, .. } = *input;
    if pod
        .labels()
        .get(logic_resources::node::OS)
        .is_some_and(|os| *os != node.os)
    {
        return Err(refuse(
            "PodOSSelectorNodeLabelDoesNotMatch",
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
        ));
    }
    let os = pod.spec().and_then(|spec| spec.os.as_ref());
    if os.is_some_and(|os| os.name != node.os) {
        return Err(refuse(
            "PodOSNotSupported",
            "Failed to admit pod as the OS field doesn't match node OS",
        ));
    }
    let policy = pod
        .security()
        .and_then(|s| s.supplemental_groups_policy.as_deref());
    if policy == Some("Strict") && node.supplemental_groups_policy == Support::No {
        return Err(refuse(
            "SupplementalGroupsPolicyNotSupported",
            "SupplementalGroupsPolicy=Strict is not supported in this node",
        ));
    }
    Ok(())
}

/// Whether there is room and the node is the right one. The first thing that is missing is the reason; a
/// critical pod that misses nothing but room takes it from others.
fn place(input: &Admission<'_>) -> Result<Vec<PodUid>, PodFailure> {
    let others = beside(input.pod, input.others);
    let mut missing = fit::insufficient(input, &others);
    missing.retain(|missing| !input.node.awaited.contains(&missing.resource));
    let elsewhere = misplaced(input.pod, &others, input.node);
    if missing.is_empty() && elsewhere.is_none() {
        return Ok(Vec::new());
    }
    let first = missing.first().map(Insufficient::failure);
    match elsewhere {
        None if input.pod.is_critical() => preemption::make_room(input.pod, &others, &missing),
        Some(failure) if input.pod.is_critical() => Err(failure),
        elsewhere => Err(first.or(elsewhere).expect("one of them is there")),
    }
}

/// The resources that a running pod counts with.
pub fn total_requests(pod: &Pod) -> ResourceAmounts {
    requests::pod_requests(pod, RequestBasis::Status, OverheadPolicy::Counted)
}

/// The pods beside this one, in an order that does not depend on how they were listed.
fn beside<'a>(pod: &Pod, others: &[&'a Pod]) -> Vec<&'a Pod> {
    let uid = |pod: &'a Pod| pod.metadata.uid.as_deref();
    let own = pod.metadata.uid.as_deref();
    let mut beside: Vec<_> = others.iter().copied().filter(|p| uid(p) != own).collect();
    beside.sort_by(|a, b| uid(a).cmp(&uid(b)));
    beside
}

/// Why the pod would not belong here even on an empty node.
fn misplaced(pod: &Pod, others: &[&Pod], node: &NodeFacts) -> Option<PodFailure> {
    let predicate = |name: &str, why: &str| refuse(name, format!("Predicate {name} failed: {why}"));
    if !affinity::matches(pod, &node.name, &node.labels) {
        let why = "node(s) didn't match Pod's node affinity/selector";
        return Some(predicate("NodeAffinity", why));
    }
    let wanted = pod.spec().and_then(|spec| spec.node_name.as_deref());
    if wanted.is_some_and(|name| !name.is_empty() && name != node.name) {
        let why = "node(s) didn't match the requested node name";
        return Some(predicate("NodeName", why));
    }
    if ports::conflict(pod, others) {
        let why = "node(s) didn't have free ports for the requested pod ports";
        return Some(predicate("NodePorts", why));
    }
    if !pod.is_static() && taints::is_evicted_by_taints(pod, &node.taints) {
        let why = "node(s) had taints that the pod didn't tolerate";
        return Some(predicate("TaintToleration", why));
    }
    None
}

#[cfg(test)]
mod tests;
