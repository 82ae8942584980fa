//! Upstream's gauges of pods, from what the pod manager and the workers show. Upstream: pkg/kubelet/kubelet_pods.go
//! (HandlePodCleanups) and pkg/kubelet/pleg/generic.go, 1.36.

use std::collections::BTreeMap;

use kernel::TreeNode;
use logic_api::types::ContainerState;
use metrics::pods::resizes;
use metrics::pods::{self, STATIC};
use serde_json::Value;

use super::WORKERS;

/// A worker's states: upstream's label, and the text in the worker's snapshot.
const LIFECYCLES: [(&str, &str); 3] = [
    ("sync", "Syncing"),
    ("terminating", "Terminating"),
    ("terminated", "Terminated"),
];
/// Upstream's `config` labels, each with the `static` labels that its pods may have.
const CONFIGS: [(&str, &[&str]); 3] = [
    ("desired", &["", STATIC]),
    ("orphan", &["", STATIC]),
    ("runtime_only", &["unknown"]),
];
const STATES: [ContainerState; 4] = [
    ContainerState::Created,
    ContainerState::Running,
    ContainerState::Exited,
    ContainerState::Unknown,
];

/// Sums over the workers' snapshots.
#[derive(Debug, Default, PartialEq)]
struct PodCounts {
    running_pods: usize,
    containers: BTreeMap<String, u64>,
    ephemeral: u64,
    resizing: usize,
    /// Pending resizes by upstream's reason.
    resizes: BTreeMap<String, usize>,
    /// Active pods by the label `static`.
    active: BTreeMap<&'static str, usize>,
    /// Working pods by lifecycle, config and static.
    working: BTreeMap<(String, String, &'static str), usize>,
}

/// Sets upstream's gauges of pods from the tree.
pub fn count(tree: &TreeNode) {
    let counts = counted(tree);
    pods::RUNNING_PODS.set(counts.running_pods as f64);
    pods::EPHEMERAL_CONTAINERS.set(counts.ephemeral as f64);
    let mirrors = find_number(tree, "mirrors");
    pods::MIRRORS.set(mirrors.unwrap_or(0.0));
    for state in STATES.map(ContainerState::as_str) {
        let count = counts.containers.get(state).copied().unwrap_or(0);
        let gauge = pods::RUNNING_CONTAINERS.with_label_values(&[state]);
        gauge.set(count as f64);
    }
    resizes::IN_PROGRESS.set(counts.resizing as f64);
    for reason in ["deferred", "infeasible"] {
        let count = counts.resizes.get(reason).copied().unwrap_or(0);
        resizes::PENDING
            .with_label_values(&[reason])
            .set(count as f64);
    }
    for is_static in ["", STATIC] {
        let count = counts.active.get(is_static).copied().unwrap_or(0);
        pods::ACTIVE
            .with_label_values(&[is_static])
            .set(count as f64);
        let desired = desired(tree, is_static);
        pods::DESIRED.with_label_values(&[is_static]).set(desired);
    }
    for (lifecycle, stage) in LIFECYCLES {
        for (config, statics) in CONFIGS {
            for is_static in statics {
                let key = (stage.to_owned(), config.to_owned(), *is_static);
                let count = counts.working.get(&key).copied().unwrap_or(0);
                let gauge = pods::WORKING.with_label_values(&[lifecycle, config, is_static]);
                gauge.set(count as f64);
            }
        }
    }
}

fn workers(node: &TreeNode) -> Vec<&TreeNode> {
    match node.id == WORKERS {
        true => node.children.iter().collect(),
        false => node.children.iter().flat_map(workers).collect(),
    }
}

fn counted(tree: &TreeNode) -> PodCounts {
    let mut counts = PodCounts::default();
    for worker in workers(tree) {
        let shown = &worker.snapshot;
        let word = |name: &str| shown.get(name).and_then(Value::as_str).unwrap_or_default();
        let (stage, config) = (word("stage"), word("config"));
        let said = shown.get("is_static").and_then(Value::as_bool);
        let is_static = match said.unwrap_or(false) {
            true => STATIC,
            false => "",
        };
        if shown.get("sandbox_ready").and_then(Value::as_bool) == Some(true) {
            counts.running_pods += 1;
        }
        let states = shown.get("states").and_then(Value::as_object);
        for (state, count) in states.into_iter().flatten() {
            let sum = counts.containers.entry(state.clone()).or_default();
            *sum += count.as_u64().unwrap_or(0);
        }
        if shown.get("resizing").and_then(Value::as_bool) == Some(true) {
            counts.resizing += 1;
        }
        if !word("resize_waits").is_empty() {
            let waits = word("resize_waits").to_owned();
            *counts.resizes.entry(waits).or_default() += 1;
        }
        let ephemeral = shown.get("ephemeral").and_then(Value::as_u64);
        counts.ephemeral += ephemeral.unwrap_or(0);
        if config == "desired" && stage != "Terminated" {
            *counts.active.entry(is_static).or_default() += 1;
        }
        let is_static = match config {
            "runtime_only" => "unknown",
            _ => is_static,
        };
        let key = (stage.to_owned(), config.to_owned(), is_static);
        *counts.working.entry(key).or_default() += 1;
    }
    counts
}

/// The number of pods that the sources desire; those of the API are not static.
fn desired(tree: &TreeNode, is_static: &str) -> f64 {
    let pod_manager = find(tree, "pod-manager");
    let sources = pod_manager.and_then(|node| node.snapshot.get("sources")?.as_object());
    let counted = sources.into_iter().flatten().filter(|(source, _)| {
        let from_api = source.as_str() == "api";
        from_api == is_static.is_empty()
    });
    counted.filter_map(|(_, count)| count.as_f64()).sum()
}

fn find<'a>(node: &'a TreeNode, id: &str) -> Option<&'a TreeNode> {
    match node.id == id {
        true => Some(node),
        false => node.children.iter().find_map(|child| find(child, id)),
    }
}

/// The number under this name in the first actor's snapshot that has it.
fn find_number(node: &TreeNode, name: &str) -> Option<f64> {
    let own = node.snapshot.get(name).and_then(Value::as_f64);
    own.or_else(|| {
        node.children
            .iter()
            .find_map(|child| find_number(child, name))
    })
}
