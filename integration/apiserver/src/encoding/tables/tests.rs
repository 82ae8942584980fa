//! The tables that `kubectl get` prints.

use serde_json::{Value, json};

use super::age::span;
use super::{nodes, pods};
use crate::clock;

/// Upstream's TestHumanDuration.
#[test]
fn spans_are_written_as_people_read_them() {
    let table = [
        (-2, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (121, "2m1s"),
        (600, "10m"),
        (179 * 60, "179m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (9 * 3600 + 60, "9h"),
        (48 * 3600, "2d"),
        (49 * 3600, "2d1h"),
        (9 * 86400, "9d"),
        (800 * 86400, "2y70d"),
        (8 * 365 * 86400, "8y"),
    ];
    for (seconds, text) in table {
        assert_eq!(span(seconds), text, "{seconds}");
    }
}

fn printed(pod: &Value) -> [String; 3] {
    let cells = pods::cells(pod, clock::parse("2026-01-01T01:00:00Z").unwrap());
    [1, 2, 3].map(|at| cells[at].as_str().unwrap().to_string())
}

/// Rows of upstream's TestPrintPod.
#[test]
fn a_pod_is_printed_as_its_containers_are() {
    let running = json!({"ready": true, "restartCount": 1, "state": {"running": {}}, "lastState": {"terminated": {"finishedAt": "2026-01-01T00:59:00Z"}}});
    let spec = json!({"containers": [{"name": "a"}, {"name": "b"}]});
    let pod = |status: Value| json!({"metadata": {"name": "x"}, "spec": spec, "status": status});
    let mut ending = pod(json!({"phase": "Running", "containerStatuses": [running]}));
    ending["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut initializing = pod(
        json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "restartCount": 2, "state": {"terminated": {"exitCode": 3}}}]}),
    );
    initializing["spec"]["initContainers"] = json!([{"name": "i"}]);
    let table = [
        (pod(json!({"phase": "Pending"})), ["0/2", "Pending", "0"]),
        (
            pod(json!({"phase": "Running", "containerStatuses": [running, running]})),
            ["2/2", "Running", "2 (60s ago)"],
        ),
        (
            pod(
                json!({"phase": "Running", "containerStatuses": [running, {"restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}),
            ),
            ["1/2", "CrashLoopBackOff", "4 (60s ago)"],
        ),
        (
            pod(json!({"phase": "Failed", "reason": "Evicted"})),
            ["0/2", "Evicted", "0"],
        ),
        (
            pod(
                json!({"phase": "Succeeded", "containerStatuses": [{"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]}),
            ),
            ["0/2", "Completed", "0"],
        ),
        (
            pod(
                json!({"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 7}}}]}),
            ),
            ["0/2", "ExitCode:7", "0"],
        ),
        (ending, ["1/2", "Terminating", "1 (60s ago)"]),
        (initializing, ["0/2", "Init:ExitCode:3", "2"]),
    ];
    for (pod, wanted) in table {
        assert_eq!(printed(&pod), wanted, "{pod}");
    }
}

#[test]
fn a_node_is_printed_with_its_roles_and_addresses() {
    let node = json!({"metadata": {"name": "n", "labels": {"node-role.kubernetes.io/worker": ""}}, "spec": {"unschedulable": true},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}], "nodeInfo": {"kubeletVersion": "v1.36.0"}}});
    let cells = nodes::cells(&node, clock::now());
    let texts: Vec<&str> = cells.iter().map(|cell| cell.as_str().unwrap()).collect();
    assert_eq!(
        texts,
        [
            "n",
            "Ready,SchedulingDisabled",
            "worker",
            "<unknown>",
            "v1.36.0",
            "10.0.0.1",
            "<none>",
            "<unknown>",
            "<unknown>",
            "<unknown>"
        ]
    );
}
