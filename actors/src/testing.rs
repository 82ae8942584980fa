//! A whole node in the test's process: the real tree over a runtime-fake behind real gRPC, on a paused clock.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cluster::events::{self, Event};
use cluster::objects::ObjectStore;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kernel::{Intensity, Supervisor};
use logic_api::objects::StaticObjects;
use logic_api::types::PodUid;
use logic_pods::credentials::docker::DockerConfigDirs;
use logic_resources::node::{LocalStorage, MachineFacts, NodeFacts, PodLimit};
use logic_resources::node_policy::NodePolicy;
use logic_volumes::resolve::SeLinuxMountPolicy;
use plugin_host::PluginClient;
use runtime_fake::{Clock, Fake, FakeSettings};
use tempfile::TempDir;
use tokio::net::{UnixListener, UnixStream};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Endpoint, Server, Uri};

use crate::pod_manager::{self, PodSource};
use crate::runtime::RuntimeClient;
use crate::settings::PullSettings;
use crate::storage::testing::FakeStorage;
use crate::tree::{self, Backends, Listeners, NodeHandle, Sections};
use crate::worker::PodWorkerConfig;
use crate::{credentials, images, volumes};

/// Longer than any answer takes: the paused clock only advances while every task waits.
const SOON: Duration = Duration::from_secs(10);

/// The CPUs of a node for which a test sets no other number.
const CPUS: u32 = 4;

/// The node, its runtime and storage plugins, and their folder.
pub(crate) struct TestNode {
    pub(crate) fake: Fake,
    pub(crate) storage: FakeStorage,
    pub(crate) node: NodeHandle,
    pub(crate) runtime: RuntimeClient,
    pub(crate) rules: Arc<PodWorkerConfig>,
    folder: TempDir,
}

impl TestNode {
    /// Starts a node with an empty runtime.
    pub(crate) async fn start() -> TestNode {
        TestNode::heard_by(Listeners::default()).await
    }

    /// Starts a node whose pod events go to these listeners too.
    pub(crate) async fn heard_by(listeners: Listeners) -> TestNode {
        let folder = tempfile::tempdir().unwrap();
        let fake = Fake::open_at(
            folder.path().join("fake"),
            FakeSettings::default(),
            Clock::start(),
        )
        .unwrap();
        let storage = FakeStorage::start(folder.path());
        TestNode::on((fake, storage, folder), CPUS, listeners).await
    }

    /// Kills the agent, and starts a new one on the same runtime and folder.
    pub(crate) async fn restart(self) -> TestNode {
        self.node.root.shutdown().await;
        let world = (self.fake, self.storage, self.folder);
        TestNode::on(world, CPUS, Listeners::default()).await
    }

    /// The same, on a machine with this number of CPUs.
    pub(crate) async fn restart_with(self, cpus: u32) -> TestNode {
        self.node.root.shutdown().await;
        let world = (self.fake, self.storage, self.folder);
        TestNode::on(world, cpus, Listeners::default()).await
    }

    async fn on(
        (fake, storage, folder): (Fake, FakeStorage, TempDir),
        cpus: u32,
        listeners: Listeners,
    ) -> TestNode {
        let line = PluginClient::fixed("runtime", serve(&fake, folder.path()));
        let runtime = RuntimeClient::new(line, Duration::from_secs(120));
        let root = Supervisor::root(
            "oxlet",
            Intensity {
                restarts: 5,
                within: Duration::from_secs(60),
            },
        );
        let rules = Arc::new(PodWorkerConfig {
            policy: logic_pods::pod_actions::PodActionPolicy::default(),
            facts: Arc::new(facts(cpus)),
            node: NodePolicy {
                node_name: "node".to_owned(),
                root_dir: folder.path().join("root"),
                pod_logs_dir: folder.path().join("logs"),
                container_logs_dir: folder.path().join("links"),
                ..NodePolicy::default()
            },
        });
        let sections = Sections {
            rules: rules.clone(),
            folder: folder.path().to_owned(),
            pulls: pulls(folder.path()),
            users: crate::user_namespaces::Policy {
                pods: folder.path().join("root/pods"),
                ids_per_pod: 65_536,
                max_pods: 1100,
            },
            logs: logic_pods::logs::LogRotationPolicy::default(),
            sources: [PodSource::File].into(),
            objects: ObjectStore::fixed(StaticObjects::default()),
            volumes: volumes::Policy {
                resync: Duration::from_secs(60),
                stats: None,
                selinux: SeLinuxMountPolicy::Off,
            },
            listeners,
        };
        let backends = Backends {
            runtime: runtime.clone(),
            storage: storage.storage(),
            storage_hosts: BTreeMap::new(),
        };
        let node = tree::pods(&root, backends, sections, None);
        TestNode {
            fake,
            storage,
            node,
            runtime,
            rules,
            folder,
        }
    }

    /// The number of files in a folder of the node: `logs/NAMESPACE_NAME_UID/CONTAINER`, `links`.
    pub(crate) fn files(&self, folder: &str) -> usize {
        std::fs::read_dir(self.folder.path().join(folder)).map_or(0, Iterator::count)
    }

    /// Sets the faults of the runtime's calls from now on; see `runtime_fake`.
    pub(crate) fn script(&self, faults: &str) {
        std::fs::write(self.folder.path().join("fake/faults.json"), faults).unwrap();
    }

    /// Sets the desired pods of the node.
    pub(crate) fn desire(&self, pods: &[Arc<Pod>]) {
        let set = pod_manager::Msg::SetPods {
            source: PodSource::File,
            pods: pods.to_vec(),
        };
        self.node.pod_manager.tell(set).unwrap();
    }

    /// Lets the clock run until a pod's status is as expected.
    pub(crate) async fn until(
        &self,
        uid: &str,
        wanted: impl Fn(&PodStatus) -> bool,
    ) -> Arc<PodStatus> {
        let uid = PodUid::from(uid);
        for _ in 0..20_000 {
            if let Some(status) = self
                .statuses()
                .await
                .get(&uid)
                .filter(|status| wanted(status))
            {
                return status.clone();
            }
            kernel::testing::pass(Duration::from_millis(50)).await;
        }
        let events = self
            .events()
            .await
            .into_iter()
            .map(|event| format!("{}: {}", event.reason, event.message));
        let events: Vec<String> = events.collect();
        panic!(
            "pod {uid} is not as wanted: {:#?}; {events:#?}",
            self.statuses().await.get(&uid)
        );
    }

    /// Lets the clock run until the node has nothing left of a pod.
    pub(crate) async fn until_gone(&self, uid: &str) {
        let uid = PodUid::from(uid);
        for _ in 0..20_000 {
            if !self.statuses().await.contains_key(&uid) && !self.exists(&uid).await {
                return;
            }
            kernel::testing::pass(Duration::from_millis(50)).await;
        }
        panic!("pod {uid} is not gone");
    }

    pub(crate) async fn exists(&self, uid: &PodUid) -> bool {
        self.runtime.pods().await.unwrap().contains_key(uid)
    }

    pub(crate) async fn statuses(&self) -> BTreeMap<PodUid, Arc<PodStatus>> {
        let all = self
            .node
            .statuses
            .ask(SOON, |reply| cluster::status::Msg::All { reply });
        all.await.unwrap()
    }

    pub(crate) async fn events(&self) -> Vec<Event> {
        let list = self
            .node
            .events
            .ask(SOON, |reply| events::Msg::List { reply });
        list.await.unwrap()
    }

    pub(crate) async fn reasons(&self) -> Vec<String> {
        self.events()
            .await
            .into_iter()
            .map(|event| event.reason)
            .collect()
    }
}

/// The facts of a node with this number of CPUs, 8 GiB of memory and room for 1,100 pods.
fn facts(cpus: u32) -> NodeFacts {
    let machine = MachineFacts {
        cpus,
        memory: 8 << 30,
        ..MachineFacts::default()
    };
    let limit = PodLimit {
        max: 1100,
        per_core: 0,
    };
    let capacity = logic_resources::node::capacity(&machine, limit, LocalStorage::Counted);
    NodeFacts {
        name: "node".to_owned(),
        allocatable: capacity.clone(),
        allocatable_at_most: capacity.clone(),
        capacity,
        os: "linux".to_owned(),
        ..NodeFacts::default()
    }
}

pub(crate) fn serve(fake: &Fake, folder: &Path) -> Channel {
    let socket = folder.join(format!("cri-{}.sock", rand_name(folder)));
    let listener = UnixListener::bind(&socket).unwrap();
    let server = Server::builder()
        .add_service(fake.runtime())
        .add_service(fake.images());
    tokio::task::spawn_local(server.serve_with_incoming(UnixListenerStream::new(listener)));
    Endpoint::from_static("http://localhost").connect_with_connector_lazy(tower::service_fn(
        move |_: Uri| {
            let socket = socket.clone();
            async move {
                UnixStream::connect(socket)
                    .await
                    .map(hyper_util::rt::TokioIo::new)
            }
        },
    ))
}

/// Pulls without limits and verification, with the credentials of the node's folder alone.
fn pulls(folder: &Path) -> PullSettings {
    PullSettings {
        images: images::ImageConfig {
            root_dir: folder.join("root"),
            ..images::ImageConfig::default()
        },
        credentials: credentials::CredentialConfig {
            folders: DockerConfigDirs {
                root_dir: folder.to_owned(),
                working: folder.to_owned(),
                home: folder.to_owned(),
            },
            providers: Vec::new(),
        },
    }
}

/// The number of the next free socket name.
fn rand_name(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

/// A pod from YAML, with a UID equal to its name.
pub(crate) fn pod(yaml: &str) -> Arc<Pod> {
    let mut pod: Pod = serde_saphyr::from_str(yaml).unwrap();
    pod.metadata.uid = pod.metadata.name.clone();
    pod.metadata
        .namespace
        .get_or_insert_with(|| "default".to_owned());
    Arc::new(pod)
}
