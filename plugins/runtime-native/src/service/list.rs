//! Lists and their filters.

use cri_server::list::{container_state_matches, labels_match, sandbox_state_matches};
use proto::cri::{
    Container, ContainerFilter, ContainerStatsFilter, PodSandbox, PodSandboxFilter,
    PodSandboxStatsFilter,
};

use crate::node::{Node, NodeState};
use crate::record::convert;
use crate::record::{ContainerRecord, SandboxRecord};

pub(super) fn sandboxes(node: &Node, filter: Option<PodSandboxFilter>) -> Vec<PodSandbox> {
    let filter = filter.unwrap_or_default();
    let state = node.state();
    let one = state.sandbox(&filter.id).map(|entry| &entry.record.id);
    state
        .sandboxes()
        .map(|entry| &entry.record)
        .filter(|record| filter.id.is_empty() || Some(&record.id) == one)
        .filter(|record| {
            let state = record.state();
            state.is_some_and(|state| sandbox_state_matches(&filter, state))
        })
        .filter(|record| labels_match(&filter.label_selector, &record.config.0.labels))
        .map(convert::sandbox_item)
        .collect()
}

pub(super) fn containers(node: &Node, filter: Option<ContainerFilter>) -> Vec<Container> {
    let filter = filter.unwrap_or_default();
    let state = node.state();
    some_containers(&state, &filter.id, &filter.pod_sandbox_id)
        .filter(|record| {
            let state = record.state();
            state.is_some_and(|state| container_state_matches(&filter, state))
        })
        .filter(|record| labels_match(&filter.label_selector, &record.config.0.labels))
        .map(convert::container_item)
        .collect()
}

/// Those of an id or its prefix, and of a sandbox's; each may be empty. Nothing is copied of the others.
fn some_containers<'a>(
    state: &'a NodeState,
    id: &'a str,
    sandbox: &'a str,
) -> impl Iterator<Item = &'a ContainerRecord> {
    let one = state.container(id).map(|entry| &entry.record.id);
    let pod = state.sandbox(sandbox).map(|entry| &entry.record.id);
    state
        .containers()
        .map(|entry| &entry.record)
        .filter(move |record| id.is_empty() || Some(&record.id) == one)
        .filter(move |record| sandbox.is_empty() || Some(&record.sandbox) == pod)
}

/// Returns the containers whose stats a filter asks for: those that run.
pub(super) fn measured(node: &Node, filter: Option<ContainerStatsFilter>) -> Vec<ContainerRecord> {
    let filter = filter.unwrap_or_default();
    let state = node.state();
    some_containers(&state, &filter.id, &filter.pod_sandbox_id)
        .filter(|record| {
            record.running() && labels_match(&filter.label_selector, &record.config.0.labels)
        })
        .cloned()
        .collect()
}

/// Returns the sandboxes whose stats a filter asks for: those that are ready.
pub(super) fn measured_pods(
    node: &Node,
    filter: Option<PodSandboxStatsFilter>,
) -> Vec<SandboxRecord> {
    let filter = filter.unwrap_or_default();
    let state = node.state();
    let one = state.sandbox(&filter.id).map(|entry| &entry.record.id);
    let ready = proto::cri::PodSandboxState::SandboxReady;
    state
        .sandboxes()
        .map(|entry| &entry.record)
        .filter(|record| filter.id.is_empty() || Some(&record.id) == one)
        .filter(|record| record.state() == Some(ready))
        .filter(|record| labels_match(&filter.label_selector, &record.config.0.labels))
        .cloned()
        .collect()
}
