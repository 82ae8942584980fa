//! Checkpoints of containers: their state, written by the runtime into an archive on the node.
//!
//! Upstream: pkg/kubelet/kubelet.go (CheckpointContainer), pkg/kubelet/server/server.go (checkpoint), 1.36:
//! the path, the folder's and the file's name and the answer are upstream's; times are in UTC here.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clients::runtime::{RuntimeClient, RuntimeError};
use hyper::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use logic_api::pod::PodView;
use logic_api::types::{ContainerId, RuntimeContainer};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Takes checkpoints of running containers.
#[derive(Debug, Clone)]
pub struct ContainerCheckpoints {
    runtime: RuntimeClient,
    folder: PathBuf,
}

/// The paths of the archives, in upstream's JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Archives {
    pub items: Vec<PathBuf>,
}

/// Why no checkpoint was taken.
#[derive(Debug, Error)]
pub enum ContainerCheckpointError {
    #[error("container {container} does not exist")]
    NoContainer { container: String },
    #[error("container {container} not found: it does not run")]
    NotRunning { container: String },
    #[error("folder {} cannot be made", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("runtime {runtime} cannot checkpoint containers")]
    Unsupported {
        runtime: String,
        source: RuntimeError,
    },
    #[error("the runtime made no checkpoint of container {container}")]
    Runtime {
        container: String,
        source: RuntimeError,
    },
}

impl ContainerCheckpointError {
    /// Whether the same request may succeed soon, without any other change.
    pub fn transient(&self) -> bool {
        match self {
            ContainerCheckpointError::NoContainer { .. }
            | ContainerCheckpointError::Folder { .. }
            | ContainerCheckpointError::Unsupported { .. } => false,
            ContainerCheckpointError::NotRunning { .. } => true,
            ContainerCheckpointError::Runtime { source, .. } => source.transient(),
        }
    }

    pub(crate) fn status(&self) -> StatusCode {
        match self {
            ContainerCheckpointError::NoContainer { .. } => StatusCode::NOT_FOUND,
            ContainerCheckpointError::NotRunning { .. } => StatusCode::CONFLICT,
            ContainerCheckpointError::Unsupported { .. } => StatusCode::NOT_IMPLEMENTED,
            ContainerCheckpointError::Folder { .. } | ContainerCheckpointError::Runtime { .. } => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        }
    }
}

impl ContainerCheckpoints {
    /// Archives go into `ROOT/checkpoints`.
    pub fn new(runtime: RuntimeClient, root: &Path) -> Self {
        ContainerCheckpoints {
            runtime,
            folder: root.join("checkpoints"),
        }
    }

    /// Has the runtime write a running container's state into a new archive. The timeout is `within` or the
    /// runtime's usual time, whichever is longer.
    pub async fn take(
        &self,
        pod: &Pod,
        container: &str,
        within: Duration,
    ) -> Result<Archives, ContainerCheckpointError> {
        if pod.container(container).is_none() {
            let container = container.to_owned();
            return Err(ContainerCheckpointError::NoContainer { container });
        }
        let failed = |source| ContainerCheckpointError::Runtime {
            container: container.to_owned(),
            source,
        };
        let id = self.running(pod, container).await.map_err(failed)?;
        let id = id.ok_or_else(|| ContainerCheckpointError::NotRunning {
            container: container.to_owned(),
        })?;
        self.make_folder().await?;
        let archive = self.folder.join(file_name(pod, container));
        let made = self.runtime.checkpoint_container(&id, &archive, within);
        made.await
            .map_err(|source| match source.is_unimplemented() {
                true => ContainerCheckpointError::Unsupported {
                    runtime: self.runtime.name(),
                    source,
                },
                false => failed(source),
            })?;
        Ok(Archives {
            items: vec![archive],
        })
    }

    async fn running(
        &self,
        pod: &Pod,
        container: &str,
    ) -> Result<Option<ContainerId>, RuntimeError> {
        let seen = self.runtime.pod(&pod.uid()).await?;
        let newest = seen.newest(container).filter(|newest| newest.may_run());
        Ok(newest.map(|RuntimeContainer { id, .. }| id.clone()))
    }

    async fn make_folder(&self) -> Result<(), ContainerCheckpointError> {
        let path = self.folder.clone();
        let make = move || DirBuilder::new().recursive(true).mode(0o700).create(path);
        let made = kernel::spawn_blocking(make).await;
        made.unwrap_or_else(|error| Err(io::Error::other(error)))
            .map_err(|source| ContainerCheckpointError::Folder {
                path: self.folder.clone(),
                source,
            })
    }
}

/// `checkpoint-POD_NAMESPACE-CONTAINER-TIME.tar`.
fn file_name(pod: &Pod, container: &str) -> String {
    let now = kernel::timestamp();
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ");
    format!(
        "checkpoint-{}_{}-{container}-{now}.tar",
        pod.name(),
        pod.namespace()
    )
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use kernel::error_chain;
    use kernel::testing::run_paused;
    use logic_api::testing::yaml::pod;
    use pods::testing::TestNode;
    use serde_json::json;

    use super::*;

    const POD: &str = "
        metadata: { name: web }
        spec:
          restartPolicy: Never
          containers:
          - { name: main, image: localhost/busybox, command: [sleep, '100000'] }
          - { name: short, image: localhost/busybox, command: [sleep, '1'] }
    ";

    /// A node with a pod whose first container runs and whose second one has ended.
    fn with_pod(test: impl AsyncFnOnce(TestNode, ContainerCheckpoints)) {
        run_paused(|| async {
            let node = TestNode::start().await;
            node.desire(&[pod(POD)]);
            node.until("web", |status| {
                let ended = |status: &k8s_openapi::api::core::v1::ContainerStatus| {
                    status
                        .state
                        .as_ref()
                        .is_some_and(|state| state.terminated.is_some())
                };
                status
                    .container_statuses
                    .iter()
                    .flatten()
                    .filter(|status| ended(status))
                    .count()
                    == 1
            })
            .await;
            let folder = tempfile::tempdir().unwrap();
            let checkpoints = ContainerCheckpoints::new(node.runtime.clone(), folder.path());
            test(node, checkpoints).await;
        });
    }

    #[test]
    fn a_running_containers_state_lies_in_an_archive_for_root_alone() {
        with_pod(async |_node, checkpoints| {
            let archives = checkpoints
                .take(&pod(POD), "main", Duration::ZERO)
                .await
                .unwrap();
            let [archive] = archives.items.as_slice() else {
                panic!("{archives:?}");
            };
            let name = archive.file_name().unwrap().to_str().unwrap();
            assert!(
                name.starts_with("checkpoint-web_default-main-2026-01-01T00:00:"),
                "{name}"
            );
            assert!(name.ends_with("Z.tar"), "{name}");
            assert!(fs::metadata(archive).unwrap().len() > 0);
            let folder = fs::metadata(archive.parent().unwrap()).unwrap();
            assert_eq!(folder.mode() & 0o777, 0o700);
        });
    }

    #[test]
    fn what_cannot_be_checkpointed_is_a_sentence() {
        with_pod(async |node, checkpoints| {
            let pod = pod(POD);
            let refused = async |container: &str| {
                let error = checkpoints
                    .take(&pod, container, Duration::ZERO)
                    .await
                    .unwrap_err();
                (error.status().as_u16(), error_chain(&error))
            };
            let (status, text) = refused("nobody").await;
            assert_eq!(
                (status, text.as_str()),
                (404, "container nobody does not exist")
            );
            let (status, text) = refused("short").await;
            assert_eq!(
                (status, text.as_str()),
                (409, "container short not found: it does not run")
            );
            let script = json!({ "faults": [{
                "call": "CheckpointContainer", "code": "Unimplemented", "message": "unknown method",
            }] });
            node.fake.follow(serde_json::from_value(script).unwrap());
            let (status, text) = refused("main").await;
            assert_eq!(status, 501);
            assert_eq!(
                text,
                "runtime oxlet-fake cannot checkpoint containers: CheckpointContainer: unknown method"
            );
        });
    }
}
