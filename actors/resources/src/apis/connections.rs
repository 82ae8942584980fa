//! Connections to a socket, up to a limit, and the services that they reach.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use accept::Acceptor;
use futures_util::{Stream, stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::Connected;

use crate::authority::AnyAuthority;

/// Clients that watch devices are few, and each keeps one connection.
const MAX_CONNECTIONS: usize = 32;
/// Concurrent requests on one connection; the rate limit counts all connections.
const MAX_CONCURRENT_REQUESTS: usize = 16;

/// Counts the connections that are open.
#[derive(Debug, Clone)]
pub(super) struct ConnectionSlots(Arc<Semaphore>);

impl Default for ConnectionSlots {
    fn default() -> Self {
        ConnectionSlots(Arc::new(Semaphore::new(MAX_CONNECTIONS)))
    }
}

impl ConnectionSlots {
    pub(super) fn open(&self) -> usize {
        MAX_CONNECTIONS.saturating_sub(self.0.available_permits())
    }

    /// Serves whoever connects; resolves only when no connection is accepted any more, with the reason.
    pub(super) async fn serve(
        self,
        listener: UnixListener,
        services: Routes,
    ) -> tonic::transport::Error {
        let served = Server::builder()
            .concurrency_limit_per_connection(MAX_CONCURRENT_REQUESTS)
            .add_routes(services)
            .serve_with_incoming(self.incoming(listener))
            .await;
        match served {
            Err(error) => error,
            // The incoming connections never end.
            Ok(()) => std::future::pending().await,
        }
    }

    /// The incoming connections; one above the limit waits in the socket's backlog.
    fn incoming(
        &self,
        listener: UnixListener,
    ) -> impl Stream<Item = io::Result<AnyAuthority<CountedConnection>>> + use<> {
        let places = self.0.clone();
        let acceptor = Acceptor::new("an API of the node's resources");
        stream::unfold((listener, acceptor), move |(listener, mut acceptor)| {
            let places = places.clone();
            async move {
                let place = places.acquire_owned().await.ok()?;
                let accepted = acceptor.accept(|| listener.accept()).await;
                let connection = accepted.map(|(stream, _)| {
                    AnyAuthority::new(CountedConnection {
                        stream,
                        _place: place,
                    })
                });
                Some((connection, (listener, acceptor)))
            }
        })
    }
}

/// A connection that holds its slot until it is dropped.
#[derive(Debug)]
struct CountedConnection {
    stream: UnixStream,
    _place: OwnedSemaphorePermit,
}

impl Connected for CountedConnection {
    type ConnectInfo = ();

    fn connect_info(&self) -> Self::ConnectInfo {}
}

impl AsyncRead for CountedConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for CountedConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
