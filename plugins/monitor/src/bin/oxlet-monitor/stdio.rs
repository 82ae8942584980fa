//! The descriptors between the monitor and its processes; every one of the monitor's own closes at `exec`.
//!
//! A container's outputs are FIFOs in its folder, and the container has them open for reading as well: with the
//! monitor dead, it can write on (and waits when 64 KiB are full) instead of dying of SIGPIPE, and the successor
//! opens the same FIFO and loses nothing.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;

use monitor::Size;
use rustix::fs::{CWD, Mode, OFlags, fcntl_getfl, fcntl_setfl, mkfifoat, open};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::termios::{Winsize, tcsetwinsize};

/// One direction: our end, and the process's.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) own: OwnedFd,
    pub(crate) other: OwnedFd,
}

/// Makes a container's output FIFO, or finds it made.
pub(crate) fn output_fifo(path: &Path) -> io::Result<Ends> {
    match mkfifoat(CWD, path, Mode::from_raw_mode(0o600)) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let own = reopen_fifo(path)?;
    let other = open(
        path,
        OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW,
        Mode::empty(),
    )?;
    Ok(Ends { own, other })
}

/// Opens our end of a FIFO that a predecessor made.
pub(crate) fn reopen_fifo(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(open(path, flags, Mode::empty())?)
}

/// A pipe out of a process.
pub(crate) fn output_pipe() -> io::Result<Ends> {
    let (own, other) = pipe_with(PipeFlags::CLOEXEC)?;
    nonblocking(&own)?;
    Ok(Ends { own, other })
}

/// A pipe into a process.
pub(crate) fn input_pipe() -> io::Result<Ends> {
    let (other, own) = pipe_with(PipeFlags::CLOEXEC)?;
    nonblocking(&own)?;
    Ok(Ends { own, other })
}

fn nonblocking(fd: &OwnedFd) -> io::Result<()> {
    Ok(fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK)?)
}

/// Binds the socket on which a runtime hands over the terminal of a process.
pub(crate) fn console_socket(path: &Path) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Takes the terminal that a runtime has sent; the runtime sends it in one message right after it connects.
pub(crate) fn receive_terminal(listener: &UnixListener) -> io::Result<OwnedFd> {
    let (socket, _) = listener.accept()?;
    socket.set_read_timeout(Some(std::time::Duration::from_secs(2)))?;
    let mut name = [0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    recvmsg(
        &socket,
        &mut [IoSliceMut::new(&mut name)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut fds) = message
            && let Some(terminal) = fds.next()
        {
            nonblocking(&terminal)?;
            return Ok(terminal);
        }
    }
    Err(io::Error::other(
        "the runtime's message on the console socket has no descriptor",
    ))
}

/// Sets the size of a terminal.
pub(crate) fn resize(terminal: &OwnedFd, size: Size) -> io::Result<()> {
    let size = Winsize {
        ws_col: size.columns,
        ws_row: size.rows,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    Ok(tcsetwinsize(terminal, size)?)
}
