//! What a container has written over its image, as a layer: a tar with whiteouts (OCI image-spec, `layer.md`).
//!
//! The container runs on meanwhile and may change what is read: every entry is opened by descriptor beneath the folder and
//! no link is followed, a file has the size that it had when it was looked at, and what is gone by then is left out.
//! Sockets are no part of a layer. Of extended attributes only whiteouts' own are read.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use blocking_pool::Cancel;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fgetxattr, fstat, major, minor,
    openat2, readlinkat, statat,
};
use rustix::io::Errno;
use tar::{Builder, EntryType, Header};

/// Entries of one layer: their names are held.
const MAX_ENTRIES: usize = 1_000_000;
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
            self.entries += 1;
            if self.entries > MAX_ENTRIES || Cancel::current().is_set() {
                let why = format!("it has more than {MAX_ENTRIES} files, or takes too long");
                return Err(io::Error::other(why));
            }
            match self.entry(&folder, path, name) {
                Ok(Found::Folder) => folders.push(path.join(name)),
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
        let mut header = header(&stat, EntryType::Regular);
        header.set_size(size);
        // Longer or shorter by now: the header's word counts.
        let content = file.chain(io::repeat(0)).take(size);
        self.tar.append_data(&mut header, &at, content)?;
        if stat.st_nlink > 1 {
            self.linked.insert((stat.st_dev, stat.st_ino), at);
        }
        Ok(())
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
}
