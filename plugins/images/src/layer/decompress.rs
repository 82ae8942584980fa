//! gzip, zstd or neither, told by the first bytes: media types of layers are often wrong.

use std::io::{self, BufReader, Cursor, Read};

use flate2::bufread::MultiGzDecoder;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const BUFFER_BYTES: usize = 64 << 10;

/// Returns a reader of what is packed in `packed`; zstd frames with a window above 2^`window_log` end in an error.
pub(crate) fn reader<'a>(
    packed: &'a mut impl Read,
    window_log: u32,
) -> io::Result<Box<dyn Read + 'a>> {
    let mut magic = Vec::with_capacity(ZSTD.len());
    packed.take(4).read_to_end(&mut magic)?;
    let is_gzip = magic.starts_with(&GZIP);
    let is_zstd = magic == ZSTD || is_skippable(&magic);
    let whole = BufReader::with_capacity(BUFFER_BYTES, Cursor::new(magic).chain(packed));
    if is_gzip {
        return Ok(Box::new(MultiGzDecoder::new(whole)));
    }
    if is_zstd {
        let mut decoder = zstd::stream::read::Decoder::with_buffer(whole)?;
        decoder.window_log_max(window_log)?;
        return Ok(Box::new(decoder));
    }
    Ok(Box::new(whole))
}

/// Tells whether it begins a frame that a zstd decoder skips (RFC 8878, 3.1.2).
fn is_skippable(magic: &[u8]) -> bool {
    matches!(magic, [0x50..=0x5f, 0x2a, 0x4d, 0x18])
}
