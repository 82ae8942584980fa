//! The client of a monitor, for a runtime plugin.
//!
//! One call is one connection, and every call has a deadline: for connecting, for sending, and for the first answer, by
//! what the monitor has to do for it ([`Answer`]). Where an OCI runtime or a container decides how long that takes, the
//! monitor is asked for its status meanwhile, so that one that hangs (it was stopped, its disk does not answer) is found
//! within seconds. Callers may drop the future of a call at any time; what the monitor has begun goes on.

mod connection;
mod hung;
mod launch;
mod session;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use connection::Connection;
use tokio::time::{sleep, timeout};

pub use launch::{Launch, LaunchError, Place};
pub use session::{ExecOutput, Output, Session, SessionReader, SessionWriter};

use crate::protocol::{
    Attach, Call, ContainerStatus, Create, Event, Exec, Frame, FrameError, PodStatus, Refusal,
    Reply, Request, SOCKET_NAME, Size, VERSION,
};

/// The most that `exec_sync` keeps of each output of a process, in bytes, whatever limit is asked for; containerd's
/// bound for ExecSync.
pub const MAX_EXEC_OUTPUT_BYTES: usize = 16 << 20;

/// How long a monitor may take to let a client in.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a monitor may take to read a call.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a monitor may take for what it answers by itself. It may wait for its disk meanwhile.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a call of an OCI runtime may take: its default deadline (`Handler::deadline_ms`) twice, since what failed is
/// looked up or removed by a second call, and the time for a runtime to die.
const RUNTIME_TIMEOUT: Duration = Duration::from_secs(260);
/// What `RUNTIME_TIMEOUT` has beside the deadline of the two calls.
const RUNTIME_MARGIN: Duration = Duration::from_secs(20);
/// How long a call waits before it asks for a sign of life, and between two of them.
const LIFE_PERIOD: Duration = Duration::from_secs(10);

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
    /// The monitor hangs: it did not answer in time. `Launch::start` looks again and replaces it by a successor;
    /// whether the call was carried out is to be looked up by `status` then.
    #[error("the monitor at {} has not answered {call} within {seconds} s", monitor.display())]
    Deadline {
        /// The name of the request.
        call: &'static str,
        /// The monitor's socket.
        monitor: PathBuf,
        /// How long it was waited for, in seconds.
        seconds: u64,
    },
    /// The monitor said no.
    #[error("{}", .0.message)]
    Refused(Refusal),
    #[error("cannot read what the monitor says")]
    Frame(#[from] FrameError),
    #[error("the monitor answered another question")]
    Unexpected,
}

/// Who decides how long the first answer to a request takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// The monitor alone.
    Own,
    /// An OCI runtime, for so long at most.
    Runtime(Duration),
    /// A container, which may run for ever; the monitor shows meanwhile that it lives.
    Container,
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
        let (call, mut connection) = self.call(Request::Status).await?;
        let reply = timeout(ANSWER_TIMEOUT, connection.reply()).await;
        let reply = reply.map_err(|_| overdue(call, &self.socket, ANSWER_TIMEOUT))?;
        if let Reply::Pod(status) = reply? {
            return Ok(status);
        }
        Err(MonitorError::Unexpected)
    }

    /// Makes a container. After `Gone`, `Broken` or `Deadline` look it up before it is made again: the id tells.
    pub async fn create(&self, create: Create) -> Result<ContainerStatus, MonitorError> {
        self.container(Request::Create(Box::new(create))).await
    }

    /// Starts a created container.
    pub async fn start(&self, container: &str) -> Result<ContainerStatus, MonitorError> {
        let container = container.to_owned();
        self.container(Request::Start { container }).await
    }

    /// Waits for a container's end, however long that takes, while the monitor lives.
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

    /// Runs a process to its end and returns what it wrote: at most `limit` bytes of each stream, and at most
    /// `MAX_EXEC_OUTPUT_BYTES`. The monitor drops the rest, which `truncated` tells.
    pub async fn exec_sync(
        &self,
        mut exec: Exec,
        limit: usize,
    ) -> Result<ExecOutput, MonitorError> {
        let limit = limit.min(MAX_EXEC_OUTPUT_BYTES);
        exec.max_output_bytes = Some(u64::try_from(limit).unwrap_or(u64::MAX));
        let longest = exec
            .timeout_ms
            .map(|timeout| Duration::from_millis(timeout).saturating_add(RUNTIME_TIMEOUT));
        let run = async { session::collect(self.exec(exec).await?, limit).await };
        let watched = self.while_alive("Exec", run);
        let Some(longest) = longest else {
            return watched.await;
        };
        let output = timeout(longest, watched).await;
        output.map_err(|_| overdue("Exec", &self.socket, longest))?
    }

    /// Joins a container's streams from now on.
    pub async fn attach(&self, attach: Attach) -> Result<Session, MonitorError> {
        self.stream(Request::Attach(attach)).await
    }

    /// Subscribes to what happens: the present state, and every fact after it, without a gap.
    pub async fn events(&self) -> Result<(PodStatus, Events), MonitorError> {
        let (reply, connection) = self.open(Request::Events).await?;
        if let Reply::Pod(status) = reply {
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
        let (reply, connection) = self.open(request).await?;
        if let Reply::Streaming = reply {
            return Ok(Session::new(connection));
        }
        Err(MonitorError::Unexpected)
    }

    async fn ask(&self, request: Request) -> Result<Reply, MonitorError> {
        Ok(self.open(request).await?.0)
    }

    /// Sends a request and waits for its first answer.
    async fn open(&self, request: Request) -> Result<(Reply, Connection), MonitorError> {
        let answer = answer(&request);
        let (call, mut connection) = self.call(request).await?;
        let late = |within: Duration| overdue(call, &self.socket, within);
        let reply = match answer {
            Answer::Own => timeout(ANSWER_TIMEOUT, connection.reply())
                .await
                .map_err(|_| late(ANSWER_TIMEOUT))?,
            Answer::Runtime(within) => timeout(within, self.while_alive(call, connection.reply()))
                .await
                .map_err(|_| late(within))?,
            Answer::Container => self.while_alive(call, connection.reply()).await,
        };
        Ok((reply?, connection))
    }

    /// Waits for an outcome as long as the monitor answers beside it.
    async fn while_alive<T>(
        &self,
        call: &'static str,
        outcome: impl Future<Output = Result<T, MonitorError>>,
    ) -> Result<T, MonitorError> {
        let hung = async {
            loop {
                sleep(LIFE_PERIOD).await;
                // A monitor that is gone breaks the connection that `outcome` waits for.
                if let Err(MonitorError::Deadline { .. }) = self.status().await {
                    return overdue(call, &self.socket, LIFE_PERIOD + ANSWER_TIMEOUT);
                }
            }
        };
        tokio::select! {
            biased;
            outcome = outcome => outcome,
            error = hung => Err(error),
        }
    }

    async fn call(&self, request: Request) -> Result<(&'static str, Connection), MonitorError> {
        let (version, name) = (VERSION, request.name());
        let frame = Frame::message(&Call { version, request })?;
        Ok((name, Connection::open(&self.socket, name, &frame).await?))
    }
}

/// Returns who decides how long the first answer takes.
fn answer(request: &Request) -> Answer {
    match request {
        Request::Status
        | Request::Attach(_)
        | Request::Resize { .. }
        | Request::ReopenLog { .. }
        | Request::CloseStdin { .. }
        | Request::Events
        | Request::Shutdown => Answer::Own,
        Request::Create(create) => {
            let deadline = Duration::from_millis(create.handler.deadline_ms);
            Answer::Runtime(deadline.saturating_mul(2).saturating_add(RUNTIME_MARGIN))
        }
        Request::Start { .. }
        | Request::Exec(_)
        | Request::Kill { .. }
        | Request::Update { .. }
        | Request::Checkpoint { .. }
        | Request::Processes { .. }
        | Request::Delete { .. } => Answer::Runtime(RUNTIME_TIMEOUT),
        Request::Wait { .. } => Answer::Container,
    }
}

fn overdue(call: &'static str, monitor: &Path, within: Duration) -> MonitorError {
    MonitorError::Deadline {
        call,
        monitor: monitor.to_owned(),
        seconds: within.as_secs(),
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
