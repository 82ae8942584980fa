//! A folder of an image copied with everything in it: owners, modes, times, attributes, links and devices.
//!
//! Both folders are reached by descriptors, and no link of them is followed. Nobody else writes to either. The image chose
//! what is copied, so a budget bounds it, and holes of its files stay holes.

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

/// The most files and folders of a container's volumes.
const MAX_VOLUME_ENTRIES: usize = 1_000_000;
/// The most data of a container's volumes, in bytes; holes are not data.
const MAX_VOLUME_BYTES: u64 = 16 << 30;
/// The most bytes of the paths that a copy keeps in memory: those of folders, and of files with several names.
const MAX_VOLUME_PATH_BYTES: usize = 64 << 20;
/// The most bytes of an attribute, and of the names of all of a file: the kernel's own bound.
const MAX_XATTR_BYTES: usize = 64 << 10;
/// Labels are the mount's own.
const SELINUX: &[u8] = b"security.selinux";
/// Without it a program has fewer rights than its image gives it.
const CAPABILITY: &[u8] = b"security.capability";
const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

/// What the volumes of one container may still take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    entries: usize,
    bytes: u64,
    path_bytes: usize,
}

impl Budget {
    /// That of a new container.
    pub(super) fn new() -> Budget {
        Budget {
            entries: MAX_VOLUME_ENTRIES,
            bytes: MAX_VOLUME_BYTES,
            path_bytes: MAX_VOLUME_PATH_BYTES,
        }
    }

    fn take_entry(&mut self) -> io::Result<()> {
        let left = self.entries.checked_sub(1).ok_or_else(|| {
            let why = format!("the volumes have more than {MAX_VOLUME_ENTRIES} files and folders");
            io::Error::new(io::ErrorKind::FileTooLarge, why)
        })?;
        self.entries = left;
        Ok(())
    }

    fn take_path(&mut self, path: &Path) -> io::Result<PathBuf> {
        let left = self.path_bytes.checked_sub(path.as_os_str().len());
        self.path_bytes = left.ok_or_else(|| {
            let why =
                format!("the paths of the volumes have more than {MAX_VOLUME_PATH_BYTES} bytes");
            io::Error::new(io::ErrorKind::FileTooLarge, why)
        })?;
        Ok(path.to_owned())
    }
}

/// Copies what `from` has into the empty folder at `to`, which becomes as `from` is.
///
/// # Errors
/// `FileTooLarge` where the budget is used up, `TimedOut` where the work is to end ([`Cancel`]), the kernel's.
pub(super) fn copy(from: &OwnedFd, to: &Path, budget: &mut Budget) -> io::Result<()> {
    let to = openat2(CWD, to, FOLDER, Mode::empty(), ResolveFlags::empty())?;
    if Dir::read_from(&to)?.any(|entry| !is_dots(&entry)) {
        return Err(io::ErrorKind::DirectoryNotEmpty.into());
    }
    let mut copying = Copying {
        from,
        to,
        linked: HashMap::new(),
        budget,
        cancel: Cancel::current(),
        attributes: Attributes::default(),
    };
    // Parents come before what is in them; times of folders are set when nothing is put into them any more.
    let mut folders = vec![PathBuf::from(".")];
    let mut next = 0;
    while let Some(folder) = folders.get(next).cloned() {
        copying.folder(&folder, &mut folders)?;
        next += 1;
    }
    for folder in folders.iter().rev() {
        copying.check()?;
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
    budget: &'a mut Budget,
    cancel: Cancel,
    attributes: Attributes,
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
            self.check()?;
            self.budget.take_entry()?;
            let stat = statat(&from, name, AtFlags::SYMLINK_NOFOLLOW)?;
            let below = path.join(name);
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => {
                    mkdirat(&to, name, Mode::RWXU)?;
                    folders.push(self.budget.take_path(&below)?);
                }
                _ if self.link(&stat, &to, name, &below)? => {}
                FileType::RegularFile => self.file(&from, &to, name, &stat)?,
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

    fn check(&self) -> io::Result<()> {
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
            let below = self.budget.take_path(below)?;
            self.linked.insert(key, below);
            return Ok(false);
        };
        linkat(&self.to, first, to, name, AtFlags::empty())?;
        Ok(true)
    }

    fn file(&mut self, from: &OwnedFd, to: &OwnedFd, name: &OsStr, stat: &Stat) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let from = File::from(openat2(from, name, flags, Mode::empty(), BENEATH)?);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let to = File::from(openat2(to, name, flags, Mode::RUSR | Mode::WUSR, BENEATH)?);
        let cancel = &self.cancel;
        let copied = files::copy_sparse(&from, &to, self.budget.bytes, &mut || !cancel.is_set());
        self.budget.bytes -= copied.map_err(|error| {
            if error.kind() != io::ErrorKind::FileTooLarge {
                return error;
            }
            let why = format!("the volumes have more than {MAX_VOLUME_BYTES} bytes");
            io::Error::new(error.kind(), why)
        })?;
        self.attributes.copy(&from, &to, stat)
    }

    fn finish(&mut self, path: &Path) -> io::Result<()> {
        let from = openat2(self.from, path, FOLDER, Mode::empty(), BENEATH)?;
        let to = openat2(&self.to, path, FOLDER, Mode::empty(), BENEATH)?;
        self.attributes.copy(&from, &to, &fstat(&from)?)
    }
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

/// Copies owners, modes, extended attributes and times, and remembers what could not be kept, so that it is logged once.
#[derive(Debug, Default)]
struct Attributes {
    has_warned: bool,
    has_lost_capability: bool,
}

impl Attributes {
    /// Sets owner, mode, attributes and times: a change of the owner takes capabilities and setuid away, so it is first.
    fn copy(&mut self, from: &impl AsFd, to: &impl AsFd, stat: &Stat) -> io::Result<()> {
        let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
        fchown(to, Some(uid), Some(gid))?;
        fchmod(to, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
        let mut names = vec![0; MAX_XATTR_BYTES];
        let count = match flistxattr(from, names.as_mut_slice()) {
            Err(Errno::OPNOTSUPP) => 0,
            count => count?,
        };
        for name in names[..count].split(|byte| *byte == 0) {
            if name.is_empty() || name == SELINUX {
                continue;
            }
            let mut value = vec![0; MAX_XATTR_BYTES];
            let count = fgetxattr(from, name, value.as_mut_slice())?;
            match fsetxattr(to, name, &value[..count], XattrFlags::empty()) {
                Err(Errno::OPNOTSUPP) => self.lose(name),
                set => set?,
            }
        }
        futimens(to, &times(stat))?;
        Ok(())
    }

    /// The file system of the plugin's folder has no extended attributes.
    fn lose(&mut self, name: &[u8]) {
        let attribute = String::from_utf8_lossy(name);
        if name == CAPABILITY && !self.has_lost_capability {
            self.has_lost_capability = true;
            tracing::error!(
                %attribute,
                "programs in an image's volume lose their capabilities: the file system keeps no extended attributes"
            );
        } else if !self.has_warned {
            self.has_warned = true;
            tracing::warn!(
                %attribute,
                "an image's volume loses attributes: the file system keeps no extended attributes"
            );
        }
    }
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
        // Not of `user`, which tmpfs has from Linux 6.6 on.
        rustix::fs::setxattr(from.join("d"), "trusted.a", b"b", XattrFlags::empty()).unwrap();
        std::os::unix::fs::chown(&from, Some(5), Some(6)).unwrap();
        copy(&open(&from), &to, &mut Budget::new()).unwrap();
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
        rustix::fs::getxattr(to.join("d"), "trusted.a", &mut value).unwrap();
        assert_eq!(value[0], b'b');
        let again = copy(&open(&from), &to, &mut Budget::new()).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::DirectoryNotEmpty);
    }

    /// A folder with a file of this much data at the end of 8 GiB, and an empty folder beside it.
    fn with_sparse_file(home: &Path, data: &[u8]) -> (PathBuf, PathBuf) {
        let (from, to) = (home.join("from"), home.join("to"));
        fs::create_dir(&from).unwrap();
        fs::create_dir(&to).unwrap();
        let sparse = File::create(from.join("sparse")).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&sparse, data, 8 << 30).unwrap();
        (from, to)
    }

    #[test]
    fn a_hole_of_a_volume_takes_no_space() {
        let home = tempfile::tempdir().unwrap();
        let (from, to) = with_sparse_file(home.path(), b"end");
        let mut budget = Budget::new();
        copy(&open(&from), &to, &mut budget).unwrap();
        let copied = fs::metadata(to.join("sparse")).unwrap();
        assert_eq!(copied.len(), (8 << 30) + 3);
        assert!(copied.blocks() * 512 < 1 << 20, "{}", copied.blocks());
        assert!(MAX_VOLUME_BYTES - budget.bytes < 1 << 20);
        assert_eq!(budget.entries, MAX_VOLUME_ENTRIES - 1);
    }

    #[test]
    fn a_copy_ends_at_each_bound_and_within_a_file_when_it_is_told() {
        let home = tempfile::tempdir().unwrap();
        let (from, to) = with_sparse_file(home.path(), &[1; 8192]);
        fs::create_dir_all(from.join("a/b")).unwrap();
        let whole = Budget::new();
        for (budget, expected) in [
            (
                Budget {
                    entries: 2,
                    ..whole
                },
                "more than 1000000 files",
            ),
            (
                Budget {
                    bytes: 8191,
                    ..whole
                },
                "more than 17179869184 bytes",
            ),
            (
                Budget {
                    path_bytes: 6,
                    ..whole
                },
                "more than 67108864 bytes",
            ),
        ] {
            let mut budget = budget;
            let error = copy(&open(&from), &to, &mut budget).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::FileTooLarge, "{error}");
            assert!(error.to_string().contains(expected), "{error}");
            fs::remove_dir_all(&to).unwrap();
            fs::create_dir(&to).unwrap();
        }
        let cancel = Cancel::default();
        cancel.set();
        let stopped = cancel.scope(|| copy(&open(&from), &to, &mut Budget::new()));
        assert_eq!(stopped.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
