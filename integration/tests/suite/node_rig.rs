//! A node on any of the runtimes: what a case needs that is written once and run on all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use integration::agent::{Builder, Cri, Node, Runtime};
use integration::containerd::Containerd;
use integration::doubles::registry::ImageRegistry;
use integration::images::{BUSYBOX_IMAGE, Image};
use integration::{pods, wait_until};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tempfile::TempDir;

/// Generous: the machine that runs the tests may be busy. What must be fast is measured in the benches.
pub(super) const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(60);

/// Which runtime a case runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TestRuntime {
    Fake,
    Containerd,
    /// `runtime-native` with the pod network of `network-native`: no daemon.
    Native,
}

/// A node with its runtime. Dropped in this order.
pub(super) struct NodeRig {
    pub(super) node: Node,
    pub(super) containerd: Option<Containerd>,
    /// The runtime's own folder.
    dir: Option<TempDir>,
}

impl TestRuntime {
    /// Starts a node; none where the runtime cannot be had.
    pub(super) async fn start(self) -> Option<NodeRig> {
        self.start_with(|builder| builder).await
    }

    pub(super) async fn start_with(self, more: impl FnOnce(Builder) -> Builder) -> Option<NodeRig> {
        let (dir, containerd, builder) = self.prepare().await?;
        let node = match more(builder).start().await {
            Ok(node) => node,
            Err(error) => panic!("{error:#}"),
        };
        Some(NodeRig {
            node,
            containerd,
            dir,
        })
    }

    /// The runtime's own folder, its daemon, and a node on it that is not started yet; none where it cannot be had.
    pub(super) async fn prepare(self) -> Option<(Option<TempDir>, Option<Containerd>, Builder)> {
        Some(match self {
            TestRuntime::Fake => (None, None, Node::builder()),
            TestRuntime::Containerd => {
                let dir = tempfile::tempdir().unwrap();
                let rig = Containerd::for_test(dir.path()).await?;
                // Below the rig's own group, so that nothing of the pods outlives it.
                let root = json!({ "cgroupRoot": rig.cgroup() });
                let builder = Node::builder().runtime(&rig).config(&root);
                (Some(dir), Some(rig), builder)
            }
            TestRuntime::Native => {
                let dir = tempfile::tempdir().unwrap();
                let builder = native(dir.path());
                (Some(dir), None, builder)
            }
        })
    }

    /// The name of an image that the runtime has to pull, and can.
    pub(super) fn remote_image(self, registry: &ImageRegistry) -> String {
        let image = Image::busybox("team/remote:1");
        match self {
            TestRuntime::Fake => "localhost/oxlet/remote:1".to_owned(),
            TestRuntime::Containerd | TestRuntime::Native => {
                registry.push("team/remote", "1", &image).unwrap()
            }
        }
    }
}

impl NodeRig {
    /// The folder of the runtime's network configurations: one file.
    pub(super) fn networks(&self) -> PathBuf {
        self.dir.as_ref().unwrap().path().join("cni")
    }

    /// The cgroup above the node's pods.
    pub(super) fn cgroup(&self) -> String {
        match &self.containerd {
            Some(rig) => rig.cgroup(),
            None => self.node.cgroup(),
        }
    }

    /// The runtime itself, past the agent's plugin where that is possible.
    pub(super) async fn cri(&self) -> Cri {
        match &self.containerd {
            Some(rig) => Cri::over(rig.channel()),
            None => self.node.cri().await.unwrap(),
        }
    }

    /// Kills the first process of a running container.
    pub(super) async fn kill_container(&self, id: &str) {
        let cri = self.cri().await;
        match self.dir {
            Some(_) => {
                let pid = pods::pid_of(&cri.runtime(), id).await.unwrap();
                kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
            }
            // The fake runtime's processes are simulated. The exec's answer may not come.
            None => drop(cri.exec(id, &["kill", "-9", "1"]).await),
        }
    }

    pub(super) async fn until_running(&self, name: &str) -> Pod {
        self.until(name, "is running and ready", is_ready).await
    }

    pub(super) async fn until(&self, name: &str, what: &str, holds: impl Fn(&Pod) -> bool) -> Pod {
        let waited = self
            .node
            .until(name, CONVERGENCE_TIMEOUT, what, holds)
            .await;
        waited.unwrap_or_else(|error| panic!("{error:#}"))
    }

    pub(super) async fn until_gone(&self, name: &str) {
        self.node
            .until_gone(name, CONVERGENCE_TIMEOUT)
            .await
            .unwrap();
    }

    /// Waits until an event has this reason and a message with these words; returns the message.
    pub(super) async fn until_event(&self, reason: &str, words: &[&str]) -> String {
        let mut seen = String::new();
        let what = format!("an event {reason} with {words:?}");
        let waited = wait_until(CONVERGENCE_TIMEOUT, &what, async || {
            let events = self.node.oxctl(&["events", "-o", "json"]).await.unwrap();
            let events: serde_json::Value = serde_json::from_str(&events).unwrap();
            let all = events.as_array().unwrap().iter();
            let fit = |message: &&str| words.iter().all(|word| message.contains(word));
            let mut messages = all
                .filter(|event| event["reason"] == reason)
                .filter_map(|event| event["message"].as_str());
            match messages.find(fit) {
                Some(message) => {
                    message.clone_into(&mut seen);
                    true
                }
                None => false,
            }
        });
        if let Err(error) = waited.await {
            let events = self.node.oxctl(&["events"]).await.unwrap_or_default();
            panic!("{error:#}\n{events}");
        }
        seen
    }

    /// Waits until all that the agent remembers of its pods is on the disk: it writes a moment after it tells.
    pub(super) async fn until_stored(&self) {
        let is_stored = async || {
            let tree = self.node.admin("/tree").await.unwrap_or_default();
            let checkpoints = actor(&tree, "oxlet/state/checkpoints");
            checkpoints.is_some_and(|found| found["snapshot"]["is_stored"] == true)
        };
        let stored = wait_until(
            CONVERGENCE_TIMEOUT,
            "the records are on the disk",
            is_stored,
        );
        stored.await.unwrap();
    }

    /// The folder of a pod's logs, where upstream has it.
    pub(super) fn logs_of(&self, pod: &Pod) -> PathBuf {
        let meta = &pod.metadata;
        let part = |text: &Option<String>| text.clone().unwrap();
        let name = format!(
            "{}_{}_{}",
            part(&meta.namespace),
            part(&meta.name),
            part(&meta.uid)
        );
        self.node.pod_logs().join(name)
    }
}

/// A node on the native runtime, with an image and a network that are the test's own.
fn native(dir: &Path) -> Builder {
    let archive = dir.join("busybox.tar");
    let image = Image::busybox(BUSYBOX_IMAGE).build().unwrap();
    image.save(&archive).unwrap();
    let networks = dir.join("cni");
    fs::create_dir_all(&networks).unwrap();
    // No two of the tests that run at the same time have the same number.
    let number = std::process::id();
    let subnet = format!("10.{}.{}.0/24", 128 + (number >> 8) % 64, number & 0xff);
    // Neither a bridge nor masquerading: nothing of it outlives the pods.
    let network = json!({
        "cniVersion": "1.0.0",
        "name": format!("oxlet-test-{number}"),
        "plugins": [
            {
                "type": "ptp",
                "ipam": {
                    "type": "host-local",
                    "dataDir": dir.join("addresses"),
                    "ranges": [[{ "subnet": subnet }]],
                    "routes": [{ "dst": "0.0.0.0/0" }],
                },
            },
            { "type": "portmap", "capabilities": { "portMappings": true } },
        ],
    });
    fs::write(networks.join("10-test.conflist"), network.to_string()).unwrap();
    let handlers = json!({ "runc": "/usr/sbin/runc" });
    Node::builder()
        .runtime(Runtime::Native(
            json!({ "import": [archive], "handlers": handlers, "cdiSpecDirs": [dir.join("cdi")] }),
        ))
        .network_by("network-native", &json!({ "confDir": networks }))
}

/// A pod of one busybox container `app` that runs a script.
pub(super) fn one(name: &str, policy: &str, script: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  restartPolicy: {policy}
  terminationGracePeriodSeconds: 1
  containers:
  - name: app
    image: localhost/oxlet/busybox:1
    command: [sh, -c, \"{script}\"]
"
    )
}

/// A pod that runs until SIGTERM, and then ends at once.
pub(super) fn server(name: &str) -> String {
    one(name, "Always", SERVE)
}

/// Ends within a second of SIGTERM, as a shell that sleeps does.
pub(super) const SERVE: &str = "trap 'exit 0' TERM; while true; do sleep 1; done";

pub(super) fn phase(pod: &Pod) -> &str {
    let status = pod.status.as_ref();
    status
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

pub(super) fn uid(pod: &Pod) -> String {
    pod.metadata.uid.clone().unwrap()
}

pub(super) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
    phase(pod) == "Running" && ready.any(|condition| condition.status == "True")
}

/// The statuses of init and app containers, in this order.
pub(super) fn containers(pod: &Pod) -> Vec<&ContainerStatus> {
    let Some(status) = &pod.status else {
        return Vec::new();
    };
    let init = status.init_container_statuses.iter().flatten();
    init.chain(status.container_statuses.iter().flatten())
        .collect()
}

pub(super) fn container<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    containers(pod)
        .into_iter()
        .find(|container| container.name == name)
}

/// The id as the runtime has it, without `containerd://`.
pub(super) fn id_of(container: &ContainerStatus) -> String {
    let id = container.container_id.as_deref().unwrap_or_default();
    id.split_once("://").map_or(id, |(_, id)| id).to_owned()
}

/// Reason and message of a container that waits.
pub(super) fn waiting<'a>(pod: &'a Pod, name: &str) -> (&'a str, &'a str) {
    let state = container(pod, name).and_then(|container| container.state.as_ref());
    let Some(waiting) = state.and_then(|state| state.waiting.as_ref()) else {
        return ("", "");
    };
    (
        waiting.reason.as_deref().unwrap_or_default(),
        waiting.message.as_deref().unwrap_or_default(),
    )
}

pub(super) fn is_running(container: &ContainerStatus) -> bool {
    let state = container.state.as_ref();
    state.is_some_and(|state| state.running.is_some())
}

/// What must be as it was: by container, its id and restart count.
pub(super) fn identities(pods: &[Pod]) -> BTreeMap<(String, String), (String, i32)> {
    let of_pod = |pod: &Pod| {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let all = containers(pod).into_iter();
        let identity = all.map(|container| {
            let key = (name.clone(), container.name.clone());
            (key, (id_of(container), container.restart_count))
        });
        identity.collect::<Vec<_>>()
    };
    pods.iter().flat_map(of_pod).collect()
}

/// Waits until `count` pods are ready; returns all pods.
pub(super) async fn until_all_ready(node: &Node, count: usize, within: Duration) -> Vec<Pod> {
    let mut last = Vec::new();
    let what = format!("{count} pods are ready");
    let waited = wait_until(within, &what, async || {
        last = node.pods().await.unwrap_or_default();
        last.len() == count && last.iter().all(is_ready)
    });
    if let Err(error) = waited.await {
        let shown = node.oxctl(&["pods"]).await.unwrap_or_default();
        panic!(
            "{error:#}; of {} pods {} are\n{shown}",
            last.len(),
            last.iter().filter(|pod| is_ready(pod)).count()
        );
    }
    last
}

/// Nothing exists twice: a sandbox that is ready a pod, and a container for each of its names, made once.
pub(super) async fn assert_nothing_twice(cri: &Cri) {
    let mut sandboxes = BTreeSet::new();
    for sandbox in cri.sandboxes().await.unwrap() {
        let uid = sandbox.labels["io.kubernetes.pod.uid"].clone();
        if sandbox.state() == proto::cri::PodSandboxState::SandboxReady {
            assert!(sandboxes.insert(uid), "a second sandbox: {sandbox:?}");
        }
    }
    let (mut running, mut attempts) = (BTreeSet::new(), BTreeSet::new());
    for container in cri.containers().await.unwrap() {
        let label = |key: &str| container.labels[key].clone();
        let name = (
            label("io.kubernetes.pod.uid"),
            label("io.kubernetes.container.name"),
        );
        let attempt = container.metadata.as_ref().unwrap().attempt;
        assert!(
            attempts.insert((name.clone(), attempt)),
            "an attempt twice: {container:?}"
        );
        if container.state() == proto::cri::ContainerState::ContainerRunning {
            assert!(running.insert(name), "runs twice: {container:?}");
        }
    }
}

/// Restarts a killed agent and waits until every pod is as it was; returns how long both took. A pod that is shown
/// less ready than it was fails the test.
pub(super) async fn adopted(node: &mut Node, before: &[Pod]) -> (Duration, Duration) {
    let wanted = identities(before);
    let began = tokio::time::Instant::now();
    let healthy = node.begin().await.unwrap();
    let mut last = Vec::new();
    let waited = wait_until(CONVERGENCE_TIMEOUT, "every pod is adopted", async || {
        last = node.pods().await.unwrap_or_default();
        for pod in last.iter().filter(|pod| !containers(pod).is_empty()) {
            assert!(
                is_ready(pod),
                "a restart of the agent changed {:?}",
                pod.status
            );
        }
        last.len() == before.len() && last.iter().all(is_ready) && identities(&last) == wanted
    });
    let waited = waited.await;
    assert!(
        waited.is_ok(),
        "{waited:?}: {:?}, wanted {wanted:?}",
        identities(&last)
    );
    let started = |pods: &[Pod]| -> Vec<_> {
        pods.iter()
            .map(|pod| pod.status.clone().unwrap().start_time)
            .collect()
    };
    // What was lost in the last moments before the kill is reconstructed from the sandbox.
    for (then, now) in started(before).into_iter().zip(started(&last)) {
        let (then, now) = (then.unwrap().0, now.unwrap().0);
        let apart = now.duration_since(then).abs();
        assert!(
            apart <= jiff::SignedDuration::from_secs(1),
            "start times {then} and {now}"
        );
    }
    (healthy, began.elapsed())
}

/// The actor at this path of the tree, as `/tree` shows it.
pub(super) fn actor<'a>(tree: &'a serde_json::Value, path: &str) -> Option<&'a serde_json::Value> {
    if tree["path"] == path {
        return Some(tree);
    }
    let mut children = tree["children"].as_array()?.iter();
    children.find_map(|child| actor(child, path))
}

/// How often actors of the tree were restarted, all together.
pub(super) fn restarts(tree: &serde_json::Value) -> u64 {
    let children = tree["children"].as_array().into_iter().flatten();
    tree["restarts"].as_u64().unwrap() + children.map(restarts).sum::<u64>()
}

/// Every actor of the tree but the pods' workers.
pub(super) fn managers(tree: &serde_json::Value) -> Vec<String> {
    let path = tree["path"].as_str().unwrap_or_default();
    if path.starts_with("oxlet/pods/workers") {
        return Vec::new();
    }
    if tree["kind"] == "Actor" {
        return vec![path.to_owned()];
    }
    let children = tree["children"].as_array().into_iter().flatten();
    children.flat_map(managers).collect()
}
