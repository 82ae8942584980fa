//! One log: when it is checked, and how it is rotated, cleaned up and compressed.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clients::runtime::{RuntimeClient, RuntimeError};
use inotify::WatchDescriptor;
use kernel::Context;
use logic_api::types::ContainerId;
use logic_pods::logs::{LogRotationPolicy, LogSize};
use thiserror::Error;

use super::watch::LogFileState;
use super::{ContainerLogManager, MAX_WORKERS, Msg, files};

/// Why a log was not rotated. It is tried again after `containerLogMonitorInterval`, as upstream does.
#[derive(Debug, Error)]
pub enum RotateError {
    #[error("cannot be moved")]
    Move(#[source] io::Error),
    /// The runtime did not reopen the log, which was moved back.
    #[error("cannot be reopened")]
    Reopen(#[source] RuntimeError),
    /// The log stays under its new name, and is reopened later.
    #[error("cannot be reopened ({reopen}), nor moved back")]
    MoveBack { reopen: String, source: io::Error },
}

impl RotateError {
    fn describe(&self) -> String {
        match self {
            RotateError::Move(source) | RotateError::MoveBack { source, .. } => {
                format!("{self}: {source}")
            }
            RotateError::Reopen(source) => format!("{self}: {}", source.describe()),
        }
    }
}

/// The next check of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CheckState {
    /// When inotify reports a write.
    Reported,
    At(Instant),
    Looking,
    /// After its rotation.
    Rotating,
}

/// A running container's log.
#[derive(Debug)]
pub(super) struct ContainerLog {
    pub(super) path: Arc<Path>,
    pub(super) when: CheckState,
    /// The inotify watch for the next write; none while the log is only checked in sweeps.
    pub(super) watch: Option<WatchDescriptor>,
    measured: Option<LogSize>,
    /// Where the time of [`LogSize`] begins.
    since: Instant,
    /// After a failed rotation: when the next one may begin.
    not_before: Instant,
    /// The log was missing, and the runtime was asked to reopen it.
    reopened: bool,
    clean_up: CleanupState,
    compression: Option<Compression>,
    /// Logs rotated recently, each with the time: too fresh to compress.
    fresh: Vec<(String, Instant)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CleanupState {
    Done,
    At(Instant),
    /// `again`: when the log is due once more, if it was rotated meanwhile.
    Doing {
        again: Option<Instant>,
    },
}

#[derive(Debug)]
struct Compression {
    name: String,
    off: Arc<AtomicBool>,
}

impl Drop for Compression {
    fn drop(&mut self) {
        self.off.store(true, Ordering::Relaxed);
    }
}

impl ContainerLog {
    /// A new log is checked at once: an earlier agent may have left files behind.
    pub(super) fn new(path: PathBuf, now: Instant) -> Self {
        ContainerLog {
            path: path.into(),
            when: CheckState::At(now),
            watch: None,
            measured: None,
            since: now,
            not_before: now,
            reopened: false,
            clean_up: CleanupState::At(now),
            compression: None,
            fresh: Vec::new(),
        }
    }

    pub(super) fn compressing(&self) -> Option<&str> {
        self.compression.as_ref().map(|one| one.name.as_str())
    }

    pub(super) fn is_due(&self, until: Instant) -> bool {
        matches!(self.when, CheckState::At(at) if at <= until)
    }

    /// When the log is next due; its checks do not count while a task is checking logs.
    pub(super) fn next(&self, looking: bool) -> Option<Instant> {
        let check = match self.when {
            CheckState::At(at) if !looking => Some(at),
            CheckState::At(_)
            | CheckState::Reported
            | CheckState::Looking
            | CheckState::Rotating => None,
        };
        let clean_up = match self.clean_up {
            CleanupState::At(at) => Some(at),
            CleanupState::Done | CleanupState::Doing { .. } => None,
        };
        check.into_iter().chain(clean_up).min()
    }

    pub(super) fn check_by(&mut self, at: Instant) {
        self.when = match self.when {
            CheckState::Reported => CheckState::At(at),
            CheckState::At(then) => CheckState::At(then.min(at).max(self.not_before)),
            when @ (CheckState::Looking | CheckState::Rotating) => when,
        };
    }

    pub(super) fn written(&mut self, policy: &LogRotationPolicy, now: Instant) {
        if self.when == CheckState::Reported {
            let size = self.measured.map_or(0, |measured| measured.size);
            self.when = CheckState::At((now + policy.rest(size)).max(self.not_before));
        }
    }

    /// Sets when the log is checked next, unless it is rotated now.
    pub(super) fn checked(
        &mut self,
        found: &LogFileState,
        written: bool,
        policy: &LogRotationPolicy,
        now: Instant,
    ) {
        let LogFileState::Log { size } = *found else {
            self.when = CheckState::At(now + policy.interval);
            return;
        };
        self.reopened = false;
        let at = now.saturating_duration_since(self.since);
        let before = self.measured.replace(LogSize { size, at });
        self.when = match self.watch {
            Some(_) if written => CheckState::At(now + policy.rest(size)),
            Some(_) => CheckState::Reported,
            None => CheckState::At(now + policy.poll(before, LogSize { size, at })),
        };
    }

    /// Delays the next attempt.
    fn wait(&mut self, interval: Duration, now: Instant) {
        self.not_before = now + interval;
        self.when = CheckState::At(self.not_before);
    }

    fn note_rotation(&mut self, name: String, interval: Duration, now: Instant) {
        self.forget_stale(interval, now);
        self.fresh.push((name, now));
        self.clean_up = match self.clean_up {
            CleanupState::Done | CleanupState::At(_) => CleanupState::At(now),
            CleanupState::Doing { .. } => CleanupState::Doing { again: Some(now) },
        };
    }

    fn forget_stale(&mut self, interval: Duration, now: Instant) {
        let is_fresh = |at: Instant| now.saturating_duration_since(at) < interval;
        self.fresh.retain(|(_, at)| is_fresh(*at));
    }
}

/// Moves the log away and has the runtime begin a new one; if that fails, moves it back.
async fn rotate(
    runtime: RuntimeClient,
    id: ContainerId,
    path: Arc<Path>,
) -> Result<String, RotateError> {
    let now = kernel::timestamp();
    let from = path.clone();
    let moved = blocking(move || files::set_aside(&from, now)).await;
    let name = moved.map_err(RotateError::Move)?;
    let Err(reopen) = runtime.reopen_container_log(&id).await else {
        return Ok(name);
    };
    let old = name.clone();
    match blocking(move || files::put_back(&path, &old)).await {
        Ok(true) => Err(RotateError::Reopen(reopen)),
        // The runtime had begun a new log before its answer was lost.
        Ok(false) => Ok(name),
        Err(source) => Err(RotateError::MoveBack {
            reopen: reopen.describe(),
            source,
        }),
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    match kernel::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(io::Error::other(error)),
    }
}

impl ContainerLogManager {
    pub(super) fn rotate(&mut self, id: &ContainerId, ctx: &mut Context<Msg>) {
        let Some(log) = self.logs.get_mut(id) else {
            return;
        };
        if ctx.now() < log.not_before {
            log.when = CheckState::At(log.not_before);
            return;
        }
        log.when = CheckState::Rotating;
        let (runtime, id, path) = (self.runtime.clone(), id.clone(), log.path.clone());
        ctx.run(async move {
            let result = rotate(runtime, id.clone(), path.clone()).await.map(Some);
            Msg::Rotated { id, path, result }
        });
    }

    /// Has the runtime reopen a log that is gone, or that an agent moved away before it died: once a check.
    pub(super) fn reopen(&mut self, id: &ContainerId, ctx: &mut Context<Msg>) {
        let Some(log) = self.logs.get_mut(id).filter(|log| !log.reopened) else {
            if let Some(log) = self.logs.get_mut(id) {
                log.reopened = false;
            }
            return self.failed(id, "is missing, and reopening did not bring it back");
        };
        log.reopened = true;
        log.when = CheckState::Rotating;
        let (runtime, id, path) = (self.runtime.clone(), id.clone(), log.path.clone());
        ctx.run(async move {
            let reopened = runtime.reopen_container_log(&id).await;
            let result = reopened.map(|()| None).map_err(RotateError::Reopen);
            Msg::Rotated { id, path, result }
        });
    }

    pub(super) fn rotated(
        &mut self,
        id: &ContainerId,
        path: &Arc<Path>,
        result: Result<Option<String>, RotateError>,
        ctx: &mut Context<Msg>,
    ) {
        let (now, interval) = (ctx.now(), self.policy.interval);
        let log = self.logs.get_mut(id).filter(|log| log.path == *path);
        match (log, result) {
            (Some(log), Ok(name)) => {
                log.when = CheckState::At(now);
                log.measured = None;
                if let Some(name) = name {
                    log.note_rotation(name, interval, now);
                    self.rotations += 1;
                }
            }
            (Some(log), Err(error)) => {
                log.wait(interval, now);
                self.failed(id, &error.describe());
            }
            // The container ended meanwhile: its leftovers are cleaned up at the next rotation of its successor.
            (None, _) => {}
        }
        // At once, so that the log is watched again before much is written.
        self.check(ctx);
    }

    /// Cleans up behind the rotated logs that are due.
    pub(super) fn start_clean_up(&mut self, ctx: &mut Context<Msg>) {
        let now = ctx.now();
        for (id, log) in &mut self.logs {
            if !matches!(log.clean_up, CleanupState::At(at) if at <= now) {
                continue;
            }
            log.clean_up = CleanupState::Doing { again: None };
            log.forget_stale(self.policy.interval, now);
            let fresh: BTreeSet<String> = log.fresh.iter().map(|(name, _)| name.clone()).collect();
            let compressing = log.compressing().map(str::to_owned);
            let (id, path, policy) = (id.clone(), log.path.clone(), self.policy.clone());
            let work = move || files::clean_up(&path, &fresh, compressing.as_deref(), &policy);
            ctx.run(async move {
                let result = blocking(work).await;
                Msg::CleanedUp { id, result }
            });
        }
    }

    pub(super) fn cleaned_up(
        &mut self,
        id: &ContainerId,
        result: io::Result<Vec<String>>,
        ctx: &mut Context<Msg>,
    ) {
        let Some(log) = self.logs.get_mut(id) else {
            return;
        };
        // A log too fresh to compress is checked again once it is old enough.
        let oldest = log.fresh.first().map(|(_, at)| *at + self.policy.interval);
        let again = match log.clean_up {
            CleanupState::Doing { again } => again,
            CleanupState::Done | CleanupState::At(_) => None,
        };
        log.clean_up = again
            .or(oldest)
            .map_or(CleanupState::Done, CleanupState::At);
        match result {
            Ok(names) => {
                self.to_compress.retain(|(of, _)| of != id);
                self.to_compress
                    .extend(names.into_iter().map(|name| (id.clone(), name)));
                self.compress(ctx);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => self.failed(id, &format!("cannot tidy rotated logs: {error}")),
        }
        self.set_timer(ctx);
    }

    /// Begins as many compressions as the limit allows.
    fn compress(&mut self, ctx: &mut Context<Msg>) {
        while self.compressions < self.policy.workers.min(MAX_WORKERS) {
            let is_free = |(id, _): &(ContainerId, String)| {
                let log = self.logs.get(id);
                // While its folder is cleaned up, an unfinished result might be taken for a leftover.
                log.is_some_and(|log| {
                    log.compression.is_none() && !matches!(log.clean_up, CleanupState::Doing { .. })
                })
            };
            let next = self.to_compress.iter().position(is_free);
            let Some((id, name)) = next.and_then(|next| self.to_compress.remove(next)) else {
                return;
            };
            let Some(log) = self.logs.get_mut(&id) else {
                continue;
            };
            let off = Arc::new(AtomicBool::new(false));
            let (source, called_off) = (log.path.with_file_name(&name), off.clone());
            log.compression = Some(Compression {
                name: name.clone(),
                off,
            });
            self.compressions += 1;
            ctx.run(async move {
                let result = blocking(move || files::compress(&source, &called_off)).await;
                Msg::Compressed { id, name, result }
            });
        }
    }

    pub(super) fn compressed(
        &mut self,
        id: &ContainerId,
        name: &str,
        result: io::Result<()>,
        ctx: &mut Context<Msg>,
    ) {
        self.compressions = self.compressions.saturating_sub(1);
        if let Some(log) = self.logs.get_mut(id) {
            log.compression = None;
        }
        if let Err(error) = result {
            self.failed(id, &format!("cannot compress {name}: {error}"));
        }
        self.compress(ctx);
    }
}
