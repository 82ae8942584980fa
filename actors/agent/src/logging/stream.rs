//! A stream that lines are written to, and that may be full, slow or gone.

use std::fs::File;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// What a pipe that is ready to be written takes without waiting (`PIPE_BUF`), in bytes.
const PIECE: usize = 4096;

/// Writes whole lines, or loses them.
#[derive(Debug)]
pub(super) struct LogStream {
    timeout: Duration,
    state: Mutex<StreamState>,
}

#[derive(Debug)]
struct StreamState {
    file: File,
    /// Lines since the last one that was written.
    lost: u64,
    /// Whether the last line was broken off: the next one begins with the end of that.
    is_cut: bool,
}

impl LogStream {
    /// Writes to a file, pipe, socket or terminal; a line that waits longer than the timeout is lost.
    pub(super) fn new(file: File, timeout: Duration) -> LogStream {
        LogStream {
            timeout,
            state: Mutex::new(StreamState {
                file,
                lost: 0,
                is_cut: false,
            }),
        }
    }

    /// Writes a line. Where lines before it were lost, the one that says how many comes first. A stream that has lost
    /// one is not waited for until it takes one again.
    pub(super) fn write(&self, line: &str, lost_line: impl FnOnce(u64) -> String) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut timeout = self.timeout;
        if state.lost > 0 {
            timeout = Duration::ZERO;
            let notice = lost_line(state.lost);
            if state.put(&notice, timeout).is_ok() {
                state.lost = 0;
            }
        }
        if state.put(line, timeout).is_err() {
            state.lost += 1;
        }
    }
}

impl StreamState {
    fn put(&mut self, line: &str, timeout: Duration) -> io::Result<()> {
        if self.is_cut {
            self.put_piece(b"\n", timeout)?;
            self.is_cut = false;
        }
        for (at, piece) in line.as_bytes().chunks(PIECE).enumerate() {
            let put = self.put_piece(piece, timeout);
            self.is_cut = put.is_err() && at > 0;
            put?;
        }
        Ok(())
    }

    fn put_piece(&mut self, piece: &[u8], timeout: Duration) -> io::Result<()> {
        let timeout = Timespec::try_from(timeout).ok();
        let mut ready = [PollFd::new(&self.file, PollFlags::OUT)];
        if poll(&mut ready, timeout.as_ref())? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.file.write_all(piece)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn lost(count: u64) -> String {
        format!("{count} lost\n")
    }

    fn pipe() -> (io::PipeReader, LogStream) {
        let (reader, writer) = io::pipe().unwrap();
        let file = File::from(std::os::fd::OwnedFd::from(writer));
        (reader, LogStream::new(file, Duration::from_millis(1)))
    }

    #[test]
    fn a_stream_that_is_full_loses_lines_and_a_later_line_says_how_many() {
        let (mut reader, stream) = pipe();
        let capacity = 65_536;
        let full = format!("{}\n", "x".repeat(PIECE - 1));
        for _ in 0..capacity / PIECE + 3 {
            stream.write(&full, lost);
        }
        let mut taken = vec![0; capacity];
        reader.read_exact(&mut taken).unwrap();
        stream.write("after\n", lost);
        stream.write("well\n", lost);
        drop(stream);
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "3 lost\nafter\nwell\n");
    }

    #[test]
    fn a_stream_that_is_gone_loses_its_lines_and_stops_nothing() {
        let (reader, stream) = pipe();
        drop(reader);
        for _ in 0..3 {
            stream.write("line\n", lost);
        }
        assert_eq!(stream.state.lock().unwrap().lost, 3);
    }

    #[test]
    fn a_file_that_takes_nothing_more_loses_lines() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let stream = LogStream::new(full, Duration::ZERO);
        stream.write("line\n", lost);
        assert_eq!(stream.state.lock().unwrap().lost, 1);
    }

    #[test]
    fn a_line_that_was_broken_off_spoils_none_after_it() {
        let (mut reader, stream) = pipe();
        let capacity = 65_536;
        let full = format!("{}\n", "x".repeat(PIECE - 1));
        for _ in 1..capacity / PIECE {
            stream.write(&full, lost);
        }
        // Its first piece fits, and no other.
        stream.write(&format!("{}\n", "y".repeat(2 * PIECE)), lost);
        let mut taken = vec![0; capacity];
        reader.read_exact(&mut taken).unwrap();
        stream.write("after\n", lost);
        drop(stream);
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "\n1 lost\nafter\n");
    }

    #[test]
    fn a_long_line_is_written_as_a_whole() {
        let (mut reader, stream) = pipe();
        let long = format!("{}\n", "x".repeat(3 * PIECE));
        stream.write(&long, lost);
        drop(stream);
        let mut read = String::new();
        reader.read_to_string(&mut read).unwrap();
        assert_eq!(read, long);
    }
}
