//! A container's root, by descriptors: every path below it is resolved inside it, as a process would whose root it is.
//! Nothing that an image or a volume contains leads a path out of it (CVE-2026-41579 and its kind).

pub(crate) mod devices;
pub(crate) mod hidden;
pub(crate) mod mounting;
pub(crate) mod mounts;
mod proc;

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fstat, mkdirat, openat, readlinkat};
use rustix::io::Errno;

/// How many links that lead nowhere are followed for one path; the kernel's own bound of links.
const MAX_LINKS: usize = 40;
/// Folders that are made below a root.
const FOLDER_MODE: u32 = 0o755;
/// Files that are made as mount points.
const FILE_MODE: u32 = 0o644;

/// The root folder of a container.
#[derive(Debug)]
pub(crate) struct Root {
    folder: OwnedFd,
}

impl AsFd for Root {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }
}

impl Root {
    pub(crate) fn new(folder: OwnedFd) -> Root {
        Root { folder }
    }

    /// Opens a path, links followed inside the root.
    pub(crate) fn open(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        files::open_in_root(self.as_fd(), path, flags, Mode::empty())
    }

    /// Returns the folder at a path; what is missing of it is made. A link that leads nowhere has its target made.
    pub(crate) fn make_folder(&self, path: &Path) -> io::Result<OwnedFd> {
        self.make(path, FileType::Directory)
    }

    /// Returns the file at a path; an empty one is made where there is nothing.
    pub(crate) fn make_file(&self, path: &Path) -> io::Result<OwnedFd> {
        self.make(path, FileType::RegularFile)
    }

    /// Returns the folder that a path lies in, made where it is missing, and the path's last name.
    pub(crate) fn make_parent(&self, path: &Path) -> io::Result<(OwnedFd, OsString)> {
        let name = path
            .file_name()
            .ok_or(io::ErrorKind::InvalidInput)?
            .to_owned();
        let parent = path.parent().unwrap_or(Path::new("/"));
        Ok((self.make_folder(parent)?, name))
    }

    fn make(&self, path: &Path, kind: FileType) -> io::Result<OwnedFd> {
        match self.open(path, OFlags::PATH) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return opened,
        }
        let mut links = 0;
        let mut done = PathBuf::from("/");
        let mut rest = names(path);
        while let Some(name) = rest.pop_front() {
            let next = done.join(&name);
            match self.open(&next, OFlags::PATH) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                opened => {
                    opened?;
                    done = next;
                    continue;
                }
            }
            let parent = self.open(&done, OFlags::PATH | OFlags::DIRECTORY)?;
            if let Some(target) = link_target(&parent, &name)? {
                // A link that leads nowhere: go on at its target. A relative one starts in the link's folder.
                links += 1;
                if links > MAX_LINKS {
                    return Err(Errno::LOOP.into());
                }
                if target.is_absolute() {
                    done = PathBuf::from("/");
                }
                for name in names(&target).into_iter().rev() {
                    rest.push_front(name);
                }
                continue;
            }
            let made = if rest.is_empty() && kind == FileType::RegularFile {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let mode = Mode::from_raw_mode(FILE_MODE);
                openat(&parent, &name, flags | OFlags::WRONLY, mode).map(drop)
            } else {
                mkdirat(&parent, &name, Mode::from_raw_mode(FOLDER_MODE))
            };
            match made {
                Ok(()) | Err(Errno::EXIST) => done = next,
                Err(error) => return Err(error.into()),
            }
        }
        self.open(&done, OFlags::PATH)
    }
}

/// The names of a path; ".." stays one, for the kernel to resolve.
fn names(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir))
        .map(|part| part.as_os_str().to_owned())
        .collect()
}

/// Where the link of this name in a folder leads; `None` if there is no such link.
fn link_target(folder: &OwnedFd, name: &OsStr) -> io::Result<Option<PathBuf>> {
    if name == ".." {
        return Ok(None);
    }
    match readlinkat(folder, name, Vec::new()) {
        Ok(target) => Ok(Some(PathBuf::from(OsStr::from_bytes(target.to_bytes())))),
        Err(Errno::NOENT | Errno::INVAL) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether a descriptor is a folder's.
pub(crate) fn is_folder(descriptor: impl AsFd) -> io::Result<bool> {
    Ok(FileType::from_raw_mode(fstat(descriptor)?.st_mode) == FileType::Directory)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    fn root(folder: &Path) -> Root {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Root::new(rustix::fs::open(folder, flags, Mode::empty()).unwrap())
    }

    fn inode(descriptor: &OwnedFd) -> u64 {
        fstat(descriptor).unwrap().st_ino
    }

    #[test]
    fn what_is_made_is_made_inside_the_root() {
        let folder = tempfile::tempdir().unwrap();
        let (inside, outside) = (folder.path().join("root"), folder.path().join("outside"));
        fs::create_dir_all(inside.join("etc")).unwrap();
        fs::create_dir(&outside).unwrap();
        symlink(&outside, inside.join("dev")).unwrap();
        symlink("../../../run/stub", inside.join("etc/resolv.conf")).unwrap();
        symlink("a", inside.join("b")).unwrap();
        symlink("b", inside.join("a")).unwrap();
        let root = root(&inside);

        // An absolute link to a folder of the host: its namesake is made inside.
        let made = root.make_folder(Path::new("/dev/shm")).unwrap();
        let expected = inside.join(outside.strip_prefix("/").unwrap()).join("shm");
        assert_eq!(inode(&made), fs::metadata(expected).unwrap().ino());
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);

        // A relative one that would leave the root.
        let made = root.make_file(Path::new("/etc/resolv.conf")).unwrap();
        let expected = fs::metadata(inside.join("run/stub")).unwrap();
        assert!(expected.is_file());
        assert_eq!(inode(&made), expected.ino());

        let error = root.make_folder(Path::new("/a/x")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::LOOP.raw_os_error()));
        let (parent, name) = root.make_parent(Path::new("/x/y/node")).unwrap();
        assert_eq!(name, "node");
        let expected = fs::metadata(inside.join("x/y")).unwrap();
        assert_eq!(
            (inode(&parent), expected.mode() & 0o777),
            (expected.ino(), 0o755)
        );
    }

    #[test]
    fn what_is_there_is_taken_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "content").unwrap();
        symlink("/file", folder.path().join("link")).unwrap();
        let root = root(folder.path());
        let made = root.make_file(Path::new("link")).unwrap();
        let expected = fs::metadata(folder.path().join("file")).unwrap();
        assert_eq!((inode(&made), expected.len()), (expected.ino(), 7));
        assert!(root.make_folder(Path::new("/file/below")).is_err());
    }
}
