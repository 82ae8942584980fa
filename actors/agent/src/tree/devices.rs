//! The managers of devices, which pods ask: those of device plugins, and those of claims.

use std::sync::Arc;

use cluster::node::NodeResync;
use kernel::{Addr, Recipient, Supervisor, watch};
use logic_placement::claims::health::KnownClaims;
use pods::pod_manager::claims::PodClaims;
use pods::pod_manager::devices::DevicePlugins;
use pods::pod_manager::{self, NodeChange};
use resources::device_manager::{self, DevicesChanged};

use super::ClusterWiring;
use crate::settings::AgentSettings;

/// Spawns the device manager; returns the ways to it.
pub(super) fn spawn_plugins(
    root: &Supervisor,
    pod_manager: &Addr<pod_manager::Msg>,
    (settings, cluster): (&AgentSettings, Option<&ClusterWiring>),
) -> (DevicePlugins, Recipient<NodeResync>) {
    let changed = |changed: DevicesChanged| {
        pod_manager::Msg::Node(NodeChange::Devices {
            inventory: changed.inventory,
            pods: changed.pods,
        })
    };
    let peers = device_manager::Peers {
        assigners: vec![Recipient::new(pod_manager.clone(), changed)],
        node: cluster.map(ClusterWiring::devices),
        ..device_manager::Peers::default()
    };
    let root_dir = settings.node.root_dir.clone();
    resources::area::spawn_devices(root, (root_dir, settings.device_health()), peers)
}

/// Spawns the manager of dynamic resources; returns the way to it, and what it knows.
pub(super) fn spawn_claims(
    root: &Supervisor,
    pod_manager: &Addr<pod_manager::Msg>,
    (settings, cluster): (&AgentSettings, Option<&ClusterWiring>),
) -> (PodClaims, watch::Receiver<Arc<KnownClaims>>) {
    let api = cluster.map(ClusterWiring::claims).unwrap_or_default();
    resources::area::spawn_dynamic_resources(root, settings.claims(), (api, pod_manager))
}
