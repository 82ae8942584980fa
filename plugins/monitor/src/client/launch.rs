//! A monitor is started, or found running.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::time::timeout;

use super::{Monitor, MonitorError};

/// How long a monitor may take until it listens, the recovery of its predecessor's containers apart.
const READY: Duration = Duration::from_secs(20);
/// The longest word of a monitor that cannot start, in bytes.
const WORD_BYTES: u64 = 4096;
/// Becomes the monitor once the scope is there.
const SYSTEMD_RUN: &str = "systemd-run";

/// A monitor to be started.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program `oxlet-monitor`.
    pub program: PathBuf,
    /// The pod's folder: the monitor's socket and records. It is made, for root alone, when it is not there.
    pub folder: PathBuf,
    /// None leaves it in the caller's cgroup.
    pub cgroup: Option<Place>,
}

/// A monitor's cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A cgroup that it puts itself into, in every hierarchy, as a path below each hierarchy's root; made when it
    /// isn't there. On cgroup v2 it must be a leaf.
    Cgroup(PathBuf),
    /// A scope of systemd's of this name in this slice, made by `systemd-run`; it ends with the monitor.
    Scope { slice: String, unit: String },
}

/// Why no monitor runs.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("cannot run {0}")]
    Run(PathBuf, #[source] std::io::Error),
    #[error("monitor of {0} does not start: {1}")]
    Refused(PathBuf, String),
    #[error("monitor of {0} is not ready within {READY:?}")]
    Deadline(PathBuf),
    #[error("monitor of {0} started but does not answer")]
    Silent(PathBuf, #[source] MonitorError),
}

impl Launch {
    /// Returns the folder's monitor: the one that runs, or a new one, which takes over what its predecessor left.
    /// Needs a tokio runtime, which reaps the process when it ends.
    pub async fn start(&self) -> Result<Monitor, LaunchError> {
        let monitor = Monitor::at(&self.folder);
        if monitor.status().await.is_ok() {
            return Ok(monitor);
        }
        self.spawn().await?;
        match monitor.status().await {
            Ok(_) => Ok(monitor),
            Err(error) => Err(LaunchError::Silent(self.folder.clone(), error)),
        }
    }

    async fn spawn(&self) -> Result<(), LaunchError> {
        let mut command = self.command();
        let program = PathBuf::from(command.as_std().get_program());
        let spawned = command.spawn();
        let mut child = spawned.map_err(|error| LaunchError::Run(program, error))?;
        let (words, complaints) = (child.stdout.take(), child.stderr.take());
        // Reaped whenever it ends; it outlives this process when this one ends first.
        drop(tokio::spawn(async move { child.wait().await }));
        let mut word = String::new();
        let read = async {
            if let Some(words) = words {
                words.take(WORD_BYTES).read_to_string(&mut word).await?;
            }
            if let Some(complaints) = complaints.filter(|_| word != "ready\n") {
                complaints
                    .take(WORD_BYTES)
                    .read_to_string(&mut word)
                    .await?;
            }
            Ok::<_, std::io::Error>(())
        };
        match timeout(READY, read).await {
            Ok(Ok(())) if word == "ready\n" => Ok(()),
            Ok(_) => Err(LaunchError::Refused(
                self.folder.clone(),
                word.trim().to_owned(),
            )),
            Err(_) => Err(LaunchError::Deadline(self.folder.clone())),
        }
    }

    fn command(&self) -> Command {
        let mut command = match &self.cgroup {
            Some(Place::Scope { slice, unit }) => {
                let mut command = Command::new(SYSTEMD_RUN);
                command.args(["--scope", "--quiet", "--collect"]);
                // As the containers' own scopes: it isn't stopped before them when the machine goes down.
                command.arg("--property=DefaultDependencies=no");
                command.args(["--slice", slice, "--unit", unit, "--"]);
                command.arg(&self.program).stderr(Stdio::piped());
                command
            }
            Some(Place::Cgroup(_)) | None => {
                let mut command = Command::new(&self.program);
                command.stderr(Stdio::null());
                command
            }
        };
        command.arg("--folder").arg(&self.folder);
        if let Some(Place::Cgroup(cgroup)) = &self.cgroup {
            command.arg("--cgroup").arg(cgroup);
        }
        command.env_clear().current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command
    }
}
