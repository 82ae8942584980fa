//! The test case of one law: clients, configurations with unique names, and the cleanup.

use std::collections::HashMap;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::time::Duration;

use proto::cri::image_service_client::ImageServiceClient;
use proto::cri::runtime_service_client::RuntimeServiceClient;
use proto::cri::{
    Container, ContainerConfig, ContainerFilter, ContainerMetadata, ContainerState,
    ContainerStatus, ContainerStatusRequest, CreateContainerRequest, ImageSpec,
    LinuxPodSandboxConfig, LinuxSandboxSecurityContext, ListContainersRequest,
    ListPodSandboxRequest, NamespaceMode, NamespaceOption, PodSandbox, PodSandboxConfig,
    PodSandboxFilter, PodSandboxMetadata, PodSandboxStatus, PodSandboxStatusRequest,
    RemovePodSandboxRequest, RunPodSandboxRequest, StartContainerRequest, StopContainerRequest,
    StopPodSandboxRequest,
};
use sdk::MESSAGE_LIMIT;
use tonic::transport::Channel;

use super::super::CheckStop;
use super::{Network, Target};

/// The longest that a real process may take to get where it is going.
const FACT_TIMEOUT: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(20);

pub(super) const SLEEP: &[&str] = &["sleep", "3600"];
pub(super) const EXIT_SEVEN: &[&str] = &["sh", "-c", "exit 7"];
pub(super) const ECHO: &[&str] = &["echo", "hello"];
pub(super) const STUBBORN: &[&str] = &["sh", "-c", "trap '' TERM; sleep 3600"];

pub(super) struct RuntimeCase {
    pub(super) target: Target,
    pub(super) runtime: RuntimeServiceClient<Channel>,
    pub(super) images: ImageServiceClient<Channel>,
    /// Unlike that of any other check, here or in another process.
    pub(super) name: String,
    sandboxes: Vec<String>,
}

/// A sandbox that runs, and the configuration that its containers are made with.
#[derive(Clone)]
pub(super) struct Sandbox {
    pub(super) id: String,
    pub(super) config: PodSandboxConfig,
}

impl RuntimeCase {
    pub(super) fn new(target: Target) -> Self {
        Self {
            runtime: RuntimeServiceClient::new(target.channel.clone())
                .max_decoding_message_size(MESSAGE_LIMIT),
            images: ImageServiceClient::new(target.channel.clone())
                .max_decoding_message_size(MESSAGE_LIMIT),
            name: format!("law-{:016x}", RandomState::new().hash_one(0)),
            target,
            sandboxes: Vec::new(),
        }
    }

    pub(super) fn logs(&self) -> PathBuf {
        self.target.logs.join(&self.name)
    }

    /// The configuration of a sandbox of this case's name.
    pub(super) fn sandbox_config(&self) -> PodSandboxConfig {
        let network = match self.target.network {
            Network::Pod => NamespaceMode::Pod,
            Network::Node => NamespaceMode::Node,
        };
        let namespace_options = NamespaceOption {
            network: network.into(),
            pid: NamespaceMode::Container.into(),
            ipc: NamespaceMode::Pod.into(),
            ..NamespaceOption::default()
        };
        let security_context = LinuxSandboxSecurityContext {
            namespace_options: Some(namespace_options),
            ..Default::default()
        };
        PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: self.name.clone(),
                uid: format!("uid-{}", self.name),
                namespace: "contract".to_owned(),
                attempt: 0,
            }),
            log_directory: self.logs().to_string_lossy().into_owned(),
            labels: string_map(&[("law", &self.name), ("io.kubernetes.pod.name", &self.name)]),
            annotations: string_map(&[("example.org/kept", "with = \"signs\", and\nlines")]),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: self.target.cgroup_parent.clone(),
                security_context: Some(security_context),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    pub(super) async fn run_sandbox(&mut self) -> Result<Sandbox, CheckStop> {
        let config = self.sandbox_config();
        self.run_sandbox_with(config).await
    }

    pub(super) async fn run_sandbox_with(
        &mut self,
        config: PodSandboxConfig,
    ) -> Result<Sandbox, CheckStop> {
        fs::create_dir_all(&config.log_directory)?;
        let request = RunPodSandboxRequest {
            config: Some(config.clone()),
            ..Default::default()
        };
        let id = self
            .runtime
            .run_pod_sandbox(request)
            .await?
            .into_inner()
            .pod_sandbox_id;
        self.sandboxes.push(id.clone());
        Ok(Sandbox { id, config })
    }

    /// The configuration of a container that runs `command`.
    pub(super) fn container_config(&self, name: &str, command: &[&str]) -> ContainerConfig {
        ContainerConfig {
            metadata: Some(ContainerMetadata {
                name: name.to_owned(),
                attempt: 0,
            }),
            image: Some(ImageSpec {
                image: self.target.image.clone(),
                ..Default::default()
            }),
            command: command.iter().map(|&word| word.to_owned()).collect(),
            labels: string_map(&[("law", &self.name), ("io.kubernetes.container.name", name)]),
            annotations: string_map(&[("example.org/container", "kept")]),
            log_path: format!("{name}/0.log"),
            ..Default::default()
        }
    }

    pub(super) async fn create(
        &mut self,
        sandbox: &Sandbox,
        command: &[&str],
    ) -> Result<String, CheckStop> {
        let config = self.container_config("main", command);
        self.create_with(sandbox, config).await
    }

    pub(super) async fn create_with(
        &mut self,
        sandbox: &Sandbox,
        config: ContainerConfig,
    ) -> Result<String, CheckStop> {
        let log = self.logs().join(&config.log_path);
        fs::create_dir_all(log.parent().unwrap_or(&log))?;
        let request = creation(sandbox, config);
        Ok(self
            .runtime
            .create_container(request)
            .await?
            .into_inner()
            .container_id)
    }

    pub(super) async fn start(&mut self, container_id: &str) -> Result<(), CheckStop> {
        self.runtime
            .start_container(StartContainerRequest {
                container_id: container_id.to_owned(),
            })
            .await?;
        Ok(())
    }

    /// Makes a sandbox with one container that has been started.
    pub(super) async fn run_container(
        &mut self,
        command: &[&str],
    ) -> Result<(Sandbox, String), CheckStop> {
        let sandbox = self.run_sandbox().await?;
        let container = self.create(&sandbox, command).await?;
        self.start(&container).await?;
        Ok((sandbox, container))
    }

    pub(super) async fn stop(
        &mut self,
        container_id: &str,
        timeout: i64,
    ) -> Result<(), tonic::Status> {
        let request = StopContainerRequest {
            container_id: container_id.to_owned(),
            timeout,
        };
        self.runtime.stop_container(request).await.map(|_| ())
    }

    pub(super) async fn sandbox_status(&mut self, id: &str) -> Result<PodSandboxStatus, CheckStop> {
        let request = PodSandboxStatusRequest {
            pod_sandbox_id: id.to_owned(),
            verbose: false,
        };
        let status = self
            .runtime
            .pod_sandbox_status(request)
            .await?
            .into_inner()
            .status;
        status.ok_or_else(|| CheckStop::Broken(format!("no status in the answer for sandbox {id}")))
    }

    pub(super) async fn container_status(
        &mut self,
        id: &str,
    ) -> Result<ContainerStatus, CheckStop> {
        let request = ContainerStatusRequest {
            container_id: id.to_owned(),
            verbose: false,
        };
        let status = self
            .runtime
            .container_status(request)
            .await?
            .into_inner()
            .status;
        status
            .ok_or_else(|| CheckStop::Broken(format!("no status in the answer for container {id}")))
    }

    /// Waits until the container is in `state`; returns its status then.
    pub(super) async fn reach(
        &mut self,
        id: &str,
        state: ContainerState,
    ) -> Result<ContainerStatus, CheckStop> {
        let begun = tokio::time::Instant::now();
        loop {
            let status = self.container_status(id).await?;
            if status.state() == state {
                return Ok(status);
            }
            if begun.elapsed() > FACT_TIMEOUT {
                let seen = status.state();
                return Err(CheckStop::Broken(format!(
                    "container is {seen:?} after {FACT_TIMEOUT:?}, expected {state:?}"
                )));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    pub(super) async fn list_sandboxes(
        &mut self,
        filter: PodSandboxFilter,
    ) -> Result<Vec<PodSandbox>, CheckStop> {
        let request = ListPodSandboxRequest {
            filter: Some(filter),
        };
        Ok(self
            .runtime
            .list_pod_sandbox(request)
            .await?
            .into_inner()
            .items)
    }

    pub(super) async fn list_containers(
        &mut self,
        filter: ContainerFilter,
    ) -> Result<Vec<Container>, CheckStop> {
        let request = ListContainersRequest {
            filter: Some(filter),
        };
        Ok(self
            .runtime
            .list_containers(request)
            .await?
            .into_inner()
            .containers)
    }

    /// Removes what the check made, as far as it is still there.
    pub(super) async fn clean_up(mut self) {
        for id in std::mem::take(&mut self.sandboxes) {
            let stop = StopPodSandboxRequest {
                pod_sandbox_id: id.clone(),
            };
            let stopped = self.runtime.stop_pod_sandbox(stop).await;
            let removed = self
                .runtime
                .remove_pod_sandbox(RemovePodSandboxRequest {
                    pod_sandbox_id: id.clone(),
                })
                .await;
            if let Some(status) = stopped.err().or(removed.err()) {
                tracing::warn!(sandbox = id, %status, "a check left its sandbox behind");
            }
        }
        // Absent when the check made no sandbox.
        drop(fs::remove_dir_all(self.logs()));
    }
}

pub(super) fn creation(sandbox: &Sandbox, config: ContainerConfig) -> CreateContainerRequest {
    CreateContainerRequest {
        pod_sandbox_id: sandbox.id.clone(),
        config: Some(config),
        sandbox_config: Some(sandbox.config.clone()),
    }
}

pub(super) fn string_map(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    pairs
        .iter()
        .map(|&(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}
