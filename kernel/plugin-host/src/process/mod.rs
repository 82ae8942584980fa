//! A plugin's process: started with its socket, a clean environment and its confinement, signalled without mistake,
//! reaped whatever becomes of the actor that started it.

mod execution;
mod log;
pub(crate) mod pid_file;
pub(crate) mod socket;
pub(crate) mod termination;

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{self, Stdio};
use std::sync::Arc;
use std::time::Duration;
use std::{env, io, thread};

use command_fds::{CommandFdExt, FdMapping};
use kernel::watch;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::process::Child;
use tokio::time::timeout;

use crate::confinement::{Confined, Preparation};
use crate::declaration::{Declaration, LaunchMethod, ServiceKind};
use crate::process::execution::Execution;
use crate::process::socket::PluginSocket;

/// Where a plugin finds its socket: systemd's first descriptor.
const SOCKET_DESCRIPTOR: i32 = 3;
/// For a thread that only waits.
const SMALL_STACK: usize = 64 << 10;

/// A process that was started, alive or not. Clones are the same process.
///
/// It is reaped by a task of its own, so it never stays a zombie. A signal goes by descriptor, so it
/// never reaches a stranger that got the same number.
#[derive(Clone, Debug)]
pub(super) struct PluginProcess {
    pid: u32,
    pidfd: Arc<OwnedFd>,
    exit: watch::Receiver<Option<String>>,
    execution: watch::Receiver<Execution>,
}

/// What a generation's process is spawned with.
#[derive(Clone, Debug)]
pub(super) struct SpawnSpec {
    pub(super) declaration: Arc<Declaration>,
    pub(super) generation: u64,
    pub(super) socket: Arc<PluginSocket>,
    /// The plugin's own directory.
    pub(super) dir: PathBuf,
    /// None if the process is started as it is.
    pub(super) confined: Option<Preparation>,
}

impl PluginProcess {
    /// Starts a process. Called on a thread that may block, inside the runtime.
    pub(super) fn spawn(birth: &SpawnSpec) -> io::Result<Self> {
        let child = tokio::process::Command::from(command(birth)?).spawn()?;
        Self::own(
            child,
            &birth.declaration.name,
            birth.confined.clone(),
            open_pidfd,
        )
    }

    /// Adopts a child. A child whose pidfd cannot be opened is killed and reaped: the host could neither signal it nor
    /// record it for the next agent.
    fn own(
        mut child: Child,
        name: &str,
        confined: Option<Preparation>,
        open: impl Fn(Pid) -> io::Result<OwnedFd>,
    ) -> io::Result<Self> {
        let pid = child
            .id()
            .and_then(|pid| i32::try_from(pid).ok())
            .and_then(Pid::from_raw);
        // Not reaped before this function returns, so the number is still its own.
        let opened = match pid {
            Some(pid) => open(pid).map(|pidfd| (pid, Arc::new(pidfd))),
            None => Err(io::Error::other("a process without an id")),
        };
        let (pid, pidfd) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                let killed = child.start_kill();
                if let Err(error) = killed {
                    tracing::error!(plugin = name, %error, "cannot kill a plugin's process that has no pidfd");
                }
                tokio::spawn(async move { child.wait().await });
                return Err(error);
            }
        };
        if let Some(stderr) = child.stderr.take() {
            tokio::spawn(log::carry(name.to_owned(), stderr));
        }
        let pid = pid.as_raw_nonzero().get().unsigned_abs();
        let expected = confined.as_ref().map(|confined| confined.expected.clone());
        let execution = Execution::follow(pid, child.stdout.take(), confined);
        let (exited, exit) = watch::channel(None);
        tokio::spawn(async move {
            let words = match child.wait().await {
                Ok(status) => status.to_string(),
                Err(error) => error.to_string(),
            };
            exited.send_replace(Some(end(words, expected).await));
        });
        Ok(Self {
            pid,
            pidfd,
            exit,
            execution,
        })
    }

    /// Takes over a process that an earlier agent has started.
    pub(super) fn adopt(pid: u32, pidfd: OwnedFd) -> io::Result<Self> {
        let pidfd = Arc::new(pidfd);
        let (exited, exit) = watch::channel(None);
        let polled = Arc::clone(&pidfd);
        // It is no child of ours, so only its descriptor tells. A thread that no runtime waits for:
        // the process may be stuck, and the agent ends nevertheless.
        thread::Builder::new()
            .name("predecessor".to_owned())
            .stack_size(SMALL_STACK)
            .spawn(move || {
                let mut end = [PollFd::new(&polled, PollFlags::IN)];
                let words = loop {
                    match poll(&mut end, None) {
                        Ok(_) => break "unknown".to_owned(),
                        Err(Errno::INTR) => {}
                        Err(error) => break error.to_string(),
                    }
                };
                exited.send_replace(Some(words));
            })?;
        let execution = Execution::follow(pid, None, None);
        Ok(Self {
            pid,
            pidfd,
            exit,
            execution,
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Resolves when the process runs its program; or with why it does not.
    pub(super) async fn executed(&self) -> Result<(), String> {
        let mut execution = self.execution.clone();
        let told = execution
            .wait_for(|now| !matches!(now, Execution::Pending))
            .await;
        match told.as_deref() {
            Ok(Execution::Failed(why)) => Err(why.clone()),
            // Whoever follows it ends before it has told only with the whole runtime.
            Ok(Execution::Pending | Execution::Running(_)) | Err(_) => Ok(()),
        }
    }

    /// What holds of the process, once it runs its program; none if it was started as it is.
    pub(super) fn confined(&self) -> Option<Confined> {
        match &*self.execution.borrow() {
            Execution::Running(confined) => confined.as_deref().cloned(),
            Execution::Pending | Execution::Failed(_) => None,
        }
    }

    pub(super) fn alive(&self) -> bool {
        self.exit.borrow().is_none()
    }

    /// Resolves when the process is dead and reaped, with how it ended.
    pub(super) async fn dead(&self) -> String {
        let mut exit = self.exit.clone();
        let ended = exit.wait_for(Option::is_some).await;
        // The reaper ends before it has sent the exit only with the whole runtime.
        ended
            .ok()
            .and_then(|exit| exit.clone())
            .unwrap_or_else(|| "unknown".to_owned())
    }

    /// Asks the process to end; returns how it did, if it does within `grace`.
    pub(super) async fn terminate(&self, grace: Duration) -> Option<String> {
        self.signal(Signal::TERM);
        timeout(grace, self.dead()).await.ok()
    }

    /// Kills the process; returns how it ended, if it does within the time.
    pub(super) async fn killed(&self, within: Duration) -> Option<String> {
        self.signal(Signal::KILL);
        timeout(within, self.dead()).await.ok()
    }

    fn signal(&self, signal: Signal) {
        #[cfg(feature = "testing")]
        if crate::testing::is_spared(self.pid) {
            return;
        }
        match pidfd_send_signal(&*self.pidfd, signal) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => tracing::error!(pid = self.pid, %error, "cannot signal a plugin"),
        }
    }
}

/// Adds to how a process ended which limits it came to, and takes its cgroup away.
async fn end(words: String, confined: Option<Confined>) -> String {
    let Some(confined) = confined else {
        return words;
    };
    match kernel::spawn_blocking(move || confined.end()).await {
        Ok(Some(limits)) => format!("{limits} ({words})"),
        Ok(None) | Err(_) => words,
    }
}

pub(crate) fn open_pidfd(pid: Pid) -> io::Result<OwnedFd> {
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

fn command(birth: &SpawnSpec) -> io::Result<process::Command> {
    let LaunchMethod::Managed {
        command: program,
        args,
    } = &birth.declaration.start
    else {
        return Err(io::Error::other("an external plugin has no command"));
    };
    let mut command = match &birth.confined {
        Some(confined) => {
            let order = serde_json::to_string(&confined.order)?;
            let mut command = process::Command::new(&confined.program);
            command.arg(order).arg(program);
            command
        }
        None => process::Command::new(program),
    };
    let confined = birth
        .confined
        .iter()
        .flat_map(|confined| &confined.environment);
    command
        .args(args)
        .current_dir(&birth.dir)
        .env_clear()
        .envs(env::var_os("PATH").map(|path| ("PATH", path)))
        .env("LISTEN_FDS", "1")
        .env("OXLET_PLUGIN_NAME", &birth.declaration.name)
        .env("OXLET_PLUGIN_GENERATION", birth.generation.to_string())
        .env("OXLET_PLUGIN_DIR", &birth.dir)
        .env("OXLET_AGENT_PID", process::id().to_string())
        .env("OXLET_LOG", &birth.declaration.log)
        .envs(proxies(birth.declaration.kind, env::var_os))
        .envs(confined.map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        // Where a process says how it has confined itself; the plugin does not get it.
        .stdout(match &birth.confined {
            Some(_) => Stdio::piped(),
            None => Stdio::null(),
        })
        .stderr(Stdio::piped())
        // Out of the agent's group: what a terminal sends to the agent is the agent's to pass on.
        .process_group(0);
    let socket = FdMapping {
        parent_fd: birth.socket.hand_over()?,
        child_fd: SOCKET_DESCRIPTOR,
    };
    command
        .fd_mappings(vec![socket])
        .map_err(io::Error::other)?;
    Ok(command)
}

/// Returns the proxies of the agent's environment for a plugin that talks to a network: a runtime pulls images, a network
/// plugin may ask the API of a cloud. A proxy's URL may have a password, so no other plugin gets them.
fn proxies(
    kind: ServiceKind,
    variable: impl Fn(&'static str) -> Option<OsString>,
) -> Vec<(&'static str, OsString)> {
    match kind {
        ServiceKind::Runtime | ServiceKind::Network => http_proxy::VARIABLES
            .into_iter()
            .filter_map(|name| Some((name, variable(name)?)))
            .collect(),
        ServiceKind::Storage => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use rustix::event::Timespec;

    use super::*;

    #[test]
    fn proxies_reach_plugins_that_talk_to_a_network_and_nothing_else_of_the_environment_does() {
        let environment = |name: &'static str| {
            let set = ["HTTPS_PROXY", "no_proxy", "PATH", "AWS_SECRET_ACCESS_KEY"];
            set.contains(&name).then(|| OsString::from("value"))
        };
        let names = |kind| -> Vec<&str> {
            let passed = proxies(kind, environment);
            passed.into_iter().map(|(name, _)| name).collect()
        };
        for kind in [ServiceKind::Runtime, ServiceKind::Network] {
            assert_eq!(names(kind), ["HTTPS_PROXY", "no_proxy"]);
        }
        assert!(names(ServiceKind::Storage).is_empty());
    }

    #[tokio::test]
    async fn a_child_without_a_descriptor_is_killed_and_not_forgotten() {
        let child = tokio::process::Command::new("sleep").arg("3600").spawn();
        let seen = Mutex::new(None);
        let refuse = |pid| {
            *seen.lock().unwrap() = Some(open_pidfd(pid)?);
            Err(Errno::MFILE.into())
        };
        let refused = PluginProcess::own(child.unwrap(), "a", None, refuse).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::MFILE.raw_os_error()));
        let process = seen.into_inner().unwrap().expect("it was opened");
        let mut end = [PollFd::new(&process, PollFlags::IN)];
        let within = Timespec {
            tv_sec: 5,
            tv_nsec: 0,
        };
        assert_eq!(poll(&mut end, Some(&within)), Ok(1), "it lives on");
    }
}
