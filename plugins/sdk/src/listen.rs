//! Connections: accepted from the plugin's socket, their callers checked, and counted.

use std::io;
use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tonic::transport::server::{Connected, UdsConnectInfo};

/// Accepting fails when descriptors run out; they come back when connections close.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);

/// Yields every connection of a caller that may call: this user, or root.
pub(crate) fn connections(
    listener: UnixListener,
    open: watch::Sender<usize>,
) -> impl Stream<Item = io::Result<Connection>> + Send {
    futures_util::stream::unfold((listener, open), |(listener, open)| async move {
        let connection = accept(&listener, &open).await;
        Some((Ok(connection), (listener, open)))
    })
}

async fn accept(listener: &UnixListener, open: &watch::Sender<usize>) -> Connection {
    loop {
        match listener.accept().await {
            Ok((stream, _)) if may_call(&stream) => return Connection::new(stream, open.clone()),
            Ok(_) => tracing::warn!("closed a connection of another user"),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(PAUSE_AFTER_ERROR).await;
            }
        }
    }
}

fn may_call(stream: &UnixStream) -> bool {
    // The folder of the socket is closed to others already; a socket started by hand may lie in any.
    let own = rustix::process::geteuid().as_raw();
    stream
        .peer_cred()
        .is_ok_and(|peer| peer.uid() == 0 || peer.uid() == own)
}

/// A connection that counts as open until it is dropped.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: UnixStream,
    open: watch::Sender<usize>,
}

impl Connection {
    fn new(stream: UnixStream, open: watch::Sender<usize>) -> Self {
        open.send_modify(|count| *count += 1);
        Self { stream, open }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.open.send_modify(|count| *count -= 1);
    }
}

impl Connected for Connection {
    type ConnectInfo = UdsConnectInfo;

    fn connect_info(&self) -> UdsConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
