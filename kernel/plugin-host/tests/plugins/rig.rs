//! A host under a supervisor, with a directory of its own, and what a test asks of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kernel::{Addr, ChildSpec, Intensity, Supervisor, mailbox};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use plugin_host::{
    CallError, Confiner, Declaration, HostError, Msg, PluginClient, PluginHost, PluginState,
    PluginStatus, Snapshot,
};
use proto::cri::runtime_service_client::RuntimeServiceClient;
use proto::cri::{RunPodSandboxRequest, VersionRequest, VersionResponse};
use tempfile::TempDir;
use tokio::time::timeout;

/// Longer than anything here takes on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) struct Rig {
    pub(crate) line: PluginClient,
    pub(crate) host: Addr<Msg>,
    pub(crate) supervisor: Supervisor,
    pub(crate) folder: TempDir,
}

/// Runs a test on the actors' thread.
pub(crate) fn run<F: Future<Output = ()>>(test: F) {
    kernel::system::run(test).unwrap();
}

impl Rig {
    /// Starts the host of a plugin.
    pub(crate) fn start(declaration: &Declaration) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), declaration)
    }

    /// As `start`, in a directory that an earlier agent has left.
    pub(crate) fn start_in(folder: TempDir, declaration: &Declaration) -> Self {
        Self::host(folder, declaration, None)
    }

    /// As `start`, with processes that confine themselves.
    pub(crate) fn confined(declaration: &Declaration, confiner: Confiner) -> Self {
        Self::host(
            tempfile::tempdir().unwrap(),
            declaration,
            Some(confiner.into()),
        )
    }

    fn host(folder: TempDir, declaration: &Declaration, confiner: Option<Arc<Confiner>>) -> Self {
        let supervisor = Supervisor::root(
            "root",
            Intensity {
                restarts: 3,
                within: LONG,
            },
        );
        let line = PluginClient::new(declaration.name.clone());
        let (host, port) = mailbox(64);
        let make = {
            let (declaration, path, line) =
                (declaration.clone(), folder.path().to_owned(), line.clone());
            move || {
                let host = PluginHost::new(declaration.clone(), path.clone(), line.clone());
                match &confiner {
                    Some(confiner) => host.confined_by(confiner.clone()),
                    None => host,
                }
            }
        };
        supervisor.spawn(ChildSpec::permanent("test"), port, make);
        Self {
            line,
            host,
            supervisor,
            folder,
        }
    }

    /// Starts the host of a plugin and waits until that is ready.
    pub(crate) async fn ready(declaration: &Declaration) -> Self {
        let rig = Self::start(declaration);
        rig.reach(PluginState::Ready).await;
        rig
    }

    /// The directory of the plugin itself.
    pub(crate) fn dir(&self) -> PathBuf {
        self.folder.path().join("test")
    }

    pub(crate) async fn reach(&self, state: PluginState) -> PluginStatus {
        self.see(|view| view.state == state).await
    }

    /// Waits until the plugin stands as wanted.
    pub(crate) async fn see(&self, wanted: impl FnMut(&PluginStatus) -> bool) -> PluginStatus {
        let mut views = self.line.states();
        match timeout(LONG, views.wait_for(wanted)).await {
            Ok(view) => view.unwrap().clone(),
            Err(_) => panic!("plugin is still {:?}", self.line.state()),
        }
    }

    pub(crate) async fn version(&self) -> Result<VersionResponse, CallError> {
        version(&self.line, LONG).await
    }

    /// A call that creates; its answer holds nothing that is of use here.
    pub(crate) async fn create(&self) -> Result<(), CallError> {
        create(&self.line).await
    }

    pub(crate) async fn pid(&self) -> Pid {
        Pid::from_raw(
            self.version()
                .await
                .unwrap()
                .runtime_version
                .parse()
                .unwrap(),
        )
    }

    /// Sends a signal to the process that answers.
    pub(crate) async fn signal(&self, signal: Signal) -> Pid {
        let pid = self.pid().await;
        kill(pid, signal).unwrap();
        if signal == Signal::SIGSTOP {
            // It stops a moment after the signal, and may answer a call in that.
            let stat = Path::new("/proc").join(pid.to_string()).join("stat");
            until("the process has stopped", || {
                fs::read_to_string(&stat).unwrap().contains(") T ")
            })
            .await;
        }
        pid
    }

    pub(crate) async fn restart(&self) -> Result<u64, HostError> {
        self.host
            .ask(LONG, |reply| Msg::Restart { reply })
            .await
            .unwrap()
    }

    pub(crate) async fn swap(&self, declaration: Declaration) -> Result<u64, HostError> {
        let declaration = Box::new(declaration);
        self.host
            .ask(LONG, |reply| Msg::Swap { declaration, reply })
            .await
            .unwrap()
    }

    pub(crate) async fn try_out(&self, declaration: Declaration) -> Result<(), HostError> {
        let declaration = Box::new(declaration);
        self.host
            .ask(LONG, |reply| Msg::Try { declaration, reply })
            .await
            .unwrap()
    }

    pub(crate) async fn snapshot(&self) -> Snapshot {
        let tree = self.supervisor.tree().await;
        serde_json::from_value(tree.children[0].snapshot.clone()).unwrap()
    }

    /// How often RunPodSandbox was begun, by any generation.
    pub(crate) fn made(&self) -> usize {
        fs::read_to_string(self.dir().join("made")).map_or(0, |made| made.lines().count())
    }

    /// Whether a generation found another one alive in its directory.
    pub(crate) fn overlapped(&self) -> bool {
        self.dir().join("overlap").exists()
    }

    /// Lets RunPodSandbox wait, until this is dropped.
    pub(crate) fn hold(&self) -> Hold {
        let path = self.dir().join("hold");
        mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        let open = fs::File::options().read(true).write(true).open(&path);
        Hold {
            path,
            _open: open.unwrap(),
        }
    }

    pub(crate) async fn end(self) {
        timeout(LONG, self.supervisor.shutdown()).await.unwrap();
    }
}

/// A FIFO whose end the plugin waits for. It is unlinked before it ends: a later process does not wait.
pub(crate) struct Hold {
    path: PathBuf,
    _open: fs::File,
}

impl Drop for Hold {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.path));
    }
}

pub(crate) async fn version(
    line: &PluginClient,
    within: Duration,
) -> Result<VersionResponse, CallError> {
    let ask = |channel| async move {
        RuntimeServiceClient::new(channel)
            .version(VersionRequest::default())
            .await
    };
    line.idempotent(within, ask).await
}

pub(crate) async fn create(line: &PluginClient) -> Result<(), CallError> {
    let request = RunPodSandboxRequest::default();
    let make = |channel| async move {
        RuntimeServiceClient::new(channel)
            .run_pod_sandbox(request)
            .await
    };
    line.creating(LONG, make).await.map(|_| ())
}

/// Waits for a fact that is not reported.
pub(crate) async fn until(what: &str, mut fact: impl FnMut() -> bool) {
    let mut look = tokio::time::interval(Duration::from_millis(2));
    let seen = async {
        while !fact() {
            look.tick().await;
        }
    };
    assert!(timeout(LONG, seen).await.is_ok(), "never: {what}");
}

/// Whether there is a process of this number, a zombie included.
pub(crate) fn exists(pid: Pid) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}
