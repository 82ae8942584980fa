//! SPDY/3.1's frames, to bytes and back. Pure: what comes in is kept until a frame is whole, but a data
//! frame is given out piece by piece, so that none is ever held as a whole.

use super::headers::{Headers, Packer, Unpacker};

/// A control frame longer than this is refused; header blocks are a few words here.
const LONGEST: usize = 64 << 10;

/// What is sent over a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    Open {
        id: u32,
        last: bool,
        headers: Headers,
    },
    Reply {
        id: u32,
        last: bool,
        headers: Headers,
    },
    Headers {
        id: u32,
        last: bool,
        headers: Headers,
    },
    Reset {
        id: u32,
        status: u32,
    },
    Ping(u32),
    GoAway {
        last_id: u32,
        status: u32,
    },
    /// Settings and window updates: Kubernetes' peers keep no windows.
    Ignored,
    Data {
        id: u32,
        last: bool,
        bytes: Vec<u8>,
    },
}

/// What is not SPDY.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
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

/// Makes frames of bytes.
pub(crate) struct Decoder {
    headers: Unpacker,
    held: Vec<u8>,
    /// The data frame that is coming in: its stream, how much is missing, and whether it is the last one.
    data: Option<(u32, usize, bool)>,
}

impl Decoder {
    pub(crate) fn new() -> Decoder {
        Decoder {
            headers: Unpacker::new(),
            held: Vec::new(),
            data: None,
        }
    }

    /// Takes what has come in.
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
    }

    /// Returns the next frame, if it is there.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, Malformed> {
        if let Some((id, missing, last)) = self.data {
            return Ok(self.piece(id, missing, last));
        }
        let Some(head) = self.held.first_chunk::<8>() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_be_bytes([0, head[5], head[6], head[7]]))
            .map_err(|_| Malformed::TooLong)?;
        let (flags, first) = (
            head[4],
            u32::from_be_bytes([head[0], head[1], head[2], head[3]]),
        );
        if first >> 31 == 0 {
            self.held.drain(..8);
            if first == 0 {
                return Err(Malformed::NoStream);
            }
            return Ok(self.piece(first, length, flags & LAST != 0));
        }
        let version = u16::from_be_bytes([head[0] & 0x7f, head[1]]);
        let kind = u16::from_be_bytes([head[2], head[3]]);
        if version != 3 {
            return Err(Malformed::Version(version));
        }
        if length > LONGEST {
            return Err(Malformed::TooLong);
        }
        if self.held.len() < 8 + length {
            return Ok(None);
        }
        let body: Vec<u8> = self.held.drain(..8 + length).skip(8).collect();
        self.control(kind, flags, &body).map(Some)
    }

    fn piece(&mut self, id: u32, missing: usize, last: bool) -> Option<Frame> {
        let there = self.held.len().min(missing);
        let missing = missing - there;
        self.data = (missing > 0).then_some((id, missing, last));
        if there == 0 && missing > 0 {
            return None;
        }
        let bytes = self.held.drain(..there).collect();
        Some(Frame::Data {
            id,
            last: last && missing == 0,
            bytes,
        })
    }

    fn control(&mut self, kind: u16, flags: u8, body: &[u8]) -> Result<Frame, Malformed> {
        let last = flags & LAST != 0;
        let word = |at: usize| {
            let bytes = body.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u32::from_be_bytes).ok_or(Malformed::Length(kind))
        };
        let stream = || match word(0)? & 0x7fff_ffff {
            0 => Err(Malformed::NoStream),
            id => Ok(id),
        };
        let block = |from: usize| body.get(from..).ok_or(Malformed::Length(kind));
        Ok(match kind {
            1 => Frame::Open {
                id: stream()?,
                last,
                headers: self.headers.block(block(10)?)?,
            },
            2 => Frame::Reply {
                id: stream()?,
                last,
                headers: self.headers.block(block(4)?)?,
            },
            3 => Frame::Reset {
                id: stream()?,
                status: word(4)?,
            },
            4 | 9 => Frame::Ignored,
            6 => Frame::Ping(word(0)?),
            7 => Frame::GoAway {
                last_id: word(0)?,
                status: word(4)?,
            },
            8 => Frame::Headers {
                id: stream()?,
                last,
                headers: self.headers.block(block(4)?)?,
            },
            unknown => return Err(Malformed::Kind(unknown)),
        })
    }
}

/// Makes bytes of frames.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    headers: Packer,
}

impl Encoder {
    /// Appends a frame.
    pub(crate) fn encode(&mut self, frame: &Frame, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        let (kind, last) = match frame {
            Frame::Data { id, last, bytes } => {
                out.extend(id.to_be_bytes());
                head(u8::from(*last), bytes.len(), out);
                return out.extend_from_slice(bytes);
            }
            Frame::Ignored => return,
            Frame::Open { id, last, headers } => {
                body.extend(id.to_be_bytes());
                // No stream that it belongs to, the highest priority, no credential.
                body.extend([0; 6]);
                self.headers.block(headers, &mut body);
                (1_u16, *last)
            }
            Frame::Reply { id, last, headers } => {
                body.extend(id.to_be_bytes());
                self.headers.block(headers, &mut body);
                (2, *last)
            }
            Frame::Reset { id, status } => {
                body.extend([id.to_be_bytes(), status.to_be_bytes()].concat());
                (3, false)
            }
            Frame::Ping(id) => {
                body.extend(id.to_be_bytes());
                (6, false)
            }
            Frame::GoAway { last_id, status } => {
                body.extend([last_id.to_be_bytes(), status.to_be_bytes()].concat());
                (7, false)
            }
            Frame::Headers { id, last, headers } => {
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
