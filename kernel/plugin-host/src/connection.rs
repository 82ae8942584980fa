//! Connections to Unix sockets that make themselves, at the first call and again when one is lost.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};

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
                    Ok(Some(SocketRoute::Kept(path) | SocketRoute::Foreign(path))) => {
                        CuttableStream::open(&path, &open).await
                    }
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
    async fn open(path: &Path, open: &Mutex<Vec<Weak<OwnedFd>>>) -> io::Result<Self> {
        let stream = UnixStream::connect(path).await?;
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
