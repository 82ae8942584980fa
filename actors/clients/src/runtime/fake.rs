//! A runtime-fake behind real gRPC, in the test's own process.

#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::path::Path;

use runtime_fake::Fake;
use tokio::net::{UnixListener, UnixStream};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Endpoint, Server, Uri};

/// Serves the fake on a socket of its own in this folder; the channel to it.
pub fn serve(fake: &Fake, folder: &Path) -> Channel {
    let socket = folder.join(format!("cri-{}.sock", rand_name(folder)));
    let listener = UnixListener::bind(&socket).unwrap();
    let server = Server::builder()
        .add_service(fake.runtime())
        .add_service(fake.images());
    tokio::task::spawn_local(server.serve_with_incoming(UnixListenerStream::new(listener)));
    Endpoint::from_static("http://localhost").connect_with_connector_lazy(tower::service_fn(
        move |_: Uri| {
            let socket = socket.clone();
            async move {
                UnixStream::connect(socket)
                    .await
                    .map(hyper_util::rt::TokioIo::new)
            }
        },
    ))
}

/// The number of the next free socket name.
fn rand_name(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}
