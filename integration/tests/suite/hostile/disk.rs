//! Whatever a pod can write to on the node's disk counts against its limit, and evicts it alone.
//!
//! The pods come from the API: like the kubelet, the agent never evicts a static pod.

use integration::agent::Node;
use integration::cluster::Cluster;
use integration::images::Image;
use serde_json::{Value, json};

use crate::suite::node_rig::*;

const IMAGE: &str = "localhost/odd/volume:1";
const LIMIT: &str = "20Mi";
/// A pod per place that a container can write to without a volume of its own.
const PLACES: [(&str, &str); 6] = [
    ("layer", "/file"),
    ("image-volume", "/data/file"),
    ("resolver", "/etc/resolv.conf"),
    ("hostname", "/etc/hostname"),
    ("hosts", "/etc/hosts"),
    ("message", "/dev/termination-log"),
];

fn pod(name: &str, script: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": {
            "nodeName": "node",
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "app", "image": IMAGE, "command": ["sh", "-c", script],
                "resources": { "limits": { "ephemeral-storage": LIMIT } },
            }],
        },
    })
}

/// Makes an image with a volume known to the runtime.
async fn import(node: &Node) {
    let image = Image {
        volumes: vec!["/data".to_owned()],
        ..Image::busybox(IMAGE)
    };
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("image.tar");
    image.build().unwrap().save(&archive).unwrap();
    let archive = archive.display().to_string();
    node.oxctl(&["image", "import", &archive]).await.unwrap();
}

#[tokio::test]
async fn a_pod_that_fills_any_file_of_its_own_is_evicted_and_its_neighbour_stays() {
    let (_dir, _, builder) = TestRuntime::Native.prepare().await.unwrap();
    let cluster = Cluster::start(builder).await.unwrap();
    cluster.until_ready(CONVERGENCE_TIMEOUT).await.unwrap();
    import(&cluster.node).await;
    cluster.apply(&pod("quiet", "sleep 1000")).unwrap();
    for (name, file) in PLACES {
        let script = format!("dd if=/dev/zero of={file} bs=1M count=60; sleep 1000");
        cluster.apply(&pod(name, &script)).unwrap();
    }
    for (name, file) in PLACES {
        let is_evicted = |pod: &Value| pod["status"]["reason"] == "Evicted";
        let evicted = cluster
            .until_pod(name, CONVERGENCE_TIMEOUT, is_evicted)
            .await;
        let evicted = evicted.unwrap_or_else(|error| panic!("{file}: {error:#}"));
        let message = evicted["status"]["message"].as_str().unwrap();
        assert!(
            message.contains("ephemeral local storage usage"),
            "{file}: {message}"
        );
    }
    let quiet = cluster.pod("quiet").unwrap();
    assert_eq!(quiet["status"]["phase"], "Running", "{quiet:#}");
}
