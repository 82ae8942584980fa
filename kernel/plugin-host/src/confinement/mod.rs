//! Confinement: what a managed plugin may do and use, how a process of it is prepared, and what holds of it in the end.
//!
//! Each process of a plugin has a cgroup of its own, `GROUP/NAME/AGENT-GENERATION`: its counts are that process's and what it
//! started, and one that outlives it (a monitor, a process stuck in the kernel) takes nothing of its successor's limits.

mod groups;
mod seen;
mod tmp;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{fs, process};

use confine::{Capabilities, Order, SystemCalls};
use serde::{Deserialize, Serialize};

pub use self::groups::{GroupUsage, group_usage};
use self::groups::{Limits, Trees};
use crate::declaration::Declaration;

/// What a plugin may do and use, as the operator declares it. The default is everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confinement {
    /// The capabilities of its processes.
    pub capabilities: Capabilities,
    /// Whether no program that it executes gains privileges.
    pub no_new_privileges: bool,
    /// The system calls that its processes may make.
    pub system_calls: SystemCalls,
    /// Where its mounts show.
    pub mounts: MountVisibility,
    /// In bytes; none is no limit.
    pub memory_limit: Option<u64>,
    /// Processes and threads; none is no limit.
    pub pids_limit: Option<u64>,
}

/// Where the mounts that a plugin makes have to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountVisibility {
    /// It makes none: it may have a mount namespace of its own.
    Own,
    /// Everywhere.
    Machine,
}

impl Default for Confinement {
    fn default() -> Self {
        Self {
            capabilities: Capabilities::ALL,
            no_new_privileges: false,
            system_calls: SystemCalls::All,
            mounts: MountVisibility::Machine,
            memory_limit: None,
            pids_limit: None,
        }
    }
}

/// How this node's plugins are confined.
#[derive(Clone, Debug)]
pub struct Confiner {
    /// The program `oxlet-confine`.
    pub program: PathBuf,
    /// The cgroup of the node's plugins, from the top of each hierarchy.
    pub group: String,
}

/// What holds of a plugin's process, by what the kernel says of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confined {
    /// The capabilities that it may ever have; `ALL` for those that the agent itself has.
    pub capabilities: Vec<String>,
    /// Whether no program that it executes gains privileges.
    pub no_new_privileges: bool,
    /// Whether a filter of system calls is installed.
    pub seccomp: bool,
    /// Its folder for temporary files: `/tmp`, private to it, or a folder of its own (`TMPDIR`).
    pub tmp: PathBuf,
    /// Its cgroup's folders, one in each hierarchy.
    pub groups: Vec<PathBuf>,
    /// In bytes.
    pub memory_limit: Option<u64>,
    /// Processes and threads.
    pub pids_limit: Option<u64>,
    /// What was declared and does not hold, with the reason.
    pub not_enforced: Vec<String>,
    /// What the group holds; read by who shows it.
    #[serde(default)]
    pub usage: Option<GroupUsage>,
}

/// Everything that a process is started confined with.
#[derive(Clone, Debug)]
pub(crate) struct Preparation {
    /// The program that confines itself.
    pub(crate) program: PathBuf,
    pub(crate) order: Order,
    pub(crate) environment: Vec<(&'static str, OsString)>,
    /// What is known before the process runs.
    pub(crate) expected: Confined,
}

/// Where and as what a process is started, for its confinement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchSpec<'a> {
    pub(crate) declaration: &'a Declaration,
    pub(crate) generation: u64,
    /// The folder of the node's plugins.
    pub(crate) folder: &'a Path,
    /// Generations of this plugin that have a process, this agent's.
    pub(crate) others: &'a [u64],
}

impl Confiner {
    /// Makes the group and the folder for temporary files of a process that is about to start. Blocks.
    pub(crate) fn prepare(&self, launch: &LaunchSpec<'_>) -> Preparation {
        let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let trees = Trees::parse(&mountinfo);
        let confinement = &launch.declaration.confinement;
        let group = format!("{}/{}", self.group, launch.declaration.name);
        sweep(&trees, &group, launch.others);
        let limits = Limits {
            memory: confinement.memory_limit,
            pids: confinement.pids_limit,
        };
        let own = format!("{group}/{}-{}", process::id(), launch.generation);
        let (groups, mut not_enforced) = trees.make(&own, limits);
        let private_tmp = tmp::may_be_private(launch, &mountinfo);
        let mut environment = Vec::new();
        let tmp = if private_tmp {
            PathBuf::from("/tmp")
        } else {
            let folder = launch
                .folder
                .join(format!("{}.tmp", launch.declaration.name));
            match tmp::make_folder(&folder, launch.others.is_empty()) {
                Ok(()) => environment.push(("TMPDIR", folder.clone().into())),
                Err(error) => not_enforced.push(format!("{}: {error}", folder.display())),
            }
            folder
        };
        Preparation {
            program: self.program.clone(),
            order: Order {
                groups: groups.clone(),
                private_tmp,
                capabilities: confinement.capabilities,
                no_new_privileges: confinement.no_new_privileges,
                system_calls: confinement.system_calls,
            },
            environment,
            expected: Confined {
                tmp,
                groups,
                memory_limit: limits.memory,
                pids_limit: limits.pids,
                not_enforced,
                ..Confined::default()
            },
        }
    }
}

/// Removes the groups of processes that are gone. One that holds what outlived its process stays.
fn sweep(trees: &Trees, group: &str, living: &[u64]) {
    let own = format!("{}-", process::id());
    let lives = |folder: &PathBuf| {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let generation = name
            .strip_prefix(&own)
            .and_then(|number| number.parse().ok());
        generation.is_some_and(|generation| living.contains(&generation))
    };
    let gone: Vec<_> = trees
        .children(group)
        .into_iter()
        .filter(|folder| !lives(folder))
        .collect();
    groups::remove(&gone, 0);
}

impl Confined {
    /// How the end of a process of this group is told beyond its exit status: which limits it came to. Then removes the
    /// group. Blocks.
    pub(crate) fn end(&self) -> Option<String> {
        let usage = group_usage(&self.groups);
        let mut words = Vec::new();
        if usage.oom_kills > 0 {
            let limit = self.memory_limit.filter(|_| groups::is_full(&self.groups));
            words.push(match limit {
                Some(limit) => format!("out of memory, limit {}", binary(limit)),
                None => "killed because the node is out of memory".to_owned(),
            });
        }
        if let Some(limit) = self.pids_limit.filter(|_| usage.refused_forks > 0) {
            words.push(format!("out of processes, limit {limit}"));
        }
        // Its plugin's, its node's, and the one of all nodes of the machine.
        groups::remove(&self.groups, 3);
        (!words.is_empty()).then(|| words.join(", "))
    }
}

/// An amount of memory in words.
fn binary(bytes: u64) -> String {
    match bytes {
        whole if whole % (1 << 20) == 0 => format!("{} MiB", whole >> 20),
        whole if whole % (1 << 10) == 0 => format!("{} KiB", whole >> 10),
        bytes => format!("{bytes} bytes"),
    }
}
