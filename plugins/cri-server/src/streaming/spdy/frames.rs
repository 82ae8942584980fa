//! SPDY/3.1's frames, to bytes and back. Pure: what comes in is kept until a frame is whole, but a data
//! frame is given out piece by piece, so that none is ever held as a whole.

use std::fmt;

use super::headers::{HeaderDecoder, HeaderEncoder, SpdyHeaders};

/// A control frame longer than this is refused; header blocks are a few words here.
const LONGEST: usize = 64 << 10;

/// A frame of a connection; `id` is its stream's number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpdyFrame {
    /// SYN_STREAM: opens a stream; clients' numbers are odd. `last` ends the sender's half at once.
    Open {
        id: u32,
        last: bool,
        headers: SpdyHeaders,
    },
    /// SYN_REPLY: accepts a stream.
    Reply {
        id: u32,
        last: bool,
        headers: SpdyHeaders,
    },
    /// HEADERS: more headers of an open stream.
    Headers {
        id: u32,
        last: bool,
        headers: SpdyHeaders,
    },
    /// RST_STREAM: ends both halves, with the protocol's status code.
    Reset { id: u32, status: u32 },
    /// PING, answered with the same number.
    Ping(u32),
    /// GOAWAY: no further stream is accepted.
    GoAway { last_id: u32, status: u32 },
    /// SETTINGS and WINDOW_UPDATE: Kubernetes' peers keep no windows.
    Ignored,
    /// A part of a stream's data; `last` ends the sender's half.
    Data { id: u32, last: bool, bytes: Vec<u8> },
}

/// Received bytes are not SPDY/3.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpdyError {
    #[error("a frame is of SPDY version {0}, not 3")]
    Version(u16),
    #[error("a frame is of the unknown kind {0}")]
    Kind(u16),
    #[error("a frame of the kind {0} has a wrong length")]
    Length(u16),
    #[error("a frame is too long")]
    TooLong,
    #[error("a header block does not read")]
    Headers,
    #[error("a frame names no stream")]
    NoStream,
}

const LAST: u8 = 1;

/// Decodes received bytes into frames.
pub struct Decoder {
    headers: HeaderDecoder,
    held: Vec<u8>,
    /// The data frame that is coming in: its stream, how much is missing, and whether it is the last one.
    data: Option<(u32, usize, bool)>,
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder::new()
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Decoder")
            .field("data", &self.data)
            .finish_non_exhaustive()
    }
}

impl Decoder {
    /// Returns the decoder of a connection that begins.
    pub fn new() -> Decoder {
        Decoder {
            headers: HeaderDecoder::new(),
            held: Vec::new(),
            data: None,
        }
    }

    /// Appends received bytes to the buffer.
    pub fn take(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
    }

    /// Returns the next frame if all of it has been received.
    pub fn next_frame(&mut self) -> Result<Option<SpdyFrame>, SpdyError> {
        if let Some((id, missing, last)) = self.data {
            return Ok(self.piece(id, missing, last));
        }
        let Some(head) = self.held.first_chunk::<8>() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_be_bytes([0, head[5], head[6], head[7]]))
            .map_err(|_| SpdyError::TooLong)?;
        let (flags, first) = (
            head[4],
            u32::from_be_bytes([head[0], head[1], head[2], head[3]]),
        );
        if first >> 31 == 0 {
            self.held.drain(..8);
            if first == 0 {
                return Err(SpdyError::NoStream);
            }
            return Ok(self.piece(first, length, flags & LAST != 0));
        }
        let version = u16::from_be_bytes([head[0] & 0x7f, head[1]]);
        let kind = u16::from_be_bytes([head[2], head[3]]);
        if version != 3 {
            return Err(SpdyError::Version(version));
        }
        if length > LONGEST {
            return Err(SpdyError::TooLong);
        }
        if self.held.len() < 8 + length {
            return Ok(None);
        }
        let body: Vec<u8> = self.held.drain(..8 + length).skip(8).collect();
        self.control(kind, flags, &body).map(Some)
    }

    fn piece(&mut self, id: u32, missing: usize, last: bool) -> Option<SpdyFrame> {
        let there = self.held.len().min(missing);
        let missing = missing - there;
        self.data = (missing > 0).then_some((id, missing, last));
        if there == 0 && missing > 0 {
            return None;
        }
        let bytes = self.held.drain(..there).collect();
        Some(SpdyFrame::Data {
            id,
            last: last && missing == 0,
            bytes,
        })
    }

    fn control(&mut self, kind: u16, flags: u8, body: &[u8]) -> Result<SpdyFrame, SpdyError> {
        let last = flags & LAST != 0;
        let word = |at: usize| {
            let bytes = body.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u32::from_be_bytes).ok_or(SpdyError::Length(kind))
        };
        let stream = || match word(0)? & 0x7fff_ffff {
            0 => Err(SpdyError::NoStream),
            id => Ok(id),
        };
        let block = |from: usize| body.get(from..).ok_or(SpdyError::Length(kind));
        Ok(match kind {
            1 => SpdyFrame::Open {
                id: stream()?,
                last,
                headers: self.headers.block(block(10)?)?,
            },
            2 => SpdyFrame::Reply {
                id: stream()?,
                last,
                headers: self.headers.block(block(4)?)?,
            },
            3 => SpdyFrame::Reset {
                id: stream()?,
                status: word(4)?,
            },
            4 | 9 => SpdyFrame::Ignored,
            6 => SpdyFrame::Ping(word(0)?),
            7 => SpdyFrame::GoAway {
                last_id: word(0)?,
                status: word(4)?,
            },
            8 => SpdyFrame::Headers {
                id: stream()?,
                last,
                headers: self.headers.block(block(4)?)?,
            },
            unknown => return Err(SpdyError::Kind(unknown)),
        })
    }
}

/// Encodes frames.
#[derive(Debug, Default)]
pub struct Encoder {
    headers: HeaderEncoder,
}

impl Encoder {
    /// Appends the encoded frame to `out`.
    pub fn encode(&mut self, frame: &SpdyFrame, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        let (kind, last) = match frame {
            SpdyFrame::Data { id, last, bytes } => {
                out.extend(id.to_be_bytes());
                head(u8::from(*last), bytes.len(), out);
                return out.extend_from_slice(bytes);
            }
            SpdyFrame::Ignored => return,
            SpdyFrame::Open { id, last, headers } => {
                body.extend(id.to_be_bytes());
                // No stream that it belongs to, the highest priority, no credential.
                body.extend([0; 6]);
                self.headers.block(headers, &mut body);
                (1_u16, *last)
            }
            SpdyFrame::Reply { id, last, headers } => {
                body.extend(id.to_be_bytes());
                self.headers.block(headers, &mut body);
                (2, *last)
            }
            SpdyFrame::Reset { id, status } => {
                body.extend([id.to_be_bytes(), status.to_be_bytes()].concat());
                (3, false)
            }
            SpdyFrame::Ping(id) => {
                body.extend(id.to_be_bytes());
                (6, false)
            }
            SpdyFrame::GoAway { last_id, status } => {
                body.extend([last_id.to_be_bytes(), status.to_be_bytes()].concat());
                (7, false)
            }
            SpdyFrame::Headers { id, last, headers } => {
                body.extend(id.to_be_bytes());
                self.headers.block(headers, &mut body);
                (8, *last)
            }
        };
        out.extend([0x80, 3]);
        out.extend(kind.to_be_bytes());
        head(u8::from(last), body.len(), out);
        out.extend(body);
    }
}

fn head(flags: u8, length: usize, out: &mut Vec<u8>) {
    let length = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    out.extend([flags, length[1], length[2], length[3]]);
}
