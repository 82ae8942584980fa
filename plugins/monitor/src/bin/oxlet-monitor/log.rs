//! A container's log, as CRI has it: a time, a stream, `P` for a part of a line or `F` for its rest, and the text.
//!
//! A line waits here until its end comes, at most 16 KiB of it. One that cannot be written is lost and told; the
//! next is tried again.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::clock::rfc3339;

/// The longest text of one log line, in bytes, as with containerd and CRI-O.
const MAX_PART_BYTES: usize = 16 << 10;

/// One of a container's two output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum OutputStream {
    /// Standard output, or the terminal.
    Stdout,
    Stderr,
}

/// An open log. It keeps its file, wherever a rotation moves it to, until it is reopened.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    file: File,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    /// Whether the last write stopped inside a line.
    torn: bool,
}

impl Log {
    /// Opens a log to append to, and makes its folders.
    pub(crate) fn open(path: &Path) -> io::Result<Log> {
        Ok(Log {
            path: path.to_owned(),
            file: open(path)?,
            stdout: Vec::new(),
            stderr: Vec::new(),
            torn: false,
        })
    }

    /// Opens the file at the log's path anew; on an error the old file stays in use.
    pub(crate) fn reopen(&mut self) -> io::Result<()> {
        self.file = open(&self.path)?;
        self.torn = false;
        Ok(())
    }

    /// Appends what came out of a stream at `at`, in nanoseconds since 1970.
    pub(crate) fn write(&mut self, at: i64, stream: OutputStream, bytes: &[u8]) -> io::Result<()> {
        let pending = match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        };
        let mut out = Vec::new();
        let mut lines = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(mut line) = lines.next() {
            while pending.len() + line.len() > MAX_PART_BYTES {
                let (part, rest) = line.split_at(MAX_PART_BYTES - pending.len());
                add_line(&mut out, at, stream, 'P', &[pending, part]);
                pending.clear();
                line = rest;
            }
            if lines.peek().is_some() {
                add_line(&mut out, at, stream, 'F', &[pending, line]);
                *pending = Vec::new();
            } else {
                pending.extend_from_slice(line);
            }
        }
        self.append(&out)
    }

    /// Writes what waits for the end of its line, which will not come: a part, as with containerd and CRI-O.
    pub(crate) fn flush(&mut self, at: i64) -> io::Result<()> {
        let mut out = Vec::new();
        for stream in [OutputStream::Stdout, OutputStream::Stderr] {
            let pending = match stream {
                OutputStream::Stdout => std::mem::take(&mut self.stdout),
                OutputStream::Stderr => std::mem::take(&mut self.stderr),
            };
            if !pending.is_empty() {
                add_line(&mut out, at, stream, 'P', &[&pending]);
            }
        }
        self.append(&out)
    }

    fn append(&mut self, mut out: &[u8]) -> io::Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        if self.torn {
            self.file.write_all(b"\n")?;
            self.torn = false;
        }
        while !out.is_empty() {
            match self.file.write(out) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.torn = out[written - 1] != b'\n';
                    out = &out[written..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    // A link or a FIFO in the log's place must neither lead elsewhere nor make the monitor wait.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let flags = i32::try_from(flags).expect("open's flags are an int");
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o640)
        .custom_flags(flags)
        .open(path)
}

fn add_line(out: &mut Vec<u8>, at: i64, stream: OutputStream, tag: char, texts: &[&[u8]]) {
    let name = match stream {
        OutputStream::Stdout => "stdout",
        OutputStream::Stderr => "stderr",
    };
    out.extend(format!("{} {name} {tag} ", rfc3339(at)).bytes());
    texts.iter().for_each(|text| out.extend_from_slice(text));
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(chunks: &[&[u8]]) -> Vec<(String, usize)> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/0.log");
        let mut log = Log::open(&path).unwrap();
        for chunk in chunks {
            log.write(0, OutputStream::Stdout, chunk).unwrap();
        }
        log.flush(0).unwrap();
        let text = fs::read_to_string(path).unwrap();
        let lines = text.lines().map(|line| {
            line.strip_prefix("1970-01-01T00:00:00.000000000Z stdout ")
                .unwrap()
        });
        lines
            .map(|line| (line.chars().take(5).collect(), line.len() - 2))
            .collect()
    }

    #[test]
    fn a_line_is_written_once_its_end_has_come_and_what_has_none_as_a_part() {
        let lines = written(&[b"on", b"e\ntwo\n\nth", b"ree"]);
        let expected = [("F one", 3), ("F two", 3), ("F ", 0), ("P thr", 5)];
        assert_eq!(
            lines,
            expected.map(|(text, length)| (text.to_owned(), length))
        );
    }

    #[test]
    fn a_long_line_comes_in_parts_of_16_kib() {
        let long = vec![b'x'; 2 * MAX_PART_BYTES + 5];
        let lines = written(&[&long[..1000], &long[1000..], b"\nend\n"]);
        let lengths: Vec<_> = lines
            .iter()
            .map(|(text, length)| (&text[..1], *length))
            .collect();
        assert_eq!(
            lengths,
            [
                ("P", MAX_PART_BYTES),
                ("P", MAX_PART_BYTES),
                ("F", 5),
                ("F", 3)
            ]
        );
    }

    #[test]
    fn a_rotated_log_is_written_on_until_it_is_reopened() {
        let dir = tempfile::tempdir().unwrap();
        let (path, rotated) = (dir.path().join("0.log"), dir.path().join("0.log.1"));
        let mut log = Log::open(&path).unwrap();
        fs::rename(&path, &rotated).unwrap();
        log.write(0, OutputStream::Stdout, b"old\n").unwrap();
        log.reopen().unwrap();
        log.write(0, OutputStream::Stderr, b"new\n").unwrap();
        assert!(
            fs::read_to_string(&rotated)
                .unwrap()
                .ends_with(" stdout F old\n")
        );
        assert!(
            fs::read_to_string(&path)
                .unwrap()
                .ends_with(" stderr F new\n")
        );
    }
}
