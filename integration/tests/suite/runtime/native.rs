//! A node without a daemon: the agent on `runtime-native`, with real containers.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use integration::agent::{Node, Runtime};
use integration::images::{BUSYBOX_IMAGE, Image};
use integration::wait_until;
use k8s_openapi::api::core::v1::Pod;
use proto::cri::ExecSyncRequest;
use serde_json::json;

use crate::suite::node_rig::{phase, uid};

const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(60);

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: localhost/oxlet/busybox:1
    imagePullPolicy: Never
    command: [sh, -c, "echo begun; trap 'exit 0' TERM; while true; do sleep 0.1; done"]
"#;

async fn start(dir: &Path) -> Node {
    let archive = dir.join("busybox.tar");
    let image = Image::busybox(BUSYBOX_IMAGE).build().unwrap();
    image.save(&archive).unwrap();
    let configuration = json!({
        "import": [archive],
    });
    let node = Node::builder()
        .runtime(Runtime::Native(configuration))
        .with_patience()
        .manifest("web.yaml", POD);
    node.start().await.unwrap()
}

/// The id of the pod's container that runs.
async fn running(node: &Node) -> Option<String> {
    let cri = node.cri().await.ok()?;
    let containers = cri.containers().await.ok()?;
    let mut running = containers
        .into_iter()
        .filter(|container| container.state() == proto::cri::ContainerState::ContainerRunning);
    running.next().map(|container| container.id)
}

/// Mounts, folders, cgroups and processes of the runtime that are left.
pub(super) fn left(node: &Node) -> Vec<String> {
    let root = node.root().display().to_string();
    let native = node.root().join("oxlet/plugins/runtime/native");
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut left: Vec<_> = mounts
        .lines()
        // The root folder itself is a mount of the storage plugin's.
        .filter(|line| line.contains(&native.display().to_string()))
        .map(str::to_owned)
        .collect();
    for folder in ["sandboxes", "containers", "m"] {
        let entries = fs::read_dir(native.join(folder)).unwrap();
        left.extend(entries.map(|entry| entry.unwrap().path().display().to_string()));
    }
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains("oxlet-monitor") && line.contains(&root) {
            left.push(line);
        }
    }
    left
}

#[tokio::test]
async fn a_static_pod_runs_without_a_daemon_and_outlives_agent_and_plugin() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = start(dir.path()).await;
    let runs = async |node: &Node| running(node).await.is_some();
    wait_until(CONVERGENCE_TIMEOUT, "the pod runs", async || {
        runs(&node).await
    })
    .await
    .unwrap();
    let container = running(&node).await.unwrap();
    let begun = async || {
        let mut logs = walk(&node.pod_logs()).into_iter();
        let log = logs.find(|path| path.extension().is_some_and(|kind| kind == "log"));
        log.and_then(|log| fs::read_to_string(log).ok())
            .is_some_and(|log| log.ends_with("stdout F begun\n"))
    };
    wait_until(CONVERGENCE_TIMEOUT, "its first words are in its log", begun)
        .await
        .unwrap();

    node.kill9().unwrap();
    node.kill_plugin();
    node.begin().await.unwrap();
    node.until_plugin_ready(CONVERGENCE_TIMEOUT).await.unwrap();
    assert_eq!(running(&node).await.as_ref(), Some(&container));
    let request = ExecSyncRequest {
        container_id: container.clone(),
        cmd: ["cat", "/etc/image"].map(str::to_owned).into(),
        timeout: 10,
    };
    let cri = node.cri().await.unwrap();
    let output = cri.runtime().exec_sync(request).await.unwrap().into_inner();
    assert_eq!(String::from_utf8_lossy(&output.stdout), BUSYBOX_IMAGE);

    node.remove_manifest("web.yaml").unwrap();
    node.until_gone("web", CONVERGENCE_TIMEOUT).await.unwrap();
    wait_until(
        CONVERGENCE_TIMEOUT,
        "nothing of the pod is left",
        async || left(&node).is_empty(),
    )
    .await
    .unwrap_or_else(|error| panic!("{error}: {:#?}", left(&node)));
}

/// Every file below a folder.
fn walk(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .flat_map(|entry| match entry.path().is_dir() {
            true => walk(&entry.path()),
            false => vec![entry.path()],
        })
        .collect()
}

/// By `oxctl`, which finds the runtime's socket at the agent, or is given it where there is no agent.
#[tokio::test]
async fn oxctl_carries_an_image_by_a_file_and_needs_no_agent_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = start(dir.path()).await;
    node.until_plugin_ready(CONVERGENCE_TIMEOUT).await.unwrap();
    let file = dir.path().join("image.tar");
    let file = file.to_str().unwrap();
    let export = ["image", "export", BUSYBOX_IMAGE, "-f", file];
    let told = node.oxctl(&export).await.unwrap();
    let bytes = fs::metadata(file).unwrap().len();
    assert_eq!(told, format!("{file} ({bytes} bytes)\n"));
    let import = ["image", "import", file, "--name", "localhost/carried:1"];
    let told = node.oxctl(&import).await.unwrap();
    assert!(told.contains("localhost/carried:1"), "{told}");
    let listed = node.oxctl(&["image", "ls"]).await.unwrap();
    let ids: Vec<_> = listed
        .lines()
        .filter(|line| line.starts_with("localhost/"))
        .map(|line| line.split_whitespace().nth(1).unwrap())
        .collect();
    assert!(ids.len() == 2 && ids[0] == ids[1], "{listed}");
    let absent = node.oxctl(&["image", "rm", "localhost/absent:1"]).await;
    let absent = absent.unwrap_err().to_string();
    assert!(absent.contains("there is no image"), "{absent}");
    let export = ["image", "export", "localhost/absent:1", "-f", file];
    let none = node.oxctl(&export).await.unwrap_err().to_string();
    assert!(none.contains("absent"), "{none}");
    let names = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let names: Vec<_> = names.collect();
    assert_eq!(names.len(), 2, "what failed leaves no file: {names:?}");

    let socket = node.root().join("oxlet/plugins/runtime.sock");
    node.kill9().unwrap();
    let asked = node.oxctl(&["image", "ls"]).await.unwrap_err().to_string();
    assert!(asked.contains("--runtime SOCKET"), "{asked}");
    let socket = socket.to_str().unwrap();
    let listed = node
        .oxctl(&["image", "--runtime", socket, "ls"])
        .await
        .unwrap();
    assert!(listed.contains("localhost/carried:1"), "{listed}");
    node.begin().await.unwrap();
    node.until_plugin_ready(CONVERGENCE_TIMEOUT).await.unwrap();
    node.remove_manifest("web.yaml").unwrap();
    node.until_gone("web", CONVERGENCE_TIMEOUT).await.unwrap();
}

const USERS_POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: users}
spec:
  hostUsers: false
  terminationGracePeriodSeconds: 1
  volumes: [{name: data, emptyDir: {}}]
  containers:
  - name: main
    image: localhost/oxlet/busybox:1
    imagePullPolicy: Never
    volumeMounts: [{name: data, mountPath: /data}]
    command: [sh, -c, "cat /proc/self/uid_map > /data/map; while true; do sleep 1000; done"]
"#;

/// The agent hands out the range, since the runtime says that it can.
#[tokio::test]
async fn a_pod_with_users_of_its_own_writes_its_volume_as_roots() {
    let dir = tempfile::tempdir().unwrap();
    let networks = dir.path().join("networks");
    fs::create_dir(&networks).unwrap();
    let conflist = json!({
        "cniVersion": "1.0.0",
        "name": "oxlet-users",
        "plugins": [{
            "type": "ptp",
            "ipam": {
                "type": "host-local",
                "dataDir": dir.path().join("addresses"),
                "ranges": [[{ "subnet": "10.214.0.0/24" }]],
            },
        }],
    });
    fs::write(networks.join("10-ptp.conflist"), conflist.to_string()).unwrap();
    let archive = dir.path().join("busybox.tar");
    let image = Image::busybox(BUSYBOX_IMAGE).build().unwrap();
    image.save(&archive).unwrap();
    let node = Node::builder()
        .runtime(Runtime::Native(json!({ "import": [archive] })))
        .network_by(
            "network-native",
            &json!({ "confDir": networks, "binDirs": ["/usr/lib/cni"] }),
        )
        .with_patience()
        .manifest("users.yaml", USERS_POD)
        .start()
        .await
        .unwrap();
    let is_running = |pod: &Pod| phase(pod) == "Running";
    let pod = node.until("users", CONVERGENCE_TIMEOUT, "runs", is_running);
    let uid = uid(&pod.await.unwrap());
    let volume = node
        .root()
        .join("pods")
        .join(uid)
        .join("volumes/kubernetes.io~empty-dir/data/map");
    let map = async || fs::read_to_string(&volume).is_ok_and(|map| map.ends_with('\n'));
    wait_until(CONVERGENCE_TIMEOUT, "the container has written", map)
        .await
        .unwrap();
    let map = fs::read_to_string(&volume).unwrap();
    let numbers: Vec<u32> = map
        .split_whitespace()
        .map(|number| number.parse().unwrap())
        .collect();
    assert!(
        matches!(numbers[..], [0, first, 65_536] if first >= 65_536),
        "{map}"
    );
    assert_eq!(fs::metadata(&volume).unwrap().uid(), 0);

    node.remove_manifest("users.yaml").unwrap();
    node.until_gone("users", CONVERGENCE_TIMEOUT).await.unwrap();
    let gone = wait_until(CONVERGENCE_TIMEOUT, "nothing is left", async || {
        left(&node).is_empty()
    });
    gone.await
        .unwrap_or_else(|error| panic!("{error}: {:#?}", left(&node)));
}
