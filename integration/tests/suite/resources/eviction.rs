//! Pods that really eat the node's memory or fill its disk, on a real containerd.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use integration::agent::Node;
use integration::cluster::{Cluster, condition};
use integration::containerd::Containerd;
use nix::mount::{MntFlags, umount2};
use nix::sys::sysinfo::sysinfo;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Longer than the period of the samples and the time that an evicted pod is waited for.
const LONG: Duration = Duration::from_secs(90);
const MIB: u64 = 1 << 20;
/// What is left to pods of the machine's memory.
const LEFT: u64 = 512 * MIB;
/// The size of the node's own disk.
const DISK: u64 = 256 * MIB;

/// Eats 50 MiB each time: a `dd` holds what it has read while the reader of its pipe sleeps.
const EAT: &str =
    "while true; do dd if=/dev/zero bs=50M count=1 2>/dev/null | sleep 1000 & sleep 0.5; done";
/// Leaves a few MiB of the disk at most.
const FILL: &str = "dd if=/dev/zero of=/data/filler bs=1M count=230 2>/dev/null; sleep 1000";

/// A node whose pods come from the API. Dropped in this order.
struct Rig {
    cluster: Cluster,
    _containerd: Containerd,
    _disk: Option<Disk>,
    _folder: TempDir,
}

/// A small file system on a loop device.
struct Disk {
    mounted_at: PathBuf,
}

impl Disk {
    fn mount(folder: &Path) -> Disk {
        let (image, mounted_at) = (folder.join("disk.img"), folder.join("disk"));
        File::create(&image).unwrap().set_len(DISK).unwrap();
        std::fs::create_dir(&mounted_at).unwrap();
        run(Command::new("mkfs.ext4")
            .args(["-q", "-F", "-m0"])
            .arg(&image));
        run(Command::new("mount")
            .args(["-o", "loop"])
            .args([&image, &mounted_at]));
        Disk { mounted_at }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Err(error) = umount2(&self.mounted_at, MntFlags::MNT_DETACH) {
            eprintln!("{} stays mounted: {error}", self.mounted_at.display());
        }
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
}

/// Starts a node with these settings, its folder on a disk of its own if asked for; none without a containerd.
async fn start(fields: Value, on_disk: bool) -> Option<Rig> {
    let folder = tempfile::tempdir().unwrap();
    let containerd = Containerd::for_test(folder.path()).await?;
    let disk = on_disk.then(|| Disk::mount(folder.path()));
    let mut builder = Node::builder()
        .runtime(&containerd)
        .config(&json!({ "cgroupRoot": containerd.cgroup() }))
        .config(&fields);
    if let Some(disk) = &disk {
        let dir = disk.mounted_at.join("node");
        std::fs::create_dir(&dir).unwrap();
        builder = builder.at(&dir);
    }
    let cluster = Cluster::start(builder).await.unwrap();
    cluster.until_ready(LONG).await.unwrap();
    Some(Rig {
        cluster,
        _containerd: containerd,
        _disk: disk,
        _folder: folder,
    })
}

/// A pod of one container with a folder of the node's disk at `/data`.
fn pod(name: &str, script: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "nodeName": "node",
            "terminationGracePeriodSeconds": 1,
            "volumes": [{ "name": "data", "emptyDir": {} }],
            "containers": [{
                "name": "app",
                "image": "localhost/oxlet/busybox:1",
                "command": ["sh", "-c", script],
                "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
            }],
        },
    })
}

impl Rig {
    async fn until_running(&self, name: &str) -> Value {
        let is_running = |pod: &Value| pod["status"]["phase"] == "Running";
        let pod = self.cluster.until_pod(name, LONG, is_running).await;
        pod.unwrap_or_else(|error| panic!("{error:#}"))
    }

    /// Waits until the pod is evicted; returns why.
    async fn until_evicted(&self, name: &str) -> String {
        let is_evicted = |pod: &Value| {
            pod["status"]["reason"] == "Evicted" && pod["status"]["phase"] == "Failed"
        };
        let pod = self.cluster.until_pod(name, LONG, is_evicted).await;
        let pod = pod.unwrap_or_else(|error| panic!("{error:#}"));
        let disrupted = condition(&pod, "DisruptionTarget");
        assert_eq!(disrupted, Some("True"), "{pod:#}");
        pod["status"]["message"].as_str().unwrap().to_owned()
    }

    async fn until_pressure(&self, kind: &str, status: &str) {
        let told = |node: &Value| condition(node, kind) == Some(status);
        let node = "/api/v1/nodes/node";
        let told = self.cluster.until(node, LONG, told).await;
        told.unwrap_or_else(|error| panic!("{error:#}"));
    }

    /// Asserts that the pod runs on in the container that it had.
    fn assert_untouched(&self, before: &Value) {
        let name = before["metadata"]["name"].as_str().unwrap();
        let now = self.cluster.pod(name).unwrap();
        let container = |pod: &Value| pod["status"]["containerStatuses"][0]["containerID"].clone();
        assert_eq!(now["status"]["phase"], "Running", "{now:#}");
        assert_eq!(container(&now), container(before), "{now:#}");
    }

    fn told_of(&self, reason: &str) -> bool {
        let events = self.cluster.server.get("/api/v1/namespaces/default/events");
        let events = events.unwrap_or_default();
        let mut events = events["items"].as_array().into_iter().flatten();
        events.any(|event| event["reason"] == reason)
    }
}

#[tokio::test]
async fn a_pod_that_eats_the_nodes_memory_goes_and_its_neighbour_stays() {
    let memory = sysinfo().unwrap().ram_total();
    let fields = json!({
        "systemReserved": { "memory": format!("{}", memory - LEFT) },
        "evictionHard": { "memory.available": "200Mi" },
        "evictionPressureTransitionPeriod": "1s",
    });
    let Some(rig) = start(fields, false).await else {
        return;
    };
    rig.cluster.apply(&pod("quiet", "sleep 1000")).unwrap();
    let quiet = rig.until_running("quiet").await;
    rig.cluster.apply(&pod("eater", EAT)).unwrap();
    let why = rig.until_evicted("eater").await;
    assert!(
        why.starts_with("The node was low on resource: memory. Threshold quantity: 200Mi"),
        "{why}"
    );
    rig.until_pressure("MemoryPressure", "False").await;
    rig.assert_untouched(&quiet);
    let told = integration::wait_until(LONG, "the event is there", async || rig.told_of("Evicted"));
    told.await.unwrap();
}

#[tokio::test]
async fn a_pod_that_fills_the_nodes_disk_goes_with_what_it_wrote_and_its_neighbour_stays() {
    let fields = json!({
        "evictionHard": { "nodefs.available": "20%" },
        "evictionPressureTransitionPeriod": "1s",
    });
    let Some(rig) = start(fields, true).await else {
        return;
    };
    rig.cluster.apply(&pod("quiet", "sleep 1000")).unwrap();
    let quiet = rig.until_running("quiet").await;
    rig.cluster.apply(&pod("filler", FILL)).unwrap();
    rig.until_pressure("DiskPressure", "True").await;
    let why = rig.until_evicted("filler").await;
    assert!(
        why.starts_with("The node was low on resource: ephemeral-storage."),
        "{why}"
    );
    rig.until_pressure("DiskPressure", "False").await;
    rig.assert_untouched(&quiet);
}
