//! ExecSync's answer, cut to what the caller reads: containerd and CRI-O answer up to 16 MiB of each output, and a probe
//! reads 10 KiB of it.
//!
//! The answer is read as it comes, and what is not wanted is never kept. An `ExecSyncResponse` is two fields of bytes and
//! a number.

use http::{HeaderMap, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use proto::cri::ExecSyncResponse;
use sdk::MAX_OUTPUT_METADATA;
use tonic::Status;

/// The method whose answer is cut.
pub(crate) const EXEC_SYNC: &str = "/runtime.v1.RuntimeService/ExecSync";
/// The most of each output that is passed on, in bytes; containerd's own bound.
const MAX_EXEC_OUTPUT_BYTES: usize = 16 << 20;
/// Flag and length before a message of gRPC.
const PREFIX_BYTES: usize = 5;
/// Of protobuf: the longest number, in bytes.
const MAX_VARINT_BYTES: u32 = 10;

/// Returns how much of each output the caller reads, in bytes.
pub(crate) fn wanted(headers: &HeaderMap) -> usize {
    let asked = headers.get(MAX_OUTPUT_METADATA);
    let asked = asked.and_then(|value| value.to_str().ok()?.parse().ok());
    asked.map_or(MAX_EXEC_OUTPUT_BYTES, |asked: usize| {
        asked.min(MAX_EXEC_OUTPUT_BYTES)
    })
}

/// Reads an answer with its trailers; what of its outputs is beyond `wanted` bytes is dropped.
pub(crate) async fn read(
    answer: Response<Incoming>,
    wanted: usize,
) -> Result<(ExecSyncResponse, HeaderMap), ReadError> {
    let (mut body, mut scan) = (answer.into_body(), OutputScan::new(wanted));
    let mut trailers = HeaderMap::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(ReadError::Lost)?;
        match frame.into_data() {
            Ok(bytes) => scan.take(&bytes).map_err(ReadError::Malformed)?,
            Err(frame) => trailers.extend(frame.into_trailers().unwrap_or_default()),
        }
    }
    Ok((scan.response, trailers))
}

/// Why an answer cannot be read.
#[derive(Debug)]
pub(crate) enum ReadError {
    Lost(hyper::Error),
    Malformed(&'static str),
}

impl ReadError {
    pub(crate) fn status(self, lost: impl FnOnce(hyper::Error) -> Status) -> Status {
        match self {
            ReadError::Lost(error) => lost(error),
            ReadError::Malformed(why) => {
                Status::internal(format!("the runtime's answer to ExecSync: {why}"))
            }
        }
    }
}

/// What the next byte belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Prefix {
        read: usize,
    },
    /// A field's number and type.
    Tag,
    /// The value of a field of type "number".
    Number {
        field: u64,
    },
    /// The length of a field of type "bytes".
    Length {
        field: u64,
    },
    Bytes {
        field: u64,
        left: u64,
    },
}

/// Reads a message of gRPC that is an `ExecSyncResponse`, in pieces of any size.
#[derive(Debug)]
struct OutputScan {
    wanted: usize,
    part: Part,
    varint: u64,
    varint_bytes: u32,
    response: ExecSyncResponse,
}

impl OutputScan {
    fn new(wanted: usize) -> OutputScan {
        OutputScan {
            wanted,
            part: Part::Prefix { read: 0 },
            varint: 0,
            varint_bytes: 0,
            response: ExecSyncResponse::default(),
        }
    }

    fn take(&mut self, mut bytes: &[u8]) -> Result<(), &'static str> {
        while let Some((first, rest)) = bytes.split_first() {
            if let Part::Bytes { field, left } = self.part {
                let length = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                let (taken, rest) = bytes.split_at(length);
                self.keep(field, taken);
                let left = left - u64::try_from(length).unwrap_or(left);
                self.part = if left == 0 {
                    Part::Tag
                } else {
                    Part::Bytes { field, left }
                };
                bytes = rest;
                continue;
            }
            bytes = rest;
            self.take_byte(*first)?;
        }
        Ok(())
    }

    fn take_byte(&mut self, byte: u8) -> Result<(), &'static str> {
        if let Part::Prefix { read } = self.part {
            if read == 0 && byte != 0 {
                return Err("compressed, which was not asked for");
            }
            self.part = if read + 1 == PREFIX_BYTES {
                Part::Tag
            } else {
                Part::Prefix { read: read + 1 }
            };
            return Ok(());
        }
        let Some(value) = self.varint(byte)? else {
            return Ok(());
        };
        self.part = match (self.part, value >> 3, value & 7) {
            (Part::Tag, field, 0) => Part::Number { field },
            (Part::Tag, field, 2) => Part::Length { field },
            (Part::Tag, _, _) => return Err("a field of a type that it has none of"),
            (Part::Number { field }, _, _) => {
                // An `int32` is ten bytes on the wire where it is negative.
                if field == 3 {
                    let [a, b, c, d, ..] = value.to_le_bytes();
                    self.response.exit_code = i32::from_le_bytes([a, b, c, d]);
                }
                Part::Tag
            }
            (Part::Length { .. }, _, _) if value == 0 => Part::Tag,
            (Part::Length { field }, _, _) => Part::Bytes { field, left: value },
            (part @ (Part::Prefix { .. } | Part::Bytes { .. }), _, _) => part,
        };
        Ok(())
    }

    /// Takes a byte of a number; returns the number with its last byte.
    fn varint(&mut self, byte: u8) -> Result<Option<u64>, &'static str> {
        if self.varint_bytes == MAX_VARINT_BYTES {
            return Err("a number of more than ten bytes");
        }
        self.varint |= u64::from(byte & 0x7f) << (7 * self.varint_bytes);
        self.varint_bytes += 1;
        if byte & 0x80 != 0 {
            return Ok(None);
        }
        self.varint_bytes = 0;
        Ok(Some(std::mem::take(&mut self.varint)))
    }

    fn keep(&mut self, field: u64, bytes: &[u8]) {
        let output = match field {
            1 => &mut self.response.stdout,
            2 => &mut self.response.stderr,
            _ => return,
        };
        let room = self.wanted.saturating_sub(output.len()).min(bytes.len());
        output.extend_from_slice(&bytes[..room]);
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    fn encoded(response: &ExecSyncResponse) -> Vec<u8> {
        let message = response.encode_to_vec();
        let mut wire = vec![0];
        wire.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
        wire.extend(message);
        wire
    }

    #[test]
    fn an_answer_is_read_as_it_is_and_of_outputs_the_beginning() {
        for (stdout, stderr, exit_code) in [
            ("", "", 0),
            ("out", "", 3),
            ("", "err", -1),
            ("0123456789abc", "0123456789", 137),
        ] {
            let response = ExecSyncResponse {
                stdout: stdout.into(),
                stderr: stderr.into(),
                exit_code,
            };
            let wire = encoded(&response);
            for size in [1, 2, 7, 1000] {
                let mut scan = OutputScan::new(10);
                for part in wire.chunks(size) {
                    scan.take(part).unwrap();
                }
                let expected = ExecSyncResponse {
                    stdout: stdout.bytes().take(10).collect(),
                    ..response.clone()
                };
                assert_eq!(scan.response, expected, "in parts of {size}");
            }
        }
    }

    #[test]
    fn what_is_no_such_answer_is_refused() {
        for wire in [
            &[1][..],
            &[0, 0, 0, 0, 9, 0x0d],
            &[
                0, 0, 0, 0, 20, 0x18, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255,
            ],
        ] {
            assert!(OutputScan::new(10).take(wire).is_err(), "{wire:?}");
        }
    }

    #[test]
    fn what_is_not_wanted_takes_no_room() {
        let mut scan = OutputScan::new(10);
        scan.take(&[0, 0, 0, 0, 0, 0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f])
            .unwrap();
        for _ in 0..100 {
            scan.take(&[b'x'; 4096]).unwrap();
        }
        assert!(scan.response.stdout.capacity() < 64);
    }
}
