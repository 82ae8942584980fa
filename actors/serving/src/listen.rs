//! Listeners, and the error that an operator reads when one cannot be had.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// The predecessor of a restarted server may still hold its port for a moment.
const ATTEMPTS: usize = 5;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(20);

/// Seconds between TCP keep-alives, as Go's servers have it.
const ALIVE_EVERY: u32 = 15;

/// Why a server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("cannot listen on {address}")]
    Tcp {
        address: SocketAddr,
        source: io::Error,
    },
    #[error("cannot listen on {}", path.display())]
    Unix { path: PathBuf, source: io::Error },
    #[error("another agent answers at {}", path.display())]
    Taken { path: PathBuf },
}

/// A listener of any kind: TCP or Unix.
#[allow(
    async_fn_in_trait,
    reason = "servers stay on their thread, so the futures need no Send"
)]
pub trait Listen: 'static {
    type Stream: AsyncRead + AsyncWrite + Unpin + 'static;

    /// Returns a connection, and the address that it comes from where there is one.
    async fn accept(&self) -> io::Result<(Self::Stream, Option<IpAddr>)>;
}

impl Listen for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, Option<IpAddr>)> {
        let (stream, peer) = TcpListener::accept(self).await?;
        // Responses are written whole: waiting for more only costs time.
        drop(stream.set_nodelay(true));
        if let Err(error) = stay_alive(&stream) {
            tracing::debug!("a client that vanishes will not be noticed: {error}");
        }
        Ok((stream, Some(peer.ip())))
    }
}

impl Listen for UnixListener {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<(UnixStream, Option<IpAddr>)> {
        let (stream, _) = UnixListener::accept(self).await?;
        Ok((stream, None))
    }
}

/// Enables keep-alives, so that a vanished client is noticed even if nothing is sent to it.
fn stay_alive(stream: &TcpStream) -> Result<(), nix::Error> {
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &ALIVE_EVERY)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &ALIVE_EVERY)
}

/// Listens on a TCP port.
pub async fn tcp(address: SocketAddr) -> Result<TcpListener, ListenError> {
    let mut attempts = 1;
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && attempts < ATTEMPTS => {
                attempts += 1
            }
            Err(source) => return Err(ListenError::Tcp { address, source }),
        }
        tokio::time::sleep(BETWEEN_ATTEMPTS).await;
    }
}

/// Listens on a Unix socket for its owner alone. What a dead agent left there is replaced, in one step:
/// there is no moment without a socket, nor one with a socket that is open to others.
pub async fn unix(path: &Path) -> Result<UnixListener, ListenError> {
    if is_taken(path).await {
        return Err(ListenError::Taken {
            path: path.to_owned(),
        });
    }
    let bind = || {
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)?;
        }
        if fs::symlink_metadata(path).is_ok_and(|there| !is_socket(&there)) {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "found something else, expected a socket or nothing",
            ));
        }
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let new = path.with_file_name(name);
        drop(fs::remove_file(&new));
        let listener = UnixListener::bind(&new)?;
        fs::set_permissions(&new, Permissions::from_mode(0o600))?;
        fs::rename(&new, path)?;
        Ok(listener)
    };
    bind().map_err(|source| ListenError::Unix {
        path: path.to_owned(),
        source,
    })
}

fn is_socket(there: &fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    there.file_type().is_socket()
}

/// Whether another process listens there. The listener of our own predecessor does not count.
async fn is_taken(path: &Path) -> bool {
    let ours = i32::try_from(std::process::id()).ok();
    match UnixStream::connect(path).await {
        Ok(stream) => stream.peer_cred().map_or(true, |peer| peer.pid() != ours),
        Err(_) => false,
    }
}
