//! Moves running containers to the CPUs that they run on now: what another pod gets for itself, they lose.
//!
//! It goes on beside an operation, since it changes nothing that a plan looks at: a pull that takes minutes keeps no
//! container on the CPUs of another pod.
//!
//! Upstream: the `reconcileState` of pkg/kubelet/cm/cpumanager/cpu_manager.go (1.36), which looks once a period.

use std::collections::{BTreeMap, BTreeSet};

use clients::runtime::{RuntimeClient, RuntimeError};
use k8s_openapi::api::core::v1::Pod;
use kernel::Context;
use logic_api::pod::PodView;
use logic_api::types::{ContainerId, ContainerState};
use logic_resources::resources::LinuxResources;

use super::completion::WorkerCompletion;
use crate::worker::context::PlacedContainers;
use crate::worker::{Msg, PodWorker, RETRY_BACKOFF};

/// The CPUs of the pod's containers, as lists of ranges.
#[derive(Debug, Default)]
pub(in crate::worker) struct ContainerPins {
    /// What the runtime was told last of each instance.
    told: BTreeMap<ContainerId, String>,
    /// Those that it is being told of.
    moving: BTreeSet<ContainerId>,
    placed: PlacedContainers,
}

impl ContainerPins {
    /// Where a plan reports the containers that it creates.
    pub(in crate::worker) fn placed(&self) -> PlacedContainers {
        self.placed.clone()
    }
}

/// A container's CPUs that the runtime was told, or why it was not.
#[derive(Debug)]
pub struct Pinned {
    id: ContainerId,
    cpus: String,
    result: Result<(), RuntimeError>,
}

impl PodWorker {
    /// Has the runtime move the containers whose CPUs are others than it was told.
    pub(in crate::worker) fn pin(&mut self, pod: &Pod, ctx: &mut Context<Msg>) {
        let placement = &self.peers.assignments.placement;
        let Some(seen) = self.observed.pod().filter(|_| placement.pins_cpus()) else {
            return;
        };
        self.pins.told.extend(self.pins.placed.take());
        let is_there = |id: &ContainerId| seen.containers.iter().any(|instance| instance.id == *id);
        self.pins.told.retain(|id, _| is_there(id));
        let held = self.peers.assignments.held();
        let mut moves = Vec::new();
        for (_, container) in pod.all_containers() {
            let name = container.name.as_str();
            let newest = seen.newest(name);
            let newest = newest.filter(|instance| instance.state == ContainerState::Running);
            let Some(instance) = newest else { continue };
            let cpus = placement.container(&held, pod, name).cpus.to_string();
            let is_told = self.pins.told.get(&instance.id) == Some(&cpus);
            if !cpus.is_empty() && !is_told && self.pins.moving.insert(instance.id.clone()) {
                moves.push((instance.id.clone(), cpus));
            }
        }
        if !moves.is_empty() {
            let runtime = self.peers.runtime.clone();
            ctx.run(async move { WorkerCompletion::Pinned(pin_all(&runtime, moves).await).into() });
        }
    }

    pub(in crate::worker) fn pinned(&mut self, pins: Vec<Pinned>, ctx: &mut Context<Msg>) {
        for Pinned { id, cpus, result } in pins {
            match result {
                Ok(()) => {
                    self.pins.moving.remove(&id);
                    self.pins.told.insert(id, cpus);
                }
                Err(error) => {
                    tracing::warn!(pod = %self.pod_name(), container = %id, "not moved to CPUs {cpus}: {}", error.describe());
                    ctx.after(RETRY_BACKOFF, Msg::RetryPin { id });
                }
            }
        }
    }

    /// Has a container moved again that the runtime would not move.
    pub(in crate::worker) fn retry_pin(&mut self, id: &ContainerId) {
        self.pins.moving.remove(id);
    }
}

async fn pin_all(runtime: &RuntimeClient, moves: Vec<(ContainerId, String)>) -> Vec<Pinned> {
    let mut pins = Vec::new();
    for (id, cpus) in moves {
        let resources = LinuxResources {
            cpus: cpus.clone(),
            ..LinuxResources::default()
        };
        let result = runtime.update_container_resources(&id, &resources).await;
        pins.push(Pinned { id, cpus, result });
    }
    pins
}
