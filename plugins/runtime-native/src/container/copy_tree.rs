//! A folder of an image copied with everything in it: owners, modes, times, attributes, links and devices.
//!
//! Both folders are reached by descriptors, and no link of them is followed. Nobody else writes to either.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use blocking_pool::Cancel;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, Uid,
    XattrFlags, chownat, fchmod, fchown, fgetxattr, flistxattr, fsetxattr, fstat, futimens, linkat,
    mkdirat, mknodat, openat2, readlinkat, statat, symlinkat, utimensat,
};
use rustix::io::Errno;

/// Entries of one volume: two gigabytes of memory would be needed for their names otherwise.
const MAX_ENTRIES: usize = 1_000_000;
/// Bytes of an attribute, and of the names of all of a file.
const XATTR_BYTES: usize = 64 << 10;
/// Labels are the mount's own.
const SELINUX: &[u8] = b"security.selinux";
const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

/// Copies what `from` has into the empty folder at `to`, which becomes as `from` is.
pub(super) fn copy(from: &OwnedFd, to: &Path) -> io::Result<()> {
    let to = openat2(CWD, to, FOLDER, Mode::empty(), ResolveFlags::empty())?;
    if Dir::read_from(&to)?.any(|entry| !is_dots(&entry)) {
        return Err(io::ErrorKind::DirectoryNotEmpty.into());
    }
    let mut copying = Copying {
        from,
        to,
        linked: HashMap::new(),
        entries: 0,
        cancel: Cancel::current(),
    };
    // Parents come before what is in them; times of folders are set when nothing is put into them any more.
    let mut folders = vec![PathBuf::from(".")];
    let mut next = 0;
    while let Some(folder) = folders.get(next).cloned() {
        copying.folder(&folder, &mut folders)?;
        next += 1;
    }
    for folder in folders.iter().rev() {
        copying.finish(folder)?;
    }
    Ok(())
}

fn is_dots(entry: &Result<rustix::fs::DirEntry, Errno>) -> bool {
    let name = entry.as_ref().map(|entry| entry.file_name().to_bytes());
    matches!(name, Ok(b"." | b".."))
}

struct Copying<'a> {
    from: &'a OwnedFd,
    to: OwnedFd,
    /// Files with several names, by device and inode: where the first of them is.
    linked: HashMap<(u64, u64), PathBuf>,
    entries: usize,
    cancel: Cancel,
}

impl Copying<'_> {
    /// Copies what is in a folder; the folders among it are made, and added to `folders`.
    fn folder(&mut self, path: &Path, folders: &mut Vec<PathBuf>) -> io::Result<()> {
        let from = openat2(self.from, path, FOLDER, Mode::empty(), BENEATH)?;
        let to = openat2(&self.to, path, FOLDER, Mode::empty(), BENEATH)?;
        for entry in Dir::read_from(&from)? {
            if is_dots(&entry) {
                continue;
            }
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            self.count()?;
            let stat = statat(&from, name, AtFlags::SYMLINK_NOFOLLOW)?;
            let below = path.join(name);
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => {
                    mkdirat(&to, name, Mode::RWXU)?;
                    folders.push(below);
                }
                _ if self.link(&stat, &to, name, &below)? => {}
                FileType::RegularFile => file(&from, &to, name, &stat)?,
                FileType::Symlink => {
                    let target = readlinkat(&from, name, Vec::new())?;
                    symlinkat(target.as_c_str(), &to, name)?;
                    node(&to, name, &stat)?;
                }
                kind @ (FileType::Fifo
                | FileType::Socket
                | FileType::CharacterDevice
                | FileType::BlockDevice) => {
                    let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
                    mknodat(&to, name, kind, mode, stat.st_rdev)?;
                    node(&to, name, &stat)?;
                    // The process's umask took its part.
                    rustix::fs::chmodat(&to, name, mode, AtFlags::empty())?;
                }
                FileType::Unknown => {
                    let why = format!("{below:?} is of an unknown kind");
                    return Err(io::Error::other(why));
                }
            }
        }
        Ok(())
    }

    fn count(&mut self) -> io::Result<()> {
        self.entries += 1;
        if self.entries > MAX_ENTRIES {
            let why = format!("it has more than {MAX_ENTRIES} files");
            return Err(io::Error::other(why));
        }
        match self.cancel.is_set() {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(()),
        }
    }

    /// Gives a file that was copied already its further name; false if this is the first one.
    fn link(&mut self, stat: &Stat, to: &OwnedFd, name: &OsStr, below: &Path) -> io::Result<bool> {
        if stat.st_nlink < 2 {
            return Ok(false);
        }
        let key = (stat.st_dev, stat.st_ino);
        let Some(first) = self.linked.get(&key) else {
            self.linked.insert(key, below.to_owned());
            return Ok(false);
        };
        linkat(&self.to, first, to, name, AtFlags::empty())?;
        Ok(true)
    }

    fn finish(&self, path: &Path) -> io::Result<()> {
        let from = openat2(self.from, path, FOLDER, Mode::empty(), BENEATH)?;
        let to = openat2(&self.to, path, FOLDER, Mode::empty(), BENEATH)?;
        attributes(&from, &to, &fstat(&from)?)
    }
}

fn file(from: &OwnedFd, to: &OwnedFd, name: &OsStr, stat: &Stat) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut from = File::from(openat2(from, name, flags, Mode::empty(), BENEATH)?);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut to = File::from(openat2(to, name, flags, Mode::RUSR | Mode::WUSR, BENEATH)?);
    // Within the kernel, and shared where the file system can.
    io::copy(&mut from, &mut to)?;
    attributes(&from, &to, stat)
}

fn times(stat: &Stat) -> Timestamps {
    let time = |tv_sec, nanos| Timespec {
        tv_sec,
        tv_nsec: i64::try_from(nanos).unwrap_or(0),
    };
    Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    }
}

/// Sets what is no file or folder: nothing of it is opened.
fn node(to: &OwnedFd, name: &OsStr, stat: &Stat) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    chownat(to, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    utimensat(to, name, &times(stat), AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(())
}

/// Sets owner, mode, attributes and times: a change of the owner takes capabilities and setuid away, so it is first.
fn attributes(from: &impl AsFd, to: &impl AsFd, stat: &Stat) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    fchown(to, Some(uid), Some(gid))?;
    fchmod(to, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
    let mut names = vec![0; XATTR_BYTES];
    let count = match flistxattr(from, names.as_mut_slice()) {
        Err(Errno::OPNOTSUPP) => 0,
        count => count?,
    };
    for name in names[..count].split(|byte| *byte == 0) {
        if name.is_empty() || name == SELINUX {
            continue;
        }
        let mut value = vec![0; XATTR_BYTES];
        let count = fgetxattr(from, name, value.as_mut_slice())?;
        fsetxattr(to, name, &value[..count], XattrFlags::empty())?;
    }
    futimens(to, &times(stat))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};

    use super::*;

    fn open(path: &Path) -> OwnedFd {
        File::open(path).unwrap().into()
    }

    #[test]
    fn a_copy_is_as_the_original_in_all_but_its_place() {
        let home = tempfile::tempdir().unwrap();
        let (from, to) = (home.path().join("from"), home.path().join("to"));
        fs::create_dir_all(from.join("d/e")).unwrap();
        fs::create_dir(&to).unwrap();
        fs::write(from.join("d/f"), "content").unwrap();
        fs::hard_link(from.join("d/f"), from.join("g")).unwrap();
        symlink("/etc/passwd", from.join("s")).unwrap();
        let fifo = from.join("p");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).unwrap();
        std::os::unix::fs::chown(from.join("d/f"), Some(7), Some(8)).unwrap();
        std::os::unix::fs::lchown(from.join("s"), Some(9), None).unwrap();
        fs::set_permissions(from.join("d/f"), fs::Permissions::from_mode(0o4751)).unwrap();
        fs::set_permissions(from.join("d"), fs::Permissions::from_mode(0o1777)).unwrap();
        rustix::fs::setxattr(from.join("d"), "user.a", b"b", XattrFlags::empty()).unwrap();
        std::os::unix::fs::chown(&from, Some(5), Some(6)).unwrap();
        copy(&open(&from), &to).unwrap();
        for path in ["", "d", "d/e", "d/f", "g", "s", "p"] {
            let look = |root: &Path| {
                let stat = fs::symlink_metadata(root.join(path)).unwrap();
                let times = (stat.mtime(), stat.mtime_nsec());
                (stat.mode(), stat.uid(), stat.gid(), stat.nlink(), times)
            };
            assert_eq!(look(&to), look(&from), "{path:?}");
        }
        assert_eq!(fs::read(to.join("g")).unwrap(), b"content");
        assert_eq!(
            fs::read_link(to.join("s")).unwrap(),
            Path::new("/etc/passwd")
        );
        assert!(fs::metadata(to.join("p")).unwrap().file_type().is_fifo());
        let mut value = [0; 8];
        rustix::fs::getxattr(to.join("d"), "user.a", &mut value).unwrap();
        assert_eq!(value[0], b'b');
        let again = copy(&open(&from), &to).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::DirectoryNotEmpty);
    }
}
