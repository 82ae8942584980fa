//! A node one of whose volumes hangs, as the API shows it.

use std::time::Duration;

use integration::agent::Node;
use integration::cluster::Cluster;
use integration::doubles::stuck_mount::StuckMount;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The agent takes a look at a path for stuck after half a minute.
const LONG: Duration = Duration::from_secs(120);
const NODE: &str = "/api/v1/nodes/node";

fn stuck(node: &Value) -> Value {
    let conditions = node["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let found = conditions.find(|one| one["type"] == "VolumesStuck");
    found.cloned().unwrap_or_default()
}

#[tokio::test]
async fn a_volume_that_hangs_is_a_condition_of_the_node_until_it_hangs_no_more() {
    let cluster = Cluster::start(Node::builder()).await.unwrap();
    let node = cluster.until_ready(LONG).await.unwrap();
    assert_eq!(stuck(&node), Value::Null, "there is none before");
    let dir = TempDir::new().unwrap();
    let mount = StuckMount::mount(dir.path()).unwrap();
    mount.block();
    let path = mount.folder().display().to_string();
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "held" },
        "spec": {
            "nodeName": "node",
            "terminationGracePeriodSeconds": 1,
            "volumes": [{ "name": "held", "hostPath": { "path": path, "type": "Directory" } }],
            "containers": [{
                "name": "app",
                "image": "localhost/oxlet/busybox:1",
                "command": ["sleep", "infinity"],
                "volumeMounts": [{ "name": "held", "mountPath": "/held" }],
            }],
        },
    });
    cluster.apply(&pod).unwrap();
    let hangs = |node: &Value| stuck(node)["status"] == "True";
    let node = cluster.until(NODE, LONG, hangs).await.unwrap();
    let told = stuck(&node);
    assert_eq!(told["reason"], "VolumesHang", "{told:#}");
    let message = told["message"].as_str().unwrap();
    assert!(
        message.contains(&path) && message.contains("did not end within"),
        "{message}"
    );
    let ready = integration::cluster::condition(&node, "Ready");
    assert_eq!(ready, Some("True"), "it hinders nobody else");
    mount.unblock();
    let well = |node: &Value| stuck(node)["status"] == "False";
    cluster.until(NODE, LONG, well).await.unwrap();
    let running = |pod: &Value| pod["status"]["phase"] == "Running";
    cluster.until_pod("held", LONG, running).await.unwrap();
}
