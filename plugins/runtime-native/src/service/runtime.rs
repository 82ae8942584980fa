//! CRI's RuntimeService.
//!
//! What changes something goes on when its caller goes away: it runs in a task of its own, so that a cancelled call
//! leaves nothing half made.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cri_server::list::{ResponseStream, pages};
use cri_server::{StreamingRequest, StreamingServer};
use proto::cri::runtime_service_server::RuntimeService;
use proto::cri::*;
use serde_json::json;
use tokio::sync::OnceCell;
use tokio::sync::broadcast::error::RecvError;
use tonic::{Request, Response, Status};

use super::streams::{self, NativeStreams};
use super::{list, status};
use crate::error::CallError;
use crate::node::Node;
use crate::record::convert;
use crate::stats;

/// Serves CRI's RuntimeService.
#[derive(Clone, Debug)]
pub struct RuntimeCalls {
    node: Arc<Node>,
    streaming: Arc<OnceCell<StreamingServer>>,
}

type RpcResult<T> = Result<Response<T>, Status>;

const NO_CHECKPOINTS: &str = "checkpoints of whole pods are not supported by this runtime";

impl RuntimeCalls {
    pub(crate) fn new(node: Arc<Node>) -> RuntimeCalls {
        RuntimeCalls {
            node,
            streaming: Arc::default(),
        }
    }

    /// Does work that goes on when the caller goes away.
    async fn detached<T, F>(&self, work: impl FnOnce(Arc<Node>) -> F) -> Result<T, Status>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, CallError>> + Send + 'static,
    {
        match tokio::spawn(work(self.node.clone())).await {
            Ok(done) => Ok(done?),
            Err(panic) => Err(Status::internal(format!("the call broke off: {panic}"))),
        }
    }

    /// Returns the URL under which a client may connect for this request, once; the first one starts the server.
    async fn url(&self, request: StreamingRequest) -> Result<String, Status> {
        request.validate()?;
        streams::check(&self.node, &request)?;
        let start = || StreamingServer::start(NativeStreams(Arc::downgrade(&self.node)));
        let server = self.streaming.get_or_try_init(start).await;
        let server = server
            .map_err(|error| Status::internal(format!("cannot listen for streams: {error}")))?;
        server.url(request)
    }

    async fn pod_stats(
        &self,
        filter: Option<PodSandboxStatsFilter>,
    ) -> Result<Vec<PodSandboxStats>, Status> {
        let mut all = Vec::new();
        for sandbox in list::measured_pods(&self.node, filter) {
            all.push(self.node.sandbox_stats(&sandbox).await?);
        }
        Ok(all)
    }

    async fn pod_metrics(&self) -> Result<Vec<PodSandboxMetrics>, Status> {
        let mut all = Vec::new();
        for sandbox in list::measured_pods(&self.node, None) {
            all.push(self.node.pod_metrics(&sandbox).await?);
        }
        Ok(all)
    }
}

/// Returns the events from now on. A reader that is too slow gets an error, and its stream ends.
fn events(node: &Node) -> ResponseStream<ContainerEventResponse> {
    let from = node.subscribe();
    Box::pin(futures_util::stream::unfold(
        Some(from),
        |from| async move {
            let mut from = from?;
            match from.recv().await {
                Ok(event) => Some((Ok(ContainerEventResponse::clone(&event)), Some(from))),
                Err(RecvError::Lagged(missed)) => {
                    let why = format!("the reader is too slow: {missed} events are lost to it");
                    Some((Err(Status::data_loss(why)), None))
                }
                Err(RecvError::Closed) => None,
            }
        },
    ))
}

#[tonic::async_trait]
impl RuntimeService for RuntimeCalls {
    type StreamPodSandboxesStream = ResponseStream<StreamPodSandboxesResponse>;
    type StreamContainersStream = ResponseStream<StreamContainersResponse>;
    type StreamContainerStatsStream = ResponseStream<StreamContainerStatsResponse>;
    type StreamPodSandboxStatsStream = ResponseStream<StreamPodSandboxStatsResponse>;
    type GetContainerEventsStream = ResponseStream<ContainerEventResponse>;
    type StreamPodSandboxMetricsStream = ResponseStream<StreamPodSandboxMetricsResponse>;

    async fn version(&self, _: Request<VersionRequest>) -> RpcResult<VersionResponse> {
        Ok(Response::new(status::version()))
    }

    async fn run_pod_sandbox(
        &self,
        request: Request<RunPodSandboxRequest>,
    ) -> RpcResult<RunPodSandboxResponse> {
        let request = request.into_inner();
        let work = |node: Arc<Node>| async move { node.run_sandbox(request).await };
        let pod_sandbox_id = self.detached(work).await?;
        Ok(Response::new(RunPodSandboxResponse { pod_sandbox_id }))
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<StopPodSandboxRequest>,
    ) -> RpcResult<StopPodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        self.detached(|node| async move { node.stop_sandbox(&id).await })
            .await?;
        Ok(Response::new(StopPodSandboxResponse {}))
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<RemovePodSandboxRequest>,
    ) -> RpcResult<RemovePodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        self.detached(|node| async move { node.remove_sandbox(&id).await })
            .await?;
        Ok(Response::new(RemovePodSandboxResponse {}))
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<PodSandboxStatusRequest>,
    ) -> RpcResult<PodSandboxStatusResponse> {
        let request = request.into_inner();
        let record = self.node.sandbox(&request.pod_sandbox_id)?;
        let info = match request.verbose {
            true => convert::info(&json!({
                "runtimeHandler": record.handler,
                "folder": self.node.parts.layout.sandbox(&record.id),
                "attached": record.attached,
                "hostname": record.config.0.hostname,
            })),
            false => HashMap::new(),
        };
        Ok(Response::new(PodSandboxStatusResponse {
            status: Some(convert::sandbox_status(&record)),
            info,
            containers_statuses: convert::pod_statuses(&self.node.state(), &record.id),
            timestamp: crate::clock::now(),
        }))
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<ListPodSandboxRequest>,
    ) -> RpcResult<ListPodSandboxResponse> {
        let items = list::sandboxes(&self.node, request.into_inner().filter);
        Ok(Response::new(ListPodSandboxResponse { items }))
    }

    async fn stream_pod_sandboxes(
        &self,
        request: Request<StreamPodSandboxesRequest>,
    ) -> RpcResult<Self::StreamPodSandboxesStream> {
        let items = list::sandboxes(&self.node, request.into_inner().filter);
        let pages = pages(items, |pod_sandboxes| StreamPodSandboxesResponse {
            pod_sandboxes,
        });
        Ok(Response::new(pages))
    }

    async fn create_container(
        &self,
        request: Request<CreateContainerRequest>,
    ) -> RpcResult<CreateContainerResponse> {
        let request = request.into_inner();
        let work = |node: Arc<Node>| async move { node.create_container(request).await };
        let container_id = self.detached(work).await?;
        Ok(Response::new(CreateContainerResponse { container_id }))
    }

    async fn start_container(
        &self,
        request: Request<StartContainerRequest>,
    ) -> RpcResult<StartContainerResponse> {
        let id = request.into_inner().container_id;
        self.detached(|node| async move { node.start_container(&id).await })
            .await?;
        Ok(Response::new(StartContainerResponse {}))
    }

    async fn stop_container(
        &self,
        request: Request<StopContainerRequest>,
    ) -> RpcResult<StopContainerResponse> {
        let request = request.into_inner();
        let grace = Duration::from_secs(u64::try_from(request.timeout).unwrap_or(0));
        let id = request.container_id;
        self.detached(|node| async move { node.stop_container(&id, grace).await })
            .await?;
        Ok(Response::new(StopContainerResponse {}))
    }

    async fn remove_container(
        &self,
        request: Request<RemoveContainerRequest>,
    ) -> RpcResult<RemoveContainerResponse> {
        let id = request.into_inner().container_id;
        self.detached(|node| async move { node.remove_container(&id).await })
            .await?;
        Ok(Response::new(RemoveContainerResponse {}))
    }

    async fn list_containers(
        &self,
        request: Request<ListContainersRequest>,
    ) -> RpcResult<ListContainersResponse> {
        let containers = list::containers(&self.node, request.into_inner().filter);
        Ok(Response::new(ListContainersResponse { containers }))
    }

    async fn stream_containers(
        &self,
        request: Request<StreamContainersRequest>,
    ) -> RpcResult<Self::StreamContainersStream> {
        let items = list::containers(&self.node, request.into_inner().filter);
        let pages = pages(items, |containers| StreamContainersResponse { containers });
        Ok(Response::new(pages))
    }

    async fn container_status(
        &self,
        request: Request<ContainerStatusRequest>,
    ) -> RpcResult<ContainerStatusResponse> {
        let request = request.into_inner();
        let record = self.node.container(&request.container_id)?;
        let pid = {
            let state = self.node.state();
            state.container(&record.id).and_then(|entry| entry.pid)
        };
        let info = match request.verbose {
            true => convert::info(&json!({
                "sandboxID": record.sandbox,
                "pid": pid.unwrap_or(0),
                "bundle": self.node.parts.layout.bundle(&record.id),
            })),
            false => HashMap::new(),
        };
        Ok(Response::new(ContainerStatusResponse {
            status: Some(convert::container_status(&record)),
            info,
        }))
    }

    async fn update_container_resources(
        &self,
        request: Request<UpdateContainerResourcesRequest>,
    ) -> RpcResult<UpdateContainerResourcesResponse> {
        let request = request.into_inner();
        self.detached(|node| async move { node.update_container(request).await })
            .await?;
        Ok(Response::new(UpdateContainerResourcesResponse {}))
    }

    async fn reopen_container_log(
        &self,
        request: Request<ReopenContainerLogRequest>,
    ) -> RpcResult<ReopenContainerLogResponse> {
        let id = request.into_inner().container_id;
        self.detached(|node| async move { node.reopen_log(&id).await })
            .await?;
        Ok(Response::new(ReopenContainerLogResponse {}))
    }

    async fn exec_sync(&self, request: Request<ExecSyncRequest>) -> RpcResult<ExecSyncResponse> {
        let asked = request.metadata().get(sdk::MAX_OUTPUT_METADATA);
        let asked = asked.and_then(|value| value.to_str().ok()?.parse().ok());
        let limit = asked.unwrap_or(monitor::MAX_EXEC_OUTPUT_BYTES);
        let output = self.node.exec_sync(request.into_inner(), limit).await?;
        Ok(Response::new(output))
    }

    async fn exec(&self, request: Request<ExecRequest>) -> RpcResult<ExecResponse> {
        let request = StreamingRequest::Exec(request.into_inner());
        let url = self.url(request).await?;
        Ok(Response::new(ExecResponse { url }))
    }

    async fn attach(&self, request: Request<AttachRequest>) -> RpcResult<AttachResponse> {
        let request = StreamingRequest::Attach(request.into_inner());
        let url = self.url(request).await?;
        Ok(Response::new(AttachResponse { url }))
    }

    async fn port_forward(
        &self,
        request: Request<PortForwardRequest>,
    ) -> RpcResult<PortForwardResponse> {
        let request = StreamingRequest::PortForward(request.into_inner());
        let url = self.url(request).await?;
        Ok(Response::new(PortForwardResponse { url }))
    }

    async fn container_stats(
        &self,
        request: Request<ContainerStatsRequest>,
    ) -> RpcResult<ContainerStatsResponse> {
        let record = self.node.running(&request.into_inner().container_id)?;
        let mut stats = self.node.container_stats(vec![record]).await?;
        Ok(Response::new(ContainerStatsResponse { stats: stats.pop() }))
    }

    async fn list_container_stats(
        &self,
        request: Request<ListContainerStatsRequest>,
    ) -> RpcResult<ListContainerStatsResponse> {
        let records = list::measured(&self.node, request.into_inner().filter);
        let stats = self.node.container_stats(records).await?;
        Ok(Response::new(ListContainerStatsResponse { stats }))
    }

    async fn stream_container_stats(
        &self,
        request: Request<StreamContainerStatsRequest>,
    ) -> RpcResult<Self::StreamContainerStatsStream> {
        let records = list::measured(&self.node, request.into_inner().filter);
        let stats = self.node.container_stats(records).await?;
        let pages = pages(stats, |container_stats| StreamContainerStatsResponse {
            container_stats,
        });
        Ok(Response::new(pages))
    }

    async fn pod_sandbox_stats(
        &self,
        request: Request<PodSandboxStatsRequest>,
    ) -> RpcResult<PodSandboxStatsResponse> {
        let record = self.node.sandbox(&request.into_inner().pod_sandbox_id)?;
        let stats = self.node.sandbox_stats(&record).await?;
        Ok(Response::new(PodSandboxStatsResponse {
            stats: Some(stats),
        }))
    }

    async fn list_pod_sandbox_stats(
        &self,
        request: Request<ListPodSandboxStatsRequest>,
    ) -> RpcResult<ListPodSandboxStatsResponse> {
        let stats = self.pod_stats(request.into_inner().filter).await?;
        Ok(Response::new(ListPodSandboxStatsResponse { stats }))
    }

    async fn stream_pod_sandbox_stats(
        &self,
        request: Request<StreamPodSandboxStatsRequest>,
    ) -> RpcResult<Self::StreamPodSandboxStatsStream> {
        let stats = self.pod_stats(request.into_inner().filter).await?;
        let pages = pages(stats, |pod_sandbox_stats| StreamPodSandboxStatsResponse {
            pod_sandbox_stats,
        });
        Ok(Response::new(pages))
    }

    async fn update_runtime_config(
        &self,
        _: Request<UpdateRuntimeConfigRequest>,
    ) -> RpcResult<UpdateRuntimeConfigResponse> {
        // The pod range is the network plugin's own setting; containerd with a CNI configuration ignores it too.
        Ok(Response::new(UpdateRuntimeConfigResponse {}))
    }

    async fn status(&self, request: Request<StatusRequest>) -> RpcResult<StatusResponse> {
        let verbose = request.into_inner().verbose;
        Ok(Response::new(status::status(&self.node, verbose).await))
    }

    async fn checkpoint_container(
        &self,
        request: Request<CheckpointContainerRequest>,
    ) -> RpcResult<CheckpointContainerResponse> {
        let request = request.into_inner();
        self.detached(|node| async move { node.checkpoint_container(request).await })
            .await?;
        Ok(Response::new(CheckpointContainerResponse {}))
    }

    async fn checkpoint_pod(
        &self,
        _: Request<CheckpointPodRequest>,
    ) -> RpcResult<CheckpointPodResponse> {
        Err(Status::unimplemented(NO_CHECKPOINTS))
    }

    async fn restore_pod(&self, _: Request<RestorePodRequest>) -> RpcResult<RestorePodResponse> {
        Err(Status::unimplemented(NO_CHECKPOINTS))
    }

    async fn get_container_events(
        &self,
        _: Request<GetEventsRequest>,
    ) -> RpcResult<Self::GetContainerEventsStream> {
        Ok(Response::new(events(&self.node)))
    }

    async fn list_metric_descriptors(
        &self,
        _: Request<ListMetricDescriptorsRequest>,
    ) -> RpcResult<ListMetricDescriptorsResponse> {
        Ok(Response::new(ListMetricDescriptorsResponse {
            descriptors: stats::descriptors(),
        }))
    }

    async fn list_pod_sandbox_metrics(
        &self,
        _: Request<ListPodSandboxMetricsRequest>,
    ) -> RpcResult<ListPodSandboxMetricsResponse> {
        let pod_metrics = self.pod_metrics().await?;
        Ok(Response::new(ListPodSandboxMetricsResponse { pod_metrics }))
    }

    async fn stream_pod_sandbox_metrics(
        &self,
        _: Request<StreamPodSandboxMetricsRequest>,
    ) -> RpcResult<Self::StreamPodSandboxMetricsStream> {
        let pages = pages(self.pod_metrics().await?, |pod_sandbox_metrics| {
            StreamPodSandboxMetricsResponse {
                pod_sandbox_metrics,
            }
        });
        Ok(Response::new(pages))
    }

    async fn runtime_config(
        &self,
        _: Request<RuntimeConfigRequest>,
    ) -> RpcResult<RuntimeConfigResponse> {
        Ok(Response::new(status::config(&self.node)))
    }

    async fn update_pod_sandbox_resources(
        &self,
        request: Request<UpdatePodSandboxResourcesRequest>,
    ) -> RpcResult<UpdatePodSandboxResourcesResponse> {
        let request = request.into_inner();
        self.detached(|node| async move {
            let id = request.pod_sandbox_id;
            node.update_sandbox(&id, request.overhead, request.resources)
                .await
        })
        .await?;
        Ok(Response::new(UpdatePodSandboxResourcesResponse {}))
    }
}
