//! What a kubelet does on a node and what it leaves there, written down from upstream for the tests: nothing of it is
//! asked of the agent's own code.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use integration::agent::Node;
use integration::containerd::Containerd;
use integration::pods;
use proto::cri;
use serde_json::{Value, json};

/// FNV-1a in 32 bits.
fn fnv32a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

/// `HashContainer` since 1.31: of the dump of the JSON of name and image.
pub(super) fn container_hash(name: &str, image: &str) -> String {
    let json = format!(r#"{{"image":"{image}","name":"{name}"}}"#);
    let bytes: Vec<String> = json.bytes().map(|byte| byte.to_string()).collect();
    let dump = format!("([]uint8)[{}]", bytes.join(" "));
    format!("{:x}", fnv32a(dump.as_bytes()))
}

/// A checkpoint file with this data.
pub(super) fn checkpoint(data: &Value) -> String {
    let text = data.to_string();
    let checksum = fnv32a(format!("(string){text}").as_bytes());
    json!({ "data": text, "checksum": checksum }).to_string()
}

/// The data of a checkpoint file, as a kubelet reads it: it does not start with a wrong checksum.
pub(super) fn checkpoint_data(path: &Path) -> Value {
    let file: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let text = file["data"].as_str().unwrap();
    let checksum = fnv32a(format!("(string){text}").as_bytes());
    assert_eq!(file["checksum"], checksum, "{}", path.display());
    let keys: Vec<&String> = file.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["checksum", "data"]);
    serde_json::from_str(text).unwrap()
}

/// A pod that the kubelet runs, and where it came from.
pub(super) struct KubeletRun {
    pub(super) pod: Value,
    /// The instance that ended, and the one that runs.
    pub(super) containers: [String; 2],
}

/// The kubelet of a node, on its runtime.
pub(super) struct KubeletDouble<'a> {
    pub(super) node: &'a Node,
    pub(super) rig: &'a Containerd,
}

impl KubeletDouble<'_> {
    /// Returns a pod's folder, `ROOT/pods/UID`.
    pub(super) fn folder(&self, uid: &str) -> PathBuf {
        self.node.root().join("pods").join(uid)
    }

    /// Runs a pod of one container `app` that has ended once and runs again.
    pub(super) async fn run(&self, pod: Value) -> KubeletRun {
        self.make_folders(&pod);
        let client = self.rig.runtime();
        let config = self.sandbox(&pod);
        let sandbox = pods::run_sandbox(&client, &config).await.unwrap();
        let mut containers = Vec::new();
        for attempt in [0, 1] {
            let container = self.container(&pod, attempt);
            let id = pods::run_container(&client, &sandbox, &config, container).await;
            let id = id.unwrap();
            if attempt == 0 {
                let stop = cri::StopContainerRequest {
                    container_id: id.clone(),
                    timeout: 0,
                };
                client.clone().stop_container(stop).await.unwrap();
            }
            containers.push(id);
        }
        KubeletRun {
            pod,
            containers: containers.try_into().unwrap(),
        }
    }

    fn sandbox(&self, pod: &Value) -> cri::PodSandboxConfig {
        let meta = Meta::of(pod);
        let mut labels = words(&pod["metadata"]["labels"]);
        labels.extend(meta.labels());
        let security = cri::LinuxSandboxSecurityContext {
            namespace_options: Some(namespaces()),
            seccomp: Some(runtime_default()),
            ..Default::default()
        };
        cri::PodSandboxConfig {
            metadata: Some(cri::PodSandboxMetadata {
                name: meta.name.clone(),
                uid: meta.uid.clone(),
                namespace: meta.namespace.clone(),
                attempt: 0,
            }),
            hostname: meta.name.clone(),
            log_directory: self.logs(&meta).display().to_string(),
            dns_config: Some(cri::DnsConfig::default()),
            labels,
            annotations: words(&pod["metadata"]["annotations"]),
            linux: Some(cri::LinuxPodSandboxConfig {
                cgroup_parent: self.cgroup(&meta),
                security_context: Some(security),
                overhead: Some(cri::LinuxContainerResources::default()),
                resources: Some(cri::LinuxContainerResources::default()),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    fn container(&self, pod: &Value, attempt: u32) -> cri::ContainerConfig {
        let meta = Meta::of(pod);
        let spec = &pod["spec"]["containers"][0];
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let image = text(&spec["image"]);
        let grace = pod["spec"]["terminationGracePeriodSeconds"].as_i64();
        let annotations = HashMap::from([
            (
                "io.kubernetes.container.hash".to_owned(),
                container_hash("app", &image),
            ),
            (
                "io.kubernetes.container.restartCount".to_owned(),
                attempt.to_string(),
            ),
            (
                "io.kubernetes.container.terminationMessagePath".to_owned(),
                "/dev/termination-log".to_owned(),
            ),
            (
                "io.kubernetes.container.terminationMessagePolicy".to_owned(),
                "File".to_owned(),
            ),
            (
                "io.kubernetes.pod.terminationGracePeriod".to_owned(),
                grace.unwrap().to_string(),
            ),
        ]);
        let mut labels: HashMap<String, String> = meta.labels().into_iter().collect();
        labels.insert("io.kubernetes.container.name".to_owned(), "app".to_owned());
        let command = spec["command"].as_array().unwrap().iter().map(text);
        cri::ContainerConfig {
            metadata: Some(cri::ContainerMetadata {
                name: "app".to_owned(),
                attempt,
            }),
            image: Some(cri::ImageSpec {
                image: image.clone(),
                user_specified_image: image,
                ..Default::default()
            }),
            command: command.collect(),
            mounts: self.mounts(&meta, attempt),
            labels,
            annotations,
            log_path: format!("app/{attempt}.log"),
            linux: Some(cri::LinuxContainerConfig {
                resources: Some(cri::LinuxContainerResources {
                    cpu_period: 100_000,
                    cpu_quota: 20_000,
                    cpu_shares: 102,
                    memory_limit_in_bytes: 64 << 20,
                    oom_score_adj: 999,
                    ..Default::default()
                }),
                security_context: Some(cri::LinuxContainerSecurityContext {
                    namespace_options: Some(namespaces()),
                    seccomp: Some(runtime_default()),
                    ..Default::default()
                }),
            }),
            ..Default::default()
        }
    }

    fn mounts(&self, meta: &Meta, attempt: u32) -> Vec<cri::Mount> {
        let folder = self.folder(&meta.uid);
        let message = folder.join(format!("containers/app/0000000{attempt}"));
        fs::write(&message, "").unwrap();
        let places = [
            (
                folder.join("volumes/kubernetes.io~empty-dir/scratch"),
                "/scratch",
            ),
            (folder.join("volumes/kubernetes.io~configmap/conf"), "/conf"),
            (folder.join("etc-hosts"), "/etc/hosts"),
            (message, "/dev/termination-log"),
        ];
        let there = places.into_iter().filter(|(host, _)| host.exists());
        let mount = |(host, inside): (PathBuf, &str)| cri::Mount {
            host_path: host.display().to_string(),
            container_path: inside.to_owned(),
            ..Default::default()
        };
        there.map(mount).collect()
    }

    /// Folders and files of a pod; the volumes only of one that has some.
    fn make_folders(&self, pod: &Value) {
        let meta = Meta::of(pod);
        let folder = self.folder(&meta.uid);
        fs::create_dir_all(folder.join("containers/app")).unwrap();
        let hosts = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n";
        fs::write(folder.join("etc-hosts"), hosts).unwrap();
        fs::create_dir_all(self.logs(&meta).join("app")).unwrap();
        if !pod["spec"]["volumes"].is_array() {
            return;
        }
        let volumes = folder.join("volumes");
        let scratch = volumes.join("kubernetes.io~empty-dir/scratch");
        fs::create_dir_all(&scratch).unwrap();
        fs::write(scratch.join("note"), "written under the kubelet").unwrap();
        let conf = volumes.join("kubernetes.io~configmap/conf");
        let dated = "..2026_01_02_03_04_05.123456789";
        fs::create_dir_all(conf.join(dated)).unwrap();
        fs::write(conf.join(dated).join("key"), "value").unwrap();
        symlink(dated, conf.join("..data")).unwrap();
        symlink("..data/key", conf.join("key")).unwrap();
        for ready in ["scratch", "wrapped_conf"] {
            let marker = folder.join("plugins/kubernetes.io~empty-dir").join(ready);
            fs::create_dir_all(&marker).unwrap();
            fs::write(marker.join("ready"), "").unwrap();
        }
    }

    fn logs(&self, meta: &Meta) -> PathBuf {
        let name = format!("{}_{}_{}", meta.namespace, meta.name, meta.uid);
        self.node.pod_logs().join(name)
    }

    fn cgroup(&self, meta: &Meta) -> String {
        format!("{}/kubepods/burstable/pod{}", self.rig.cgroup(), meta.uid)
    }

    /// What a kubelet keeps in its root folder beside the pods.
    pub(super) fn keep(&self, entries: &Value) {
        let root = self.node.root();
        for name in ["allocated_pods_state", "actuated_pods_state"] {
            let data = json!({ "entries": entries });
            fs::write(root.join(name), checkpoint(&data)).unwrap();
        }
        for (name, text) in OTHERS {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    /// Asserts that the agent has not changed files that it does not use.
    pub(super) fn assert_others_are_untouched(&self) {
        for (name, text) in OTHERS {
            let now = fs::read_to_string(self.node.root().join(name)).unwrap();
            assert_eq!(now, text, "{name}");
        }
    }
}

/// State files of other managers, as a kubelet with the policies `none` writes them.
const OTHERS: [(&str, &str); 4] = [
    (
        "cpu_manager_state",
        r#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690}"#,
    ),
    (
        "memory_manager_state",
        r#"{"policyName":"None","machineState":{},"checksum":4236770233}"#,
    ),
    (
        "dra_manager_state",
        r#"{"Data":"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\",\"ClaimInfoStateList\":null}","Checksum":4010664294}"#,
    ),
    (
        "device-plugins/kubelet_internal_checkpoint",
        r#"{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":3467439661}"#,
    ),
];

/// A pod's metadata.
struct Meta {
    name: String,
    namespace: String,
    uid: String,
}

impl Meta {
    fn of(pod: &Value) -> Self {
        let text = |key: &str| pod["metadata"][key].as_str().unwrap().to_owned();
        Meta {
            name: text("name"),
            namespace: text("namespace"),
            uid: text("uid"),
        }
    }

    fn labels(&self) -> BTreeMap<String, String> {
        let own = [
            ("name", &self.name),
            ("namespace", &self.namespace),
            ("uid", &self.uid),
        ];
        let own = own.map(|(key, value)| (format!("io.kubernetes.pod.{key}"), value.clone()));
        own.into()
    }
}

fn words(map: &Value) -> HashMap<String, String> {
    let map = map.as_object().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    map.map(|(key, value)| (key.clone(), text(value))).collect()
}

fn namespaces() -> cri::NamespaceOption {
    cri::NamespaceOption {
        network: cri::NamespaceMode::Pod.into(),
        pid: cri::NamespaceMode::Container.into(),
        ipc: cri::NamespaceMode::Pod.into(),
        ..Default::default()
    }
}

fn runtime_default() -> cri::SecurityProfile {
    cri::SecurityProfile {
        profile_type: cri::security_profile::ProfileType::RuntimeDefault.into(),
        ..Default::default()
    }
}
