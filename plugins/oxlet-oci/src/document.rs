//! A container's documents, spec and record, read within a bound.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The largest document that is read, in bytes.
const MAX_BYTES: u64 = 8 << 20;

/// Reads a file of at most 8 MiB.
pub(crate) fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::other("it is longer than 8 MiB"));
    }
    Ok(bytes)
}
