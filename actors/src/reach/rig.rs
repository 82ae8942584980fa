//! For tests: a runtime with one running container, and somebody to listen on loopback.

use std::time::Duration;

use kernel::plugin::Line;
use logic::types::ContainerId;
use proto::cri;
use proto::cri::runtime_service_client::RuntimeServiceClient;
use runtime_fake::{Clock, Fake, Settings};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, spawn_local};

use crate::runtime::Runtime;
use crate::testing::serve;

/// A runtime-fake in the test's process, and a container that sleeps in it.
pub(crate) struct Rig {
    pub(crate) fake: Fake,
    pub(crate) runtime: Runtime,
    pub(crate) id: ContainerId,
    _folder: TempDir,
}

impl Rig {
    pub(crate) async fn start() -> Rig {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fake");
        let fake = Fake::open_at(path, Settings::default(), Clock::start()).unwrap();
        let channel = serve(&fake, folder.path());
        let id = container(RuntimeServiceClient::new(channel.clone())).await;
        let line = Line::fixed("runtime", channel);
        Rig {
            fake,
            runtime: Runtime::new(line, Duration::from_secs(120)),
            id,
            _folder: folder,
        }
    }
}

async fn container(mut client: RuntimeServiceClient<tonic::transport::Channel>) -> ContainerId {
    let sandbox = cri::PodSandboxConfig {
        metadata: Some(cri::PodSandboxMetadata {
            name: "pod".into(),
            uid: "pod".into(),
            namespace: "default".into(),
            attempt: 0,
        }),
        ..Default::default()
    };
    let request = cri::RunPodSandboxRequest {
        config: Some(sandbox.clone()),
        ..Default::default()
    };
    let made = client.run_pod_sandbox(request).await.unwrap().into_inner();
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
        ..Default::default()
    };
    let request = cri::CreateContainerRequest {
        pod_sandbox_id: made.pod_sandbox_id,
        config: Some(config),
        sandbox_config: Some(sandbox),
    };
    let made = client.create_container(request).await.unwrap().into_inner();
    let request = cri::StartContainerRequest {
        container_id: made.container_id.clone(),
    };
    client.start_container(request).await.unwrap();
    made.container_id.into()
}

/// Takes connections on a port, and drops them at once.
pub(crate) struct Door {
    pub(crate) port: u16,
    task: JoinHandle<()>,
}

impl Door {
    pub(crate) async fn open(port: u16) -> Door {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let task = spawn_local(async move { while listener.accept().await.is_ok() {} });
        Door { port, task }
    }

    /// From now on, connections are refused.
    pub(crate) async fn close(self) -> u16 {
        self.task.abort();
        drop(self.task.await);
        self.port
    }
}
