//! What the container manager has done on the machine, one duty at a time.

use std::fmt;
use std::path::Path;

use host::cgroups::placement;
use host::tunables::{self, TunablePolicy};
use logic_resources::cgroups::tree::{self, GroupLimits, NodeLimits};
use logic_resources::cgroups::{CgroupName, CgroupPolicy};
use pods::cgroups::{CgroupManager, CgroupManagerError};

use super::ReservedGroup;

const PROC: &str = "/proc";

/// Something that the node's configuration asks for.
#[derive(Debug, Clone)]
pub enum Duty {
    /// A group above the pods is there with these limits.
    Group(Box<GroupLimits>),
    /// A group that the operator has made has these limits.
    Reserved(ReservedGroup),
    /// The agent and its plugins are in this group.
    KubeletProcesses(String),
    /// Processes of the root group are in this one.
    SystemProcesses(String),
    /// The agent and its plugins have this out-of-memory score.
    OomScore(i32),
    /// The kernel's settings are the node's.
    Tunables(TunablePolicy),
}

/// What has come of a duty; an error is its reason, for people.
#[derive(Debug)]
pub struct DutyOutcome {
    pub duty: Duty,
    pub result: Result<(), String>,
}

impl fmt::Display for Duty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Duty::Group(group) => write!(f, "cgroup {}", group.name),
            Duty::Reserved(group) => write!(f, "{} {}", group.kind.describe(), group.group),
            Duty::KubeletProcesses(group) => write!(f, "kubeletCgroups {group}"),
            Duty::SystemProcesses(group) => write!(f, "systemCgroups {group}"),
            Duty::OomScore(_) => f.write_str("oomScoreAdj"),
            Duty::Tunables(_) => f.write_str("kernel settings"),
        }
    }
}

impl Duty {
    /// The message of the event when it is done; none where nobody waits for it.
    pub(super) fn success(&self, policy: Option<&CgroupPolicy>) -> Option<String> {
        match self {
            Duty::Group(group) if policy.map(tree::root).as_ref() == Some(&group.name) => {
                Some("Updated Node Allocatable limit across pods".to_owned())
            }
            Duty::Reserved(group) => {
                let (kind, name) = (group.kind.describe(), &group.group);
                Some(format!("Updated limits on {kind} cgroup {name}"))
            }
            Duty::Group(_)
            | Duty::KubeletProcesses(_)
            | Duty::SystemProcesses(_)
            | Duty::OomScore(_)
            | Duty::Tunables(_) => None,
        }
    }

    /// The message of the event when it cannot be done.
    pub(super) fn failure(&self, why: &str) -> Option<String> {
        match self {
            Duty::Group(group) => {
                let name = &group.name;
                Some(format!(
                    "Failed to update Node Allocatable Limits {name}: {why}"
                ))
            }
            Duty::Reserved(group) => {
                let what = group.kind.title();
                let name = &group.group;
                Some(format!(
                    "Failed to enforce {what} Cgroup Limits on {name:?}: {why}"
                ))
            }
            Duty::KubeletProcesses(_)
            | Duty::SystemProcesses(_)
            | Duty::OomScore(_)
            | Duty::Tunables(_) => None,
        }
    }
}

/// Does duties; all file work is in the blocking pool.
#[derive(Debug, Clone)]
pub(super) struct Enforcer {
    pub(super) cgroups: CgroupManager,
    pub(super) node: NodeLimits,
}

impl Enforcer {
    pub(super) async fn perform(&self, duty: &Duty) -> Result<(), String> {
        let done = match duty {
            Duty::Group(group) => self.group(group).await,
            Duty::Reserved(group) => return self.reserved(group).await,
            Duty::KubeletProcesses(group) => {
                let group = group.clone();
                self.cgroups
                    .blocking(move |files| {
                        let own = placement::own_processes(Path::new(PROC));
                        placement::attach(files, &group, &own)
                    })
                    .await
            }
            Duty::SystemProcesses(group) => {
                let group = group.clone();
                self.cgroups
                    .blocking(move |files| {
                        let found = placement::movable_of_root(files, Path::new(PROC))?;
                        placement::attach(files, &group, &found)
                    })
                    .await
            }
            Duty::OomScore(score) => return in_pool(oom_score(*score)).await,
            Duty::Tunables(policy) => return in_pool(kernel_settings(*policy)).await,
        };
        done.map_err(|error| error.to_string())
    }

    /// Memory that is in use cannot be taken away: the limit of a class is then what it uses, so that it grows no more.
    async fn group(&self, group: &GroupLimits) -> Result<(), CgroupManagerError> {
        let first = self.cgroups.enforce(&group.name, &group.limits).await;
        let (Err(_), Some(memory), Some(_)) =
            (&first, group.limits.memory, self.node.qos_reserved_memory)
        else {
            return first;
        };
        let path = group.name.path(self.cgroups.driver());
        let used = self
            .cgroups
            .blocking(move |files| Ok(files.memory_usage(&path)));
        match used.await? {
            Some(used) if used > memory => {
                let mut limits = group.limits.clone();
                limits.memory = Some(used);
                self.cgroups.update(&group.name, &limits).await
            }
            Some(_) | None => first,
        }
    }

    /// The group is the operator's: it is never made here.
    async fn reserved(&self, group: &ReservedGroup) -> Result<(), String> {
        let name = CgroupName::parse_as(self.cgroups.driver(), &group.group);
        let path = name.path(self.cgroups.driver());
        let there = path.clone();
        let exists = self.cgroups.blocking(move |files| Ok(files.exists(&there)));
        match exists.await {
            Ok(true) => {}
            Ok(false) => return Err(format!("cgroup {path} does not exist")),
            Err(error) => return Err(error.to_string()),
        }
        let limits = tree::of_reserved(group.kind, &group.amounts, &self.node);
        let updated = self.cgroups.update(&name, &limits).await;
        updated.map_err(|error| error.to_string())
    }
}

fn oom_score(score: i32) -> impl FnOnce() -> Result<(), String> {
    move || {
        let proc = Path::new(PROC);
        placement::set_oom_score(proc, &placement::own_processes(proc), score)
    }
}

fn kernel_settings(policy: TunablePolicy) -> impl FnOnce() -> Result<(), String> {
    move || {
        if policy == TunablePolicy::Set
            && let Err(error) = host::cgroups::favor_changes(Path::new(PROC))
        {
            // An older kernel, or a node in a container: pods start a little later.
            tracing::debug!(%error, "the kernel does not favour changes of cgroups");
        }
        let wrong = tunables::apply(&Path::new(PROC).join("sys"), policy);
        match wrong.is_empty() {
            true => Ok(()),
            false => Err(wrong.join("; ")),
        }
    }
}

async fn in_pool(work: impl FnOnce() -> Result<(), String> + Send + 'static) -> Result<(), String> {
    match kernel::spawn_blocking(work).await {
        Ok(result) => result,
        Err(_) => Err("the thread ended".to_owned()),
    }
}
