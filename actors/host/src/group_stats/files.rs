//! Small files of the kernel, read into one buffer.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Bytes read of one file: the list of ten thousand processes fits.
const MAX_FILE: u64 = 1 << 17;

/// Reads files one after the other.
#[derive(Debug, Default)]
pub(super) struct FileReader {
    buffer: Vec<u8>,
}

impl FileReader {
    /// The file's text; empty where it cannot be read or is no text.
    pub(super) fn text(&mut self, path: &Path) -> &str {
        self.buffer.clear();
        let read =
            File::open(path).and_then(|file| file.take(MAX_FILE).read_to_end(&mut self.buffer));
        match read {
            Ok(_) => std::str::from_utf8(&self.buffer).unwrap_or_default(),
            Err(_) => "",
        }
    }

    /// The number that the file holds, [`u64::MAX`] for `max`; none where it holds no other.
    pub(super) fn number(&mut self, path: &Path) -> Option<u64> {
        number(self.text(path))
    }

    /// The limit that the file holds; one that cannot be read is none, so that nothing counts as short for it.
    pub(super) fn limit(&mut self, path: &Path) -> u64 {
        self.number(path).unwrap_or(u64::MAX)
    }

    /// The number that the file holds, else zero.
    pub(super) fn count(&mut self, path: &Path) -> u64 {
        self.number(path).unwrap_or(0)
    }
}

/// A number, [`u64::MAX`] for `max`; none for anything else, negative numbers and too large ones among them.
pub(super) fn number(text: &str) -> Option<u64> {
    match text.trim() {
        "max" => Some(u64::MAX),
        digits => digits.parse().ok(),
    }
}

/// The number that follows a name at the beginning of a line.
pub(super) fn field(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines();
    let rest = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    number(rest)
}
