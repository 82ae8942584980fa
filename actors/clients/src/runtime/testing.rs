//! For tests: a container made over the wire, as another client of the runtime would.

#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::path::Path;

use logic_api::types::ContainerId;
use proto::cri;
use proto::cri::runtime_service_client::RuntimeServiceClient;
use tonic::transport::Channel;

/// Starts a container that sleeps and logs below `logs`; returns its id.
pub async fn running_container(channel: Channel, logs: &Path) -> ContainerId {
    let mut client = RuntimeServiceClient::new(channel);
    let sandbox = cri::PodSandboxConfig {
        metadata: Some(cri::PodSandboxMetadata {
            name: "pod".into(),
            uid: "pod".into(),
            namespace: "default".into(),
            attempt: 0,
        }),
        log_directory: logs.to_string_lossy().into_owned(),
        ..Default::default()
    };
    let request = cri::RunPodSandboxRequest {
        config: Some(sandbox.clone()),
        ..Default::default()
    };
    let pod_sandbox_id = client
        .run_pod_sandbox(request)
        .await
        .unwrap()
        .into_inner()
        .pod_sandbox_id;
    let config = cri::ContainerConfig {
        metadata: Some(cri::ContainerMetadata {
            name: "main".into(),
            attempt: 0,
        }),
        image: Some(cri::ImageSpec {
            image: "localhost/busybox".into(),
            ..Default::default()
        }),
        command: vec!["sleep".into(), "1000000".into()],
        log_path: "main/0.log".into(),
        ..Default::default()
    };
    let request = cri::CreateContainerRequest {
        pod_sandbox_id,
        config: Some(config),
        sandbox_config: Some(sandbox),
    };
    let container_id = client
        .create_container(request)
        .await
        .unwrap()
        .into_inner()
        .container_id;
    let request = cri::StartContainerRequest {
        container_id: container_id.clone(),
    };
    client.start_container(request).await.unwrap();
    container_id.into()
}

/// The CPUs that a container was told last, as a list of ranges, and its quota of CPU in microseconds.
pub async fn cpus(channel: Channel, id: &ContainerId) -> (String, i64) {
    let request = cri::ContainerStatusRequest {
        container_id: id.as_str().to_owned(),
        verbose: false,
    };
    let mut client = RuntimeServiceClient::new(channel);
    let answer = client.container_status(request).await.unwrap();
    let status = answer.into_inner().status.unwrap();
    let linux = status.resources.and_then(|resources| resources.linux);
    let linux = linux.unwrap();
    (linux.cpuset_cpus, linux.cpu_quota)
}
