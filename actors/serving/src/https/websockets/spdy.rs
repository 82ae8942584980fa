//! As much of SPDY/3.1 as a client needs that opens some streams and reads frames.
//!
//! Header blocks are sent as they are, in the form of compressed data that compresses nothing; those that come
//! are not needed, so they are not unpacked.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// The largest control frame that is read, in bytes.
const CONTROL: u32 = 64 * 1024;
const FIN: u8 = 1;
const VERSION: u16 = 0x8003;

/// A frame, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpdyEvent {
    /// This many bytes of the stream follow.
    Data {
        stream: u32,
        length: u32,
        last: Last,
    },
    /// The stream has ended: closed or reset.
    Ended(u32),
    /// The id of a ping, to be sent back.
    Ping(u32),
    Nothing,
}

/// Whether a frame is the last of its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Last {
    Yes,
    No,
}

/// Numbers the client's streams and makes their SYN_STREAM frames.
#[derive(Debug, Default)]
pub(super) struct Opening {
    opened: u32,
}

impl Opening {
    /// Returns the number of the next stream, and the frame that opens it with this header.
    pub(super) fn next(&mut self, name: &str, value: &str) -> (u32, Vec<u8>) {
        let id = 2 * self.opened + 1;
        let mut block = 1_u32.to_be_bytes().to_vec();
        for text in [name, value] {
            block.extend(u32::try_from(text.len()).unwrap_or_default().to_be_bytes());
            block.extend_from_slice(text.as_bytes());
        }
        let mut body = id.to_be_bytes().to_vec();
        // No associated stream, the highest priority, no slot.
        body.extend([0; 6]);
        if self.opened == 0 {
            body.extend([0x78, 0x01]);
        }
        let length = u16::try_from(block.len()).unwrap_or_default();
        body.push(0);
        body.extend(length.to_le_bytes());
        body.extend((!length).to_le_bytes());
        body.extend(block);
        // An empty block makes the reader's inflater flush.
        body.extend([0, 0, 0, 0xff, 0xff]);
        self.opened += 1;
        (id, control(1, &body))
    }
}

/// The head of a data frame of this many bytes.
pub(super) fn data(stream: u32, length: usize, last: Last) -> [u8; 8] {
    let flags = match last {
        Last::Yes => FIN,
        Last::No => 0,
    };
    head(stream.to_be_bytes(), flags, length)
}

pub(super) fn ping(id: u32) -> Vec<u8> {
    control(6, &id.to_be_bytes())
}

fn control(kind: u16, body: &[u8]) -> Vec<u8> {
    let [[a, b], [c, d]] = [VERSION.to_be_bytes(), kind.to_be_bytes()];
    let mut frame = head([a, b, c, d], 0, body.len()).to_vec();
    frame.extend_from_slice(body);
    frame
}

fn head([a, b, c, d]: [u8; 4], flags: u8, length: usize) -> [u8; 8] {
    let [_, x, y, z] = u32::try_from(length).unwrap_or_default().to_be_bytes();
    [a, b, c, d, flags, x, y, z]
}

/// Reads on to the next frame that matters; none at the end.
pub(super) async fn read_event(
    from: &mut (impl AsyncRead + Unpin),
) -> io::Result<Option<SpdyEvent>> {
    let mut head = [0; 8];
    match from.read_exact(&mut head).await {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let [a, b, c, d, flags, x, y, z] = head;
    let length = u32::from_be_bytes([0, x, y, z]);
    let last = match flags & FIN {
        0 => Last::No,
        _ => Last::Yes,
    };
    if a & 0x80 == 0 {
        let stream = u32::from_be_bytes([a, b, c, d]);
        return Ok(Some(SpdyEvent::Data {
            stream,
            length,
            last,
        }));
    }
    if length > CONTROL {
        let why = format!("a frame of control has {length} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let mut body = vec![0; usize::try_from(length).unwrap_or_default()];
    from.read_exact(&mut body).await?;
    let id = body.first_chunk::<4>().copied().map(u32::from_be_bytes);
    Ok(Some(match (u16::from_be_bytes([c, d]), id, last) {
        // A reply or more headers with which a stream ends; and a reset.
        (2 | 8, Some(id), Last::Yes) | (3, Some(id), _) => SpdyEvent::Ended(id),
        (6, Some(id), _) => SpdyEvent::Ping(id),
        _ => SpdyEvent::Nothing,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_is_opened_with_a_block_that_any_reader_unpacks() {
        let mut opening = Opening::default();
        let (first, frame) = opening.next("streamtype", "error");
        assert_eq!(first, 1);
        assert_eq!(frame[..8], [0x80, 3, 0, 1, 0, 0, 0, 10 + 2 + 5 + 27 + 5]);
        assert_eq!(frame[8..18], [0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        let (second, more) = opening.next("streamtype", "stdin");
        assert_eq!(second, 3);
        // All frames share one compressed stream.
        let packed = [&frame[20..], &more[18..], &[1, 0, 0, 0xff, 0xff]].concat();
        let mut unpacked = Vec::new();
        let mut reader = flate2::read::DeflateDecoder::new(packed.as_slice());
        io::Read::read_to_end(&mut reader, &mut unpacked).unwrap();
        let block = |value: &str| {
            let sizes = [[0, 0, 0, 1], [0, 0, 0, 10]].concat();
            [&sizes, &b"streamtype\0\0\0\x05"[..], value.as_bytes()].concat()
        };
        assert_eq!(unpacked, [block("error"), block("stdin")].concat());
    }

    #[test]
    fn frames_are_heard_for_what_they_are() {
        let run = kernel::system::run(async {
            let bytes = [
                &[0x80, 3, 0, 2, 0, 0, 0, 6, 0, 0, 0, 1, 9, 9][..],
                &[0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 2],
                &[0, 0, 0, 5, 1, 0, 1, 0],
                &[0x80, 3, 0, 3, 0, 0, 0, 8, 0, 0, 0, 3, 0, 0, 0, 5],
                &[0x80, 3, 0, 7, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0],
                &[0x80, 3, 0, 3, 0, 0, 0, 0],
            ]
            .concat();
            let mut from = bytes.as_slice();
            let mut heard = Vec::new();
            while let Some(one) = read_event(&mut from).await.unwrap() {
                heard.push(one);
            }
            let data = SpdyEvent::Data {
                stream: 5,
                length: 256,
                last: Last::Yes,
            };
            let nothing = SpdyEvent::Nothing;
            let expected = [
                nothing,
                SpdyEvent::Ping(2),
                data,
                SpdyEvent::Ended(3),
                nothing,
                nothing,
            ];
            assert_eq!(heard, expected);
            let mut endless = &[0x80, 3, 0, 4, 0, 0xff, 0xff, 0xff][..];
            assert!(read_event(&mut endless).await.is_err());
            let mut half = &[0x80, 3, 0, 4, 0, 0, 0, 9, 1][..];
            assert!(read_event(&mut half).await.is_err());
        });
        run.unwrap();
    }
}
