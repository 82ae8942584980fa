//! One connection of a client: what was read of it, what waits to be written to it, and what it is for.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

use monitor::{Frame, FrameError, Refusal, RefusalKind, Reply};

use crate::log::OutputStream;

/// The most that waits to be written to one client, in bytes: one that reads slower than a container writes is
/// dropped beyond it, a process that was run waits.
pub(crate) const MAX_WAITING: usize = 256 << 10;
/// How long a client may take for its call, or to read the last word.
pub(crate) const PATIENCE_MS: u64 = 10_000;

/// A connection.
#[derive(Debug)]
pub(crate) struct Client {
    stream: UnixStream,
    read: Vec<u8>,
    write: Vec<u8>,
    pub(crate) role: Role,
    /// When it is dropped whatever it does, by the monotonic clock.
    pub(crate) deadline: Option<u64>,
}

/// What a connection is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Its call has not come.
    Fresh,
    /// Its answer is being made.
    Asking,
    /// It waits for the end of a container, by number.
    Waiting(u64),
    /// It hears facts.
    Subscribed,
    /// It has joined a container.
    Attached(Attached),
    /// It runs a process, by number.
    Running(u64),
    /// Everything is said; it is dropped when it has read that.
    Leaving,
}

/// What an attached client takes part in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attached {
    pub(crate) container: u64,
    pub(crate) stdin: bool,
    pub(crate) stdout: bool,
    pub(crate) stderr: bool,
}

impl Client {
    pub(crate) fn new(stream: UnixStream, deadline: u64) -> Client {
        Client {
            stream,
            read: Vec::new(),
            write: Vec::new(),
            role: Role::Fresh,
            deadline: Some(deadline),
        }
    }

    pub(crate) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// How many bytes wait to be written.
    pub(crate) fn waiting(&self) -> usize {
        self.write.len()
    }

    /// Reads what has come, once; `Ok(false)` is the client's end.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        match self.stream.read(buffer) {
            Ok(0) => Ok(false),
            Ok(length) => {
                self.read.extend_from_slice(&buffer[..length]);
                Ok(true)
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    /// Takes the next whole frame of what was read.
    pub(crate) fn frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let frame = Frame::take(&mut self.read);
        if self.read.is_empty() {
            // A big call is not kept for the life of a stream.
            self.read = Vec::new();
        }
        frame
    }

    /// Says something that nothing follows.
    pub(crate) fn finish(&mut self, reply: &Reply, now: u64) {
        self.say(reply);
        self.role = Role::Leaving;
        self.deadline = Some(now + PATIENCE_MS);
    }

    /// Says something that more may follow.
    pub(crate) fn say(&mut self, reply: &Reply) {
        let frame = Frame::message(reply).or_else(|_| {
            let message = "the answer is longer than a frame may be".to_owned();
            Frame::message(&Reply::Refused(Refusal {
                kind: RefusalKind::Full,
                message,
            }))
        });
        frame
            .expect("a refusal is a short message")
            .encode(&mut self.write);
    }

    /// Passes on what came out of a process.
    pub(crate) fn data(&mut self, stream: OutputStream, bytes: &[u8]) {
        let frame = match stream {
            OutputStream::Stdout => Frame::Stdout(bytes.to_vec()),
            OutputStream::Stderr => Frame::Stderr(bytes.to_vec()),
        };
        frame.encode(&mut self.write);
    }

    /// Writes what the client takes now. An error is the client's end.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while !self.write.is_empty() {
            match self.stream.write(&self.write) {
                Ok(written) => drop(self.write.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.write = Vec::new();
        Ok(())
    }
}
