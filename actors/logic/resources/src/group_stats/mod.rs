//! What the kernel reports of one cgroup, and whose group it is by its name.
//!
//! The figures and their meaning are cAdvisor's (container/libcontainer/handler.go and container/common/helpers.go of
//! the version that the kubelet 1.36 has): each figure that the kernel lacks is zero there, a limit that is absent too.

mod index;
mod owner;

pub use index::GroupIndex;
use jiff::Timestamp;
pub use owner::{container_id, pod_uid};

use crate::summary::{InterfaceStats, PsiStats};

/// A limit above this many bytes is none: the kernel rounds its largest number.
pub const MAX_MEMORY_LIMIT: u64 = 1 << 62;

/// How much is read of a group; each contains the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupDetail {
    CpuAndMemory,
    /// Stalls, processes and interfaces too.
    Summary,
    /// Everything that `/metrics/cadvisor` shows.
    Everything,
}

/// One cgroup at one moment. A controller that the group does not have is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupStats {
    /// The group's path below the top of its hierarchy; `/` is the machine.
    pub name: String,
    pub at: Option<Timestamp>,
    /// When the group was made.
    pub created: Option<Timestamp>,
    pub cpu: Option<GroupCpu>,
    pub memory: Option<GroupMemory>,
    pub io: Option<GroupIo>,
    pub tasks: GroupTasks,
    /// Of the network namespace of the group's first process; none where it was not asked for.
    pub network: Option<Vec<InterfaceCounters>>,
}

/// CPU time in nanoseconds, and how it is limited.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupCpu {
    pub usage: u64,
    pub user: u64,
    pub system: u64,
    pub periods: u64,
    pub throttled_periods: u64,
    /// Nanoseconds.
    pub throttled: u64,
    pub bursts: u64,
    /// Nanoseconds.
    pub burst: u64,
    pub psi: PsiStats,
    /// CPU shares; a weight of version 2 is converted.
    pub shares: u64,
    /// Microseconds a period; zero for no limit.
    pub quota: u64,
    /// Microseconds.
    pub period: u64,
}

impl GroupCpu {
    /// Takes the limits of an earlier reading, not its counts.
    pub fn take_limits(&mut self, earlier: &GroupCpu) {
        (self.shares, self.quota, self.period) = (earlier.shares, earlier.quota, earlier.period);
    }
}

/// Memory in bytes, and how it is limited; a limit of [`u64::MAX`] is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupMemory {
    pub usage: u64,
    pub max_usage: u64,
    /// How often the limit was hit.
    pub failures: u64,
    pub kernel: u64,
    pub cache: u64,
    pub rss: u64,
    pub swap: u64,
    pub mapped_file: u64,
    pub active_file: u64,
    pub inactive_file: u64,
    pub page_faults: u64,
    pub major_page_faults: u64,
    pub oom_kills: u64,
    pub psi: PsiStats,
    pub limit: u64,
    /// Of version 1 it covers memory and swap together.
    pub swap_limit: u64,
    pub reservation: u64,
}

impl GroupMemory {
    /// Usage without the page cache that the kernel can drop at once.
    pub fn working_set(&self) -> u64 {
        self.usage.saturating_sub(self.inactive_file)
    }
}

/// Input and output of block devices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupIo {
    pub devices: Vec<DeviceIo>,
    pub psi: PsiStats,
}

/// Counters of one block device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceIo {
    pub major: u32,
    pub minor: u32,
    /// Bytes by operation, such as `Read`.
    pub bytes: Vec<(IoOperation, u64)>,
    /// Operations by kind.
    pub operations: Vec<(IoOperation, u64)>,
}

/// An operation of a block device, in the words of cgroup v1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoOperation {
    Read,
    Write,
    Sync,
    Async,
    Discard,
    Total,
}

impl IoOperation {
    const ALL: [IoOperation; 6] = [
        IoOperation::Read,
        IoOperation::Write,
        IoOperation::Sync,
        IoOperation::Async,
        IoOperation::Discard,
        IoOperation::Total,
    ];

    /// The operation of this word; none for others.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == word)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            IoOperation::Read => "Read",
            IoOperation::Write => "Write",
            IoOperation::Sync => "Sync",
            IoOperation::Async => "Async",
            IoOperation::Discard => "Discard",
            IoOperation::Total => "Total",
        }
    }
}

/// Processes and threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupTasks {
    pub threads: u64,
    /// Zero for no limit.
    pub max_threads: u64,
    /// In the group itself, not in those below it.
    pub processes: u64,
    pub file_descriptors: u64,
    pub sockets: u64,
    /// The soft limit of open files of the first process, -1 for no limit; none where it was not asked for.
    pub open_files: Option<i64>,
}

/// Counters of one network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceCounters {
    pub name: String,
    pub received: TrafficCounters,
    pub sent: TrafficCounters,
}

/// Counters of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficCounters {
    pub bytes: u64,
    pub packets: u64,
    pub errors: u64,
    pub dropped: u64,
}

impl From<&InterfaceCounters> for InterfaceStats {
    fn from(counters: &InterfaceCounters) -> Self {
        InterfaceStats {
            name: counters.name.clone(),
            rx_bytes: Some(counters.received.bytes),
            rx_errors: Some(counters.received.errors),
            tx_bytes: Some(counters.sent.bytes),
            tx_errors: Some(counters.sent.errors),
        }
    }
}
