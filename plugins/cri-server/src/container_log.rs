//! Container logs as CRI has them: a time, a stream, `P` for a part of a line or `F` for the rest, and the text.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The longest text of one log line, in bytes; longer ones come in parts.
const MAX_PART_BYTES: usize = 16 << 10;

/// One of a container's two output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStream {
    /// `stdout` in a log line.
    Stdout,
    /// `stderr` in a log line.
    Stderr,
}

/// An open container log. It keeps its file, wherever a rotation moves it to, until it is reopened.
#[derive(Debug)]
pub struct LogWriter {
    path: PathBuf,
    file: File,
}

impl LogWriter {
    /// Opens a log to append to, and makes its folders. Fails as `mkdir` and `open` fail.
    pub fn open(path: &Path) -> io::Result<LogWriter> {
        Ok(LogWriter {
            path: path.to_owned(),
            file: open(path)?,
        })
    }

    /// Opens the file at the log's path anew (CRI's ReopenContainerLog); on an error the old file stays in use.
    pub fn reopen(&mut self) -> io::Result<()> {
        self.file = open(&self.path)?;
        Ok(())
    }

    /// Appends text, one log entry a line, in one write; `at` is the time in nanoseconds since 1970.
    pub fn write(&mut self, at: i64, stream: OutputStream, text: &str) -> io::Result<()> {
        let mut out = Vec::with_capacity(text.len() + 64);
        text.split('\n')
            .for_each(|line| add_line(&mut out, at, stream, line.as_bytes()));
        self.file.write_all(&out)
    }
}

fn open(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    OpenOptions::new().create(true).append(true).open(path)
}

fn add_line(out: &mut Vec<u8>, at: i64, stream: OutputStream, line: &[u8]) {
    let time = jiff::Timestamp::from_nanosecond(at.into()).unwrap_or_default();
    let time = time.strftime("%Y-%m-%dT%H:%M:%S.%9fZ").to_string();
    let stream = match stream {
        OutputStream::Stdout => "stdout",
        OutputStream::Stderr => "stderr",
    };
    let mut rest = line;
    loop {
        let (part, tail) = rest.split_at(rest.len().min(MAX_PART_BYTES));
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
        let mut log = LogWriter::open(&path).unwrap();
        log.write(1_767_323_045_000_000_007, OutputStream::Stdout, "one\ntwo")
            .unwrap();
        let long = "x".repeat(MAX_PART_BYTES + 1);
        log.write(0, OutputStream::Stderr, &long).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "2026-01-02T03:04:05.000000007Z stdout F one");
        assert_eq!(lines[1], "2026-01-02T03:04:05.000000007Z stdout F two");
        assert!(lines[2].starts_with("1970-01-01T00:00:00.000000000Z stderr P xxx"));
        assert_eq!(lines[3], "1970-01-01T00:00:00.000000000Z stderr F x");
    }

    #[test]
    fn a_rotated_log_is_written_on_until_it_is_reopened() {
        let dir = tempfile::tempdir().unwrap();
        let (path, rotated) = (dir.path().join("0.log"), dir.path().join("0.log.1"));
        let mut log = LogWriter::open(&path).unwrap();
        fs::rename(&path, &rotated).unwrap();
        log.write(0, OutputStream::Stdout, "old").unwrap();
        log.reopen().unwrap();
        log.write(0, OutputStream::Stdout, "new").unwrap();
        assert!(fs::read_to_string(&rotated).unwrap().ends_with(" F old\n"));
        assert!(fs::read_to_string(&path).unwrap().ends_with(" F new\n"));
    }
}
