//! Reads the runtime's state: one pod in full, all pods from lists, and the event stream.

use std::collections::BTreeMap;

use futures_util::future::try_join_all;
use logic_api::pod::labels;
use logic_api::types::{
    ContainerId, PodUid, RuntimeContainer, RuntimePod, RuntimeSandbox, SandboxId,
};
use proto::cri;
use tonic::Streaming;

use super::{
    MemoryUse, RuntimeClient, RuntimeError, RuntimePodUpdate, convert, malformed, operations,
    runtime,
};

impl RuntimeClient {
    /// A pod from full statuses of its sandboxes and containers.
    pub async fn pod(&self, uid: &PodUid) -> Result<RuntimePod, RuntimeError> {
        let began = kernel::now();
        let pod = self.whole_pod(uid).await;
        let took = kernel::now().saturating_duration_since(began);
        metrics::runtime::pleg::POD_RELIST_DURATION.observe(took.as_secs_f64());
        pod
    }

    async fn whole_pod(&self, uid: &PodUid) -> Result<RuntimePod, RuntimeError> {
        let selector = BTreeMap::from([(labels::POD_UID.to_owned(), uid.as_str().to_owned())]);
        let (sandboxes, containers) = self.list(selector.into_iter().collect()).await?;
        let sandboxes = sandboxes
            .into_iter()
            .map(|sandbox| self.sandbox_status(sandbox.id.into()));
        let containers = containers.into_iter().map(async |container| {
            let status = self.container_status(container.id.into()).await?;
            Ok(status.map(|status| (SandboxId::from(container.pod_sandbox_id), status)))
        });
        let (sandboxes, containers) =
            futures_util::future::try_join(try_join_all(sandboxes), try_join_all(containers))
                .await?;
        let mut pod = convert::pod(
            sandboxes.into_iter().flatten(),
            containers.into_iter().flatten(),
        );
        pod.uid = uid.clone();
        Ok(pod)
    }

    /// Every pod that a kubelet made, from lists: ids, attempts and states.
    pub async fn pods(&self) -> Result<BTreeMap<PodUid, RuntimePod>, RuntimeError> {
        let (sandboxes, containers) = self.list(std::collections::HashMap::new()).await?;
        let mut pods: BTreeMap<PodUid, RuntimePod> = BTreeMap::new();
        for sandbox in sandboxes {
            convert::add_listed_sandbox(&mut pods, sandbox);
        }
        for container in containers {
            convert::add_listed_container(&mut pods, container);
        }
        for pod in pods.values_mut() {
            pod.sort();
        }
        Ok(pods)
    }

    /// Bytes of the working sets, by pod and container.
    pub async fn memory_use(&self) -> Result<MemoryUse, RuntimeError> {
        Ok(convert::memory_use(self.container_stats().await?))
    }

    /// Bytes of memory that count against limits, by pod and container.
    pub async fn memory_charged(&self) -> Result<MemoryUse, RuntimeError> {
        Ok(convert::memory_charged(self.container_stats().await?))
    }

    async fn container_stats(&self) -> Result<Vec<cri::ContainerStats>, RuntimeError> {
        let request = cri::ListContainerStatsRequest::default();
        let method = async |channel, request| runtime(channel).list_container_stats(request).await;
        let answer = self
            .idempotent("ListContainerStats", self.within, request, method)
            .await?;
        Ok(answer.stats)
    }

    /// The stream of container events, from now on.
    pub async fn events(&self) -> Result<RuntimeEvents, RuntimeError> {
        let mut client = runtime(self.line.channel());
        let began = kernel::now();
        let answer = client.get_container_events(cri::GetEventsRequest {}).await;
        operations::count("GetContainerEvents", began, &answer);
        let stream =
            answer.map_err(|status| RuntimeError::refused("GetContainerEvents", &status))?;
        self.features.forget();
        Ok(RuntimeEvents {
            stream: stream.into_inner(),
        })
    }

    async fn list(
        &self,
        selector: std::collections::HashMap<String, String>,
    ) -> Result<(Vec<cri::PodSandbox>, Vec<cri::Container>), RuntimeError> {
        let sandboxes = async {
            let request = cri::ListPodSandboxRequest {
                filter: Some(cri::PodSandboxFilter {
                    label_selector: selector.clone(),
                    ..Default::default()
                }),
            };
            self.idempotent(
                "ListPodSandbox",
                self.within,
                request,
                async |channel, request| runtime(channel).list_pod_sandbox(request).await,
            )
            .await
        };
        let containers = async {
            let request = cri::ListContainersRequest {
                filter: Some(cri::ContainerFilter {
                    label_selector: selector.clone(),
                    ..Default::default()
                }),
            };
            self.idempotent(
                "ListContainers",
                self.within,
                request,
                async |channel, request| runtime(channel).list_containers(request).await,
            )
            .await
        };
        let (sandboxes, containers) = futures_util::future::try_join(sandboxes, containers).await?;
        Ok((sandboxes.items, containers.containers))
    }

    /// The status of a sandbox; none if it was removed since it was listed.
    async fn sandbox_status(
        &self,
        id: SandboxId,
    ) -> Result<Option<cri::PodSandboxStatus>, RuntimeError> {
        let request = cri::PodSandboxStatusRequest {
            pod_sandbox_id: id.as_str().to_owned(),
            verbose: false,
        };
        let answer = self
            .idempotent(
                "PodSandboxStatus",
                self.within,
                request,
                async |channel, request| runtime(channel).pod_sandbox_status(request).await,
            )
            .await;
        match answer {
            Ok(answer) if answer.status.is_none() => {
                Err(malformed("PodSandboxStatus", "status", "a status"))
            }
            Ok(answer) => Ok(answer.status),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A sandbox with its addresses; none if it was removed.
    pub async fn sandbox(&self, id: &SandboxId) -> Result<Option<RuntimeSandbox>, RuntimeError> {
        let status = self.sandbox_status(id.clone()).await?;
        Ok(status.map(convert::sandbox))
    }

    /// A container without its sandbox, which its status does not name; none if there is no such container.
    pub async fn container(
        &self,
        id: &ContainerId,
    ) -> Result<Option<RuntimeContainer>, RuntimeError> {
        let status = self.container_status(id.clone()).await?;
        Ok(status.map(|status| {
            let name = status
                .metadata
                .as_ref()
                .map(|metadata| metadata.name.clone());
            convert::container(status, SandboxId::default(), name.unwrap_or_default())
        }))
    }

    /// The status of a container; none if it was removed since it was listed.
    async fn container_status(
        &self,
        id: ContainerId,
    ) -> Result<Option<cri::ContainerStatus>, RuntimeError> {
        let request = cri::ContainerStatusRequest {
            container_id: id.as_str().to_owned(),
            verbose: false,
        };
        let answer = self
            .idempotent(
                "ContainerStatus",
                self.within,
                request,
                async |channel, request| runtime(channel).container_status(request).await,
            )
            .await;
        match answer {
            Ok(answer) if answer.status.is_none() => {
                Err(malformed("ContainerStatus", "status", "a status"))
            }
            Ok(answer) => Ok(answer.status),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The runtime's event stream.
#[derive(Debug)]
pub struct RuntimeEvents {
    stream: Streaming<cri::ContainerEventResponse>,
}

impl RuntimeEvents {
    /// The next event of a pod; none at the end of the stream.
    pub async fn next(&mut self) -> Result<Option<RuntimePodUpdate>, RuntimeError> {
        loop {
            let event = self.stream.message().await;
            match event.map_err(|status| RuntimeError::refused("GetContainerEvents", &status))? {
                None => return Ok(None),
                Some(event) => {
                    operations::count_event(event.created_at);
                    if let Some((pod, removed)) = convert::event(event) {
                        let at = kernel::now();
                        return Ok(Some(RuntimePodUpdate { pod, removed, at }));
                    }
                }
            }
        }
    }
}
