//! The agent as a real process, in a folder of its own, on ports of its own, over any runtime.
//!
//! Whatever a test does, panics included, [`Drop`] ends the agent and the plugin processes that it started,
//! and takes away what they left outside of the folder. When a test panics, the end of the agent's log is
//! printed.

mod builder;
mod leftovers;
mod runtime;

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use held_port::HeldPort;
use hyper::Method;
use k8s_openapi::List;
use k8s_openapi::api::core::v1::Pod;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::Instant;

pub use self::builder::{Builder, Runtime};
pub use self::runtime::Cri;
use crate::containerd::CgroupPlacement;
use crate::http;
use crate::{wait_for, wait_until};

/// The node's name, which upstream appends to the names of static pods.
pub const NODE_NAME: &str = "node";
/// A debug build on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// How much of the log a failed test shows.
/// What the kernel logs when an actor asks one that is started after it.
const ASKS_DOWNWARDS: &str = "the actor asks one that is started after it";
const SHOWN_LINES: usize = 250;

/// A node: the agent's process and everything that it owns.
#[derive(Debug)]
pub struct Node {
    dir: PathBuf,
    temporary: Option<TempDir>,
    command: Vec<String>,
    environment: Vec<(String, String)>,
    ports: NodePorts,
    group: CgroupPlacement,
    agent: Option<Child>,
}

/// The node's ports on 127.0.0.1.
#[derive(Debug)]
struct NodePorts {
    healthz: HeldPort,
    read_only: HeldPort,
    https: HeldPort,
}

impl Node {
    /// Returns a builder with the fake runtime and the default configuration.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Returns the folder with everything of this node.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the folder of the static manifests.
    pub fn manifests(&self) -> PathBuf {
        self.dir.join("manifests")
    }

    /// Returns the folder of the pods' logs (`podLogsDir`).
    pub fn pod_logs(&self) -> PathBuf {
        self.dir.join("logs")
    }

    /// Returns the folder of the objects that pods refer to (`--object-manifests`, of [`Builder::with_objects`]).
    pub fn objects(&self) -> PathBuf {
        self.dir.join("objects")
    }

    /// Puts an object's manifest into its folder, or replaces it, whole from the first moment on.
    pub fn drop_object(&self, name: &str, text: &str) -> Result<()> {
        let draft = self.dir.join(format!("draft-{name}"));
        fs::write(&draft, text)?;
        fs::rename(&draft, self.objects().join(name))?;
        Ok(())
    }

    /// Returns the cgroup above the node's pods, unless its configuration says otherwise.
    pub fn cgroup(&self) -> String {
        leftovers::cgroup(&self.dir)
    }

    /// Returns the agent's own folder (`--root-dir`).
    pub fn root(&self) -> PathBuf {
        self.dir.join("root")
    }

    /// Returns the socket that `oxctl` speaks to.
    pub fn admin_socket(&self) -> PathBuf {
        self.dir.join("admin.sock")
    }

    /// Returns the command line that the agent is started with.
    pub fn command(&self) -> &[String] {
        &self.command
    }

    /// Adds a flag to the command line of the agent's next life.
    pub fn add_flag(&mut self, flag: &str) {
        self.command.push(flag.to_owned());
    }

    /// Takes away every container of the fake runtime, as a machine's reboot does. The agent must not run.
    pub fn forget_containers(&self) -> Result<()> {
        ensure!(self.agent.is_none(), "the agent runs");
        leftovers::remove(&self.root(), &self.pod_logs());
        let mut found = 0;
        for folder in fs::read_dir(self.root().join("oxlet/plugins"))? {
            let journal = folder?.path().join("state.journal");
            if journal.exists() {
                fs::remove_file(journal)?;
                found += 1;
            }
        }
        ensure!(found == 1, "found {found} journals of the fake runtime");
        Ok(())
    }

    /// Ends the agent, its plugins, and monitors and containers of the native runtime, and takes their mounts and cgroups
    /// away: what a pulled plug leaves is the disk.
    pub fn pull_plug(&mut self) -> Result<()> {
        self.kill9()?;
        leftovers::remove(&self.root(), &self.pod_logs());
        leftovers::end_native(&self.root(), &self.dir);
        leftovers::unmount(&self.dir);
        leftovers::remove_cgroups(&self.dir);
        Ok(())
    }

    /// Returns the read-only port, which serves `/pods`.
    pub fn read_only_port(&self) -> u16 {
        self.ports.read_only.number()
    }

    /// Returns the port of the health checks.
    pub fn healthz_port(&self) -> u16 {
        self.ports.healthz.number()
    }

    /// Returns the port of the HTTPS API.
    pub fn https_port(&self) -> u16 {
        self.ports.https.number()
    }

    /// Returns the agent's process id; none while it does not run.
    pub fn pid(&self) -> Option<u32> {
        self.agent.as_ref().map(Child::id)
    }

    /// Returns what the agent has logged in all its lives.
    pub fn log(&self) -> String {
        let bytes = fs::read(self.dir.join("oxlet.log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Starts the agent and waits until it is healthy; returns how long that took.
    pub async fn begin(&mut self) -> Result<Duration> {
        ensure!(self.agent.is_none(), "the agent runs already");
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.dir.join("oxlet.log"))?;
        let (program, arguments) = self.command.split_first().context("no command")?;
        let began = Instant::now();
        let mut command = Command::new(program);
        if self.group == CgroupPlacement::Own {
            command.process_group(0);
        }
        let agent = command
            .args(arguments)
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {program}"))?;
        self.agent = Some(agent);
        let healthy = wait_until(START_TIMEOUT, "the agent is healthy", async || {
            self.has_ended() || self.is_healthy().await
        });
        healthy.await?;
        let took = began.elapsed();
        if let Some(status) = self.ended()? {
            bail!(
                "the agent ended at its start: {status}\n{}",
                self.log_tail()
            );
        }
        // Another process may have taken the port, and would answer in the agent's place.
        let version = self.admin("/version").await?;
        let answering = version["pid"].as_u64();
        ensure!(
            answering == self.pid().map(u64::from),
            "another agent answers: {version}"
        );
        Ok(took)
    }

    /// Whether `/healthz` answers 200.
    pub async fn is_healthy(&self) -> bool {
        let answer = http::get(self.ports.healthz.number(), "/healthz").await;
        answer.is_ok_and(|answer| answer.status == 200)
    }

    /// Ends the agent of a node in this folder whose own process was killed.
    pub fn end_stray(dir: &Path) {
        if let Ok(dir) = dir.canonicalize() {
            leftovers::end_stray(&dir);
        }
    }

    /// Takes away what a node in this folder left whose own process was killed, the folder as well.
    pub fn clear(dir: &Path) -> Result<()> {
        Self::end_stray(dir);
        let Ok(dir) = dir.canonicalize() else {
            return Ok(());
        };
        leftovers::remove(&dir.join("root"), &dir.join("logs"));
        leftovers::end_native(&dir.join("root"), &dir);
        leftovers::remove_cgroups(&dir);
        leftovers::unmount(&dir);
        fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))
    }

    /// Ends the agent with SIGKILL; its plugins find out by themselves.
    pub fn kill9(&mut self) -> Result<()> {
        if let Some(mut agent) = self.agent.take() {
            agent.kill()?;
            agent.wait()?;
        }
        Ok(())
    }

    /// Ends the agent with SIGTERM, as systemd does; pods go on.
    pub async fn terminate(&mut self) -> Result<ExitStatus> {
        let agent = self.agent.as_ref().context("the agent does not run")?;
        kill(Pid::from_raw(i32::try_from(agent.id())?), Signal::SIGTERM)?;
        let mut status = None;
        wait_until(STOP_TIMEOUT, "the agent ends", async || {
            status = self.ended().ok().flatten();
            status.is_some()
        })
        .await?;
        self.agent = None;
        status.context("no exit status")
    }

    /// Ends the agent and starts it again; returns how long its start took.
    pub async fn restart(&mut self) -> Result<Duration> {
        self.terminate().await?;
        self.begin().await
    }

    /// Puts a manifest into the folder, whole from the first moment on.
    pub fn drop_manifest(&self, name: &str, text: &str) -> Result<()> {
        let draft = self.dir.join(format!("draft-{name}"));
        fs::write(&draft, text)?;
        fs::rename(&draft, self.manifests().join(name))?;
        Ok(())
    }

    /// Removes a manifest from the folder.
    pub fn remove_manifest(&self, name: &str) -> Result<()> {
        fs::remove_file(self.manifests().join(name)).with_context(|| format!("no manifest {name}"))
    }

    /// Returns every pod of the node, as the read-only port shows them.
    pub async fn pods(&self) -> Result<Vec<Pod>> {
        let answer = http::get(self.ports.read_only.number(), "/pods").await?;
        ensure!(
            answer.status == 200,
            "/pods: {} {}",
            answer.status,
            answer.text()
        );
        let list: List<Pod> = serde_json::from_slice(&answer.body).context("/pods is no list")?;
        Ok(list.items)
    }

    /// Returns the pod that a static manifest of this name has become, if it is there.
    pub async fn pod(&self, name: &str) -> Result<Option<Pod>> {
        let full = format!("{name}-{NODE_NAME}");
        let pods = self.pods().await?;
        Ok(pods
            .into_iter()
            .find(|pod| pod.metadata.name.as_deref() == Some(&full)))
    }

    /// Waits until the pod satisfies; returns it as it was then. The error shows it as it was last.
    pub async fn until(
        &self,
        name: &str,
        within: Duration,
        what: &str,
        holds: impl Fn(&Pod) -> bool,
    ) -> Result<Pod> {
        let mut last = None;
        let waited = wait_for(within, &format!("pod {name} {what}"), async || {
            let Some(pod) = self.pod(name).await? else {
                return Ok(None);
            };
            Ok(Some(last.insert(pod).clone()).filter(&holds))
        })
        .await;
        waited.with_context(|| match last {
            Some(pod) => {
                let shown = serde_json::to_string_pretty(&pod.status).unwrap_or_default();
                format!("its status: {shown}")
            }
            None => format!("pod {name} was never there"),
        })
    }

    /// Waits until the node does not know the pod any more.
    pub async fn until_gone(&self, name: &str, within: Duration) -> Result<()> {
        wait_for(within, &format!("pod {name} is gone"), async || {
            Ok(self.pod(name).await?.is_none().then_some(()))
        })
        .await
    }

    /// Asks the admin socket.
    pub async fn admin(&self, path: &str) -> Result<Value> {
        self.admin_with(Method::GET, path).await
    }

    /// Gives an order over the admin socket.
    pub async fn order(&self, path: &str) -> Result<Value> {
        self.admin_with(Method::POST, path).await
    }

    async fn admin_with(&self, method: Method, path: &str) -> Result<Value> {
        let answer = http::ask_socket(&self.admin_socket(), method, path).await?;
        ensure!(
            answer.status == 200,
            "{path}: {} {}",
            answer.status,
            answer.text()
        );
        serde_json::from_slice(&answer.body).with_context(|| format!("{path} is no JSON"))
    }

    /// Runs `oxctl` against this node; returns what it prints.
    pub async fn oxctl(&self, arguments: &[&str]) -> Result<String> {
        let output = tokio::process::Command::new(program("oxctl")?)
            .arg("--socket")
            .arg(self.admin_socket())
            .args(arguments)
            .output()
            .await?;
        ensure!(
            output.status.success(),
            "oxctl {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Returns the runtime plugin as the agent shows it: `state`, `pid`, `socket`, `generation`, `restarts`.
    pub async fn plugin(&self) -> Result<Value> {
        self.plugin_named("runtime").await
    }

    /// Returns a plugin as the agent shows it, by the name of its host: `runtime`, `storage-local`, `storage-csi`.
    pub async fn plugin_named(&self, name: &str) -> Result<Value> {
        let plugins = self.admin("/plugins").await?;
        let mut plugins = plugins.as_array().into_iter().flatten();
        let found = plugins.find(|plugin| plugin["name"] == name);
        found
            .cloned()
            .with_context(|| format!("the agent has no plugin {name}"))
    }

    /// Kills the runtime plugin's process, whichever it is now; returns whether there was one.
    pub fn kill_plugin(&self) -> bool {
        self.kill_plugin_named("runtime")
    }

    /// Kills a plugin's process, whichever it is now, by the name of its host; returns whether there was one.
    pub fn kill_plugin_named(&self, name: &str) -> bool {
        let pids = leftovers::plugin(&self.root(), name);
        // Gone meanwhile is as good.
        pids.into_iter()
            .filter(|pid| kill(*pid, Signal::SIGKILL).is_ok())
            .count()
            > 0
    }

    /// Connects to the runtime through its plugin's socket.
    pub async fn cri(&self) -> Result<Cri> {
        let plugin = self.plugin().await?;
        let socket = plugin["socket"]
            .as_str()
            .context("the plugin has no socket")?;
        Ok(Cri::connect(Path::new(socket)))
    }

    /// Waits until nothing of the node is in a state of change: the runtime answers through the plugin.
    pub async fn until_plugin_ready(&self, within: Duration) -> Result<()> {
        wait_for(within, "the runtime plugin is ready", async || {
            let plugin = self.plugin().await?;
            Ok((plugin["state"] == "ready").then_some(()))
        })
        .await
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.ended(), Ok(None))
    }

    fn ended(&mut self) -> Result<Option<ExitStatus>> {
        let Some(agent) = &mut self.agent else {
            bail!("the agent was not started");
        };
        Ok(agent.try_wait()?)
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "--- the end of the agent's log ({}) ---\n{}\n---",
                self.dir.display(),
                self.log_tail()
            );
        }
        if let Err(error) = self.kill9() {
            eprintln!("agent rig: the agent is not ended: {error}");
        }
        let log = self.log();
        let broken = log.lines().find(|line| line.contains(ASKS_DOWNWARDS));
        leftovers::remove(&self.root(), &self.pod_logs());
        leftovers::end_native(&self.root(), &self.dir);
        leftovers::remove_cgroups(&self.dir);
        leftovers::unmount(&self.dir);
        if let Some(dir) = self.temporary.take()
            && let Err(error) = dir.close()
        {
            eprintln!("agent rig: {error}");
        }
        if let Some(line) = broken.filter(|_| !std::thread::panicking()) {
            panic!("an actor asks downwards: {line}");
        }
    }
}

/// Finds a program of this workspace beside the running one.
pub fn program(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let mut folder = own.parent().context("a program without a folder")?;
    if folder.ends_with("deps") {
        folder = folder.parent().unwrap_or(folder);
    }
    let path = folder.join(name);
    ensure!(
        path.exists(),
        "{} is not built: run `cargo build --workspace --bins` first",
        path.display()
    );
    Ok(path)
}
