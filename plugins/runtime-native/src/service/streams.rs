//! The backend of the streaming server: commands, attached clients and ports of real containers.

use std::sync::{Arc, Weak};

use cri_server::{
    CommandResult, RemoteStreams, StreamReader, StreamWriter, StreamingBackend, StreamingRequest,
    TerminalSizeReader, relay,
};
use monitor::{Attach, Output, Session, Size};
use proto::cri::{AttachRequest, ExecRequest};
use tokio::net::TcpStream;

use crate::container::exec::Command;
use crate::error::CallError;
use crate::node::Node;
use crate::sandbox::{namespaces, own_namespaces};

/// CRI's code of a command of whose end nothing is known.
const UNKNOWN_CODE: i32 = 255;

/// The node as the streaming server sees it; weak, because the node's services own the server.
#[derive(Debug)]
pub(crate) struct NativeStreams(pub(crate) Weak<Node>);

impl NativeStreams {
    fn node(&self) -> Result<Arc<Node>, String> {
        let node = self.0.upgrade();
        node.ok_or_else(|| "the runtime is ending".to_owned())
    }

    async fn start_exec(&self, request: &ExecRequest) -> Result<Session, String> {
        let command = Command {
            container: &request.container_id,
            argv: &request.cmd,
            terminal: request.tty,
            stdin: request.stdin,
            timeout_ms: None,
        };
        let started = async {
            let (monitor, exec) = self.node().map_err(unavailable)?.command(command).await?;
            Ok::<_, CallError>(monitor.exec(exec).await?)
        };
        started.await.map_err(|error| sdk::error_chain(&error))
    }

    async fn start_attach(&self, request: &AttachRequest) -> Result<Session, String> {
        let started = async {
            let node = self.node().map_err(unavailable)?;
            let record = node.running(&request.container_id)?;
            let monitor = node.launch(&node.sandbox(&record.sandbox)?).await?;
            let attach = Attach {
                container: record.id,
                stdin: request.stdin,
                stdout: request.stdout,
                stderr: request.stderr,
            };
            Ok::<_, CallError>(monitor.attach(attach).await?)
        };
        started.await.map_err(|error| sdk::error_chain(&error))
    }
}

fn unavailable(why: String) -> CallError {
    CallError::Other(tonic::Status::unavailable(why))
}

impl StreamingBackend for NativeStreams {
    async fn exec(&self, request: &ExecRequest, streams: RemoteStreams) -> CommandResult {
        match self.start_exec(request).await {
            Ok(session) => carry(session, streams).await,
            Err(why) => CommandResult::Failed(why),
        }
    }

    async fn attach(&self, request: &AttachRequest, streams: RemoteStreams) -> CommandResult {
        match self.start_attach(request).await {
            Ok(session) => carry(session, streams).await,
            Err(why) => CommandResult::Failed(why),
        }
    }

    async fn port_forward(
        &self,
        sandbox_id: &str,
        port: u16,
        from_client: &mut StreamReader,
        to_client: &StreamWriter,
    ) -> Result<(), String> {
        let stream = connect(self.node()?, sandbox_id, port).await;
        let stream = stream.map_err(|error| sdk::error_chain(&error))?;
        relay(stream, from_client, to_client)
            .await
            .map_err(|error| error.to_string())
    }
}

/// Refuses a request whose streams could not be served, before a URL is given out.
pub(crate) fn check(node: &Node, request: &StreamingRequest) -> Result<(), CallError> {
    match request {
        StreamingRequest::Exec(exec) => node.running(&exec.container_id).map(drop),
        StreamingRequest::Attach(attach) => node.running(&attach.container_id).map(drop),
        StreamingRequest::PortForward(forward) => ready(node, &forward.pod_sandbox_id).map(drop),
    }
}

fn ready(node: &Node, id: &str) -> Result<crate::record::SandboxRecord, CallError> {
    let sandbox = node.sandbox(id)?;
    if sandbox.state() == Some(proto::cri::PodSandboxState::SandboxReady) {
        return Ok(sandbox);
    }
    Err(CallError::WrongState {
        what: "sandbox",
        id: id.to_owned(),
        state: "not ready",
        expected: "ready",
    })
}

/// Carries a client's streams to and from a process, each way without waiting for the other, until it is over.
async fn carry(session: Session, streams: RemoteStreams) -> CommandResult {
    let (mut reader, mut writer) = session.split();
    let RemoteStreams {
        mut stdin,
        stdout,
        stderr,
        mut resize,
    } = streams;
    let inwards = async {
        let mut sizes = TerminalSizeReader::default();
        loop {
            // Each arm only takes what has arrived: a size before the input that was sent after it.
            let sent = tokio::select! {
                biased;
                chunk = next(&mut resize) => match chunk.map(|chunk| sizes.read(&chunk)) {
                    Some(Some(size)) => {
                        writer.resize(Size { columns: size.width, rows: size.height }).await
                    }
                    Some(None) => Ok(()),
                    None => { resize = None; Ok(()) }
                },
                typed = next(&mut stdin) => match typed {
                    Some(bytes) => writer.input(&bytes).await,
                    None => { stdin = None; writer.close_stdin().await }
                },
            };
            // The process is over or its monitor is gone: the other direction tells.
            if sent.is_err() {
                std::future::pending::<()>().await;
            }
        }
    };
    let outwards = async {
        loop {
            match reader.next().await {
                Ok(Output::Stdout(bytes)) => put(stdout.as_ref(), bytes).await,
                Ok(Output::Stderr(bytes)) => put(stderr.as_ref(), bytes).await,
                Ok(Output::ExecEnded(end)) => {
                    return CommandResult::Exited(end.exit.code().unwrap_or(UNKNOWN_CODE));
                }
                Ok(Output::ContainerEnded(_)) => return CommandResult::Exited(0),
                Err(error) => return CommandResult::Failed(sdk::error_chain(&error)),
            }
        }
    };
    tokio::select! {
        result = outwards => result,
        () = inwards => CommandResult::Failed("the client is gone".to_owned()),
    }
}

/// Waits for the next chunk of a stream; for ever if there is no stream.
async fn next(stream: &mut Option<StreamReader>) -> Option<Vec<u8>> {
    match stream {
        Some(stream) => stream.recv().await,
        None => std::future::pending().await,
    }
}

async fn put(writer: Option<&StreamWriter>, bytes: Vec<u8>) {
    if let Some(writer) = writer {
        // A client that is gone ends the whole connection, and with it this future.
        drop(writer.write(bytes).await);
    }
}

async fn connect(node: Arc<Node>, sandbox: &str, port: u16) -> Result<TcpStream, CallError> {
    let record = ready(&node, sandbox)?;
    let own = own_namespaces(&record.config.0).network;
    let pin = node.parts.layout.sandbox(&record.id).join("ns/net");
    let connected = node.blocking("connecting to a pod's port", move || {
        Ok(namespaces::connect(own.then_some(pin.as_path()), port)?)
    });
    let stream = connected.await?;
    let converted = stream
        .set_nonblocking(true)
        .and_then(|()| TcpStream::from_std(stream));
    converted.map_err(CallError::file("use a connection to the port of", sandbox))
}
