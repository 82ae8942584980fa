//! The machine as files: `/proc`, `/sys`, cgroups of version 1 and 2, and what the system calls itself.
//!
//! The one reader of each fact: whoever else needs one asks here. Reading does not wait for anything but the kernel, so
//! there is no tokio here. What the machine does not tell is absent, nought or empty, as each item says.
//! Upstream: cAdvisor's machine and container packages, util/sysinfo, and runc's cgroups (1.36).

pub mod cgroup_stats;
pub mod cgroups;
pub mod cpus;
pub mod huge_pages;
pub mod identity;
pub mod machine;
pub mod meminfo;
pub mod process;
pub mod stats;
pub mod units;
