//! The end of the answer on a connection with one call, read from HTTP/2's frames. Pure.

/// Of a frame: three bytes of length, one of type, one of flags, four of the stream.
const HEAD: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;

/// Follows the frames of a connection that is read from the beginning of any frame.
///
/// Bytes that are no frames show no end: who reads them gives up at a deadline instead.
#[derive(Debug, Default)]
pub(super) struct AnswerScan {
    head: Vec<u8>,
    /// Of the frame begun, the bytes that are still to come.
    payload: usize,
}

impl AnswerScan {
    /// Takes the next bytes; returns whether the call has ended in them.
    pub(super) fn ends_in(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            if self.payload > 0 {
                let skipped = self.payload.min(bytes.len());
                self.payload -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            let taken = (HEAD - self.head.len()).min(bytes.len());
            self.head.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            if self.head.len() < HEAD {
                return false;
            }
            if self.is_end() {
                return true;
            }
            let length = [0, self.head[0], self.head[1], self.head[2]];
            self.payload = u32::from_be_bytes(length).try_into().unwrap_or(usize::MAX);
            self.head.clear();
        }
        false
    }

    fn is_end(&self) -> bool {
        match self.head[3] {
            DATA | HEADERS => self.head[4] & END_STREAM != 0,
            RST_STREAM | GOAWAY => true,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: u8 = 4;
    const PING: u8 = 6;
    const END_HEADERS: u8 = 4;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend([kind, flags, 0, 0, 0, 1]);
        frame.extend_from_slice(payload);
        frame
    }

    #[test]
    fn the_end_is_that_of_the_call_and_of_no_frame_before_it() {
        let before = [
            frame(SETTINGS, 1, &[]),
            frame(PING, 0, &[1; 8]),
            frame(HEADERS, END_HEADERS, b"head"),
            frame(DATA, 0, &[END_STREAM; 90]),
        ]
        .concat();
        for (last, ends) in [
            (frame(HEADERS, END_HEADERS | END_STREAM, b"trailers"), true),
            (frame(DATA, END_STREAM, b""), true),
            (frame(RST_STREAM, 0, &[0; 4]), true),
            (frame(GOAWAY, 0, &[0; 8]), true),
            (frame(PING, 1, &[1; 8]), false),
            (Vec::new(), false),
        ] {
            let all = [before.clone(), last].concat();
            assert_eq!(AnswerScan::default().ends_in(&all), ends, "{all:?}");
            let mut bytewise = AnswerScan::default();
            let ended = all.iter().any(|byte| bytewise.ends_in(&[*byte]));
            assert_eq!(ended, ends, "byte for byte: {all:?}");
        }
    }
}
