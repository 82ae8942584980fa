//! Devices of a device plugin that is a process of its own, on real containers.

use integration::agent::Node;
use integration::cluster::Cluster;
use integration::doubles::device_plugin::SamplePlugin;
use integration::wait_until;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::suite::node_rig::{
    CONVERGENCE_TIMEOUT, NodeRig, TestRuntime, container, id_of, identities, phase, server,
};

on_real_runtimes! {
    devices_are_given_once_and_outlive_the_agent_and_the_plugin,
}

/// Starts a plugin of two devices.
fn plugin(node: &Node) -> SamplePlugin {
    SamplePlugin::start(&node.root(), &["a", "b"].map(str::to_owned)).unwrap()
}

fn wanting(name: &str) -> String {
    let resources = "resources: {limits: {example.com/sample: '1'}}";
    server(name).replace("    command:", &format!("    {resources}\n    command:"))
}

/// The devices that `oxctl devices` shows as healthy.
async fn healthy(rig: &NodeRig) -> usize {
    let view = rig.node.oxctl(&["devices", "-o", "json"]).await.unwrap();
    let view: Vec<Value> = serde_json::from_str(&view).unwrap();
    let healthy = view.iter().filter(|row| row["health"] == "Healthy");
    healthy.count()
}

async fn until_healthy(rig: &NodeRig, count: usize) {
    let what = format!("{count} devices are healthy");
    let are_there = async || healthy(rig).await == count;
    wait_until(CONVERGENCE_TIMEOUT, &what, are_there)
        .await
        .unwrap();
}

/// The id of the one device that a container has, as it sees it.
async fn device(rig: &NodeRig, name: &str) -> String {
    let pod = rig.node.pod(name).await.unwrap().unwrap();
    let id = id_of(container(&pod, "app").unwrap());
    let script = "test -c /dev/sample-$SAMPLE_DEVICES && echo x > /dev/sample-$SAMPLE_DEVICES && echo $SAMPLE_DEVICES";
    let cri = rig.cri().await;
    let seen = cri.exec(&id, &["sh", "-c", script]).await.unwrap();
    seen.trim().to_owned()
}

/// Waits until the status of the pod's container shows its device with this health.
async fn until_health(rig: &NodeRig, name: &str, health: &str) {
    let shows = |pod: &Pod| {
        let own = container(pod, "app").and_then(|own| own.allocated_resources_status.clone());
        let mut devices = own.into_iter().flatten().flat_map(|own| own.resources);
        devices.any(|devices| devices[0].health.as_deref() == Some(health))
    };
    rig.until(name, &format!("shows its device as {health}"), shows)
        .await;
}

async fn devices_are_given_once_and_outlive_the_agent_and_the_plugin(on: TestRuntime) {
    let Some(mut rig) = on.start().await else {
        return;
    };
    let plugin = plugin(&rig.node);
    until_healthy(&rig, 2).await;
    for name in ["one", "two"] {
        rig.node.drop_manifest(name, &wanting(name)).unwrap();
        rig.until_running(name).await;
    }
    let mut given = [device(&rig, "one").await, device(&rig, "two").await];
    let first = given[0].clone();
    given.sort();
    assert_eq!(given, ["a", "b"]);
    plugin.set_unhealthy(&[&first]).unwrap();
    until_health(&rig, "one", "Unhealthy").await;
    plugin.set_unhealthy(&[]).unwrap();
    until_health(&rig, "one", "Healthy").await;
    rig.node.drop_manifest("late", &wanting("late")).unwrap();
    let refused = |pod: &Pod| phase(pod) == "Failed";
    let late = rig
        .until("late", "is refused", refused)
        .await
        .status
        .unwrap();
    assert_eq!(late.reason.as_deref(), Some("UnexpectedAdmissionError"));
    let message = late.message.unwrap_or_default();
    assert!(
        message.contains("requested number of devices unavailable for example.com/sample"),
        "{message}"
    );

    // The agent dies, and the plugin too: whoever runs keeps its device.
    let before = identities(&rig.node.pods().await.unwrap());
    rig.node.kill9().unwrap();
    drop(plugin);
    rig.node.begin().await.unwrap();
    for name in ["one", "two"] {
        rig.until_running(name).await;
    }
    assert_eq!(identities(&rig.node.pods().await.unwrap()), before);
    let _plugin = self::plugin(&rig.node);
    until_healthy(&rig, 2).await;
    let kept = device(&rig, "one").await;
    rig.node.remove_manifest("one").unwrap();
    rig.until_gone("one").await;
    rig.node.drop_manifest("next", &wanting("next")).unwrap();
    rig.until_running("next").await;
    assert_eq!(device(&rig, "next").await, kept);
    for name in ["two", "late", "next"] {
        rig.node.remove_manifest(name).unwrap();
        rig.until_gone(name).await;
    }
}

/// The pod's one device as its status in the API shows it, with its health.
fn shown(pod: &Value) -> (&str, &str) {
    let resource = &pod["status"]["containerStatuses"][0]["allocatedResourcesStatus"][0];
    let device = &resource["resources"][0];
    let text = |field: &str| device[field].as_str().unwrap_or_default();
    match resource["name"] == "example.com/sample" {
        true => (text("resourceID"), text("health")),
        false => ("", ""),
    }
}

async fn until_shown(cluster: &Cluster, health: &str) -> Value {
    let is_shown = |pod: &Value| shown(pod) == ("a", health);
    let pod = cluster.until_pod("web", CONVERGENCE_TIMEOUT, is_shown);
    pod.await.unwrap()
}

#[tokio::test]
async fn the_api_shows_a_pods_device_as_unhealthy_while_its_plugin_says_so() {
    let cluster = Cluster::start(Node::builder()).await.unwrap();
    let first = plugin(&cluster.node);
    let node = "/api/v1/nodes/node";
    let has_devices = |node: &Value| node["status"]["allocatable"]["example.com/sample"] == "2";
    cluster
        .until(node, CONVERGENCE_TIMEOUT, has_devices)
        .await
        .unwrap();
    let web = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "web" },
        "spec": {
            "nodeName": "node",
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "app",
                "image": "localhost/oxlet/busybox:1",
                "command": ["sleep", "infinity"],
                "resources": {
                    "limits": { "example.com/sample": "1" },
                    "requests": { "example.com/sample": "1" },
                },
            }],
        },
    });
    cluster.apply(&web).unwrap();
    let running =
        |pod: &Value| pod["status"]["phase"] == "Running" && shown(pod) == ("a", "Healthy");
    let web = cluster.until_pod("web", CONVERGENCE_TIMEOUT, running);
    let container = |pod: &Value| pod["status"]["containerStatuses"][0]["containerID"].clone();
    let before = container(&web.await.unwrap());
    first.set_unhealthy(&["a"]).unwrap();
    let after = until_shown(&cluster, "Unhealthy").await;
    assert_eq!(container(&after), before, "nothing of it was restarted");
}
