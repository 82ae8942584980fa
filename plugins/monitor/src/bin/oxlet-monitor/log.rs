//! A container's log, as CRI has it: a time, a stream, `P` for a part of a line or `F` for its rest, and the text.
//!
//! A line waits here until its end comes, at most 16 KiB of it. One that cannot be written is lost and told; the
//! next is tried again.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, mkdirat, openat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::clock::rfc3339;

/// The longest text of one log line, in bytes, as with containerd and CRI-O.
const MAX_PART_BYTES: usize = 16 << 10;
/// How a folder is opened on the way to a log.
const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const LOG_MODE: Mode = Mode::RUSR.union(Mode::WUSR).union(Mode::RGRP);

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
    folder: Option<PathBuf>,
    file: File,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    /// Whether the last write stopped inside a line.
    torn: bool,
}

impl Log {
    /// Opens a log to append to, and makes its folders. Below `folder` no link is followed.
    pub(crate) fn open(path: &Path, folder: Option<&Path>) -> io::Result<Log> {
        Ok(Log {
            path: path.to_owned(),
            folder: folder.map(Path::to_owned),
            file: open(path, folder)?,
            stdout: Vec::new(),
            stderr: Vec::new(),
            torn: false,
        })
    }

    /// Opens the file at the log's path anew; on an error the old file stays in use.
    pub(crate) fn reopen(&mut self) -> io::Result<()> {
        self.file = open(&self.path, self.folder.as_deref())?;
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

/// Opens a log to append to, and makes what is missing of the folders above it. From `folder` on no link is followed, for
/// a pod with a hostPath may have put one there.
fn open(path: &Path, folder: Option<&Path>) -> io::Result<File> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    let folder = folder.unwrap_or(parent);
    let below = path
        .strip_prefix(folder)
        .map_err(|_| io::Error::other(format!("log is not below {}", folder.display())))?;
    fs::create_dir_all(folder)?;
    let mut place = rustix::fs::open(folder, FOLDER, Mode::empty())?;
    let mut names = below.components().peekable();
    while let Some(name) = names.next() {
        let Component::Normal(name) = name else { break };
        if names.peek().is_none() {
            return open_file(&place, name);
        }
        match mkdirat(&place, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        place =
            openat(&place, name, FOLDER | OFlags::NOFOLLOW, Mode::empty()).map_err(|error| {
                let error = io::Error::from(error);
                io::Error::new(error.kind(), format!("{}: {error}", name.display()))
            })?;
    }
    Err(io::Error::other("log has no name"))
}

/// Opens a file of ours to append to; what is none in its place, as a link or a FIFO, is replaced.
fn open_file(folder: &OwnedFd, name: &OsStr) -> io::Result<File> {
    let flags =
        OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
    match openat(folder, name, flags, LOG_MODE) {
        Ok(file) => {
            let stat = fstat(&file)?;
            let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
            if is_file && stat.st_uid == geteuid().as_raw() {
                return Ok(File::from(file));
            }
        }
        // A link; a FIFO that nobody reads; a socket.
        Err(Errno::LOOP | Errno::NXIO) => {}
        Err(error) => return Err(error.into()),
    }
    unlinkat(folder, name, AtFlags::empty())?;
    let file = openat(folder, name, flags | OFlags::EXCL, LOG_MODE)?;
    Ok(File::from(file))
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
        let mut log = Log::open(&path, None).unwrap();
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
        let mut log = Log::open(&path, None).unwrap();
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

    /// What a pod may put into its log folder, by a hostPath of the folder above.
    #[test]
    fn nothing_but_a_file_of_ours_is_written_and_no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let secret = dir.path().join("secret");
        fs::write(&secret, "secret").unwrap();
        let logs = dir.path().join("logs");
        let path = logs.join("pod/box/0.log");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let opened = || {
            let mut log = Log::open(&path, Some(&logs))?;
            log.write(0, OutputStream::Stdout, b"new\n")
        };
        let written = || {
            fs::read_to_string(&path)
                .unwrap()
                .ends_with(" stdout F new\n")
        };

        let put: [&dyn Fn(); 5] = [
            &|| std::os::unix::fs::symlink(&secret, &path).unwrap(),
            &|| std::os::unix::fs::symlink("/no/such/file", &path).unwrap(),
            &|| {
                let fifo = FileType::Fifo;
                rustix::fs::mknodat(rustix::fs::CWD, &path, fifo, LOG_MODE, 0).unwrap();
            },
            &|| drop(std::os::unix::net::UnixListener::bind(&path).unwrap()),
            &|| {
                fs::write(&path, "old").unwrap();
                std::os::unix::fs::chown(&path, Some(1000), None).unwrap();
            },
        ];
        for (number, put) in put.iter().enumerate() {
            put();
            opened().unwrap();
            assert!(written(), "{number}");
            fs::remove_file(&path).unwrap();
        }

        fs::create_dir(&path).unwrap();
        assert!(opened().is_err());
        fs::remove_dir(&path).unwrap();
        for folder in [path.parent().unwrap(), &logs.join("pod")] {
            let moved = dir.path().join("moved");
            fs::rename(folder, &moved).unwrap();
            std::os::unix::fs::symlink(&moved, folder).unwrap();
            let error = opened().unwrap_err().to_string();
            assert!(
                error.contains(folder.file_name().unwrap().to_str().unwrap()),
                "{error}"
            );
            fs::remove_file(folder).unwrap();
            fs::rename(&moved, folder).unwrap();
        }
        assert_eq!(fs::read_to_string(secret).unwrap(), "secret");
        opened().unwrap();
    }
}
