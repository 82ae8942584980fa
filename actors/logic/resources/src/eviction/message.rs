//! What the owner of an evicted pod is told. Mirrors upstream's `evictionMessage` (eviction/helpers.go) at v1.36.

use std::collections::BTreeMap;

use super::usage::{ContainerUsage, PodUsage};
use crate::thresholds::{Observations, StarvedResource, Threshold, WrittenAmount};

/// What ran short, and which containers took more than they asked for.
pub fn message(threshold: &Threshold, observations: &Observations, pod: &PodUsage) -> String {
    let signal = threshold.signal;
    let resource = signal.resource();
    let mut text = format!("The node was low on resource: {resource}. ");
    if let Some(observed) = observations.get(&signal) {
        let needed = threshold.quantity(observed.capacity);
        let available = signal.amount(observed.available);
        text += &format!("Threshold quantity: {needed}, available: {available}. ");
    }
    if let Some((used, request)) = pod_level(threshold, pod) {
        text += &consumption("Pod", &pod.name, (used, request), threshold);
    }
    for (container, used, request) in offenders(threshold, pod) {
        text += &consumption("Container", &container.name, (used, request), threshold);
    }
    text
}

/// The annotations of the event: which resource was short, and who took more than was asked for.
pub fn annotations(threshold: &Threshold, pod: &PodUsage) -> BTreeMap<String, String> {
    let amount = |bytes| threshold.signal.amount(bytes);
    let mut all = BTreeMap::new();
    let mut put = |key: &str, value: String| all.insert(key.to_owned(), value);
    if pod.used.is_none() {
        return all;
    }
    if let Some((used, _)) = pod_level(threshold, pod) {
        put("offending_pod", pod.name.clone());
        put("offending_pod_usage", amount(used));
    }
    let offenders = offenders(threshold, pod);
    let names: Vec<&str> = offenders.iter().map(|(c, ..)| c.name.as_str()).collect();
    let usage: Vec<String> = offenders.iter().map(|(_, used, _)| amount(*used)).collect();
    put("offending_containers", names.join(","));
    put("offending_containers_usage", usage.join(","));
    put("starved_resource", threshold.signal.resource().to_owned());
    all
}

fn consumption(
    kind: &str,
    name: &str,
    (used, request): (u64, WrittenAmount),
    threshold: &Threshold,
) -> String {
    let signal = threshold.signal;
    let used = signal.amount(used);
    let resource = signal.resource();
    format!(
        "{kind} {name} was using {used}, request is {request}, has larger consumption of {resource}. "
    )
}

/// The memory of a pod that asks for some as a whole, and what it asks for: told whether it exceeds it or not.
fn pod_level(threshold: &Threshold, pod: &PodUsage) -> Option<(u64, WrittenAmount)> {
    let request = pod.requests.pod_level_memory?;
    let used = pod.used.as_ref().filter(|used| used.has_memory)?;
    (threshold.signal.starved() == StarvedResource::Memory).then_some((used.memory, request))
}

/// The containers that take more than they ask for, each with both amounts.
fn offenders<'a>(
    threshold: &Threshold,
    pod: &'a PodUsage,
) -> Vec<(&'a ContainerUsage, u64, WrittenAmount)> {
    let starved = threshold.signal.starved();
    let amounts = |container: &'a ContainerUsage| {
        let (used, request) = match starved {
            StarvedResource::Memory => (container.memory?, container.memory_request),
            StarvedResource::EphemeralStorage => (container.storage?, container.storage_request),
            StarvedResource::Inodes | StarvedResource::Pids => return None,
        };
        (used > request.value).then_some((container, used, request))
    };
    let containers = pod.used.iter().flat_map(|used| &used.containers);
    containers.filter_map(amounts).collect()
}
