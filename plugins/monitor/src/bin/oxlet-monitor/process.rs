//! Processes: how children ended, and how they are killed.

use std::io;

use monitor::Exit;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal, wait};

/// Kills a child of ours, which is not reaped yet, so the number is its own.
pub(crate) fn kill(pid: i32) -> io::Result<()> {
    let Some(pid) = Pid::from_raw(pid) else {
        return Ok(());
    };
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    Ok(pidfd_send_signal(pidfd, Signal::KILL)?)
}

/// Kills a child of ours with the process group that it leads.
pub(crate) fn kill_group(pid: i32) -> io::Result<()> {
    let Some(pid) = Pid::from_raw(pid) else {
        return Ok(());
    };
    Ok(rustix::process::kill_process_group(pid, Signal::KILL)?)
}

/// Reaps one child that has ended, ours or an orphan of a container; none when there is no other.
pub(crate) fn reap() -> Option<(i32, Exit)> {
    loop {
        let (pid, status) = match wait(WaitOptions::NOHANG) {
            Ok(ended) => ended?,
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return None,
        };
        let exit = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Exit::Code(code),
            (None, Some(signal)) => Exit::Signal(signal),
            (None, None) => continue,
        };
        return Some((pid.as_raw_nonzero().get(), exit));
    }
}
