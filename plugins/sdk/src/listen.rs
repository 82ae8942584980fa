//! Connections: accepted from the plugin's socket, their callers checked, and counted.

use std::io;
use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll};

use accept::Acceptor;
use futures_util::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tonic::transport::server::{Connected, UdsConnectInfo};

/// Yields every connection of a caller that may call: this user, or root.
pub(crate) fn connections(
    listener: UnixListener,
    open: watch::Sender<usize>,
) -> impl Stream<Item = io::Result<Connection>> + Send {
    let acceptor = Acceptor::new("the plugin");
    futures_util::stream::unfold((listener, acceptor), move |(listener, mut acceptor)| {
        let open = open.clone();
        async move {
            loop {
                match acceptor.accept(|| listener.accept()).await {
                    Ok((stream, _)) if may_call(&stream) => {
                        let connection = Connection::new(stream, open);
                        return Some((Ok(connection), (listener, acceptor)));
                    }
                    Ok(_) => tracing::warn!("closed a connection of another user"),
                    Err(error) => {
                        tracing::error!(%error, "the plugin's socket is gone");
                        return None;
                    }
                }
            }
        }
    })
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
