//! Which CPUs a container has to itself.
//!
//! The static policy gives containers of guaranteed pods that ask for whole CPUs their own ones; all others run on what
//! is left. A CPU is given by where it lies on the [machine]: close to the others of its container, such that
//! what is whole stays whole. The [manager](CpuManager) is a hint provider of the [topology manager](crate::topology).
//! Mirrors upstream's pkg/kubelet/cm/cpumanager at v1.36.

mod accumulator;
mod allocation;
mod assigned;
mod counts;
mod cpu_set;
mod demand;
mod hints;
mod machine;
mod manager;
mod options;
mod policy;
mod provider;
mod state_file;
#[cfg(test)]
mod tests;

pub use self::cpu_set::{CpuListError, CpuSet, MAX_CPUS};
pub use self::machine::{CoreId, CpuMachine, CpuPlace, SocketId, UncoreAlignment, UncoreCacheId};
pub use self::manager::CpuManager;
pub use self::options::{
    CpuPolicyOption, CpuPolicyOptionError, CpuPolicyOptions, OptionGate, OptionGates,
};
pub use self::policy::{CpuManagerError, CpuPolicy, CpuSettings, ExclusiveQuota};
pub use self::state_file::{CpuState, CpuStateError, CpuStateFileError};
