//! Logs and cgroups of pods that this node no longer has. Logs outlive the pod by the period of garbage collection, for what collects
//! logs; those of pods that were removed while no agent ran are found.
//!
//! They are listed first and decided about afterwards, by the pods that there are then. A cgroup outlives the pod's
//! volumes: memory of those would count for the groups above it. Upstream:
//! evictPodLogsDirectories (kuberuntime_gc.go) and cleanupOrphanedPodCgroups (kubelet_pods.go, 1.36).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kernel::Context;
use logic_api::pod::labels;
use logic_api::types::PodUid;
use logic_resources::cgroups::CgroupName;

use super::{Msg, PodManager, pod_folders};

/// Between two looks at the logs: upstream's period of container garbage collection.
pub(super) const SWEEP_PERIOD: Duration = Duration::from_secs(60);

/// Pods that end within this time have their logs removed together: the links are listed once for all.
const TOGETHER: Duration = Duration::from_secs(1);

/// The volume manager answers from memory.
const VOLUMES_TIMEOUT: Duration = Duration::from_secs(5);

/// A folder that has more names than this is not the agent's.
pub(super) const MAX_NAMES: usize = 100_000;

/// What is on the machine of pods, whichever they are.
#[derive(Debug, Default)]
pub struct Leftovers {
    logs: ListedLogs,
    cgroups: BTreeMap<PodUid, CgroupName>,
    /// Below `ROOT/pods`.
    folders: BTreeSet<PodUid>,
    /// The pods of which volumes may be mounted; none where that is not known.
    mounted: Option<BTreeSet<PodUid>>,
}

/// The folders of pods' logs, and the links whose logs are gone.
#[derive(Debug, Default)]
struct ListedLogs {
    folders: Vec<ListedLog>,
    dead_links: Vec<ListedLog>,
}

/// A folder or link, and the pod that it is of.
#[derive(Debug)]
struct ListedLog {
    uid: PodUid,
    path: PathBuf,
}

impl PodManager {
    /// Leaves the logs of a pod that is gone to what collects them, as upstream until its next garbage collection.
    pub(super) fn keep_logs(&mut self, uid: &PodUid, ctx: &mut Context<Msg>) {
        let period = self.workers.container_gc_period();
        if !period.is_zero() {
            let due = ctx.now() + period;
            self.unmanaged.kept_logs.insert(uid.clone(), due);
            ctx.after(period + TOGETHER, Msg::CleanUp);
        }
    }

    /// Removes the logs whose time has come, unless their pod is back.
    pub(super) fn remove_kept_logs(&mut self, now: Instant) {
        let kept = &mut self.unmanaged.kept_logs;
        let due = kept.extract_if(.., |_, due| *due <= now);
        let mut gone: BTreeSet<PodUid> = due.map(|(uid, _)| uid).collect();
        gone.retain(|uid| !self.is_desired(uid) && self.workers.desired(uid).is_none());
        if gone.is_empty() {
            return;
        }
        let (folders, links) = self.workers.log_folders();
        // What cannot be removed is found by a later look.
        drop(kernel::spawn_blocking(move || {
            let is_gone = |log: &ListedLog| gone.contains(&log.uid);
            for log in names(&folders).filter_map(folder).filter(is_gone) {
                report(&log.path, files::remove_tree(&log.path));
            }
            for link in names(&links).filter_map(dead_link).filter(is_gone) {
                report(&link.path, fs::remove_file(&link.path));
            }
        }));
    }

    /// Lists what pods have left, unless that was done a moment ago.
    pub(super) fn list_leftovers(&mut self, ctx: &mut Context<Msg>) {
        let now = ctx.now();
        let is_soon = |last: Instant| now.saturating_duration_since(last) < SWEEP_PERIOD;
        if self.unmanaged.listed_at.is_some_and(is_soon) {
            return;
        }
        self.unmanaged.listed_at = Some(now);
        let (folders, links) = self.workers.log_folders();
        let (cgroups, volumes) = (self.workers.cgroups(), self.workers.volumes());
        let root = self.workers.root_dir();
        ctx.run(async move {
            let listed = move || (list(&folders, &links), pod_folders::list(&root));
            let (logs, folders) = kernel::spawn_blocking(listed).await.unwrap_or_default();
            let cgroups = cgroups.list().await;
            let mounted = volumes.ask(VOLUMES_TIMEOUT, volumes::Msg::pods_with_mounts);
            Msg::LeftoversListed(Box::new(Leftovers {
                logs,
                cgroups,
                folders,
                mounted: mounted.await.unwrap_or_default(),
            }))
        });
    }

    /// Removes what is left of pods that are neither desired nor in the runtime.
    pub(super) fn remove_leftovers(&mut self, found: Leftovers, ctx: &mut Context<Msg>) {
        let Some(unmanaged) = &self.unmanaged.pods else {
            return;
        };
        if !self.sources.missing().is_empty() {
            return;
        }
        let is_gone = |uid: &PodUid| {
            !self.is_desired(uid)
                && self.workers.desired(uid).is_none()
                && !unmanaged.contains_key(uid)
        };
        let Leftovers {
            logs,
            mut cgroups,
            mut folders,
            mounted,
        } = found;
        cgroups.retain(|uid, _| is_gone(uid));
        // The volume manager removes the folders of volumes that it knows.
        folders.retain(|uid| {
            let has_volumes = mounted.as_ref().is_none_or(|all| all.contains(uid));
            is_gone(uid) && !has_volumes
        });
        if !cgroups.is_empty() {
            let manager = self.workers.cgroups();
            ctx.run(async move {
                for (uid, name) in cgroups {
                    match mounted.as_ref().is_some_and(|all| !all.contains(&uid)) {
                        true => manager.destroy(&uid, &name).await,
                        false => manager.reduce_cpu(&uid, &name).await,
                    }
                }
                Msg::CleanUp
            });
        }
        let is_unknown =
            |log: &ListedLog| is_gone(&log.uid) && !self.unmanaged.keeps_logs(&log.uid);
        remove_logs(logs, is_unknown);
        self.remove_pod_folders(folders, ctx);
    }
}

fn remove_logs(listed: ListedLogs, is_unknown: impl Fn(&ListedLog) -> bool) {
    let ListedLogs {
        mut folders,
        mut dead_links,
    } = listed;
    folders.retain(&is_unknown);
    dead_links.retain(&is_unknown);
    if folders.is_empty() && dead_links.is_empty() {
        return;
    }
    // What cannot be removed is found again by the next look.
    drop(kernel::spawn_blocking(move || {
        for log in folders {
            report(&log.path, files::remove_tree(&log.path));
        }
        for link in dead_links {
            report(&link.path, fs::remove_file(&link.path));
        }
    }));
}

fn report(path: &Path, removed: std::io::Result<()>) {
    match removed {
        Ok(()) => tracing::debug!("removed leftover logs: {}", path.display()),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => tracing::warn!("cannot remove leftover logs: {}: {error}", path.display()),
    }
}

fn list(folders: &Path, links: &Path) -> ListedLogs {
    ListedLogs {
        folders: names(folders).filter_map(folder).collect(),
        dead_links: names(links).filter_map(dead_link).collect(),
    }
}

fn names(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().take(MAX_NAMES);
    entries.filter_map(|entry| Some(entry.ok()?.path()))
}

fn folder(path: PathBuf) -> Option<ListedLog> {
    let uid = labels::pod_uid_of_log_directory(path.file_name()?.to_str()?);
    path.is_dir().then_some(ListedLog { uid, path })
}

/// A link to a log that is gone; the pod is that of the log.
fn dead_link(path: PathBuf) -> Option<ListedLog> {
    let is_log = path.extension().is_some_and(|extension| extension == "log");
    let log = is_log.then(|| fs::read_link(&path).ok()).flatten()?;
    let gone = fs::metadata(&path).is_err_and(|error| error.kind() == ErrorKind::NotFound);
    let folder = log.parent()?.parent()?.file_name()?.to_str()?;
    let uid = labels::pod_uid_of_log_directory(folder);
    gone.then_some(ListedLog { uid, path })
}
