//! A whole node, one of whose pods wants a folder on a mount that never answers.

use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

use integration::doubles::stuck_mount::StuckMount;
use integration::wait_until;
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::Instant;

use crate::suite::node_rig::*;

/// The agent takes a look at a path for stuck after half a minute.
const LONG: Duration = Duration::from_secs(120);
const PLUGIN: &str = "storage-local";

const OBJECT: &str = "apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: default}
data: {key: value}
";

/// A pod with volumes on the node's own disk.
fn beside(name: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 1
  volumes:
  - {{name: scratch, emptyDir: {{}}}}
  - {{name: settings, configMap: {{name: settings}}}}
  containers:
  - name: app
    image: localhost/oxlet/busybox:1
    command: [sh, -c, \"{SERVE}\"]
    volumeMounts:
    - {{name: scratch, mountPath: /scratch}}
    - {{name: settings, mountPath: /settings}}
"
    )
}

/// A pod with a folder of the node, which is looked at before it is mounted.
fn with_folder(name: &str, path: &Path) -> String {
    let path = path.display();
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 1
  volumes:
  - {{name: held, hostPath: {{path: {path}, type: Directory}}}}
  containers:
  - name: app
    image: localhost/oxlet/busybox:1
    command: [sh, -c, \"{SERVE}\"]
    volumeMounts:
    - {{name: held, mountPath: /held}}
"
    )
}

/// Starts a pod, waits until it is ready, takes it away; returns how long it took to be ready.
async fn life(node_rig: &NodeRig, name: &str) -> Duration {
    let file = format!("{name}.yaml");
    let began = Instant::now();
    node_rig.node.drop_manifest(&file, &beside(name)).unwrap();
    node_rig.until_running(name).await;
    let took = began.elapsed();
    node_rig.node.remove_manifest(&file).unwrap();
    node_rig.until_gone(name).await;
    took
}

async fn plugin(node_rig: &NodeRig) -> Value {
    node_rig.node.plugin_named(PLUGIN).await.unwrap()
}

/// Waits until the node says which volume hangs, whose it is, and that its plugin was replaced.
async fn until_shown(node_rig: &NodeRig, path: &Path, pid: &Value) {
    let path = path.display().to_string();
    let failed = "MountVolume.SetUp failed for volume \"held\" : ";
    let words = [failed, &path, "did not end within"];
    let message = node_rig.until_event("FailedMount", &words).await;
    println!("{message}");
    let mut seen = Value::Null;
    let shown = wait_until(LONG, "the volume is shown as stuck", async || {
        seen = node_rig.node.admin("/volumes").await.unwrap();
        let stuck = seen["stuck"].as_array().unwrap().iter();
        let named = stuck
            .filter_map(Value::as_str)
            .any(|name| name.contains(&path));
        let mut rows = seen["volumes"].as_array().unwrap().iter();
        named && rows.any(|row| row["volume"] == "held" && row["state"] == "Stuck")
    });
    shown
        .await
        .unwrap_or_else(|error| panic!("{error}: {seen:#}"));
    let text = node_rig.node.oxctl(&["volumes"]).await.unwrap();
    assert!(text.contains("stuck: ") && text.contains(&path), "{text}");
    wait_until(
        LONG,
        "the plugin is replaced, its process given up",
        async || {
            seen = plugin(node_rig).await;
            let given_up = seen["abandoned"].as_array().unwrap().iter();
            seen["pid"] != *pid && given_up.clone().any(|one| one["pid"] == *pid)
        },
    )
    .await
    .unwrap_or_else(|error| panic!("{error}: {seen:#}"));
    assert_eq!(seen["state"], "ready", "{seen:#}");
}

#[tokio::test]
async fn volume_on_a_held_mount_delays_its_own_pod_alone() {
    let with_object =
        |builder: integration::agent::Builder| builder.object("settings.yaml", OBJECT);
    let Some(mut node_rig) = TestRuntime::Fake.start_with(with_object).await else {
        return;
    };
    let mut usual = Duration::ZERO;
    for turn in 0..5 {
        usual = usual.max(life(&node_rig, &format!("before-{turn}")).await);
    }
    let dir = TempDir::new().unwrap();
    let mount = StuckMount::mount(dir.path()).unwrap();
    mount.block();
    let pid = plugin(&node_rig).await["pid"].clone();
    let manifest = with_folder("stuck", &mount.folder());
    node_rig
        .node
        .drop_manifest("stuck.yaml", &manifest)
        .unwrap();

    let done = Cell::new(false);
    let others = async {
        let mut waits = Vec::new();
        while !done.get() {
            waits.push(life(&node_rig, &format!("during-{}", waits.len())).await);
        }
        waits
    };
    let watch = async {
        until_shown(&node_rig, &mount.folder(), &pid).await;
        done.set(true);
    };
    let (waits, ()) = tokio::join!(others, watch);
    let slowest = waits.iter().max().unwrap();
    println!(
        "{} others: {slowest:?} at most, {usual:?} before",
        waits.len()
    );
    assert!(waits.len() >= 10, "{waits:?}");
    assert!(*slowest <= usual * 3 + Duration::from_secs(2), "{waits:?}");

    // Neither its end nor its start waits for the mount.
    let restarted = node_rig.node.restart().await.unwrap();
    let first = life(&node_rig, "after-restart").await;
    println!("restarted in {restarted:?}, the next pod in {first:?}");
    assert!(restarted + first <= Duration::from_secs(15));
    assert!(!is_ready(
        &node_rig.node.pod("stuck").await.unwrap().unwrap()
    ));

    mount.unblock();
    node_rig.until_running("stuck").await;
    wait_until(LONG, "no process is given up any more", async || {
        plugin(&node_rig).await["abandoned"]
            .as_array()
            .unwrap()
            .is_empty()
    })
    .await
    .unwrap();
    assert!(!node_rig.node.log().contains("panicked"));
}
