//! The machine as files: `/proc`, `/sys`, cgroups of version 1 and 2, and its identity.
//!
//! The one reader of each fact: other crates get facts of the machine here. Reading waits for the kernel alone, so
//! there is no tokio here. A fact that the machine does not report is none, zero or empty, as each item says.
//! Upstream: cAdvisor's machine and container packages, util/sysinfo, and runc's cgroups (1.36).

pub mod block_devices;
pub mod cgroups;
pub mod cpus;
pub mod disk_space;
pub mod group_stats;
pub mod huge_pages;
pub mod identity;
pub mod kmsg;
pub mod machine;
pub mod meminfo;
pub mod process;
pub mod stats;
pub mod tunables;
pub mod units;
