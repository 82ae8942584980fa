//! Container logs as CRI has them: a time, a stream, `P` for a part of a line or `F` for the rest, and the text.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use crate::program::world::Stream;

/// The longest text of one log line; longer ones come in parts.
const PART: usize = 16 << 10;

/// An open log. Once opened it keeps its file, as a runtime does, until it is told to reopen it.
#[derive(Debug)]
pub(crate) struct Log {
    file: File,
}

impl Log {
    /// Opens a log to append to, and makes its folders.
    pub(crate) fn open(path: &Path) -> io::Result<Log> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        Ok(Log {
            file: OpenOptions::new().create(true).append(true).open(path)?,
        })
    }

    /// Writes text, line by line.
    pub(crate) fn write(&mut self, at: i64, stream: Stream, text: &str) -> io::Result<()> {
        let mut out = Vec::with_capacity(text.len() + 64);
        text.split('\n')
            .for_each(|line| add_line(&mut out, at, stream, line.as_bytes()));
        self.file.write_all(&out)
    }
}

fn add_line(out: &mut Vec<u8>, at: i64, stream: Stream, line: &[u8]) {
    let time = jiff::Timestamp::from_nanosecond(at.into()).unwrap_or_default();
    let time = time.strftime("%Y-%m-%dT%H:%M:%S.%9fZ").to_string();
    let stream = match stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
    };
    let mut rest = line;
    loop {
        let (part, tail) = rest.split_at(rest.len().min(PART));
        let tag = if tail.is_empty() { 'F' } else { 'P' };
        out.extend(format!("{time} {stream} {tag} ").bytes());
        out.extend(part);
        out.push(b'\n');
        if tail.is_empty() {
            return;
        }
        rest = tail;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_cris_form() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/0.log");
        let mut log = Log::open(&path).unwrap();
        log.write(1_767_323_045_000_000_007, Stream::Stdout, "one\ntwo")
            .unwrap();
        log.write(0, Stream::Stderr, &"x".repeat(PART + 1)).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "2026-01-02T03:04:05.000000007Z stdout F one");
        assert_eq!(lines[1], "2026-01-02T03:04:05.000000007Z stdout F two");
        assert!(lines[2].starts_with("1970-01-01T00:00:00.000000000Z stderr P xxx"));
        assert_eq!(lines[3], "1970-01-01T00:00:00.000000000Z stderr F x");
    }
}
