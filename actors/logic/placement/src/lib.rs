//! Decisions about what a pod has to itself, and where on the machine it lies (upstream's pkg/kubelet/cm
//! cpumanager, memorymanager, devicemanager, dra and topologymanager).

pub mod claims;
pub mod cpus;
pub mod devices;
pub mod memory;
#[cfg(test)]
mod model;
mod node_placement;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod topology;

pub use node_placement::{ContainerPlacement, NodePlacement, QuotaRule, RestoreError, StateFile};
