//! Who listens at a socket whose name does not say it.

use std::os::fd::AsRawFd;
use std::path::Path;

use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket, sockopt,
};

/// The name of the process that listens at this socket, as the kernel tells it (`/proc/PID/comm`); none if nobody does.
///
/// Waits for nothing: a listener that takes no connection now is unknown.
pub(super) fn listener(path: &Path) -> Option<String> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None).ok()?;
    connect(socket.as_raw_fd(), &UnixAddr::new(path).ok()?).ok()?;
    let peer = getsockopt(&socket, sockopt::PeerCredentials).ok()?;
    let name = std::fs::read_to_string(format!("/proc/{}/comm", peer.pid())).ok()?;
    Some(name.trim_end().to_owned())
}
