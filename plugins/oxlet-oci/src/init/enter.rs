//! A process that is run in a container that is there.

use std::convert::Infallible;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::process::umask;

use super::channel::Channel;
use super::namespaces::Namespaces;
use super::{InitError, ProcessPlan, cannot, confine, console, end, process};
use crate::rootfs::Root;

/// Everything that such a process needs to know.
#[derive(Debug)]
pub(crate) struct Entered {
    /// Those of the container's init.
    pub(crate) namespaces: Namespaces,
    pub(crate) keyring: String,
    pub(crate) process: ProcessPlan,
    pub(crate) console: Option<OwnedFd>,
}

/// Becomes the program in the container, as another process.
pub(crate) fn enter(entered: &Entered, channel: Channel) -> ! {
    let mut channel = Some(channel);
    let error = match become_program(entered, &mut channel) {
        Ok(never) => match never {},
        Err(error) => error,
    };
    end(&error, channel)
}

fn become_program(
    entered: &Entered,
    channel: &mut Option<Channel>,
) -> Result<Infallible, InitError> {
    let parent = channel.as_ref().ok_or(InitError::Abandoned)?;
    entered.namespaces.become_root_of_users()?;
    // The container's procfs may be anything.
    process::label(&entered.process)?;
    entered.namespaces.go_inside(parent)?;
    rustix::process::setsid().map_err(cannot("begin a session"))?;
    // In the container's cgroup before it can run anything of the container's.
    parent.wait_go()?;
    process::join_keyring(&entered.keyring, entered.namespaces.has_own_users())?;
    umask(Mode::from_raw_mode(process::DEFAULT_UMASK));
    if let Some(socket) = &entered.console {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open("/", flags, Mode::empty())
            .map_err(cannot("open the container's root"))?;
        console::take(console::open(&Root::new(root))?, socket)?;
    }
    let ready = entered.process.ready(None)?;
    parent.tell_ready()?;
    *channel = None;
    confine::become_program(&entered.process, &ready)
}
