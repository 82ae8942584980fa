//! The supervision tree, and the peers of every actor.
//!
//! Mailboxes come first, so that any actor may tell any other. Then the actors, in an order that is an invariant: **an
//! actor asks only those spawned above it**; all others it tells. So the asks form no cycle.

mod certificates;
pub mod cluster;
mod plugins;
mod serving;
mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ::cluster::events::{self, EventBroadcaster, Recorder};
use ::cluster::node::NodeResync;
use ::cluster::objects::{self, ObjectFolder, ObjectStore, StoreWriter};
use ::cluster::pods::StaticPodSet;
use ::cluster::status::{self, PodResync, StatusManager};
use kernel::{Addr, ChildSpec, Intensity, Port, Recipient, Strategy, Supervisor, mailbox};
use logic_api::types::PodUid;
use plugin_host as plugin;
use tokio::signal::unix::{SignalKind, signal};

use self::cluster::ClusterWiring;
use crate::checkpoints::{self, CheckpointManager};
use crate::credentials::{self, DockerKeyring};
use crate::eviction::{self, EvictionManager};
use crate::hosts;
use crate::images::{self, ImageManager};
use crate::logs::{self, ContainerLogManager};
use crate::pleg::{self, Pleg};
use crate::pod_cgroups::PodCgroups;
use crate::pod_manager::{self, PodManager, PodSource, PodWorkers};
use crate::probe_client::ProbeClient;
use crate::prober::{self, Prober};
use crate::runtime::RuntimeClient;
use crate::settings::{AgentSettings, PullSettings};
use crate::shutdown::{self, ShutdownManager};
use crate::stats::usage::UsageSampler;
use crate::storage::Storage;
use crate::user_namespaces::{self, UserNamespaceManager};
use crate::volumes::{self, VolumeManager};
use crate::worker::{Peers, PodWorkerConfig};

/// A manager that fails more often than this is degraded: shown, and restarted at the longest back-off.
const MANAGER_INTENSITY: Intensity = Intensity {
    restarts: 5,
    within: Duration::from_secs(60),
};

/// The addresses that servers and the cluster's actors need.
#[derive(Debug, Clone)]
pub struct NodeHandle {
    pub root: Supervisor,
    pub pod_manager: Addr<pod_manager::Msg>,
    pub images: Addr<images::Msg>,
    pub volumes: Addr<volumes::Msg>,
    pub statuses: Addr<status::Msg>,
    pub events: Addr<events::Msg>,
    pub pleg: Addr<pleg::Msg>,
    pub recorder: Recorder,
}

/// Spawns the tree and runs it until the agent is told to end. Pods keep running.
pub async fn run(settings: AgentSettings) -> anyhow::Result<()> {
    for warning in &settings.config.warnings {
        tracing::warn!("{warning}");
    }
    metrics::node::introduce(&settings.node.node_name, &settings.config.version);
    metrics::component::features(settings.config.gates.all());
    let root = Supervisor::root("oxlet", MANAGER_INTENSITY);
    let cluster = ClusterWiring::find(&settings)?;
    let (lines, hosts) = plugins::grow(&root, &settings);
    let runtime = RuntimeClient::new(lines.runtime, settings.runtime_within);
    let objects = objects(&root, &settings, cluster.as_ref());
    let backends = Backends {
        runtime: runtime.clone(),
        storage: Storage::new(lines.local, lines.csi),
        storage_hosts: hosts.hosts.clone(),
    };
    let listeners = cluster.as_ref().map(ClusterWiring::listeners);
    let sections = Sections {
        listeners: listeners.unwrap_or_default(),
        ..settings.sections(objects.shelf.clone())
    };
    let node = pods(&root, backends, sections, cluster.as_ref());
    node.recorder.begin(timestamp(), &settings.node.node_name);
    hosts::complain(&node.recorder, &settings.node).await;
    sources::grow(&node, &settings);
    let tellers = grow_resources(&node, runtime.clone(), &settings, cluster.as_ref());
    let certificate = serving::grow(&node, runtime.clone(), hosts, (&settings, cluster.as_ref()))?;
    if let Some(cluster) = cluster {
        let inputs = cluster::ClusterInputs {
            settings: &settings,
            runtime,
            supply: objects.supply,
            shelf: objects.shelf,
            folder: objects.folder,
            certificate,
            tellers,
        };
        cluster::grow(&node, cluster, inputs);
    }

    let (mut terminate, mut interrupt) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    );
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("ending; pods live on");
    node.root.shutdown().await;
    Ok(())
}

/// The object store and its writer.
struct ObjectStores {
    supply: StoreWriter,
    shelf: ObjectStore,
    /// The objects of the manifests' folder, where the store is filled from the API; none without such a folder.
    folder: Option<ObjectStore>,
}

/// The object store: filled from the API, from a watched folder, or from both.
fn objects(
    root: &Supervisor,
    settings: &AgentSettings,
    cluster: Option<&ClusterWiring>,
) -> ObjectStores {
    let group = root.supervisor("objects", Strategy::OneForOne, MANAGER_INTENSITY);
    let path = PathBuf::from(&settings.config.flags.object_manifests);
    let (filled, folder) = ObjectStore::new(objects::load(&settings.config.flags.object_manifests));
    let is_given = !path.as_os_str().is_empty();
    if is_given {
        let (_, port) = mailbox(objects::MAILBOX);
        let supply = filled.clone();
        group.spawn(ChildSpec::permanent("folder"), port, move || {
            ObjectFolder::new(path.clone(), supply.clone())
        });
    }
    let Some(cluster) = cluster else {
        return ObjectStores {
            supply: filled,
            shelf: folder,
            folder: None,
        };
    };
    let mut remembered = cluster.remembered();
    drop(remembered.merge((*folder.snapshot()).clone()));
    let (supply, shelf) = ObjectStore::new(remembered);
    ObjectStores {
        supply,
        shelf,
        folder: is_given.then_some(folder),
    }
}

/// The clients of the plugins.
#[derive(Debug)]
pub struct Backends {
    pub runtime: RuntimeClient,
    pub storage: Storage,
    /// The storage plugins' hosts by name; they are told which process is stuck.
    pub storage_hosts: BTreeMap<String, Addr<plugin::Msg>>,
}

/// The settings of the state area and the pods' area.
#[derive(Debug)]
pub struct Sections {
    pub rules: Arc<PodWorkerConfig>,
    /// The agent's own folder.
    pub folder: PathBuf,
    pub pulls: PullSettings,
    pub users: user_namespaces::Policy,
    pub logs: logic_pods::logs::LogRotationPolicy,
    pub sources: BTreeSet<PodSource>,
    pub objects: ObjectStore,
    pub volumes: volumes::Policy,
    pub listeners: Listeners,
}

/// Actors outside the pods' area that are told what happens to pods; none on a standalone node.
#[derive(Debug, Clone, Default)]
pub struct Listeners {
    /// Gets the static pods: the mirror pod manager.
    pub mirrors: Option<Recipient<StaticPodSet>>,
    /// Gets the pods that need no objects any more: the object manager.
    pub over: Option<Recipient<PodUid>>,
}

/// Spawns the state area and the pods' area.
pub fn pods(
    root: &Supervisor,
    backends: Backends,
    sections: Sections,
    cluster: Option<&ClusterWiring>,
) -> NodeHandle {
    let runtime = backends.runtime.clone();
    let (state, state_ports) = state_mailboxes();
    let (credentials, credentials_port) = mailbox(credentials::MAILBOX);
    let (images, images_port) = mailbox(images::MAILBOX);
    let (pod_manager, directory_port) = mailbox(pod_manager::MAILBOX);
    let (pleg, pleg_port) = mailbox(pleg::MAILBOX);
    let (prober, prober_port) = mailbox(prober::MAILBOX);
    let (logs, logs_port) = mailbox(logs::MAILBOX);
    let (volumes, volumes_port) = mailbox(volumes::MAILBOX);
    let recorder = Recorder::new(state.events.clone());
    let peers = Peers {
        runtime: runtime.clone(),
        images: images.clone(),
        statuses: state.statuses.clone(),
        checkpoints: state.checkpoints.clone(),
        pod_manager: pod_manager.clone(),
        prober,
        logs,
        users: state.users,
        volumes: volumes.clone(),
        cgroups: PodCgroups::new(sections.rules.node.cgroups.clone()),
        recorder: recorder.clone(),
        objects: Arc::new(sections.objects.clone()),
        over: sections.listeners.over.clone(),
        rules: sections.rules.clone(),
    };

    let file = sections.folder.join("pods.checkpoint");
    let told = StatePeers {
        pod_manager: &pod_manager,
        node_name: &sections.rules.node.node_name,
        cluster,
    };
    let files = (
        [file.as_path(), &sections.rules.node.root_dir],
        sections.users,
    );
    grow_state(root, state_ports, files, &told);
    let volume_peers = volume_peers(backends, (&sections.objects, &peers), cluster);
    grow_volumes(root, volumes_port, sections.volumes, volume_peers);
    let pods = root.supervisor("pods", Strategy::OneForOne, MANAGER_INTENSITY);
    let ports = PodServicePorts {
        credentials: credentials_port,
        images: images_port,
        logs: logs_port,
        prober: prober_port,
    };
    let policies = (sections.pulls, sections.logs);
    grow_pod_services(&pods, ports, policies, (credentials, &peers));
    let group = pods.supervisor("workers", Strategy::OneForOne, Intensity::UNLIMITED);
    let workers = PodWorkers::new(group, peers);
    let centre = PodManagerParts {
        peers: pod_manager::Peers {
            pleg: pleg.clone(),
            checkpoints: state.checkpoints,
            mirrors: sections.listeners.mirrors.clone(),
        },
        workers,
        sources: sections.sources,
        rules: sections.rules,
        runtime,
        pod_manager: pod_manager.clone(),
    };
    centre.grow(&pods, directory_port, pleg_port);

    NodeHandle {
        root: root.clone(),
        pod_manager,
        images,
        volumes,
        statuses: state.statuses,
        events: state.events,
        pleg,
        recorder,
    }
}

/// What the pod manager and PLEG are spawned with.
struct PodManagerParts {
    peers: pod_manager::Peers,
    workers: PodWorkers,
    sources: BTreeSet<PodSource>,
    rules: Arc<PodWorkerConfig>,
    runtime: RuntimeClient,
    pod_manager: Addr<pod_manager::Msg>,
}

impl PodManagerParts {
    fn grow(self, pods: &Supervisor, pod_manager: Port<pod_manager::Msg>, pleg: Port<pleg::Msg>) {
        let facts = self.rules.facts.clone();
        let (peers, workers, sources) = (self.peers, self.workers, self.sources);
        pods.spawn(
            ChildSpec::permanent("pod-manager"),
            pod_manager,
            move || {
                PodManager::new(
                    peers.clone(),
                    workers.clone(),
                    sources.clone(),
                    facts.clone(),
                )
            },
        );
        let (runtime, told) = (self.runtime, self.pod_manager);
        pods.spawn(ChildSpec::permanent("pleg"), pleg, move || {
            Pleg::new(runtime.clone(), told.clone())
        });
    }
}

struct StateAddrs {
    events: Addr<events::Msg>,
    checkpoints: Addr<checkpoints::Msg>,
    users: Addr<user_namespaces::Msg>,
    statuses: Addr<status::Msg>,
}

struct StatePorts {
    events: Port<events::Msg>,
    checkpoints: Port<checkpoints::Msg>,
    users: Port<user_namespaces::Msg>,
    statuses: Port<status::Msg>,
}

fn state_mailboxes() -> (StateAddrs, StatePorts) {
    let (events, events_port) = mailbox(events::MAILBOX);
    let (checkpoints, checkpoints_port) = mailbox(checkpoints::MAILBOX);
    let (users, users_port) = mailbox(user_namespaces::MAILBOX);
    let (statuses, statuses_port) = mailbox(status::MAILBOX);
    let addrs = StateAddrs {
        events,
        checkpoints,
        users,
        statuses,
    };
    let ports = StatePorts {
        events: events_port,
        checkpoints: checkpoints_port,
        users: users_port,
        statuses: statuses_port,
    };
    (addrs, ports)
}

/// The actors that the state area sends to.
struct StatePeers<'a> {
    pod_manager: &'a Addr<pod_manager::Msg>,
    node_name: &'a str,
    cluster: Option<&'a ClusterWiring>,
}

/// Spawns the state area, which sends to the pod manager and the API server.
fn grow_state(
    root: &Supervisor,
    ports: StatePorts,
    ([file, root_dir], ids): ([&Path; 2], user_namespaces::Policy),
    told: &StatePeers<'_>,
) {
    let state = root.supervisor("state", Strategy::OneForOne, MANAGER_INTENSITY);
    let sending = told.cluster.map(|cluster| cluster.events(told.node_name));
    state.spawn(ChildSpec::permanent("events"), ports.events, move || {
        EventBroadcaster::new(sending.clone())
    });
    let (file, root_dir) = (file.to_owned(), root_dir.to_owned());
    state.spawn(
        ChildSpec::permanent("checkpoints"),
        ports.checkpoints,
        move || CheckpointManager::new(file.clone(), &root_dir),
    );
    state.spawn(ChildSpec::permanent("users"), ports.users, move || {
        UserNamespaceManager::new(ids.clone())
    });
    let peers = status::Peers {
        republish: Recipient::new(told.pod_manager.clone(), |PodResync| {
            pod_manager::Msg::Resync
        }),
        api: told.cluster.map(ClusterWiring::sending),
        kept: told.cluster.map(ClusterWiring::kept),
    };
    state.spawn(ChildSpec::permanent("status"), ports.statuses, move || {
        StatusManager::new(peers.clone())
    });
}

/// The peers of the volume manager.
fn volume_peers(
    backends: Backends,
    (objects, peers): (&ObjectStore, &Peers),
    cluster: Option<&ClusterWiring>,
) -> volumes::Peers {
    volumes::Peers {
        storage: backends.storage,
        hosts: backends.storage_hosts,
        objects: objects.clone(),
        pod_manager: peers.pod_manager.clone(),
        recorder: peers.recorder.clone(),
        rules: peers.rules.clone(),
        cluster: cluster.map(ClusterWiring::volumes),
    }
}

/// Spawns the volume manager.
fn grow_volumes(
    root: &Supervisor,
    port: Port<volumes::Msg>,
    policy: volumes::Policy,
    peers: volumes::Peers,
) {
    let group = root.supervisor("volumes", Strategy::OneForOne, MANAGER_INTENSITY);
    group.spawn(ChildSpec::permanent("volumes"), port, move || {
        VolumeManager::new(policy.clone(), peers.clone())
    });
}

struct PodServicePorts {
    credentials: Port<credentials::Msg>,
    images: Port<images::Msg>,
    logs: Port<logs::Msg>,
    prober: Port<prober::Msg>,
}

/// Spawns the managers that serve all pods: credentials, images, logs, prober.
fn grow_pod_services(
    pods: &Supervisor,
    ports: PodServicePorts,
    (pulls, policy): (PullSettings, logic_pods::logs::LogRotationPolicy),
    (credentials, peers): (Addr<credentials::Msg>, &Peers),
) {
    let section = pulls.credentials;
    pods.spawn(
        ChildSpec::permanent("credentials"),
        ports.credentials,
        move || DockerKeyring::new(section.clone()),
    );
    let keeper = images::Peers {
        runtime: peers.runtime.clone(),
        credentials,
        recorder: peers.recorder.clone(),
        objects: peers.objects.clone(),
    };
    let section = pulls.images;
    pods.spawn(ChildSpec::permanent("images"), ports.images, move || {
        ImageManager::new(section.clone(), keeper.clone())
    });
    let (asked, told) = (peers.runtime.clone(), peers.pod_manager.clone());
    pods.spawn(ChildSpec::permanent("logs"), ports.logs, move || {
        ContainerLogManager::new(policy.clone(), asked.clone(), told.clone())
    });
    let probing = prober::Peers {
        runtime: peers.runtime.clone(),
        probe_client: ProbeClient::default(),
        recorder: peers.recorder.clone(),
        pod_manager: peers.pod_manager.clone(),
    };
    pods.spawn(ChildSpec::permanent("prober"), ports.prober, move || {
        Prober::new(probing.clone())
    });
}

/// Spawns eviction and shutdown; returns those that report facts of the node.
fn grow_resources(
    node: &NodeHandle,
    runtime: RuntimeClient,
    settings: &AgentSettings,
    cluster: Option<&ClusterWiring>,
) -> Vec<Recipient<NodeResync>> {
    let resources = node
        .root
        .supervisor("resources", Strategy::OneForOne, MANAGER_INTENSITY);
    let (addr, port) = mailbox(eviction::MAILBOX);
    let mut tellers = vec![Recipient::new(addr, |NodeResync| eviction::Msg::Resync)];
    let sampler = UsageSampler::new(runtime, node.pod_manager.clone());
    let (policy, name) = (settings.eviction.clone(), settings.config.node_name.clone());
    let peers = eviction::Peers {
        pod_manager: node.pod_manager.clone(),
        node: cluster.map(ClusterWiring::pressures),
        recorder: node.recorder.clone(),
    };
    resources.spawn(ChildSpec::permanent("eviction"), port, move || {
        EvictionManager::new(policy.clone(), sampler.clone(), peers.clone(), name.clone())
    });
    if settings.shutdown.order.groups.is_empty() {
        return tellers;
    }
    let (addr, port) = mailbox(shutdown::MAILBOX);
    tellers.push(Recipient::new(addr, |NodeResync| shutdown::Msg::Resync));
    let peers = shutdown::Peers {
        pod_manager: node.pod_manager.clone(),
        volumes: node.volumes.clone(),
        node: cluster.map(ClusterWiring::shutdown),
        recorder: node.recorder.clone(),
    };
    let policy = settings.shutdown.clone();
    resources.spawn(ChildSpec::permanent("shutdown"), port, move || {
        ShutdownManager::new(policy.clone(), peers.clone())
    });
    tellers
}

/// The wall clock, for code outside actors.
fn timestamp() -> jiff::Timestamp {
    jiff::Timestamp::try_from(kernel::wall()).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
}
