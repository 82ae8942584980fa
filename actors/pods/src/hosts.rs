//! A pod's managed hosts file, and the node's resolver configuration.
//!
//! The contents are decided in `logic_pods::network::hosts` and `logic_pods::network::dns`; here they are read and written, in the
//! blocking pool. Upstream: pkg/kubelet/kubelet_pods.go (`ensureHostsFile`), network/dns (1.36).

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;
use logic_api::pod::PodView;
use logic_pods::network::dns::{MAX_RESOLVER_FILE_BYTES, ResolverConfig, ResolverError, complaint};
use logic_pods::network::hosts::{self, HostNameError};
use logic_resources::node::policy::NodePolicy;
use rustix::fs::{Mode, OFlags};
use state::events::{EventType, InvolvedObject, Recorder};
use thiserror::Error;

/// Bytes of the node's hosts file; a longer one is refused.
const LARGEST_HOSTS: u64 = 4 << 20;

/// Why a hosts or resolver file could not be read or written.
#[derive(Debug, Error)]
pub enum NamesError {
    #[error("open {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{}: larger than {most} bytes", path.display())]
    TooLarge { path: PathBuf, most: u64 },
    #[error(transparent)]
    Resolver(#[from] ResolverError),
    #[error(transparent)]
    HostName(#[from] HostNameError),
}

impl NamesError {
    /// Whether the same operation may succeed when repeated.
    pub fn transient(&self) -> bool {
        match self {
            Self::Read { .. } | Self::Write { .. } | Self::TooLarge { .. } | Self::Resolver(_) => {
                true
            }
            Self::HostName(_) => false,
        }
    }
}

/// Reads the node's resolver file; once for each pod, because it changes with the node's network.
pub async fn resolver(node: &NodePolicy) -> Result<ResolverConfig, NamesError> {
    let path = node.resolver_config.clone();
    if path.as_os_str().is_empty() {
        return Ok(ResolverConfig::default());
    }
    let text = blocking(path.clone(), move || read(&path, MAX_RESOLVER_FILE_BYTES)).await?;
    Ok(ResolverConfig::parse(&String::from_utf8_lossy(&text))?)
}

/// Records once which entries of the node's resolver file pods do not get.
pub async fn complain(recorder: &Recorder, node: &NodePolicy) {
    let path = node.resolver_config.display().to_string();
    let complaint = match resolver(node).await {
        Ok(resolver) => complaint(&path, &resolver, &node.cluster_domain),
        Err(error) => Some(error.to_string()),
    };
    let Some(message) = complaint else { return };
    let object = InvolvedObject::node(&node.node_name);
    let now = kernel::timestamp();
    let reason = "CheckLimitsForResolvConf";
    recorder.record(now, EventType::Warning, object, reason, message);
}

/// Writes the pod's hosts file if it differs, and returns its path. The pod's folder must exist.
pub async fn ensure(
    pod: &Pod,
    pod_ips: &[String],
    node: &NodePolicy,
) -> Result<PathBuf, NamesError> {
    ensure_with(pod, pod_ips, node, Path::new(hosts::PATH)).await
}

async fn ensure_with(
    pod: &Pod,
    pod_ips: &[String],
    node: &NodePolicy,
    node_file: &Path,
) -> Result<PathBuf, NamesError> {
    let file = hosts::file(node, pod);
    let path = file.clone();
    let write: Box<dyn FnOnce() -> Result<(), NamesError> + Send> = if pod.host_network() {
        let (pod, node_file) = (pod.clone(), node_file.to_owned());
        Box::new(move || {
            let own = read(&node_file, LARGEST_HOSTS)?;
            write(&path, &hosts::of_node(&pod, &own))
        })
    } else {
        let host = hosts::host_name(pod, &node.cluster_domain)?;
        let text = hosts::managed(pod, &host, pod_ips);
        Box::new(move || write(&path, text.as_bytes()))
    };
    blocking(file.clone(), write).await?;
    Ok(file)
}

fn read(path: &Path, most: u64) -> Result<Vec<u8>, NamesError> {
    let failed = |source| NamesError::Read {
        path: path.to_owned(),
        source,
    };
    let mut text = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(most + 1).read_to_end(&mut text).map_err(failed)?;
    match u64::try_from(text.len()) {
        Ok(length) if length <= most => Ok(text),
        Ok(_) | Err(_) => Err(NamesError::TooLarge {
            path: path.to_owned(),
            most,
        }),
    }
}

/// Writes in place: running containers have this file mounted, and would never see a new one of the same name. Unchanged
/// contents are not written.
///
/// The containers may have written to it: however large they made it, no more is read than is to be written.
fn write(path: &Path, text: &[u8]) -> Result<(), NamesError> {
    let failed = |source| NamesError::Write {
        path: path.to_owned(),
        source,
    };
    let flags =
        OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::from_raw_mode(hosts::MODE));
    let mut file = File::from(opened.map_err(|errno| failed(errno.into()))?);
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(failed(io::Error::other("found no regular file there")));
    }
    if !holds(&mut file, &metadata, text).map_err(failed)? {
        file.set_len(0).map_err(failed)?;
        file.rewind().map_err(failed)?;
        file.write_all(text).map_err(failed)?;
    }
    // The umask would clear bits of the mode given at creation.
    file.set_permissions(fs::Permissions::from_mode(hosts::MODE))
        .map_err(failed)
}

/// Whether the file holds exactly this text.
fn holds(file: &mut File, metadata: &fs::Metadata, text: &[u8]) -> io::Result<bool> {
    let length = u64::try_from(text.len()).unwrap_or(u64::MAX);
    if metadata.len() != length {
        return Ok(false);
    }
    let mut present = Vec::with_capacity(text.len());
    file.take(length).read_to_end(&mut present)?;
    Ok(present == text)
}

async fn blocking<T: Send + 'static>(
    path: PathBuf,
    work: impl FnOnce() -> Result<T, NamesError> + Send + 'static,
) -> Result<T, NamesError> {
    let outcome = kernel::spawn_blocking(work).await;
    outcome.unwrap_or_else(|error| {
        Err(NamesError::Read {
            path,
            source: io::Error::other(error),
        })
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use k8s_openapi::api::core::v1::PodSpec;

    use super::*;

    fn pod(host_network: bool) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.name = Some("web".into());
        pod.metadata.uid = Some("u1".into());
        pod.spec = Some(PodSpec {
            host_network: Some(host_network),
            ..PodSpec::default()
        });
        pod
    }

    fn node(root: &Path) -> NodePolicy {
        fs::create_dir_all(root.join("pods/u1")).unwrap();
        NodePolicy {
            root_dir: root.to_owned(),
            resolver_config: root.join("resolv.conf"),
            ..NodePolicy::default()
        }
    }

    /// The file of upstream's `ensureHostsFile`; running containers keep seeing it.
    #[tokio::test]
    async fn a_pods_hosts_file_is_made_and_renewed_in_place() {
        let folder = tempfile::tempdir().unwrap();
        let node = node(folder.path());
        let ips = |ip: &str| vec![ip.to_owned()];
        let file = ensure(&pod(false), &ips("10.0.0.1"), &node).await.unwrap();
        assert_eq!(file, folder.path().join("pods/u1/etc-hosts"));
        let first = fs::metadata(&file).unwrap();
        assert_eq!(first.mode() & 0o7777, 0o644);
        assert!(
            fs::read_to_string(&file)
                .unwrap()
                .ends_with("10.0.0.1\tweb\n")
        );
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        ensure(&pod(false), &ips("10.0.0.2"), &node).await.unwrap();
        let second = fs::metadata(&file).unwrap();
        assert!(
            fs::read_to_string(&file)
                .unwrap()
                .ends_with("10.0.0.2\tweb\n")
        );
        assert_eq!((second.ino(), second.mode() & 0o7777), (first.ino(), 0o644));
    }

    /// A container may make the file as large as the file system allows; it is neither read whole nor left so.
    #[tokio::test]
    async fn a_file_that_a_container_has_made_huge_is_not_read_and_becomes_what_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let node = node(folder.path());
        let ips = ["10.0.0.1".to_owned()];
        let file = ensure(&pod(false), &ips, &node).await.unwrap();
        let text = fs::read(&file).unwrap();
        let written = fs::OpenOptions::new().write(true).open(&file).unwrap();
        written.set_len(1 << 43).unwrap();
        ensure(&pod(false), &ips, &node).await.unwrap();
        assert_eq!(fs::read(&file).unwrap(), text);
    }

    #[tokio::test]
    async fn what_is_no_regular_file_is_neither_followed_nor_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let node = node(folder.path());
        let file = hosts::file(&node, &pod(false));
        let victim = folder.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, &file).unwrap();
        let refused = ensure(&pod(false), &[], &node).await.unwrap_err();
        assert!(matches!(refused, NamesError::Write { .. }), "{refused:?}");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        fs::remove_file(&file).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &file,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        let refused = ensure(&pod(false), &[], &node).await.unwrap_err();
        assert!(matches!(refused, NamesError::Write { .. }), "{refused:?}");
    }

    #[tokio::test]
    async fn on_the_nodes_network_the_nodes_own_file_is_taken_if_it_is_there_and_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let node = node(folder.path());
        let own = folder.path().join("hosts");
        fs::write(&own, "127.0.0.1 here\n").unwrap();
        let file = ensure_with(&pod(true), &[], &node, &own).await.unwrap();
        assert_eq!(
            fs::read_to_string(file).unwrap(),
            "# Kubernetes-managed hosts file (host network).\n127.0.0.1 here\n"
        );
        let huge = File::create(&own).unwrap();
        huge.set_len(LARGEST_HOSTS + 1).unwrap();
        let refused = ensure_with(&pod(true), &[], &node, &own).await.unwrap_err();
        assert!(matches!(refused, NamesError::TooLarge { .. }));
        let missing = ensure_with(&pod(true), &[], &node, Path::new("/nowhere"))
            .await
            .unwrap_err();
        assert_eq!(missing.to_string(), "open /nowhere");
        assert!(missing.transient());
    }

    #[tokio::test]
    async fn the_nodes_resolver_is_read_as_it_is_now() {
        let folder = tempfile::tempdir().unwrap();
        let node = node(folder.path());
        assert!(matches!(
            resolver(&node).await,
            Err(NamesError::Read { .. })
        ));
        for ip in ["192.0.2.1", "192.0.2.2"] {
            fs::write(&node.resolver_config, format!("nameserver {ip}\n")).unwrap();
            assert_eq!(resolver(&node).await.unwrap().servers, [ip]);
        }
        fs::write(&node.resolver_config, "nameserver\n").unwrap();
        assert!(matches!(
            resolver(&node).await,
            Err(NamesError::Resolver(_))
        ));
        let none = NodePolicy {
            resolver_config: PathBuf::new(),
            ..node
        };
        assert_eq!(resolver(&none).await.unwrap(), ResolverConfig::default());
    }
}
