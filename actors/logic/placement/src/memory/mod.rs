//! Memory that guaranteed pods have to themselves, from as few NUMA nodes as will do.
//!
//! A container's memory and huge pages come from one set of nodes. A node that gives memory of its own alone gives none
//! to a group of nodes, and the other way round, so that the kernel, which knows sets of nodes and no amounts, cannot give
//! away in a group what a container was assigned of one node. What is free follows from the machine and from what pods
//! hold: nothing else is kept. An assignment's `pod` memory is all that a pod with pod-level resources has, and its
//! containers' memory are parts of it. Mirrors upstream's pkg/kubelet/cm/memorymanager at v1.36.

mod amount;
mod asked;
mod counts;
mod hints;
mod kept;
mod machine;
mod manager;
mod numa_state;
mod pod_level;
mod provider;
mod reserved;
mod reuse;
mod state_file;
#[cfg(test)]
mod tests;

pub use self::machine::{MachineMemory, NumaMemory};
pub use self::manager::{
    MemoryManager, MemoryManagerError, MemoryPolicy, MemorySettings, memory_nodes,
};
pub use self::reserved::{MemoryReservation, ReservedMemoryError};
pub use self::reuse::release_ended;
pub use self::state_file::{STATE_FILE, StateFileError};
