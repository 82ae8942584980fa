//! A node, its runtime and its API server on one thread and one simulated clock.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use api_client::Dial;
use apiserver::{Server, ServerOptions};
use clients::runtime::RuntimeClient;
use clients::runtime::fake::serve;
use clients::storage::testing::FakeStorage;
use config::{CgroupVersion, HostFacts, Invocation, StandaloneFacts};
use kernel::testing::{SIMULATED_START, observe};
use kernel::{Intensity, Supervisor};
use plugin_host::PluginClient;
use pods::runtime::handover::RuntimeGate;
use runtime_fake::{Clock, Fake, FakeSettings};
use serde_json::{Value, json};

use super::super::api_server::ClusterWiring;
use super::super::{Backends, spawn};
use super::trace::Trace;
use crate::settings::AgentSettings;

/// The name of the node.
pub(super) const NODE: &str = "node";

/// The node and what is around it, which outlives it.
pub(super) struct SimulatedCluster {
    pub(super) root: Supervisor,
    pub(super) runtime: RuntimeClient,
    pub(super) fake: Fake,
    pub(super) storage: FakeStorage,
    pub(super) api: Arc<Server>,
    pub(super) trace: Trace,
    folder: PathBuf,
}

impl SimulatedCluster {
    /// Starts a node in an empty folder.
    pub(super) async fn start(folder: &Path, seed: u64) -> SimulatedCluster {
        let options = ServerOptions {
            scheduler: true,
            service_accounts: false,
            ..ServerOptions::default()
        };
        let runtime = br#"{"pull_time": "300ms"}"#;
        SimulatedCluster::start_with(folder, seed, options, runtime).await
    }

    /// Starts a node with an API server and a runtime of these settings.
    pub(super) async fn start_with(
        folder: &Path,
        seed: u64,
        options: ServerOptions,
        runtime: &[u8],
    ) -> SimulatedCluster {
        let trace = Trace::begin(&folder.display().to_string());
        let start = SystemTime::UNIX_EPOCH + SIMULATED_START;
        let wall = jiff::Timestamp::try_from(start).unwrap();
        let api = Arc::new(Server::simulated(options, wall, seed).unwrap());
        api.observe(trace.of("api"));
        let runtime = FakeSettings::from_json(runtime).unwrap();
        let fake = Fake::open_at(folder.join("fake"), runtime, Clock::at(start)).unwrap();
        fake.observe(trace.of("cri"));
        let messages = trace.clone();
        observe(Some(Box::new(move |actor, message| {
            messages.add(actor, message);
        })));
        let storage = FakeStorage::start();
        let (root, runtime) = spawn_node(folder, &api, &fake, &storage).await;
        SimulatedCluster {
            root,
            runtime,
            fake,
            storage,
            api,
            trace,
            folder: folder.to_owned(),
        }
    }

    /// Ends the agent, and starts it again on what it left.
    pub(super) async fn restart(&mut self) {
        self.root.shutdown().await;
        (self.root, self.runtime) =
            spawn_node(&self.folder, &self.api, &self.fake, &self.storage).await;
    }

    /// Ends the node; the whole trace.
    pub(super) async fn end(self) -> Vec<String> {
        self.root.shutdown().await;
        observe(None);
        for call in self.storage.calls() {
            self.trace.add("storage", &call);
        }
        self.trace.lines()
    }
}

/// Spawns the agent's tree, and returns its root and its client of the runtime.
async fn spawn_node(
    folder: &Path,
    api: &Arc<Server>,
    fake: &Fake,
    storage: &FakeStorage,
) -> (Supervisor, RuntimeClient) {
    let root = Supervisor::root("oxlet", Intensity::MANAGERS);
    let settings = settings(folder, api);
    let cluster = ClusterWiring::find(&settings).unwrap();
    let line = PluginClient::fixed("runtime", serve(fake));
    let runtime = RuntimeClient::new(line, settings.runtime_within);
    let backends = Backends {
        gate: RuntimeGate::open(),
        runtime: runtime.clone(),
        storage: storage.storage(),
        storage_hosts: BTreeMap::new(),
    };
    let node = spawn(&root, &settings, backends, (cluster, None)).await;
    drop(node.unwrap());
    (root, runtime)
}

/// The settings of a node below this folder that reaches its API server through a pipe.
fn settings(folder: &Path, api: &Arc<Server>) -> AgentSettings {
    let machine = HostFacts {
        hostname: NODE.to_owned(),
        cgroup: CgroupVersion::V2,
        program_folder: folder.to_owned(),
        standalone: StandaloneFacts::default(),
    };
    let loaded = config::load(arguments(folder).map(OsString::from), &machine).unwrap();
    let Invocation::Run(config) = loaded else {
        panic!("a command line without questions runs the agent");
    };
    let mut settings = AgentSettings::new(config);
    settings.node.container_logs_dir = folder.join("links");
    settings.oom.kmsg = folder.join("no-kmsg");
    settings.pulls.credentials.folders.home = folder.to_owned();
    settings.pulls.credentials.folders.working = folder.to_owned();
    let api = Arc::downgrade(api);
    let dial = move || match api.upgrade() {
        Some(api) => api.connect(),
        None => Err(std::io::ErrorKind::ConnectionRefused.into()),
    };
    let cluster = settings.cluster.as_mut().unwrap();
    cluster.access.dial = Dial::Pipe(Arc::new(dial));
    settings
}

/// The command line of the agent, and the files that it names.
fn arguments(folder: &Path) -> [String; 7] {
    for part in ["root", "logs", "manifests", "links"] {
        fs::create_dir_all(folder.join(part)).unwrap();
    }
    let file = |name: &str, content: Value| {
        let path = folder.join(name);
        fs::write(&path, content.to_string()).unwrap();
        path.display().to_string()
    };
    let plugins = json!({
        "apiVersion": "oxlet.dev/v1alpha1",
        "kind": "PluginConfiguration",
        "runtime": "fake",
        "plugins": [{"name": "fake", "kind": "runtime", "command": "runtime-fake"}],
    });
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "double", "cluster": {"server": "http://apiserver"}}],
        "contexts": [{"name": "double", "context": {"cluster": "double", "user": ""}}],
        "current-context": "double",
    });
    [
        format!("--config={}", file("config.yaml", configuration(folder))),
        format!("--plugins={}", file("plugins.yaml", plugins)),
        format!("--kubeconfig={}", file("kubeconfig", kubeconfig)),
        format!("--root-dir={}", folder.join("root").display()),
        format!("--cert-dir={}", folder.join("pki").display()),
        format!("--hostname-override={NODE}"),
        "--node-ip=192.0.2.7".to_owned(),
    ]
}

/// No cgroups, no eviction, no images removed for their space, which would depend on the machine; timeouts and back-offs that fit into ten minutes.
fn configuration(folder: &Path) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "staticPodPath": folder.join("manifests"),
        "podLogsDir": folder.join("logs"),
        "cgroupsPerQOS": false,
        "enforceNodeAllocatable": [],
        "failCgroupV1": false,
        "makeIPTablesUtilChains": false,
        "evictionHard": {},
        "imageGCHighThresholdPercent": 100,
        "resolvConf": "",
        "serializeImagePulls": false,
        "runtimeRequestTimeout": "15s",
        "featureGates": {"KubeletCrashLoopBackOffMax": true},
        "crashLoopBackOff": {"maxContainerRestartPeriod": "10s"},
    })
}
