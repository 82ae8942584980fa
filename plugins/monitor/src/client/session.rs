//! The streams of a process that was run in a container, or of a container that was attached to.

use tokio::io::AsyncWriteExt;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::MonitorError;
use super::connection::{Connection, accepted};
use crate::protocol::{ContainerStatus, ExecEnd, Frame, FrameError, Reply, Size, StreamControl};

/// The most bytes of one frame of input.
const INPUT_BYTES: usize = 32 << 10;

/// Both halves of a stream.
#[derive(Debug)]
pub struct Session {
    reader: SessionReader,
    writer: SessionWriter,
}

/// The half of a stream that comes out of the container.
#[derive(Debug)]
pub struct SessionReader {
    read: OwnedReadHalf,
    buffer: Vec<u8>,
    socket: std::path::PathBuf,
}

/// The half of a stream that goes into the container.
#[derive(Debug)]
pub struct SessionWriter {
    write: OwnedWriteHalf,
    socket: std::path::PathBuf,
}

/// What comes out of a stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
    /// The process that was run is over; nothing follows.
    ExecEnded(ExecEnd),
    /// The container that was attached to is over; nothing follows.
    ContainerEnded(Box<ContainerStatus>),
}

/// What a process wrote until its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecOutput {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// Whether more was written than the limit.
    pub truncated: bool,
    pub end: ExecEnd,
}

impl Session {
    pub(super) fn new(connection: Connection) -> Session {
        let (read, write) = connection.stream.into_split();
        Session {
            reader: SessionReader {
                read,
                buffer: connection.read,
                socket: connection.socket.clone(),
            },
            writer: SessionWriter {
                write,
                socket: connection.socket,
            },
        }
    }

    /// Waits for what comes next; cancel-safe. A client that attached and reads too slowly is refused (`Full`).
    pub async fn next(&mut self) -> Result<Output, MonitorError> {
        self.reader.next().await
    }

    /// The half that goes into the container.
    pub fn writer(&mut self) -> &mut SessionWriter {
        &mut self.writer
    }

    /// Returns the halves, so that neither direction waits for the other.
    pub fn split(self) -> (SessionReader, SessionWriter) {
        (self.reader, self.writer)
    }
}

impl SessionReader {
    /// Waits for what comes next; cancel-safe. A client that attached and reads too slowly is refused (`Full`).
    pub async fn next(&mut self) -> Result<Output, MonitorError> {
        match self.frame().await? {
            Frame::Stdout(bytes) => Ok(Output::Stdout(bytes)),
            Frame::Stderr(bytes) => Ok(Output::Stderr(bytes)),
            Frame::Input(_) => Err(MonitorError::Frame(FrameError::NoMessage)),
            message @ Frame::Message(_) => ended(accepted(message.read()?)?),
        }
    }

    async fn frame(&mut self) -> Result<Frame, MonitorError> {
        use tokio::io::AsyncReadExt;
        loop {
            if let Some(frame) = Frame::take(&mut self.buffer)? {
                return Ok(frame);
            }
            let end = match self.read.read_buf(&mut self.buffer).await {
                Ok(0) => std::io::ErrorKind::UnexpectedEof.into(),
                Ok(_) => continue,
                Err(error) => error,
            };
            return Err(MonitorError::Broken(self.socket.clone(), end));
        }
    }
}

impl SessionWriter {
    /// Sends input; waits while the container does not read. Not cancel-safe: a dropped call may have sent a part.
    pub async fn input(&mut self, bytes: &[u8]) -> Result<(), MonitorError> {
        for part in bytes.chunks(INPUT_BYTES) {
            self.send(&Frame::Input(part.to_vec())).await?;
        }
        Ok(())
    }

    /// Says that no input will follow.
    pub async fn close_stdin(&mut self) -> Result<(), MonitorError> {
        self.send(&Frame::message(&StreamControl::CloseStdin)?)
            .await
    }

    /// Gives the terminal a new size.
    pub async fn resize(&mut self, size: Size) -> Result<(), MonitorError> {
        self.send(&Frame::message(&StreamControl::Resize(size))?)
            .await
    }

    async fn send(&mut self, frame: &Frame) -> Result<(), MonitorError> {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        let written = self.write.write_all(&bytes).await;
        written.map_err(|error| MonitorError::Broken(self.socket.clone(), error))
    }
}

fn ended(reply: Reply) -> Result<Output, MonitorError> {
    if let Reply::ExecEnded(end) = reply {
        return Ok(Output::ExecEnded(end));
    }
    if let Reply::Container(status) = reply {
        return Ok(Output::ContainerEnded(status));
    }
    Err(MonitorError::Unexpected)
}

/// Reads a stream to its end and keeps at most `limit` bytes of each output.
pub(super) async fn collect(
    mut session: Session,
    limit: usize,
) -> Result<ExecOutput, MonitorError> {
    let (mut stdout, mut stderr, mut truncated) = (Vec::new(), Vec::new(), false);
    let mut keep = |kept: &mut Vec<u8>, bytes: &[u8]| {
        let taken = bytes.len().min(limit - kept.len());
        kept.extend_from_slice(&bytes[..taken]);
        truncated |= taken < bytes.len();
    };
    loop {
        match session.next().await? {
            Output::Stdout(bytes) => keep(&mut stdout, &bytes),
            Output::Stderr(bytes) => keep(&mut stderr, &bytes),
            Output::ExecEnded(end) => {
                let truncated = truncated || end.truncated;
                return Ok(ExecOutput {
                    stdout,
                    stderr,
                    truncated,
                    end,
                });
            }
            Output::ContainerEnded(_) => return Err(MonitorError::Unexpected),
        }
    }
}
