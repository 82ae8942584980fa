//! One runtime's run of one case: sandbox, container, exec, end, removal; everything seen on the way is the observation.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::mount::{MsFlags, mount};
use proto::cri::runtime_service_client::RuntimeServiceClient;
use proto::cri::{
    ContainerConfig, ContainerState, ContainerStatus, ContainerStatusRequest,
    CreateContainerRequest, ExecSyncRequest, PodSandboxConfig, RemovePodSandboxRequest,
    RunPodSandboxRequest, StartContainerRequest, StopContainerRequest, StopPodSandboxRequest,
};
use rig::wait_until;
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Response, Status};

use crate::case::{Case, End, Source};
use crate::native::unmount_below;
use crate::observed::{Names, Observation};
use crate::requests::{self, Places};

/// The longest that one call may take on a busy machine.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest that the probe may take to print its line, or the container to end.
const FACT_TIMEOUT: Duration = Duration::from_secs(20);
/// The exec's own status, which the runtime is to hand back.
const EXEC_STATUS: &str = "--exit=5";

/// A runtime and its handler, with the folders of what it runs.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    pub(crate) name: &'static str,
    pub(crate) runtime: RuntimeServiceClient<Channel>,
    pub(crate) handler: &'static str,
    /// The group that those of its pods are below.
    pub(crate) cgroup: String,
    /// Fixtures, logs and profiles of all lanes.
    pub(crate) home: PathBuf,
}

/// A sandbox that the runtime has made, and what was asked for.
#[derive(Clone, Copy)]
struct Sandbox<'a> {
    id: &'a str,
    config: &'a PodSandboxConfig,
}

/// A container, and what has been learnt of it.
struct Container {
    /// How the keys of its observation begin.
    prefix: &'static str,
    id: String,
    log: PathBuf,
}

impl Lane {
    /// Runs the case; what the runtime refuses is part of the observation. The error is the campaign's own.
    pub(crate) async fn run(&self, case: &Case) -> Result<Observation> {
        let places = self.places(case);
        make_fixture(case, &places.fixture)?;
        fs::create_dir_all(&places.logs)?;
        let mut observation = Observation::new(Names {
            fixture: places.fixture.display().to_string(),
            cgroup: places.cgroup.clone(),
            home: self.home.display().to_string(),
            ids: Vec::new(),
        });
        let config = requests::sandbox(case, &places);
        let asked = RunPodSandboxRequest {
            config: Some(config.clone()),
            runtime_handler: self.handler.to_owned(),
        };
        let sandbox = within(self.runtime.clone().run_pod_sandbox(asked)).await;
        match observation.accepted("sandbox", sandbox) {
            None => {}
            Some(answer) => {
                let id = answer.pod_sandbox_id;
                observation.names.ids.push((id.clone(), "<pod>"));
                let run = self.containers(
                    case,
                    &places,
                    Sandbox {
                        id: &id,
                        config: &config,
                    },
                    &mut observation,
                );
                let run = run.await;
                self.remove(&id, &mut observation).await;
                run?;
            }
        }
        unmount_below(&places.fixture);
        fs::remove_dir_all(&places.fixture).context("cannot remove the fixture")?;
        fs::remove_dir_all(&places.logs).context("cannot remove the logs")?;
        Ok(observation)
    }

    fn places(&self, case: &Case) -> Places {
        let own = format!("{}-{}", case.seed, self.name);
        Places {
            fixture: self.home.join("fixtures").join(&own),
            profiles: self.home.join("profiles"),
            logs: self.home.join("logs").join(&own),
            cgroup: format!("{}/seed-{own}", self.cgroup),
            namespace: self.name.to_owned(),
        }
    }

    async fn containers(
        &self,
        case: &Case,
        places: &Places,
        sandbox: Sandbox<'_>,
        observation: &mut Observation,
    ) -> Result<()> {
        let config = requests::container(case, places);
        let main = self.begin("main", sandbox, config, observation).await;
        // Nothing can join a container that was refused.
        let can_begin = main.is_some() || !case.pod.second_joins_first;
        if case.pod.second_container && can_begin {
            let first = main.as_ref().map_or("", |main| &main.id);
            let config = requests::second_container(case, first);
            if let Some(second) = self.begin("second", sandbox, config, observation).await {
                self.ended(&second, observation).await?;
                second.read_log(observation)?;
            }
        }
        let Some(main) = main else {
            return Ok(());
        };
        match case.end {
            End::Exit(_) => self.ended(&main, observation).await?,
            End::Removal => {}
            End::Stop(grace) => {
                let printed = self.printed_or_ended(&main).await;
                observation.put("main.prints", printed);
                self.exec(case, &main, observation).await;
                let stop = StopContainerRequest {
                    container_id: main.id.clone(),
                    timeout: grace,
                };
                let stopped = within(self.runtime.clone().stop_container(stop)).await;
                observation.accepted("stop", stopped);
                self.ended(&main, observation).await?;
            }
        }
        main.read_log(observation)
    }

    /// Makes and starts a container; none where the runtime refuses one of it.
    async fn begin(
        &self,
        prefix: &'static str,
        sandbox: Sandbox<'_>,
        config: ContainerConfig,
        observation: &mut Observation,
    ) -> Option<Container> {
        let log = Path::new(&sandbox.config.log_directory).join(&config.log_path);
        let asked = CreateContainerRequest {
            pod_sandbox_id: sandbox.id.to_owned(),
            config: Some(config),
            sandbox_config: Some(sandbox.config.clone()),
        };
        let runs = format!("{prefix}.runs");
        let made = within(self.runtime.clone().create_container(asked)).await;
        let id = observation.accepted(&runs, made)?.container_id;
        observation.names.ids.push((id.clone(), "<id>"));
        let asked = StartContainerRequest {
            container_id: id.clone(),
        };
        let started = within(self.runtime.clone().start_container(asked)).await;
        // Refusing it now or at the creation is the same to a pod.
        let container = observation.accepted(&runs, started).map(|_| Container {
            prefix,
            id: id.clone(),
            log,
        });
        if container.is_none()
            && let Ok(status) = self.status(&id).await
        {
            observation.put(format!("{prefix}.exit.code"), status.exit_code);
            observation.put(format!("{prefix}.exit.reason"), status.reason);
        }
        container
    }

    async fn exec(&self, case: &Case, container: &Container, observation: &mut Observation) {
        let words = ["/bin/probe", EXEC_STATUS].map(str::to_owned);
        let asked = ExecSyncRequest {
            container_id: container.id.clone(),
            cmd: words
                .into_iter()
                .chain(case.container.exec_args.clone())
                .collect(),
            timeout: 30,
        };
        let answer = within(self.runtime.clone().exec_sync(asked)).await;
        if let Some(answer) = observation.accepted("exec.runs", answer) {
            observation.put("exec.exit.code", answer.exit_code);
            observation.read("exec", &String::from_utf8_lossy(&answer.stdout));
            observation.put("exec.stderr", String::from_utf8_lossy(&answer.stderr));
        }
    }

    /// Whether the probe has printed its line, or the container has ended, in time.
    async fn printed_or_ended(&self, container: &Container) -> bool {
        let waited = wait_until(FACT_TIMEOUT, "the probe prints or ends", async || {
            let printed = container
                .lines()
                .is_ok_and(|lines| lines.iter().any(|line| line.starts_with('{')));
            printed
                || self
                    .status(&container.id)
                    .await
                    .is_ok_and(|status| is_over(&status))
        });
        waited.await.is_ok()
    }

    async fn ended(&self, container: &Container, observation: &mut Observation) -> Result<()> {
        // One that does not end is an observation too.
        let waited = wait_until(FACT_TIMEOUT, "the container ends", async || {
            self.status(&container.id)
                .await
                .is_ok_and(|status| is_over(&status))
        });
        drop(waited.await);
        let status = self.status(&container.id).await?;
        let prefix = container.prefix;
        observation.put(format!("{prefix}.exit.state"), status.state().as_str_name());
        observation.put(format!("{prefix}.exit.code"), status.exit_code);
        observation.put(format!("{prefix}.exit.reason"), status.reason);
        Ok(())
    }

    async fn status(&self, id: &str) -> Result<ContainerStatus> {
        let asked = ContainerStatusRequest {
            container_id: id.to_owned(),
            verbose: false,
        };
        let answer = within(self.runtime.clone().container_status(asked)).await?;
        answer
            .into_inner()
            .status
            .context("an answer without status")
    }

    async fn remove(&self, sandbox: &str, observation: &mut Observation) {
        let stop = StopPodSandboxRequest {
            pod_sandbox_id: sandbox.to_owned(),
        };
        let stopped = within(self.runtime.clone().stop_pod_sandbox(stop)).await;
        observation.accepted("removal", stopped);
        let remove = RemovePodSandboxRequest {
            pod_sandbox_id: sandbox.to_owned(),
        };
        let removed = within(self.runtime.clone().remove_pod_sandbox(remove)).await;
        observation.accepted("removal", removed);
    }
}

impl Container {
    /// Returns the lines of its log as the container wrote them: CRI's pieces are put together.
    fn lines(&self) -> Result<Vec<String>> {
        let bytes = fs::read(&self.log).with_context(|| self.log.display().to_string())?;
        let mut lines = vec![String::new()];
        for entry in String::from_utf8_lossy(&bytes).split('\n') {
            // Time, stream, tag, text.
            let mut fields = entry.splitn(4, ' ');
            let (Some(tag), text) = (fields.nth(2), fields.next().unwrap_or_default()) else {
                continue;
            };
            if let Some(line) = lines.last_mut() {
                line.push_str(text);
            }
            if tag == "F" {
                lines.push(String::new());
            }
        }
        lines.pop();
        Ok(lines)
    }

    fn read_log(&self, observation: &mut Observation) -> Result<()> {
        for (number, line) in self.lines().unwrap_or_default().iter().enumerate() {
            if line.starts_with('{') {
                observation.read(self.prefix, line);
            } else {
                observation.put(format!("{}.line.{number}", self.prefix), line);
            }
        }
        Ok(())
    }
}

fn is_over(status: &ContainerStatus) -> bool {
    status.state() == ContainerState::ContainerExited
}

async fn within<T>(
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<Response<T>, Status> {
    match timeout(CALL_TIMEOUT, call).await {
        Ok(answer) => answer,
        Err(_) => Err(Status::deadline_exceeded("the campaign's deadline")),
    }
}

/// Makes what the case's mounts have as their sources, each runtime's own.
fn make_fixture(case: &Case, fixture: &Path) -> Result<()> {
    let below = fixture.join("folder/below");
    fs::create_dir_all(&below)?;
    fs::write(fixture.join("folder/file"), "of the node")?;
    fs::write(below.join("file"), "of the node, below")?;
    fs::set_permissions(fixture.join("folder"), fs::Permissions::from_mode(0o777))?;
    chown(&below, Some(1000), Some(2000))?;
    fs::write(fixture.join("file"), "a file of the node")?;
    symlink("folder", fixture.join("link"))?;
    let private = fixture.join("private");
    fs::create_dir(&private)?;
    fs::set_permissions(&private, fs::Permissions::from_mode(0o700))?;
    let mut mounts = case.container.mounts.iter();
    if !mounts.any(|mount| mount.source == Source::Tree) {
        return Ok(());
    }
    let tree = fixture.join("tree");
    for folder in [tree.clone(), tree.join("inner")] {
        fs::create_dir(&folder)?;
        let options = Some("size=1m,mode=755");
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        if let Err(error) = mount(Some("tree"), &folder, Some("tmpfs"), flags, options) {
            bail!("cannot mount {}: {error}", folder.display());
        }
    }
    Ok(())
}
