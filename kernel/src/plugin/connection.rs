//! Connections to Unix sockets that make themselves, at the first call and again when one is lost.

use std::io;
use std::path::{Path, PathBuf};

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

/// Which socket new connections go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// Ours: a connection is always accepted, at worst later.
    Kept(PathBuf),
    /// Somebody else's: there may be nobody.
    Foreign(PathBuf),
}

/// A connection to one socket.
pub(super) fn direct(path: &Path) -> Channel {
    let path = path.to_owned();
    connect_with(move || {
        let path = path.clone();
        async move { UnixStream::connect(path).await }
    })
}

/// A connection to wherever the route leads when it is made; waits for the first route.
pub(super) fn follow(route: watch::Receiver<Option<Route>>) -> Channel {
    connect_with(move || {
        let mut route = route.clone();
        async move {
            let known = route
                .wait_for(Option::is_some)
                .await
                .map(|route| route.clone());
            match known {
                Ok(Some(Route::Kept(path) | Route::Foreign(path))) => {
                    UnixStream::connect(path).await
                }
                Ok(None) | Err(_) => Err(io::ErrorKind::NotConnected.into()),
            }
        }
    })
}

fn connect_with<F, Fut>(connect: F) -> Channel
where
    F: Fn() -> Fut + Send + 'static,
    Fut: Future<Output = io::Result<UnixStream>> + Send + 'static,
{
    // Servers in Go refuse a socket's path as authority; any valid name will do.
    Endpoint::from_static("http://localhost").connect_with_connector_lazy(service_fn(
        move |_: Uri| {
            let stream = connect();
            async move { stream.await.map(TokioIo::new) }
        },
    ))
}
