//! Our ends of a process's streams, with what waits to go in.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use rustix::event::PollFlags;
use rustix::io::Errno;

use crate::call::{Inherited, remove_quietly};
use crate::log::OutputStream;
use crate::stdio::{Ends, console_socket, input_pipe, receive_terminal};

/// The most input that waits for a process, in bytes; then its client is not read until the process reads.
const MAX_INPUT: usize = 64 << 10;

/// One descriptor of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    Output(OutputStream),
    Input,
    Terminal,
}

/// What a read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    Data(usize),
    /// Nothing now.
    Nothing,
    /// Nothing any more.
    End,
}

/// Our ends.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    stdin: Option<OwnedFd>,
    pub(crate) terminal: Option<OwnedFd>,
    console: Option<Console>,
    input: Vec<u8>,
    input_ends: bool,
}

/// The socket to which the runtime sends a terminal; its file goes with it.
#[derive(Debug)]
struct Console {
    listener: UnixListener,
    path: PathBuf,
}

impl Streams {
    /// Streams by pipes; `inherited` goes to the process.
    pub(crate) fn piped(
        stdout: Ends,
        stderr: Ends,
        with_stdin: bool,
    ) -> io::Result<(Streams, Inherited)> {
        let stdin = if with_stdin {
            Some(input_pipe()?)
        } else {
            None
        };
        let (stdin, stdin_other) =
            stdin.map_or((None, None), |ends| (Some(ends.own), Some(ends.other)));
        let inherited = Inherited {
            stdin: stdin_other,
            stdout: Some(stdout.other),
            stderr: Some(stderr.other),
        };
        let streams = Streams {
            stdin,
            ..Streams::outputs(Some(stdout.own), Some(stderr.own))
        };
        Ok((streams, inherited))
    }

    /// Outputs alone, as a successor finds them.
    pub(crate) fn outputs(stdout: Option<OwnedFd>, stderr: Option<OwnedFd>) -> Streams {
        Streams {
            stdout,
            stderr,
            ..Streams::default()
        }
    }

    /// A terminal, which the runtime will send to the socket at `console`.
    pub(crate) fn terminal(console: PathBuf) -> io::Result<(Streams, Inherited)> {
        let listener = console_socket(&console)?;
        let streams = Streams {
            console: Some(Console {
                listener,
                path: console,
            }),
            ..Streams::default()
        };
        let inherited = Inherited {
            stdin: None,
            stdout: None,
            stderr: None,
        };
        Ok((streams, inherited))
    }

    /// Takes the terminal that the runtime has sent before it ended.
    pub(crate) fn take_terminal(&mut self) -> io::Result<()> {
        if let Some(console) = self.console.take() {
            self.terminal = Some(receive_terminal(&console.listener)?);
        }
        Ok(())
    }

    /// The descriptors to wait for, the outputs only when `reading`.
    pub(crate) fn interests(
        &self,
        reading: bool,
    ) -> impl Iterator<Item = (Channel, BorrowedFd<'_>, PollFlags)> {
        let outgoing = PollFlags::IN;
        let incoming = if self.input.is_empty() {
            PollFlags::empty()
        } else {
            PollFlags::OUT
        };
        let (out, err) = (
            Channel::Output(OutputStream::Stdout),
            Channel::Output(OutputStream::Stderr),
        );
        let outputs = [(out, &self.stdout), (err, &self.stderr)]
            .into_iter()
            .filter(move |_| reading);
        let outputs = outputs
            .filter_map(move |(channel, fd)| Some((channel, fd.as_ref()?.as_fd(), outgoing)));
        let terminal = self
            .terminal
            .as_ref()
            .filter(|_| reading || !incoming.is_empty());
        let wanted = if reading {
            outgoing | incoming
        } else {
            incoming
        };
        let terminal = terminal.map(|fd| (Channel::Terminal, fd.as_fd(), wanted));
        let stdin = self.stdin.as_ref().filter(|_| !incoming.is_empty());
        let stdin = stdin.map(|fd| (Channel::Input, fd.as_fd(), incoming));
        outputs.chain(terminal).chain(stdin)
    }

    /// Reads what has come out of a channel, once.
    pub(crate) fn read(&mut self, channel: Channel, buffer: &mut [u8]) -> Read {
        let fd = match channel {
            Channel::Output(OutputStream::Stdout) => &mut self.stdout,
            Channel::Output(OutputStream::Stderr) => &mut self.stderr,
            Channel::Terminal => &mut self.terminal,
            Channel::Input => return Read::Nothing,
        };
        let Some(open) = fd else { return Read::End };
        match rustix::io::read(&*open, buffer) {
            Ok(0) => {}
            Ok(length) => return Read::Data(length),
            Err(Errno::AGAIN | Errno::INTR) => return Read::Nothing,
            // A terminal says EIO once nobody has it open; whatever else is wrong, no more can be had.
            Err(_) => {}
        }
        *fd = None;
        Read::End
    }

    /// Whether more input is taken now.
    pub(crate) fn has_room(&self) -> bool {
        self.input.len() < MAX_INPUT
    }

    /// Takes input; what comes after the end of input, or has no reader, is dropped.
    pub(crate) fn input(&mut self, bytes: &[u8]) {
        if !self.input_ends && (self.stdin.is_some() || self.terminal.is_some()) {
            self.input.extend_from_slice(bytes);
            self.write();
        }
    }

    /// Ends the input once what waits is written. A terminal's stays open: its end is a character like another.
    pub(crate) fn end_input(&mut self) {
        if self.terminal.is_none() {
            self.input_ends = true;
            self.write();
        }
    }

    /// Writes what the process takes now.
    pub(crate) fn write(&mut self) {
        while let Some(fd) = self.stdin.as_ref().or(self.terminal.as_ref())
            && !self.input.is_empty()
        {
            match rustix::io::write(fd, &self.input) {
                Ok(written) => drop(self.input.drain(..written)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // Nobody reads any more, which is the process's own business.
                Err(_) => {
                    self.input = Vec::new();
                    self.stdin = None;
                    return;
                }
            }
        }
        if self.input_ends {
            self.stdin = None;
        }
        self.input = Vec::new();
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        remove_quietly(&self.path);
    }
}
