//! The node's first object, and what is put right in one from before.
//!
//! Upstream: `initialNode`, `tryRegisterWithAPIServer` and its reconcilers of kubelet_node_status.go (1.36).

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use logic_api::pod::requests::{HUGE_PAGES, ResourceAmounts};
use logic_resources::node::{ARCH, HOSTNAME, OS, arch};

use super::machine::{is_extended, put_all};
use super::{
    AttachDetachMode, ClockReading, CloudProvider, ExtendedResourcePolicy, NodeStatusFacts,
    NodeStatusPolicy, NodeUpdate, Scheduling, set,
};

/// The annotation that a controller attaches the node's volumes.
pub const CONTROLLER_ATTACHES: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// Labels that an object from before is given anew.
const DEFAULT_LABELS: [&str; 11] = [
    HOSTNAME,
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    OS,
    ARCH,
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

/// Between attempts to register: doubled from 100 ms, at most 7 s. The first attempt has no wait.
pub fn pause(failures: u32) -> Duration {
    let most = Duration::from_secs(7);
    let doubled = Duration::from_millis(100).checked_mul(1 << failures.min(16));
    match failures {
        0 => Duration::ZERO,
        _ => doubled.unwrap_or(most).min(most),
    }
}

/// The object that the node registers with.
pub fn initial(
    policy: &NodeStatusPolicy,
    facts: &NodeStatusFacts,
    moment: ClockReading,
) -> NodeUpdate {
    let attaches = (CONTROLLER_ATTACHES.to_owned(), "true".to_owned());
    let annotations = match policy.attaching {
        AttachDetachMode::Controller => Some(BTreeMap::from([attaches])),
        AttachDetachMode::Node => None,
    };
    let taints = taints(policy);
    let node = Node {
        metadata: ObjectMeta {
            name: Some(policy.name.clone()),
            labels: Some(policy.labels.clone()),
            annotations,
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            unschedulable: (policy.scheduling == Scheduling::Closed).then_some(true),
            taints: (!taints.is_empty()).then_some(taints),
            provider_id: (!policy.provider_id.is_empty()).then(|| policy.provider_id.clone()),
            ..NodeSpec::default()
        }),
        status: None,
    };
    set(policy, facts, moment, &node)
}

fn taints(policy: &NodeStatusPolicy) -> Vec<Taint> {
    let mut taints = policy.taints.clone();
    let taint = |key: &str, value: Option<&str>| Taint {
        key: key.to_owned(),
        value: value.map(str::to_owned),
        effect: "NoSchedule".to_owned(),
        time_added: None,
    };
    let has = |key: &str| {
        let mut same = policy.taints.iter();
        same.any(|taint| taint.key == key && taint.effect == "NoSchedule")
    };
    if policy.scheduling == Scheduling::Closed && !has(UNSCHEDULABLE) {
        taints.push(taint(UNSCHEDULABLE, None));
    }
    if policy.cloud == CloudProvider::External {
        taints.push(taint(UNINITIALIZED, Some("true")));
    }
    taints
}

/// The object from before, put right; none where it is right already.
pub fn reconcile(policy: &NodeStatusPolicy, initial: &Node, existing: &Node) -> Option<Node> {
    let mut node = existing.clone();
    attach_annotation(initial, &mut node);
    default_labels(initial, &mut node);
    let first = initial.status.clone().unwrap_or_default();
    let status = node.status.get_or_insert_default();
    default_resources(&first, status);
    if policy.extended_resources == ExtendedResourcePolicy::Reset {
        reset_extended(status);
    }
    huge_pages(&first, status);
    super::patch(existing, &node).map(|_| node)
}

fn attach_annotation(initial: &Node, node: &mut Node) {
    let wanted = initial.metadata.annotations.as_ref();
    let wanted = wanted.and_then(|all| all.get(CONTROLLER_ATTACHES));
    match wanted {
        Some(value) => {
            let annotations = node.metadata.annotations.get_or_insert_default();
            annotations.insert(CONTROLLER_ATTACHES.to_owned(), value.clone());
        }
        None => {
            if let Some(annotations) = &mut node.metadata.annotations {
                annotations.remove(CONTROLLER_ATTACHES);
            }
        }
    }
}

fn default_labels(initial: &Node, node: &mut Node) {
    let own = initial.metadata.labels.clone().unwrap_or_default();
    let labels = node.metadata.labels.get_or_insert_default();
    for label in DEFAULT_LABELS {
        match own.get(label) {
            None => {}
            Some(empty) if empty.is_empty() => drop(labels.remove(label)),
            Some(value) => drop(labels.insert(label.to_owned(), value.clone())),
        }
    }
}

fn default_resources(first: &NodeStatus, status: &mut NodeStatus) {
    let or_first = |held: &mut Option<BTreeMap<String, Quantity>>,
                    first: &Option<BTreeMap<String, Quantity>>| {
        if held.as_ref().is_none_or(BTreeMap::is_empty) {
            *held = Some(first.clone().unwrap_or_default());
        }
    };
    or_first(&mut status.capacity, &first.capacity);
    or_first(&mut status.allocatable, &first.allocatable);
}

fn reset_extended(status: &mut NodeStatus) {
    let (Some(capacity), Some(allocatable)) = (&mut status.capacity, &mut status.allocatable)
    else {
        return;
    };
    for (name, amount) in capacity.iter_mut().filter(|(name, _)| is_extended(name)) {
        *amount = Quantity("0".to_owned());
        allocatable.insert(name.clone(), amount.clone());
    }
}

/// Removes sizes that the machine no longer has, and sets the others as it has them.
fn huge_pages(first: &NodeStatus, status: &mut NodeStatus) {
    let rows = [
        (&mut status.capacity, &first.capacity),
        (&mut status.allocatable, &first.allocatable),
    ];
    for (held, first) in rows {
        let held = held.get_or_insert_default();
        let own: ResourceAmounts = logic_api::pod::requests::read(first.as_ref())
            .into_iter()
            .filter(|(name, _)| name.starts_with(HUGE_PAGES))
            .collect();
        held.retain(|name, _| !name.starts_with(HUGE_PAGES) || own.contains_key(name));
        put_all(held, &own);
    }
}

/// Whatever others write there, these two are the machine's.
pub(super) fn required_labels(facts: &NodeStatusFacts, node: &mut Node) {
    let labels = node.metadata.labels.get_or_insert_default();
    let arch = arch(&facts.host.architecture).to_owned();
    labels.insert(OS.to_owned(), "linux".to_owned());
    labels.insert(ARCH.to_owned(), arch);
}
