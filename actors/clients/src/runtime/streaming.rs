//! The runtime's streaming URLs for exec, attach and port-forward; a container's log path; the runtime's status.

use std::path::PathBuf;

use logic_api::types::{ContainerId, SandboxId};
use logic_node::node_status::{RuntimeCondition, RuntimeHandler, RuntimeStatus};
use proto::cri;

use super::features::support;
use super::{RuntimeClient, RuntimeError, malformed, runtime};

/// The streams to open of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamOptions {
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
    pub tty: bool,
}

/// A container's log path and whether it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerLogStatus {
    pub log_path: PathBuf,
    pub is_running: bool,
}

impl RuntimeClient {
    /// The URL of a command's streams. Each call makes another URL, which expires unless it is used.
    pub async fn exec(
        &self,
        id: &ContainerId,
        command: &[String],
        streams: StreamOptions,
    ) -> Result<String, RuntimeError> {
        let request = cri::ExecRequest {
            container_id: id.as_str().to_owned(),
            cmd: command.to_vec(),
            tty: streams.tty,
            stdin: streams.stdin,
            stdout: streams.stdout,
            stderr: streams.stderr,
        };
        let method = async |channel, request| runtime(channel).exec(request).await;
        let answer = self
            .idempotent("Exec", self.within, request, method)
            .await?;
        url("Exec", answer.url)
    }

    /// The URL of the streams of a container's own process.
    pub async fn attach(
        &self,
        id: &ContainerId,
        streams: StreamOptions,
    ) -> Result<String, RuntimeError> {
        let request = cri::AttachRequest {
            container_id: id.as_str().to_owned(),
            tty: streams.tty,
            stdin: streams.stdin,
            stdout: streams.stdout,
            stderr: streams.stderr,
        };
        let method = async |channel, request| runtime(channel).attach(request).await;
        let answer = self
            .idempotent("Attach", self.within, request, method)
            .await?;
        url("Attach", answer.url)
    }

    /// The URL for forwarding a sandbox's ports.
    pub async fn port_forward(
        &self,
        id: &SandboxId,
        ports: &[i32],
    ) -> Result<String, RuntimeError> {
        let request = cri::PortForwardRequest {
            pod_sandbox_id: id.as_str().to_owned(),
            port: ports.to_vec(),
        };
        let method = async |channel, request| runtime(channel).port_forward(request).await;
        let answer = self
            .idempotent("PortForward", self.within, request, method)
            .await?;
        url("PortForward", answer.url)
    }

    /// A container's log path, and whether it runs.
    pub async fn log_status(&self, id: &ContainerId) -> Result<ContainerLogStatus, RuntimeError> {
        let request = cri::ContainerStatusRequest {
            container_id: id.as_str().to_owned(),
            verbose: false,
        };
        let method = async |channel, request| runtime(channel).container_status(request).await;
        let answer = self
            .idempotent("ContainerStatus", self.within, request, method)
            .await?;
        let status = answer
            .status
            .ok_or_else(|| malformed("ContainerStatus", "status", "a status"))?;
        Ok(ContainerLogStatus {
            is_running: status.state() == cri::ContainerState::ContainerRunning,
            log_path: status.log_path.into(),
        })
    }

    /// The runtime's conditions, its version, and the features of its handlers.
    pub async fn reported_status(&self) -> Result<RuntimeStatus, RuntimeError> {
        let version = match self.name().is_empty() {
            true => self.version().await?,
            false => self.known(),
        };
        let asked = kernel::now();
        let answer = self.status().await?;
        let conditions = answer.status.unwrap_or_default().conditions;
        let condition = |name: &str| {
            let found = conditions.iter().find(|one| one.r#type == name)?;
            Some(RuntimeCondition {
                name: found.r#type.clone(),
                state: support(found.status),
                reason: found.reason.clone(),
                message: found.message.clone(),
            })
        };
        let handler = |handler: cri::RuntimeHandler| {
            let features = handler.features.unwrap_or_default();
            RuntimeHandler {
                name: handler.name,
                recursive_read_only_mounts: support(features.recursive_read_only_mounts),
                user_namespaces: support(features.user_namespaces),
            }
        };
        let features = answer.features.as_ref();
        let status = RuntimeStatus {
            name: version.name,
            version: version.version,
            ready: condition("RuntimeReady"),
            network: condition("NetworkReady"),
            supplemental_groups_policy: features
                .map(|features| support(features.supplemental_groups_policy)),
            handlers: answer.runtime_handlers.into_iter().map(handler).collect(),
        };
        let network_ready = status.network_problem().is_none();
        self.features.learn_network(network_ready, asked);
        Ok(status)
    }
}

fn url(call: &'static str, url: String) -> Result<String, RuntimeError> {
    match url.is_empty() {
        true => Err(malformed(call, "url", "a URL")),
        false => Ok(url),
    }
}
