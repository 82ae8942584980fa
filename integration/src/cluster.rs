//! A cluster of one node: an API server, the double or a real one, the agent as its node, and kubectl.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use apiserver::{
    AccessControl, ApiServer, CallerIdentity, Real, Server, ServerOptions, ServerPrograms,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::agent::{Builder, NODE_NAME, Node};
use crate::{patient, wait_until};

/// Where kubectls of several versions may lie, besides the PATH.
const KUBECTLS: &str = "OXLET_KUBECTLS";
/// The administrator's kubeconfig.
const ADMIN: &str = "admin.kubeconfig";
/// A kubectl that takes longer hangs.
const KUBECTL_TIMEOUT: Duration = Duration::from_secs(60);

/// The server, its node, and the ways to both.
#[derive(Debug)]
pub struct Cluster {
    pub server: ApiServer,
    pub node: Node,
    folder: TempDir,
}

/// The kind of a cluster's API server.
#[derive(Debug, Clone)]
pub enum ServerKind {
    /// The double, in this process.
    Double,
    /// A real one, from these programs.
    Real(ServerPrograms),
}

impl ServerKind {
    /// Returns each that this machine has: the double, and a real one where the PATH leads to it.
    pub fn available() -> Vec<ServerKind> {
        let real = ServerPrograms::find().map(ServerKind::Real);
        std::iter::once(ServerKind::Double).chain(real).collect()
    }
}

/// The result of a kubectl: whether it exited with 0, its standard output and its standard error.
#[derive(Debug, Clone)]
pub struct KubectlOutput {
    pub ok: bool,
    pub out: String,
    pub err: String,
}

impl Cluster {
    /// Starts a server that serves only authorized requests, and an agent as its node.
    pub async fn start(builder: Builder) -> Result<Cluster> {
        let mut cluster = Cluster::prepare(builder, ServerOptions::default()).await?;
        cluster
            .node
            .begin()
            .await
            .context("the agent does not start")?;
        Ok(cluster)
    }

    /// The same with a server of other habits; the agent is not started yet.
    pub async fn prepare(builder: Builder, options: ServerOptions) -> Result<Cluster> {
        let server = Server::start(ServerOptions {
            security: AccessControl::Guarded,
            scheduler: true,
            kubelets_at: Some("127.0.0.1".to_owned()),
            ..options
        });
        Cluster::of(ApiServer::Double(server.await?), builder)
    }

    /// The same with this server.
    pub async fn prepare_on(which: ServerKind, builder: Builder) -> Result<Cluster> {
        match which {
            ServerKind::Double => Cluster::prepare(builder, ServerOptions::default()).await,
            ServerKind::Real(programs) => {
                let real = Real::start(programs, NODE_NAME)?;
                Cluster::of(ApiServer::Real(real), builder)
            }
        }
    }

    fn of(server: ApiServer, builder: Builder) -> Result<Cluster> {
        let folder = tempfile::Builder::new().prefix("oxlet-").tempdir()?;
        let ca = folder.path().join("ca.pem");
        fs::write(&ca, server.authority())?;
        let config = json!({
            "authentication": { "x509": { "clientCAFile": ca } },
            "syncFrequency": "1m",
        });
        let kubeconfig = server.kubeconfig(&CallerIdentity::node(NODE_NAME))?;
        let node = builder.with_api(kubeconfig).defaults(&config).prepare()?;
        let admin = server.kubeconfig(&CallerIdentity::admin())?;
        fs::write(folder.path().join(ADMIN), admin)?;
        Ok(Cluster {
            server,
            node,
            folder,
        })
    }

    /// Returns the double; for orders that only a double takes.
    pub fn double(&self) -> &Server {
        self.server.double()
    }

    /// Returns the administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join(ADMIN)
    }

    /// Returns a folder for files of the test.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Makes a pod of this manifest, in the namespace `default` if it names none.
    pub fn apply(&self, pod: &Value) -> Result<Value> {
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or("default");
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        let made = self.server.post(&path, pod);
        made.map_err(|failure| anyhow::anyhow!("{failure:?}"))
    }

    /// Returns a pod of the namespace `default`, if it is there.
    pub fn pod(&self, name: &str) -> Option<Value> {
        self.server
            .get(&format!("/api/v1/namespaces/default/pods/{name}"))
            .ok()
    }

    /// Waits until a pod is as wanted; the pod is null while there is none.
    pub async fn until_pod(
        &self,
        name: &str,
        within: Duration,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let path = format!("/api/v1/namespaces/default/pods/{name}");
        self.until(&path, within, wanted).await
    }

    /// Waits until an object is as wanted; it is null while there is none.
    pub async fn until(
        &self,
        path: &str,
        within: Duration,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let seen = |object: Option<&Value>| wanted(object.unwrap_or(&Value::Null));
        let found = self.server.wait(path, patient(within), seen).await;
        let Some(found) = found else {
            let last = self.server.get(path).ok();
            bail!("{path} is not as wanted within {within:?}: {last:#?}");
        };
        Ok(found.unwrap_or(Value::Null))
    }

    /// Waits until the node says that it is ready.
    pub async fn until_ready(&self, within: Duration) -> Result<Value> {
        let path = format!("/api/v1/nodes/{NODE_NAME}");
        let ready = |node: &Value| condition(node, "Ready") == Some("True");
        self.until(&path, within, ready).await
    }

    /// Runs kubectl to its end.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<KubectlOutput> {
        self.kubectl_of(&kubectls()?[0], arguments).await
    }

    /// Runs this kubectl to its end.
    pub async fn kubectl_of(&self, program: &Path, arguments: &[&str]) -> Result<KubectlOutput> {
        self.kubectl_in(&[], program, arguments).await
    }

    /// Runs this kubectl to its end, with more in its environment; and once more where it lost what it was sent: before 1.34 it
    /// may read from a WebSocket before its own streams are there (kubernetes#131203).
    pub async fn kubectl_in(
        &self,
        environment: &[(&str, &str)],
        program: &Path,
        arguments: &[&str],
    ) -> Result<KubectlOutput> {
        let whole = async {
            loop {
                let mut command = self.command(program, arguments);
                command.envs(environment.iter().copied());
                let output = command.output().await?;
                let err = String::from_utf8_lossy(&output.stderr).into_owned();
                if !err.contains("Unknown stream id") {
                    return anyhow::Ok(KubectlOutput {
                        ok: output.status.success(),
                        out: String::from_utf8_lossy(&output.stdout).into_owned(),
                        err,
                    });
                }
            }
        };
        let output = tokio::time::timeout(patient(KUBECTL_TIMEOUT), whole).await;
        output.with_context(|| format!("kubectl {arguments:?} hangs"))?
    }

    /// Runs kubectl and returns what it wrote; an error if it failed.
    pub async fn kubectl_ok(&self, arguments: &[&str]) -> Result<String> {
        let said = self.kubectl(arguments).await?;
        ensure!(said.ok, "kubectl {arguments:?}: {}{}", said.out, said.err);
        Ok(said.out)
    }

    /// Starts a kubectl that goes on, with its input and output at hand.
    pub fn kubectl_child(&self, arguments: &[&str]) -> Result<Child> {
        self.kubectl_child_in(&[], &kubectls()?[0], arguments)
    }

    /// Starts this kubectl the same way, with more in its environment.
    pub fn kubectl_child_in(
        &self,
        environment: &[(&str, &str)],
        program: &Path,
        arguments: &[&str],
    ) -> Result<Child> {
        let mut command = self.command(program, arguments);
        command.envs(environment.iter().copied());
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Ok(command.stderr(Stdio::piped()).spawn()?)
    }

    /// Starts a kubectl whose input and output are this terminal; it gets SIGWINCH when the size changes.
    pub fn kubectl_on(&self, terminal: &File, arguments: &[&str]) -> Result<Child> {
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(&kubectls()?[0]);
        self.at_home(&mut command, arguments);
        command.stdin(terminal.try_clone()?);
        command.stdout(terminal.try_clone()?);
        Ok(command.stderr(terminal.try_clone()?).spawn()?)
    }

    fn command(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        self.at_home(&mut command, arguments);
        command
    }

    fn at_home(&self, command: &mut Command, arguments: &[&str]) {
        command
            .arg("--kubeconfig")
            .arg(self.kubeconfig())
            .arg("--cache-dir")
            .arg(self.folder.path().join("cache"))
            .args(arguments)
            .kill_on_drop(true)
            .stdin(Stdio::null());
    }

    /// Waits until something is so, in words.
    pub async fn wait(&self, what: &str, holds: impl AsyncFnMut() -> bool) -> Result<()> {
        wait_until(Duration::from_secs(60), what, holds).await
    }
}

/// The state of a condition of an object.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    let conditions = object["status"]["conditions"].as_array()?;
    let found = conditions.iter().find(|one| one["type"] == kind)?;
    found["status"].as_str()
}

/// Every kubectl of this machine: on the PATH, beside the first one under a name with its version, and where
/// `OXLET_KUBECTLS` says; an error where there is none.
pub fn kubectls() -> Result<Vec<PathBuf>> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = std::env::var_os(KUBECTLS).unwrap_or_default();
    let mut found = Vec::new();
    for folder in std::env::split_paths(&path).chain(std::env::split_paths(&more)) {
        let plain = folder.join("kubectl");
        if plain.is_file() {
            found.push(plain);
        }
        let minor = (27..=40).map(|minor| folder.join(format!("kubectl.1.{minor}")));
        found.extend(minor.filter(|path| path.is_file()));
    }
    ensure!(
        !found.is_empty(),
        "no kubectl on the PATH, nor where {KUBECTLS} says"
    );
    Ok(found)
}
