//! Where the runtime streams: URLs for exec, attach and port-forward; where it logs; how it is.

use std::path::PathBuf;

use logic::types::{ContainerId, SandboxId};
use proto::cri;

use super::{Runtime, RuntimeError, malformed, runtime};

/// Which streams of a container are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Streams {
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
    pub tty: bool,
}

/// What the runtime says of a container that asks for no more than that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whereabouts {
    pub log_path: PathBuf,
    pub is_running: bool,
}

/// What the runtime says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Condition {
    /// Why it is not ready; none if it is.
    pub runtime: Option<String>,
    /// Why its network is not ready; none if it is.
    pub network: Option<String>,
}

impl Runtime {
    /// Where a command's streams are served. Another call is another URL, and the first one expires.
    pub async fn exec(
        &self,
        id: &ContainerId,
        command: &[String],
        streams: Streams,
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
        let answer = self.idempotent("Exec", self.within, request, method).await?;
        url("Exec", answer.url)
    }

    /// Where the streams of a container's own process are served.
    pub async fn attach(
        &self,
        id: &ContainerId,
        streams: Streams,
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

    /// Where a sandbox's ports are served.
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

    /// Where a container logs, and whether it runs.
    pub async fn whereabouts(&self, id: &ContainerId) -> Result<Whereabouts, RuntimeError> {
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
        Ok(Whereabouts {
            is_running: status.state() == cri::ContainerState::ContainerRunning,
            log_path: status.log_path.into(),
        })
    }

    /// How the runtime and its network are.
    pub async fn condition(&self) -> Result<Condition, RuntimeError> {
        let request = cri::StatusRequest { verbose: false };
        let method = async |channel, request| runtime(channel).status(request).await;
        let answer = self
            .idempotent("Status", self.within, request, method)
            .await?;
        let conditions = answer.status.unwrap_or_default().conditions;
        let trouble = |kind: &str| match conditions.iter().find(|one| one.r#type == kind) {
            Some(condition) if condition.status => None,
            Some(condition) => Some(format!(
                "{kind}={} reason:{} message:{}",
                condition.status, condition.reason, condition.message
            )),
            None => Some(format!("{kind} is not told by the runtime")),
        };
        Ok(Condition {
            runtime: trouble("RuntimeReady"),
            network: trouble("NetworkReady"),
        })
    }
}

fn url(call: &'static str, url: String) -> Result<String, RuntimeError> {
    match url.is_empty() {
        true => Err(malformed(call, "url", "a URL")),
        false => Ok(url),
    }
}
