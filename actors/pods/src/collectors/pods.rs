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

#[cfg(test)]
mod tests {
    use kernel::MailboxView;
    use kernel::observe::{TreeNodeKind, TreeNodeState};
    use serde_json::json;

    use super::*;

    /// Workers of these snapshots.
    fn counts(snapshots: &[Value]) -> PodCounts {
        let node = |id: &str, kind, snapshot: Value, children| TreeNode {
            id: id.to_owned(),
            path: id.to_owned(),
            kind,
            state: TreeNodeState::Running,
            restarts: 0,
            mailbox: MailboxView {
                len: 0,
                capacity: 0,
                overloaded: 0,
            },
            handled: 0,
            busy_with: None,
            last_exit: None,
            snapshot,
            children,
        };
        let worker = |shown: &Value| node("u", TreeNodeKind::Actor, shown.clone(), Vec::new());
        let workers = snapshots.iter().map(worker).collect();
        counted(&node(
            WORKERS,
            TreeNodeKind::Supervisor,
            Value::Null,
            workers,
        ))
    }

    /// Upstream's TestRunningPodAndContainerCount and TestUpdateRunningPodMetric.
    #[test]
    fn a_pod_runs_while_one_of_its_sandboxes_is_up_and_containers_count_by_their_state() {
        let shown = |sandbox_ready: bool, states: Value| json!({"sandbox_ready": sandbox_ready, "states": states});
        let two = [
            shown(true, json!({"running": 1, "unknown": 2})),
            shown(true, json!({"exited": 1})),
        ];
        let sums = counts(&two);
        let expected = [("exited", 1), ("running", 1), ("unknown", 2)];
        let expected = expected.map(|(state, count)| (state.to_owned(), count));
        assert_eq!((sums.running_pods, sums.containers), (2, expected.into()));
        let five: Vec<Value> = (0..5)
            .map(|at| shown(at >= 2, json!({"running": 1})))
            .collect();
        assert_eq!(counts(&five).running_pods, 3);
    }

    /// Upstream's TestRecordInProgressResizeCount and TestRecordPendingResizesCount.
    #[test]
    fn resizes_are_counted_while_they_are_in_progress_and_by_why_they_wait() {
        let shown = |resizing: bool, waits: Option<&str>| json!({"resizing": resizing, "resize_waits": waits});
        let (none, moves) = (shown(false, None), shown(true, None));
        let [deferred, infeasible] = ["deferred", "infeasible"].map(|why| shown(false, Some(why)));
        type Case<'a> = (Vec<Value>, usize, &'a [(&'a str, usize)]);
        let cases: Vec<Case<'_>> = vec![
            (vec![], 0, &[]),
            (vec![none], 0, &[]),
            (vec![deferred.clone()], 0, &[("deferred", 1)]),
            (vec![moves.clone()], 1, &[]),
            (vec![moves.clone(), moves], 2, &[]),
            (
                vec![infeasible.clone(), infeasible.clone()],
                0,
                &[("infeasible", 2)],
            ),
            (
                vec![infeasible, deferred],
                0,
                &[("deferred", 1), ("infeasible", 1)],
            ),
            (vec![shown(true, Some("deferred"))], 1, &[("deferred", 1)]),
        ];
        for (snapshots, in_progress, pending) in cases {
            let sums = counts(&snapshots);
            let pending = pending
                .iter()
                .map(|(why, count)| ((*why).to_owned(), *count));
            let expected = (in_progress, pending.collect());
            assert_eq!((sums.resizing, sums.resizes), expected, "{snapshots:?}");
        }
    }
}
