//! Opens files beneath a folder, without ever leaving it.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use hyper::body::Bytes;
use jiff::Timestamp;
use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::https::conditions::moment;

const PIECE: usize = 32 * 1024;
const TIMEOUT: Duration = Duration::from_secs(30);
/// The most entries of a folder that are listed.
const ENTRIES: usize = 10_000;
/// A file of this name is shown in place of its folder's listing.
pub(super) const INDEX: &str = "index.html";
/// How many bytes of a file are read to detect its type.
const SNIFFED: usize = 512;

/// What a path leads to, what is shown for it, and when that changed.
pub(super) struct OpenedPath {
    pub(super) end: EntryKind,
    pub(super) what: PathContents,
    pub(super) changed: Option<Timestamp>,
}

/// Whether a path leads to a file or a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryKind {
    File,
    Folder,
}

/// The content that is shown.
pub(super) enum PathContents {
    File {
        file: File,
        length: u64,
        kind: &'static str,
    },
    Folder {
        names: Vec<String>,
    },
}

/// Opens what a path beneath a folder leads to.
pub(super) async fn found(root: PathBuf, wanted: PathBuf) -> io::Result<OpenedPath> {
    let found = kernel::spawn_blocking(move || find(&root, &wanted));
    match tokio::time::timeout(TIMEOUT, found).await {
        Ok(Ok(found)) => found,
        Ok(Err(_)) | Err(_) => Err(ErrorKind::TimedOut.into()),
    }
}

fn find(root: &Path, wanted: &Path) -> io::Result<OpenedPath> {
    let root = root.canonicalize()?;
    let there = root.join(wanted).canonicalize()?;
    let outside = || io::Error::from(ErrorKind::NotFound);
    let beneath = there.strip_prefix(&root).map_err(|_| outside())?;
    let folder = File::open(&root)?;
    let name = match beneath.as_os_str().is_empty() {
        true => Path::new("."),
        false => beneath,
    };
    let file = opened(&folder, name)?;
    let meta = file.metadata()?;
    match () {
        () if meta.is_file() => as_file(file, EntryKind::File),
        () if meta.is_dir() => {
            let index = opened(&file, Path::new(INDEX)).ok();
            let is_file = |index: &File| index.metadata().is_ok_and(|meta| meta.is_file());
            match index.filter(is_file) {
                Some(index) => as_file(index, EntryKind::Folder),
                None => Ok(OpenedPath {
                    end: EntryKind::Folder,
                    what: PathContents::Folder {
                        names: names(&file)?,
                    },
                    changed: moment(meta.modified()?),
                }),
            }
        }
        () => Err(outside()),
    }
}

/// Opens an entry beneath a folder; fails if a link has come in between.
fn opened(folder: &File, name: &Path) -> io::Result<File> {
    let opened: OwnedFd = rustix::fs::openat2(
        folder,
        name,
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
    )?;
    Ok(File::from(opened))
}

fn as_file(file: File, end: EntryKind) -> io::Result<OpenedPath> {
    let meta = file.metadata()?;
    let mut first = [0; SNIFFED];
    let read = file.read_at(&mut first, 0)?;
    Ok(OpenedPath {
        end,
        what: PathContents::File {
            length: meta.len(),
            kind: kind(&first[..read]),
            file,
        },
        changed: moment(meta.modified()?),
    })
}

/// The media type of a file, by its first bytes.
fn kind(first: &[u8]) -> &'static str {
    let is_binary = |byte: &u8| matches!(byte, 0..=8 | 0x0b | 0x0e..=0x1a | 0x1c..=0x1f);
    match () {
        () if first.starts_with(b"\x1f\x8b\x08") => "application/x-gzip",
        () if first.iter().any(is_binary) => "application/octet-stream",
        () => "text/plain; charset=utf-8",
    }
}

fn names(folder: &File) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(folder)?.take(ENTRIES) {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy();
        let slash = match entry.file_type().is_dir() {
            true => "/",
            false => "",
        };
        if !matches!(&*name, "." | "..") {
            names.push(format!("{name}{slash}"));
        }
    }
    names.sort_by(|a, b| a.trim_end_matches('/').cmp(b.trim_end_matches('/')));
    Ok(names)
}

/// These bytes of a file, as far as they exist.
pub(super) fn pieces(file: File, range: Range<u64>) -> impl Stream<Item = Bytes> + Send + 'static {
    let state = (Arc::new(file), range.start);
    futures_util::stream::unfold(state, move |(file, at)| async move {
        let left = usize::try_from(range.end - at).unwrap_or(usize::MAX);
        if left == 0 {
            return None;
        }
        let reader = Arc::clone(&file);
        let read = kernel::spawn_blocking(move || {
            let mut piece = vec![0; PIECE.min(left)];
            let read = reader.read_at(&mut piece, at)?;
            piece.truncate(read);
            io::Result::Ok(piece)
        });
        match tokio::time::timeout(TIMEOUT, read).await {
            Ok(Ok(Ok(piece))) if !piece.is_empty() => {
                let next = at + piece.len() as u64;
                Some((Bytes::from(piece), (file, next)))
            }
            _ => None,
        }
    })
}
