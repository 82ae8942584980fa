//! A whole node in the test's process: the real tree over a runtime-fake behind real gRPC, on a paused clock.

#![expect(
    missing_debug_implementations,
    reason = "a rig of closures and servers"
)]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
#[cfg(test)]
use std::sync::mpsc;
use std::time::Duration;

use clients::runtime::RuntimeClient;
use clients::runtime::fake::serve;
use clients::storage::testing::FakeStorage;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kernel::{Addr, Intensity, Recipient, Supervisor, mailbox, watch};
use logic_api::objects::StaticObjects;
use logic_api::types::PodUid;
use logic_placement::NodePlacement;
use logic_pods::PodWorkerConfig;
use logic_pods::api::take_over;
use logic_pods::images::credentials::docker::DockerConfigDirs;
use logic_resources::cgroups::{CgroupDriver, CgroupPolicy, Hierarchy};
use logic_resources::container_gc::ContainerGcPolicy;
use logic_resources::node::policy::NodePolicy;
use logic_resources::node::{
    LocalStorage, MachineFacts, NodeFacts, PodLevelResize, PodLimit, Support,
};
use logic_volumes::resolve::SeLinuxMountPolicy;
use plugin_host::PluginClient;
use runtime_fake::{Clock, Fake, FakeSettings};
use state::area::{StatePeers, StateSettings};
use state::assignments::Assignments;
use state::checkpoints;
use state::events::{self, Event, Recorder};
use state::objects::ObjectStore;
use state::status::{self, PodResync};
use state::user_namespaces;
use tempfile::TempDir;

use crate::area::{PodListeners, PodPeers, PodSettings, PullSettings};
use crate::cgroups::CgroupManager;
use crate::cgroups::systemd::SystemdConnection;
use crate::images;
use crate::images::credentials;
use crate::pod_manager::claims::PodClaims;
use crate::pod_manager::devices::DevicePlugins;
use crate::pod_manager::{self, NodeChange, PodSource};
use crate::runtime::handover::{HandoverStep, RuntimeGate, RuntimeInUse};
use crate::runtime::pleg;

/// Longer than any answer takes: the paused clock only advances while every task waits.
const SOON: Duration = Duration::from_secs(10);

/// The CPUs of a node for which a test sets no other number.
const CPUS: u32 = 4;

/// The addresses of the node's actors.
#[derive(Debug, Clone)]
pub struct TestAddrs {
    pub root: Supervisor,
    pub recorder: Recorder,
    pub pod_manager: Addr<pod_manager::Msg>,
    pub pleg: Addr<pleg::Msg>,
    pub images: Addr<images::Msg>,
    pub volumes: Addr<volumes::Msg>,
    pub statuses: Addr<status::Msg>,
    pub events: Addr<events::Msg>,
    pub checkpoints: Addr<checkpoints::Msg>,
}

/// The node, its runtime and storage plugins, and their folder.
pub struct TestNode {
    pub fake: Fake,
    pub storage: FakeStorage,
    pub node: TestAddrs,
    pub runtime: RuntimeClient,
    pub rules: Arc<PodWorkerConfig>,
    pub handover: Rc<watch::Sender<RuntimeInUse>>,
    pub gate: RuntimeGate,
    pub assignments: Assignments,
    folder: TempDir,
}

impl TestNode {
    /// Starts a node with an empty runtime.
    pub async fn start() -> TestNode {
        TestNode::heard_by(PodListeners::default()).await
    }

    /// Starts a node whose pod events go to these listeners too.
    pub async fn heard_by(listeners: PodListeners) -> TestNode {
        TestNode::empty(NodePlacement::default(), listeners).await
    }

    /// Starts a node whose pods are assigned what they have to themselves by this manager.
    pub async fn assigning(placement: NodePlacement) -> TestNode {
        TestNode::empty(placement, PodListeners::default()).await
    }

    /// The same, whose devices this manager gives.
    pub async fn with_devices(placement: NodePlacement, devices: DevicePlugins) -> TestNode {
        let managers = (placement, devices, PodClaims::default());
        TestNode::empty_with(managers, PodListeners::default()).await
    }

    /// Starts a node whose pods' claims this manager has prepared.
    pub async fn with_claims(claims: PodClaims) -> TestNode {
        let managers = (NodePlacement::default(), DevicePlugins::default(), claims);
        TestNode::empty_with(managers, PodListeners::default()).await
    }

    async fn empty(placement: NodePlacement, listeners: PodListeners) -> TestNode {
        let managers = (placement, DevicePlugins::default(), PodClaims::default());
        TestNode::empty_with(managers, listeners).await
    }

    async fn empty_with(
        managers: (NodePlacement, DevicePlugins, PodClaims),
        listeners: PodListeners,
    ) -> TestNode {
        let folder = tempfile::tempdir().unwrap();
        let fake = Fake::open_at(
            folder.path().join("fake"),
            FakeSettings::default(),
            Clock::start(),
        )
        .unwrap();
        let storage = FakeStorage::start();
        TestNode::on_with((fake, storage, folder), CPUS, managers, listeners).await
    }

    /// Starts a node that makes pods' cgroups: below `cgroup/cpu/kubepods` and `cgroup/memory/kubepods` of its folder.
    /// `world` sets up what earlier lives have left.
    #[cfg(test)]
    pub(crate) async fn with_cgroups(world: impl FnOnce(&Path, &FakeStorage)) -> TestNode {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("fake");
        let fake = Fake::open_at(state, FakeSettings::default(), Clock::start()).unwrap();
        let storage = FakeStorage::start();
        for tree in TREES {
            std::fs::create_dir_all(folder.path().join("cgroup").join(tree)).unwrap();
        }
        world(folder.path(), &storage);
        let world = (fake, storage, folder);
        TestNode::on(
            world,
            CPUS,
            NodePlacement::default(),
            PodListeners::default(),
        )
        .await
    }

    /// Kills the agent, and starts a new one on the same runtime and folder.
    pub async fn restart(self) -> TestNode {
        self.node.root.shutdown().await;
        let world = (self.fake, self.storage, self.folder);
        TestNode::on(
            world,
            CPUS,
            NodePlacement::default(),
            PodListeners::default(),
        )
        .await
    }

    /// The same, of an agent that was killed before anything about its pods was on the disk.
    pub async fn restart_unrecorded(self) -> TestNode {
        self.node.root.shutdown().await;
        let root_dir = self.path("root");
        let shared = [take_over::ALLOCATED, take_over::ACTUATED].map(|file| root_dir.join(file));
        for record in shared.into_iter().chain([self.path("pods.checkpoint")]) {
            drop(std::fs::remove_file(record));
        }
        let world = (self.fake, self.storage, self.folder);
        TestNode::on(
            world,
            CPUS,
            NodePlacement::default(),
            PodListeners::default(),
        )
        .await
    }

    /// The same, with pods assigned what they have to themselves by these managers.
    pub async fn restart_assigning(self, placement: NodePlacement) -> TestNode {
        self.node.root.shutdown().await;
        let world = (self.fake, self.storage, self.folder);
        TestNode::on(world, CPUS, placement, PodListeners::default()).await
    }

    /// The same, on a machine with this number of CPUs.
    pub async fn restart_with(self, cpus: u32) -> TestNode {
        self.node.root.shutdown().await;
        let world = (self.fake, self.storage, self.folder);
        TestNode::on(
            world,
            cpus,
            NodePlacement::default(),
            PodListeners::default(),
        )
        .await
    }

    /// Tells the workers what the hand-over wants of them.
    pub fn hand_over(&self, step: HandoverStep) {
        self.handover.send_replace(RuntimeInUse {
            name: "old".to_owned(),
            handover: Some((step, "new".to_owned())),
        });
        let moved = pod_manager::Msg::Node(NodeChange::RuntimeHandover);
        self.node.pod_manager.tell(moved).unwrap();
    }

    /// Kills the agent, and starts a new one on the same folder and another runtime, which is empty.
    pub async fn restart_elsewhere(self) -> TestNode {
        self.restart_elsewhere_assigning(NodePlacement::default())
            .await
    }

    /// The same, with pods assigned what they have to themselves by these managers.
    pub async fn restart_elsewhere_assigning(self, placement: NodePlacement) -> TestNode {
        self.node.root.shutdown().await;
        let state = self.folder.path().join("other-fake");
        let fake = Fake::open_at(state, FakeSettings::default(), Clock::start()).unwrap();
        let world = (fake, self.storage, self.folder);
        TestNode::on(world, CPUS, placement, PodListeners::default()).await
    }

    async fn on(
        world: (Fake, FakeStorage, TempDir),
        cpus: u32,
        placement: NodePlacement,
        listeners: PodListeners,
    ) -> TestNode {
        let managers = (placement, DevicePlugins::default(), PodClaims::default());
        TestNode::on_with(world, cpus, managers, listeners).await
    }

    async fn on_with(
        (fake, storage, folder): (Fake, FakeStorage, TempDir),
        cpus: u32,
        (placement, devices, claims): (NodePlacement, DevicePlugins, PodClaims),
        listeners: PodListeners,
    ) -> TestNode {
        let line = PluginClient::fixed("runtime", serve(&fake));
        let runtime = RuntimeClient::new(line, Duration::from_secs(120));
        let root = Supervisor::root("oxlet", Intensity::MANAGERS);
        let rules = Arc::new(config(folder.path(), cpus));
        let assignments = assignments(folder.path(), placement);
        let (state, state_ports) = state::area::mailboxes();
        let (pods, pod_ports) = crate::area::mailboxes();
        let (volumes, volumes_port) = mailbox(volumes::MAILBOX);
        let objects = ObjectStore::fixed(StaticObjects::default());
        let resync = Recipient::new(pods.pod_manager.clone(), |PodResync| {
            pod_manager::Msg::Resync
        });
        let state_peers = StatePeers {
            events: None,
            statuses: resync.clone().into(),
        };
        state::area::spawn(
            &root,
            state_ports,
            state_settings(folder.path(), assignments.clone()),
            state_peers,
        );
        let volume_peers = volumes::Peers {
            storage: storage.storage(),
            hosts: BTreeMap::new(),
            objects: objects.clone(),
            resync,
            recorder: state.recorder(),
            rules: rules.clone(),
            cluster: None,
        };
        volumes::area::spawn(&root, volumes_port, volume_policy(), volume_peers);
        let settings = PodSettings {
            rules: rules.clone(),
            assignments: assignments.clone(),
            pulls: pulls(folder.path()),
            logs: logic_pods::logs::LogRotationPolicy::default(),
            sources: [PodSource::File].into(),
        };
        let handover = Rc::new(watch::Sender::new(RuntimeInUse::default()));
        let gate = RuntimeGate::new(handover.subscribe());
        let pod_peers = PodPeers {
            runtime: runtime.clone(),
            gate: gate.clone(),
            cgroups: cgroups(&runtime, folder.path()),
            state: state.clone(),
            volumes: volumes.clone(),
            objects,
            devices,
            claims,
            listeners,
        };
        crate::area::spawn(&root, (&pods, pod_ports), settings, pod_peers);
        let node = TestAddrs {
            root,
            recorder: state.recorder(),
            pod_manager: pods.pod_manager,
            pleg: pods.pleg,
            images: pods.images,
            volumes,
            statuses: state.statuses,
            events: state.events,
            checkpoints: state.checkpoints,
        };
        TestNode {
            fake,
            storage,
            node,
            runtime,
            rules,
            handover,
            gate,
            assignments,
            folder,
        }
    }

    /// The CPUs that the runtime was told last of a container, as a list of ranges.
    pub async fn cpus(&self, pod: &str, container: &str) -> String {
        self.cpu_resources(pod, container).await.0
    }

    /// The quota of CPU that the runtime was told of a container, in microseconds.
    pub async fn quota(&self, pod: &str, container: &str) -> i64 {
        self.cpu_resources(pod, container).await.1
    }

    async fn cpu_resources(&self, pod: &str, container: &str) -> (String, i64) {
        let pod = self.runtime.pod(&PodUid::from(pod)).await.unwrap();
        let id = pod.newest(container).unwrap().id.clone();
        clients::runtime::testing::cpus(serve(&self.fake), &id).await
    }

    /// A path in the node's folder.
    pub fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// The number of files in a folder of the node: `logs/NAMESPACE_NAME_UID/CONTAINER`, `links`.
    pub fn files(&self, folder: &str) -> usize {
        std::fs::read_dir(self.folder.path().join(folder)).map_or(0, Iterator::count)
    }

    /// Sets the faults of the runtime's calls from now on; see `runtime_fake`.
    pub fn script(&self, faults: &str) {
        std::fs::write(self.folder.path().join("fake/faults.json"), faults).unwrap();
    }

    /// Sets the desired pods of the node.
    pub fn desire(&self, pods: &[Arc<Pod>]) {
        let set = pod_manager::Msg::SetPods {
            source: PodSource::File,
            pods: pods.to_vec(),
        };
        self.node.pod_manager.tell(set).unwrap();
    }

    /// Lets the clock run until a pod's status is as expected.
    pub async fn until(&self, uid: &str, wanted: impl Fn(&PodStatus) -> bool) -> Arc<PodStatus> {
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
    pub async fn until_gone(&self, uid: &str) {
        let uid = PodUid::from(uid);
        for _ in 0..20_000 {
            if !self.statuses().await.contains_key(&uid) && !self.exists(&uid).await {
                return;
            }
            kernel::testing::pass(Duration::from_millis(50)).await;
        }
        panic!("pod {uid} is not gone");
    }

    /// The pods as they are listed.
    pub async fn pods(&self) -> Vec<Arc<Pod>> {
        let ask = self
            .node
            .pod_manager
            .ask(Duration::from_secs(5), pod_manager::Msg::all);
        ask.await.unwrap()
    }

    pub async fn exists(&self, uid: &PodUid) -> bool {
        self.runtime.pods().await.unwrap().contains_key(uid)
    }

    pub async fn statuses(&self) -> BTreeMap<PodUid, Arc<PodStatus>> {
        let all = self
            .node
            .statuses
            .ask(SOON, |reply| state::status::Msg::All { reply });
        all.await.unwrap()
    }

    pub async fn events(&self) -> Vec<Event> {
        let list = self
            .node
            .events
            .ask(SOON, |reply| events::Msg::List { reply });
        list.await.unwrap()
    }

    pub async fn reasons(&self) -> Vec<String> {
        self.events()
            .await
            .into_iter()
            .map(|event| event.reason)
            .collect()
    }
}

fn cgroups(runtime: &RuntimeClient, folder: &Path) -> CgroupManager {
    CgroupManager::on(
        (CgroupDriver::Cgroupfs, runtime.cgroup_driver()),
        (hierarchy(folder), Vec::new()),
        SystemdConnection::default(),
    )
}

/// What pods hold by the files of an earlier life.
fn assignments(folder: &Path, placement: NodePlacement) -> Assignments {
    let root_dir = folder.join("root");
    let earlier = placement.restore(|name| std::fs::read(root_dir.join(name)).ok());
    Assignments::new(placement, earlier.unwrap())
}

fn state_settings(folder: &Path, assignments: Assignments) -> StateSettings {
    StateSettings {
        checkpoint: folder.join("pods.checkpoint"),
        root_dir: folder.join("root"),
        users: user_namespaces::Policy {
            pods: folder.join("root/pods"),
            ids_per_pod: 65_536,
            max_pods: 1100,
        },
        assignments,
    }
}

fn volume_policy() -> volumes::Policy {
    volumes::Policy {
        resync: Duration::from_secs(60),
        stats: None,
        selinux: SeLinuxMountPolicy::Off,
        health: volumes::VolumeHealthPolicy::Ignored,
    }
}

/// The cgroups of a node that has some.
const TREES: [&str; 2] = ["cpu", "memory"];

fn hierarchy(folder: &Path) -> Option<Hierarchy> {
    let tree = |name: &str| (name.to_owned(), folder.join("cgroup").join(name));
    let trees: BTreeMap<_, _> = TREES.into_iter().map(tree).collect();
    let is_there = trees.values().all(|tree| tree.is_dir());
    is_there.then_some(Hierarchy::V1(trees))
}

/// The facts of a node with this number of CPUs, 8 GiB of memory and room for 1,100 pods.
fn config(folder: &Path, cpus: u32) -> PodWorkerConfig {
    PodWorkerConfig {
        policy: logic_pods::pod_actions::PodActionPolicy::default(),
        facts: Arc::new(facts(cpus)),
        container_gc_period: Duration::from_secs(60),
        container_gc: ContainerGcPolicy::default(),
        node: NodePolicy {
            node_name: "node".to_owned(),
            root_dir: folder.join("root"),
            pod_logs_dir: folder.join("logs"),
            container_logs_dir: folder.join("links"),
            cgroups: hierarchy(folder).map(|_| CgroupPolicy {
                driver: CgroupDriver::Cgroupfs,
                root: "/".to_owned(),
                pids: None,
            }),
            ..NodePolicy::default()
        },
    }
}

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
        pod_level_resources: Support::Yes,
        pod_level_resize: PodLevelResize::Resizable,
        ..NodeFacts::default()
    }
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

/// Threads; more than a runtime has by default.
#[cfg(test)]
const THREADS: usize = 512;

/// Occupies every thread for blocking work until it is dropped: further work waits. The clock stands still.
#[cfg(test)]
pub(crate) fn keep_threads() -> Vec<mpsc::Sender<()>> {
    let keep = |_| {
        let (held, released) = mpsc::channel();
        drop(kernel::spawn_blocking(move || released.recv()));
        held
    };
    (0..THREADS).map(keep).collect()
}
