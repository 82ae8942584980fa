//! The client of a monitor, for a runtime plugin.
//!
//! One call is one connection. Every call takes as long as the monitor takes: the monitor's own deadlines
//! (`Handler::deadline_ms`) bound it, and callers may drop the future at any time; what the monitor has begun goes on.

mod launch;
mod session;

use std::path::{Path, PathBuf};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

pub use launch::{Launch, LaunchError, Place};
pub use session::{ExecOutput, Output, Session, SessionReader, SessionWriter};

use crate::protocol::{
    Attach, Call, ContainerStatus, Create, Event, Exec, Frame, FrameError, PodStatus, Refusal,
    Reply, Request, SOCKET_NAME, Size, VERSION,
};

/// The monitor of one folder. It holds no connection: a monitor that was replaced is simply the next one spoken to.
#[derive(Clone, Debug)]
pub struct Monitor {
    socket: PathBuf,
}

/// Why a call brought no answer, or another one than asked for.
#[derive(Debug, thiserror::Error)]
pub enum MonitorError {
    /// No monitor listens: it is dead or was never started; `Launch` starts its successor.
    #[error("no monitor listens at {0}")]
    Gone(PathBuf, #[source] std::io::Error),
    /// The connection broke before the answer: whether the call was carried out is to be looked up by `status`.
    #[error("connection to the monitor at {0} broke")]
    Broken(PathBuf, #[source] std::io::Error),
    /// The monitor said no.
    #[error("{}", .0.message)]
    Refused(Refusal),
    #[error("cannot read what the monitor says")]
    Frame(#[from] FrameError),
    #[error("the monitor answered another question")]
    Unexpected,
}

impl Monitor {
    /// Names the monitor whose folder this is; nothing is connected yet.
    #[must_use]
    pub fn at(folder: &Path) -> Monitor {
        Monitor {
            socket: folder.join(SOCKET_NAME),
        }
    }

    /// Returns the state of every container.
    pub async fn status(&self) -> Result<PodStatus, MonitorError> {
        if let Reply::Pod(status) = self.ask(Request::Status).await? {
            return Ok(status);
        }
        Err(MonitorError::Unexpected)
    }

    /// Makes a container. After `Gone` or `Broken` look it up before it is made again: the id tells.
    pub async fn create(&self, create: Create) -> Result<ContainerStatus, MonitorError> {
        self.container(Request::Create(Box::new(create))).await
    }

    /// Starts a created container.
    pub async fn start(&self, container: &str) -> Result<ContainerStatus, MonitorError> {
        let container = container.to_owned();
        self.container(Request::Start { container }).await
    }

    /// Waits for a container's end.
    pub async fn wait(&self, container: &str) -> Result<ContainerStatus, MonitorError> {
        let container = container.to_owned();
        self.container(Request::Wait { container }).await
    }

    /// Sends a signal to a container's init; one that has ended already is no error.
    pub async fn kill(&self, container: &str, signal: i32) -> Result<(), MonitorError> {
        let container = container.to_owned();
        self.done(Request::Kill { container, signal }).await
    }

    /// Removes a container that isn't running; an unknown one is no error.
    pub async fn delete(&self, container: &str) -> Result<(), MonitorError> {
        let container = container.to_owned();
        self.done(Request::Delete { container }).await
    }

    /// Opens a container's log anew at its path.
    pub async fn reopen_log(&self, container: &str) -> Result<(), MonitorError> {
        let container = container.to_owned();
        self.done(Request::ReopenLog { container }).await
    }

    /// Ends a container's standard input.
    pub async fn close_stdin(&self, container: &str) -> Result<(), MonitorError> {
        let container = container.to_owned();
        self.done(Request::CloseStdin { container }).await
    }

    /// Sets the size of a container's terminal.
    pub async fn resize(&self, container: &str, size: Size) -> Result<(), MonitorError> {
        let container = container.to_owned();
        self.done(Request::Resize { container, size }).await
    }

    /// Changes a container's limits; `resources` is an OCI `linux.resources` object.
    pub async fn update(
        &self,
        container: &str,
        resources: serde_json::Value,
    ) -> Result<(), MonitorError> {
        let container = container.to_owned();
        self.done(Request::Update {
            container,
            resources,
        })
        .await
    }

    /// Writes a running container's state into the folder `images`, and lets it run on; logs go to the folder `work`.
    /// Both are there, absolute.
    pub async fn checkpoint(
        &self,
        container: &str,
        images: PathBuf,
        work: PathBuf,
    ) -> Result<(), MonitorError> {
        let container = container.to_owned();
        self.done(Request::Checkpoint {
            container,
            images,
            work,
        })
        .await
    }

    /// Returns the process ids in a container, as the host counts them.
    pub async fn processes(&self, container: &str) -> Result<Vec<i32>, MonitorError> {
        let container = container.to_owned();
        if let Reply::Processes(pids) = self.ask(Request::Processes { container }).await? {
            return Ok(pids);
        }
        Err(MonitorError::Unexpected)
    }

    /// Runs a process in a container, with its streams.
    pub async fn exec(&self, exec: Exec) -> Result<Session, MonitorError> {
        self.stream(Request::Exec(Box::new(exec))).await
    }

    /// Runs a process to its end and returns what it wrote: at most `limit` bytes of each stream, the rest is
    /// dropped and told by `truncated`.
    pub async fn exec_sync(&self, exec: Exec, limit: usize) -> Result<ExecOutput, MonitorError> {
        session::collect(self.exec(exec).await?, limit).await
    }

    /// Joins a container's streams from now on.
    pub async fn attach(&self, attach: Attach) -> Result<Session, MonitorError> {
        self.stream(Request::Attach(attach)).await
    }

    /// Subscribes to what happens: the present state, and every fact after it, without a gap.
    pub async fn events(&self) -> Result<(PodStatus, Events), MonitorError> {
        let mut connection = self.call(Request::Events).await?;
        if let Reply::Pod(status) = connection.reply().await? {
            return Ok((status, Events { connection }));
        }
        Err(MonitorError::Unexpected)
    }

    /// Ends a monitor that has no container left.
    pub async fn shutdown(&self) -> Result<(), MonitorError> {
        self.done(Request::Shutdown).await
    }

    async fn container(&self, request: Request) -> Result<ContainerStatus, MonitorError> {
        if let Reply::Container(status) = self.ask(request).await? {
            return Ok(*status);
        }
        Err(MonitorError::Unexpected)
    }

    async fn done(&self, request: Request) -> Result<(), MonitorError> {
        if let Reply::Done = self.ask(request).await? {
            return Ok(());
        }
        Err(MonitorError::Unexpected)
    }

    async fn stream(&self, request: Request) -> Result<Session, MonitorError> {
        let mut connection = self.call(request).await?;
        if let Reply::Streaming = connection.reply().await? {
            return Ok(Session::new(connection));
        }
        Err(MonitorError::Unexpected)
    }

    async fn ask(&self, request: Request) -> Result<Reply, MonitorError> {
        self.call(request).await?.reply().await
    }

    async fn call(&self, request: Request) -> Result<Connection, MonitorError> {
        let version = VERSION;
        let frame = Frame::message(&Call { version, request })?;
        let stream = UnixStream::connect(&self.socket)
            .await
            .map_err(|error| MonitorError::Gone(self.socket.clone(), error))?;
        let mut connection = Connection {
            stream,
            socket: self.socket.clone(),
            read: Vec::new(),
        };
        connection.send(&frame).await?;
        Ok(connection)
    }
}

/// Facts as they happen. A subscriber that does not read for long is dropped by the monitor, and subscribes again.
#[derive(Debug)]
pub struct Events {
    connection: Connection,
}

impl Events {
    /// Waits for the next fact; cancel-safe. `Broken` means that the monitor died or dropped this subscriber.
    pub async fn next(&mut self) -> Result<Event, MonitorError> {
        if let Reply::Event(event) = self.connection.reply().await? {
            return Ok(event);
        }
        Err(MonitorError::Unexpected)
    }
}

/// One call's connection.
#[derive(Debug)]
struct Connection {
    stream: UnixStream,
    socket: PathBuf,
    read: Vec<u8>,
}

impl Connection {
    async fn send(&mut self, frame: &Frame) -> Result<(), MonitorError> {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        let written = self.stream.write_all(&bytes).await;
        written.map_err(|error| MonitorError::Broken(self.socket.clone(), error))
    }

    /// Waits for the next frame; cancel-safe: what was read stays in the buffer.
    async fn frame(&mut self) -> Result<Frame, MonitorError> {
        loop {
            if let Some(frame) = Frame::take(&mut self.read)? {
                return Ok(frame);
            }
            let read = self.stream.read_buf(&mut self.read).await;
            let end = match read {
                Ok(0) => std::io::ErrorKind::UnexpectedEof.into(),
                Ok(_) => continue,
                Err(error) => error,
            };
            return Err(MonitorError::Broken(self.socket.clone(), end));
        }
    }

    async fn reply(&mut self) -> Result<Reply, MonitorError> {
        accepted(self.frame().await?.read()?)
    }
}

/// Makes a refusal the error that it is.
fn accepted(reply: Reply) -> Result<Reply, MonitorError> {
    if let Reply::Refused(refusal) = reply {
        return Err(MonitorError::Refused(refusal));
    }
    Ok(reply)
}
