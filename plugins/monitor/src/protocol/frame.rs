//! Frames: four bytes of length (little endian, of what follows the kind), one byte of kind, then the payload.
//!
//! Kind 0 is a message in JSON; 1 is input; 2 and 3 are standard output and standard error.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The longest payload, in bytes; a longer one ends the connection.
pub const MAX_FRAME_BYTES: usize = 1 << 20;
/// The length and the kind.
const HEAD_BYTES: usize = 5;

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A message in JSON.
    Message(Vec<u8>),
    /// Bytes for a standard input.
    Input(Vec<u8>),
    /// Bytes of a standard output or a terminal.
    Stdout(Vec<u8>),
    /// Bytes of a standard error.
    Stderr(Vec<u8>),
}

/// Why a frame is none.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    #[error("frame of {0} bytes, at most {MAX_FRAME_BYTES} are allowed")]
    TooLong(usize),
    #[error("frame of unknown kind {0}")]
    Kind(u8),
    #[error("expected a message, not data")]
    NoMessage,
    #[error("message is not what is expected here")]
    Message(#[source] serde_json::Error),
}

impl Frame {
    /// Returns the frame of a message; fails only when it is longer than a frame may be.
    pub fn message<T: Serialize>(message: &T) -> Result<Frame, FrameError> {
        let bytes = serde_json::to_vec(message).map_err(FrameError::Message)?;
        if bytes.len() > MAX_FRAME_BYTES {
            return Err(FrameError::TooLong(bytes.len()));
        }
        Ok(Frame::Message(bytes))
    }

    /// Reads the message in this frame.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, FrameError> {
        let Frame::Message(bytes) = self else {
            return Err(FrameError::NoMessage);
        };
        serde_json::from_slice(bytes).map_err(FrameError::Message)
    }

    /// Appends the frame as it goes over the wire. A payload is at most `MAX_FRAME_BYTES` long.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (kind, payload) = match self {
            Frame::Message(payload) => (0, payload),
            Frame::Input(payload) => (1, payload),
            Frame::Stdout(payload) => (2, payload),
            Frame::Stderr(payload) => (3, payload),
        };
        let length =
            u32::try_from(payload.len()).expect("a payload is at most MAX_FRAME_BYTES long");
        out.extend_from_slice(&length.to_le_bytes());
        out.push(kind);
        out.extend_from_slice(payload);
    }

    /// Takes the first frame off `bytes`, if it is whole; an error means that the peer speaks something else.
    pub fn take(bytes: &mut Vec<u8>) -> Result<Option<Frame>, FrameError> {
        let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        let [a, b, c, d, kind] = *head;
        let length = usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        if length > MAX_FRAME_BYTES {
            return Err(FrameError::TooLong(length));
        }
        let Some(payload) = rest.get(..length) else {
            return Ok(None);
        };
        let payload = payload.to_vec();
        let frame = match kind {
            0 => Frame::Message(payload),
            1 => Frame::Input(payload),
            2 => Frame::Stdout(payload),
            3 => Frame::Stderr(payload),
            other => return Err(FrameError::Kind(other)),
        };
        bytes.drain(..HEAD_BYTES + length);
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_comes_back_whole_however_it_is_cut() {
        let frames = [
            Frame::Message(b"{}".to_vec()),
            Frame::Input(vec![7; 300]),
            Frame::Stderr(Vec::new()),
        ];
        let mut wire = Vec::new();
        frames.iter().for_each(|frame| frame.encode(&mut wire));
        let (mut buffer, mut read) = (Vec::new(), Vec::new());
        for byte in wire {
            buffer.push(byte);
            while let Some(frame) = Frame::take(&mut buffer).unwrap() {
                read.push(frame);
            }
        }
        assert_eq!(read, frames);
        assert!(buffer.is_empty());
    }

    #[test]
    fn a_frame_that_is_too_long_or_of_no_kind_is_refused_from_its_head() {
        let mut long = u32::MAX.to_le_bytes().to_vec();
        long.push(0);
        assert!(matches!(
            Frame::take(&mut long),
            Err(FrameError::TooLong(_))
        ));
        assert!(matches!(
            Frame::take(&mut vec![0, 0, 0, 0, 9]),
            Err(FrameError::Kind(9))
        ));
    }
}
