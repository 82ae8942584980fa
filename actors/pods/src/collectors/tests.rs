//! The tree of actors as metrics.

use kernel::testing::run_paused;
use kernel::{MailboxView, TreeNode};
use logic_api::testing::yaml::pod;
use serde_json::json;

use super::*;
use crate::testing::TestNode;

fn node(path: &str, kind: TreeNodeKind, snapshot: Value) -> TreeNode {
    TreeNode {
        id: path.rsplit('/').next().unwrap().to_owned(),
        path: path.to_owned(),
        kind,
        state: TreeNodeState::Running,
        restarts: 1,
        mailbox: MailboxView {
            len: 2,
            capacity: 64,
            overloaded: 3,
        },
        handled: 4,
        busy_with: None,
        last_exit: None,
        snapshot,
        children: Vec::new(),
    }
}

fn tree() -> TreeNode {
    let with = |mut above: TreeNode, children: Vec<TreeNode>| {
        above.children = children;
        above
    };
    let supervisor = |path: &str| node(path, TreeNodeKind::Supervisor, Value::Null);
    let runtime =
        json!({"state": "Ready", "restarts": 5, "abandoned": [{"generation": 1, "pid": 2}]});
    let worker = |uid: &str| {
        node(
            &format!("oxlet/pods/workers/{uid}"),
            TreeNodeKind::Actor,
            Value::Null,
        )
    };
    with(
        supervisor("oxlet"),
        vec![
            with(
                supervisor("oxlet/plugins"),
                vec![node("oxlet/plugins/runtime", TreeNodeKind::Actor, runtime)],
            ),
            node(
                "oxlet/records",
                TreeNodeKind::Actor,
                json!({"writes": 7, "bytes": 800}),
            ),
            with(
                supervisor("oxlet/pods/workers"),
                vec![worker("u1"), worker("u2")],
            ),
        ],
    )
}

#[test]
fn the_tree_is_told_by_actor_and_the_workers_of_pods_together() {
    let text = text(&tree());
    for line in [
        "oxlet_actor_restarts_total{actor=\"plugins/runtime\"} 1",
        "oxlet_actor_restarts_total{actor=\"pods/workers/*\"} 2",
        "oxlet_actor_messages_total{actor=\"pods/workers/*\"} 8",
        "oxlet_mailbox_messages{actor=\"pods/workers/*\"} 2",
        "oxlet_mailbox_capacity{actor=\"records\"} 64",
        "oxlet_mailbox_overloads_total{actor=\"records\"} 3",
        "oxlet_actors{state=\"running\"} 4",
        "oxlet_actors{state=\"degraded\"} 0",
        "oxlet_checkpoint_writes_total{actor=\"records\"} 7",
        "oxlet_checkpoint_written_bytes_total{actor=\"records\"} 800",
        "oxlet_plugin_state{plugin=\"runtime\",state=\"ready\"} 1",
        "oxlet_plugin_restarts_total{plugin=\"runtime\"} 5",
        "oxlet_plugin_abandoned_processes{plugin=\"runtime\"} 1",
    ] {
        assert!(text.lines().any(|there| there == line), "{line} in {text}");
    }
    assert!(!text.contains("u1") && !text.contains("plugins\"}"));
}

#[test]
fn a_node_that_runs_pods_says_how_many() {
    run_paused(|| async {
        let node = TestNode::start().await;
        let guest = "
metadata: {name: guest}
spec:
  containers:
  - {name: a, image: localhost/busybox, command: [sleep, infinity]}
  - {name: b, image: localhost/busybox, command: [sleep, infinity]}
";
        let fixed = "
metadata: {name: fixed, annotations: {kubernetes.io/config.source: file}}
spec:
  containers: [{name: app, image: localhost/busybox, command: [sleep, infinity]}]
";
        node.desire(&[pod(guest), pod(fixed)]);
        for name in ["guest", "fixed"] {
            node.until(name, |status| status.phase.as_deref() == Some("Running"))
                .await;
        }
        count(&node.node.root.tree().await);
        let text = metrics::text();
        for line in [
            "kubelet_running_pods 2",
            "kubelet_running_containers{container_state=\"running\"} 3",
            "kubelet_running_containers{container_state=\"exited\"} 0",
            // Both pods are static: their source is a folder.
            "kubelet_desired_pods{static=\"true\"} 2",
            "kubelet_active_pods{static=\"true\"} 1",
            "kubelet_active_pods{static=\"\"} 1",
            "kubelet_working_pods{config=\"desired\",lifecycle=\"sync\",static=\"true\"} 1",
            "kubelet_working_pods{config=\"runtime_only\",lifecycle=\"terminated\",static=\"unknown\"} 0",
        ] {
            assert!(text.lines().any(|there| there == line), "{line} in {text}");
        }
    });
}

const PROBED: &str = "
metadata:
  name: web
  creationTimestamp: 2020-01-01T00:00:00Z
  annotations: {kubernetes.io/config.seen: 2020-01-01T00:00:00Z}
spec:
  initContainers: [{name: setup, image: localhost/setup, command: ['true']}]
  containers:
  - name: app
    image: localhost/busybox
    command: [sleep, infinity]
    readinessProbe: {exec: {command: ['true']}, periodSeconds: 1}
";

/// The value of a sample; none if the sample is absent.
fn value(text: &str, sample: &str) -> Option<f64> {
    let rest = |line: &str| line.strip_prefix(sample)?.strip_prefix(' ')?.parse().ok();
    text.lines().find_map(rest)
}

/// Upstream's metrics of pkg/kubelet/metrics beside one life, as its e2e test of metrics looks at them.
#[test]
fn a_pods_life_is_counted() {
    run_paused(|| async {
        let node = TestNode::start().await;
        node.desire(&[pod(PROBED)]);
        let ready = |status: &k8s_openapi::api::core::v1::PodStatus| {
            let mut conditions = status.conditions.iter().flatten();
            conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
        };
        node.until("web", ready).await;
        let text = metrics::text();
        for (sample, expected) in [
            ("kubelet_started_pods_total", 1.0),
            ("kubelet_started_pods_errors_total", 0.0),
            (
                "kubelet_started_containers_total{container_type=\"container\"}",
                1.0,
            ),
            (
                "kubelet_started_containers_total{container_type=\"init_container\"}",
                1.0,
            ),
            ("kubelet_containers_per_pod_count_count", 1.0),
            ("kubelet_pod_worker_start_duration_seconds_count", 1.0),
            ("kubelet_pod_start_duration_seconds_count", 1.0),
            ("kubelet_pod_start_sli_duration_seconds_count", 1.0),
            ("kubelet_pod_start_total_duration_seconds_count", 1.0),
            (
                "kubelet_pod_worker_duration_seconds_count{operation_type=\"create\"}",
                1.0,
            ),
            (
                "kubelet_runtime_operations_total{operation_type=\"run_podsandbox\"}",
                1.0,
            ),
            (
                "kubelet_runtime_operations_total{operation_type=\"create_container\"}",
                2.0,
            ),
            (
                "kubelet_run_podsandbox_duration_seconds_count{runtime_handler=\"\"}",
                1.0,
            ),
            (
                "kubelet_terminated_containers_total{container_type=\"init_container\",exit_code=\"0\",reason=\"Completed\"}",
                1.0,
            ),
        ] {
            assert_eq!(value(&text, sample), Some(expected), "{sample} in {text}");
        }
        for sample in [
            "kubelet_pleg_last_seen_seconds",
            "kubelet_pleg_relist_duration_seconds_count",
            "kubelet_evented_pleg_connection_success_count",
            "kubelet_runtime_operations_total{operation_type=\"version\"}",
        ] {
            assert!(value(&text, sample) > Some(0.0), "{sample} in {text}");
        }
        let probes = "prober_probe_total{container=\"app\",namespace=\"default\",pod=\"web\",pod_uid=\"web\",probe_type=\"Readiness\",result=\"successful\"}";
        assert!(value(&metrics::probes(), probes) > Some(0.0));
        node.desire(&[]);
        node.until_gone("web").await;
        assert!(!metrics::probes().contains("pod=\"web\""));
        let text = metrics::text();
        let kill = "kubelet_pod_worker_duration_seconds_count{operation_type=\"kill\"}";
        assert!(value(&text, kill) > Some(0.0), "{text}");
    });
}

/// Upstream's TestContainerTerminationMetric.
#[test]
fn each_end_of_a_container_is_counted_once_by_its_code_and_reason() {
    run_paused(|| async {
        let node = TestNode::start().await;
        let once = |name: &str, command: &str| {
            pod(&format!(
                "
metadata: {{name: {name}}}
spec:
  restartPolicy: Never
  containers: [{{name: app, image: localhost/busybox, command: [sh, -c, '{command}']}}]
"
            ))
        };
        node.desire(&[once("good", "exit 0"), once("bad", "exit 1")]);
        for (name, phase) in [("good", "Succeeded"), ("bad", "Failed")] {
            node.until(name, |status| status.phase.as_deref() == Some(phase))
                .await;
        }
        kernel::testing::pass(std::time::Duration::from_secs(60)).await;
        let text = metrics::text();
        for (code, reason) in [("0", "Completed"), ("1", "Error")] {
            let sample = format!(
                "kubelet_terminated_containers_total{{container_type=\"container\",exit_code=\"{code}\",reason=\"{reason}\"}}"
            );
            assert_eq!(value(&text, &sample), Some(1.0), "{text}");
        }
    });
}
