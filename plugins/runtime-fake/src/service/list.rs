//! Lists and their filters.

use std::collections::HashMap;

use cri_server::list::{IdFilter, container_state_matches, labels_match, sandbox_state_matches};
use proto::cri::{
    self, ContainerFilter, ContainerStatsFilter, ImageFilter, PodSandboxFilter,
    PodSandboxStatsFilter,
};

use crate::node::SimulatedNode;
use crate::node::{metrics, stats};
use crate::state::convert;
use crate::state::{FakeContainer, FakeSandbox, POD_UID};

/// Whether the label that is known without decoding already says no.
fn of_pod(selector: &HashMap<String, String>, uid: Option<&str>) -> bool {
    selector
        .get(POD_UID)
        .is_none_or(|wanted| uid == Some(wanted))
}

fn some_sandboxes<'a>(
    node: &'a SimulatedNode,
    id: &str,
) -> Box<dyn Iterator<Item = &'a FakeSandbox> + 'a> {
    let state = &node.state;
    match IdFilter::find(id, |id| state.find_sandbox(id)) {
        IdFilter::All => Box::new(state.sandboxes.values()),
        IdFilter::One(seq) => Box::new(state.sandboxes.get(&seq).into_iter()),
        IdFilter::None => Box::new(std::iter::empty()),
    }
}

fn some_containers<'a>(
    node: &'a SimulatedNode,
    id: &str,
    sandbox: &str,
) -> Box<dyn Iterator<Item = &'a FakeContainer> + 'a> {
    let state = &node.state;
    let one = IdFilter::find(id, |id| state.find_container(id));
    match IdFilter::find(sandbox, |id| state.find_sandbox(id)) {
        IdFilter::None => Box::new(std::iter::empty()),
        IdFilter::One(seq) => {
            let seqs = state
                .sandboxes
                .get(&seq)
                .map(|sandbox| sandbox.containers.as_slice())
                .unwrap_or_default();
            let of_pod = seqs.iter().filter_map(|seq| state.containers.get(seq));
            Box::new(of_pod.filter(move |container| one.matches(&container.record.seq)))
        }
        IdFilter::All => match one {
            IdFilter::All => Box::new(state.containers.values()),
            IdFilter::One(seq) => Box::new(state.containers.get(&seq).into_iter()),
            IdFilter::None => Box::new(std::iter::empty()),
        },
    }
}

pub(super) fn sandboxes(
    node: &SimulatedNode,
    filter: Option<PodSandboxFilter>,
) -> Vec<cri::PodSandbox> {
    let filter = filter.unwrap_or_default();
    some_sandboxes(node, &filter.id)
        .filter(|sandbox| of_pod(&filter.label_selector, sandbox.pod_uid.as_deref()))
        .filter(|sandbox| sandbox_state_matches(&filter, convert::sandbox_state(sandbox)))
        .map(|sandbox| convert::sandbox_item(&node.state, sandbox))
        .filter(|item| labels_match(&filter.label_selector, &item.labels))
        .collect()
}

pub(super) fn containers(
    node: &SimulatedNode,
    filter: Option<ContainerFilter>,
) -> Vec<cri::Container> {
    let filter = filter.unwrap_or_default();
    some_containers(node, &filter.id, &filter.pod_sandbox_id)
        .filter(|container| of_pod(&filter.label_selector, container.pod_uid.as_deref()))
        .filter(|container| container_state_matches(&filter, convert::container_state(container)))
        .map(|container| convert::container_item(&node.state, container))
        .filter(|item| labels_match(&filter.label_selector, &item.labels))
        .collect()
}

/// Returns the stats of running containers.
pub(super) fn container_stats(
    node: &SimulatedNode,
    filter: Option<ContainerStatsFilter>,
    mountpoint: &str,
) -> Vec<cri::ContainerStats> {
    let filter = filter.unwrap_or_default();
    some_containers(node, &filter.id, &filter.pod_sandbox_id)
        .filter(|container| {
            container.running() && labels_match(&filter.label_selector, &container.config().labels)
        })
        .map(|container| stats::container(node, container, mountpoint))
        .collect()
}

/// Returns the stats of pods that are ready.
pub(super) fn sandbox_stats(
    node: &SimulatedNode,
    filter: Option<PodSandboxStatsFilter>,
    mountpoint: &str,
) -> Vec<cri::PodSandboxStats> {
    let filter = filter.unwrap_or_default();
    some_sandboxes(node, &filter.id)
        .filter(|sandbox| {
            sandbox.ready() && labels_match(&filter.label_selector, &sandbox.config().labels)
        })
        .map(|sandbox| stats::sandbox(node, sandbox, mountpoint))
        .collect()
}

/// Returns the metrics of pods that are ready.
pub(super) fn sandbox_metrics(node: &SimulatedNode) -> Vec<cri::PodSandboxMetrics> {
    let ready = node.state.sandboxes.values().filter(|one| one.ready());
    ready
        .map(|sandbox| metrics::sandbox(node, sandbox))
        .collect()
}

pub(super) fn images(node: &SimulatedNode, filter: Option<ImageFilter>) -> Vec<cri::Image> {
    let wanted = filter
        .and_then(|filter| filter.image)
        .map(|image| image.image)
        .unwrap_or_default();
    if wanted.is_empty() {
        return node.state.images.all().map(convert::image).collect();
    }
    node.state
        .images
        .find(&wanted)
        .map(convert::image)
        .into_iter()
        .collect()
}
