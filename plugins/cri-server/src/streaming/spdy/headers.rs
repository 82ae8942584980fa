//! Header blocks: names and values, compressed as one stream over all blocks of a connection.

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags};

use super::dictionary::dictionary;
use super::frames::SpdyError;

/// Deflate looks back so far.
const WINDOW: usize = 32 << 10;
/// A block is refused that unpacks to more.
const LONGEST: usize = 64 << 10;

/// Header names in lower case, and their values.
pub(crate) type SpdyHeaders = Vec<(String, String)>;

/// Returns the value of a header.
pub(crate) fn value<'a>(headers: &'a SpdyHeaders, name: &str) -> Option<&'a str> {
    let found = headers.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.as_str())
}

/// Unpacks the blocks of a connection in their order.
pub(super) struct HeaderDecoder {
    state: Box<DecompressorOxide>,
    window: Box<[u8]>,
    at: usize,
    begun: bool,
}

impl HeaderDecoder {
    pub(super) fn new() -> HeaderDecoder {
        let mut window = vec![0; WINDOW].into_boxed_slice();
        let known = dictionary();
        window[..known.len()].copy_from_slice(&known);
        HeaderDecoder {
            state: Box::default(),
            window,
            at: known.len(),
            begun: false,
        }
    }

    /// Returns the headers of the next block.
    pub(super) fn block(&mut self, packed: &[u8]) -> Result<SpdyHeaders, SpdyError> {
        let packed = if self.begun {
            packed
        } else {
            self.begin(packed)?
        };
        parse(&self.unpack(packed)?)
    }

    /// Skips zlib's own header. One without a preset dictionary is none that refers to it.
    fn begin<'a>(&mut self, packed: &'a [u8]) -> Result<&'a [u8], SpdyError> {
        let (head, rest) = packed.split_first_chunk::<2>().ok_or(SpdyError::Headers)?;
        let dictionary = head[1] & 0x20 != 0;
        if head[0] & 0x0f != 8 || u16::from_be_bytes(*head) % 31 != 0 {
            return Err(SpdyError::Headers);
        }
        self.begun = true;
        if dictionary {
            rest.get(4..).ok_or(SpdyError::Headers)
        } else {
            Ok(rest)
        }
    }

    fn unpack(&mut self, mut packed: &[u8]) -> Result<Vec<u8>, SpdyError> {
        let mut block = Vec::new();
        loop {
            let flags = inflate_flags::TINFL_FLAG_HAS_MORE_INPUT;
            let (status, read, written) =
                decompress(&mut self.state, packed, &mut self.window, self.at, flags);
            block.extend_from_slice(&self.window[self.at..self.at + written]);
            self.at = (self.at + written) % WINDOW;
            packed = &packed[read..];
            if block.len() > LONGEST {
                return Err(SpdyError::TooLong);
            }
            match status {
                TINFLStatus::HasMoreOutput => {}
                TINFLStatus::NeedsMoreInput => return Ok(block),
                TINFLStatus::Done
                | TINFLStatus::FailedCannotMakeProgress
                | TINFLStatus::BadParam
                | TINFLStatus::Adler32Mismatch
                | TINFLStatus::Failed
                | _ => return Err(SpdyError::Headers),
            }
        }
    }
}

fn parse(mut block: &[u8]) -> Result<SpdyHeaders, SpdyError> {
    let count = number(&mut block)?;
    let mut headers = SpdyHeaders::new();
    for _ in 0..count {
        let name = text(&mut block)?;
        if name.is_empty() || name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(SpdyError::Headers);
        }
        // Several values of one header are divided by zero bytes: the first is the one that counts here.
        let values = text(&mut block)?;
        let first = values.split('\0').next().unwrap_or_default();
        headers.push((name, first.to_owned()));
    }
    Ok(headers)
}

fn number(block: &mut &[u8]) -> Result<usize, SpdyError> {
    let (number, rest) = block.split_first_chunk::<4>().ok_or(SpdyError::Headers)?;
    *block = rest;
    usize::try_from(u32::from_be_bytes(*number)).map_err(|_| SpdyError::Headers)
}

fn text(block: &mut &[u8]) -> Result<String, SpdyError> {
    let length = number(block)?;
    let (text, rest) = block.split_at_checked(length).ok_or(SpdyError::Headers)?;
    *block = rest;
    String::from_utf8(text.to_vec()).map_err(|_| SpdyError::Headers)
}

/// Packs blocks without making them smaller: what is sent here is a few words.
#[derive(Debug, Default)]
pub(super) struct HeaderEncoder {
    begun: bool,
}

impl HeaderEncoder {
    /// Appends a block, in as many stored parts as it needs. The empty part at its end makes Go's reader
    /// give out what it has instead of looking for more.
    pub(super) fn block(&mut self, headers: &SpdyHeaders, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.begun, true) {
            out.extend([0x78, 0x01]);
        }
        let mut block = length(headers.len()).to_vec();
        for text in headers.iter().flat_map(|(name, value)| [name, value]) {
            block.extend(length(text.len()));
            block.extend(text.as_bytes());
        }
        let parts = block.chunks(usize::from(u16::MAX)).chain([&[][..]]);
        for part in parts {
            let length = u16::try_from(part.len()).unwrap_or(u16::MAX);
            out.push(0);
            out.extend(length.to_le_bytes());
            out.extend((!length).to_le_bytes());
            out.extend_from_slice(part);
        }
    }
}

fn length(of: usize) -> [u8; 4] {
    u32::try_from(of).unwrap_or(u32::MAX).to_be_bytes()
}
