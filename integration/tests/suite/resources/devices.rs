//! Devices of a device plugin that is a process of its own, on real containers.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use integration::agent::program;
use integration::wait_until;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use crate::suite::node_rig::{
    CONVERGENCE_TIMEOUT, NodeRig, TestRuntime, container, id_of, identities, phase, server,
};

on_real_runtimes! {
    devices_are_given_once_and_outlive_the_agent_and_the_plugin,
}

/// The example of a device plugin, killed at the end of the test.
struct SamplePlugin(Child);

impl SamplePlugin {
    fn start(root: &Path) -> Self {
        let child = Command::new(program("sample-device").unwrap())
            .arg("--folder")
            .arg(root.join("device-plugins"))
            .stdin(Stdio::null())
            .spawn();
        SamplePlugin(child.unwrap())
    }
}

impl Drop for SamplePlugin {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
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

async fn devices_are_given_once_and_outlive_the_agent_and_the_plugin(on: TestRuntime) {
    let Some(mut rig) = on.start().await else {
        return;
    };
    let root = rig.node.root();
    let plugin = SamplePlugin::start(&root);
    until_healthy(&rig, 2).await;
    for name in ["one", "two"] {
        rig.node.drop_manifest(name, &wanting(name)).unwrap();
        rig.until_running(name).await;
    }
    let mut given = [device(&rig, "one").await, device(&rig, "two").await];
    given.sort();
    assert_eq!(given, ["a", "b"]);
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
    let _plugin = SamplePlugin::start(&root);
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
