//! Container log rotation: logs stay within their limits, however fast a container writes.
//!
//! - **Owns** the logs of running containers: when each is checked next, and which operation is running on it.
//! - **Hears** from the pod workers which containers run, from inotify that logs were written, and the results
//!   of its own tasks.
//! - **Tells** no other actor; it asks the runtime to reopen a log that was moved away.
//! - **Never** touches the log of a container that does not run, and never waits for a compression to rotate.
//!
//! The bound: while the runtime reopens a log before its writer fills half the limit, and the writer is no faster
//! than 128 MiB/s, a log never exceeds twice `containerLogMaxSize` (`LogRotationPolicy::rest`). A container's logs
//! then take at most `containerLogMaxFiles` + 1 such files: the rotated one before an old one goes; and one more
//! for each compression under way, whose result exists together with its source.
//!
//! Upstream: pkg/kubelet/logs/container_log_manager.go (1.36). Its order of a rotation is kept but for this: the log
//! is moved first, and the old ones are cleaned up after it. What upstream does each `containerLogMonitorInterval`
//! to every log is done here to written ones, and as often to all of them in case inotify missed a write.

mod files;
mod log;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clients::runtime::RuntimeClient;
use inotify::Watches;
use kernel::{Actor, Context, Exit, Recipient, TimerId};
use logic_api::types::{ContainerId, PodUid};
use logic_pods::logs::LogRotationPolicy;
use serde::Serialize;
use state::status::PodResync;

pub use self::log::RotateError;
use self::log::{CheckState, ContainerLog};
pub use self::watch::LogCheck;
use self::watch::LogFileState;

/// Room for two changes from each of 1,000 pods at once.
pub const MAILBOX: usize = 2048;
/// Logs checked by one task: a sweep over a full node must not keep a flooded log waiting.
const MAX_CHECKS: usize = 128;
/// One sweep of so many looks at every log; the others only at those whose writes nobody reports.
const WHOLE_SWEEP: u64 = 6;
/// `containerLogMaxWorkers` beyond this would leave no thread of the blocking pool to rotate.
const MAX_WORKERS: usize = 2;

/// Messages of the container log manager.
#[derive(Debug, strum::IntoStaticStr)]
pub enum Msg {
    /// Sets the pod's running containers, whose logs are kept within their limits.
    Watch {
        uid: PodUid,
        containers: Vec<RunningLog>,
    },
    /// Leaves the pod's logs alone from now on.
    Forget { uid: PodUid },
    /// Makes these watches' logs due for a check; a negative number stands for every watch.
    Written { watches: BTreeSet<i32> },
    /// Goes on without inotify, and retries it later.
    WatchLost(io::Error),
    /// Checks the logs that are due, and cleans up behind rotated ones.
    Check,
    /// Checks every log: finds what inotify missed.
    Sweep,
    /// Rotates the logs that are due.
    Checked(Vec<LogCheck>),
    /// Ends a rotation, or the reopening of a log that was missing.
    Rotated {
        id: ContainerId,
        path: Arc<Path>,
        result: Result<Option<String>, RotateError>,
    },
    /// Queues rotated logs for compression.
    CleanedUp {
        id: ContainerId,
        result: io::Result<Vec<String>>,
    },
    /// Compresses the next one.
    Compressed {
        id: ContainerId,
        name: String,
        result: io::Result<()>,
    },
}

/// A running container's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningLog {
    pub id: ContainerId,
    /// The absolute path of the log, as the runtime reports it.
    pub path: PathBuf,
}

/// Counts of logs and of work on them.
#[derive(Debug, Serialize)]
pub struct Snapshot {
    pub logs: usize,
    /// Logs whose writes inotify reports; the others are only checked in sweeps.
    pub reported: usize,
    pub looks: u64,
    pub rotations: u64,
    pub failures: u64,
    pub compressing: Vec<String>,
    pub to_compress: usize,
    pub last_error: Option<String>,
}

/// The container log manager.
#[derive(Debug)]
pub struct ContainerLogManager {
    policy: Arc<LogRotationPolicy>,
    runtime: RuntimeClient,
    pod_manager: Recipient<PodResync>,

    pods: BTreeMap<PodUid, BTreeSet<ContainerId>>,
    logs: BTreeMap<ContainerId, ContainerLog>,
    watches: Option<Watches>,
    /// The container of each watch.
    watched: BTreeMap<i32, ContainerId>,
    /// Watches that reported before the check that set them ended; none while no check is running.
    early: Option<BTreeSet<i32>>,
    timer: Option<(Instant, TimerId)>,
    sweeps: u64,
    to_compress: VecDeque<(ContainerId, String)>,
    compressions: usize,
    looks: u64,
    rotations: u64,
    failures: u64,
    last_error: Option<String>,
}

impl Actor for ContainerLogManager {
    type Msg = Msg;
    type Snapshot = Snapshot;

    /// A restarted manager begins empty and has the workers send their containers again.
    async fn start(&mut self, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        if self.policy.limit.is_none() {
            return Ok(());
        }
        self.begin_watching(ctx);
        ctx.after(self.policy.interval, Msg::Sweep);
        if let Err(full) = self.pod_manager.tell(PodResync) {
            tracing::warn!("logs are watched as their pods change: {full}");
        }
        Ok(())
    }

    async fn handle(&mut self, msg: Msg, ctx: &mut Context<Msg>) -> Result<(), Exit> {
        match msg {
            Msg::Watch { uid, containers } => self.watch(uid, containers, ctx),
            Msg::Forget { uid } => self.forget(&uid),
            Msg::Written { watches } => self.written(&watches, ctx),
            Msg::WatchLost(error) => self.watch_lost(&error, ctx),
            Msg::Check => self.check(ctx),
            Msg::Sweep => self.sweep(ctx),
            Msg::Checked(found) => self.checked(found, ctx),
            Msg::Rotated { id, path, result } => self.rotated(&id, &path, result, ctx),
            Msg::CleanedUp { id, result } => self.cleaned_up(&id, result, ctx),
            Msg::Compressed { id, name, result } => self.compressed(&id, &name, result, ctx),
        }
        Ok(())
    }

    fn snapshot(&self) -> Snapshot {
        let compressing = self.logs.values().filter_map(ContainerLog::compressing);
        Snapshot {
            logs: self.logs.len(),
            reported: self.watched.len(),
            looks: self.looks,
            rotations: self.rotations,
            failures: self.failures,
            compressing: compressing.map(str::to_owned).collect(),
            to_compress: self.to_compress.len(),
            last_error: self.last_error.clone(),
        }
    }
}

impl ContainerLogManager {
    pub fn new(
        policy: LogRotationPolicy,
        runtime: RuntimeClient,
        pod_manager: Recipient<PodResync>,
    ) -> Self {
        ContainerLogManager {
            policy: Arc::new(policy),
            runtime,
            pod_manager,
            pods: BTreeMap::new(),
            logs: BTreeMap::new(),
            watches: None,
            watched: BTreeMap::new(),
            early: None,
            timer: None,
            sweeps: 0,
            to_compress: VecDeque::new(),
            compressions: 0,
            looks: 0,
            rotations: 0,
            failures: 0,
            last_error: None,
        }
    }

    fn watch(&mut self, uid: PodUid, containers: Vec<RunningLog>, ctx: &mut Context<Msg>) {
        if self.policy.limit.is_none() {
            return;
        }
        let now = ctx.now();
        let ids: BTreeSet<ContainerId> = containers.iter().map(|one| one.id.clone()).collect();
        let before = self.pods.insert(uid, ids.clone()).unwrap_or_default();
        before.difference(&ids).for_each(|id| self.remove_log(id));
        for RunningLog { id, path } in containers {
            // A runtime that reports no path logs elsewhere.
            if path.is_absolute() {
                self.logs
                    .entry(id)
                    .or_insert_with(|| ContainerLog::new(path, now));
            }
        }
        self.set_timer(ctx);
    }

    fn forget(&mut self, uid: &PodUid) {
        let gone = self.pods.remove(uid).unwrap_or_default();
        gone.iter().for_each(|id| self.remove_log(id));
    }

    fn remove_log(&mut self, id: &ContainerId) {
        if let Some(log) = self.logs.remove(id) {
            self.unwatch(log.watch);
        }
        self.to_compress.retain(|(of, _)| of != id);
    }

    fn unwatch(&mut self, watch: Option<inotify::WatchDescriptor>) {
        let Some(watch) = watch else { return };
        self.watched.remove(&watch.get_watch_descriptor_id());
        if let Some(watches) = &mut self.watches {
            // A watch that has reported is gone already.
            drop(watches.remove(watch));
        }
    }

    fn written(&mut self, watches: &BTreeSet<i32>, ctx: &mut Context<Msg>) {
        if watches.first().is_some_and(|first| *first < 0) {
            return self.check_all(ctx);
        }
        if let Some(early) = &mut self.early {
            early.extend(watches);
        }
        for watch in watches {
            let log = self.watched.get(watch).and_then(|id| self.logs.get_mut(id));
            if let Some(log) = log {
                log.written(&self.policy, ctx.now());
            }
        }
        self.set_timer(ctx);
    }

    fn begin_watching(&mut self, ctx: &mut Context<Msg>) {
        match watch::begin() {
            Ok((inotify, watches)) => {
                self.watches = Some(watches);
                let report = watch::report(inotify, self.policy.gather(), ctx.addr().clone());
                ctx.run(async move { Msg::WatchLost(report.await) });
            }
            Err(error) => self.watch_lost(&error, ctx),
        }
    }

    fn watch_lost(&mut self, error: &io::Error, ctx: &mut Context<Msg>) {
        // Logged once, though each sweep tries again.
        if self.watches.take().is_some() || self.last_error.is_none() {
            tracing::warn!(
                "container logs are looked at every so often, inotify does not report: {error}"
            );
        }
        self.last_error = Some(format!("inotify: {error}"));
        self.watched.clear();
        for log in self.logs.values_mut() {
            log.watch = None;
        }
        self.check_all(ctx);
    }

    fn sweep(&mut self, ctx: &mut Context<Msg>) {
        ctx.after(self.policy.interval, Msg::Sweep);
        if self.watches.is_none() {
            self.begin_watching(ctx);
        }
        self.sweeps = self.sweeps.wrapping_add(1);
        if self.sweeps.is_multiple_of(WHOLE_SWEEP) {
            return self.check_all(ctx);
        }
        let now = ctx.now();
        let unreported = self.logs.values_mut().filter(|log| log.watch.is_none());
        unreported.for_each(|log| log.check_by(now));
        self.set_timer(ctx);
    }

    fn check_all(&mut self, ctx: &mut Context<Msg>) {
        let now = ctx.now();
        self.logs.values_mut().for_each(|log| log.check_by(now));
        self.set_timer(ctx);
    }

    fn check(&mut self, ctx: &mut Context<Msg>) {
        self.timer = None;
        self.start_clean_up(ctx);
        if self.early.is_none() {
            let until = ctx.now() + self.policy.gather();
            let due = self.logs.iter_mut().filter(|(_, log)| log.is_due(until));
            let due: Vec<(ContainerId, Arc<Path>)> = due
                .take(MAX_CHECKS)
                .map(|(id, log)| {
                    log.when = CheckState::Looking;
                    (id.clone(), log.path.clone())
                })
                .collect();
            if !due.is_empty() {
                self.early = Some(BTreeSet::new());
                self.looks += 1;
                let watches = self.watches.clone();
                ctx.run(async move {
                    let check = kernel::spawn_blocking(move || watch::check(due, watches));
                    Msg::Checked(check.await.expect("looking does not panic"))
                });
            }
        }
        self.set_timer(ctx);
    }

    fn checked(&mut self, found: Vec<LogCheck>, ctx: &mut Context<Msg>) {
        let early = self.early.take().unwrap_or_default();
        for LogCheck {
            id,
            path,
            watch,
            found,
        } in found
        {
            let Some(log) = self.logs.get_mut(&id).filter(|log| log.path == path) else {
                self.unwatch(watch);
                continue;
            };
            let number = watch
                .as_ref()
                .map(inotify::WatchDescriptor::get_watch_descriptor_id);
            let old = std::mem::replace(&mut log.watch, watch);
            log.checked(
                &found,
                early.contains(&number.unwrap_or(-1)),
                &self.policy,
                ctx.now(),
            );
            if let Some(old) = old.map(|old| old.get_watch_descriptor_id()) {
                self.watched.remove(&old);
            }
            if let Some(number) = number {
                self.watched.insert(number, id.clone());
            }
            match found {
                LogFileState::Log { size } if self.policy.is_due(size) => self.rotate(&id, ctx),
                LogFileState::Missing => self.reopen(&id, ctx),
                LogFileState::Other(why) => self.failed(&id, &why),
                LogFileState::Log { .. } => {}
            }
        }
        self.set_timer(ctx);
    }

    fn failed(&mut self, id: &ContainerId, why: &str) {
        self.failures += 1;
        tracing::warn!(container = %id, "container log: {why}");
        self.last_error = Some(format!("{id}: {why}"));
    }

    /// Wakes the actor when the first log is due.
    fn set_timer(&mut self, ctx: &mut Context<Msg>) {
        let looking = self.early.is_some();
        let due = self.logs.values().filter_map(|log| log.next(looking)).min();
        match (due, self.timer) {
            (None, _) => {}
            (Some(due), Some((set, _))) if set <= due => {}
            (Some(due), timer) => {
                if let Some((_, timer)) = timer {
                    ctx.cancel(timer);
                }
                let wait = due.saturating_duration_since(ctx.now());
                self.timer = Some((due, ctx.after(wait, Msg::Check)));
            }
        }
    }
}
