//! What a container has written over its image, as a layer: a tar with whiteouts (OCI image-spec, `layer.md`).
//!
//! The container runs on meanwhile and may change what is read: every entry is opened by descriptor beneath the folder and
//! no link is followed, a file has the size that it had when it was looked at, and what is gone by then is left out.
//! Sockets are no part of a layer. Of extended attributes only whiteouts' own are read. Holes of files are holes in the
//! archive, in GNU tar's old form, which Go's and CRIU's readers know.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::iter::Peekable;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use blocking_pool::Cancel;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, SeekFrom, Stat, fgetxattr, fstat,
    major, minor, openat2, readlinkat, seek, statat,
};
use rustix::io::Errno;
use tar::{Builder, EntryType, GnuExtSparseHeader, GnuSparseHeader, Header};

/// The most entries of one layer.
const MAX_LAYER_ENTRIES: usize = 1_000_000;
/// The most bytes of the paths of folders and of files with several names: these are kept in memory.
const MAX_LAYER_PATH_BYTES: usize = 64 << 20;
/// The most pieces of data between the holes of one file.
const MAX_FILE_PIECES: usize = 1 << 20;
const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);
const OPAQUE: &str = "trusted.overlay.opaque";

/// Writes what is in the writable layer `upper` of overlayfs.
pub(super) fn write(upper: &Path, to: impl Write) -> io::Result<()> {
    let folder = READ | OFlags::DIRECTORY;
    let root = openat2(CWD, upper, folder, Mode::empty(), ResolveFlags::empty())?;
    let mut layer = Layer {
        root,
        tar: Builder::new(to),
        linked: HashMap::new(),
        entries: 0,
        path_bytes: 0,
    };
    let mut folders = vec![PathBuf::from(".")];
    let mut next = 0;
    while let Some(folder) = folders.get(next).cloned() {
        layer.folder(&folder, &mut folders)?;
        next += 1;
    }
    layer.tar.into_inner()?.flush()
}

struct Layer<W: Write> {
    root: OwnedFd,
    tar: Builder<W>,
    /// Files with several names, by device and inode: the first of them.
    linked: HashMap<(u64, u64), PathBuf>,
    entries: usize,
    path_bytes: usize,
}

impl<W: Write> Layer<W> {
    fn folder(&mut self, path: &Path, folders: &mut Vec<PathBuf>) -> io::Result<()> {
        let flags = READ | OFlags::DIRECTORY;
        let folder = match openat2(&self.root, path, flags, Mode::empty(), BENEATH) {
            Err(error) if is_changed(error) => return Ok(()),
            opened => opened?,
        };
        if path != Path::new(".") {
            let name = path.strip_prefix(".").unwrap_or(path);
            let mut header = header(&fstat(&folder)?, EntryType::Directory);
            self.tar.append_data(&mut header, name, io::empty())?;
            if is_opaque(&folder)? {
                self.empty(&path.join(".wh..wh..opq"))?;
            }
        }
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            self.count()?;
            match self.entry(&folder, path, name) {
                Ok(Found::Folder) => folders.push(self.keep(path.join(name))?),
                Ok(Found::Other) => {}
                Err(error) => {
                    if !error
                        .raw_os_error()
                        .map(Errno::from_raw_os_error)
                        .is_some_and(is_changed)
                    {
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }

    fn count(&mut self) -> io::Result<()> {
        self.entries += 1;
        if self.entries > MAX_LAYER_ENTRIES {
            let why = format!("it has more than {MAX_LAYER_ENTRIES} files");
            return Err(io::Error::other(why));
        }
        match Cancel::current().is_set() {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(()),
        }
    }

    fn keep(&mut self, path: PathBuf) -> io::Result<PathBuf> {
        self.path_bytes += path.as_os_str().len();
        if self.path_bytes > MAX_LAYER_PATH_BYTES {
            let why = format!("its paths have more than {MAX_LAYER_PATH_BYTES} bytes");
            return Err(io::Error::other(why));
        }
        Ok(path)
    }

    fn entry(&mut self, folder: &OwnedFd, path: &Path, name: &OsStr) -> io::Result<Found> {
        let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let below = path.join(name);
        let at = below.strip_prefix(".").unwrap_or(&below).to_owned();
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => return Ok(Found::Folder),
            FileType::RegularFile => self.file(folder, name, &stat, at)?,
            FileType::Symlink => {
                let target = readlinkat(folder, name, Vec::new())?;
                let target = OsStr::from_bytes(target.to_bytes()).to_owned();
                let mut header = header(&stat, EntryType::Symlink);
                self.tar.append_link(&mut header, &at, target)?;
            }
            FileType::CharacterDevice if stat.st_rdev == 0 => {
                let mut whiteout = OsString::from(".wh.");
                whiteout.push(name);
                self.empty(&path.join(whiteout))?;
            }
            FileType::CharacterDevice => self.node(&stat, EntryType::Char, &at)?,
            FileType::BlockDevice => self.node(&stat, EntryType::Block, &at)?,
            FileType::Fifo => self.node(&stat, EntryType::Fifo, &at)?,
            FileType::Socket | FileType::Unknown => {}
        }
        Ok(Found::Other)
    }

    fn file(&mut self, folder: &OwnedFd, name: &OsStr, stat: &Stat, at: PathBuf) -> io::Result<()> {
        let key = (stat.st_dev, stat.st_ino);
        if let Some(first) = self.linked.get(&key) {
            let mut header = header(stat, EntryType::Link);
            return self.tar.append_link(&mut header, &at, first);
        }
        let file = File::from(openat2(folder, name, READ, Mode::empty(), BENEATH)?);
        let stat = fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(());
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let pieces = pieces(&file, size)?;
        let is_whole = matches!(&pieces[..], [piece] if *piece == (0..size));
        if is_whole || size == 0 {
            let mut header = header(&stat, EntryType::Regular);
            header.set_size(size);
            // Longer or shorter by now: the header's word counts.
            let content = file.chain(io::repeat(0)).take(size);
            self.tar.append_data(&mut header, &at, content)?;
        } else {
            self.sparse(&file, &stat, (&pieces, size), &at)?;
        }
        if stat.st_nlink > 1 {
            let at = self.keep(at)?;
            self.linked.insert((stat.st_dev, stat.st_ino), at);
        }
        Ok(())
    }

    /// Writes a file with holes: a header with the first pieces, blocks with the others, then the data of all of them.
    fn sparse(
        &mut self,
        file: &File,
        stat: &Stat,
        (pieces, size): (&[Range<u64>], u64),
        at: &Path,
    ) -> io::Result<()> {
        let mut header = header(stat, EntryType::GNUSparse);
        header.set_size(pieces.iter().map(|piece| piece.end - piece.start).sum());
        // Readers know the end of a file with a hole at its end by an empty piece there.
        let end = size..size;
        let mut listed = pieces.iter().chain([&end]).peekable();
        if let Some(header) = header.as_gnu_mut() {
            header.set_real_size(size);
            fill(&mut header.sparse, &mut listed);
            header.set_is_extended(listed.peek().is_some());
        }
        let mut more = Vec::new();
        while listed.peek().is_some() {
            let mut block = GnuExtSparseHeader::new();
            fill(block.sparse_mut(), &mut listed);
            block.set_is_extended(listed.peek().is_some());
            more.extend_from_slice(block.as_bytes());
        }
        let data = Pieces {
            file,
            left: pieces.iter().cloned(),
            piece: 0..0,
        };
        self.tar
            .append_data(&mut header, at, more.as_slice().chain(data))
    }

    fn node(&mut self, stat: &Stat, kind: EntryType, at: &Path) -> io::Result<()> {
        let mut header = header(stat, kind);
        if kind != EntryType::Fifo {
            header.set_device_major(major(stat.st_rdev))?;
            header.set_device_minor(minor(stat.st_rdev))?;
        }
        self.tar.append_data(&mut header, at, io::empty())
    }

    fn empty(&mut self, path: &Path) -> io::Result<()> {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o644);
        header.set_size(0);
        let at = path.strip_prefix(".").unwrap_or(path);
        self.tar.append_data(&mut header, at, io::empty())
    }
}

/// Finds where a file has data below `size`.
fn pieces(file: &File, size: u64) -> io::Result<Vec<Range<u64>>> {
    let mut pieces = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match seek(file, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => break,
            // A file system without holes.
            Err(Errno::INVAL) => at,
            start => start?,
        };
        if start >= size {
            break;
        }
        let end = match seek(file, SeekFrom::Hole(start)) {
            Err(Errno::INVAL) => size,
            end => end?.min(size),
        };
        // It is being changed: what the kernel says next would be no better.
        if end <= start {
            break;
        }
        if pieces.len() == MAX_FILE_PIECES {
            let why = format!("a file has more than {MAX_FILE_PIECES} pieces between its holes");
            return Err(io::Error::other(why));
        }
        pieces.push(start..end);
        at = end;
    }
    seek(file, SeekFrom::Start(0))?;
    Ok(pieces)
}

/// Lists pieces in a header's places, as far as these go.
fn fill<'a>(
    places: &mut [GnuSparseHeader],
    pieces: &mut Peekable<impl Iterator<Item = &'a Range<u64>>>,
) {
    for place in places {
        let Some(piece) = pieces.next() else { return };
        place.set_offset(piece.start);
        place.set_length(piece.end - piece.start);
    }
}

/// The data of a file's pieces, one after the other; zeros where the file has become shorter.
struct Pieces<'a, I> {
    file: &'a File,
    left: I,
    piece: Range<u64>,
}

impl<I: Iterator<Item = Range<u64>>> Read for Pieces<'_, I> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.left.next() {
                Some(piece) => self.piece = piece,
                None => return Ok(0),
            }
        }
        let left = usize::try_from(self.piece.end - self.piece.start).unwrap_or(usize::MAX);
        let length = left.min(buffer.len());
        let buffer = &mut buffer[..length];
        let read = match self.file.read_at(buffer, self.piece.start)? {
            0 => {
                buffer.fill(0);
                length
            }
            read => read,
        };
        self.piece.start += read as u64;
        Ok(read)
    }
}

/// What an entry was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Folder,
    Other,
}

fn header(stat: &Stat, kind: EntryType) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(stat.st_mode & 0o7777);
    header.set_uid(stat.st_uid.into());
    header.set_gid(stat.st_gid.into());
    header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or(0));
    header.set_size(0);
    header
}

/// Whether an entry is no longer what it was a moment ago.
fn is_changed(error: Errno) -> bool {
    matches!(
        error,
        Errno::NOENT | Errno::LOOP | Errno::NOTDIR | Errno::NXIO
    )
}

fn is_opaque(folder: &OwnedFd) -> io::Result<bool> {
    let mut value = [0; 1];
    match fgetxattr(folder, OPAQUE, value.as_mut_slice()) {
        Ok(count) => Ok(count == 1 && value[0] == b'y'),
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::RANGE) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::{XattrFlags, makedev, mknodat, setxattr};

    use super::*;

    #[test]
    fn a_layer_has_what_was_written_and_whiteouts_for_what_was_removed() {
        let home = tempfile::tempdir().unwrap();
        let at = |path: &str| home.path().join(path);
        fs::create_dir_all(at("d/e")).unwrap();
        fs::create_dir(at("o")).unwrap();
        setxattr(at("o"), OPAQUE, b"y", XattrFlags::empty()).unwrap();
        fs::write(at("d/f"), "content").unwrap();
        fs::hard_link(at("d/f"), at("d/g")).unwrap();
        symlink("/etc/shadow", at("s")).unwrap();
        let node = |path: &str, kind, device| {
            mknodat(CWD, at(path), kind, Mode::RUSR, device).unwrap();
        };
        node("p", FileType::Fifo, 0);
        node("d/gone", FileType::CharacterDevice, 0);
        node("null", FileType::CharacterDevice, makedev(1, 3));
        drop(std::os::unix::net::UnixListener::bind(at("socket")).unwrap());
        let mut layer = Vec::new();
        write(home.path(), &mut layer).unwrap();
        let mut found = BTreeMap::new();
        for entry in tar::Archive::new(layer.as_slice()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            let link = entry
                .link_name()
                .unwrap()
                .map(|to| to.display().to_string());
            let path = entry.path().unwrap().display().to_string();
            let told = (entry.header().entry_type(), link.unwrap_or(text));
            found.insert(path.trim_end_matches('/').to_owned(), told);
        }
        // The order of a folder is its file system's: either name may be the first.
        let names = ["d/f", "d/g"].map(|name| found.remove(name).unwrap());
        assert!(names.contains(&(EntryType::Regular, "content".to_owned())));
        assert!(names.iter().any(|(kind, _)| *kind == EntryType::Link));
        let found: Vec<_> = found
            .iter()
            .map(|(path, (kind, text))| (path.as_str(), *kind, text.as_str()))
            .collect();
        let expected = [
            ("d", EntryType::Directory, ""),
            ("d/.wh.gone", EntryType::Regular, ""),
            ("d/e", EntryType::Directory, ""),
            ("null", EntryType::Char, ""),
            ("o", EntryType::Directory, ""),
            ("o/.wh..wh..opq", EntryType::Regular, ""),
            ("p", EntryType::Fifo, ""),
            ("s", EntryType::Symlink, "/etc/shadow"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_hole_of_8_gib_is_a_hole_in_the_archive() {
        let home = tempfile::tempdir().unwrap();
        let sparse = File::create(home.path().join("sparse")).unwrap();
        // More pieces than a header and one block have places for.
        let places: Vec<u64> = (0..40).map(|n| n << 20).chain([8 << 30]).collect();
        for place in &places {
            sparse.write_all_at(b"piece", *place).unwrap();
        }
        sparse.set_len(9 << 30).unwrap();
        let hole = File::create(home.path().join("hole")).unwrap();
        hole.set_len(8 << 30).unwrap();
        let mut layer = Vec::new();
        write(home.path(), &mut layer).unwrap();
        assert!(layer.len() < 4 << 20, "{}", layer.len());
        let mut found = BTreeMap::new();
        for entry in tar::Archive::new(layer.as_slice()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let (path, size) = (entry.path().unwrap().into_owned(), entry.size());
            let mut begin = [0; 5];
            entry.read_exact(&mut begin).unwrap();
            found.insert(path.display().to_string(), (size, begin));
        }
        assert_eq!(found["sparse"], (9 << 30, *b"piece"));
        assert_eq!(found["hole"], (8 << 30, [0; 5]));
        // A second reader: it unpacks to the same pieces and holes.
        let out = tempfile::tempdir().unwrap();
        let mut tar = std::process::Command::new("tar");
        let mut tar = tar
            .args(["-xf", "-", "-C"])
            .arg(out.path())
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        tar.stdin.take().unwrap().write_all(&layer).unwrap();
        assert!(tar.wait().unwrap().success());
        let unpacked = File::open(out.path().join("sparse")).unwrap();
        assert_eq!(unpacked.metadata().unwrap().len(), 9 << 30);
        for place in places {
            let mut piece = [0; 5];
            unpacked.read_exact_at(&mut piece, place).unwrap();
            assert_eq!(&piece, b"piece", "{place}");
        }
        assert!(pieces(&unpacked, 9 << 30).unwrap().len() > 1);
    }

    #[test]
    fn a_layer_is_not_written_on_when_it_is_to_end() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("file"), "").unwrap();
        let cancel = Cancel::default();
        cancel.set();
        let stopped = cancel.scope(|| write(home.path(), io::sink()));
        assert_eq!(stopped.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
