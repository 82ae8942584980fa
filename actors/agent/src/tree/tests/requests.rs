//! How many requests the API server gets: of a node at rest, and for a pod's life.

use std::time::Duration;

use apiserver::ServerOptions;
use kernel::testing::{pass, run_seeded};
use serde_json::{Value, json};

use super::simulated_cluster::{NODE, SimulatedCluster};

const PODS: &str = "/api/v1/namespaces/default/pods";
const MINUTE: Duration = Duration::from_mins(1);

/// An image that lost its name to a newer one: the API server drops the empty list of its names.
const IMAGES: &str = r#"{"images": ["localhost/pause:latest", "localhost/busybox", "sha256:0"]}"#;

/// Runs a node whose pods have tokens, after it has come to rest.
fn at_rest<F: Future>(act: impl FnOnce(SimulatedCluster) -> F + 'static) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node");
    std::fs::create_dir(&path).unwrap();
    run_seeded(7, || async move {
        let options = ServerOptions {
            scheduler: true,
            ..ServerOptions::default()
        };
        let cluster = SimulatedCluster::start_with(&path, 7, options, IMAGES.as_bytes()).await;
        pass(2 * MINUTE).await;
        cluster.api.forget_requests();
        act(cluster).await;
    });
}

/// The requests since the last call, without the lease's and those by which watches go on.
fn requests(cluster: &SimulatedCluster) -> Vec<String> {
    let all = cluster.api.requests();
    cluster.api.forget_requests();
    all.into_iter()
        .filter(|request| !request.path.contains("/leases/"))
        .filter(|request| !request.query.contains("watch=true"))
        .map(|request| format!("{} {}", request.method, request.path))
        .collect()
}

fn pod(name: &str, grace: u64) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": NODE,
            "dnsPolicy": "Default",
            "terminationGracePeriodSeconds": grace,
            "containers": [{"name": "main", "image": "localhost/busybox"}],
        },
    })
}

async fn run(cluster: &SimulatedCluster, pod: &Value) {
    cluster.api.post(PODS, pod).unwrap();
    pass(MINUTE).await;
    let name = pod["metadata"]["name"].as_str().unwrap();
    let found = cluster.api.get(&format!("{PODS}/{name}")).unwrap();
    assert_eq!(found["status"]["phase"], "Running", "{found:#}");
}

#[test]
fn a_node_at_rest_sends_nothing_but_the_report_that_is_due() {
    at_rest(async |cluster| {
        pass(5 * MINUTE).await;
        let sent = requests(&cluster);
        assert_eq!(sent, [format!("PATCH /api/v1/nodes/{NODE}/status")]);
        let node = cluster.api.get(&format!("/api/v1/nodes/{NODE}")).unwrap();
        let images = node["status"]["images"].as_array().unwrap();
        assert!(
            images.iter().any(|image| image.get("names").is_none()),
            "{images:?}"
        );
        cluster.end().await;
    });
}

#[test]
fn a_pods_life_takes_few_requests() {
    at_rest(async |cluster| {
        run(&cluster, &pod("first", 1)).await;
        // The namespace's first pod has what all of them need listed, too.
        let first = requests(&cluster);
        assert!(first.len() <= 10, "{first:#?}");
        run(&cluster, &pod("web", 1)).await;
        let started = requests(&cluster);
        cluster.api.delete(&format!("{PODS}/web")).unwrap();
        pass(MINUTE).await;
        let deleted = requests(&cluster);
        // A token, four events and two statuses; upstream: 11.
        assert_eq!(started.len(), 7, "{started:#?}");
        // An event, the last status, and the deletion; upstream: 9.
        assert_eq!(deleted.len(), 3, "{deleted:#?}");
        cluster.end().await;
    });
}

/// Upstream records `Killing` and nothing more.
#[test]
fn a_pod_that_is_deleted_at_once_keeps_its_token_while_it_ends() {
    at_rest(async |cluster| {
        run(&cluster, &pod("none", 0)).await;
        run(&cluster, &pod("forced", 30)).await;
        cluster.api.delete(&format!("{PODS}/none")).unwrap();
        let forced = format!("{PODS}/forced?gracePeriodSeconds=0");
        cluster.api.delete(&forced).unwrap();
        pass(2 * MINUTE).await;
        let events = cluster
            .api
            .list("/api/v1/namespaces/default/events")
            .unwrap();
        let told: Vec<&Value> = events
            .iter()
            .filter(|event| event["type"] == "Warning")
            .collect();
        assert_eq!(told, Vec::<&Value>::new());
        let killed = events.iter().filter(|event| event["reason"] == "Killing");
        assert_eq!(killed.count(), 2);
        let left = cluster.runtime.pods().await.unwrap();
        assert!(left.is_empty(), "{left:?}");
        cluster.end().await;
    });
}
