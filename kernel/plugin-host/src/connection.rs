//! Connections to Unix sockets that make themselves, at the first call and again when one is lost.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::{io, process};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use kernel::watch;
use nix::sys::socket::{Shutdown, shutdown};
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

/// Which socket new connections go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SocketRoute {
    /// Ours: a connection is always accepted, at worst later.
    Kept(PathBuf),
    /// An external plugin's socket: it may have no listener.
    Foreign(PathBuf),
}

/// A connection to a socket that this process listens on, whoever accepts there.
pub(super) fn own(path: &Path) -> Channel {
    let path = path.to_owned();
    connect_with(move || {
        let path = path.clone();
        async move {
            let stream = UnixStream::connect(&path).await?;
            check_listener(&stream, &path)?;
            Ok(TokioIo::new(stream))
        }
    })
}

/// Refuses a socket of a managed plugin that another process has put in its place: the kernel says whose `listen` it
/// was (SO_PEERCRED), and every one of ours is this process's own.
fn check_listener(stream: &UnixStream, path: &Path) -> io::Result<()> {
    let pid = stream.peer_cred()?.pid();
    if pid.and_then(|pid| u32::try_from(pid).ok()) == Some(process::id()) {
        return Ok(());
    }
    let pid = pid.map_or("unknown".to_owned(), |pid| pid.to_string());
    let why = format!(
        "socket {} is process {pid}'s, expected this agent's own",
        path.display()
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// A connection to one socket.
pub(super) fn direct(path: &Path) -> Channel {
    let path = path.to_owned();
    connect_with(move || {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    })
}

/// A connection to wherever the route leads when it is made; waits for the first route.
///
/// It can be cut from this side: a process that is stuck in the kernel keeps its end open, although it will never
/// answer.
#[derive(Clone, Debug)]
pub(super) struct ClientConnection {
    pub(super) channel: Channel,
    open: Arc<Mutex<Vec<Weak<OwnedFd>>>>,
    cuts: watch::Sender<()>,
}

impl ClientConnection {
    pub(super) fn new(channel: Channel) -> Self {
        Self {
            channel,
            open: Arc::default(),
            cuts: watch::Sender::new(()),
        }
    }

    pub(super) fn follow(route: watch::Receiver<Option<SocketRoute>>) -> Self {
        let open = Arc::<Mutex<Vec<_>>>::default();
        let connections = Arc::clone(&open);
        let channel = connect_with(move || {
            let (mut route, open) = (route.clone(), Arc::clone(&connections));
            async move {
                let known = route
                    .wait_for(Option::is_some)
                    .await
                    .map(|route| route.clone());
                match known {
                    Ok(Some(route)) => CuttableStream::open(&route, &open).await,
                    Ok(None) | Err(_) => Err(io::ErrorKind::NotConnected.into()),
                }
            }
        });
        Self {
            open,
            ..Self::new(channel)
        }
    }

    /// Resolves when the wire is cut, if that is after this call.
    pub(super) fn cut_later(&self) -> impl Future<Output = ()> + use<> {
        let mut cuts = self.cuts.subscribe();
        let kept = self.cuts.clone();
        async move {
            // The sender lives in here: waiting cannot fail.
            drop(cuts.changed().await);
            drop(kept);
        }
    }

    /// Breaks every connection that is open now. The next call makes a new one.
    pub(super) fn cut(&self) {
        self.cuts.send_replace(());
        let open = std::mem::take(&mut *self.open.lock().unwrap_or_else(PoisonError::into_inner));
        for twin in open.iter().filter_map(Weak::upgrade) {
            if let Err(error) = shutdown(twin.as_raw_fd(), Shutdown::Both) {
                // The other side was faster.
                tracing::debug!(%error, "cannot cut a connection");
            }
        }
    }
}

/// An open connection, with a second descriptor to cut it by.
struct CuttableStream {
    stream: TokioIo<UnixStream>,
    _twin: Arc<OwnedFd>,
}

impl CuttableStream {
    async fn open(route: &SocketRoute, open: &Mutex<Vec<Weak<OwnedFd>>>) -> io::Result<Self> {
        let stream = match route {
            SocketRoute::Kept(path) => {
                let stream = UnixStream::connect(path).await?;
                check_listener(&stream, path)?;
                stream
            }
            SocketRoute::Foreign(path) => UnixStream::connect(path).await?,
        };
        let twin = Arc::new(stream.as_fd().try_clone_to_owned()?);
        let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|other| other.strong_count() > 0);
        open.push(Arc::downgrade(&twin));
        Ok(Self {
            stream: TokioIo::new(stream),
            _twin: twin,
        })
    }

    fn stream(self: Pin<&mut Self>) -> Pin<&mut TokioIo<UnixStream>> {
        Pin::new(&mut self.get_mut().stream)
    }
}

impl Read for CuttableStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream().poll_read(cx, buf)
    }
}

impl Write for CuttableStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write_vectored(cx, bufs)
    }
}

fn connect_with<F, Fut, S>(connect: F) -> Channel
where
    F: Fn() -> Fut + Send + 'static,
    Fut: Future<Output = io::Result<S>> + Send + 'static,
    S: Read + Write + Unpin + Send + 'static,
{
    // Servers in Go refuse a socket's path as authority; any valid name will do.
    Endpoint::from_static("http://localhost")
        .connect_with_connector_lazy(service_fn(move |_: Uri| connect()))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;
    use std::process::{Command, Stdio};

    use super::*;

    const ROGUE: &str = "OXLET_TEST_ROGUE_SOCKET";

    /// Not a law: the other process of the test below.
    #[test]
    fn listens_in_another_process() {
        let Some(path) = std::env::var_os(ROGUE) else {
            return;
        };
        let _listener = UnixListener::bind(path).unwrap();
        println!("listening");
        drop(io::read_to_string(io::stdin()));
    }

    #[tokio::test]
    async fn socket_of_another_process_is_refused_by_its_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let mut rogue = Command::new(std::env::current_exe().unwrap())
            .args([
                "connection::tests::listens_in_another_process",
                "--exact",
                "--nocapture",
            ])
            .env(ROGUE, &path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(rogue.stdout.take().unwrap());
        assert!(
            said.lines()
                .any(|line| line.unwrap().ends_with("listening"))
        );
        let stream = UnixStream::connect(&path).await.unwrap();
        let refused = check_listener(&stream, &path).unwrap_err().to_string();
        let expected = format!("is process {}'s, expected this agent's own", rogue.id());
        assert!(refused.ends_with(&expected), "{refused}");
        drop(rogue.stdin.take());
        rogue.wait().unwrap();

        let own = folder.path().join("own.sock");
        let _listener = UnixListener::bind(&own).unwrap();
        let stream = UnixStream::connect(&own).await.unwrap();
        check_listener(&stream, &own).unwrap();
    }
}
