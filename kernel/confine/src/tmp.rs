//! A `/tmp` of the process's own, in a mount namespace of its own.
//!
//! For processes that mount nothing for others: mounts of the machine, and their ends, still reach the new namespace, but
//! nothing goes back.

use std::io;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// Bytes that the file system may hold at most: they are memory of the process's cgroup.
const OPTIONS: &str = "mode=0700,size=64m";

pub(crate) fn make_private() -> io::Result<()> {
    const NONE: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS)?;
    let apart = MsFlags::MS_REC | MsFlags::MS_SLAVE;
    mount(NONE, "/", NONE, apart, NONE)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), "/tmp", Some("tmpfs"), flags, Some(OPTIONS))?;
    Ok(())
}
