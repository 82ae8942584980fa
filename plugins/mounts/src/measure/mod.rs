//! Usage of volumes: upstream's figures (pkg/volume/metrics_statfs.go, metrics_du.go, util/fs, 1.36).

mod quota;
#[cfg(test)]
mod tests;
mod usage;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use blocking_pool::{BlockingPool, format_duration};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use proto::storage::{Measure, StatsResponse};
use rustix::fs::{StatVfs, statvfs};
use tonic::Status;

use crate::answer;

/// Returns the figures of the file system that a volume is.
pub fn file_system(path: &Path) -> Result<StatsResponse, Status> {
    let figures = figures(path)?;
    Ok(StatsResponse {
        used: Some(used(&figures)),
        inodes_used: Some(inodes_used(&figures)),
        measure: Measure::FileSystemFigures.into(),
        ..of_file_system(&figures)
    })
}

/// Measures a folder that shares its file system with others: by its project's quota where that has a limit, else by a
/// slow walk, which counts at least what it reaches in its time. It blocks for long; [`Walks`] makes sure that one volume is not walked twice at once.
pub fn folder(path: &Path) -> Result<StatsResponse, Status> {
    let figures = figures(path)?;
    if quota::counts(path, &figures) {
        return Ok(StatsResponse {
            used: Some(used(&figures)),
            inodes_used: Some(inodes_used(&figures)),
            measure: Measure::ProjectQuota.into(),
            ..of_file_system(&figures)
        });
    }
    let usage = usage::measure(path)?;
    Ok(StatsResponse {
        used: Some(usage.bytes),
        inodes_used: Some(usage.inodes),
        measure: Measure::Walk.into(),
        at_least: usage.at_least,
        ..of_file_system(&figures)
    })
}

fn figures(path: &Path) -> Result<StatVfs, Status> {
    let what = format!("failed to get FsInfo due to error: {}", path.display());
    statvfs(path).map_err(|error| answer::failed(what, error))
}

fn of_file_system(figures: &StatVfs) -> StatsResponse {
    let size = figures.f_frsize;
    StatsResponse {
        capacity: Some(figures.f_blocks.saturating_mul(size)),
        available: Some(figures.f_bavail.saturating_mul(size)),
        inodes: Some(figures.f_files),
        inodes_free: Some(figures.f_ffree),
        taken_ms: now_ms(),
        ..StatsResponse::default()
    }
}

fn used(figures: &StatVfs) -> u64 {
    let blocks = figures.f_blocks.saturating_sub(figures.f_bfree);
    blocks.saturating_mul(figures.f_frsize)
}

fn inodes_used(figures: &StatVfs) -> u64 {
    figures.f_files.saturating_sub(figures.f_ffree)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a plugin has no context; the figures say when they were taken"
)]
fn now_ms() -> u64 {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH);
    wall.map_or(0, |wall| {
        u64::try_from(wall.as_millis()).unwrap_or(u64::MAX)
    })
}

/// Whose walk it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    First,
    Later,
}

type Walking = Shared<BoxFuture<'static, Result<StatsResponse, Status>>>;

/// Walks under way. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Walks {
    under_way: Arc<Mutex<HashMap<PathBuf, Walking>>>,
}

impl Walks {
    /// Makes a set without walks under way.
    pub fn new() -> Self {
        Self::default()
    }

    /// Measures as [`folder`] does. A second caller gets the result of the walk under way, which has its first caller's
    /// deadline and goes on without it.
    pub async fn folder(
        &self,
        pool: &BlockingPool,
        path: &Path,
        within: Duration,
    ) -> Result<StatsResponse, Status> {
        let (walking, role) = self.join(pool, path, within);
        if role == Role::First {
            // The pool keeps the time.
            return walking.await;
        }
        match tokio::time::timeout(within, walking).await {
            Ok(result) => result,
            Err(_) => Err(Status::deadline_exceeded(format!(
                "measuring {} did not end within {}",
                path.display(),
                format_duration(within)
            ))),
        }
    }

    fn join(&self, pool: &BlockingPool, path: &Path, within: Duration) -> (Walking, Role) {
        let mut under_way = self.under_way();
        if let Some(walking) = under_way.get(path) {
            return (walking.clone(), Role::Later);
        }
        let (walks, pool, path) = (self.clone(), pool.clone(), path.to_owned());
        let key = path.clone();
        let task = tokio::spawn(async move {
            let what = format!("measuring {}", path.display());
            let work = path.clone();
            let result = pool.run(&what, within, move || folder(&work)).await;
            walks.under_way().remove(&path);
            result
        });
        let walking = task
            .map(|ended| ended.unwrap_or_else(|gone| Err(Status::internal(gone.to_string()))))
            .boxed()
            .shared();
        under_way.insert(key, walking.clone());
        (walking, Role::First)
    }

    fn under_way(&self) -> std::sync::MutexGuard<'_, HashMap<PathBuf, Walking>> {
        self.under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
