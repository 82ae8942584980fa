//! What pods take of the node's own disk beside their volumes: logs, managed hosts files, termination messages.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use logic_api::pod::labels::pod_log_directory;
use logic_api::types::PodUid;
use logic_resources::summary::pods::{DiskUsage, PodDiskUsage};

/// Bytes of a block as `stat` counts them.
const BLOCK_SIZE: u64 = 512;
/// Files counted in one log folder; the log manager never leaves more.
const MAX_FILES: usize = 10_000;

/// The paths to read.
#[derive(Debug)]
pub(super) struct DiskScan {
    pub(super) root_dir: PathBuf,
    pub(super) pod_logs_dir: PathBuf,
    /// UID, namespace and name of each pod.
    pub(super) pods: Vec<(PodUid, String, String)>,
}

impl DiskScan {
    /// Counts files, but never within a volume.
    pub(super) fn see(&self) -> BTreeMap<PodUid, PodDiskUsage> {
        let disk = |(uid, namespace, name): &(PodUid, String, String)| {
            let logs = pod_log_directory(&self.pod_logs_dir, namespace, name, uid);
            let folder = uid.as_str().replace('/', "_");
            let own = self.root_dir.join("pods").join(folder);
            (uid.clone(), disk(&logs, &own))
        };
        self.pods.iter().map(disk).collect()
    }
}

fn disk(logs: &Path, pod: &Path) -> PodDiskUsage {
    let mut disk = PodDiskUsage {
        mounted_files: mounted_files(pod),
        ..PodDiskUsage::default()
    };
    let mut own = DiskUsage::default();
    for (path, there) in entries(logs) {
        match there.is_dir() {
            true => {
                let name = path.file_name().and_then(|name| name.to_str());
                let Some(name) = name.map(str::to_owned) else {
                    continue;
                };
                let files = entries(&path).map(|(_, file)| taken(&file));
                disk.container_logs
                    .insert(name, files.fold(taken(&there), plus));
            }
            false => own = plus(own, taken(&there)),
        }
    }
    disk.logs = (own != DiskUsage::default()).then_some(own);
    disk
}

/// The files in a pod's folder that its containers have mounted and may write to: its hosts file, and the termination
/// messages, in `containers/NAME`.
fn mounted_files(pod: &Path) -> Option<DiskUsage> {
    let hosts = fs::symlink_metadata(pod.join("etc-hosts")).ok();
    let containers = entries(&pod.join("containers")).filter(|(_, there)| there.is_dir());
    let messages = containers.flat_map(|(container, _)| entries(&container));
    hosts
        .into_iter()
        .chain(messages.map(|(_, file)| file))
        .map(|file| taken(&file))
        .reduce(plus)
}

fn entries(folder: &Path) -> impl Iterator<Item = (PathBuf, Metadata)> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let known = entries.filter_map(|entry| Some((entry.path(), entry.metadata().ok()?)));
    known.take(MAX_FILES)
}

fn taken(file: &Metadata) -> DiskUsage {
    DiskUsage {
        bytes: file.blocks().saturating_mul(BLOCK_SIZE),
        inodes: 1,
    }
}

fn plus(one: DiskUsage, other: DiskUsage) -> DiskUsage {
    DiskUsage {
        bytes: one.bytes.saturating_add(other.bytes),
        inodes: one.inodes + other.inodes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_pod_writes_beside_its_volumes_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        let logs = folder.path().join("logs");
        let own = logs.join("default_web_u1");
        fs::create_dir_all(own.join("app")).unwrap();
        fs::create_dir_all(root.join("pods/u1")).unwrap();
        fs::write(own.join("app/0.log"), vec![b'x'; 10_000]).unwrap();
        fs::write(own.join("app/1.log"), "").unwrap();
        fs::write(own.join("pod.log"), vec![b'x'; 10_000]).unwrap();
        fs::write(root.join("pods/u1/etc-hosts"), "127.0.0.1").unwrap();
        fs::create_dir_all(root.join("pods/u1/containers/app")).unwrap();
        fs::create_dir_all(root.join("pods/u1/volumes/app")).unwrap();
        let message = vec![b'x'; 300_000];
        fs::write(root.join("pods/u1/containers/app/00000000"), &message).unwrap();
        fs::write(root.join("pods/u1/volumes/app/file"), &message).unwrap();
        let pod = |uid: &str, name: &str| (uid.into(), "default".to_owned(), name.to_owned());
        let look = DiskScan {
            root_dir: root,
            pod_logs_dir: logs,
            pods: vec![pod("u1", "web"), pod("u2", "gone")],
        };
        let seen = look.see();
        let disk = &seen[&PodUid::from("u1")];
        let app = disk.container_logs["app"];
        assert!(app.bytes >= 10_000 && app.inodes == 3, "{app:?}");
        assert!(disk.logs.unwrap().bytes >= 10_000);
        let mounted = disk.mounted_files.unwrap();
        assert_eq!(mounted.inodes, 2);
        assert!((300_000..400_000).contains(&mounted.bytes), "{mounted:?}");
        assert_eq!(seen[&PodUid::from("u2")], PodDiskUsage::default());
    }
}
