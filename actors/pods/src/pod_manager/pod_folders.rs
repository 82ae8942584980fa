//! Folders below `ROOT/pods` that are of no pod of this node.
//!
//! Upstream: cleanupOrphanedPodDirs and removeOrphanedPodVolumeDirs (kubelet_volumes.go, 1.36). As there, of volumes
//! only empty folders are removed: what is mounted or holds data is the storage plugins', which are first asked to
//! list what they find. Unlike there, what cannot be removed is reported once, and not in every round.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use kernel::Context;
use logic_api::types::PodUid;

use super::leftovers::{MAX_NAMES, SWEEP_PERIOD};
use super::{Msg, PodManager};

/// The folders of which only empty ones are removed, with the levels of folders below each that a volume is at.
const VOLUMES: [(&str, usize); 3] = [("volumes", 2), ("volumeDevices", 2), ("volume-subpaths", 3)];
/// What a CSI volume's folder holds beside its mount point.
const CSI_VOLUMES: &str = "kubernetes.io~csi";
const CSI_DATA: &str = "vol_data.json";

/// Folders of no pod that could not be removed, each with the reason.
pub(super) type KeptFolders = BTreeMap<PodUid, String>;

/// The entries of `ROOT/pods`. Blocks.
pub(super) fn list(root: &Path) -> BTreeSet<PodUid> {
    let entries = fs::read_dir(root.join("pods")).into_iter().flatten();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.map(PodUid::from).take(MAX_NAMES).collect()
}

impl PodManager {
    /// Removes the folders of pods that are gone: those of volumes only once the plugins have had a round to clean up.
    pub(super) fn remove_pod_folders(&mut self, gone: BTreeSet<PodUid>, ctx: &mut Context<Msg>) {
        let kept = &mut self.unmanaged.kept_folders;
        kept.retain(|uid, _| gone.contains(uid));
        if gone.is_empty() {
            return;
        }
        let pods = self.workers.root_dir().join("pods");
        ctx.run(async move {
            let work = move || remove_all(&pods, gone);
            let kept = kernel::spawn_blocking(work).await.unwrap_or_default();
            Msg::FoldersKept(kept)
        });
    }

    /// Reports what could not be removed, unless that was reported. A folder that is found for the first time is left to the
    /// storage plugins until the next round.
    pub(super) fn note_kept_folders(&mut self, kept: KeptFolders, ctx: &mut Context<Msg>) {
        let mut is_new = false;
        for (uid, why) in kept {
            match self.unmanaged.kept_folders.get_mut(&uid) {
                None => {
                    is_new = true;
                    self.unmanaged.kept_folders.insert(uid, String::new());
                }
                Some(reported) if *reported == why => {}
                Some(reported) => {
                    tracing::warn!(%uid, "orphaned pod found, but its folder cannot be removed: {why}");
                    *reported = why;
                }
            }
        }
        if is_new {
            self.workers.find_volumes();
            ctx.after(SWEEP_PERIOD, Msg::CleanUp);
        }
    }
}

fn remove_all(pods: &Path, gone: BTreeSet<PodUid>) -> KeptFolders {
    let removed = gone.into_iter().map(|uid| {
        let removed = remove(&pods.join(uid.as_str()));
        (uid, removed)
    });
    removed
        .filter_map(|(uid, removed)| Some((uid, removed.err()?.to_string())))
        .collect()
}

fn remove(folder: &Path) -> io::Result<()> {
    let meta = match folder.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        meta => meta?,
    };
    if !meta.is_dir() {
        let text = format!("{} is not a folder", folder.display());
        return Err(io::Error::new(ErrorKind::NotADirectory, text));
    }
    for (name, levels) in VOLUMES {
        remove_empty(&folder.join(name), levels)?;
    }
    for entry in fs::read_dir(folder)? {
        files::remove_tree(&entry?.path())?;
    }
    remove_folder(folder)
}

/// Removes a folder of folders that are empty so many levels below it, without a look into those: a volume that hangs
/// would hold it up.
fn remove_empty(top: &Path, levels: usize) -> io::Result<()> {
    let mut found = vec![(top.to_owned(), 0)];
    let mut next = 0;
    while let Some((folder, level)) = found.get(next).cloned() {
        next += 1;
        if level == levels || found.len() > MAX_NAMES {
            continue;
        }
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries.take(MAX_NAMES) {
            found.push((entry?.path(), level + 1));
        }
    }
    for (folder, level) in found.into_iter().rev() {
        if level == levels && is_csi(&folder) {
            remove_csi(&folder)?;
        }
        remove_folder(&folder)?;
    }
    Ok(())
}

fn is_csi(volume: &Path) -> bool {
    let driver = volume.parent().and_then(Path::file_name);
    driver.is_some_and(|driver| driver == CSI_VOLUMES)
}

/// The data is the last to go: with it a plugin can still unmount the volume.
fn remove_csi(volume: &Path) -> io::Result<()> {
    remove_folder(&volume.join("mount"))?;
    let data = volume.join(CSI_DATA);
    named(&data, fs::remove_file(&data))
}

fn remove_folder(folder: &Path) -> io::Result<()> {
    named(folder, fs::remove_dir(folder))
}

fn named(path: &Path, removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => {
            let text = format!("{}: {error}", path.display());
            Err(io::Error::new(error.kind(), text))
        }
        Ok(()) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(folder: &Path, entries: &[&str]) {
        for entry in entries {
            let path = folder.join(entry.trim_end_matches('/'));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            if entry.ends_with('/') {
                fs::create_dir_all(&path).unwrap();
            } else {
                fs::write(&path, "data").unwrap();
            }
        }
    }

    /// Upstream's TestCleanupOrphanedPodDirs.
    #[test]
    fn folders_go_unless_volumes_hold_data() {
        let cases: [(&[&str], Option<&str>); 8] = [
            (&["volumes/"], None),
            (
                &["etc-hosts", "containers/c/0a1b", "plugins/x/y/ready"],
                None,
            ),
            (&["volumes/plugin/name/", "volumes/other/"], None),
            (&["volume-subpaths/volume/container/0/"], None),
            (
                &[
                    "volumes/kubernetes.io~csi/pvc/mount/",
                    "volumes/kubernetes.io~csi/pvc/vol_data.json",
                ],
                None,
            ),
            (
                &[
                    "volumes/kubernetes.io~csi/pvc/mount/data",
                    "volumes/kubernetes.io~csi/pvc/vol_data.json",
                ],
                Some("pvc/mount"),
            ),
            (
                &["volumes/plugin/name/file", "etc-hosts"],
                Some("volumes/plugin/name"),
            ),
            (
                &["volume-subpaths/volume/container/0", "etc-hosts"],
                Some("container/0"),
            ),
        ];
        for (entries, expected) in cases {
            let top = tempfile::tempdir().unwrap();
            let folder = top.path().join("uid");
            make(&folder, entries);
            let removed = remove(&folder);
            match expected {
                None => {
                    removed.unwrap();
                    assert!(!folder.exists(), "{entries:?}");
                }
                Some(place) => {
                    let why = removed.unwrap_err().to_string();
                    assert!(why.contains(place), "{entries:?}: {why}");
                    for entry in entries {
                        assert!(folder.join(entry).exists(), "{entries:?}: {entry} is gone");
                    }
                }
            }
        }
        let top = tempfile::tempdir().unwrap();
        make(top.path(), &["uid"]);
        let why = remove(&top.path().join("uid")).unwrap_err().to_string();
        assert!(why.ends_with("is not a folder"), "{why}");
    }
}
