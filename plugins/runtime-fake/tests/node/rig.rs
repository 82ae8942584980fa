//! A node in the test's own process, and shorthands for CRI's requests.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use proto::cri::image_service_client::ImageServiceClient;
use proto::cri::runtime_service_client::RuntimeServiceClient;
use proto::cri::*;
use runtime_fake::{Clock, Fake, FakeSettings};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Channel;

pub(crate) type RuntimeClient = RuntimeServiceClient<Channel>;

/// A node that serves until it is closed.
pub(crate) struct Rig {
    pub(crate) fake: Fake,
    pub(crate) runtime: RuntimeClient,
    pub(crate) images: ImageServiceClient<Channel>,
    pub(crate) folder: PathBuf,
    clock: Clock,
    server: JoinHandle<()>,
    _home: Option<tempfile::TempDir>,
}

pub(crate) async fn rig() -> Rig {
    configured("{}").await
}

pub(crate) async fn configured(json: &str) -> Rig {
    let home = tempfile::tempdir().unwrap();
    let mut rig = open(home.path(), json, Clock::start()).await;
    rig._home = Some(home);
    rig
}

async fn open(folder: &Path, json: &str, clock: Clock) -> Rig {
    let settings = FakeSettings::from_json(json.as_bytes()).unwrap();
    let fake = Fake::open_at(folder.to_owned(), settings, clock).unwrap();
    let socket = folder.join("cri.sock");
    drop(std::fs::remove_file(&socket));
    let incoming = UnixListenerStream::new(tokio::net::UnixListener::bind(&socket).unwrap());
    let serving = tonic::transport::Server::builder()
        .add_routes(fake.routes())
        .serve_with_incoming(incoming);
    let server = tokio::spawn(async move { serving.await.unwrap() });
    let channel = sdk::testing::connect(&socket);
    let runtime =
        RuntimeServiceClient::new(channel.clone()).max_decoding_message_size(sdk::MESSAGE_LIMIT);
    let images = ImageServiceClient::new(channel);
    Rig {
        fake,
        runtime,
        images,
        folder: folder.to_owned(),
        clock,
        server,
        _home: None,
    }
}

impl Rig {
    /// Ends this generation as a crash would, and opens the folder again in the same time.
    pub(crate) async fn reopened(self) -> Rig {
        let Rig {
            fake,
            runtime,
            images,
            folder,
            clock,
            server,
            _home,
        } = self;
        server.abort();
        drop((runtime, images, fake, server.await));
        // Connections are tasks of their own and end a little later: the folder is free when they have.
        while matches!(
            Fake::open_at(folder.clone(), FakeSettings::default(), clock),
            Err(runtime_fake::FakeOpenError::Journal(_))
        ) {
            tokio::task::yield_now().await;
        }
        let mut rig = open(&folder, "{}", clock).await;
        rig._home = _home;
        rig
    }

    pub(crate) async fn sandbox(&mut self, name: &str) -> String {
        self.sandbox_with(name, &[]).await
    }

    pub(crate) async fn sandbox_with(
        &mut self,
        name: &str,
        annotations: &[(&str, &str)],
    ) -> String {
        let mut config = sandbox_config(name);
        config.annotations = map(annotations);
        config.log_directory = self.folder.join("logs").join(name).display().to_string();
        run(&mut self.runtime, config).await.unwrap()
    }

    /// Makes a container that runs a shell script, and starts it.
    pub(crate) async fn running(&mut self, sandbox: &str, name: &str, script: &str) -> String {
        let id = self.created(sandbox, name, script).await;
        self.start(&id).await.unwrap();
        id
    }

    pub(crate) async fn created(&mut self, sandbox: &str, name: &str, script: &str) -> String {
        create(&mut self.runtime, sandbox, container_config(name, script))
            .await
            .unwrap()
    }

    pub(crate) async fn start(&mut self, id: &str) -> Result<(), tonic::Status> {
        self.runtime
            .start_container(StartContainerRequest {
                container_id: id.into(),
            })
            .await
            .map(drop)
    }

    pub(crate) async fn stop(&mut self, id: &str, timeout: i64) {
        self.runtime
            .stop_container(StopContainerRequest {
                container_id: id.into(),
                timeout,
            })
            .await
            .unwrap();
    }

    pub(crate) async fn status(&mut self, id: &str) -> ContainerStatus {
        self.try_status(id).await.unwrap()
    }

    pub(crate) async fn try_status(&mut self, id: &str) -> Result<ContainerStatus, tonic::Status> {
        let request = ContainerStatusRequest {
            container_id: id.into(),
            verbose: false,
        };
        Ok(self
            .runtime
            .container_status(request)
            .await?
            .into_inner()
            .status
            .unwrap())
    }

    pub(crate) async fn sandbox_status(
        &mut self,
        id: &str,
    ) -> Result<PodSandboxStatus, tonic::Status> {
        let request = PodSandboxStatusRequest {
            pod_sandbox_id: id.into(),
            verbose: true,
        };
        Ok(self
            .runtime
            .pod_sandbox_status(request)
            .await?
            .into_inner()
            .status
            .unwrap())
    }

    pub(crate) async fn exec(
        &mut self,
        id: &str,
        timeout: i64,
        cmd: &[&str],
    ) -> Result<ExecSyncResponse, tonic::Status> {
        let cmd = cmd.iter().map(ToString::to_string).collect();
        let request = ExecSyncRequest {
            container_id: id.into(),
            cmd,
            timeout,
        };
        self.runtime
            .exec_sync(request)
            .await
            .map(tonic::Response::into_inner)
    }

    pub(crate) async fn containers(&mut self, filter: ContainerFilter) -> Vec<Container> {
        let request = ListContainersRequest {
            filter: Some(filter),
        };
        self.runtime
            .list_containers(request)
            .await
            .unwrap()
            .into_inner()
            .containers
    }

    pub(crate) fn log(&self, pod: &str, container: &str) -> String {
        std::fs::read_to_string(
            self.folder
                .join("logs")
                .join(pod)
                .join(container)
                .join("0.log"),
        )
        .unwrap()
    }
}

pub(crate) async fn run(
    runtime: &mut RuntimeClient,
    config: PodSandboxConfig,
) -> Result<String, tonic::Status> {
    let request = RunPodSandboxRequest {
        config: Some(config),
        runtime_handler: String::new(),
    };
    runtime
        .run_pod_sandbox(request)
        .await
        .map(|answer| answer.into_inner().pod_sandbox_id)
}

pub(crate) async fn create(
    runtime: &mut RuntimeClient,
    sandbox: &str,
    config: ContainerConfig,
) -> Result<String, tonic::Status> {
    let request = CreateContainerRequest {
        pod_sandbox_id: sandbox.into(),
        config: Some(config),
        sandbox_config: None,
    };
    runtime
        .create_container(request)
        .await
        .map(|answer| answer.into_inner().container_id)
}

pub(crate) fn sandbox_config(name: &str) -> PodSandboxConfig {
    PodSandboxConfig {
        metadata: Some(PodSandboxMetadata {
            name: name.into(),
            uid: format!("uid-{name}"),
            namespace: "default".into(),
            attempt: 0,
        }),
        labels: map(&[("pod", name)]),
        ..PodSandboxConfig::default()
    }
}

pub(crate) fn container_config(name: &str, script: &str) -> ContainerConfig {
    ContainerConfig {
        metadata: Some(ContainerMetadata {
            name: name.into(),
            attempt: 0,
        }),
        image: Some(ImageSpec {
            image: "localhost/busybox:latest".into(),
            ..ImageSpec::default()
        }),
        command: vec!["/bin/sh".into(), "-c".into(), script.into()],
        labels: map(&[("container", name)]),
        log_path: format!("{name}/0.log"),
        ..ContainerConfig::default()
    }
}

pub(crate) fn map(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

pub(crate) const SECOND: i64 = 1_000_000_000;

/// Lets the paused clock run.
pub(crate) async fn pass(seconds: u64) {
    tokio::time::sleep(std::time::Duration::from_secs(seconds)).await;
}
