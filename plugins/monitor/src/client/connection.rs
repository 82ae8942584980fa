//! One connection to a monitor, which carries one call.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

use super::{CONNECT_TIMEOUT, MonitorError, SEND_TIMEOUT, overdue};
use crate::protocol::{Frame, Reply};

/// How long until a monitor with a full queue of connections is tried again.
const RETRY_CONNECT: Duration = Duration::from_millis(20);

/// One call's connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: UnixStream,
    pub(super) socket: PathBuf,
    pub(super) read: Vec<u8>,
}

impl Connection {
    /// Connects and sends the call named `call`.
    pub(super) async fn open(
        socket: &Path,
        call: &'static str,
        frame: &Frame,
    ) -> Result<Connection, MonitorError> {
        let connecting = timeout(CONNECT_TIMEOUT, connect(socket)).await;
        let stream = connecting.map_err(|_| overdue(call, socket, CONNECT_TIMEOUT))??;
        let mut connection = Connection {
            stream,
            socket: socket.to_owned(),
            read: Vec::new(),
        };
        let sending = timeout(SEND_TIMEOUT, connection.send(frame)).await;
        sending.map_err(|_| overdue(call, socket, SEND_TIMEOUT))??;
        Ok(connection)
    }

    pub(super) async fn send(&mut self, frame: &Frame) -> Result<(), MonitorError> {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        let written = self.stream.write_all(&bytes).await;
        written.map_err(|error| MonitorError::Broken(self.socket.clone(), error))
    }

    /// Waits for the next frame; cancel-safe: what was read stays in the buffer.
    pub(super) async fn frame(&mut self) -> Result<Frame, MonitorError> {
        loop {
            if let Some(frame) = Frame::take(&mut self.read)? {
                return Ok(frame);
            }
            let read = self.stream.read_buf(&mut self.read).await;
            let end = match read {
                Ok(0) => ErrorKind::UnexpectedEof.into(),
                Ok(_) => continue,
                Err(error) => error,
            };
            return Err(MonitorError::Broken(self.socket.clone(), end));
        }
    }

    /// Waits for the next reply; cancel-safe.
    pub(super) async fn reply(&mut self) -> Result<Reply, MonitorError> {
        accepted(self.frame().await?.read()?)
    }
}

/// Connects. A monitor that does not accept fills the queue of its socket, and the kernel then refuses with EAGAIN.
async fn connect(socket: &Path) -> Result<UnixStream, MonitorError> {
    loop {
        match UnixStream::connect(socket).await {
            Err(error) if error.kind() == ErrorKind::WouldBlock => sleep(RETRY_CONNECT).await,
            connected => {
                return connected.map_err(|error| MonitorError::Gone(socket.to_owned(), error));
            }
        }
    }
}

/// Makes a refusal the error that it is.
pub(super) fn accepted(reply: Reply) -> Result<Reply, MonitorError> {
    if let Reply::Refused(refusal) = reply {
        return Err(MonitorError::Refused(refusal));
    }
    Ok(reply)
}
