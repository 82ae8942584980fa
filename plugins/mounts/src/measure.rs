//! How full a volume is.

use std::path::Path;
use std::time::Duration;

use proto::storage::{Measure, StatsResponse};
use rustix::fs::statvfs;
use tonic::Status;

use crate::answer;
use crate::bench::Bench;

/// Returns the figures of the file system that a volume is.
pub fn file_system(path: &Path) -> Result<StatsResponse, Status> {
    let figures = statvfs(path)
        .map_err(|error| answer::failed("failed to get FsInfo due to error statfs", error))?;
    let size = figures.f_frsize;
    Ok(StatsResponse {
        capacity: Some(figures.f_blocks.saturating_mul(size)),
        available: Some(figures.f_bavail.saturating_mul(size)),
        used: Some(figures.f_blocks.saturating_sub(figures.f_bfree).saturating_mul(size)),
        inodes: Some(figures.f_files),
        inodes_free: Some(figures.f_ffree),
        inodes_used: Some(figures.f_files.saturating_sub(figures.f_ffree)),
        measure: Measure::FileSystemFigures.into(),
        health: None,
        taken_ms: 0,
    })
}

/// Walks under way. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Walks {}

impl Walks {
    /// Makes an empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Measures a folder that shares its file system with others: by its project's quota where it has one with a
    /// limit, else by a slow walk. A second caller gets the result of the walk under way.
    pub async fn folder(
        &self,
        bench: &Bench,
        path: &Path,
        within: Duration,
    ) -> Result<StatsResponse, Status> {
        let owned = path.to_owned();
        let what = format!("measuring {}", path.display());
        bench.run(&what, within, move || file_system(&owned)).await
    }
}
