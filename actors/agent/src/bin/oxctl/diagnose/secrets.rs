//! Which values are secrets on this node: the files of secrets' volumes.

use std::path::{Path, PathBuf};

use super::files::{Finder, Unwanted, entries, head, is_folder, name};

/// The folders of volumes that hold secrets.
const KINDS: [&str; 2] = ["kubernetes.io~secret", "kubernetes.io~projected"];
/// Beside a token: a name and a certificate, which anybody may know.
const PUBLIC: [&str; 2] = ["namespace", "ca.crt"];
/// Entries of one folder of volumes: four times the pods that a node may have.
const MAX_ENTRIES: usize = 4096;
/// Bytes of one secret file: the API takes no larger Secret.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// A volume, its folder of a generation, and folders of paths.
const MAX_DEPTH: usize = 6;
/// Of all volumes.
const MAX_FILES: usize = 20_000;

/// The contents of each file in the secrets' volumes below `pods`.
pub(super) fn of_volumes(finder: &Finder, pods: &Path) -> Result<(), Unwanted> {
    let pods = match entries(pods, MAX_ENTRIES) {
        Ok(pods) => pods,
        Err(error) => return finder.missing(pods.display().to_string(), &error),
    };
    let mut left = MAX_FILES;
    for pod in pods {
        for kind in KINDS {
            let volumes = entries(&pod.join("volumes").join(kind), MAX_ENTRIES);
            for volume in volumes.unwrap_or_default() {
                left = files(finder, volume, left)?;
            }
        }
    }
    Ok(())
}

/// Reads files below a folder, at most `left`; returns how many more may be read.
fn files(finder: &Finder, volume: PathBuf, mut left: usize) -> Result<usize, Unwanted> {
    let mut open = vec![(volume, 0_usize)];
    while let Some((path, depth)) = open.pop() {
        if is_folder(&path) {
            let below = entries(&path, MAX_ENTRIES).unwrap_or_default();
            let deeper = below.into_iter().map(|path| (path, depth + 1));
            open.extend(deeper.filter(|(_, depth)| *depth <= MAX_DEPTH));
            continue;
        }
        if left == 0 || PUBLIC.contains(&name(&path).as_str()) {
            continue;
        }
        // The links to the generation lead to files that are read as well.
        if let Ok(text) = head(&path, MAX_FILE_BYTES) {
            left -= 1;
            finder.secret(text)?;
        }
    }
    Ok(left)
}
