//! For tests: gRPC servers in the test's own process and thread, joined by pipes in memory. No thread and no socket of the
//! machine has a part in when an answer comes.

use std::io;

use hyper_util::rt::TokioIo;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::server::Router;
use tonic::transport::{Channel, Endpoint, Uri};

/// What a pipe holds before its writer waits, in bytes.
const PIPE: usize = 64 * 1024;

/// Serves on this thread; the channel to it connects at the first call, and anew whenever that is needed.
pub fn serve(server: Router) -> Channel {
    let (connections, accepted) = mpsc::unbounded_channel::<DuplexStream>();
    let incoming = UnboundedReceiverStream::new(accepted).map(io::Result::Ok);
    tokio::task::spawn_local(server.serve_with_incoming(incoming));
    let connect = move || {
        let (ours, theirs) = tokio::io::duplex(PIPE);
        let accepted = connections.send(theirs);
        accepted.map_err(|_| io::ErrorKind::ConnectionRefused)?;
        Ok::<_, io::Error>(TokioIo::new(ours))
    };
    Endpoint::from_static("http://localhost").connect_with_connector_lazy(tower::service_fn(
        move |_: Uri| std::future::ready(connect()),
    ))
}
