//! A datagram to the service manager (sd_notify(3)).

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The service manager cannot be told.
#[derive(Debug, thiserror::Error)]
#[error("cannot send to the service manager at {socket}")]
pub(super) struct NotifyError {
    socket: String,
    source: io::Error,
}

/// Sends a state such as `READY=1`. It does not wait: a queue that is full is an error.
pub(super) fn notify(socket: &OsStr, state: &str) -> Result<(), NotifyError> {
    let send = || {
        let sender = UnixDatagram::unbound()?;
        sender.set_nonblocking(true)?;
        sender.send_to_addr(state.as_bytes(), &address(socket)?)
    };
    let sent = send().map_err(|source| NotifyError {
        socket: socket.to_string_lossy().into_owned(),
        source,
    });
    sent.map(drop)
}

fn address(socket: &OsStr) -> io::Result<SocketAddr> {
    match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(socket),
    }
}
