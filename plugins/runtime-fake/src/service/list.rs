//! Lists and their filters.

use std::collections::HashMap;

use proto::cri::{
    self, ContainerFilter, ContainerStatsFilter, ImageFilter, PodSandboxFilter,
    PodSandboxStatsFilter,
};

use crate::convert;
use crate::node::Node;
use crate::state::{Container, POD_UID, Sandbox, Seq};
use crate::stats;

type Labels = HashMap<String, String>;

fn selected(selector: &Labels, labels: &Labels) -> bool {
    selector
        .iter()
        .all(|(key, value)| labels.get(key) == Some(value))
}

/// Whether the label that is known without decoding already says no.
fn of_pod(selector: &Labels, uid: Option<&str>) -> bool {
    selector
        .get(POD_UID)
        .is_none_or(|wanted| uid == Some(wanted))
}

/// What an id in a filter asks for.
enum Wanted {
    All,
    One(Seq),
    None,
}

impl Wanted {
    fn by(id: &str, find: impl FnOnce(&str) -> Option<Seq>) -> Wanted {
        if id.is_empty() {
            Wanted::All
        } else {
            find(id).map_or(Wanted::None, Wanted::One)
        }
    }

    fn includes(&self, seq: Seq) -> bool {
        match self {
            Wanted::All => true,
            Wanted::One(one) => *one == seq,
            Wanted::None => false,
        }
    }
}

fn some_sandboxes<'a>(node: &'a Node, id: &str) -> Box<dyn Iterator<Item = &'a Sandbox> + 'a> {
    let state = &node.state;
    match Wanted::by(id, |id| state.find_sandbox(id)) {
        Wanted::All => Box::new(state.sandboxes.values()),
        Wanted::One(seq) => Box::new(state.sandboxes.get(&seq).into_iter()),
        Wanted::None => Box::new(std::iter::empty()),
    }
}

fn some_containers<'a>(
    node: &'a Node,
    id: &str,
    sandbox: &str,
) -> Box<dyn Iterator<Item = &'a Container> + 'a> {
    let state = &node.state;
    let one = Wanted::by(id, |id| state.find_container(id));
    match Wanted::by(sandbox, |id| state.find_sandbox(id)) {
        Wanted::None => Box::new(std::iter::empty()),
        Wanted::One(seq) => {
            let seqs = state
                .sandboxes
                .get(&seq)
                .map(|sandbox| sandbox.containers.as_slice())
                .unwrap_or_default();
            let of_pod = seqs.iter().filter_map(|seq| state.containers.get(seq));
            Box::new(of_pod.filter(move |container| one.includes(container.record.seq)))
        }
        Wanted::All => match one {
            Wanted::All => Box::new(state.containers.values()),
            Wanted::One(seq) => Box::new(state.containers.get(&seq).into_iter()),
            Wanted::None => Box::new(std::iter::empty()),
        },
    }
}

pub(super) fn sandboxes(node: &Node, filter: Option<PodSandboxFilter>) -> Vec<cri::PodSandbox> {
    let filter = filter.unwrap_or_default();
    some_sandboxes(node, &filter.id)
        .filter(|sandbox| of_pod(&filter.label_selector, sandbox.pod_uid.as_deref()))
        .filter(|sandbox| {
            filter
                .state
                .is_none_or(|wanted| wanted.state == i32::from(convert::sandbox_state(sandbox)))
        })
        .map(|sandbox| convert::sandbox_item(&node.state, sandbox))
        .filter(|item| selected(&filter.label_selector, &item.labels))
        .collect()
}

pub(super) fn containers(node: &Node, filter: Option<ContainerFilter>) -> Vec<cri::Container> {
    let filter = filter.unwrap_or_default();
    some_containers(node, &filter.id, &filter.pod_sandbox_id)
        .filter(|container| of_pod(&filter.label_selector, container.pod_uid.as_deref()))
        .filter(|container| {
            filter
                .state
                .is_none_or(|wanted| wanted.state == i32::from(convert::container_state(container)))
        })
        .map(|container| convert::container_item(&node.state, container))
        .filter(|item| selected(&filter.label_selector, &item.labels))
        .collect()
}

/// Returns the stats of running containers.
pub(super) fn container_stats(
    node: &Node,
    filter: Option<ContainerStatsFilter>,
    mountpoint: &str,
) -> Vec<cri::ContainerStats> {
    let filter = filter.unwrap_or_default();
    some_containers(node, &filter.id, &filter.pod_sandbox_id)
        .filter(|container| {
            container.running() && selected(&filter.label_selector, &container.config().labels)
        })
        .map(|container| stats::container(node, container, mountpoint))
        .collect()
}

/// Returns the stats of pods that are ready.
pub(super) fn sandbox_stats(
    node: &Node,
    filter: Option<PodSandboxStatsFilter>,
    mountpoint: &str,
) -> Vec<cri::PodSandboxStats> {
    let filter = filter.unwrap_or_default();
    some_sandboxes(node, &filter.id)
        .filter(|sandbox| {
            sandbox.ready() && selected(&filter.label_selector, &sandbox.config().labels)
        })
        .map(|sandbox| stats::sandbox(node, sandbox, mountpoint))
        .collect()
}

pub(super) fn images(node: &Node, filter: Option<ImageFilter>) -> Vec<cri::Image> {
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
