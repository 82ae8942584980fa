//! A log's file: read in pieces beside the actors' thread.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use logic_pods::logs;
use rustix::fs::OFlags;

/// Bytes read at a time.
pub(crate) const PIECE: usize = 16 * 1024;
/// The deadline of one read: a disk that does not answer ends this reading only.
const TIMEOUT: Duration = Duration::from_secs(30);
/// A folder with more names than this is not the agent's.
const MAX_NAMES: usize = 10_000;

/// An open log.
#[derive(Debug, Clone)]
pub(super) struct LogFile {
    file: Arc<File>,
    /// Device and inode.
    identity: (u64, u64),
}

/// What the log's path leads to now.
#[derive(Debug)]
pub(super) enum Leads {
    /// To the same file; or to an empty one, which the runtime has opened and need not write to yet.
    Here,
    /// To the same file, which was truncated.
    HereEmptied,
    /// To another file; the next one of the log, which may have been rotated itself meanwhile.
    Elsewhere(LogFile),
    Nowhere,
}

impl LogFile {
    /// Opens what the path leads to, if it is a file.
    pub(super) async fn open(path: PathBuf) -> io::Result<LogFile> {
        beside(move || LogFile::open_now(&path)).await
    }

    fn open_now(path: &Path) -> io::Result<LogFile> {
        let mut options = File::options();
        // Opening a FIFO must not block.
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
        let file = options.read(true).custom_flags(flags).open(path)?;
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(io::Error::new(
                ErrorKind::InvalidInput,
                "not a regular file",
            ));
        }
        Ok(LogFile {
            file: Arc::new(file),
            identity: identity(&meta),
        })
    }

    /// Returns a piece of the file; nothing at its end.
    pub(super) async fn read(&self, at: u64) -> io::Result<Vec<u8>> {
        let file = Arc::clone(&self.file);
        beside(move || {
            let mut piece = vec![0; PIECE];
            let read = file.read_at(&mut piece, at)?;
            piece.truncate(read);
            Ok(piece)
        })
        .await
    }

    /// Returns where the last `lines` lines begin. One without an end is not counted.
    pub(super) async fn tail(&self, lines: u64) -> io::Result<u64> {
        let file = Arc::clone(&self.file);
        beside(move || tail(&file, lines)).await
    }

    /// Returns what the path leads to now, for a reader that has come to this offset.
    pub(super) async fn led_to_by(&self, path: PathBuf, read: u64) -> io::Result<Leads> {
        let ours = self.identity;
        beside(move || {
            let leads = match std::fs::metadata(&path) {
                Ok(meta) if identity(&meta) != ours => next_file(&path, &meta, ours),
                Ok(meta) if meta.len() < read => Ok(Leads::HereEmptied),
                Ok(_) => Ok(Leads::Here),
                Err(error) => Err(error),
            };
            match leads {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(Leads::Nowhere),
                leads => leads,
            }
        })
        .await
    }
}

/// Opens the file that follows the one of this identity. A runtime opens the new file before it ends writing to the old one:
/// only with its first line is the old one complete.
fn next_file(path: &Path, live: &Metadata, ours: (u64, u64)) -> io::Result<Leads> {
    match rotated_after(path, ours) {
        Some(path) => LogFile::open_now(&path).map(Leads::Elsewhere),
        None if live.len() == 0 => Ok(Leads::Here),
        None => LogFile::open_now(path).map(Leads::Elsewhere),
    }
}

/// Returns the file that was rotated after the one of this identity, where both are still there and not compressed.
fn rotated_after(path: &Path, ours: (u64, u64)) -> Option<PathBuf> {
    let log = path.file_name()?.to_str()?;
    let entries = std::fs::read_dir(folder(path)).ok()?.take(MAX_NAMES);
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let names: Vec<String> = names.collect();
    let files = logs::find(log, &names).into_iter();
    let mut rotated = files
        .filter(|name| name != log && !name.ends_with(logs::COMPRESSED))
        .map(|name| path.with_file_name(name));
    rotated.find(|file| std::fs::metadata(file).is_ok_and(|meta| identity(&meta) == ours))?;
    rotated.next()
}

fn identity(meta: &Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

/// Returns the path without links, as upstream watches it.
pub(super) async fn resolved(path: PathBuf) -> io::Result<PathBuf> {
    beside(move || path.canonicalize()).await
}

/// Returns the folder that a file is in.
pub(super) fn folder(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

async fn beside<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let work = kernel::spawn_blocking(work);
    match tokio::time::timeout(TIMEOUT, work).await {
        Ok(Ok(done)) => done,
        Ok(Err(error)) => Err(io::Error::other(error)),
        Err(_) => Err(ErrorKind::TimedOut.into()),
    }
}

fn tail(file: &File, lines: u64) -> io::Result<u64> {
    let mut block = vec![0; PIECE];
    let mut right = file.metadata()?.len();
    // One line end more than lines: what comes before it is not sent.
    let mut ends = 0;
    while right > 0 {
        let left = right.saturating_sub(PIECE as u64);
        let size = usize::try_from(right - left).unwrap_or(PIECE);
        file.read_exact_at(&mut block[..size], left)?;
        for (at, byte) in block[..size].iter().enumerate().rev() {
            ends += u64::from(*byte == b'\n');
            if ends > lines {
                return Ok(left + at as u64 + 1);
            }
        }
        right = left;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn file_is_followed_by_the_next_one_once_that_is_written_to() {
        let run = kernel::system::run(async {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("0.log");
            let rotate = |stamp: &str| {
                let rotated = path.with_file_name(format!("0.log.{stamp}"));
                std::fs::rename(&path, rotated).unwrap();
            };
            std::fs::write(&path, "first\n").unwrap();
            let file = LogFile::open(path.clone()).await.unwrap();
            let leads = async || file.led_to_by(path.clone(), 6).await.unwrap();
            assert!(matches!(leads().await, Leads::Here));
            rotate("20260101-000000");
            assert!(matches!(leads().await, Leads::Nowhere));
            std::fs::write(&path, "").unwrap();
            assert!(matches!(leads().await, Leads::Here), "still written to");
            std::fs::write(&path, "second\n").unwrap();
            let next = async || {
                let Leads::Elsewhere(next) = leads().await else {
                    panic!("to no other file")
                };
                next.read(0).await.unwrap()
            };
            assert_eq!(next().await, b"second\n");
            rotate("20260101-000000_001");
            std::fs::write(&path, "").unwrap();
            assert_eq!(next().await, b"second\n", "it is not skipped");
            // What is compressed cannot be read any more.
            let second = path.with_file_name("0.log.20260101-000000_001");
            std::fs::rename(&second, second.with_extension("log.20260101-000000_001.gz")).unwrap();
            std::fs::write(&path, "third\n").unwrap();
            assert_eq!(next().await, b"third\n");
        });
        run.unwrap();
    }

    /// Upstream's TestTailLines (tail_test.go).
    #[test]
    fn tail_is_found_wherever_blocks_end() {
        let run = kernel::system::run(async {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("log");
            let starts = BTreeMap::from([(0, 12_u64), (1, 9), (2, 6), (3, 3), (4, 0), (9, 0)]);
            std::fs::write(&path, "a1\nb2\nc3\nd4\n").unwrap();
            let file = LogFile::open(path.clone()).await.unwrap();
            for (lines, start) in starts {
                assert_eq!(file.tail(lines).await.unwrap(), start, "{lines}");
            }
            // One without an end is no line.
            std::fs::write(&path, "a1\nb2\nc3").unwrap();
            let file = LogFile::open(path.clone()).await.unwrap();
            assert_eq!(file.tail(1).await.unwrap(), 3);
            assert_eq!(file.tail(0).await.unwrap(), 6);
            let line = |n: usize| format!("{}\n", "x".repeat(n % 700));
            let text: String = (0..500).map(line).collect();
            std::fs::write(&path, &text).unwrap();
            let file = LogFile::open(path).await.unwrap();
            for lines in [1, 37, 100, 499, 500, 501] {
                let at = usize::try_from(file.tail(lines).await.unwrap()).unwrap();
                let kept = text[at..].lines().count() as u64;
                assert_eq!(kept, lines.min(500), "{lines}");
            }
        });
        run.unwrap();
    }
}
