//! A monitor is started, or found running.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::time::timeout;

use super::hung::MonitorProcess;
use super::{Monitor, MonitorError};
use crate::identity::process_state;

/// How long a monitor may take until it listens, the recovery of its predecessor's containers apart.
const READY: Duration = Duration::from_secs(20);
/// The longest word of a monitor that cannot start, in bytes.
const WORD_BYTES: u64 = 4096;
/// How often a monitor that waits for a disk is asked again before it is killed: a disk may be busy for half a minute,
/// and with the monitor the exit codes of its containers are lost.
const MAX_DEVICE_TURNS: u32 = 3;
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
    /// It hangs, and cannot be killed.
    #[error("cannot kill the monitor of {0}, process {1}, which hangs")]
    Kill(PathBuf, i32, #[source] std::io::Error),
    /// It hangs in the kernel: its disk does not answer, most likely.
    #[error(
        "monitor of {folder}, process {pid}, hangs and does not end after SIGKILL: its state is {state:?}"
    )]
    Undying {
        folder: PathBuf,
        pid: i32,
        /// As in `/proc/PID/stat`: `D` waits for a device.
        state: char,
    },
}

impl Launch {
    /// Returns the folder's monitor: the one that runs, or a new one, which takes over what its predecessor left. One
    /// that hangs is killed first ([`Launch::replace`]). Needs a tokio runtime, which reaps the process when it ends.
    pub async fn start(&self) -> Result<Monitor, LaunchError> {
        let monitor = Monitor::at(&self.folder);
        let mut turns = 0;
        loop {
            match monitor.status().await {
                Ok(_) => return Ok(monitor),
                Err(MonitorError::Deadline { .. }) => {}
                Err(
                    MonitorError::Gone(..)
                    | MonitorError::Broken(..)
                    | MonitorError::Refused(_)
                    | MonitorError::Frame(_)
                    | MonitorError::Unexpected,
                ) => return self.succeed().await,
            }
            let process = MonitorProcess::find(&self.folder);
            let waits = process.is_some_and(|process| process.waits_for_device());
            if !waits || turns == MAX_DEVICE_TURNS {
                return self.replace().await;
            }
            turns += 1;
        }
    }

    /// Kills the folder's monitor, whatever it does at the moment, and returns its successor, which adopts the
    /// containers. Only for a monitor that hangs: the exit codes of containers that its successor has not started itself
    /// are unknown.
    pub async fn replace(&self) -> Result<Monitor, LaunchError> {
        if let Some(process) = MonitorProcess::find(&self.folder) {
            let (folder, pid) = (self.folder.clone(), process.pid);
            match process.kill().await {
                Ok(true) => {}
                Ok(false) => {
                    let state = process_state(pid);
                    return Err(LaunchError::Undying { folder, pid, state });
                }
                Err(error) => return Err(LaunchError::Kill(folder, pid, error)),
            }
        }
        self.succeed().await
    }

    /// Starts a monitor, and returns it once it answers.
    async fn succeed(&self) -> Result<Monitor, LaunchError> {
        self.spawn().await?;
        let monitor = Monitor::at(&self.folder);
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
