//! The backend of the streaming server: simulated commands, containers and ports.
//!
//! Everything that belongs to a connection lives in that connection's task, and all of them end with the node.

mod archive;
mod attach;
mod command;
mod port_forward;
mod terminal;
#[cfg(test)]
mod tests;

use std::sync::Weak;

use cri_server::{CommandResult, RemoteStreams, StreamReader, StreamWriter, StreamingBackend};
use proto::cri::{AttachRequest, ExecRequest};

use crate::shared::SharedNode;

/// The simulated node as the streaming server sees it; weak, because the node owns the server.
pub(crate) struct FakeStreams(Weak<SharedNode>);

impl FakeStreams {
    pub(crate) fn new(node: Weak<SharedNode>) -> FakeStreams {
        FakeStreams(node)
    }
}

impl StreamingBackend for FakeStreams {
    async fn exec(&self, request: &ExecRequest, streams: RemoteStreams) -> CommandResult {
        command::run(&self.0, request, streams).await
    }

    async fn attach(&self, request: &AttachRequest, streams: RemoteStreams) -> CommandResult {
        attach::run(&self.0, request, streams).await
    }

    async fn port_forward(
        &self,
        sandbox_id: &str,
        port: u16,
        from_client: &mut StreamReader,
        to_client: &StreamWriter,
    ) -> Result<(), String> {
        port_forward::run(&self.0, sandbox_id, port, (from_client, to_client)).await
    }
}
