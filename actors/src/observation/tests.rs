//! A tree as metrics.

use kernel::testing::run_paused;
use kernel::{MailboxView, Node};
use serde_json::json;

use super::*;
use crate::testing::{TestNode, pod};

fn node(path: &str, kind: Kind, snapshot: Value) -> Node {
    Node {
        id: path.rsplit('/').next().unwrap().to_owned(),
        path: path.to_owned(),
        kind,
        state: State::Running,
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

fn tree() -> Node {
    let with = |mut above: Node, children: Vec<Node>| {
        above.children = children;
        above
    };
    let supervisor = |path: &str| node(path, Kind::Supervisor, Value::Null);
    let runtime =
        json!({"state": "Ready", "restarts": 5, "abandoned": [{"generation": 1, "pid": 2}]});
    let worker = |uid: &str| {
        node(
            &format!("oxlet/pods/workers/{uid}"),
            Kind::Actor,
            Value::Null,
        )
    };
    with(
        supervisor("oxlet"),
        vec![
            with(
                supervisor("oxlet/plugins"),
                vec![node("oxlet/plugins/runtime", Kind::Actor, runtime)],
            ),
            node(
                "oxlet/records",
                Kind::Actor,
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
            // Both come from a folder here.
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
