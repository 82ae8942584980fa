//! Connections of clients that name no host.
//!
//! A client in Go that dials a socket by its path alone, as most device plugins and monitoring agents do, sends that path as its
//! request's `:authority`, escaped (`%2Fvar%2Flib...`). gRPC's server in Go takes any; the HTTP/2 library here takes
//! hosts alone and resets the stream (PROTOCOL_ERROR). Nobody reads it, so each is replaced on its way in.

mod header_block;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

/// What a client sends before its first frame (RFC 9113, section 3.4).
const PREFACE: usize = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();
const FRAME_HEADER: usize = 9;
/// The type of frame with a header block, and its flags (section 6.2).
const HEADERS: u8 = 1;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// The longest frame that the server has said to take; a longer one is refused behind this.
const MAX_FRAME: usize = 16_384;
const READ_AT_ONCE: usize = 4_096;

/// A connection whose requests have an authority that any server takes.
#[derive(Debug)]
pub(crate) struct AnyAuthority<S> {
    stream: S,
    frames: Frames,
    /// What was read and not taken yet, from this place on.
    read: Vec<u8>,
    taken: usize,
}

impl<S> AnyAuthority<S> {
    pub(crate) fn new(stream: S) -> AnyAuthority<S> {
        AnyAuthority {
            stream,
            frames: Frames {
                gathered: Vec::new(),
                passes: PREFACE,
            },
            read: Vec::new(),
            taken: 0,
        }
    }
}

/// Follows a client's frames.
#[derive(Debug)]
struct Frames {
    /// A frame's header, or a whole frame with a header block.
    gathered: Vec<u8>,
    /// So many bytes to come concern nobody here.
    passes: usize,
}

impl Frames {
    /// Takes in what came, and appends what is passed on.
    fn take(&mut self, mut came: &[u8], passed: &mut Vec<u8>) {
        while !came.is_empty() {
            if self.passes > 0 {
                let (now, later) = came.split_at(self.passes.min(came.len()));
                passed.extend_from_slice(now);
                self.passes -= now.len();
                came = later;
                continue;
            }
            let missing = self.wanted() - self.gathered.len();
            let (now, later) = came.split_at(missing.min(came.len()));
            self.gathered.extend_from_slice(now);
            came = later;
            self.pass(passed);
        }
    }

    /// How long the frame's header, or its header block with it, is.
    fn wanted(&self) -> usize {
        match self.length() {
            Some(length) => FRAME_HEADER + length,
            None => FRAME_HEADER,
        }
    }

    /// How long the payload is, when that is known.
    fn length(&self) -> Option<usize> {
        let length = self.gathered.get(..FRAME_HEADER)?;
        Some(usize::from(length[0]) << 16 | usize::from(length[1]) << 8 | usize::from(length[2]))
    }

    /// Passes on what is gathered, once it is enough.
    fn pass(&mut self, passed: &mut Vec<u8>) {
        let Some(length) = self.length() else { return };
        if self.gathered[3] != HEADERS || length > MAX_FRAME {
            self.passes = length;
        } else if self.gathered.len() < FRAME_HEADER + length {
            return;
        } else if let Some(frame) = replaced(&self.gathered) {
            self.gathered = frame;
        }
        passed.append(&mut self.gathered);
    }
}

/// Returns a frame with a header block, with the authority in it replaced; none where it is not such a frame.
fn replaced(frame: &[u8]) -> Option<Vec<u8>> {
    let (header, payload) = frame.split_at_checked(FRAME_HEADER)?;
    let flags = header[4];
    let (padding, before) = match flags & PADDED != 0 {
        true => (usize::from(*payload.first()?), 1),
        false => (0, 0),
    };
    let before = before + if flags & PRIORITY != 0 { 5 } else { 0 };
    let end = payload.len().checked_sub(padding)?;
    let block = header_block::replaced(payload.get(before..end)?);
    let length = u32::try_from(before + block.len() + padding).ok()?;
    let mut written = length.to_be_bytes()[1..].to_vec();
    written.extend_from_slice(&header[3..]);
    written.extend_from_slice(&payload[..before]);
    written.extend_from_slice(&block);
    written.extend_from_slice(&payload[end..]);
    Some(written)
}

impl<S: AsyncRead + Unpin> AsyncRead for AnyAuthority<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.taken == this.read.len() {
            this.read.clear();
            this.taken = 0;
            let mut came = [0; READ_AT_ONCE];
            let mut came = ReadBuf::new(&mut came);
            ready!(Pin::new(&mut this.stream).poll_read(cx, &mut came))?;
            if came.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            this.frames.take(came.filled(), &mut this.read);
        }
        let left = &this.read[this.taken..];
        let now = &left[..left.len().min(buffer.remaining())];
        buffer.put_slice(now);
        this.taken += now.len();
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for AnyAuthority<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: Connected> Connected for AnyAuthority<S> {
    type ConnectInfo = S::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    fn passed(came: &[u8], at_once: usize) -> Vec<u8> {
        let mut frames = AnyAuthority::new(()).frames;
        let mut passed = Vec::new();
        for part in came.chunks(at_once) {
            frames.take(part, &mut passed);
        }
        passed
    }

    #[test]
    fn requests_lose_their_authority_and_nothing_else_however_they_arrive() {
        let data = frame(0, 1, b"\x41\x0a%2Frun%2Fs");
        let headers = |flags: u8, before: &[u8], authority: &[u8], after: &[u8]| {
            let payload = [before, &[0x83, 0x41], authority, after].concat();
            frame(HEADERS, flags, &payload)
        };
        let whole = |authority: &[u8]| {
            let plain = headers(4, b"", authority, b"\x84");
            let padded = headers(
                4 | PADDED | PRIORITY,
                b"\x02\0\0\0\0\x10",
                authority,
                b"\0\0",
            );
            [PREFIX, &plain, &data, &padded, &data].concat()
        };
        let (given, wanted) = (whole(b"\x0a%2Frun%2Fs"), whole(b"\x01x"));
        for at_once in [1, 7, 4_096] {
            assert_eq!(passed(&given, at_once), wanted);
        }
    }

    #[test]
    fn a_frame_that_is_none_is_left_to_the_server_to_refuse() {
        let long = frame(HEADERS, 4, &[0x41; MAX_FRAME + 1]);
        let all_padding = frame(HEADERS, 4 | PADDED, b"\x09\x41\x01a");
        let given = [PREFIX, &long, &all_padding].concat();
        assert_eq!(passed(&given, 1_000), given);
    }
}
