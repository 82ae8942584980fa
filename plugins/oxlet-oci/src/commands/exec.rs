//! `exec`: a process is run in a container, detached.

use std::os::fd::{AsFd, OwnedFd};

use super::Paths;
use super::create::{console, keyring, limit, own_streams, write_pid};
use crate::arguments::Arguments;
use crate::cgroup;
use crate::error::{AnyError, CommandError};
use crate::init::channel::{Channel, InitMessage};
use crate::init::namespaces::{Made, Namespaces, told_by};
use crate::init::{self, Entered};
use crate::{bundle, sealed};

pub(super) fn exec(arguments: &Arguments, paths: &Paths) -> Result<(), AnyError> {
    let record = paths.record()?;
    let gone = || CommandError::NotRunning(arguments.id.clone());
    if !record.is_alive() {
        return Err(gone().into());
    }
    sealed::become_sealed(&paths.bundle)?;
    if !arguments.detach {
        return Err(CommandError::Missing("exec", "--detach").into());
    }
    let asked = arguments
        .process
        .as_ref()
        .ok_or(CommandError::Missing("exec", "--process"))?;
    let (plan, process) = bundle::prepare_process(asked, &paths.bundle)?;
    init::hide()?;
    let namespaces = Namespaces::of_process(record.pid);
    // Asked after they are open, so that they are the container's and not those of another process of the number.
    if !record.is_alive() {
        return Err(gone().into());
    }
    let spec = paths.spec()?;
    let user = plan.user;
    let entered = Entered {
        namespaces: namespaces?,
        keyring: keyring(&arguments.id),
        process: plan,
        console: console(arguments, &process)?,
    };
    let group = paths.group(&spec, arguments.systemd_cgroup)?;
    let folder = cgroup::open(&record);
    let made = match folder {
        // A group that takes no new process takes one that is moved there.
        Some(folder) => make(&entered, Some(folder)).or_else(|_| make(&entered, None))?,
        None => make(&entered, None)?,
    };
    drop(entered);
    let placed = if made.is_in_group {
        Ok(())
    } else {
        cgroup::join(&group, &record, made.pid)
    };
    let finished = placed
        .and_then(|()| Ok(own_streams(spec.linux().as_ref(), user)?))
        .and_then(|()| run(&made.command, made.pid))
        .and_then(|()| limit(made.pid, &process))
        .and_then(|()| Ok(write_pid(arguments.pid_file.as_deref(), made.pid)?))
        .and_then(|()| Ok(made.command.go()?));
    if finished.is_err() {
        // It may have ended by itself. The pid is still its own: this process has not waited for it.
        let _ = nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(made.pid),
            nix::sys::signal::Signal::SIGKILL,
        );
    }
    finished
}

/// The new process in a container.
struct MadeProcess {
    pid: i32,
    is_in_group: bool,
    command: Channel,
}

/// Makes it in `group`, the folder of the container's cgroup, if the kernel lets it.
fn make(entered: &Entered, group: Option<OwnedFd>) -> Result<MadeProcess, AnyError> {
    let (command, child) = Channel::pair()?;
    let made = entered
        .namespaces
        .fork_visitor(group.as_ref().map(AsFd::as_fd))?;
    match made {
        Made::Child => {
            // Nothing of the node may be in the process that the container sees.
            drop((command, group));
            init::enter(entered, child)
        }
        Made::Parent {
            pid: between,
            is_in_group,
        } => Ok(MadeProcess {
            pid: told_by(between, &command)?,
            is_in_group,
            command,
        }),
    }
}

/// Lets the new process go on until it is about to run its program.
fn run(command: &Channel, pid: i32) -> Result<(), AnyError> {
    command.go()?;
    match command.next()? {
        InitMessage::Ready => Ok(()),
        InitMessage::Error(text) => Err(CommandError::Init(text).into()),
        InitMessage::Pid(_) | InitMessage::Hooks | InitMessage::End => {
            Err(CommandError::Ended(pid).into())
        }
    }
}
