//! Laws of the node's status.

mod addresses;
mod conditions;
mod machine;
mod patches;
mod registrations;
mod rest;

use k8s_openapi::api::core::v1::NodeCondition;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use logic_api::pod::requests;
use logic_api::testing::{at, quantities, string_map};

use super::*;

fn policy() -> NodeStatusPolicy {
    NodeStatusPolicy {
        name: "edge".into(),
        hostname: "edge".into(),
        port: 10250,
        version: "v1.36.0".into(),
        labels: logic_resources::node::labels("edge", "x86_64", &string_map(&[("disk", "ssd")])),
        max_images: Some(50),
        supplemental_groups_policy: Support::Yes,
        ..NodeStatusPolicy::default()
    }
}

fn amounts(pairs: &[(&str, &str)]) -> ResourceAmounts {
    requests::read(Some(&quantities(pairs)))
}

const CAPACITY: [(&str, &str); 4] = [
    ("cpu", "2"),
    ("memory", "10Gi"),
    ("ephemeral-storage", "5000"),
    ("pods", "110"),
];

/// A machine with two CPUs.
fn facts() -> NodeStatusFacts {
    let host = NodeHostFacts {
        machine_id: "machine".into(),
        system_uuid: "system".into(),
        boot_id: "boot-1".into(),
        kernel_version: "6.1.0".into(),
        os_image: "Example 1".into(),
        architecture: "x86_64".into(),
        swap: 0,
    };
    let resources = NodeResources {
        capacity: amounts(&CAPACITY),
        allocatable: amounts(&[
            ("cpu", "1800m"),
            ("memory", "9Gi"),
            ("ephemeral-storage", "4000"),
            ("pods", "110"),
        ]),
    };
    let mut facts = NodeStatusFacts::new(host, resources);
    let ip = "10.1.1.1".parse().ok();
    facts.addresses.found = ip;
    facts
}

fn start() -> Instant {
    // Logic has no clock; any moment does.
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    #[allow(clippy::disallowed_methods, reason = "the only way to make an Instant")]
    *START.get_or_init(Instant::now)
}

fn moment(second: u32) -> ClockReading {
    ClockReading {
        now: start() + Duration::from_secs(second.into()),
        wall: at(second.into()),
    }
}

fn condition(name: &str, state: Support) -> RuntimeCondition {
    RuntimeCondition {
        name: name.into(),
        state,
        reason: "why".into(),
        message: "what".into(),
    }
}

fn runtime() -> RuntimeStatus {
    RuntimeStatus {
        name: "containerd".into(),
        version: "1.6.20".into(),
        ready: Some(condition("RuntimeReady", Support::Yes)),
        network: Some(condition("NetworkReady", Support::Yes)),
        ..RuntimeStatus::default()
    }
}

/// Everything works since the tests' noon.
fn well() -> NodeStatusFacts {
    let mut facts = facts();
    facts.learn(NodeFact::Runtime(Box::new(runtime())), start());
    facts.learn(NodeFact::Storage(None), start());
    facts
}

fn status(node: &Node) -> &NodeStatus {
    node.status.as_ref().unwrap()
}

fn found<'a>(node: &'a Node, name: &str) -> &'a NodeCondition {
    let mut all = status(node).conditions.iter().flatten();
    all.find(|condition| condition.type_ == name).unwrap()
}

fn reasons(outcome: &NodeUpdate) -> Vec<&'static str> {
    outcome.told.iter().map(|told| told.reason).collect()
}

fn set_at(facts: &NodeStatusFacts, second: u32, before: &Node) -> NodeUpdate {
    set(&policy(), facts, moment(second), before)
}

fn quantity(text: &str) -> Quantity {
    Quantity(text.into())
}
