//! Spawns the resources' area: the container manager, eviction, and the graceful node shutdown.

use cluster::node::NodeResync;
use kernel::{Addr, ChildSpec, Intensity, Port, Recipient, Strategy, Supervisor, mailbox};
use logic_resources::eviction::EvictionPolicy;

use crate::container_manager::{self, ContainerManager, ContainerManagerConfig};
use crate::eviction::{self, EvictionManager};
use crate::shutdown::{self, ShutdownManager};
use crate::stats::SummaryProvider;
use crate::stats::usage::UsageSampler;

/// The area's section of the settings.
#[derive(Debug, Clone)]
pub struct ResourceSettings {
    /// The name that the node has in the API.
    pub node_name: String,
    pub containers: ContainerManagerConfig,
    pub eviction: EvictionPolicy,
    /// Without groups of pods there is no shutdown manager, as upstream.
    pub shutdown: shutdown::Policy,
}

/// What the area asks and sends to.
#[derive(Debug)]
pub struct ResourcePeers {
    pub summaries: SummaryProvider,
    pub containers: container_manager::Peers,
    pub eviction: eviction::Peers,
    pub shutdown: shutdown::Peers,
}

/// The area's mailbox that other areas tell before its actors run.
pub fn mailboxes() -> (Addr<container_manager::Msg>, Port<container_manager::Msg>) {
    mailbox(container_manager::MAILBOX)
}

/// Spawns the area's actors; returns those that report a fact of the node, to be asked for it again.
pub fn spawn(
    root: &Supervisor,
    (containers, port): (&Addr<container_manager::Msg>, Port<container_manager::Msg>),
    settings: ResourceSettings,
    peers: ResourcePeers,
) -> Vec<Recipient<NodeResync>> {
    let group = root.supervisor("resources", Strategy::OneForOne, Intensity::MANAGERS);
    let resync = |NodeResync| container_manager::Msg::Resync;
    let mut reporters = vec![Recipient::new(containers.clone(), resync)];
    let (config, container_peers) = (settings.containers, peers.containers);
    let spec = ChildSpec::permanent("container-manager");
    group.spawn(spec, port, move || {
        ContainerManager::new(config.clone(), container_peers.clone())
    });
    let (addr, port) = mailbox(eviction::MAILBOX);
    reporters.push(Recipient::new(addr, |NodeResync| eviction::Msg::Resync));
    let sampler = UsageSampler::new(peers.summaries);
    let (policy, name) = (settings.eviction, settings.node_name);
    let eviction_peers = peers.eviction;
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
