//! Calls on running containers: exec, a new log file, other limits, a checkpoint; and the runtime's features.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use logic_api::objects::Objects;
use logic_api::types::{ContainerId, SandboxId};
use logic_pods::runtime::runtime_class::HandlerFeatures;
use logic_pods::sandbox::SandboxResources;
use logic_resources::resources::LinuxResources;
use proto::cri;
use tonic::Code;
use tonic::metadata::MetadataValue;

use super::{RuntimeClient, RuntimeError, convert, operations, runtime};

/// The runtime enforces a command's deadline; the client's own comes this much later.
const EXEC_TIMEOUT_MARGIN: Duration = Duration::from_secs(2);

/// The result of a command in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecOutput {
    pub exit_code: i32,
    /// Cut off by the runtime: containerd keeps 16 MiB.
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

/// The features of each runtime handler; the default handler has the empty name.
pub type Handlers = BTreeMap<String, HandlerFeatures>;

impl RuntimeClient {
    /// Runs a command in a container, until `within` has passed; zero leaves only the client's deadline. Not repeated:
    /// a command may have been carried out when its answer got lost.
    pub async fn exec_sync(
        &self,
        id: &ContainerId,
        command: &[String],
        within: Duration,
    ) -> Result<ExecOutput, RuntimeError> {
        self.run_command(id, command, within, None).await
    }

    /// The same, of whose outputs at most `max_output_bytes` each are read: runtime plugins cut the rest off.
    pub async fn exec_sync_bounded(
        &self,
        id: &ContainerId,
        command: &[String],
        within: Duration,
        max_output_bytes: usize,
    ) -> Result<ExecOutput, RuntimeError> {
        self.run_command(id, command, within, Some(max_output_bytes))
            .await
    }

    async fn run_command(
        &self,
        id: &ContainerId,
        command: &[String],
        within: Duration,
        max_output_bytes: Option<usize>,
    ) -> Result<ExecOutput, RuntimeError> {
        let seconds = within.as_secs() + u64::from(within.subsec_nanos() > 0);
        let request = cri::ExecSyncRequest {
            container_id: id.as_str().to_owned(),
            cmd: command.to_vec(),
            timeout: i64::try_from(seconds).unwrap_or(i64::MAX),
        };
        let mut request = tonic::Request::new(request);
        if let Some(max) = max_output_bytes {
            let max = MetadataValue::from(u64::try_from(max).unwrap_or(u64::MAX));
            request
                .metadata_mut()
                .insert(proto::MAX_OUTPUT_METADATA, max);
        }
        let deadline = match within.is_zero() {
            true => self.within,
            false => within + EXEC_TIMEOUT_MARGIN,
        };
        // Boxed as every call is. A deadline keeps its own code, because probes check for it.
        let began = kernel::now();
        let answer = self
            .line
            .creating(deadline, |channel| {
                Box::pin(async move { runtime(channel).exec_sync(request).await })
            })
            .await;
        operations::count("ExecSync", began, &answer);
        let answer = answer.map_err(|error| RuntimeError::new("ExecSync", error))?;
        Ok(ExecOutput {
            exit_code: answer.exit_code,
            stdout: answer.stdout,
            stderr: answer.stderr,
        })
    }

    /// Has a running container's log continue in a new file at the same path.
    pub async fn reopen_container_log(&self, id: &ContainerId) -> Result<(), RuntimeError> {
        let request = cri::ReopenContainerLogRequest {
            container_id: id.as_str().to_owned(),
        };
        let method = async |channel, request| runtime(channel).reopen_container_log(request).await;
        let answer = self.idempotent("ReopenContainerLog", self.within, request, method);
        answer.await.map(drop)
    }

    /// Applies other limits to a container without a restart.
    pub async fn update_container_resources(
        &self,
        id: &ContainerId,
        resources: &LinuxResources,
    ) -> Result<(), RuntimeError> {
        let request = cri::UpdateContainerResourcesRequest {
            container_id: id.as_str().to_owned(),
            linux: Some(convert::resources(resources)),
            ..Default::default()
        };
        let method =
            async |channel, request| runtime(channel).update_container_resources(request).await;
        let answer = self.idempotent("UpdateContainerResources", self.within, request, method);
        answer.await.map(drop)
    }

    /// Tells the runtime what a pod as a whole gets from now on; one that does not want to know is no error.
    pub async fn update_sandbox_resources(
        &self,
        id: &SandboxId,
        resources: &SandboxResources,
    ) -> Result<(), RuntimeError> {
        let request = cri::UpdatePodSandboxResourcesRequest {
            pod_sandbox_id: id.as_str().to_owned(),
            overhead: Some(convert::resources(&resources.overhead)),
            resources: Some(convert::resources(&resources.resources)),
        };
        let method =
            async |channel, request| runtime(channel).update_pod_sandbox_resources(request).await;
        let answer = self.idempotent("UpdatePodSandboxResources", self.within, request, method);
        match answer.await {
            // containerd 2.2 says so without the code for it.
            Err(RuntimeError::Refused { code, message, .. })
                if code == Code::Unimplemented
                    || (code == Code::Unknown && message.contains("not implemented")) =>
            {
                Ok(())
            }
            answer => answer.map(drop),
        }
    }

    /// Sends the runtime the node's pod CIDRs, separated by commas. A runtime with a CNI template writes
    /// its configuration then.
    pub async fn tell_pod_ranges(&self, ranges: &str) -> Result<(), RuntimeError> {
        let network = cri::NetworkConfig {
            pod_cidr: ranges.to_owned(),
        };
        let request = cri::UpdateRuntimeConfigRequest {
            runtime_config: Some(cri::RuntimeConfig {
                network_config: Some(network),
            }),
        };
        let method = async |channel, request| runtime(channel).update_runtime_config(request).await;
        let answer = self.idempotent("UpdateRuntimeConfig", self.within, request, method);
        answer.await.map(drop)
    }

    /// Writes a container's state into an archive at `location`. The timeout is the usual one, or `within` if longer.
    pub async fn checkpoint_container(
        &self,
        id: &ContainerId,
        location: &Path,
        within: Duration,
    ) -> Result<(), RuntimeError> {
        let within = within.max(self.within);
        let request = cri::CheckpointContainerRequest {
            container_id: id.as_str().to_owned(),
            location: location.to_string_lossy().into_owned(),
            timeout: i64::try_from(within.as_secs()).unwrap_or(i64::MAX),
        };
        let answer = self.creating(
            "CheckpointContainer",
            within + EXEC_TIMEOUT_MARGIN,
            request,
            async |channel, request| runtime(channel).checkpoint_container(request).await,
        );
        answer.await.map(drop)
    }

    /// The features of the pod's handler; none of them if the runtime cannot be asked.
    pub async fn features(&self, pod: &Pod, objects: &dyn Objects) -> HandlerFeatures {
        let Ok(handler) = logic_pods::runtime::runtime_class::handler(pod, objects) else {
            return HandlerFeatures::default();
        };
        match self.handlers().await {
            Ok(handlers) => handlers.get(&handler).copied().unwrap_or_default(),
            Err(error) => {
                tracing::warn!("the runtime's features are not known: {}", error.describe());
                HandlerFeatures::default()
            }
        }
    }

    /// The features of each handler. A runtime that does not list any has the default handler alone.
    pub async fn handlers(&self) -> Result<Handlers, RuntimeError> {
        let answer = self.status().await?;
        let handlers = answer.runtime_handlers.into_iter().map(|handler| {
            let features = handler.features.unwrap_or_default();
            let features = HandlerFeatures {
                user_namespaces: features.user_namespaces,
                recursive_read_only_mounts: features.recursive_read_only_mounts,
            };
            (handler.name, features)
        });
        Ok(handlers.collect())
    }
}

impl RuntimeError {
    /// Whether the call ended by a deadline, the runtime's or the client's.
    pub fn is_deadline(&self) -> bool {
        match self {
            RuntimeError::Unanswered { source, .. } => {
                matches!(source, plugin_host::CallError::Deadline { .. })
            }
            RuntimeError::Refused { code, .. } => *code == Code::DeadlineExceeded,
            RuntimeError::Interrupted { .. }
            | RuntimeError::Malformed { .. }
            | RuntimeError::EventsEnded
            | RuntimeError::EventsLost => false,
        }
    }
}
