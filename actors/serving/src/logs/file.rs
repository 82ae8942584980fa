//! A log's file: read in pieces beside the actors' thread.
//!
//! A pod with a hostPath volume at or above the folder of all logs can put links there, to any file of the node. So a
//! log is opened beneath that folder without links, and must be a regular file of our own.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use logic_api::pod::labels;
use logic_pods::logs;
use logic_pods::logs::container_logs::{LogTail, TailSearch};

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
        let Some((root, log)) = labels::split_log_path(path) else {
            let text = "not the path of a container's log";
            return Err(io::Error::new(ErrorKind::InvalidInput, text));
        };
        let file = files::open_owned(root, log)?;
        let meta = file.metadata()?;
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

    /// Finds the last `lines` lines.
    pub(super) async fn tail(&self, lines: u64) -> io::Result<LogTail> {
        let file = Arc::clone(&self.file);
        beside(move || tail(&file, lines)).await
    }

    /// Returns what the path leads to now, for a reader that has come to this offset.
    pub(super) async fn led_to_by(&self, path: PathBuf, read: u64) -> io::Result<Leads> {
        let ours = self.identity;
        beside(move || {
            let now = || {
                let live = LogFile::open_now(&path)?;
                let meta = live.file.metadata()?;
                if live.identity != ours {
                    return next_file(&path, live, &meta, ours);
                }
                Ok(match meta.len() < read {
                    true => Leads::HereEmptied,
                    false => Leads::Here,
                })
            };
            match now() {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(Leads::Nowhere),
                leads => leads,
            }
        })
        .await
    }
}

/// Opens the file that follows the one of this identity. A runtime opens the new file before it ends writing to the old one:
/// only with its first line is the old one complete.
fn next_file(path: &Path, live: LogFile, meta: &Metadata, ours: (u64, u64)) -> io::Result<Leads> {
    match rotated_after(path, ours) {
        Some(path) => LogFile::open_now(&path).map(Leads::Elsewhere),
        None if meta.len() == 0 => Ok(Leads::Here),
        None => Ok(Leads::Elsewhere(live)),
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
    rotated.find(|file| {
        file.symlink_metadata()
            .is_ok_and(|meta| identity(&meta) == ours)
    })?;
    rotated.next()
}

fn identity(meta: &Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
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

/// Reads backwards, one piece at a time, until enough lines have begun.
fn tail(file: &File, lines: u64) -> io::Result<LogTail> {
    let length = file.metadata()?.len();
    let mut search = TailSearch::new(lines, length);
    let mut block = vec![0; PIECE];
    let mut head = vec![0; TailSearch::HEAD_BYTES];
    // The end of the written line that is being looked for: its own line end is just before.
    let mut end = length;
    let mut right = length;
    let mut written = |start: u64, end: u64| {
        let size = usize::try_from(end - start).unwrap_or(usize::MAX);
        let head = &mut head[..size.min(TailSearch::HEAD_BYTES)];
        file.read_exact_at(head, start)?;
        Ok::<_, io::Error>(search.take(start, head))
    };
    while right > 0 {
        let left = right.saturating_sub(PIECE as u64);
        let size = usize::try_from(right - left).unwrap_or(PIECE);
        file.read_exact_at(&mut block[..size], left)?;
        for (at, byte) in block[..size].iter().enumerate().rev() {
            let after = left + at as u64 + 1;
            if *byte != b'\n' || after == length {
                continue;
            }
            if written(after, end)? {
                return Ok(search.found());
            }
            end = after;
        }
        right = left;
    }
    if end > 0 {
        written(0, end)?;
    }
    Ok(search.found())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_followed_by_the_next_one_once_that_is_written_to() {
        let run = kernel::system::run(async {
            let folder = tempfile::tempdir().unwrap();
            let path = log_path(folder.path());
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

    fn log_path(folder: &Path) -> PathBuf {
        let logs = folder.join("default_web_uid/main");
        std::fs::create_dir_all(&logs).unwrap();
        logs.join("0.log")
    }

    /// Each of these is another file of the node, or what only looks like a log of our own.
    #[test]
    fn a_log_is_opened_without_links_and_is_our_own_file() {
        let run = kernel::system::run(async {
            let folder = tempfile::tempdir().unwrap();
            let secret = folder.path().join("secret");
            std::fs::write(&secret, "secret\n").unwrap();
            let path = log_path(folder.path());
            let refused = async || LogFile::open(path.clone()).await.unwrap_err().to_string();

            std::os::unix::fs::symlink(&secret, &path).unwrap();
            refused().await;
            std::fs::remove_file(&path).unwrap();
            std::fs::write(&path, "mine\n").unwrap();
            std::os::unix::fs::chown(&path, Some(1_000), None).unwrap();
            assert!(refused().await.contains("belongs to user 1000"));
            std::fs::remove_file(&path).unwrap();
            std::fs::create_dir(&path).unwrap();
            assert!(refused().await.contains("not a regular file"));
            let logs = path.parent().unwrap();
            let elsewhere = folder.path().join("elsewhere");
            std::fs::rename(logs, &elsewhere).unwrap();
            std::os::unix::fs::symlink(&elsewhere, logs).unwrap();
            refused().await;
        });
        run.unwrap();
    }

    /// A link that takes the place of a log while it is followed.
    #[test]
    fn a_log_that_becomes_a_link_is_not_followed_there() {
        let run = kernel::system::run(async {
            let folder = tempfile::tempdir().unwrap();
            let path = log_path(folder.path());
            std::fs::write(&path, "first\n").unwrap();
            let file = LogFile::open(path.clone()).await.unwrap();
            let secret = folder.path().join("secret");
            std::fs::write(&secret, "secret\n").unwrap();
            std::fs::remove_file(&path).unwrap();
            std::os::unix::fs::symlink(&secret, &path).unwrap();
            file.led_to_by(path.clone(), 6).await.unwrap_err();
        });
        run.unwrap();
    }

    /// Upstream's TestTailLines (tail_test.go).
    #[test]
    fn tail_is_found_wherever_blocks_end() {
        let run = kernel::system::run(async {
            let folder = tempfile::tempdir().unwrap();
            let path = log_path(folder.path());
            let line =
                |n: usize| format!("2016-10-06T00:17:09Z stdout F {}\n", "x".repeat(n % 700));
            let text: String = (0..500).map(line).collect();
            std::fs::write(&path, &text).unwrap();
            let file = LogFile::open(path.clone()).await.unwrap();
            for lines in [0, 1, 37, 100, 499, 500, 501] {
                let at = usize::try_from(file.tail(lines).await.unwrap().start).unwrap();
                let kept = text[at..].lines().count() as u64;
                assert_eq!(kept, lines.min(500), "{lines}");
            }
            // One that is still being written is a line as well.
            std::fs::write(&path, &text[..text.len() - 1]).unwrap();
            let file = LogFile::open(path.clone()).await.unwrap();
            let at = usize::try_from(file.tail(1).await.unwrap().start).unwrap();
            assert_eq!(text[at..].lines().count(), 1);
            std::fs::write(&path, "").unwrap();
            let file = LogFile::open(path).await.unwrap();
            assert_eq!(file.tail(3).await.unwrap().start, 0);
        });
        run.unwrap();
    }

    /// Parts of 16 KiB, as runtimes write a long line, beside lines of the other stream.
    #[test]
    fn a_tail_has_all_parts_of_its_lines() {
        let run = kernel::system::run(async {
            let folder = tempfile::tempdir().unwrap();
            let path = log_path(folder.path());
            let part = |stream: &str, tag: &str, text: &str| {
                format!("2016-10-06T00:17:09Z {stream} {tag} {text}\n")
            };
            let kib16 = "y".repeat(16 << 10);
            let mut text = part("stdout", "F", "before");
            for _ in 0..64 {
                text += &part("stdout", "P", &kib16);
                text += &part("stderr", "F", "between");
            }
            text += &part("stdout", "F", "end");
            std::fs::write(&path, &text).unwrap();
            let file = LogFile::open(path).await.unwrap();
            let begin = part("stdout", "F", "before").len() as u64;
            for lines in [1, 2, 64] {
                assert_eq!(file.tail(lines).await.unwrap().start, begin, "{lines}");
            }
            assert_eq!(file.tail(66).await.unwrap().start, 0);
        });
        run.unwrap();
    }
}
