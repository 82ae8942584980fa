//! A probe's connection, on which hyper sees no response before its request, and of the response only the needed headers.
//!
//! hyper takes a response that is there before its request for an error, where Go's client, which writes at once, takes it
//! for the response: a pod that answers with `nc -l` at each connection is healthy. So what the peer sends, and its end, is
//! held back until the first bytes are written.
//!
//! Upstream's client takes 10 MiB of headers, and a pod may send as many to each of its probes. What a probe does not
//! look at is dropped as it comes, so that a response of any size costs no memory beyond one read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes of a response's head, as Go's `Transport.MaxResponseHeaderBytes` has them by default.
pub(super) const MAX_HEAD_BYTES: usize = 10 << 20;
/// Bytes of a header's name that is compared; a longer name is of no header that is needed.
const MAX_NAME: usize = 32;
/// What HTTP's framing and redirects are made of.
const NEEDED: [&str; 5] = [
    "connection",
    "content-length",
    "location",
    "transfer-encoding",
    "upgrade",
];

/// Holds back what comes before the first write, and drops other headers than [`NEEDED`].
///
/// ```text
///               +------------- the next head, after a status of 1xx ------------+
///               v                                                               |
/// StatusLine -> LineStart -> Name -> Kept    -> LineStart ... an empty line -> Body
///                              \---> Dropped -> LineStart
/// ```
#[derive(Debug)]
pub(super) struct ProbeStream<S> {
    stream: S,
    head: ResponseHead,
    is_written: bool,
    /// A reader that waits for the first write.
    reader: Option<Waker>,
}

#[derive(Debug, Default)]
struct ResponseHead {
    state: HeadState,
    /// Bytes of all heads.
    bytes: usize,
    /// The beginning of the status line or of a header's name.
    word: Vec<u8>,
    is_informational: bool,
    /// Whether the line before was dropped, which then also holds for a line that continues it.
    is_dropping: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum HeadState {
    #[default]
    StatusLine,
    LineStart,
    Name,
    Kept,
    Dropped,
    Body,
}

impl<S> ProbeStream<S> {
    pub(super) fn new(stream: S) -> ProbeStream<S> {
        ProbeStream {
            stream,
            head: ResponseHead::default(),
            is_written: false,
            reader: None,
        }
    }

    fn let_read(&mut self) {
        self.is_written = true;
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl ResponseHead {
    /// Takes bytes and keeps those that the reader is to see.
    fn filter(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let (mut kept, mut rest) = (Vec::new(), bytes);
        while self.state != HeadState::Body {
            // Most of a great head is in dropped lines, so these are passed over at once.
            let dropped = if self.state == HeadState::Dropped {
                rest.iter().position(|byte| *byte == b'\n')
            } else {
                Some(0)
            };
            let (passed, left) = rest.split_at(dropped.unwrap_or(rest.len()));
            self.count(passed.len())?;
            let Some((byte, left)) = left.split_first() else {
                return Ok(kept);
            };
            self.count(1)?;
            self.state = self.next(*byte, &mut kept);
            rest = left;
        }
        kept.extend_from_slice(rest);
        Ok(kept)
    }

    fn count(&mut self, bytes: usize) -> io::Result<()> {
        self.bytes += bytes;
        if self.bytes > MAX_HEAD_BYTES {
            return Err(io::Error::other(format!(
                "net/http: server response headers exceeded {MAX_HEAD_BYTES} bytes; aborted"
            )));
        }
        Ok(())
    }

    fn next(&mut self, byte: u8, kept: &mut Vec<u8>) -> HeadState {
        match self.state {
            HeadState::StatusLine => {
                kept.push(byte);
                if byte == b'\n' {
                    self.is_informational = is_informational(&std::mem::take(&mut self.word));
                    return HeadState::LineStart;
                }
                if self.word.len() < MAX_NAME {
                    self.word.push(byte);
                }
                HeadState::StatusLine
            }
            HeadState::LineStart => self.begin_line(byte, kept),
            HeadState::Name => self.name(byte, kept),
            HeadState::Kept => {
                kept.push(byte);
                end_of_line(byte, HeadState::Kept)
            }
            HeadState::Dropped => end_of_line(byte, HeadState::Dropped),
            HeadState::Body => HeadState::Body,
        }
    }

    fn begin_line(&mut self, byte: u8, kept: &mut Vec<u8>) -> HeadState {
        match byte {
            b'\r' => {
                kept.push(byte);
                HeadState::LineStart
            }
            b'\n' => {
                kept.push(byte);
                if self.is_informational {
                    HeadState::StatusLine
                } else {
                    HeadState::Body
                }
            }
            b' ' | b'\t' if self.is_dropping => HeadState::Dropped,
            b' ' | b'\t' => {
                kept.push(byte);
                HeadState::Kept
            }
            _ => self.name(byte, kept),
        }
    }

    fn name(&mut self, byte: u8, kept: &mut Vec<u8>) -> HeadState {
        if byte != b':' && is_token(byte) {
            if self.word.len() <= MAX_NAME {
                self.word.push(byte);
            }
            return HeadState::Name;
        }
        let name = std::mem::take(&mut self.word);
        let is_needed = NEEDED
            .iter()
            .any(|needed| name.eq_ignore_ascii_case(needed.as_bytes()));
        // What is not a header stays, so that the reader refuses it.
        self.is_dropping = byte == b':' && !is_needed && !name.is_empty();
        if self.is_dropping {
            return HeadState::Dropped;
        }
        kept.extend_from_slice(&name);
        kept.push(byte);
        end_of_line(byte, HeadState::Kept)
    }
}

fn end_of_line(byte: u8, within: HeadState) -> HeadState {
    match byte {
        b'\n' => HeadState::LineStart,
        _ => within,
    }
}

/// Whether another head follows: any status of 1xx but that of another protocol.
fn is_informational(status_line: &[u8]) -> bool {
    let status = status_line.split(|byte| *byte == b' ').nth(1);
    status.is_some_and(|status| status.starts_with(b"1") && !status.starts_with(b"101"))
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

impl<S: AsyncRead + Unpin> AsyncRead for ProbeStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.is_written {
            this.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        loop {
            let before = buffer.filled().len();
            ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
            let read = &buffer.filled()[before..];
            if this.head.state == HeadState::Body || read.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let kept = this.head.filter(read)?;
            buffer.set_filled(before);
            buffer.put_slice(&kept);
            // A read of no bytes means the end.
            if !kept.is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ProbeStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes));
        self.let_read();
        Poll::Ready(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(context, slices));
        self.let_read();
        Poll::Ready(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filtered(head: &[u8], cut: usize) -> io::Result<String> {
        let mut filter = ResponseHead::default();
        let mut kept = Vec::new();
        for piece in head.chunks(cut) {
            kept.extend(filter.filter(piece)?);
        }
        Ok(String::from_utf8(kept).unwrap())
    }

    #[test]
    fn needed_headers_arrive_wherever_the_bytes_are_cut() {
        let long = "x".repeat(200_000);
        let cases = [
            (
                "HTTP/1.1 200 OK\r\nX-A: 1\r\nContent-Length: 2\r\n\r\nX-A: 3\r\n\r\n".to_owned(),
                "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nX-A: 3\r\n\r\n",
            ),
            (
                format!("HTTP/1.1 302 Found\nSet-Cookie: {long}\nLOCATION: /a\n\nbody"),
                "HTTP/1.1 302 Found\nLOCATION: /a\n\nbody",
            ),
            (
                format!("HTTP/1.1 200 OK\r\n{long}: 1\r\nX: a\r\n\tb\r\n\r\n"),
                "HTTP/1.1 200 OK\r\n\r\n",
            ),
            (
                "HTTP/1.1 100 Continue\r\nX: 1\r\n\r\nHTTP/1.1 204 No\r\nX: 1\r\n\r\n".to_owned(),
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n\r\n",
            ),
            (
                "HTTP/1.1 101 S\r\nUpgrade: a\r\nX: 1\r\n\r\nX: 1\r\n".to_owned(),
                "HTTP/1.1 101 S\r\nUpgrade: a\r\n\r\nX: 1\r\n",
            ),
            // What is not a head arrives as it is, for the reader to refuse.
            (
                "nonsense\nno header\n: 1\n\n".to_owned(),
                "nonsense\nno header\n: 1\n\n",
            ),
            ("SSH-2.0\r\n".to_owned(), "SSH-2.0\r\n"),
        ];
        for (text, expected) in cases {
            for cut in [1, 7, 4_096, text.len()] {
                assert_eq!(filtered(text.as_bytes(), cut).unwrap(), expected, "{cut}");
            }
        }
    }

    #[test]
    fn a_head_has_a_bound_though_nothing_of_it_is_kept() {
        let of = |bytes: usize| {
            let start = "HTTP/1.1 200 OK\r\nX: ";
            let value = "x".repeat(bytes - start.len() - 4);
            filtered(format!("{start}{value}\r\n\r\n").as_bytes(), 16_384)
        };
        assert_eq!(of(MAX_HEAD_BYTES).unwrap(), "HTTP/1.1 200 OK\r\n\r\n");
        let refused = of(MAX_HEAD_BYTES + 1).unwrap_err().to_string();
        let expected = "net/http: server response headers exceeded 10485760 bytes; aborted";
        assert_eq!(refused, expected);
    }
}
