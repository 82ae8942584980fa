//! Sandboxes and containers as CRI is asked for them, for tests that speak to a runtime themselves.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};
use proto::cri;
use proto::cri::runtime_service_client::RuntimeServiceClient;
use tonic::transport::Channel;

use crate::containerd::Containerd;
use crate::images::BUSYBOX_IMAGE;

/// Returns the configuration of a sandbox of this rig, with a log folder of its own.
pub fn sandbox(rig: &Containerd, name: &str) -> Result<cri::PodSandboxConfig> {
    let logs = rig.dir().join("logs").join(name);
    fs::create_dir_all(&logs)?;
    Ok(cri::PodSandboxConfig {
        metadata: Some(cri::PodSandboxMetadata {
            name: name.to_owned(),
            uid: format!("uid-of-{name}"),
            namespace: "default".to_owned(),
            attempt: 0,
        }),
        hostname: name.to_owned(),
        log_directory: logs.display().to_string(),
        labels: BTreeMap::from([("io.kubernetes.pod.name".to_owned(), name.to_owned())])
            .into_iter()
            .collect(),
        linux: Some(cri::LinuxPodSandboxConfig {
            cgroup_parent: rig.cgroup(),
            ..Default::default()
        }),
        ..Default::default()
    })
}

/// Returns the configuration of a busybox container that runs `script` in a shell.
pub fn container(name: &str, script: &str) -> cri::ContainerConfig {
    cri::ContainerConfig {
        metadata: Some(cri::ContainerMetadata {
            name: name.to_owned(),
            attempt: 0,
        }),
        image: Some(cri::ImageSpec {
            image: BUSYBOX_IMAGE.to_owned(),
            ..Default::default()
        }),
        command: vec!["/bin/sh".to_owned(), "-c".to_owned(), script.to_owned()],
        log_path: format!("{name}.log"),
        linux: Some(cri::LinuxContainerConfig::default()),
        ..Default::default()
    }
}

/// Makes a sandbox and returns its id.
pub async fn run_sandbox(
    client: &RuntimeServiceClient<Channel>,
    config: &cri::PodSandboxConfig,
) -> Result<String> {
    let question = cri::RunPodSandboxRequest {
        config: Some(config.clone()),
        runtime_handler: String::new(),
    };
    Ok(client
        .clone()
        .run_pod_sandbox(question)
        .await
        .context("cannot run sandbox")?
        .into_inner()
        .pod_sandbox_id)
}

/// Makes a container in a sandbox, starts it, and returns its id.
pub async fn run_container(
    client: &RuntimeServiceClient<Channel>,
    sandbox_id: &str,
    sandbox: &cri::PodSandboxConfig,
    config: cri::ContainerConfig,
) -> Result<String> {
    let question = cri::CreateContainerRequest {
        pod_sandbox_id: sandbox_id.to_owned(),
        config: Some(config),
        sandbox_config: Some(sandbox.clone()),
    };
    let made = client
        .clone()
        .create_container(question)
        .await
        .context("cannot create container")?;
    let container_id = made.into_inner().container_id;
    let start = cri::StartContainerRequest {
        container_id: container_id.clone(),
    };
    client
        .clone()
        .start_container(start)
        .await
        .context("cannot start container")?;
    Ok(container_id)
}

/// Returns the process id of a container's first process, as containerd tells it in its verbose status.
pub async fn pid_of(client: &RuntimeServiceClient<Channel>, container_id: &str) -> Result<i32> {
    let question = cri::ContainerStatusRequest {
        container_id: container_id.to_owned(),
        verbose: true,
    };
    let answer = client
        .clone()
        .container_status(question)
        .await?
        .into_inner();
    let info = answer.info.get("info").context("no verbose information")?;
    let info: serde_json::Value = serde_json::from_str(info)?;
    let pid = info
        .get("pid")
        .and_then(serde_json::Value::as_i64)
        .context("no pid in the verbose information")?;
    Ok(i32::try_from(pid)?)
}
