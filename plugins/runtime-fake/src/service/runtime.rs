//! CRI's RuntimeService. As long as the protocol is; what takes more than a few lines is in `waits.rs`.

use std::collections::HashMap;
use std::sync::Arc;

use proto::cri::runtime_service_server::RuntimeService;
use proto::cri::*;
use tonic::{Request, Response, Status};

use crate::annotations::{SandboxTuning, Tuning};
use crate::convert;
use crate::rpc::Rpc;
use crate::service::{Answers, list, pieces, waits};
use crate::shared::{Shared, Subject};
use crate::stats;

/// Answers the calls of CRI's RuntimeService.
#[derive(Clone, Debug)]
pub struct RuntimeCalls {
    shared: Arc<Shared>,
}

impl RuntimeCalls {
    pub(crate) fn new(shared: Arc<Shared>) -> RuntimeCalls {
        RuntimeCalls { shared }
    }

    async fn refuse<T: Send>(&self, rpc: Rpc, why: &str) -> Result<Response<T>, Status> {
        let work = async {
            Err(Status::unimplemented(format!(
                "{} is not simulated: {why}",
                rpc.name()
            )))
        };
        self.shared.call(rpc, Subject::Nothing, work).await
    }
}

type Answer<T> = Result<Response<T>, Status>;

const NO_PROCESS: &str = "a simulated container has no process to write down";
const NO_METRICS: &str = "ask for stats";

#[tonic::async_trait]
impl RuntimeService for RuntimeCalls {
    type StreamPodSandboxesStream = Answers<StreamPodSandboxesResponse>;
    type StreamContainersStream = Answers<StreamContainersResponse>;
    type StreamContainerStatsStream = Answers<StreamContainerStatsResponse>;
    type StreamPodSandboxStatsStream = Answers<StreamPodSandboxStatsResponse>;
    type GetContainerEventsStream = Answers<ContainerEventResponse>;
    type StreamPodSandboxMetricsStream = Answers<StreamPodSandboxMetricsResponse>;

    async fn version(&self, _: Request<VersionRequest>) -> Answer<VersionResponse> {
        let answer = VersionResponse {
            version: "0.1.0".to_owned(),
            runtime_name: "oxlet-fake".to_owned(),
            runtime_version: env!("CARGO_PKG_VERSION").to_owned(),
            runtime_api_version: "v1".to_owned(),
        };
        self.shared
            .call(Rpc::Version, Subject::Nothing, async { Ok(answer) })
            .await
    }

    async fn run_pod_sandbox(
        &self,
        request: Request<RunPodSandboxRequest>,
    ) -> Answer<RunPodSandboxResponse> {
        let request = request.into_inner();
        let meta = request
            .config
            .as_ref()
            .and_then(|config| config.metadata.clone())
            .unwrap_or_default();
        let work = async {
            if let Some(config) = &request.config {
                let delay = SandboxTuning::of(&config.annotations)
                    .map_or_else(|_| Default::default(), |tuning| tuning.delay);
                waits::pause(delay).await;
            }
            Ok(RunPodSandboxResponse {
                pod_sandbox_id: self.shared.node().run_sandbox(request)?,
            })
        };
        let subject = Subject::Named(format!("{}/{}", meta.namespace, meta.name));
        self.shared.call(Rpc::RunPodSandbox, subject, work).await
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<StopPodSandboxRequest>,
    ) -> Answer<StopPodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        let work = async {
            self.shared.node().stop_sandbox(&id)?;
            Ok(StopPodSandboxResponse {})
        };
        self.shared
            .call(Rpc::StopPodSandbox, Subject::Sandbox(id.clone()), work)
            .await
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<RemovePodSandboxRequest>,
    ) -> Answer<RemovePodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        let work = async {
            self.shared.node().remove_sandbox(&id)?;
            Ok(RemovePodSandboxResponse {})
        };
        self.shared
            .call(Rpc::RemovePodSandbox, Subject::Sandbox(id.clone()), work)
            .await
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<PodSandboxStatusRequest>,
    ) -> Answer<PodSandboxStatusResponse> {
        let request = request.into_inner();
        let work = async {
            let node = self.shared.node();
            let (_, sandbox) = node.sandbox(&request.pod_sandbox_id)?;
            Ok(PodSandboxStatusResponse {
                status: Some(convert::sandbox_status(&node.state, sandbox)),
                info: if request.verbose {
                    convert::sandbox_info(sandbox)
                } else {
                    HashMap::new()
                },
                containers_statuses: convert::pod_statuses(&node.state, sandbox),
                timestamp: node.clock.now(),
            })
        };
        self.shared
            .call(
                Rpc::PodSandboxStatus,
                Subject::Sandbox(request.pod_sandbox_id.clone()),
                work,
            )
            .await
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<ListPodSandboxRequest>,
    ) -> Answer<ListPodSandboxResponse> {
        let filter = request.into_inner().filter;
        let work = async {
            Ok(ListPodSandboxResponse {
                items: list::sandboxes(&self.shared.node(), filter),
            })
        };
        self.shared
            .call(Rpc::ListPodSandbox, Subject::Nothing, work)
            .await
    }

    async fn stream_pod_sandboxes(
        &self,
        request: Request<StreamPodSandboxesRequest>,
    ) -> Answer<Self::StreamPodSandboxesStream> {
        let filter = request.into_inner().filter;
        let work = async {
            let items = list::sandboxes(&self.shared.node(), filter);
            Ok(pieces(items, |pod_sandboxes| StreamPodSandboxesResponse {
                pod_sandboxes,
            }))
        };
        self.shared
            .call(Rpc::StreamPodSandboxes, Subject::Nothing, work)
            .await
    }

    async fn create_container(
        &self,
        request: Request<CreateContainerRequest>,
    ) -> Answer<CreateContainerResponse> {
        let request = request.into_inner();
        let subject = waits::created_name(&self.shared, &request);
        let work = async {
            waits::pause(waits::create_delay(&self.shared, &request)).await;
            Ok(CreateContainerResponse {
                container_id: self.shared.node().create(request)?,
            })
        };
        self.shared.call(Rpc::CreateContainer, subject, work).await
    }

    async fn start_container(
        &self,
        request: Request<StartContainerRequest>,
    ) -> Answer<StartContainerResponse> {
        let id = request.into_inner().container_id;
        let work = async {
            let tuning: Result<Tuning, Status> = {
                let node = self.shared.node();
                node.container(&id)
                    .map(|(_, container)| node.tuning(container))
                    .map_err(Status::from)
            };
            waits::pause(tuning?.start_delay).await;
            self.shared.node().start(&id)?;
            Ok(StartContainerResponse {})
        };
        self.shared
            .call(Rpc::StartContainer, Subject::Container(id.clone()), work)
            .await
    }

    async fn stop_container(
        &self,
        request: Request<StopContainerRequest>,
    ) -> Answer<StopContainerResponse> {
        let request = request.into_inner();
        let subject = Subject::Container(request.container_id.clone());
        self.shared
            .call(
                Rpc::StopContainer,
                subject,
                waits::stop(&self.shared, request),
            )
            .await
    }

    async fn remove_container(
        &self,
        request: Request<RemoveContainerRequest>,
    ) -> Answer<RemoveContainerResponse> {
        let id = request.into_inner().container_id;
        let work = async {
            self.shared.node().remove(&id)?;
            Ok(RemoveContainerResponse {})
        };
        self.shared
            .call(Rpc::RemoveContainer, Subject::Container(id.clone()), work)
            .await
    }

    async fn list_containers(
        &self,
        request: Request<ListContainersRequest>,
    ) -> Answer<ListContainersResponse> {
        let filter = request.into_inner().filter;
        let work = async {
            Ok(ListContainersResponse {
                containers: list::containers(&self.shared.node(), filter),
            })
        };
        self.shared
            .call(Rpc::ListContainers, Subject::Nothing, work)
            .await
    }

    async fn stream_containers(
        &self,
        request: Request<StreamContainersRequest>,
    ) -> Answer<Self::StreamContainersStream> {
        let filter = request.into_inner().filter;
        let work = async {
            let items = list::containers(&self.shared.node(), filter);
            Ok(pieces(items, |containers| StreamContainersResponse {
                containers,
            }))
        };
        self.shared
            .call(Rpc::StreamContainers, Subject::Nothing, work)
            .await
    }

    async fn container_status(
        &self,
        request: Request<ContainerStatusRequest>,
    ) -> Answer<ContainerStatusResponse> {
        let request = request.into_inner();
        let work = async {
            let node = self.shared.node();
            let (_, container) = node.container(&request.container_id)?;
            Ok(ContainerStatusResponse {
                status: Some(convert::container_status(&node.state, container)),
                info: if request.verbose {
                    convert::container_info(&node.state, container)
                } else {
                    HashMap::new()
                },
            })
        };
        self.shared
            .call(
                Rpc::ContainerStatus,
                Subject::Container(request.container_id.clone()),
                work,
            )
            .await
    }

    async fn update_container_resources(
        &self,
        request: Request<UpdateContainerResourcesRequest>,
    ) -> Answer<UpdateContainerResourcesResponse> {
        let request = request.into_inner();
        let subject = Subject::Container(request.container_id.clone());
        let work = async {
            self.shared.node().update(request)?;
            Ok(UpdateContainerResourcesResponse {})
        };
        self.shared
            .call(Rpc::UpdateContainerResources, subject, work)
            .await
    }

    async fn reopen_container_log(
        &self,
        request: Request<ReopenContainerLogRequest>,
    ) -> Answer<ReopenContainerLogResponse> {
        let id = request.into_inner().container_id;
        let work = async {
            self.shared.node().reopen_log(&id)?;
            Ok(ReopenContainerLogResponse {})
        };
        self.shared
            .call(
                Rpc::ReopenContainerLog,
                Subject::Container(id.clone()),
                work,
            )
            .await
    }

    async fn exec_sync(&self, request: Request<ExecSyncRequest>) -> Answer<ExecSyncResponse> {
        let request = request.into_inner();
        let subject = Subject::Container(request.container_id.clone());
        self.shared
            .call(Rpc::ExecSync, subject, waits::exec(&self.shared, request))
            .await
    }

    async fn exec(&self, request: Request<ExecRequest>) -> Answer<ExecResponse> {
        let request = request.into_inner();
        let subject = Subject::Container(request.container_id.clone());
        let work = async {
            let url = waits::exec_url(&self.shared, request).await?;
            Ok(ExecResponse { url })
        };
        self.shared.call(Rpc::Exec, subject, work).await
    }

    async fn attach(&self, request: Request<AttachRequest>) -> Answer<AttachResponse> {
        let request = request.into_inner();
        let subject = Subject::Container(request.container_id.clone());
        let work = async {
            let url = waits::attach_url(&self.shared, request).await?;
            Ok(AttachResponse { url })
        };
        self.shared.call(Rpc::Attach, subject, work).await
    }

    async fn port_forward(
        &self,
        request: Request<PortForwardRequest>,
    ) -> Answer<PortForwardResponse> {
        let request = request.into_inner();
        let subject = Subject::Sandbox(request.pod_sandbox_id.clone());
        let work = async {
            let url = waits::forward_url(&self.shared, request).await?;
            Ok(PortForwardResponse { url })
        };
        self.shared.call(Rpc::PortForward, subject, work).await
    }

    async fn container_stats(
        &self,
        request: Request<ContainerStatsRequest>,
    ) -> Answer<ContainerStatsResponse> {
        let id = request.into_inner().container_id;
        let work = async {
            let node = self.shared.node();
            let (_, container) = node.container(&id)?;
            Ok(ContainerStatsResponse {
                stats: Some(stats::container(&node, container, &self.shared.mountpoint)),
            })
        };
        self.shared
            .call(Rpc::ContainerStats, Subject::Container(id.clone()), work)
            .await
    }

    async fn list_container_stats(
        &self,
        request: Request<ListContainerStatsRequest>,
    ) -> Answer<ListContainerStatsResponse> {
        let filter = request.into_inner().filter;
        let work = async {
            let stats = list::container_stats(&self.shared.node(), filter, &self.shared.mountpoint);
            Ok(ListContainerStatsResponse { stats })
        };
        self.shared
            .call(Rpc::ListContainerStats, Subject::Nothing, work)
            .await
    }

    async fn stream_container_stats(
        &self,
        request: Request<StreamContainerStatsRequest>,
    ) -> Answer<Self::StreamContainerStatsStream> {
        let filter = request.into_inner().filter;
        let work = async {
            let items = list::container_stats(&self.shared.node(), filter, &self.shared.mountpoint);
            Ok(pieces(items, |container_stats| {
                StreamContainerStatsResponse { container_stats }
            }))
        };
        self.shared
            .call(Rpc::StreamContainerStats, Subject::Nothing, work)
            .await
    }

    async fn pod_sandbox_stats(
        &self,
        request: Request<PodSandboxStatsRequest>,
    ) -> Answer<PodSandboxStatsResponse> {
        let id = request.into_inner().pod_sandbox_id;
        let work = async {
            let node = self.shared.node();
            let (_, sandbox) = node.sandbox(&id)?;
            Ok(PodSandboxStatsResponse {
                stats: Some(stats::sandbox(&node, sandbox, &self.shared.mountpoint)),
            })
        };
        self.shared
            .call(Rpc::PodSandboxStats, Subject::Sandbox(id.clone()), work)
            .await
    }

    async fn list_pod_sandbox_stats(
        &self,
        request: Request<ListPodSandboxStatsRequest>,
    ) -> Answer<ListPodSandboxStatsResponse> {
        let filter = request.into_inner().filter;
        let work = async {
            let stats = list::sandbox_stats(&self.shared.node(), filter, &self.shared.mountpoint);
            Ok(ListPodSandboxStatsResponse { stats })
        };
        self.shared
            .call(Rpc::ListPodSandboxStats, Subject::Nothing, work)
            .await
    }

    async fn stream_pod_sandbox_stats(
        &self,
        request: Request<StreamPodSandboxStatsRequest>,
    ) -> Answer<Self::StreamPodSandboxStatsStream> {
        let filter = request.into_inner().filter;
        let work = async {
            let items = list::sandbox_stats(&self.shared.node(), filter, &self.shared.mountpoint);
            Ok(pieces(items, |pod_sandbox_stats| {
                StreamPodSandboxStatsResponse { pod_sandbox_stats }
            }))
        };
        self.shared
            .call(Rpc::StreamPodSandboxStats, Subject::Nothing, work)
            .await
    }

    async fn update_runtime_config(
        &self,
        _: Request<UpdateRuntimeConfigRequest>,
    ) -> Answer<UpdateRuntimeConfigResponse> {
        // The pod range is the plugin's own setting; containerd with a CNI configuration ignores it too.
        let work = async { Ok(UpdateRuntimeConfigResponse {}) };
        self.shared
            .call(Rpc::UpdateRuntimeConfig, Subject::Nothing, work)
            .await
    }

    async fn status(&self, request: Request<StatusRequest>) -> Answer<StatusResponse> {
        let verbose = request.into_inner().verbose;
        self.shared
            .call(Rpc::Status, Subject::Nothing, async {
                Ok(waits::status(&self.shared, verbose))
            })
            .await
    }

    async fn checkpoint_container(
        &self,
        request: Request<CheckpointContainerRequest>,
    ) -> Answer<CheckpointContainerResponse> {
        let request = request.into_inner();
        let id = request.container_id;
        let work = async {
            self.shared.node().checkpoint(&id, &request.location)?;
            Ok(CheckpointContainerResponse {})
        };
        let subject = Subject::Container(id.clone());
        self.shared
            .call(Rpc::CheckpointContainer, subject, work)
            .await
    }

    async fn checkpoint_pod(
        &self,
        _: Request<CheckpointPodRequest>,
    ) -> Answer<CheckpointPodResponse> {
        self.refuse(Rpc::CheckpointPod, NO_PROCESS).await
    }

    async fn restore_pod(&self, _: Request<RestorePodRequest>) -> Answer<RestorePodResponse> {
        self.refuse(Rpc::RestorePod, NO_PROCESS).await
    }

    async fn get_container_events(
        &self,
        _: Request<GetEventsRequest>,
    ) -> Answer<Self::GetContainerEventsStream> {
        let work = async { Ok(waits::events(self.shared.node().subscribe())) };
        self.shared
            .call(Rpc::GetContainerEvents, Subject::Nothing, work)
            .await
    }

    async fn list_metric_descriptors(
        &self,
        _: Request<ListMetricDescriptorsRequest>,
    ) -> Answer<ListMetricDescriptorsResponse> {
        self.refuse(Rpc::ListMetricDescriptors, NO_METRICS).await
    }

    async fn list_pod_sandbox_metrics(
        &self,
        _: Request<ListPodSandboxMetricsRequest>,
    ) -> Answer<ListPodSandboxMetricsResponse> {
        self.refuse(Rpc::ListPodSandboxMetrics, NO_METRICS).await
    }

    async fn stream_pod_sandbox_metrics(
        &self,
        _: Request<StreamPodSandboxMetricsRequest>,
    ) -> Answer<Self::StreamPodSandboxMetricsStream> {
        self.refuse(Rpc::StreamPodSandboxMetrics, NO_METRICS).await
    }

    async fn runtime_config(
        &self,
        _: Request<RuntimeConfigRequest>,
    ) -> Answer<RuntimeConfigResponse> {
        let linux = LinuxRuntimeConfiguration {
            cgroup_driver: CgroupDriver::Cgroupfs.into(),
        };
        let work = async { Ok(RuntimeConfigResponse { linux: Some(linux) }) };
        self.shared
            .call(Rpc::RuntimeConfig, Subject::Nothing, work)
            .await
    }

    async fn update_pod_sandbox_resources(
        &self,
        request: Request<UpdatePodSandboxResourcesRequest>,
    ) -> Answer<UpdatePodSandboxResourcesResponse> {
        let request = request.into_inner();
        let id = request.pod_sandbox_id;
        let work = async {
            self.shared
                .node()
                .update_sandbox(&id, request.overhead, request.resources)?;
            Ok(UpdatePodSandboxResourcesResponse {})
        };
        self.shared
            .call(
                Rpc::UpdatePodSandboxResources,
                Subject::Sandbox(id.clone()),
                work,
            )
            .await
    }
}
