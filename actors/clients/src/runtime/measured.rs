//! The runtime's stats of sandboxes and containers, and of its file systems.

use logic_resources::summary::pods::{RuntimeMeasurements, WritableLayer};
use proto::cri;

use super::{RuntimeClient, RuntimeError, convert, images, runtime};

/// The runtime's file systems for images and for containers' writable layers; the first of each counts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FileSystems {
    /// None where the runtime does not report it.
    pub images: Option<WritableLayer>,
    /// None where the runtime does not report it.
    pub containers: Option<WritableLayer>,
}

impl RuntimeClient {
    /// Stats of every pod. A runtime without stats of sandboxes is asked for those of containers, and only for
    /// these until its version changes: each refusal would count as an error of the runtime.
    pub async fn measured(&self) -> Result<RuntimeMeasurements, RuntimeError> {
        let asked = self.known.borrow().clone();
        if self.coarse.borrow().as_ref() == Some(&asked) {
            return self.measured_containers().await;
        }
        let request = cri::ListPodSandboxStatsRequest::default();
        let method =
            async |channel, request| runtime(channel).list_pod_sandbox_stats(request).await;
        let answer = self
            .idempotent("ListPodSandboxStats", self.within, request, method)
            .await;
        match answer {
            Ok(answer) => Ok(convert::sandboxes(answer.stats)),
            Err(error) if error.is_unimplemented() => {
                self.coarse.send_replace(Some(asked));
                self.measured_containers().await
            }
            Err(error) => Err(error),
        }
    }

    async fn measured_containers(&self) -> Result<RuntimeMeasurements, RuntimeError> {
        let request = cri::ListContainerStatsRequest::default();
        let method = async |channel, request| runtime(channel).list_container_stats(request).await;
        let answer = self
            .idempotent("ListContainerStats", self.within, request, method)
            .await?;
        Ok(convert::containers(answer.stats))
    }

    /// The usage of the file systems of images and containers, as the runtime reports it.
    ///
    /// # Errors
    /// [`RuntimeError::Refused`] with the runtime's code, or [`RuntimeError::Unanswered`].
    pub async fn file_systems(&self) -> Result<FileSystems, RuntimeError> {
        let method = async |channel, request| images(channel).image_fs_info(request).await;
        let answer = self
            .idempotent(
                "ImageFsInfo",
                self.within,
                cri::ImageFsInfoRequest {},
                method,
            )
            .await?;
        let first = |list: Vec<_>| list.into_iter().next().map(convert::layer);
        Ok(FileSystems {
            images: first(answer.image_filesystems),
            containers: first(answer.container_filesystems),
        })
    }
}
