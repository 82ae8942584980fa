//! CRI's RuntimeService. One short method a call; calls that wait, and longer ones, are in `blocking.rs`.

use std::collections::HashMap;
use std::sync::Arc;

use cri_server::StreamingRequest;
use cri_server::list::{ResponseStream, pages};
use proto::cri::runtime_service_server::RuntimeService;
use proto::cri::*;
use tonic::{Request, Response, Status};

use crate::node::{metrics, stats};
use crate::rpc::Rpc;
use crate::service::{blocking, list};
use crate::settings::CgroupDriverSetting;
use crate::settings::annotations::{ContainerTuning, SandboxTuning};
use crate::shared::{FaultSubject, SharedNode};
use crate::state::convert;

/// Serves CRI's RuntimeService.
#[derive(Clone, Debug)]
pub struct RuntimeCalls {
    shared: Arc<SharedNode>,
}

impl RuntimeCalls {
    pub(crate) fn new(shared: Arc<SharedNode>) -> RuntimeCalls {
        RuntimeCalls { shared }
    }

    async fn refuse<T: Send>(&self, rpc: Rpc, why: &str) -> Result<Response<T>, Status> {
        let work = async {
            Err(Status::unimplemented(format!(
                "{} is not simulated: {why}",
                rpc.name()
            )))
        };
        self.shared.call(rpc, FaultSubject::Nothing, work).await
    }
}

type RpcResult<T> = Result<Response<T>, Status>;

const NO_PROCESS: &str = "a simulated container has no process to write down";

#[tonic::async_trait]
impl RuntimeService for RuntimeCalls {
    type StreamPodSandboxesStream = ResponseStream<StreamPodSandboxesResponse>;
    type StreamContainersStream = ResponseStream<StreamContainersResponse>;
    type StreamContainerStatsStream = ResponseStream<StreamContainerStatsResponse>;
    type StreamPodSandboxStatsStream = ResponseStream<StreamPodSandboxStatsResponse>;
    type GetContainerEventsStream = ResponseStream<ContainerEventResponse>;
    type StreamPodSandboxMetricsStream = ResponseStream<StreamPodSandboxMetricsResponse>;

    async fn version(&self, _: Request<VersionRequest>) -> RpcResult<VersionResponse> {
        let answer = VersionResponse {
            version: "0.1.0".to_owned(),
            runtime_name: "oxlet-fake".to_owned(),
            runtime_version: env!("CARGO_PKG_VERSION").to_owned(),
            runtime_api_version: "v1".to_owned(),
        };
        self.shared
            .call(Rpc::Version, FaultSubject::Nothing, async { Ok(answer) })
            .await
    }

    async fn run_pod_sandbox(
        &self,
        request: Request<RunPodSandboxRequest>,
    ) -> RpcResult<RunPodSandboxResponse> {
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
                blocking::pause(delay).await;
            }
            Ok(RunPodSandboxResponse {
                pod_sandbox_id: self.shared.node().run_sandbox(request)?,
            })
        };
        let subject = FaultSubject::Named(format!("{}/{}", meta.namespace, meta.name));
        self.shared.call(Rpc::RunPodSandbox, subject, work).await
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<StopPodSandboxRequest>,
    ) -> RpcResult<StopPodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        let work = async {
            self.shared.node().stop_sandbox(&id)?;
            Ok(StopPodSandboxResponse {})
        };
        self.shared
            .call(Rpc::StopPodSandbox, FaultSubject::Sandbox(id.clone()), work)
            .await
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<RemovePodSandboxRequest>,
    ) -> RpcResult<RemovePodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        let work = async {
            self.shared.node().remove_sandbox(&id)?;
            Ok(RemovePodSandboxResponse {})
        };
        self.shared
            .call(
                Rpc::RemovePodSandbox,
                FaultSubject::Sandbox(id.clone()),
                work,
            )
            .await
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<PodSandboxStatusRequest>,
    ) -> RpcResult<PodSandboxStatusResponse> {
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
                FaultSubject::Sandbox(request.pod_sandbox_id.clone()),
                work,
            )
            .await
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<ListPodSandboxRequest>,
    ) -> RpcResult<ListPodSandboxResponse> {
        let filter = request.into_inner().filter;
        let work = async {
            Ok(ListPodSandboxResponse {
                items: list::sandboxes(&self.shared.node(), filter),
            })
        };
        self.shared
            .call(Rpc::ListPodSandbox, FaultSubject::Nothing, work)
            .await
    }

    async fn stream_pod_sandboxes(
        &self,
        request: Request<StreamPodSandboxesRequest>,
    ) -> RpcResult<Self::StreamPodSandboxesStream> {
        let filter = request.into_inner().filter;
        let work = async {
            let items = list::sandboxes(&self.shared.node(), filter);
            Ok(pages(items, |pod_sandboxes| StreamPodSandboxesResponse {
                pod_sandboxes,
            }))
        };
        self.shared
            .call(Rpc::StreamPodSandboxes, FaultSubject::Nothing, work)
            .await
    }

    async fn create_container(
        &self,
        request: Request<CreateContainerRequest>,
    ) -> RpcResult<CreateContainerResponse> {
        let request = request.into_inner();
        let subject = blocking::created_name(&self.shared, &request);
        let work = async {
            blocking::pause(blocking::create_delay(&self.shared, &request)).await;
            Ok(CreateContainerResponse {
                container_id: self.shared.node().create(request)?,
            })
        };
        self.shared.call(Rpc::CreateContainer, subject, work).await
    }

    async fn start_container(
        &self,
        request: Request<StartContainerRequest>,
    ) -> RpcResult<StartContainerResponse> {
        let id = request.into_inner().container_id;
        let work = async {
            let tuning: Result<ContainerTuning, Status> = {
                let node = self.shared.node();
                node.container(&id)
                    .map(|(_, container)| node.tuning(container))
                    .map_err(Status::from)
            };
            blocking::pause(tuning?.start_delay).await;
            self.shared.node().start(&id)?;
            Ok(StartContainerResponse {})
        };
        self.shared
            .call(
                Rpc::StartContainer,
                FaultSubject::Container(id.clone()),
                work,
            )
            .await
    }

    async fn stop_container(
        &self,
        request: Request<StopContainerRequest>,
    ) -> RpcResult<StopContainerResponse> {
        let request = request.into_inner();
        let subject = FaultSubject::Container(request.container_id.clone());
        self.shared
            .call(
                Rpc::StopContainer,
                subject,
                blocking::stop(&self.shared, request),
            )
            .await
    }

    async fn remove_container(
        &self,
        request: Request<RemoveContainerRequest>,
    ) -> RpcResult<RemoveContainerResponse> {
        let id = request.into_inner().container_id;
        let work = async {
            self.shared.node().remove(&id)?;
            Ok(RemoveContainerResponse {})
        };
        self.shared
            .call(
                Rpc::RemoveContainer,
                FaultSubject::Container(id.clone()),
                work,
            )
            .await
    }

    async fn list_containers(
        &self,
        request: Request<ListContainersRequest>,
    ) -> RpcResult<ListContainersResponse> {
        let filter = request.into_inner().filter;
        let work = async {
            Ok(ListContainersResponse {
                containers: list::containers(&self.shared.node(), filter),
            })
        };
        self.shared
            .call(Rpc::ListContainers, FaultSubject::Nothing, work)
            .await
    }

    async fn stream_containers(
        &self,
        request: Request<StreamContainersRequest>,
    ) -> RpcResult<Self::StreamContainersStream> {
        let filter = request.into_inner().filter;
        let work = async {
            let items = list::containers(&self.shared.node(), filter);
            Ok(pages(items, |containers| StreamContainersResponse {
                containers,
            }))
        };
        self.shared
            .call(Rpc::StreamContainers, FaultSubject::Nothing, work)
            .await
    }

    async fn container_status(
        &self,
        request: Request<ContainerStatusRequest>,
    ) -> RpcResult<ContainerStatusResponse> {
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
                FaultSubject::Container(request.container_id.clone()),
                work,
            )
            .await
    }

    async fn update_container_resources(
        &self,
        request: Request<UpdateContainerResourcesRequest>,
    ) -> RpcResult<UpdateContainerResourcesResponse> {
        let request = request.into_inner();
        let subject = FaultSubject::Container(request.container_id.clone());
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
    ) -> RpcResult<ReopenContainerLogResponse> {
        let id = request.into_inner().container_id;
        let work = async {
            self.shared.node().reopen_log(&id)?;
            Ok(ReopenContainerLogResponse {})
        };
        self.shared
            .call(
                Rpc::ReopenContainerLog,
                FaultSubject::Container(id.clone()),
                work,
            )
            .await
    }

    async fn exec_sync(&self, request: Request<ExecSyncRequest>) -> RpcResult<ExecSyncResponse> {
        let request = request.into_inner();
        let subject = FaultSubject::Container(request.container_id.clone());
        self.shared
            .call(
                Rpc::ExecSync,
                subject,
                blocking::exec(&self.shared, request),
            )
            .await
    }

    async fn exec(&self, request: Request<ExecRequest>) -> RpcResult<ExecResponse> {
        let request = request.into_inner();
        let subject = FaultSubject::Container(request.container_id.clone());
        let work = async {
            let request = StreamingRequest::Exec(request);
            let url = blocking::streaming_url(&self.shared, request).await?;
            Ok(ExecResponse { url })
        };
        self.shared.call(Rpc::Exec, subject, work).await
    }

    async fn attach(&self, request: Request<AttachRequest>) -> RpcResult<AttachResponse> {
        let request = request.into_inner();
        let subject = FaultSubject::Container(request.container_id.clone());
        let work = async {
            let request = StreamingRequest::Attach(request);
            let url = blocking::streaming_url(&self.shared, request).await?;
            Ok(AttachResponse { url })
        };
        self.shared.call(Rpc::Attach, subject, work).await
    }

    async fn port_forward(
        &self,
        request: Request<PortForwardRequest>,
    ) -> RpcResult<PortForwardResponse> {
        let request = request.into_inner();
        let subject = FaultSubject::Sandbox(request.pod_sandbox_id.clone());
        let work = async {
            let request = StreamingRequest::PortForward(request);
            let url = blocking::streaming_url(&self.shared, request).await?;
            Ok(PortForwardResponse { url })
        };
        self.shared.call(Rpc::PortForward, subject, work).await
    }

    async fn container_stats(
        &self,
        request: Request<ContainerStatsRequest>,
    ) -> RpcResult<ContainerStatsResponse> {
        let id = request.into_inner().container_id;
        let work = async {
            let node = self.shared.node();
            let (_, container) = node.container(&id)?;
            Ok(ContainerStatsResponse {
                stats: Some(stats::container(&node, container, &self.shared.mountpoint)),
            })
        };
        self.shared
            .call(
                Rpc::ContainerStats,
                FaultSubject::Container(id.clone()),
                work,
            )
            .await
    }

    async fn list_container_stats(
        &self,
        request: Request<ListContainerStatsRequest>,
    ) -> RpcResult<ListContainerStatsResponse> {
        let filter = request.into_inner().filter;
        let work = async {
            let stats = list::container_stats(&self.shared.node(), filter, &self.shared.mountpoint);
            Ok(ListContainerStatsResponse { stats })
        };
        self.shared
            .call(Rpc::ListContainerStats, FaultSubject::Nothing, work)
            .await
    }

    async fn stream_container_stats(
        &self,
        request: Request<StreamContainerStatsRequest>,
    ) -> RpcResult<Self::StreamContainerStatsStream> {
        let filter = request.into_inner().filter;
        let work = async {
            let items = list::container_stats(&self.shared.node(), filter, &self.shared.mountpoint);
            Ok(pages(items, |container_stats| {
                StreamContainerStatsResponse { container_stats }
            }))
        };
        self.shared
            .call(Rpc::StreamContainerStats, FaultSubject::Nothing, work)
            .await
    }

    async fn pod_sandbox_stats(
        &self,
        request: Request<PodSandboxStatsRequest>,
    ) -> RpcResult<PodSandboxStatsResponse> {
        let id = request.into_inner().pod_sandbox_id;
        let work = async {
            let node = self.shared.node();
            let (_, sandbox) = node.sandbox(&id)?;
            Ok(PodSandboxStatsResponse {
                stats: Some(stats::sandbox(&node, sandbox, &self.shared.mountpoint)),
            })
        };
        self.shared
            .call(
                Rpc::PodSandboxStats,
                FaultSubject::Sandbox(id.clone()),
                work,
            )
            .await
    }

    async fn list_pod_sandbox_stats(
        &self,
        request: Request<ListPodSandboxStatsRequest>,
    ) -> RpcResult<ListPodSandboxStatsResponse> {
        let filter = request.into_inner().filter;
        let work = async {
            let stats = list::sandbox_stats(&self.shared.node(), filter, &self.shared.mountpoint);
            Ok(ListPodSandboxStatsResponse { stats })
        };
        self.shared
            .call(Rpc::ListPodSandboxStats, FaultSubject::Nothing, work)
            .await
    }

    async fn stream_pod_sandbox_stats(
        &self,
        request: Request<StreamPodSandboxStatsRequest>,
    ) -> RpcResult<Self::StreamPodSandboxStatsStream> {
        let filter = request.into_inner().filter;
        let work = async {
            let items = list::sandbox_stats(&self.shared.node(), filter, &self.shared.mountpoint);
            Ok(pages(items, |pod_sandbox_stats| {
                StreamPodSandboxStatsResponse { pod_sandbox_stats }
            }))
        };
        self.shared
            .call(Rpc::StreamPodSandboxStats, FaultSubject::Nothing, work)
            .await
    }

    async fn update_runtime_config(
        &self,
        _: Request<UpdateRuntimeConfigRequest>,
    ) -> RpcResult<UpdateRuntimeConfigResponse> {
        // The pod range is the plugin's own setting; containerd with a CNI configuration ignores it too.
        let work = async { Ok(UpdateRuntimeConfigResponse {}) };
        self.shared
            .call(Rpc::UpdateRuntimeConfig, FaultSubject::Nothing, work)
            .await
    }

    async fn status(&self, request: Request<StatusRequest>) -> RpcResult<StatusResponse> {
        let verbose = request.into_inner().verbose;
        self.shared
            .call(Rpc::Status, FaultSubject::Nothing, async {
                Ok(blocking::status(&self.shared, verbose))
            })
            .await
    }

    async fn checkpoint_container(
        &self,
        request: Request<CheckpointContainerRequest>,
    ) -> RpcResult<CheckpointContainerResponse> {
        let request = request.into_inner();
        let id = request.container_id;
        let work = async {
            self.shared.node().checkpoint(&id, &request.location)?;
            Ok(CheckpointContainerResponse {})
        };
        let subject = FaultSubject::Container(id.clone());
        self.shared
            .call(Rpc::CheckpointContainer, subject, work)
            .await
    }

    async fn checkpoint_pod(
        &self,
        _: Request<CheckpointPodRequest>,
    ) -> RpcResult<CheckpointPodResponse> {
        self.refuse(Rpc::CheckpointPod, NO_PROCESS).await
    }

    async fn restore_pod(&self, _: Request<RestorePodRequest>) -> RpcResult<RestorePodResponse> {
        self.refuse(Rpc::RestorePod, NO_PROCESS).await
    }

    async fn get_container_events(
        &self,
        _: Request<GetEventsRequest>,
    ) -> RpcResult<Self::GetContainerEventsStream> {
        let work = async { Ok(blocking::events(self.shared.node().subscribe())) };
        self.shared
            .call(Rpc::GetContainerEvents, FaultSubject::Nothing, work)
            .await
    }

    async fn list_metric_descriptors(
        &self,
        _: Request<ListMetricDescriptorsRequest>,
    ) -> RpcResult<ListMetricDescriptorsResponse> {
        let work = async {
            Ok(ListMetricDescriptorsResponse {
                descriptors: metrics::descriptors(),
            })
        };
        self.shared
            .call(Rpc::ListMetricDescriptors, FaultSubject::Nothing, work)
            .await
    }

    async fn list_pod_sandbox_metrics(
        &self,
        _: Request<ListPodSandboxMetricsRequest>,
    ) -> RpcResult<ListPodSandboxMetricsResponse> {
        let work = async {
            let node = self.shared.node();
            Ok(ListPodSandboxMetricsResponse {
                pod_metrics: list::sandbox_metrics(&node),
            })
        };
        self.shared
            .call(Rpc::ListPodSandboxMetrics, FaultSubject::Nothing, work)
            .await
    }

    async fn stream_pod_sandbox_metrics(
        &self,
        _: Request<StreamPodSandboxMetricsRequest>,
    ) -> RpcResult<Self::StreamPodSandboxMetricsStream> {
        let work = async {
            let items = list::sandbox_metrics(&self.shared.node());
            Ok(pages(items, |pod_sandbox_metrics| {
                StreamPodSandboxMetricsResponse {
                    pod_sandbox_metrics,
                }
            }))
        };
        self.shared
            .call(Rpc::StreamPodSandboxMetrics, FaultSubject::Nothing, work)
            .await
    }

    async fn runtime_config(
        &self,
        _: Request<RuntimeConfigRequest>,
    ) -> RpcResult<RuntimeConfigResponse> {
        let driver = match self.shared.faults().cgroup_driver() {
            CgroupDriverSetting::Cgroupfs => CgroupDriver::Cgroupfs,
            CgroupDriverSetting::Systemd => CgroupDriver::Systemd,
        };
        let linux = LinuxRuntimeConfiguration {
            cgroup_driver: driver.into(),
        };
        let work = async { Ok(RuntimeConfigResponse { linux: Some(linux) }) };
        self.shared
            .call(Rpc::RuntimeConfig, FaultSubject::Nothing, work)
            .await
    }

    async fn update_pod_sandbox_resources(
        &self,
        request: Request<UpdatePodSandboxResourcesRequest>,
    ) -> RpcResult<UpdatePodSandboxResourcesResponse> {
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
                FaultSubject::Sandbox(id.clone()),
                work,
            )
            .await
    }
}
