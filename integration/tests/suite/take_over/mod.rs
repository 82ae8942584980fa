//! A node that a kubelet of 1.34 to 1.36 has run is taken over and handed back: no container notices.

mod kubelet;
mod recorded;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use apiserver::ServerOptions;
use integration::agent::{Cri, NODE_NAME, Node};
use integration::cluster::{Cluster, condition};
use integration::containerd::Containerd;
use logic_api::manifest::{KubeletRelease, ManifestSource, UnknownFields, parse, static_pod_uid};
use serde_json::{Value, json};
use tempfile::TempDir;

use self::kubelet::{KubeletDouble, KubeletRun, checkpoint_data, container_hash};

/// A debug build on a busy machine.
const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(60);
const IMAGE: &str = "localhost/oxlet/busybox:1";
/// When the kubelet began with the pods.
const BEGAN: &str = "2026-01-02T03:04:05Z";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// The node while the agent takes it over from a kubelet.
struct Handover {
    cluster: Cluster,
    rig: Containerd,
    _dir: TempDir,
    web: KubeletRun,
    fixed: KubeletRun,
    /// When both became ready.
    ready: String,
}

impl Handover {
    /// A kubelet of this release has run the node for a while, and has ended.
    async fn from(release: KubeletRelease) -> Option<Handover> {
        let dir = tempfile::tempdir().unwrap();
        let rig = Containerd::for_test(dir.path()).await?;
        let builder = Node::builder()
            .runtime(&rig)
            .config(&json!({ "cgroupRoot": rig.cgroup() }));
        let cluster = Cluster::prepare(builder, ServerOptions::default())
            .await
            .unwrap();
        let kubelet = KubeletDouble {
            node: &cluster.node,
            rig: &rig,
        };
        let node = register(&cluster);
        let conf = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "conf" }, "data": { "key": "value" },
        });
        let maps = "/api/v1/namespaces/default/configmaps";
        cluster.server.post(maps, &conf).unwrap();

        let mut web = cluster.apply(&web()).unwrap();
        web["metadata"]["annotations"] = seen("api");
        let fixed = kubelet.run(fixed(&cluster.node, release)).await;
        mirror(&cluster, &fixed, &node);
        let web = kubelet.run(web).await;
        let ready = started(&rig, &web).await;
        tell(&cluster, &web, &ready);
        tell(&cluster, &fixed, &ready);
        let uid = web.pod["metadata"]["uid"].as_str().unwrap();
        kubelet.keep(&json!({ uid: entry(release) }));
        Some(Handover {
            cluster,
            rig,
            _dir: dir,
            web,
            fixed,
            ready,
        })
    }

    fn kubelet(&self) -> KubeletDouble<'_> {
        KubeletDouble {
            node: &self.cluster.node,
            rig: &self.rig,
        }
    }

    async fn take_over(&mut self) {
        self.cluster.node.begin().await.unwrap();
        self.cluster.until_ready(CONVERGENCE_TIMEOUT).await.unwrap();
    }

    /// Waits until the agent knows both pods.
    async fn knows_both(&self) {
        let pods = async || self.cluster.node.pods().await;
        let known = async || pods().await.is_ok_and(|pods| pods.len() == 2);
        self.cluster
            .wait("both pods are known", known)
            .await
            .unwrap();
    }

    /// Every sandbox and container of the runtime, with its state.
    async fn everything(&self) -> BTreeMap<String, String> {
        let cri = Cri::over(self.rig.channel());
        let sandboxes = cri.sandboxes().await.unwrap().into_iter();
        let mut all: BTreeMap<String, String> = sandboxes
            .map(|sandbox| (sandbox.id.clone(), format!("{:?}", sandbox.state())))
            .collect();
        for container in cri.containers().await.unwrap() {
            all.insert(container.id.clone(), format!("{:?}", container.state()));
        }
        all
    }

    /// The pod in the API is the one that the kubelet ran, in the same containers and never less ready.
    fn assert_is_as_it_was(&self, ran: &KubeletRun) {
        let name = ran.pod["metadata"]["name"].as_str().unwrap();
        let pod = self.cluster.pod(name).unwrap();
        let status = &pod["status"];
        assert_eq!(status["phase"], "Running", "{status:#}");
        assert_eq!(status["startTime"], BEGAN, "{name}");
        for kind in ["Ready", "ContainersReady"] {
            let conditions = status["conditions"].as_array().unwrap();
            let ready = conditions.iter().find(|one| one["type"] == kind).unwrap();
            assert_eq!(ready["status"], "True", "{name}: {status:#}");
            assert_eq!(
                ready["lastTransitionTime"],
                self.ready.as_str(),
                "{name}: {status:#}"
            );
        }
        let [before, now] = &ran.containers;
        let container = &status["containerStatuses"][0];
        assert_eq!(container["containerID"], format!("containerd://{now}"));
        assert_eq!(container["restartCount"], 1, "{name}");
        let last = &container["lastState"]["terminated"];
        assert_eq!(last["containerID"], format!("containerd://{before}"));
    }
}

fn register(cluster: &Cluster) -> Value {
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": NODE_NAME, "labels": { "kubernetes.io/hostname": NODE_NAME } },
    });
    cluster.server.post("/api/v1/nodes", &node).unwrap()
}

fn seen(source: &str) -> Value {
    json!({
        "kubernetes.io/config.seen": "2026-01-02T03:04:05.678901234Z",
        "kubernetes.io/config.source": source,
    })
}

/// A pod of the API that wants more than any node has: it keeps what the kubelet gave it.
fn web() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "web", "labels": { "app": "web" } },
        "spec": {
            "nodeName": NODE_NAME,
            "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 2,
            "containers": [{
                "name": "app",
                "image": IMAGE,
                "command": ["sleep", "infinity"],
                "resources": {
                    "requests": { "cpu": "9000", "memory": "64Mi" },
                    "limits": { "cpu": "9000", "memory": "64Mi" },
                },
                "resizePolicy": [
                    { "resourceName": "cpu", "restartPolicy": "RestartContainer" },
                    { "resourceName": "memory", "restartPolicy": "RestartContainer" },
                ],
                "readinessProbe": { "exec": { "command": ["true"] }, "initialDelaySeconds": 5 },
                "startupProbe": { "exec": { "command": ["true"] }, "initialDelaySeconds": 5 },
                "volumeMounts": [
                    { "name": "scratch", "mountPath": "/scratch" },
                    { "name": "conf", "mountPath": "/conf" },
                ],
            }],
            "volumes": [
                { "name": "scratch", "emptyDir": {} },
                { "name": "conf", "configMap": { "name": "conf" } },
            ],
        },
    })
}

const FIXED: &str = "apiVersion: v1
kind: Pod
metadata: {name: fixed, labels: {tier: control-plane}}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - {name: app, image: 'localhost/oxlet/busybox:1', command: [sleep, infinity]}
";

/// The static pod as the kubelet of this release makes it of its manifest.
fn fixed(node: &Node, release: KubeletRelease) -> Value {
    node.drop_manifest("fixed.yaml", FIXED).unwrap();
    let path = node.manifests().join("fixed.yaml");
    let parsed = parse(FIXED.as_bytes(), UnknownFields::Refuse).unwrap();
    let pod = parsed.pods.into_iter().next().unwrap().unwrap().pod;
    let source = ManifestSource::File(path.display().to_string());
    let mut value = serde_json::to_value(&pod).unwrap();
    let uid = static_pod_uid(pod, &source, NODE_NAME, release);
    let mut annotations = seen("file");
    annotations["kubernetes.io/config.hash"] = json!(uid);
    value["metadata"]["annotations"] = annotations;
    value["metadata"]["name"] = json!(format!("fixed-{NODE_NAME}"));
    value["metadata"]["namespace"] = json!("default");
    value["metadata"]["uid"] = json!(uid);
    value["spec"]["nodeName"] = json!(NODE_NAME);
    value
}

/// The static pod's image in the API.
fn mirror(cluster: &Cluster, ran: &KubeletRun, node: &Value) {
    let mut mirror = ran.pod.clone();
    let uid = mirror["metadata"]["uid"].take();
    let meta = mirror["metadata"].as_object_mut().unwrap();
    meta.remove("uid");
    meta["annotations"]["kubernetes.io/config.mirror"] = uid;
    mirror["apiVersion"] = json!("v1");
    mirror["kind"] = json!("Pod");
    mirror["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "Node", "controller": true,
        "name": NODE_NAME, "uid": node["metadata"]["uid"],
    }]);
    cluster.apply(&mirror).unwrap();
}

/// When the container that runs was started.
async fn started(rig: &Containerd, ran: &KubeletRun) -> String {
    let cri = Cri::over(rig.channel());
    let status = cri.status(&ran.containers[1]).await.unwrap();
    let second = status.started_at / 1_000_000_000;
    jiff::Timestamp::from_second(second).unwrap().to_string()
}

/// Patches a pod's status into the API as the kubelet would have.
fn tell(cluster: &Cluster, ran: &KubeletRun, ready: &str) {
    let kinds = [
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
    ];
    let condition = |kind: &str| {
        let at = match kind {
            "Ready" | "ContainersReady" => ready,
            _ => BEGAN,
        };
        json!({ "type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": at })
    };
    let [before, now] = ran
        .containers
        .each_ref()
        .map(|id| format!("containerd://{id}"));
    let ended = json!({
        "exitCode": 137, "reason": "Error", "containerID": before, "startedAt": BEGAN, "finishedAt": BEGAN,
    });
    let status = json!({
        "phase": "Running",
        "startTime": BEGAN,
        "qosClass": "Burstable",
        "conditions": kinds.map(condition),
        "containerStatuses": [{
            "name": "app", "image": IMAGE, "imageID": IMAGE, "containerID": now,
            "ready": true, "started": true, "restartCount": 1,
            "state": { "running": { "startedAt": BEGAN } },
            "lastState": { "terminated": ended },
        }],
    });
    let name = ran.pod["metadata"]["name"].as_str().unwrap();
    let path = format!("{PODS}/{name}/status");
    let told = cluster.server.patch(&path, &json!({ "status": status }));
    told.unwrap();
}

/// What is allocated to `web`, as the kubelet of this release keeps it.
fn entry(release: KubeletRelease) -> Value {
    let own = json!({ "cpu": "200m", "memory": "64Mi" });
    let mut entry = json!({ "ContainerResources": { "app": { "limits": own, "requests": own } } });
    if release >= KubeletRelease::V1_35 {
        entry["PodLevelResources"] = Value::Null;
    }
    if release >= KubeletRelease::V1_36 {
        entry["EmptyDirVolumeLimits"] = Value::Null;
    }
    entry
}

/// The CPU request that a checkpoint names for the pod.
fn cpu_in(path: &Path, uid: &str) -> Value {
    let data = checkpoint_data(path);
    data["entries"][uid]["ContainerResources"]["app"]["requests"]["cpu"].clone()
}

fn uid(pod: &Value) -> String {
    pod["metadata"]["uid"].as_str().unwrap().to_owned()
}

async fn is_taken_over_and_handed_back(release: KubeletRelease) {
    let Some(mut node) = Handover::from(release).await else {
        return;
    };
    let before = node.everything().await;
    let shadow = node.cluster.pod("fixed-node").unwrap();
    node.take_over().await;

    // Both are known, and the resize that cannot be is answered.
    let answered = |pod: &Value| condition(pod, "PodResizePending") == Some("True");
    let pod = node
        .cluster
        .until_pod("web", CONVERGENCE_TIMEOUT, answered)
        .await
        .unwrap();
    let allocated = &pod["status"]["containerStatuses"][0]["allocatedResources"];
    assert_eq!(allocated["cpu"], "200m", "{:#}", pod["status"]);
    node.knows_both().await;
    let told = |pod: &Value| pod["status"]["hostIP"].is_string();
    node.cluster
        .until_pod("fixed-node", CONVERGENCE_TIMEOUT, told)
        .await
        .unwrap();
    node.assert_is_as_it_was(&node.web);
    node.assert_is_as_it_was(&node.fixed);
    assert_eq!(uid(&node.cluster.pod("fixed-node").unwrap()), uid(&shadow));
    assert_eq!(node.everything().await, before);

    // A pod of the agent's own, for the kubelet that comes back.
    let mut fresh = web();
    fresh["metadata"]["name"] = json!("fresh");
    let container = fresh["spec"]["containers"][0].as_object_mut().unwrap();
    container.retain(|field, _| !field.ends_with("Probe"));
    let own = json!({ "cpu": "10m", "memory": "32Mi" });
    fresh["spec"]["containers"][0]["resources"] = json!({ "requests": own, "limits": own });
    node.cluster.apply(&fresh).unwrap();
    let runs = |pod: &Value| condition(pod, "Ready") == Some("True");
    let fresh = node
        .cluster
        .until_pod("fresh", CONVERGENCE_TIMEOUT, runs)
        .await
        .unwrap();
    let after = node.everything().await;
    node.cluster.node.terminate().await.unwrap();

    assert_eq!(node.everything().await, after, "pods live on");
    assert!(before.iter().all(|one| after.get(one.0) == Some(one.1)));
    assert_kubelet_finds_its_own(&node, &fresh).await;
}

async fn assert_kubelet_finds_its_own(node: &Handover, fresh: &Value) {
    let kubelet = node.kubelet();
    let root = node.cluster.node.root();
    kubelet.assert_others_are_untouched();
    for name in ["allocated_pods_state", "actuated_pods_state"] {
        let path = root.join(name);
        assert_eq!(cpu_in(&path, &uid(&node.web.pod)), "200m", "{name}");
        assert_eq!(cpu_in(&path, &uid(fresh)), "10m", "{name}");
    }
    let mut known = Vec::from(OF_A_KUBELET);
    known.push("oxlet");
    for entry in fs::read_dir(&root).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(known.contains(&name.as_str()), "{name} is new to a kubelet");
    }
    let volumes = kubelet.folder(&uid(&node.web.pod)).join("volumes");
    let note = volumes.join("kubernetes.io~empty-dir/scratch/note");
    assert_eq!(
        fs::read_to_string(note).unwrap(),
        "written under the kubelet"
    );
    let key = volumes.join("kubernetes.io~configmap/conf/key");
    assert_eq!(fs::read_to_string(key).unwrap(), "value");
    for name in [
        "pods/UID/etc-hosts",
        "pods/UID/plugins/kubernetes.io~empty-dir",
    ] {
        let path = root.join(name.replace("UID", &uid(fresh)));
        assert!(path.exists(), "{}", path.display());
    }

    let cri = Cri::over(node.rig.channel());
    let ours = cri.containers().await.unwrap();
    let of = |container: &proto::cri::Container| {
        container.labels.get("io.kubernetes.pod.uid") == Some(&uid(fresh))
    };
    let ours: Vec<_> = ours.into_iter().filter(of).collect();
    assert_eq!(ours.len(), 1);
    let notes = &ours[0].annotations;
    let kubelets = [
        ("container.hash", container_hash("app", IMAGE)),
        ("container.restartCount", "0".to_owned()),
        (
            "container.terminationMessagePath",
            "/dev/termination-log".to_owned(),
        ),
        ("container.terminationMessagePolicy", "File".to_owned()),
        ("pod.terminationGracePeriod", "2".to_owned()),
    ];
    for (key, value) in &kubelets {
        assert_eq!(
            notes.get(&format!("io.kubernetes.{key}")),
            Some(value),
            "{key}"
        );
    }
    // A kubelet passes over what it does not know.
    assert!(notes.contains_key("oxlet.dev/resources"), "{notes:?}");
    assert_eq!(notes.len(), kubelets.len() + 1, "{notes:?}");
}

/// What a kubelet has in its root folder.
const OF_A_KUBELET: [&str; 14] = [
    "actuated_pods_state",
    "allocated_pods_state",
    "checkpoints",
    "cpu_manager_state",
    "device-plugins",
    "dra_manager_state",
    "graceful_node_shutdown_state",
    "image_manager",
    "memory_manager_state",
    "pki",
    "plugins",
    "plugins_registry",
    "pod-resources",
    "pods",
];

#[tokio::test]
async fn a_node_of_a_kubelet_of_1_34_is_taken_over_and_handed_back() {
    is_taken_over_and_handed_back(KubeletRelease::V1_34).await;
}

#[tokio::test]
async fn a_node_of_a_kubelet_of_1_35_is_taken_over_and_handed_back() {
    is_taken_over_and_handed_back(KubeletRelease::V1_35).await;
}

#[tokio::test]
async fn a_node_of_a_kubelet_of_1_36_is_taken_over_and_handed_back() {
    is_taken_over_and_handed_back(KubeletRelease::V1_36).await;
}

/// A kubelet would not start with such a file; the agent does, and leaves one that a kubelet starts with.
#[tokio::test]
async fn damaged_checkpoints_are_told_and_end_nobody() {
    let Some(mut node) = Handover::from(KubeletRelease::V1_36).await else {
        return;
    };
    let before = node.everything().await;
    let root = node.cluster.node.root();
    fs::write(root.join("allocated_pods_state"), "garbage").unwrap();
    node.take_over().await;
    let aside = root.join("allocated_pods_state.set-aside");
    assert_eq!(fs::read_to_string(aside).unwrap(), "garbage");
    let told = |log: &str| log.contains("allocated_pods_state") && log.contains("does not read");
    assert!(told(&node.cluster.node.log()));
    node.knows_both().await;
    node.cluster.node.terminate().await.unwrap();
    assert_eq!(node.everything().await, before);
    checkpoint_data(&root.join("actuated_pods_state"));
}
