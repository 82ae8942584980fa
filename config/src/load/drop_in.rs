//! `--config-dir`: every `*.conf` in the directory and the directories below it, in lexical order, each a merge patch
//! over what came before.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::ConfigError;

/// Deep enough for anybody, and an end for links that go in circles upstream does not follow.
const MAX_DEPTH: usize = 32;

/// Returns the drop-ins of a directory in the order in which they apply.
pub(crate) fn find(folder: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    let mut found = Vec::new();
    // Like Go's WalkDir, a root that is a link is not followed, but one that is a file is read.
    walk(folder, MAX_DEPTH, &mut found)?;
    Ok(found)
}

fn walk(path: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), ConfigError> {
    let failed = |source| ConfigError::DropIns {
        folder: path.to_owned(),
        source,
    };
    let metadata = fs::symlink_metadata(path).map_err(failed)?;
    if !metadata.is_dir() {
        let name = path.file_name().unwrap_or_default();
        if name.as_encoded_bytes().ends_with(b".conf") {
            found.push(path.to_owned());
        }
        return Ok(());
    }
    if depth == 0 {
        return Err(failed(std::io::Error::other("folders are nested too deep")));
    }
    let entries = fs::read_dir(path).map_err(failed)?;
    let entries: Result<Vec<_>, _> = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect();
    let mut entries = entries.map_err(failed)?;
    entries.sort();
    entries
        .iter()
        .try_for_each(|entry| walk(entry, depth - 1, found))
}
