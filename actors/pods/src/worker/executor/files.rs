//! A pod's folders and links on the node: made before its containers, removed after them.
//!
//! Layout as upstream's (pkg/kubelet/kubelet_pods.go, kuberuntime/legacy.go, 1.36): `ROOT/pods/UID` with
//! `volumes`, `plugins` and `containers`; `LOGS/NAMESPACE_NAME_UID/CONTAINER`; links in `/var/log/containers`.
//! Every function works in the blocking pool. Failures are only logged: the runtime's own error follows.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use logic_api::pod::PodView;
use logic_api::pod::labels;
use logic_api::types::{ContainerId, ContainerInstance};
use logic_pods::container::{ContainerConfig, MountOrigin};
use logic_resources::node::policy::NodePolicy;
use rustix::fs::{FileType, Mode, OFlags, fchmod, fstat, openat};

/// A log folder with more names than this is not the agent's.
const MAX_LOG_NAMES: usize = 10_000;

/// By container: the restart count that follows from the names of its logs.
pub(in crate::worker) async fn log_counts(logs: PathBuf, pod: Arc<Pod>) -> BTreeMap<String, u32> {
    let folder = log_folder(&logs, &pod);
    let names: Vec<String> = pod
        .all_containers()
        .map(|(_, container)| container.name.clone())
        .collect();
    blocking(move || {
        let count = |name: String| {
            let files = log_files(&folder.join(&name)).ok()?;
            let count = labels::restart_count_from_logs(files.iter().map(String::as_str));
            Some((name, count))
        };
        Ok(names.into_iter().filter_map(count).collect())
    })
    .await
    .unwrap_or_default()
}

fn log_files(folder: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(folder)?.take(MAX_LOG_NAMES);
    entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect()
}

/// Makes the pod's own folders and its log folder.
pub(super) async fn make_pod_folders(pod: &Pod, node: &NodePolicy) {
    let root = pod_folder(node, pod);
    let (all_logs, logs) = (node.pod_logs_dir.clone(), log_folder(Path::new(""), pod));
    let made = blocking(move || {
        for folder in ["volumes", "plugins", "containers"] {
            DirBuilder::new()
                .recursive(true)
                .mode(0o750)
                .create(root.join(folder))?;
        }
        make_log_folder(&all_logs, &logs)
    });
    log("cannot make the pod's folders", made.await);
}

/// Makes a container's log folder and the files that its mounts need.
pub(super) async fn make_container_files(pod: &Pod, config: &ContainerConfig, node: &NodePolicy) {
    let all_logs = node.pod_logs_dir.clone();
    let logs = log_folder(Path::new(""), pod).join(&config.name);
    let files = config
        .mounts
        .iter()
        .filter(|mount| mount.origin == MountOrigin::TerminationMessage);
    let files: Vec<PathBuf> = files.map(|mount| mount.host_path.clone()).collect();
    let root = node.root_dir.clone();
    let made = blocking(move || {
        make_log_folder(&all_logs, &logs)?;
        files
            .iter()
            .try_for_each(|file| make_message_file(&root, file))
    });
    log("cannot make the container's files", made.await);
}

/// Makes a folder below that of all logs. A pod with a hostPath volume may have put links there.
fn make_log_folder(all_logs: &Path, logs: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(all_logs)?;
    files::make_folder(all_logs, logs, Mode::from_raw_mode(0o755)).map(drop)
}

/// Makes the file for a container's last words. Without following links below `root`: a pod with a hostPath volume
/// could have the mode of another file changed.
fn make_message_file(root: &Path, file: &Path) -> io::Result<()> {
    let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "not below the root directory");
    let relative = file.strip_prefix(root).map_err(|_| invalid())?;
    let (folder, name) = relative
        .parent()
        .zip(relative.file_name())
        .ok_or_else(invalid)?;
    fs::create_dir_all(root)?;
    let folder = files::make_folder(root, folder, Mode::from_raw_mode(0o750))?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mode = Mode::from_raw_mode(0o666);
    let made = openat(&folder, name, flags | OFlags::CLOEXEC, mode)?;
    let stat = fstat(&made)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_nlink > 1 {
        let text = format!("{} is not a file of one name", file.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    // The container's user, unknown here, must be able to write it; the umask clears bits of the mode.
    Ok(fchmod(&made, mode)?)
}

/// Links a container's log where log collectors expect it.
pub(super) async fn link_legacy_log(
    pod: &Pod,
    config: &ContainerConfig,
    id: &ContainerId,
    node: &NodePolicy,
) {
    let target = log_folder(&node.pod_logs_dir, pod).join(&config.log_path);
    let link = labels::legacy_log_link(&node.container_logs_dir, pod, &config.name, id);
    let linked = blocking(move || {
        if let Some(folder) = link.parent() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(folder)?;
        }
        match symlink(&target, &link) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            result => result,
        }
    });
    log("cannot link the container's log", linked.await);
}

/// Removes an instance's log, what rotation made of it, and its link, as upstream does with a container
/// that it removes.
pub(crate) async fn remove_log(pod: &Pod, instance: &ContainerInstance, node: &NodePolicy) {
    let folder = log_folder(&node.pod_logs_dir, pod).join(&instance.name);
    let own = format!("{}.log", instance.attempt);
    let link = labels::legacy_log_link(&node.container_logs_dir, pod, &instance.name, &instance.id);
    let removed = blocking(move || {
        absent(fs::remove_file(&link))?;
        let rotated = format!("{own}.");
        for file in log_files(&folder).unwrap_or_default() {
            if file == own || file.starts_with(&rotated) {
                absent(fs::remove_file(folder.join(file)))?;
            }
        }
        Ok(())
    });
    log("cannot remove the container's log", removed.await);
}

/// Removes a pod's logs and folders. A folder that may hold mounts is removed only when it is empty.
pub(super) async fn remove_pod_folder(pod: &Pod, node: &NodePolicy) {
    let root = pod_folder(node, pod);
    let removed = blocking(move || {
        files::remove_tree(&root.join("containers"))?;
        for file in ["etc-hosts", "userns"] {
            absent(fs::remove_file(root.join(file)))?;
        }
        for folder in [root.join("plugins"), root.join("volumes"), root.clone()] {
            match absent(fs::remove_dir(folder)) {
                // The storage plugins remove what volumes left.
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => return Ok(()),
                result => result?,
            }
        }
        Ok(())
    });
    log("cannot remove the pod's folder", removed.await);
}

/// Removes the folder of the pod's logs.
pub(super) async fn remove_logs(pod: &Pod, node: &NodePolicy) {
    let logs = log_folder(&node.pod_logs_dir, pod);
    let removed = blocking(move || files::remove_tree(&logs));
    log("cannot remove the pod's logs", removed.await);
}

/// `ROOT/pods/UID`. A UID that is no plain name cannot lead out of this folder.
fn pod_folder(node: &NodePolicy, pod: &Pod) -> PathBuf {
    node.root_dir
        .join("pods")
        .join(pod.uid().as_str().replace('/', "_"))
}

fn log_folder(logs: &Path, pod: &Pod) -> PathBuf {
    labels::pod_log_directory(logs, pod.namespace(), pod.name(), &pod.uid())
}

fn absent(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
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

fn log(what: &str, result: io::Result<()>) {
    if let Err(error) = result {
        tracing::warn!("{what}: {error}");
    }
}

#[cfg(test)]
mod tests {
    use kernel::testing::run_paused;
    use logic_api::testing::yaml::pod;

    use super::*;

    /// Upstream's TestClean.
    #[test]
    fn an_instance_takes_its_log_and_what_rotation_made_of_it_with_it() {
        run_paused(|| async {
            let folder = tempfile::tempdir().unwrap();
            let node = NodePolicy {
                pod_logs_dir: folder.path().join("logs"),
                container_logs_dir: folder.path().join("links"),
                ..NodePolicy::default()
            };
            let pod = pod("metadata: {name: p}\nspec: {containers: [{name: app}, {name: app2}]}");
            let logs = log_folder(&node.pod_logs_dir, &pod);
            let instance = |name: &str, attempt| ContainerInstance {
                id: "id".into(),
                name: name.into(),
                attempt,
            };
            fs::create_dir_all(&node.container_logs_dir).unwrap();
            let link = |name: &str| {
                labels::legacy_log_link(&node.container_logs_dir, &pod, name, &"id".into())
            };
            for name in ["app", "app2"] {
                fs::create_dir_all(logs.join(name)).unwrap();
                fs::write(link(name), "").unwrap();
                for file in [
                    "1.log",
                    "2.log",
                    "12.log",
                    "1.log.20000101-000000.gz",
                    "1.log.20000101-000001",
                    "2.log.20000101-000000.gz",
                    "2.log.20000101-000001",
                ] {
                    fs::write(logs.join(name).join(file), "").unwrap();
                }
            }
            remove_log(&pod, &instance("app", 2), &node).await;
            let mut left = log_files(&logs.join("app")).unwrap();
            left.sort();
            let expected = [
                "1.log",
                "1.log.20000101-000000.gz",
                "1.log.20000101-000001",
                "12.log",
            ];
            assert_eq!(left, expected);
            assert_eq!(log_files(&logs.join("app2")).unwrap().len(), 7);
            assert!(!link("app").exists() && link("app2").exists());
        });
    }
}
