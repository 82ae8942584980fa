//! Pods' cgroups: made before a pod's sandbox, resized with the pod, removed after it.
//!
//! - **Owns** the cgroups below its own `kubepods`; it never touches another.
//! - Where it cannot manage cgroups (no write access, a missing controller), it logs that once and leaves
//!   pods' cgroups to the runtime. With systemd the runtime has the slices made.
//! - All file work is in the blocking pool. Decisions: `logic_resources::pod_cgroups`.
//!
//! Upstream: pkg/kubelet/cm/pod_container_manager_linux.go, cgroup_manager_linux.go (1.36).

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kernel::watch;
use logic_api::pod::PodView;
use logic_resources::node_policy::NodePolicy;
use logic_resources::pod_cgroups::{
    CONTROLLERS, CgroupDriver, CgroupName, CgroupPolicy, CgroupWrite, Hierarchy, PodLimits,
    pod_cgroup, pod_limits, writes,
};
use rustix::process::{Pid, Signal, kill_process};
use thiserror::Error;

/// Without these controllers a pod's cgroup limits nothing.
const REQUIRED_CONTROLLERS: [&str; 2] = ["cpu", "memory"];
/// Levels of cgroups below a pod's: a container may make some of its own.
const MAX_DEPTH: u32 = 16;
/// Waits between attempts: the kernel takes a moment to release a cgroup whose last process has ended.
const REMOVE_BACKOFFS: [Duration; 5] = [
    Duration::from_millis(10),
    Duration::from_millis(20),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
];

/// Why an operation on a pod's cgroup failed.
#[derive(Debug, Error)]
pub enum PodCgroupError {
    #[error("cgroup {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("no cgroup controller {controller}")]
    Missing { controller: &'static str },
    #[error("no cgroups are mounted")]
    NotMounted,
}

impl PodCgroupError {
    pub fn transient(&self) -> bool {
        match self {
            Self::File { .. } => !self.is_node_wide(),
            Self::Missing { .. } | Self::NotMounted => false,
        }
    }

    /// Whether every pod's operation would fail the same way.
    fn is_node_wide(&self) -> bool {
        match self {
            Self::Missing { .. } | Self::NotMounted => true,
            Self::File { source, .. } => matches!(
                source.kind(),
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
            ),
        }
    }
}

/// Makes and removes pods' cgroups; clones share their state.
#[derive(Debug, Clone)]
pub struct PodCgroups(Arc<CgroupManager>);

#[derive(Debug)]
struct CgroupManager {
    policy: Option<CgroupPolicy>,
    /// The runtime's own driver, which replaces the policy's; none where the runtime reports none.
    reported: watch::Receiver<Option<CgroupDriver>>,
    hierarchy: Option<Hierarchy>,
    /// The machine's sizes of huge pages in bytes.
    page_sizes: Vec<i64>,
    /// Set once the machine has refused: pods' cgroups are left to the runtime from then on.
    refused: OnceLock<()>,
}

/// The paths of a pod's cgroup.
#[derive(Debug, Clone)]
struct PodCgroup {
    name: CgroupName,
    writes: Vec<CgroupWrite>,
}

impl PodCgroups {
    /// Detects the machine's hierarchy; without a policy no cgroup is ever made. `reported` has the runtime's driver.
    pub fn new(
        policy: Option<CgroupPolicy>,
        reported: watch::Receiver<Option<CgroupDriver>>,
    ) -> Self {
        let hierarchy = host::cgroups::hierarchy(Path::new("/proc"));
        let version = match &hierarchy {
            Some(Hierarchy::V2(_)) => 2.0,
            Some(Hierarchy::V1(_)) => 1.0,
            None => 0.0,
        };
        metrics::node::cgroups::VERSION.set(version);
        let sizes = host::huge_pages::read(Path::new("/sys")).into_keys();
        let sizes = sizes.filter_map(|size| i64::try_from(size).ok()).collect();
        Self::on((policy, reported), hierarchy, sizes)
    }

    pub(crate) fn on(
        (policy, reported): (Option<CgroupPolicy>, watch::Receiver<Option<CgroupDriver>>),
        hierarchy: Option<Hierarchy>,
        page_sizes: Vec<i64>,
    ) -> Self {
        PodCgroups(Arc::new(CgroupManager {
            policy,
            reported,
            hierarchy,
            page_sizes,
            refused: OnceLock::new(),
        }))
    }

    /// Makes the pod's cgroup if it is missing, and returns the cgroup parent for the pod's sandbox;
    /// empty leaves the choice to the runtime.
    pub async fn create(&self, pod: &Pod, node: &NodePolicy) -> Result<String, PodCgroupError> {
        let Some((driver, group)) = self.group(pod, node) else {
            return Ok(String::new());
        };
        let parent = group.name.path(driver);
        if driver == CgroupDriver::Systemd {
            return Ok(parent);
        }
        let made = timed(
            "create",
            self.blocking(move |machine| machine.create(&group)),
        );
        match made.await {
            Ok(()) => Ok(parent),
            Err(error) if error.is_node_wide() => {
                self.refuse(&error);
                Ok(String::new())
            }
            Err(error) => Err(error),
        }
    }

    /// Writes these limits of the pod.
    pub async fn update(&self, pod: &Pod, limits: &PodLimits) -> Result<(), PodCgroupError> {
        match self.group_with(pod, limits) {
            Some((CgroupDriver::Cgroupfs, group)) => {
                let limited = self.blocking(move |machine| machine.limit(&group));
                timed("update", limited).await
            }
            Some((CgroupDriver::Systemd, _)) | None => Ok(()),
        }
    }

    /// Removes the pod's cgroup and those left below it. Fails if it is still busy after the last attempt;
    /// the removal can be repeated.
    pub async fn remove(&self, pod: &Pod, node: &NodePolicy) -> Result<(), PodCgroupError> {
        let Some((CgroupDriver::Cgroupfs, group)) = self.group(pod, node) else {
            return Ok(());
        };
        timed("destroy", self.destroy(group)).await
    }

    /// Kills what still runs in the pod's cgroup, whose containers have ended; returns what has not ended after that.
    pub async fn kill(&self, pod: &Pod, node: &NodePolicy) -> Result<Vec<u32>, PodCgroupError> {
        let Some((CgroupDriver::Cgroupfs, group)) = self.group(pod, node) else {
            return Ok(Vec::new());
        };
        let mut alive = Vec::new();
        for wait in REMOVE_BACKOFFS {
            let group = group.clone();
            alive = self.blocking(move |machine| machine.kill(&group)).await?;
            if alive.is_empty() {
                break;
            }
            tracing::warn!(pod = %pod.uid(), ?alive, "killing what its containers have left");
            tokio::time::sleep(wait).await;
        }
        Ok(alive)
    }

    /// Whether no process is in the cgroup of any pod, by whichever driver it was made; none where that cannot be told.
    pub async fn are_empty(&self) -> Option<bool> {
        let policy = self.0.policy.as_ref()?;
        let is_known = self.0.hierarchy.is_some() && self.0.refused.get().is_none();
        let pods = CgroupName::parse(&policy.root).child("kubepods");
        let names = [CgroupDriver::Cgroupfs, CgroupDriver::Systemd].map(|driver| pods.path(driver));
        let found = self.blocking(move |machine| machine.processes_of(&names));
        match found.await {
            Ok(found) => is_known.then_some(found.is_empty()),
            Err(error) => {
                tracing::warn!("whether pods have processes is unknown: {error}");
                None
            }
        }
    }

    async fn destroy(&self, group: PodCgroup) -> Result<(), PodCgroupError> {
        for wait in REMOVE_BACKOFFS {
            let group = group.clone();
            match self.blocking(move |machine| machine.remove(&group)).await {
                Err(PodCgroupError::File { source, .. }) if is_busy(&source) => {
                    tokio::time::sleep(wait).await;
                }
                result => return result,
            }
        }
        self.blocking(move |machine| machine.remove(&group)).await
    }

    /// The pod's cgroup; none if the runtime manages it.
    fn group(&self, pod: &Pod, node: &NodePolicy) -> Option<(CgroupDriver, PodCgroup)> {
        self.group_with(pod, &pod_limits(pod, node))
    }

    fn group_with(&self, pod: &Pod, limits: &PodLimits) -> Option<(CgroupDriver, PodCgroup)> {
        let policy = self.0.policy.as_ref()?;
        if self.0.refused.get().is_some() {
            return None;
        }
        let name = pod_cgroup(pod, policy)?;
        let hierarchy = self.0.hierarchy.as_ref();
        let writes = hierarchy.map(|hierarchy| writes(limits, hierarchy, &self.0.page_sizes));
        let writes = writes.unwrap_or_default();
        tracing::trace!(pod = %pod.uid(), "cgroup {name:?}");
        let driver = self.0.reported.borrow().unwrap_or(policy.driver);
        Some((driver, PodCgroup { name, writes }))
    }

    fn refuse(&self, error: &PodCgroupError) {
        if self.0.refused.set(()).is_ok() {
            tracing::warn!(
                "this machine does not let the agent make cgroups, pods' groups are left to the runtime: {error}"
            );
        }
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&CgroupManager) -> Result<T, PodCgroupError> + Send + 'static,
    ) -> Result<T, PodCgroupError> {
        let machine = self.0.clone();
        let outcome = kernel::spawn_blocking(move || work(&machine)).await;
        outcome.unwrap_or_else(|error| Err(failed(Path::new("/"))(io::Error::other(error))))
    }
}

/// Runs an operation and measures its duration.
async fn timed<T>(operation: &str, work: impl Future<Output = T>) -> T {
    let began = kernel::now();
    let result = work.await;
    let took = kernel::now().saturating_duration_since(began);
    let duration = metrics::node::cgroups::DURATION.with_label_values(&[operation]);
    duration.observe(took.as_secs_f64());
    result
}

impl CgroupManager {
    fn create(&self, group: &PodCgroup) -> Result<(), PodCgroupError> {
        let hierarchy = self.hierarchy.as_ref().ok_or(PodCgroupError::NotMounted)?;
        for controller in REQUIRED_CONTROLLERS {
            let here = hierarchy.top(controller);
            if !here.is_some_and(|top| has_controller(hierarchy, top, controller)) {
                return Err(PodCgroupError::Missing { controller });
            }
        }
        let mut fresh = false;
        for top in hierarchy.tops() {
            let needed = REQUIRED_CONTROLLERS
                .iter()
                .any(|name| hierarchy.top(name) == Some(top));
            match make(hierarchy, top, &group.name) {
                Ok(made) => fresh |= made && needed,
                Err(error) if needed => return Err(error),
                // The runtime makes the cgroups of controllers that no limit needs.
                Err(_) => {}
            }
        }
        match fresh {
            true => self.limit(group),
            false => Ok(()),
        }
    }

    fn limit(&self, group: &PodCgroup) -> Result<(), PodCgroupError> {
        let hierarchy = self.hierarchy.as_ref().ok_or(PodCgroupError::NotMounted)?;
        for CgroupWrite {
            controller,
            file,
            value,
        } in &group.writes
        {
            let Some(top) = hierarchy.top(controller) else {
                continue;
            };
            let path = below(top, &group.name).join(file);
            match fs::write(&path, value) {
                // A controller that pods' limits do not need.
                Err(error)
                    if error.kind() == ErrorKind::NotFound
                        && !REQUIRED_CONTROLLERS.contains(controller) => {}
                written => written.map_err(failed(&path))?,
            }
        }
        Ok(())
    }

    /// Kills every process of a cgroup; returns those that there were.
    fn kill(&self, group: &PodCgroup) -> Result<Vec<u32>, PodCgroupError> {
        let mut found = BTreeSet::new();
        for top in self.hierarchy.iter().flat_map(Hierarchy::tops) {
            let path = below(top, &group.name);
            processes(&path, MAX_DEPTH, &mut found).map_err(failed(&path))?;
        }
        for pid in &found {
            // It may have ended meanwhile.
            let pid = i32::try_from(*pid).ok().and_then(Pid::from_raw);
            pid.map(|pid| kill_process(pid, Signal::KILL));
        }
        Ok(found.into_iter().collect())
    }

    /// The processes of the cgroups of these paths, and of those below them.
    fn processes_of(&self, names: &[String]) -> Result<BTreeSet<u32>, PodCgroupError> {
        let mut found = BTreeSet::new();
        for top in self.hierarchy.iter().flat_map(Hierarchy::tops) {
            for name in names {
                let path = top.join(name.trim_start_matches('/'));
                processes(&path, MAX_DEPTH, &mut found).map_err(failed(&path))?;
            }
        }
        Ok(found)
    }

    fn remove(&self, group: &PodCgroup) -> Result<(), PodCgroupError> {
        let tops = self.hierarchy.iter().flat_map(Hierarchy::tops);
        let mut result = Ok(());
        for top in tops {
            let path = below(top, &group.name);
            let removed = remove(&path, MAX_DEPTH).map_err(failed(&path));
            result = result.and(removed);
        }
        result
    }
}

fn below(top: &Path, name: &CgroupName) -> PathBuf {
    let path = name.path(CgroupDriver::Cgroupfs);
    top.join(path.trim_start_matches('/'))
}

/// Makes a cgroup and its ancestors; returns whether it was missing.
fn make(hierarchy: &Hierarchy, top: &Path, name: &CgroupName) -> Result<bool, PodCgroupError> {
    let path = below(top, name);
    if path.is_dir() {
        return Ok(false);
    }
    let mut above = top.to_owned();
    for part in path.strip_prefix(top).into_iter().flat_map(Path::iter) {
        let next = above.join(part);
        match hierarchy {
            Hierarchy::V2(_) => delegate(&above)?,
            Hierarchy::V1(_) => {}
        }
        match DirBuilder::new().mode(0o755).create(&next) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => made.map_err(failed(&next))?,
        }
        inherit_cpus(&above, &next);
        above = next;
    }
    Ok(true)
}

/// Enables a cgroup's controllers for its children.
fn delegate(group: &Path) -> Result<(), PodCgroupError> {
    let list = |file: &str| fs::read_to_string(group.join(file)).unwrap_or_default();
    let (there, handed) = (list("cgroup.controllers"), list("cgroup.subtree_control"));
    let file = group.join("cgroup.subtree_control");
    for name in there
        .split_whitespace()
        .filter(|name| CONTROLLERS.contains(name))
    {
        if handed.split_whitespace().any(|known| known == name) {
            continue;
        }
        let written = fs::write(&file, format!("+{name}"));
        if REQUIRED_CONTROLLERS.contains(&name) {
            written.map_err(failed(&file))?;
        }
    }
    Ok(())
}

/// Version 1 leaves a new `cpuset` cgroup without CPUs and memory nodes, and no process could run in it.
fn inherit_cpus(above: &Path, group: &Path) {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let (from, to) = (above.join(file), group.join(file));
        if let (Ok(given), Ok(own)) = (fs::read_to_string(from), fs::read_to_string(&to))
            && own.trim().is_empty()
            && !given.trim().is_empty()
            && let Err(error) = fs::write(&to, given.trim())
        {
            tracing::debug!("{}: {error}", to.display());
        }
    }
}

/// In version 2 the controllers are listed in a file; in version 1 the mount is enough.
fn has_controller(hierarchy: &Hierarchy, top: &Path, controller: &str) -> bool {
    match hierarchy {
        Hierarchy::V1(_) => true,
        Hierarchy::V2(_) => {
            let list = fs::read_to_string(top.join("cgroup.controllers")).unwrap_or_default();
            list.split_whitespace().any(|name| name == controller)
        }
    }
}

/// Adds the processes of a cgroup and of those below it.
fn processes(group: &Path, deepest: u32, found: &mut BTreeSet<u32>) -> io::Result<()> {
    let entries = match fs::read_dir(group) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if deepest > 0 && entry.file_type()?.is_dir() {
            processes(&entry.path(), deepest - 1, found)?;
        }
    }
    // A cgroup that is being removed has none.
    let list = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let pids = list.lines().filter_map(|line| line.parse::<u32>().ok());
    // 0 is a process of another pid namespace.
    found.extend(pids.filter(|pid| *pid != 0));
    Ok(())
}

/// Removes a cgroup and those below it, the deepest first: only empty ones can be removed.
fn remove(group: &Path, deepest: u32) -> io::Result<()> {
    let entries = match fs::read_dir(group) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if deepest > 0 && entry.file_type()?.is_dir() {
            remove(&entry.path(), deepest - 1)?;
        }
    }
    match fs::remove_dir(group) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn is_busy(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ResourceBusy | ErrorKind::DirectoryNotEmpty
    )
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> PodCgroupError + use<> {
    let path = path.to_owned();
    move |source| PodCgroupError::File { path, source }
}

#[cfg(test)]
mod tests;
