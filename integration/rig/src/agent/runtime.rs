//! A runtime, asked by tests what really exists there.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use proto::cri;
use proto::cri::image_service_client::ImageServiceClient;
use proto::cri::runtime_service_client::RuntimeServiceClient;
use tonic::transport::Channel;

use crate::containerd::connect;

/// A thousand pods with their labels.
const LARGEST_ANSWER: usize = 64 << 20;

/// Clients of one CRI socket.
#[derive(Clone, Debug)]
pub struct Cri {
    runtime: RuntimeServiceClient<Channel>,
    images: ImageServiceClient<Channel>,
}

impl Cri {
    /// Makes clients of this socket, which connect at the first call.
    pub fn connect(socket: &Path) -> Self {
        Self::over(connect(socket))
    }

    /// Makes clients that share this channel.
    pub fn over(channel: Channel) -> Self {
        Self {
            runtime: RuntimeServiceClient::new(channel.clone())
                .max_decoding_message_size(LARGEST_ANSWER),
            images: ImageServiceClient::new(channel).max_decoding_message_size(LARGEST_ANSWER),
        }
    }

    /// Returns CRI's RuntimeService.
    pub fn runtime(&self) -> RuntimeServiceClient<Channel> {
        self.runtime.clone()
    }

    /// Returns CRI's ImageService.
    pub fn images(&self) -> ImageServiceClient<Channel> {
        self.images.clone()
    }

    /// Returns every container, in the order of their creation.
    pub async fn containers(&self) -> Result<Vec<cri::Container>> {
        let question = cri::ListContainersRequest { filter: None };
        let answer = self.runtime().list_containers(question).await?;
        let mut containers = answer.into_inner().containers;
        containers.sort_by_key(|container| container.created_at);
        Ok(containers)
    }

    /// Returns the containers of a static pod of this name, in the order of their creation.
    pub async fn containers_of(&self, pod: &str) -> Result<Vec<cri::Container>> {
        let full = format!("{pod}-{}", super::NODE_NAME);
        let mut containers = self.containers().await?;
        containers
            .retain(|container| container.labels.get("io.kubernetes.pod.name") == Some(&full));
        Ok(containers)
    }

    /// Returns every sandbox, in the order of their creation.
    pub async fn sandboxes(&self) -> Result<Vec<cri::PodSandbox>> {
        let question = cri::ListPodSandboxRequest { filter: None };
        let answer = self.runtime().list_pod_sandbox(question).await?;
        let mut sandboxes = answer.into_inner().items;
        sandboxes.sort_by_key(|sandbox| sandbox.created_at);
        Ok(sandboxes)
    }

    /// Returns the ids of the running containers, by pod and container name.
    pub async fn running(&self) -> Result<BTreeMap<(String, String), String>> {
        let containers = self.containers().await?.into_iter();
        let running = containers
            .filter(|container| container.state() == cri::ContainerState::ContainerRunning);
        Ok(running
            .map(|container| {
                let label = |key: &str| container.labels.get(key).cloned().unwrap_or_default();
                let name = (
                    label("io.kubernetes.pod.name"),
                    label("io.kubernetes.container.name"),
                );
                (name, container.id)
            })
            .collect())
    }

    /// Returns a container's status.
    pub async fn status(&self, id: &str) -> Result<cri::ContainerStatus> {
        let question = cri::ContainerStatusRequest {
            container_id: id.to_owned(),
            verbose: false,
        };
        let answer = self.runtime().container_status(question).await?;
        answer.into_inner().status.context("no status")
    }

    /// Runs a command in a container; returns its output.
    pub async fn exec(&self, id: &str, command: &[&str]) -> Result<String> {
        let question = cri::ExecSyncRequest {
            container_id: id.to_owned(),
            cmd: command.iter().map(|word| (*word).to_owned()).collect(),
            timeout: 10,
        };
        let answer = self.runtime().exec_sync(question).await?.into_inner();
        Ok(String::from_utf8_lossy(&answer.stdout).into_owned())
    }
}
