//! A node of the test's own: the plugin's process with its folder, its monitors and its cgroup.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use proto::cri::image_service_client::ImageServiceClient;
use proto::cri::runtime_service_client::RuntimeServiceClient;
use proto::cri::*;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;
use tonic::transport::Channel;

/// The image of all tests: a static busybox.
pub(crate) const IMAGE: &str = "localhost/busybox:latest";
/// The longest that a real process may take to get where it is going, on a machine that others keep busy.
const FACT_TIMEOUT: Duration = Duration::from_secs(60);
/// How many times as long such a wait may take, as for the tests of the node (`integration/rig/src/wait.rs`).
const PATIENCE: &str = "OXLET_PATIENCE";
/// Nothing tells a test of a process when it is to look again.
const ASK_AGAIN: Duration = Duration::from_millis(20);

pub(crate) struct Rig {
    pub(crate) home: TempDir,
    pub(crate) cgroup: String,
    process: Child,
}

/// Returns a program of the workspace that the build has put beside this test's own.
pub(crate) fn program(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let folder = own.parent().unwrap().parent().unwrap();
    let program = folder.join(name);
    assert!(
        program.exists(),
        "{} is missing: cargo build --bins makes it",
        program.display()
    );
    program
}

impl Rig {
    /// Starts a plugin with a new folder and the image imported.
    pub(crate) async fn start() -> Rig {
        Rig::start_with(json!({})).await
    }

    /// Starts a plugin whose containers are run by the OCI runtime that we bring.
    pub(crate) async fn start_own(more: serde_json::Value) -> Rig {
        let mut fields = json!({
            "handlers": { "oxlet-oci": program("oxlet-oci") },
            "defaultHandler": "oxlet-oci",
        });
        let all = fields.as_object_mut().unwrap();
        all.extend(more.as_object().cloned().unwrap());
        Rig::start_with(fields).await
    }

    /// Starts a plugin with further fields of its configuration.
    pub(crate) async fn start_with(more: serde_json::Value) -> Rig {
        let home = tempfile::Builder::new()
            .prefix("native-")
            .tempdir()
            .unwrap();
        let name = home.path().file_name().unwrap().to_str().unwrap();
        let cgroup = format!("/oxlet-test-{name}");
        let archive = home.path().join("busybox.tar");
        crate::images::save(&archive, IMAGE);
        let mut configuration = json!({
            "monitor": program("oxlet-monitor"),
            "handlers": { "runc": runc() },
            "defaultHandler": "runc",
            "import": [archive],
            "userNamespaceFolder": home.path().join("stages"),
        });
        // As folders of the node's are: everybody may pass through.
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o711)).unwrap();
        let fields = configuration.as_object_mut().unwrap();
        fields.extend(more.as_object().cloned().unwrap());
        fs::write(
            home.path().join("configuration.json"),
            configuration.to_string(),
        )
        .unwrap();
        let process = spawn(home.path());
        let rig = Rig {
            home,
            cgroup,
            process,
        };
        rig.wait_for_socket().await;
        rig
    }

    pub(crate) fn channel(&self) -> Channel {
        sdk::testing::connect(&self.home.path().join("s"))
    }

    pub(crate) fn runtime(&self) -> RuntimeServiceClient<Channel> {
        RuntimeServiceClient::new(self.channel())
    }

    pub(crate) fn images(&self) -> ImageServiceClient<Channel> {
        ImageServiceClient::new(self.channel())
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.home.path().join("logs")
    }

    /// The plugin's folder.
    pub(crate) fn root(&self) -> PathBuf {
        self.home.path().join("d/native")
    }

    /// Kills the plugin as nothing but SIGKILL does, and starts its successor.
    pub(crate) async fn kill_and_restart(&mut self) {
        self.kill();
        self.restart().await;
    }

    /// Starts a successor of the plugin that was killed.
    pub(crate) async fn restart(&mut self) {
        self.process = spawn(self.home.path());
        self.wait_for_socket().await;
    }

    /// Starts a successor with other fields in its configuration.
    pub(crate) async fn reconfigure(&mut self, more: serde_json::Value) {
        self.kill();
        let path = self.home.path().join("configuration.json");
        let text = fs::read(&path).unwrap();
        let mut configuration: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let fields = configuration.as_object_mut().unwrap();
        fields.extend(more.as_object().cloned().unwrap());
        fs::write(&path, configuration.to_string()).unwrap();
        self.restart().await;
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        fs::remove_file(self.home.path().join("s")).unwrap();
    }

    async fn wait_for_socket(&self) {
        let socket = self.home.path().join("s");
        // It is there before anybody listens at it.
        let answers = || std::os::unix::net::UnixStream::connect(&socket).is_ok();
        wait_until("the plugin's socket", answers).await;
    }

    pub(crate) fn pod(&self, name: &str) -> PodSandboxConfig {
        let options = NamespaceOption {
            network: NamespaceMode::Node.into(),
            pid: NamespaceMode::Container.into(),
            ipc: NamespaceMode::Pod.into(),
            ..NamespaceOption::default()
        };
        PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: name.to_owned(),
                uid: format!("uid-{name}"),
                namespace: "test".to_owned(),
                attempt: 0,
            }),
            log_directory: self.logs().join(name).display().to_string(),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: self.cgroup.clone(),
                security_context: Some(LinuxSandboxSecurityContext {
                    namespace_options: Some(options),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    pub(crate) async fn run_pod(&self, config: &PodSandboxConfig) -> String {
        let request = RunPodSandboxRequest {
            config: Some(config.clone()),
            runtime_handler: String::new(),
        };
        let answer = self.runtime().run_pod_sandbox(request).await.unwrap();
        answer.into_inner().pod_sandbox_id
    }

    /// Asks for a pod that may be refused.
    pub(crate) async fn try_pod(&self, config: &PodSandboxConfig) -> Result<String, tonic::Status> {
        let request = RunPodSandboxRequest {
            config: Some(config.clone()),
            runtime_handler: String::new(),
        };
        let answer = self.runtime().run_pod_sandbox(request).await?;
        Ok(answer.into_inner().pod_sandbox_id)
    }

    pub(crate) fn container(&self, name: &str, script: &str) -> ContainerConfig {
        ContainerConfig {
            metadata: Some(ContainerMetadata {
                name: name.to_owned(),
                attempt: 0,
            }),
            image: Some(ImageSpec {
                image: IMAGE.to_owned(),
                ..Default::default()
            }),
            command: ["sh", "-c", script].map(str::to_owned).into(),
            log_path: format!("{name}.log"),
            ..Default::default()
        }
    }

    pub(crate) async fn create(
        &self,
        pod: (&str, &PodSandboxConfig),
        config: ContainerConfig,
    ) -> Result<String, tonic::Status> {
        fs::create_dir_all(&pod.1.log_directory).unwrap();
        let request = CreateContainerRequest {
            pod_sandbox_id: pod.0.to_owned(),
            config: Some(config),
            sandbox_config: Some(pod.1.clone()),
        };
        let answer = self.runtime().create_container(request).await?;
        Ok(answer.into_inner().container_id)
    }

    /// Makes and starts a container.
    pub(crate) async fn run(
        &self,
        pod: (&str, &PodSandboxConfig),
        config: ContainerConfig,
    ) -> String {
        let container_id = self.create(pod, config).await.unwrap();
        let request = StartContainerRequest {
            container_id: container_id.clone(),
        };
        self.runtime().start_container(request).await.unwrap();
        container_id
    }

    pub(crate) async fn status(&self, id: &str) -> ContainerStatus {
        let request = ContainerStatusRequest {
            container_id: id.to_owned(),
            verbose: false,
        };
        let answer = self.runtime().container_status(request).await.unwrap();
        answer.into_inner().status.unwrap()
    }

    /// Waits for a container's end.
    pub(crate) async fn ended(&self, id: &str) -> ContainerStatus {
        let over = |status: &ContainerStatus| status.state() == ContainerState::ContainerExited;
        let asked = async || Some(self.status(id).await).filter(over);
        wait_for("the container's end", asked).await
    }

    /// Runs a script in a container; returns its output and its code.
    pub(crate) async fn exec(&self, id: &str, script: &str) -> (String, i32) {
        let request = ExecSyncRequest {
            container_id: id.to_owned(),
            cmd: ["sh", "-c", script].map(str::to_owned).into(),
            timeout: 20,
        };
        let answer = self
            .runtime()
            .exec_sync(request)
            .await
            .unwrap()
            .into_inner();
        let text = String::from_utf8_lossy(&answer.stdout).into_owned();
        (text, answer.exit_code)
    }

    pub(crate) async fn remove_pod(&self, id: &str) {
        let request = RemovePodSandboxRequest {
            pod_sandbox_id: id.to_owned(),
        };
        self.runtime().remove_pod_sandbox(request).await.unwrap();
    }

    /// Returns the text of a log without times and tags.
    pub(crate) fn log(&self, pod: &str, container: &str) -> Vec<String> {
        let path = self.logs().join(pod).join(format!("{container}.log"));
        let text = fs::read_to_string(path).unwrap();
        let line = |line: &str| line.splitn(4, ' ').nth(3).unwrap_or_default().to_owned();
        text.lines().map(line).collect()
    }

    /// Checks that nothing of any pod is left: no mount, process, cgroup, folder.
    pub(crate) async fn assert_nothing_left(&self) {
        let home = self.home.path().display().to_string();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let left: Vec<_> = mounts.lines().filter(|line| line.contains(&home)).collect();
        let root = self.root().display().to_string();
        assert!(left.is_empty(), "mounts are left: {left:#?}");
        for folder in ["sandboxes", "containers", "m", "damaged"] {
            let entries = fs::read_dir(self.root().join(folder)).unwrap();
            let left: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
            assert!(left.is_empty(), "folders are left: {left:?}");
        }
        for states in fs::read_dir(self.root().join("oci")).into_iter().flatten() {
            let left: Vec<_> = fs::read_dir(states.unwrap().path()).unwrap().collect();
            assert!(left.is_empty(), "OCI state is left: {left:?}");
        }
        let removing = self.root().join("removing");
        let is_removed = || fs::read_dir(&removing).unwrap().next().is_none();
        wait_until("the end of the removals", is_removed).await;
        let stages = fs::read_dir(self.home.path().join("stages")).unwrap();
        let left: Vec<_> = stages.map(|entry| entry.unwrap().path()).collect();
        assert!(left.is_empty(), "stages are left: {left:?}");
        let monitors = || processes_with(&root).is_empty();
        wait_until("the end of the monitors", monitors).await;
        let left = self.cgroups();
        assert!(left.is_empty(), "cgroups are left: {left:?}");
        let log = fs::read_to_string(self.home.path().join("log")).unwrap();
        let lost = log.lines().find(|line| line.contains("cannot be recorded"));
        assert_eq!(lost, None, "an end is recorded once");
    }

    /// Returns the processes of a container by their ids on the node.
    pub(crate) fn processes_of(&self, container: &str) -> Vec<u32> {
        let within = format!("{}/{container}", self.cgroup.trim_start_matches('/'));
        let root = Path::new("/sys/fs/cgroup");
        let places = ["memory", ""].map(|name| root.join(name).join(&within).join("cgroup.procs"));
        let text = places.iter().find_map(|path| fs::read_to_string(path).ok());
        let pids = text.expect("the container has a cgroup");
        pids.lines().map(|pid| pid.parse().unwrap()).collect()
    }

    /// Reads a number of a container's cgroup: `CONTROLLER/FILE` on v1, a file on v2.
    pub(crate) fn cgroup_number(&self, container: &str, v1: &str, v2: &str) -> i64 {
        let (controller, name) = v1.split_once('/').unwrap();
        let root = Path::new("/sys/fs/cgroup");
        let within = format!("{}/{container}", self.cgroup.trim_start_matches('/'));
        let (v1, v2) = (
            root.join(controller).join(&within).join(name),
            root.join(&within).join(v2),
        );
        let path = if v1.exists() { v1 } else { v2 };
        let text = fs::read_to_string(&path).unwrap();
        text.trim().parse().unwrap()
    }

    /// Returns the cgroups below the pod's own.
    pub(crate) fn cgroups(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for folder in self.own_cgroups() {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            found.extend(
                entries
                    .map(|entry| entry.path())
                    .filter(|path| path.is_dir()),
            );
        }
        found
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
        // Where a test failed, what it has left.
        let home = self.home.path().to_string_lossy();
        let root = self.root().display().to_string();
        for pid in processes_with(&root) {
            kill(pid);
        }
        let left = self.cgroups();
        for cgroup in &left {
            let pids = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
            pids.lines()
                .filter_map(|pid| pid.parse().ok())
                .for_each(kill);
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let points = mounts
            .lines()
            .filter_map(|line| line.split(' ').nth(4))
            .filter(|point| point.starts_with(home.as_ref()));
        let mut points: Vec<_> = points.collect();
        points.reverse();
        for point in points {
            drop(Command::new("umount").args(["-l", point]).status());
        }
        for cgroup in left.iter().chain(&self.own_cgroups()) {
            drop(fs::remove_dir(cgroup));
        }
    }
}

impl Rig {
    /// The pod's own cgroup in each hierarchy: on v1 a folder below the root is one, on v2 the root is.
    fn own_cgroups(&self) -> Vec<PathBuf> {
        let root = Path::new("/sys/fs/cgroup");
        let hierarchies = fs::read_dir(root).into_iter().flatten().flatten();
        let own = self.cgroup.trim_start_matches('/');
        let all = hierarchies
            .map(|entry| entry.path())
            .chain([root.to_owned()]);
        all.map(|hierarchy| hierarchy.join(own)).collect()
    }
}

/// Sends SIGKILL. A process that has ended already is fine.
pub(crate) fn kill(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).unwrap();
    kill_process(pid, Signal::KILL).ok();
}

/// Returns the processes, this one apart, whose command line has this text.
pub(crate) fn processes_with(text: &str) -> Vec<u32> {
    let own = std::process::id();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != own)
        .filter(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            line.contains(text) && !line.contains("--socket")
        })
        .collect()
}

/// Waits for a fact of real processes.
pub(crate) async fn wait_until(what: &str, mut fact: impl FnMut() -> bool) {
    wait_for(what, async || fact().then_some(())).await;
}

/// Waits for what real processes are asked for until they have it.
pub(crate) async fn wait_for<T>(what: &str, mut asked: impl AsyncFnMut() -> Option<T>) -> T {
    let waiting = async {
        loop {
            if let Some(found) = asked().await {
                return found;
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    };
    let times = std::env::var(PATIENCE)
        .ok()
        .and_then(|text| text.parse().ok());
    let within = FACT_TIMEOUT * times.unwrap_or(1);
    match tokio::time::timeout(within, waiting).await {
        Ok(found) => found,
        Err(_) => panic!("{what} did not come within {within:?}"),
    }
}

fn spawn(home: &Path) -> Child {
    let log = fs::File::options()
        .create(true)
        .append(true)
        .open(home.join("log"))
        .unwrap();
    Command::new(env!("CARGO_BIN_EXE_runtime-native"))
        .arg("--socket")
        .arg(home.join("s"))
        .arg("--configuration")
        .arg(home.join("configuration.json"))
        .arg("--dir")
        .arg(home.join("d"))
        .stdin(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}

fn runc() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    std::env::split_paths(&path)
        .map(|folder| folder.join("runc"))
        .find(|path| path.exists())
        .expect("apt's runc is in the PATH")
}
