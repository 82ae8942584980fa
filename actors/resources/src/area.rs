//! Spawns the resources' area: the container manager, garbage collection, eviction, and the graceful node shutdown.

use std::path::PathBuf;
use std::sync::Arc;

use cluster::node::NodeResync;
use kernel::{Addr, ChildSpec, Intensity, Port, Recipient, Strategy, Supervisor, mailbox, watch};
use logic_placement::claims::health::KnownClaims;
use logic_resources::eviction::EvictionPolicy;
use pods::pod_manager::claims::PodClaims;
use pods::pod_manager::devices::{DevicePlugins, HealthInStatus};
use pods::pod_manager::{self, NodeChange, PodQuery};

use crate::container_gc::{self, ContainerGc, ContainerGcConfig};
use crate::container_manager::{self, ContainerManager, ContainerManagerConfig};
use crate::device_manager::{self, DeviceManager, DevicePluginHandler, PluginResync};
use crate::dynamic_resources::plugin_watcher::{self, DraHandler, PluginWatcher};
use crate::dynamic_resources::{
    self, ClaimApi, DriverResync, DynamicResources, DynamicResourcesConfig, HealthChanged,
    HealthWatch, PodsQuery,
};
use crate::eviction::{self, Collectors, EvictionManager, Reclaimer};
use crate::image_gc::{self, ImageGc, ImageGcConfig};
use crate::iptables::program::IptablesPrograms;
use crate::iptables::{self, IptablesRules};
use crate::oom::{self, OomConfig, OomWatcher};
use crate::pod_cidr::{self, PodCidr};
use crate::shutdown::{self, ShutdownManager};
use crate::stats::SummaryProvider;
use crate::stats::usage::UsageSampler;

/// The area's section of the settings.
#[derive(Debug, Clone)]
pub struct ResourceSettings {
    /// The name that the node has in the API.
    pub node_name: String,
    pub containers: ContainerManagerConfig,
    pub container_gc: ContainerGcConfig,
    pub image_gc: ImageGcConfig,
    pub oom: OomConfig,
    pub eviction: EvictionPolicy,
    /// Without groups of pods there is no shutdown manager, as upstream.
    pub shutdown: shutdown::Policy,
    pub iptables: IptablesUse,
    /// The addresses of pods, for the runtime of a node whose API server tells none.
    pub pod_cidr: Option<String>,
}

/// Whether the node has the rules of iptables that other components rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IptablesUse {
    Kept,
    LeftAlone,
}

/// What the area asks and sends to.
#[derive(Debug)]
pub struct ResourcePeers {
    pub summaries: SummaryProvider,
    pub containers: container_manager::Peers,
    pub container_gc: container_gc::Peers,
    pub image_gc: image_gc::Peers,
    pub eviction: eviction::Peers,
    pub shutdown: shutdown::Peers,
}

/// Spawns what the node does for the network, which is others' for the most part.
fn network(group: &Supervisor, settings: &ResourceSettings, peers: &ResourcePeers) {
    if settings.iptables == IptablesUse::Kept {
        let (_, port) = mailbox(iptables::MAILBOX);
        group.spawn(ChildSpec::permanent("iptables"), port, || {
            IptablesRules::new(IptablesPrograms)
        });
    }
    if let Some(range) = settings.pod_cidr.clone() {
        let (_, port) = mailbox(pod_cidr::MAILBOX);
        let runtime = peers.containers.runtime.clone();
        group.spawn(ChildSpec::permanent("pod-cidr"), port, move || {
            PodCidr::new(runtime.clone(), range.clone())
        });
    }
}

/// The area's mailbox that other areas tell before its actors run.
pub fn mailboxes() -> (Addr<container_manager::Msg>, Port<container_manager::Msg>) {
    mailbox(container_manager::MAILBOX)
}

/// Spawns the device manager, which pods ask and so comes before their area, and the watcher of plugins that it does not
/// find by itself; returns the way to it.
pub fn spawn_devices(
    root: &Supervisor,
    (root_dir, health): (PathBuf, HealthInStatus),
    peers: device_manager::Peers,
) -> (DevicePlugins, Recipient<NodeResync>) {
    let group = root.supervisor("devices", Strategy::OneForOne, Intensity::MANAGERS);
    let (addr, port) = mailbox(device_manager::MAILBOX);
    let (watcher, watcher_port) = mailbox(plugin_watcher::MAILBOX);
    let peers = device_manager::Peers {
        plugins: Some(Recipient::new(watcher, |PluginResync| {
            plugin_watcher::Msg::Resync
        })),
        ..peers
    };
    let (registry, handler) = (root_dir.clone(), DevicePluginHandler::new(addr.clone()));
    group.spawn(ChildSpec::permanent("device-manager"), port, move || {
        DeviceManager::new(&root_dir, peers.clone())
    });
    let spec = ChildSpec::permanent("plugin-watcher");
    group.spawn(spec, watcher_port, move || {
        PluginWatcher::new(&registry, handler.clone())
    });
    let manager = Recipient::new(addr.clone(), device_manager::Msg::from);
    let plugins = DevicePlugins::new(manager, health);
    let resync = Recipient::new(addr, |NodeResync| device_manager::Msg::Resync);
    (plugins, resync)
}

/// Spawns the manager of dynamic resources, which pods ask and so comes before their area, and the watcher that brings it
/// its drivers; returns the way to it, and what it knows.
pub fn spawn_dynamic_resources(
    root: &Supervisor,
    config: DynamicResourcesConfig,
    (api, pods): (ClaimApi, &Addr<pod_manager::Msg>),
) -> (PodClaims, watch::Receiver<Arc<KnownClaims>>) {
    let group = root.supervisor(
        "dynamic-resources",
        Strategy::OneForOne,
        Intensity::MANAGERS,
    );
    let (addr, port) = mailbox(dynamic_resources::MAILBOX);
    let (watcher, watcher_port) = mailbox(plugin_watcher::MAILBOX);
    let (known, shown) = watch::channel(Arc::default());
    let peers = dynamic_resources::Peers {
        api,
        pods: Recipient::new(pods.clone(), |PodsQuery(asker)| {
            pod_manager::Msg::Query(PodQuery::Unended { asker })
        }),
        drivers: Recipient::new(watcher, |DriverResync| plugin_watcher::Msg::Resync),
        status: Recipient::new(pods.clone(), |HealthChanged(pods)| {
            pod_manager::Msg::Node(NodeChange::ClaimDevices { pods })
        }),
        known,
    };
    let in_statuses = (config.health == HealthWatch::On).then(|| shown.clone());
    let root_dir = config.root_dir.clone();
    group.spawn(ChildSpec::permanent("manager"), port, move || {
        DynamicResources::new(config.clone(), peers.clone())
    });
    let claims = PodClaims::new(Recipient::new(addr.clone(), Into::into), in_statuses);
    let spec = ChildSpec::permanent("plugin-watcher");
    group.spawn(spec, watcher_port, move || {
        PluginWatcher::new(&root_dir, DraHandler::new(addr.clone()))
    });
    (claims, shown)
}

/// Spawns the area's actors; returns those that report a fact of the node, to be asked for it again.
pub fn spawn(
    root: &Supervisor,
    (containers, port): (&Addr<container_manager::Msg>, Port<container_manager::Msg>),
    settings: ResourceSettings,
    peers: ResourcePeers,
) -> Vec<Recipient<NodeResync>> {
    let group = root.supervisor("resources", Strategy::OneForOne, Intensity::MANAGERS);
    network(&group, &settings, &peers);
    let resync = |NodeResync| container_manager::Msg::Resync;
    let mut reporters = vec![Recipient::new(containers.clone(), resync)];
    let (config, container_peers) = (settings.containers, peers.containers);
    let spec = ChildSpec::permanent("container-manager");
    group.spawn(spec, port, move || {
        ContainerManager::new(config.clone(), container_peers.clone())
    });
    // The eviction manager asks both collectors, so they are started before.
    let (dead_containers, port) = mailbox(container_gc::MAILBOX);
    let (config, gc_peers) = (settings.container_gc, peers.container_gc);
    group.spawn(ChildSpec::permanent("container-gc"), port, move || {
        ContainerGc::new(config.clone(), gc_peers.clone())
    });
    let (unused_images, port) = mailbox(image_gc::MAILBOX);
    let (config, gc_peers) = (settings.image_gc, peers.image_gc);
    group.spawn(ChildSpec::permanent("image-gc"), port, move || {
        ImageGc::new(config.clone(), gc_peers.clone())
    });
    let (_, port) = mailbox(oom::MAILBOX);
    let (config, recorder) = (settings.oom, peers.eviction.recorder.clone());
    group.spawn(ChildSpec::permanent("oom-watcher"), port, move || {
        OomWatcher::new(config.clone(), recorder.clone())
    });
    let (addr, port) = mailbox(eviction::MAILBOX);
    reporters.push(Recipient::new(addr, |NodeResync| eviction::Msg::Resync));
    let sampler = UsageSampler::new(peers.summaries);
    let (policy, name) = (settings.eviction, settings.node_name);
    let delete_containers = |reply| container_gc::Msg::DeleteAllUnused { reply };
    let delete_images = |reply| image_gc::Msg::DeleteUnused { reply };
    let eviction_peers = eviction::Peers {
        collectors: Collectors {
            images: Some(Reclaimer::new(unused_images, delete_images)),
            containers: Some(Reclaimer::new(dead_containers, delete_containers)),
        },
        ..peers.eviction
    };
    group.spawn(ChildSpec::permanent("eviction"), port, move || {
        let peers = eviction_peers.clone();
        EvictionManager::new(policy.clone(), sampler.clone(), peers, name.clone())
    });
    if !settings.shutdown.order.groups.is_empty() {
        let (addr, port) = mailbox(shutdown::MAILBOX);
        reporters.push(Recipient::new(addr, |NodeResync| shutdown::Msg::Resync));
        let (policy, peers) = (settings.shutdown, peers.shutdown);
        group.spawn(ChildSpec::permanent("shutdown"), port, move || {
            ShutdownManager::new(policy.clone(), peers.clone())
        });
    }
    reporters
}
