//! A runtime-fake behind real gRPC, in the test's own process.

use runtime_fake::Fake;
use tonic::transport::{Channel, Server};

use crate::in_process;

/// Serves the fake; the channel to it.
pub fn serve(fake: &Fake) -> Channel {
    let server = Server::builder()
        .add_service(fake.runtime())
        .add_service(fake.images());
    in_process::serve(server)
}
