//! The eviction signals, and how upstream prints their amounts.

use serde::{Deserialize, Serialize};

/// An eviction signal; the order is the order in which thresholds are acted upon: memory before all others, as
/// upstream's `byEvictionPriority`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Signal {
    MemoryAvailable,
    /// Memory left below the limit of the cgroup above the pods.
    AllocatableMemoryAvailable,
    NodeFsAvailable,
    NodeFsInodesFree,
    ImageFsAvailable,
    ImageFsInodesFree,
    /// Where the runtime keeps the writable layers.
    ContainerFsAvailable,
    ContainerFsInodesFree,
    PidAvailable,
}

/// The resource that is short, as messages name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StarvedResource {
    Memory,
    /// Bytes of disk.
    EphemeralStorage,
    Inodes,
    Pids,
}

impl StarvedResource {
    /// The name of messages and annotations.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::EphemeralStorage => "ephemeral-storage",
            Self::Inodes => "inodes",
            Self::Pids => "pids",
        }
    }
}

/// The node's conditions of pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PressureCondition {
    MemoryPressure,
    DiskPressure,
    PIDPressure,
}

impl PressureCondition {
    /// The type of the node's condition.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MemoryPressure => "MemoryPressure",
            Self::DiskPressure => "DiskPressure",
            Self::PIDPressure => "PIDPressure",
        }
    }
}

impl Signal {
    pub const ALL: [Signal; 9] = [
        Self::MemoryAvailable,
        Self::AllocatableMemoryAvailable,
        Self::NodeFsAvailable,
        Self::NodeFsInodesFree,
        Self::ImageFsAvailable,
        Self::ImageFsInodesFree,
        Self::ContainerFsAvailable,
        Self::ContainerFsInodesFree,
        Self::PidAvailable,
    ];

    /// The name in configuration and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::MemoryAvailable => "memory.available",
            Self::AllocatableMemoryAvailable => "allocatableMemory.available",
            Self::NodeFsAvailable => "nodefs.available",
            Self::NodeFsInodesFree => "nodefs.inodesFree",
            Self::ImageFsAvailable => "imagefs.available",
            Self::ImageFsInodesFree => "imagefs.inodesFree",
            Self::ContainerFsAvailable => "containerfs.available",
            Self::ContainerFsInodesFree => "containerfs.inodesFree",
            Self::PidAvailable => "pid.available",
        }
    }

    /// The signal of a configured name; none of an unknown one.
    pub fn from_name(name: &str) -> Option<Signal> {
        Self::ALL.into_iter().find(|signal| signal.name() == name)
    }

    /// What is short: upstream's `signalToResource`.
    pub fn starved(self) -> StarvedResource {
        match self {
            Self::MemoryAvailable | Self::AllocatableMemoryAvailable => StarvedResource::Memory,
            Self::NodeFsAvailable | Self::ImageFsAvailable | Self::ContainerFsAvailable => {
                StarvedResource::EphemeralStorage
            }
            Self::NodeFsInodesFree | Self::ImageFsInodesFree | Self::ContainerFsInodesFree => {
                StarvedResource::Inodes
            }
            Self::PidAvailable => StarvedResource::Pids,
        }
    }

    /// The name of what is short.
    pub fn resource(self) -> &'static str {
        self.starved().as_str()
    }

    /// The condition that the node then has: upstream's `signalToNodeCondition`.
    pub fn condition(self) -> PressureCondition {
        match self.starved() {
            StarvedResource::Memory => PressureCondition::MemoryPressure,
            StarvedResource::EphemeralStorage | StarvedResource::Inodes => {
                PressureCondition::DiskPressure
            }
            StarvedResource::Pids => PressureCondition::PIDPressure,
        }
    }

    /// Whether the signal is one of a file system.
    pub fn is_disk(self) -> bool {
        self.condition() == PressureCondition::DiskPressure
    }

    /// An observed amount as upstream prints it: bytes by 1024, numbers by 1000.
    pub fn amount(self, value: u64) -> String {
        match self.starved() {
            StarvedResource::Memory | StarvedResource::EphemeralStorage => binary(value),
            StarvedResource::Inodes | StarvedResource::Pids => decimal(value),
        }
    }
}

/// A quantity of upstream's format `BinarySI`.
pub fn binary(value: u64) -> String {
    canonical(value, 1024, ["", "Ki", "Mi", "Gi", "Ti", "Pi"])
}

/// A quantity of upstream's format `DecimalSI`.
pub fn decimal(value: u64) -> String {
    canonical(value, 1000, ["", "k", "M", "G", "T", "P"])
}

fn canonical(mut value: u64, base: u64, units: [&str; 6]) -> String {
    let mut unit = 0;
    while value != 0 && value.is_multiple_of(base) && unit + 1 < units.len() {
        (value, unit) = (value / base, unit + 1);
    }
    format!("{value}{}", units[unit])
}
