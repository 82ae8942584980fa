//! The runtime's stats of sandboxes and containers, and of its file systems.

use futures_util::stream::{self, StreamExt};
use logic_resources::summary::pods::{RuntimeContainerStats, RuntimeMeasurements, WritableLayer};
use proto::cri;

use super::{RuntimeClient, RuntimeError, convert, images, runtime};

/// Sandboxes that are measured side by side, where the runtime does not measure them all in one call.
const STATS_AT_ONCE: usize = 8;

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
            return Ok(RuntimeMeasurements::Containers(
                self.measured_containers().await?,
            ));
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
                let containers = self.measured_containers().await?;
                Ok(RuntimeMeasurements::Containers(containers))
            }
            Err(error @ RuntimeError::Refused { .. }) if !error.is_deadline() => {
                self.measured_one_by_one(error).await
            }
            Err(error) => Err(error),
        }
    }

    /// Stats of each ready sandbox that has any. containerd before 2.0 refuses the whole list for one sandbox that has
    /// ended.
    ///
    /// # Errors
    /// `refusal`, where no sandbox can be measured either.
    async fn measured_one_by_one(
        &self,
        refusal: RuntimeError,
    ) -> Result<RuntimeMeasurements, RuntimeError> {
        let ready = self.ready_sandboxes().await?;
        let asked = ready.len();
        let answers = stream::iter(ready)
            .map(async |id| self.sandbox_stats(&id).await)
            .buffered(STATS_AT_ONCE);
        let found: Vec<_> = answers.filter_map(async |stats| stats).collect().await;
        if found.is_empty() && asked > 0 {
            return Err(refusal);
        }
        tracing::debug!(
            "{} of {asked} sandboxes measured one by one: {}",
            found.len(),
            refusal.describe()
        );
        Ok(convert::sandboxes(found))
    }

    async fn ready_sandboxes(&self) -> Result<Vec<String>, RuntimeError> {
        let ready = cri::PodSandboxStateValue {
            state: cri::PodSandboxState::SandboxReady.into(),
        };
        let request = cri::ListPodSandboxRequest {
            filter: Some(cri::PodSandboxFilter {
                state: Some(ready),
                ..Default::default()
            }),
        };
        let method = async |channel, request| runtime(channel).list_pod_sandbox(request).await;
        let answer = self
            .idempotent("ListPodSandbox", self.within, request, method)
            .await?;
        Ok(answer.items.into_iter().map(|sandbox| sandbox.id).collect())
    }

    /// The sandbox's stats; none where it has ended meanwhile, or the runtime cannot measure it.
    async fn sandbox_stats(&self, id: &str) -> Option<cri::PodSandboxStats> {
        let request = cri::PodSandboxStatsRequest {
            pod_sandbox_id: id.to_owned(),
        };
        let method = async |channel, request| runtime(channel).pod_sandbox_stats(request).await;
        let answer = self
            .idempotent("PodSandboxStats", self.within, request, method)
            .await;
        match answer {
            Ok(answer) => answer.stats,
            Err(error) => {
                tracing::debug!(sandbox = id, "no stats: {}", error.describe());
                None
            }
        }
    }

    /// Stats of every container, its writable layer among them.
    ///
    /// # Errors
    /// [`RuntimeError::Refused`] with the runtime's code, or [`RuntimeError::Unanswered`].
    pub async fn measured_containers(&self) -> Result<Vec<RuntimeContainerStats>, RuntimeError> {
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
