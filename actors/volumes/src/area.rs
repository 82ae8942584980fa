//! Spawns the volumes' area.

use kernel::{ChildSpec, Intensity, Port, Strategy, Supervisor};

use crate::{Msg, Peers, Policy, VolumeManager};

/// Spawns the volume manager.
pub fn spawn(root: &Supervisor, port: Port<Msg>, policy: Policy, peers: Peers) {
    let group = root.supervisor("volumes", Strategy::OneForOne, Intensity::MANAGERS);
    group.spawn(ChildSpec::permanent("volumes"), port, move || {
        VolumeManager::new(policy.clone(), peers.clone())
    });
}
