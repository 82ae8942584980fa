//! A container's terminal, made in the container's own devpts. Its other end goes to the caller's console socket.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{OFlags, fstatfs};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::ioctl_tiocsctty;
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, unlockpt};

use super::{InitError, cannot, streams};
use crate::rootfs::Root;
use crate::rootfs::mounting::{attach, copy_of};

const PTMX: &str = "/dev/pts/ptmx";
/// As in linux/magic.h.
const DEVPTS_SUPER_MAGIC: i64 = 0x1cd1;
/// What accompanies the descriptor; readers of the socket take it for a name.
const NAME: &[u8] = b"/dev/ptmx";

/// Both ends of a terminal.
#[derive(Debug)]
pub(crate) struct Terminal {
    outer: OwnedFd,
    inner: OwnedFd,
}

/// Makes a terminal.
pub(crate) fn open(root: &Root) -> Result<Terminal, InitError> {
    make(root).map_err(cannot("open a terminal of the container"))
}

fn make(root: &Root) -> io::Result<Terminal> {
    let path = Path::new(PTMX);
    // Looked at before it is opened: opening a device of the container's choice may do anything.
    let found = root.open(path, OFlags::PATH | OFlags::NOFOLLOW)?;
    if fstatfs(&found)?.f_type != DEVPTS_SUPER_MAGIC {
        let text = format!("{PTMX} of the container is not on a devpts");
        return Err(io::Error::other(text));
    }
    let outer = root.open(path, OFlags::RDWR | OFlags::NOCTTY | OFlags::NOFOLLOW)?;
    unlockpt(&outer)?;
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    // By the other end, not by a path.
    let inner = ioctl_tiocgptpeer(&outer, flags)?;
    Ok(Terminal { outer, inner })
}

/// Binds a terminal to `/dev/console`.
pub(crate) fn bind(root: &Root, terminal: &Terminal) -> Result<(), InitError> {
    let binding = || cannot("bind the terminal to /dev/console");
    let target = root
        .make_file(Path::new("/dev/console"))
        .map_err(binding())?;
    let copy = copy_of(&terminal.inner, false).map_err(binding())?;
    attach(copy, target).map_err(binding())
}

/// Sends a terminal's outer end to the console socket and makes the inner one this process's streams and its session's
/// terminal.
pub(crate) fn take(terminal: Terminal, socket: &OwnedFd) -> Result<(), InitError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [terminal.outer.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let name = [IoSlice::new(NAME)];
    sendmsg(socket, &name, &mut control, SendFlags::NOSIGNAL)
        .map_err(cannot("send the terminal to the console socket"))?;
    streams::replace(&terminal.inner).map_err(cannot("make the terminal this process's"))?;
    ioctl_tiocsctty(&terminal.inner).map_err(cannot("make the terminal this session's"))
}
