//! Where files may lie within a volume: never above it, never where the writer keeps its own.
//!
//! Mirrors `validatePayload` of upstream's atomic writer.

use std::collections::BTreeMap;

use super::super::FileProjection;
use super::problem::FilesProblem;

/// Bytes of a path within a volume: upstream's `maxPathLength`, the kernel's `PATH_MAX`.
const LONGEST_PATH: usize = 4096;
/// Bytes of one name of a path: upstream's `maxFileNameLength`, the kernel's `NAME_MAX`.
const LONGEST_NAME: usize = 255;

/// The files by their clean paths.
pub(super) fn checked(
    files: BTreeMap<String, FileProjection>,
) -> Result<BTreeMap<String, FileProjection>, FilesProblem> {
    let mut clean = BTreeMap::new();
    for (path, file) in files {
        clean.insert(cleaned(&path)?, file);
    }
    // Upstream's writer fails half way at such a pair, and at which file is left to chance.
    for path in clean.keys() {
        if let Some(file) = above(path).find(|folder| clean.contains_key(*folder)) {
            return Err(FilesProblem::Path(format!(
                "{path} lies below the file {file}"
            )));
        }
    }
    Ok(clean)
}

/// The parent directories of a file.
fn above(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(end, _)| &path[..end])
}

fn cleaned(path: &str) -> Result<String, FilesProblem> {
    let wrong = |text: String| Err(FilesProblem::Path(text));
    if path.is_empty() {
        return wrong("must not be empty: \"\"".to_owned());
    }
    if path.starts_with('/') {
        return wrong(format!("must be relative path: {path}"));
    }
    if path.len() > LONGEST_PATH {
        return wrong(format!(
            "must be less than or equal to {LONGEST_PATH} characters"
        ));
    }
    for name in path.split('/') {
        if name == ".." {
            return wrong(format!("must not contain '..': {path}"));
        }
        if name.len() > LONGEST_NAME {
            return wrong(format!(
                "filenames must be less than or equal to {LONGEST_NAME} characters"
            ));
        }
    }
    if path.starts_with("..") {
        return wrong(format!("must not start with '..': {path}"));
    }
    if path.contains('\0') {
        return wrong(format!("must not contain a zero byte: {path:?}"));
    }
    let names: Vec<&str> = path
        .split('/')
        .filter(|name| !["", "."].contains(name))
        .collect();
    match names.first() {
        None => wrong(format!("must name a file: {path}")),
        // What the writer keeps for itself, behind a detour.
        Some(name) if name.starts_with("..") => wrong(format!("must not start with '..': {path}")),
        Some(_) => Ok(names.join("/")),
    }
}
