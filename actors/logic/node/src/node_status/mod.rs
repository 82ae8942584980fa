//! The node's status as the API shows it: addresses, capacity, conditions, images, versions.
//!
//! [`NodeStatusPolicy`] is the node's configuration, [`NodeStatusFacts`] its observed state, and [`set`] puts both
//! into the object as it is in the API. [`registration`] makes the first object or reconciles an old one, [`patch`]
//! computes the patch, [`lease`] the node's heartbeat. Upstream: pkg/kubelet/nodestatus/setters.go,
//! kubelet_node_status.go (1.36).

mod addresses;
mod conditions;
mod declared;
mod drivers;
mod host;
pub mod lease;
mod machine;
pub(crate) mod patch;
pub mod registration;
mod report_schedule;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

pub use addresses::{host_ips, hostname_is_address, validate};
pub use declared::{declared_features, features_of_change, needed_features};
pub use host::{NodeHostFacts, os_image};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeStatus, Taint};
use logic_api::pod::requests::ResourceAmounts;
use logic_api::types::EventLevel;
use logic_resources::node::{LocalStorage, Support};
use logic_resources::thresholds::{PressureCondition, Signal};
use logic_volumes::{RegisteredDriver, VolumeId};
pub use patch::{changed, patch};
pub use report_schedule::{ReportCause, ReportSchedule};

/// The annotation with the addresses that the operator gave a node whose cloud provider sets the others.
pub const PROVIDED_IP: &str = "alpha.kubernetes.io/provided-node-ip";

/// Until the node's `CSINode` is there, no volume of a driver can be had.
const NO_CSI_NODE: &str = "CSINode is not yet initialized";
/// So long after its start the agent may not know how the runtime and its parts are: until then, what an earlier life
/// said of the node stands (`maxWaitForContainerRuntime`).
const START_GRACE: Duration = Duration::from_secs(30);

/// The runtime counts as gone when it has not answered for so long.
const RUNTIME_DOWN_TIMEOUT: Duration = Duration::from_secs(30);

/// What the node's configuration says about its object and status.
#[derive(Clone, Debug, Default)]
pub struct NodeStatusPolicy {
    pub name: String,
    pub hostname: String,
    /// Where the agent's HTTPS API listens.
    pub port: u16,
    /// The version to report as `nodeInfo.kubeletVersion`.
    pub version: String,
    /// `--node-ip`: none, one, or one of each family.
    pub node_ips: Vec<IpAddr>,
    pub cloud: CloudProvider,
    pub provider_id: String,
    /// The node's own labels and those that the operator gives it: [`logic_resources::node::labels`].
    pub labels: BTreeMap<String, String>,
    /// Taints of a new node: `registerWithTaints`.
    pub taints: Vec<Taint>,
    pub scheduling: Scheduling,
    pub attaching: AttachDetachMode,
    /// `nodeStatusMaxImages`; none for no limit.
    pub max_images: Option<usize>,
    /// The features to declare in the status: [`declared_features`].
    pub declared_features: Vec<String>,
    /// The feature gate `SupplementalGroupsPolicy`.
    pub supplemental_groups_policy: Support,
    pub extended_resources: ExtendedResourcePolicy,
    pub local_storage: LocalStorage,
}

/// Where the node's addresses come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CloudProvider {
    #[default]
    None,
    /// `--cloud-provider=external`: a controller, which also lets pods in.
    External,
}

/// Whether a new node is schedulable: `--register-schedulable`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduling {
    #[default]
    Open,
    Closed,
}

/// Where volumes are attached: `enableControllerAttachDetach`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttachDetachMode {
    #[default]
    Controller,
    Node,
}

/// What is done with extended resources that the node's object has at the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExtendedResourcePolicy {
    /// They are kept until their plugins register.
    #[default]
    Kept,
    /// The node was created anew: their capacity is zero until their plugins register.
    Reset,
}

/// Name, version and conditions of the runtime: CRI's `Version` and `Status`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeStatus {
    pub name: String,
    pub version: String,
    /// CRI's condition `RuntimeReady`.
    pub ready: Option<RuntimeCondition>,
    /// CRI's condition `NetworkReady`.
    pub network: Option<RuntimeCondition>,
    pub handlers: Vec<RuntimeHandler>,
    /// Whether it keeps to `supplementalGroupsPolicy`; none where it does not tell its features.
    pub supplemental_groups_policy: Option<Support>,
}

/// One of the runtime's conditions; the words are CRI's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeCondition {
    pub name: String,
    pub state: Support,
    pub reason: String,
    pub message: String,
}

/// A runtime handler and what it can do; the default one has no name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeHandler {
    pub name: String,
    pub recursive_read_only_mounts: Support,
    pub user_namespaces: Support,
}

/// The pressure conditions of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    Memory,
    Disk,
    Pid,
}

impl From<Signal> for Pressure {
    fn from(signal: Signal) -> Self {
        match signal.condition() {
            PressureCondition::MemoryPressure => Self::Memory,
            PressureCondition::DiskPressure => Self::Disk,
            PressureCondition::PIDPressure => Self::Pid,
        }
    }
}

/// An image that is present.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeImage {
    pub id: String,
    /// Its digests, then its tags, each with its repository.
    pub names: Vec<String>,
    pub bytes: u64,
}

/// The node's capacity, and what of it is allocatable to pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeResources {
    pub capacity: ResourceAmounts,
    pub allocatable: ResourceAmounts,
}

/// The devices of device plugins that the node has, in numbers by resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtendedResources {
    pub capacity: BTreeMap<String, usize>,
    pub allocatable: BTreeMap<String, usize>,
    /// Resources that were there and are no more: the status shows none of them.
    pub removed: BTreeSet<String>,
}

/// Which volumes a controller must not take away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumesInUse {
    /// These, and perhaps others: it is not known yet what was mounted before.
    AtLeast(BTreeSet<VolumeId>),
    Exactly(BTreeSet<VolumeId>),
}

/// The node's addresses as detected on the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeAddresses {
    /// Where no address is configured: of the node's name, or of the default route.
    pub found: Option<IpAddr>,
    /// Why the configured ones cannot be used, or none was found; empty where all is well.
    pub problem: String,
}

/// The drivers that registered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegisteredDrivers {
    /// The drivers by name.
    pub there: BTreeMap<String, RegisteredDriver>,
    /// Labels of the node from their topology.
    pub labels: BTreeMap<String, String>,
}

/// Something that is true of the node from now on.
#[derive(Clone, Debug)]
pub enum NodeFact {
    /// The runtime answered; repeated at least every 15 seconds.
    Runtime(Box<RuntimeStatus>),
    /// Why the agent cannot work though the runtime answers, by the failed component: `PLEG`.
    Unhealthy(BTreeMap<String, PartProblem>),
    /// Why volumes cannot be had; none where they can.
    Storage(Option<String>),
    /// Why the node is about to go; none where it stays.
    Shutdown(Option<String>),
    Pressures(BTreeSet<Pressure>),
    Images(Vec<NodeImage>),
    Resources(Box<NodeResources>),
    VolumesInUse(VolumesInUse),
    Drivers(Box<RegisteredDrivers>),
    Addresses(NodeAddresses),
    /// The degraded parts of the agent by name, each with the reason.
    Degraded(BTreeMap<String, String>),
    /// The stuck volumes, each with its name.
    Stuck(Vec<String>),
    /// The ended pods that the runtime does not remove, each with its name and what is left of it.
    StuckPods(Vec<String>),
    /// What the machine does not let the agent enforce, each with the reason.
    Unenforced(Vec<String>),
    /// The devices of device plugins.
    Devices(ExtendedResources),
}

/// Why a part of the agent cannot work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartProblem {
    /// It has not worked since the start, and may be about to.
    NotYet(String),
    Failing(String),
}

/// When a fact is reported to the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReportUrgency {
    /// Nothing changed.
    Never,
    /// With the next periodic status update.
    Later,
    Now,
}

/// The runtime's last status.
#[derive(Clone, Debug)]
struct LastRuntimeStatus {
    /// When it was last ready: only then it counts as up.
    ready_at: Option<Instant>,
    runtime: RuntimeStatus,
}

/// Everything that the node's status is made of.
#[derive(Clone, Debug)]
pub struct NodeStatusFacts {
    host: NodeHostFacts,
    resources: NodeResources,
    addresses: NodeAddresses,
    runtime: Option<LastRuntimeStatus>,
    unhealthy: BTreeMap<String, PartProblem>,
    storage: Option<String>,
    shutdown: Option<String>,
    pressures: BTreeSet<Pressure>,
    images: Option<Vec<NodeImage>>,
    in_use: Option<VolumesInUse>,
    drivers: RegisteredDrivers,
    /// Drivers that registered before, and are gone.
    left: BTreeSet<String>,
    degraded: BTreeMap<String, String>,
    stuck: Vec<String>,
    stuck_pods: Vec<String>,
    unenforced: Vec<String>,
    devices: ExtendedResources,
    /// When the first of them came.
    since: Option<Instant>,
}

impl LastRuntimeStatus {
    fn is_up(&self, now: Instant) -> bool {
        self.ready_at
            .is_some_and(|at| now < at + RUNTIME_DOWN_TIMEOUT)
    }
}

impl RuntimeStatus {
    fn is_ready(&self) -> bool {
        let ready = self.ready.as_ref();
        ready.is_some_and(|condition| condition.state == Support::Yes)
    }
}

impl NodeStatusFacts {
    pub fn new(host: NodeHostFacts, resources: NodeResources) -> Self {
        NodeStatusFacts {
            host,
            resources,
            addresses: NodeAddresses::default(),
            runtime: None,
            unhealthy: BTreeMap::new(),
            storage: Some(NO_CSI_NODE.to_owned()),
            shutdown: None,
            pressures: BTreeSet::new(),
            images: None,
            in_use: None,
            drivers: RegisteredDrivers::default(),
            left: BTreeSet::new(),
            degraded: BTreeMap::new(),
            stuck: Vec::new(),
            stuck_pods: Vec::new(),
            unenforced: Vec::new(),
            devices: ExtendedResources::default(),
            since: None,
        }
    }

    /// Whether what isn't known yet may still come, so that its absence is no evidence.
    fn is_starting(&self, now: Instant) -> bool {
        self.since.is_none_or(|since| now < since + START_GRACE)
    }

    /// Takes in a fact; returns when it is to be reported.
    pub fn learn(&mut self, fact: NodeFact, now: Instant) -> ReportUrgency {
        use ReportUrgency::{Later, Now};
        self.since.get_or_insert(now);
        match fact {
            NodeFact::Runtime(runtime) => self.hear_runtime(*runtime, now),
            NodeFact::Unhealthy(why) => put(&mut self.unhealthy, why, Now),
            NodeFact::Storage(why) => put(&mut self.storage, why, Now),
            NodeFact::Shutdown(why) => put(&mut self.shutdown, why, Now),
            NodeFact::Pressures(pressures) => put(&mut self.pressures, pressures, Now),
            NodeFact::Images(images) => put(&mut self.images, Some(images), Later),
            NodeFact::Resources(resources) => put(&mut self.resources, *resources, Now),
            NodeFact::VolumesInUse(volumes) => put(&mut self.in_use, Some(volumes), Now),
            NodeFact::Drivers(drivers) => self.hear_drivers(*drivers),
            NodeFact::Addresses(addresses) => put(&mut self.addresses, addresses, Later),
            NodeFact::Degraded(names) => put(&mut self.degraded, names, Now),
            NodeFact::Stuck(volumes) => put(&mut self.stuck, volumes, Now),
            NodeFact::StuckPods(pods) => put(&mut self.stuck_pods, pods, Now),
            NodeFact::Unenforced(list) => put(&mut self.unenforced, list, Now),
            NodeFact::Devices(devices) => put(&mut self.devices, devices, Now),
        }
    }

    /// Its features are taken over while it is ready, as upstream; the order of its handlers does not matter.
    fn hear_runtime(&mut self, mut runtime: RuntimeStatus, now: Instant) -> ReportUrgency {
        runtime.handlers.sort_by(|a, b| a.name.cmp(&b.name));
        let before = self.runtime.take();
        let was_up = before.as_ref().is_some_and(|before| before.is_up(now));
        let ready_before = before.as_ref().and_then(|before| before.ready_at);
        let is_ready = runtime.is_ready();
        if let (false, Some(before)) = (is_ready, &before) {
            runtime.handlers.clone_from(&before.runtime.handlers);
            runtime.supplemental_groups_policy = before.runtime.supplemental_groups_policy;
        }
        let heard = LastRuntimeStatus {
            ready_at: is_ready.then_some(now).or(ready_before),
            runtime,
        };
        let same = before.is_some_and(|before| before.runtime == heard.runtime);
        let again = !same || was_up != heard.is_up(now);
        self.runtime = Some(heard);
        match again {
            true => ReportUrgency::Now,
            false => ReportUrgency::Never,
        }
    }

    fn hear_drivers(&mut self, drivers: RegisteredDrivers) -> ReportUrgency {
        let there = |name: &&String| !drivers.there.contains_key(*name);
        let gone = self.drivers.there.keys().filter(there).cloned();
        self.left.extend(gone);
        self.left.retain(|name| !drivers.there.contains_key(name));
        put(&mut self.drivers, drivers, ReportUrgency::Now)
    }
}

fn put<T: PartialEq>(held: &mut T, new: T, urgency: ReportUrgency) -> ReportUrgency {
    if *held == new {
        return ReportUrgency::Never;
    }
    *held = new;
    urgency
}

/// This moment, on both clocks.
#[derive(Clone, Copy, Debug)]
pub struct ClockReading {
    pub now: Instant,
    pub wall: Timestamp,
}

/// The node's object as it should be, and events for its operator.
#[derive(Clone, Debug)]
pub struct NodeUpdate {
    pub node: Node,
    pub told: Vec<NodeEvent>,
    /// The settings that could not be applied, each with the reason.
    pub problems: Vec<String>,
}

/// An event about the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEvent {
    pub weight: EventLevel,
    pub reason: &'static str,
    pub message: String,
}

impl NodeEvent {
    /// The event that the node became schedulable or unschedulable.
    pub fn scheduling(policy: &NodeStatusPolicy, closed: bool) -> Self {
        let reason = match closed {
            true => "NodeNotSchedulable",
            false => "NodeSchedulable",
        };
        Self::status(policy, reason)
    }

    fn status(policy: &NodeStatusPolicy, reason: &'static str) -> Self {
        NodeEvent {
            weight: EventLevel::Normal,
            reason,
            message: format!("Node {} status is now: {reason}", policy.name),
        }
    }
}

/// Puts what is known into the object, and leaves everything else in it alone.
pub fn set(
    policy: &NodeStatusPolicy,
    facts: &NodeStatusFacts,
    moment: ClockReading,
    before: &Node,
) -> NodeUpdate {
    let mut node = before.clone();
    let mut outcome = (Vec::new(), Vec::new());
    let (told, problems) = (&mut outcome.0, &mut outcome.1);
    registration::required_labels(facts, &mut node);
    drivers::set(facts, &mut node);
    if let Err(problem) = addresses::set(policy, &facts.addresses, &mut node) {
        problems.push(problem);
    }
    let status = node.status.get_or_insert_default();
    told.extend(machine::set(policy, facts, status));
    host::versions(policy, facts, status);
    runtime_abilities(policy, facts, status);
    set_images(policy, facts, status);
    status.declared_features =
        (!policy.declared_features.is_empty()).then(|| policy.declared_features.clone());
    conditions::set(policy, facts, moment, status, told);
    volumes_in_use(facts, status);
    let (told, problems) = outcome;
    NodeUpdate {
        node,
        told,
        problems,
    }
}

fn runtime_abilities(policy: &NodeStatusPolicy, facts: &NodeStatusFacts, status: &mut NodeStatus) {
    use k8s_openapi::api::core::v1::{
        NodeFeatures, NodeRuntimeHandler, NodeRuntimeHandlerFeatures,
    };
    let Some(LastRuntimeStatus {
        ready_at: Some(_),
        runtime,
    }) = &facts.runtime
    else {
        return;
    };
    let handler = |handler: &RuntimeHandler| NodeRuntimeHandler {
        // The default handler stands there without a name, as upstream.
        name: Some(handler.name.clone()),
        features: Some(NodeRuntimeHandlerFeatures {
            recursive_read_only_mounts: Some(yes(handler.recursive_read_only_mounts)),
            user_namespaces: Some(yes(handler.user_namespaces)),
        }),
    };
    status.runtime_handlers = Some(runtime.handlers.iter().map(handler).collect());
    if let (Support::Yes, Some(groups)) = (
        policy.supplemental_groups_policy,
        runtime.supplemental_groups_policy,
    ) {
        status.features = Some(NodeFeatures {
            supplemental_groups_policy: Some(yes(groups)),
        });
    }
}

fn yes(support: Support) -> bool {
    support == Support::Yes
}

/// At most so many names of one image.
const NAMES: usize = 5;

/// The largest images first; of a size, in the reverse order of their ids, as upstream.
fn set_images(policy: &NodeStatusPolicy, facts: &NodeStatusFacts, status: &mut NodeStatus) {
    let Some(images) = &facts.images else {
        return;
    };
    let mut images: Vec<&NodeImage> = images.iter().collect();
    images.sort_by(|one, other| (other.bytes, &other.id).cmp(&(one.bytes, &one.id)));
    let most = policy.max_images.unwrap_or(usize::MAX);
    let image = |image: &&NodeImage| k8s_openapi::api::core::v1::ContainerImage {
        names: Some(image.names.iter().take(NAMES).cloned().collect()),
        size_bytes: Some(i64::try_from(image.bytes).unwrap_or(i64::MAX)),
    };
    status.images = Some(images.iter().take(most).map(image).collect());
}

fn volumes_in_use(facts: &NodeStatusFacts, status: &mut NodeStatus) {
    let listed = match &facts.in_use {
        None => return,
        Some(VolumesInUse::Exactly(ids)) => ids.iter().map(|id| id.0.clone()).collect(),
        Some(VolumesInUse::AtLeast(ids)) => {
            let mut all: BTreeSet<String> = ids.iter().map(|id| id.0.clone()).collect();
            all.extend(status.volumes_in_use.iter().flatten().cloned());
            Vec::from_iter(all)
        }
    };
    status.volumes_in_use = (!listed.is_empty()).then_some(listed);
}
