//! A program of a test's own, as a process that it kills and hangs.

use std::os::unix::process::parent_id;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// A process without input. Dropped, it is killed, and gone.
#[derive(Debug)]
pub(super) struct ChildProcess(Child);

impl ChildProcess {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// The program cannot be run.
    pub(super) fn start(command: &mut Command) -> Result<Self> {
        Ok(ChildProcess(command.stdin(Stdio::null()).spawn()?))
    }

    pub(super) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Stops the process where it is: it answers nothing, and its connections stay open.
    ///
    /// # Errors
    ///
    /// It has ended.
    pub(super) fn hang(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    /// Has a process that hangs go on.
    ///
    /// # Errors
    ///
    /// It has ended.
    pub(super) fn resume(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.id())?;
        Ok(kill(Pid::from_raw(pid), signal)?)
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Resolves, in such a process, when the parent is gone: a test that was killed leaves none.
pub(super) async fn orphaned() {
    let parent = parent_id();
    while parent_id() == parent {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
