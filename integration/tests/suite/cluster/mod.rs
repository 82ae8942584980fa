//! The agent as a node of a cluster: against the API server's double, with kubectl, through outages.

mod bad_server;
mod certificates_of_pods;
mod csi;
mod hostile;
mod kubectl;
mod log_followers;
mod log_query;
mod node;
mod offline;
mod outage;
mod pods;
mod proxy;
mod shutdown;
mod tree_picture;

use std::time::Duration;

use integration::agent::{Builder, Node};
use integration::cluster::{Cluster, ServerKind};
use serde_json::{Value, json};

/// A debug build on a busy machine.
const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(60);

async fn started() -> Cluster {
    start(Node::builder()).await
}

async fn start(builder: Builder) -> Cluster {
    start_on(ServerKind::Double, builder).await
}

async fn start_on(which: ServerKind, builder: Builder) -> Cluster {
    let mut cluster = Cluster::prepare_on(which, builder).await.unwrap();
    cluster.node.begin().await.unwrap();
    cluster.until_ready(CONVERGENCE_TIMEOUT).await.unwrap();
    cluster
}

/// Holds a law with each server that there is.
async fn everywhere(builder: impl Fn() -> Builder, law: impl AsyncFn(Cluster)) {
    for which in ServerKind::available() {
        law(start_on(which, builder()).await).await;
    }
}

/// A pod that runs until SIGTERM, and then ends at once.
fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "nodeName": "node",
            "terminationGracePeriodSeconds": 2,
            "containers": [{
                "name": "app",
                "image": "localhost/oxlet/busybox:1",
                "command": ["sleep", "infinity"],
            }],
        },
    })
}

fn is_running(pod: &Value) -> bool {
    pod["status"]["phase"] == "Running"
        && integration::cluster::condition(pod, "Ready") == Some("True")
}

fn uid(pod: &Value) -> String {
    pod["metadata"]["uid"].as_str().unwrap().to_owned()
}

fn restarts(pod: &Value) -> u64 {
    let status = &pod["status"]["containerStatuses"][0];
    status["restartCount"].as_u64().unwrap_or_default()
}
