//! Processes: who they are, how they ended, and the wait for those that are nobody's child here.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use monitor::Exit;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal, wait};

use crate::record::Process;

/// Returns a process with its start time; none when it is gone.
pub(crate) fn identify(pid: i32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in brackets, and may hold anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let start_time = fields.split_whitespace().nth(19)?.parse().ok()?;
    Some(Process { pid, start_time })
}

/// Opens a process that was recorded; none when it is gone, also when another one has its number.
pub(crate) fn open(process: Process) -> Option<OwnedFd> {
    let pidfd = pidfd_open(Pid::from_raw(process.pid)?, PidfdFlags::empty()).ok()?;
    // Asked after the descriptor is open, so that it is this process that has the descriptor.
    (identify(process.pid)? == process && !is_zombie(process.pid)).then_some(pidfd)
}

fn is_zombie(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(')')
        .and_then(|(_, fields)| fields.split_whitespace().next());
    matches!(state, Some("Z" | "X") | None)
}

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
