//! The supervision tree, and the peers of every actor.
//!
//! Mailboxes come first, so that any actor may tell any other. Then the actors, in an order that is an invariant: **an
//! actor asks only those spawned above it**; all others it tells. So the asks form no cycle.

mod api_server;
mod certificates;
mod devices;
mod endpoints;
mod plugins;
mod sources;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clients::runtime::RuntimeClient;
use clients::storage::Storage;
use cluster::node::NodeResync;
use config::KubeletFlags;
use kernel::{
    Addr, ChildSpec, Intensity, Port, Recipient, Strategy, Supervisor, error_chain, mailbox, watch,
};
use logic_placement::claims::health::KnownClaims;
use logic_resources::cgroups::CgroupDriver;
use pods::area::{PodListeners, PodPeers};
use pods::cgroups::CgroupManager;
use pods::pod_manager::PodsChanged;
use pods::runtime::handover::RuntimeGate;
use pods::runtime::pleg;
use pods::{hosts, images, pod_manager};
use resources::area::ResourcePeers;
use resources::stats::{self, SummaryProvider};
use resources::{container_gc, container_manager, eviction, image_gc, shutdown};
use state::area::StatePeers;
use state::checkpoints;
use state::events::{self, Recorder};
use state::objects::{self, ObjectFolder, ObjectStore, StoreWriter};
use state::status::{self, PodResync};
use telemetry::SpanExport;
use tokio::signal::unix::{SignalKind, signal};

use self::api_server::ClusterWiring;
use self::plugins::RuntimeState;
use crate::endpoints::admin::Plugins;
use crate::mounter;
use crate::own_process::lock_file::{LockFile, OnContention};
use crate::own_process::open_files;
use crate::own_process::root_dir::RootDirLock;
use crate::service_manager::ServiceManager;
use crate::settings::AgentSettings;
use crate::standalone;

/// The addresses that servers and the cluster's actors need.
#[derive(Debug, Clone)]
pub struct NodeHandle {
    pub root: Supervisor,
    pub pod_manager: Addr<pod_manager::Msg>,
    pub images: Addr<images::Msg>,
    pub volumes: Addr<volumes::Msg>,
    pub statuses: Addr<status::Msg>,
    pub events: Addr<events::Msg>,
    pub checkpoints: Addr<checkpoints::Msg>,
    pub pleg: Addr<pleg::Msg>,
    pub recorder: Recorder,
    /// Asks the device manager for its facts of the node again.
    pub resync_devices: Recipient<NodeResync>,
    /// What is known of the ResourceClaims in use.
    pub claims: watch::Receiver<Arc<KnownClaims>>,
}

/// How long the end of the agent waits for a collector of spans.
const LAST_SPANS_TIMEOUT: Duration = Duration::from_secs(1);

/// What a node that serves has beside its areas: the plugins' hosts, the runtime in use, the service manager.
type Outside = (Plugins, RuntimeState, Option<ServiceManager>);

/// Spawns the tree and runs it until the agent is told to end. Pods keep running.
pub async fn run(settings: AgentSettings) -> anyhow::Result<()> {
    for warning in &settings.config.warnings {
        tracing::warn!("{warning}");
    }
    let mut lock = lock(&settings.config.flags).await?;
    let _root_dir = RootDirLock::take(&settings.node.root_dir)?;
    metrics::node::introduce(&settings.node.node_name, &settings.config.version);
    metrics::component::features(settings.config.gates.all());
    let manager = ServiceManager::from_environment().context("cannot configure the watchdog")?;
    open_files::limit(settings.config.kubelet.max_open_files);
    start_spans(&settings);
    let root = Supervisor::root("oxlet", Intensity::MANAGERS);
    let cluster = ClusterWiring::find(&settings)?;
    mounter::set_up_dns(&settings.config);
    standalone::keep(&settings.config).context("what this node alone is to keep")?;
    let in_use = RuntimeState::load(&settings)?;
    let recorder = plugins::LateRecorder::default();
    let (lines, hosts) = plugins::spawn(&root, &settings, (&in_use, recorder.clone()));
    let backends = Backends {
        runtime: RuntimeClient::new(lines.runtime, settings.runtime_within),
        gate: in_use.gate.clone(),
        storage: Storage::new(lines.local, lines.csi),
        storage_hosts: hosts.hosts.clone(),
    };
    let node = spawn(
        &root,
        &settings,
        backends,
        (cluster, Some((hosts, in_use, manager.clone()))),
    )
    .await?;
    // Set once: this is the only place.
    drop(recorder.set(node.recorder));

    let (mut terminate, mut interrupt) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    );
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = lock.contended() => {}
    }
    tracing::info!("ending; pods live on");
    if let Some(manager) = manager {
        manager.stopping();
    }
    root.shutdown().await;
    telemetry::stop(LAST_SPANS_TIMEOUT).await;
    Ok(())
}

/// Sends spans to a collector, where one is configured. Without them the node does all that it is there for.
fn start_spans(settings: &AgentSettings) {
    let Some(tracing) = &settings.config.kubelet.tracing else {
        return;
    };
    let started = telemetry::start(&SpanExport {
        endpoint: tracing.endpoint.clone(),
        sampling_rate_per_million: tracing
            .sampling_rate_per_million
            .and_then(|rate| rate.try_into().ok())
            .unwrap_or_default(),
        host_name: settings.config.node_name.clone(),
    });
    if let Err(error) = started {
        tracing::warn!("no spans are sent: {}", error_chain(&error));
    }
}

/// Waits until no other agent has this node's lock; at once where no file is configured.
async fn lock(flags: &KubeletFlags) -> anyhow::Result<LockFile> {
    let on_contention = match flags.exit_on_lock_contention {
        true => OnContention::Exit,
        false => OnContention::Stay,
    };
    Ok(match flags.lock_file.as_str() {
        "" => LockFile::none(),
        path => LockFile::acquire(Path::new(path), on_contention).await?,
    })
}

/// Spawns the areas on the plugins' clients; the servers only where there are hosts, which they show.
async fn spawn(
    root: &Supervisor,
    settings: &AgentSettings,
    backends: Backends,
    (cluster, hosts): (Option<ClusterWiring>, Option<Outside>),
) -> anyhow::Result<NodeHandle> {
    let runtime = backends.runtime.clone();
    let objects = objects(root, settings, cluster.as_ref());
    let store = objects.store.clone();
    let containers = Containers::new(settings, &runtime);
    let node = pods(
        root,
        (backends, &containers),
        store,
        (settings, cluster.as_ref()),
    );
    node.recorder
        .begin(kernel::timestamp(), &settings.node.node_name);
    for unknown in &settings.config.unknown_fields {
        tracing::warn!("{unknown}");
        node.recorder
            .unknown_field(kernel::timestamp(), &settings.node.node_name, unknown);
    }
    hosts::complain(&node.recorder, &settings.node).await;
    sources::spawn(&node, settings);
    let cgroups = containers.cgroups.clone();
    let summaries = summaries(&node, runtime.clone(), settings);
    let mut reporters = resources(
        &node,
        (summaries.clone(), containers),
        settings,
        cluster.as_ref(),
    );
    reporters.push(node.resync_devices.clone());
    let certificate = match hosts {
        Some((hosts, in_use, manager)) => {
            let handover = in_use.spawn(&node, (runtime.clone(), cgroups), &hosts);
            let plugins = (hosts, handover, manager);
            endpoints::spawn(
                &node,
                (runtime.clone(), summaries),
                plugins,
                (settings, cluster.as_ref()),
            )?
        }
        None => None,
    };
    if let Some(cluster) = cluster {
        let inputs = api_server::ClusterInputs {
            settings,
            runtime,
            writer: objects.writer,
            store: objects.store,
            folder: objects.folder,
            certificate,
            reporters,
        };
        api_server::spawn(&node, cluster, inputs);
    }
    Ok(node)
}

/// The object store and its writer.
struct ObjectStores {
    writer: StoreWriter,
    store: ObjectStore,
    /// The objects of the manifests' folder, where the store is filled from the API; none without such a folder.
    folder: Option<ObjectStore>,
}

/// The object store: filled from the API, from a watched folder, or from both.
fn objects(
    root: &Supervisor,
    settings: &AgentSettings,
    cluster: Option<&ClusterWiring>,
) -> ObjectStores {
    let group = root.supervisor("objects", Strategy::OneForOne, Intensity::MANAGERS);
    let path = PathBuf::from(&settings.config.flags.object_manifests);
    let (filled, folder) = ObjectStore::new(objects::load(&settings.config.flags.object_manifests));
    let is_given = !path.as_os_str().is_empty();
    if is_given {
        let (_, port) = mailbox(objects::MAILBOX);
        let store_writer = filled.clone();
        group.spawn(ChildSpec::permanent("folder"), port, move || {
            ObjectFolder::new(path.clone(), store_writer.clone())
        });
    }
    let Some(cluster) = cluster else {
        return ObjectStores {
            writer: filled,
            store: folder,
            folder: None,
        };
    };
    let mut remembered = cluster.remembered();
    drop(remembered.merge((*folder.snapshot()).clone()));
    let (supply, shelf) = ObjectStore::new(remembered);
    ObjectStores {
        writer: supply,
        store: shelf,
        folder: is_given.then_some(folder),
    }
}

/// The clients of the plugins.
#[derive(Debug)]
struct Backends {
    runtime: RuntimeClient,
    gate: RuntimeGate,
    storage: Storage,
    /// The storage plugins' hosts by name; they are told which process is stuck.
    storage_hosts: BTreeMap<String, Addr<plugin_host::Msg>>,
}

/// The machine's cgroups, and the mailbox of the actor that has those above the pods.
struct Containers {
    cgroups: CgroupManager,
    addr: Addr<container_manager::Msg>,
    port: Port<container_manager::Msg>,
}

impl Containers {
    fn new(settings: &AgentSettings, runtime: &RuntimeClient) -> Containers {
        let (addr, port) = resources::area::mailboxes();
        let policy = settings.node.cgroups.as_ref();
        let configured = policy.map_or(CgroupDriver::Cgroupfs, |policy| policy.driver);
        Containers {
            cgroups: CgroupManager::here(configured, runtime.cgroup_driver()),
            addr,
            port,
        }
    }
}

/// Spawns the state area, the volumes and the pods' area.
fn pods(
    root: &Supervisor,
    (backends, containers): (Backends, &Containers),
    objects: ObjectStore,
    (settings, cluster): (&AgentSettings, Option<&ClusterWiring>),
) -> NodeHandle {
    let (state, state_ports) = state::area::mailboxes();
    let (pods, pod_ports) = pods::area::mailboxes();
    let (volumes, volumes_port) = mailbox(volumes::MAILBOX);
    let rules = settings.rules();
    let resync = Recipient::new(pods.pod_manager.clone(), |PodResync| {
        pod_manager::Msg::Resync
    });
    let state_peers = StatePeers {
        events: cluster.map(|cluster| cluster.events(&settings.node.node_name)),
        statuses: status::Peers {
            republish: resync.clone(),
            api: cluster.map(ClusterWiring::sending),
            kept: cluster.map(ClusterWiring::status_checkpoint),
        },
    };
    state::area::spawn(root, state_ports, settings.state(), state_peers);
    let volume_peers = volumes::Peers {
        storage: backends.storage,
        hosts: backends.storage_hosts,
        objects: objects.clone(),
        resync,
        recorder: state.recorder(),
        rules: rules.clone(),
        cluster: cluster.map(ClusterWiring::volumes),
    };
    volumes::area::spawn(root, volumes_port, settings.volumes(), volume_peers);
    let (devices, resync_devices) =
        devices::spawn_plugins(root, &pods.pod_manager, (settings, cluster));
    let (claims, known_claims) =
        devices::spawn_claims(root, &pods.pod_manager, (settings, cluster));
    let pod_peers = PodPeers {
        runtime: backends.runtime,
        gate: backends.gate,
        cgroups: containers.cgroups.clone(),
        state: state.clone(),
        volumes: volumes.clone(),
        objects,
        devices,
        claims,
        listeners: PodListeners {
            changed: Some(Recipient::new(containers.addr.clone(), |PodsChanged| {
                container_manager::Msg::PodsChanged
            })),
            ..cluster.map(ClusterWiring::listeners).unwrap_or_default()
        },
    };
    pods::area::spawn(root, (&pods, pod_ports), settings.pods(rules), pod_peers);
    NodeHandle {
        root: root.clone(),
        pod_manager: pods.pod_manager,
        images: pods.images,
        volumes,
        recorder: state.recorder(),
        statuses: state.statuses,
        events: state.events,
        checkpoints: state.checkpoints,
        pleg: pods.pleg,
        resync_devices,
        claims: known_claims,
    }
}

/// What measures the node and its pods, for the servers and for eviction.
fn summaries(
    node: &NodeHandle,
    runtime: RuntimeClient,
    settings: &AgentSettings,
) -> SummaryProvider {
    SummaryProvider::new(stats::Peers {
        root: node.root.clone(),
        runtime,
        pod_manager: node.pod_manager.clone(),
        volumes: node.volumes.clone(),
        rules: settings.rules(),
        groups: settings.system_groups(),
        source: settings.stats_source(),
    })
}

/// Spawns the resources' area; returns the actors that report a fact of the node.
fn resources(
    node: &NodeHandle,
    (summaries, containers): (SummaryProvider, Containers),
    settings: &AgentSettings,
    cluster: Option<&ClusterWiring>,
) -> Vec<Recipient<NodeResync>> {
    let peers = ResourcePeers {
        containers: container_manager::Peers {
            runtime: summaries.runtime().clone(),
            cgroups: containers.cgroups,
            pod_manager: node.pod_manager.clone(),
            node: cluster.map(ClusterWiring::unenforced),
            recorder: node.recorder.clone(),
        },
        container_gc: container_gc::Peers {
            runtime: summaries.runtime().clone(),
            pod_manager: node.pod_manager.clone(),
            recorder: node.recorder.clone(),
        },
        image_gc: image_gc::Peers {
            runtime: summaries.runtime().clone(),
            images: node.images.clone(),
            recorder: node.recorder.clone(),
        },
        summaries,
        eviction: eviction::Peers {
            pod_manager: node.pod_manager.clone(),
            node: cluster.map(ClusterWiring::pressures),
            recorder: node.recorder.clone(),
            collectors: eviction::Collectors::default(),
        },
        shutdown: shutdown::Peers {
            pod_manager: node.pod_manager.clone(),
            node: cluster.map(ClusterWiring::shutdown),
            recorder: node.recorder.clone(),
        },
    };
    let mailbox = (&containers.addr, containers.port);
    resources::area::spawn(&node.root, mailbox, settings.resources(), peers)
}
