//! Decisions about what a pod has to itself, and where on the machine it lies (upstream's pkg/kubelet/cm
//! cpumanager, memorymanager, devicemanager, dra and topologymanager).

pub mod claims;
pub mod topology;
