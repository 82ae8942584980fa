//! The node's capacity, and what of it is allocatable.
//!
//! Upstream: `MachineInfo` of nodestatus/setters.go (1.36). Resources that the agent does not manage stay: other
//! components advertise them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeStatus, NodeSwapStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use logic_api::pod::requests::ResourceAmounts;
use logic_api::quantity;
use logic_api::types::EventLevel;

use super::{NodeEvent, NodeStatusFacts, NodeStatusPolicy};

type Quantities = BTreeMap<String, Quantity>;

pub(super) fn set(
    policy: &NodeStatusPolicy,
    facts: &NodeStatusFacts,
    status: &mut NodeStatus,
) -> Option<NodeEvent> {
    let event = identity(policy, facts, status);
    let capacity = status.capacity.get_or_insert_default();
    put_all(capacity, &facts.resources.capacity);
    put_numbers(capacity, &facts.devices.capacity);
    for removed in &facts.devices.removed {
        capacity.insert(removed.clone(), Quantity("0".to_owned()));
    }
    let allocatable = status.allocatable.get_or_insert_default();
    allocatable.retain(|name, _| capacity.contains_key(name) || !is_extended(name));
    for (name, amount) in capacity.iter() {
        if !facts.resources.allocatable.contains_key(name) {
            let amount = match amount.0.starts_with('-') {
                // Less than nothing makes no sense.
                true => Quantity("0".to_owned()),
                false => amount.clone(),
            };
            allocatable.insert(name.clone(), amount);
        }
    }
    put_all(allocatable, &facts.resources.allocatable);
    put_numbers(allocatable, &facts.devices.allocatable);
    event
}

fn put_numbers(list: &mut BTreeMap<String, Quantity>, numbers: &BTreeMap<String, usize>) {
    let amounts = numbers
        .iter()
        .map(|(name, number)| (name.clone(), Quantity(number.to_string())));
    list.extend(amounts);
}

fn identity(
    policy: &NodeStatusPolicy,
    facts: &NodeStatusFacts,
    status: &mut NodeStatus,
) -> Option<NodeEvent> {
    let (host, info) = (&facts.host, status.node_info.get_or_insert_default());
    info.machine_id.clone_from(&host.machine_id);
    info.system_uuid.clone_from(&host.system_uuid);
    info.swap = (host.swap > 0).then(|| NodeSwapStatus {
        capacity: Some(i64::try_from(host.swap).unwrap_or(i64::MAX)),
    });
    let rebooted = !info.boot_id.is_empty() && info.boot_id != host.boot_id;
    info.boot_id.clone_from(&host.boot_id);
    rebooted.then(|| NodeEvent {
        weight: EventLevel::Warning,
        reason: "Rebooted",
        message: format!(
            "Node {} has been rebooted, boot id: {}",
            policy.name, host.boot_id
        ),
    })
}

/// An equal amount stays as it is written.
pub(super) fn put_all(held: &mut Quantities, amounts: &ResourceAmounts) {
    for (name, amount) in amounts {
        let same = held.get(name).is_some_and(|held| equal(held, amount));
        if !same {
            held.insert(name.clone(), Quantity(amount.to_string()));
        }
    }
}

pub(super) fn equal(written: &Quantity, amount: &quantity::Quantity) -> bool {
    let written = quantity::Quantity::parse(&written.0);
    written.is_ok_and(|written| quantity::compare(&written, amount).is_eq())
}

/// Not one of Kubernetes' own: it has a domain that is not `kubernetes.io`.
pub(super) fn is_extended(name: &str) -> bool {
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    !native && !name.starts_with("requests.")
}
