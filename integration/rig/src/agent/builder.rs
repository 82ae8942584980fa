//! The builder of a node: its runtime, its configuration, its first manifests.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use held_port::HeldPort;
use serde_json::{Value, json};

use super::{NODE_NAME, Node, NodePorts, program};
use crate::containerd::{CgroupPlacement, Containerd};
use crate::images;

/// The node's container runtime, and how its plugin is declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// `runtime-fake`, managed, with the standard images.
    Fake,
    /// `runtime-containerd`, managed, before the containerd of this endpoint.
    Containerd(String),
    /// `runtime-native`, managed, with this configuration.
    Native(Value),
    /// This endpoint itself, declared as an external plugin.
    External(String),
    /// No plugin is declared: `containerRuntimeEndpoint` alone says what to do, as on a kubelet's node.
    Undeclared(String),
    /// Nothing says which: the agent of a node alone looks at the machine ([`Builder::alone`]).
    Chosen,
}

impl From<&Containerd> for Runtime {
    fn from(rig: &Containerd) -> Self {
        Runtime::Containerd(rig.endpoint())
    }
}

/// Builds a [`Node`].
#[derive(Debug)]
pub struct Builder {
    runtime: Runtime,
    dir: Option<PathBuf>,
    config: Value,
    fake: Value,
    plugin: Value,
    /// Command and configuration of the network plugin; none: there is none.
    network: Option<(&'static str, Value)>,
    /// The containerd of the second declared runtime; none: it is the same as of the first one.
    other: Option<String>,
    flags: Vec<String>,
    environment: Vec<(String, String)>,
    manifests: Vec<(String, String)>,
    /// None: the agent is not given a folder of objects.
    objects: Option<Vec<(String, String)>>,
    group: CgroupPlacement,
    /// Text of the kubeconfig; none: a standalone node.
    kubeconfig: Option<String>,
    mode: Mode,
    /// None: the workspace's own.
    program: Option<PathBuf>,
}

/// What the agent's command line begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// `--config`, with all that a node in a folder of its own needs.
    Configured,
    /// `--alone`, with a drop-in that only keeps the node in its folder.
    Alone,
}

impl Default for Builder {
    fn default() -> Self {
        let images = [
            images::PAUSE,
            images::BUSYBOX_IMAGE,
            "localhost/busybox:latest",
        ];
        Self {
            runtime: Runtime::Fake,
            dir: None,
            config: json!({}),
            fake: json!({ "images": images }),
            plugin: json!({}),
            network: None,
            other: None,
            flags: Vec::new(),
            environment: Vec::new(),
            manifests: Vec::new(),
            objects: None,
            group: CgroupPlacement::default(),
            kubeconfig: None,
            mode: Mode::Configured,
            program: None,
        }
    }
}

impl Builder {
    /// Takes this runtime instead of the fake one.
    #[must_use]
    pub fn runtime(mut self, runtime: impl Into<Runtime>) -> Self {
        self.runtime = runtime.into();
        self
    }

    /// Declares another containerd as the runtime `other`.
    #[must_use]
    pub fn other(mut self, rig: &Containerd) -> Self {
        self.other = Some(rig.endpoint());
        self
    }

    /// Takes this folder, which stays, instead of a temporary one.
    #[must_use]
    pub fn at(mut self, dir: &Path) -> Self {
        self.dir = Some(dir.to_owned());
        self
    }

    /// Sets fields of the KubeletConfiguration.
    #[must_use]
    pub fn config(mut self, fields: &Value) -> Self {
        merge(&mut self.config, fields);
        self
    }

    /// Sets fields of the KubeletConfiguration that are not set yet.
    #[must_use]
    pub fn defaults(mut self, fields: &Value) -> Self {
        let mut config = fields.clone();
        merge(&mut config, &self.config);
        self.config = config;
        self
    }

    /// Sets fields of the fake runtime's own configuration.
    #[must_use]
    pub fn fake(mut self, fields: &Value) -> Self {
        merge(&mut self.fake, fields);
        self
    }

    /// Declares the network plugin `network`: `network-cni` with this configuration.
    #[must_use]
    pub fn network(self, configuration: &Value) -> Self {
        self.network_by("network-cni", configuration)
    }

    /// Declares the network plugin `network`: this command with this configuration.
    #[must_use]
    pub fn network_by(mut self, command: &'static str, configuration: &Value) -> Self {
        self.network = Some((command, configuration.clone()));
        self
    }

    /// Sets fields of every plugin's declaration.
    #[must_use]
    pub fn plugin(mut self, fields: &Value) -> Self {
        merge(&mut self.plugin, fields);
        self
    }

    /// Has plugins restarted at once however often they are killed.
    #[must_use]
    pub fn with_patience(self) -> Self {
        self.plugin(&json!({ "restarts": 1_000_000, "restartsWithin": "1ms" }))
    }

    /// Feeds the agent with objects from a folder, [`Node::objects`], and lets static pods refer to them.
    #[must_use]
    pub fn with_objects(mut self) -> Self {
        self.objects = Some(Vec::new());
        self.config(&json!({ "featureGates": { "PreventStaticPodAPIReferences": false } }))
    }

    /// Puts an object's manifest into the folder before the agent starts; as [`with_objects`](Self::with_objects).
    #[must_use]
    pub fn object(self, name: &str, text: &str) -> Self {
        let mut this = match self.objects {
            Some(_) => self,
            None => self.with_objects(),
        };
        let objects = this.objects.get_or_insert_default();
        objects.push((name.to_owned(), text.to_owned()));
        this
    }

    /// Makes it a node of the cluster that this kubeconfig leads to.
    #[must_use]
    pub fn with_api(mut self, kubeconfig: impl Into<String>) -> Self {
        self.kubeconfig = Some(kubeconfig.into());
        self
    }

    /// Starts it as a node alone (`--alone`): everything that a test does not say is the agent's choice.
    #[must_use]
    pub fn alone(mut self) -> Self {
        self.mode = Mode::Alone;
        self
    }

    /// Runs this agent, with the plugins that lie beside it.
    #[must_use]
    pub fn program(mut self, oxlet: PathBuf) -> Self {
        self.program = Some(oxlet);
        self
    }

    /// Adds a flag to the agent's command line.
    #[must_use]
    pub fn flag(mut self, flag: impl Into<String>) -> Self {
        self.flags.push(flag.into());
        self
    }

    /// Sets a variable of the agent's environment.
    #[must_use]
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Lets actors be broken on purpose, by `POST /faults`.
    #[must_use]
    pub fn with_faults(self) -> Self {
        self.environment("OXLET_FAULT_INJECTION", "1")
    }

    /// Sets whether signals of the terminal reach the agent.
    #[must_use]
    pub fn group(mut self, group: CgroupPlacement) -> Self {
        self.group = group;
        self
    }

    /// Puts a manifest into the folder before the agent starts.
    #[must_use]
    pub fn manifest(mut self, name: &str, text: &str) -> Self {
        self.manifests.push((name.to_owned(), text.to_owned()));
        self
    }

    /// Writes everything down without starting anything.
    pub fn prepare(self) -> Result<Node> {
        let (dir, temporary) = match &self.dir {
            Some(dir) => (dir.clone(), None),
            None => {
                let temporary = tempfile::Builder::new().prefix("oxlet-").tempdir()?;
                (temporary.path().to_owned(), Some(temporary))
            }
        };
        for folder in ["manifests", "logs", "root"] {
            fs::create_dir_all(dir.join(folder))?;
        }
        let dir = dir.canonicalize()?;
        let ports = NodePorts {
            healthz: HeldPort::pick()?,
            read_only: HeldPort::pick()?,
            https: HeldPort::pick()?,
        };
        let mut config = match self.mode {
            Mode::Configured => configuration(&dir, &ports),
            Mode::Alone => drop_in(&dir, &ports),
        };
        config["cgroupRoot"] = json!(super::leftovers::cgroup(&dir));
        if self.runtime == Runtime::Fake {
            merge(&mut config, &simulated());
        }
        if let Runtime::Undeclared(endpoint) = &self.runtime {
            config["containerRuntimeEndpoint"] = json!(endpoint);
        }
        merge(&mut config, &self.config);
        let file = self.mode.file(&dir);
        fs::create_dir_all(file.parent().unwrap_or(&dir))?;
        fs::write(file, format!("{config:#}"))?;
        let command = self.command(&dir)?;
        let node = Node {
            dir,
            temporary,
            command,
            environment: self.environment,
            ports,
            group: self.group,
            agent: None,
        };
        for (name, text) in self.objects.iter().flatten() {
            node.drop_object(name, text)?;
        }
        for (name, text) in &self.manifests {
            node.drop_manifest(name, text)?;
        }
        Ok(node)
    }

    /// The agent's command line; writes the files that it names.
    fn command(&self, dir: &Path) -> Result<Vec<String>> {
        let oxlet = match &self.program {
            Some(own) => own.clone(),
            None => program("oxlet")?,
        };
        let mut command = vec![
            oxlet.display().to_string(),
            format!("--root-dir={}", dir.join("root").display()),
            format!("--admin-socket={}", dir.join("admin.sock").display()),
            format!("--hostname-override={NODE_NAME}"),
            format!("--cert-dir={}", dir.join("pki").display()),
        ];
        command.extend(self.mode.flags(dir));
        if let Some(kubeconfig) = &self.kubeconfig {
            let file = dir.join("kubeconfig");
            fs::write(&file, kubeconfig)?;
            command.push(format!("--kubeconfig={}", file.display()));
        }
        if let Some(plugins) = self.plugins() {
            let file = dir.join("plugins.yaml");
            fs::write(&file, format!("{plugins:#}"))?;
            command.push(format!("--plugins={}", file.display()));
        }
        if self.objects.is_some() {
            fs::create_dir_all(dir.join("objects"))?;
            let folder = dir.join("objects");
            command.push(format!("--object-manifests={}", folder.display()));
        }
        // What a test leaves is looked for at once.
        command.push("--container-gc-period=0s".to_owned());
        command.extend(self.flags.iter().cloned());
        Ok(command)
    }

    /// Starts the agent and waits until it is healthy.
    pub async fn start(self) -> Result<Node> {
        let mut node = self.prepare()?;
        node.begin().await.context("the agent does not start")?;
        Ok(node)
    }

    /// Each managed plugin is declared twice, so that one can be swapped for the other.
    fn plugins(&self) -> Option<Value> {
        let (active, more) = match &self.runtime {
            Runtime::Undeclared(_) | Runtime::Chosen => return None,
            Runtime::External(endpoint) => ("external", json!({ "endpoint": endpoint })),
            Runtime::Fake => (
                "fake",
                json!({ "command": "runtime-fake", "configuration": self.fake }),
            ),
            Runtime::Native(configuration) => (
                "native",
                json!({ "command": "runtime-native", "configuration": configuration }),
            ),
            Runtime::Containerd(endpoint) => {
                let configuration = json!({ "endpoint": endpoint });
                (
                    "containerd",
                    json!({ "command": "runtime-containerd", "configuration": configuration }),
                )
            }
        };
        let declared = |name: &str| {
            let mut plugin = json!({ "name": name, "kind": "runtime" });
            merge(&mut plugin, &more);
            merge(&mut plugin, &self.plugin);
            plugin
        };
        let storage = |name: &str| {
            let mut plugin = json!({ "name": name, "kind": "storage", "command": name });
            merge(&mut plugin, &self.plugin);
            plugin
        };
        let mut other = declared("other");
        if let Some(endpoint) = &self.other {
            other["configuration"]["endpoint"] = json!(endpoint);
        }
        let mut plugins = vec![
            declared(active),
            other,
            storage("storage-local"),
            storage("storage-csi"),
        ];
        if let Some((command, configuration)) = &self.network {
            let mut network = json!({ "name": "network", "kind": "network", "command": command });
            network["configuration"] = configuration.clone();
            merge(&mut network, &self.plugin);
            plugins.push(network);
        }
        Some(json!({
            "apiVersion": "oxlet.dev/v1alpha1",
            "kind": "PluginConfiguration",
            "runtime": active,
            "plugins": plugins,
        }))
    }
}

impl Mode {
    /// Where the configuration is written.
    fn file(self, dir: &Path) -> PathBuf {
        match self {
            Mode::Configured => dir.join("config.yaml"),
            Mode::Alone => dir.join("config.d/10-node.conf"),
        }
    }

    /// The flags by which the agent finds it.
    fn flags(self, dir: &Path) -> Vec<String> {
        match self {
            Mode::Configured => vec![format!("--config={}", self.file(dir).display())],
            Mode::Alone => vec![
                "--alone".to_owned(),
                format!("--config-dir={}", dir.join("config.d").display()),
            ],
        }
    }
}

/// What keeps a node alone in its folder and on its ports, and lets the machine's disk be as full as it is.
fn drop_in(dir: &Path, ports: &NodePorts) -> Value {
    let mut fields = configuration(dir, ports);
    if let Value::Object(fields) = &mut fields {
        let chosen = [
            "address",
            "port",
            "failCgroupV1",
            "failSwapOn",
            "makeIPTablesUtilChains",
            "serializeImagePulls",
            "maxPods",
        ];
        fields.retain(|name, _| !chosen.contains(&name.as_str()));
    }
    fields
}

fn configuration(dir: &Path, ports: &NodePorts) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "staticPodPath": dir.join("manifests"),
        "podLogsDir": dir.join("logs"),
        "address": "127.0.0.1",
        "port": ports.https.number(),
        "healthzPort": ports.healthz.number(),
        "readOnlyPort": ports.read_only.number(),
        "failCgroupV1": false,
        // The machine's own rules are not the tests'.
        "makeIPTablesUtilChains": false,
        "failSwapOn": false,
        "serializeImagePulls": false,
        "maxPods": 1_100,
        // How full the machine's disk is decides nothing.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
            "imagefs.inodesFree": "0%",
        },
    })
}

/// Settings that turn off cgroups: simulated containers have no processes in them.
fn simulated() -> Value {
    json!({ "cgroupsPerQOS": false, "enforceNodeAllocatable": [] })
}

/// Objects are merged by their fields; everything else is replaced.
fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (field, value) in from {
                merge(into.entry(field.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => into.clone_from(from),
    }
}
