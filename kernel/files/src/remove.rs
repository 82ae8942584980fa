//! Removing trees of any depth.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, RenameFlags, renameat_with, statat, unlinkat};
use rustix::io::Errno;

use crate::walk;

/// How many folders of a path are open at once. A folder deeper than that is moved to the top of the tree and removed
/// there, so that descriptors and memory do not grow with the depth.
const MAX_OPEN: usize = 32;
/// How many entries are removed between two questions whether to go on.
const ASK_EACH: u32 = 64;
/// How a folder that was moved to the top of its tree is called, followed by a number.
const MOVED: &str = ".removed-";

/// How a removal ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Nothing is left.
    Done,
    /// The caller stopped it; the next call continues with what is left.
    Stopped,
}

/// Removes whatever is at `path` with everything below it. Nothing there is fine.
///
/// Links are removed, not followed, and a mount point is never entered. What cannot be removed does not keep the rest
/// from going; the first such path is named in the error.
///
/// # Errors
/// The kernel's, with the path that it was about; `CrossesDevices` or `ResourceBusy` for a mount point.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    remove_tree_while(path, &mut || true).map(|_| ())
}

/// As [`remove_tree`], and asks every 64 entries whether to go on.
///
/// # Errors
/// Those of [`remove_tree`].
pub fn remove_tree_while(path: &Path, go_on: &mut dyn FnMut() -> bool) -> io::Result<Removal> {
    let failed = |error: Errno| named(path, error);
    match unlinkat(CWD, path, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(Removal::Done),
        // EPERM is what POSIX has for a folder.
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(failed(error)),
    }
    let root = match walk::open(path) {
        Ok(root) => root,
        Err(Errno::NOENT) => return Ok(Removal::Done),
        Err(error) => return Err(failed(error)),
    };
    let mut removal = TreeRemoval {
        root,
        path: path.to_owned(),
        go_on,
        removed: 0,
        moved: 0,
        failure: None,
    };
    loop {
        let before = removal.removed;
        if removal.pass().map_err(failed)? == Removal::Stopped {
            return Ok(Removal::Stopped);
        }
        match unlinkat(CWD, path, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(Removal::Done),
            // Folders that were moved to the top, or entries that appeared meanwhile. A pass that removed nothing is
            // the last: somebody adds entries as fast as they go, or they cannot be removed.
            Err(Errno::NOTEMPTY | Errno::EXIST) if removal.removed > before => {}
            Err(error) => return Err(removal.failure.unwrap_or_else(|| failed(error))),
        }
    }
}

struct TreeRemoval<'g> {
    root: OwnedFd,
    path: PathBuf,
    go_on: &'g mut dyn FnMut() -> bool,
    /// How many entries are gone, those that were moved to the top included.
    removed: u64,
    moved: u64,
    failure: Option<io::Error>,
}

/// A folder that is being emptied.
struct Level {
    name: CString,
    folder: Dir,
}

impl TreeRemoval<'_> {
    /// Goes through the tree once.
    fn pass(&mut self) -> Result<Removal, Errno> {
        let mut levels = vec![Level {
            name: CString::default(),
            folder: Dir::read_from(&self.root)?,
        }];
        let mut count = 0_u32;
        while let Some(level) = levels.last_mut() {
            if count.is_multiple_of(ASK_EACH) && !(self.go_on)() {
                return Ok(Removal::Stopped);
            }
            count = count.wrapping_add(1);
            match level.folder.read() {
                Some(Ok(entry)) => {
                    let name = entry.file_name();
                    if name != c"." && name != c".." {
                        self.entry(&mut levels, name, entry.file_type());
                    }
                }
                Some(Err(error)) => {
                    self.failed(&levels, c"", error);
                    self.leave(&mut levels);
                }
                None => self.leave(&mut levels),
            }
        }
        Ok(Removal::Done)
    }

    fn entry(&mut self, levels: &mut Vec<Level>, name: &CStr, kind: FileType) {
        let Some(folder) = levels.last().and_then(|level| level.folder.fd().ok()) else {
            return;
        };
        let removed = match is_folder(folder, name, kind) {
            Ok(true) if levels.len() < MAX_OPEN => match open_level(folder, name) {
                Ok(level) => {
                    levels.push(level);
                    return;
                }
                Err(error) => Err(error),
            },
            Ok(true) => self.move_to_top(folder, name),
            Ok(false) => unlinkat(folder, name, AtFlags::empty()),
            Err(error) => Err(error),
        };
        self.note(levels, name, removed);
    }

    /// Removes the innermost folder, which was read to its end.
    fn leave(&mut self, levels: &mut Vec<Level>) {
        let Some(done) = levels.pop() else { return };
        let Some(parent) = levels.last().and_then(|level| level.folder.fd().ok()) else {
            return;
        };
        match unlinkat(parent, &*done.name, AtFlags::REMOVEDIR) {
            // Something is left in it, whose failure is noted already, or which the next pass finds.
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            removed => self.note(levels, &done.name, removed),
        }
    }

    fn move_to_top(&mut self, folder: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
        loop {
            self.moved += 1;
            let to = format!("{MOVED}{}", self.moved);
            match renameat_with(folder, name, &self.root, to, RenameFlags::NOREPLACE) {
                // Left by an earlier removal, or the pod's own.
                Err(Errno::EXIST | Errno::NOTEMPTY) => {}
                moved => return moved,
            }
        }
    }

    fn note(&mut self, levels: &[Level], name: &CStr, removed: Result<(), Errno>) {
        match removed {
            Ok(()) => self.removed += 1,
            Err(Errno::NOENT) => {}
            Err(error) => self.failed(levels, name, error),
        }
    }

    fn failed(&mut self, levels: &[Level], name: &CStr, error: Errno) {
        if self.failure.is_some() {
            return;
        }
        let names = levels.iter().skip(1).map(|level| level.name.as_c_str());
        let mut path = self.path.clone();
        path.extend(
            names
                .chain([name])
                .map(|name| OsStr::from_bytes(name.to_bytes())),
        );
        self.failure = Some(named(&path, error));
    }
}

fn open_level(folder: BorrowedFd<'_>, name: &CStr) -> Result<Level, Errno> {
    Ok(Level {
        name: name.to_owned(),
        folder: Dir::new(walk::open_here(folder, name)?)?,
    })
}

fn is_folder(folder: BorrowedFd<'_>, name: &CStr, kind: FileType) -> Result<bool, Errno> {
    if kind != FileType::Unknown {
        return Ok(kind == FileType::Directory);
    }
    let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

fn named(path: &Path, error: Errno) -> io::Error {
    let cause = io::Error::from(error);
    io::Error::new(
        cause.kind(),
        format!("cannot remove {}: {cause}", path.display()),
    )
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::{Mode, OFlags, mkdirat, openat};
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

    use super::*;

    /// Makes a chain of folders, with a file at its end, by descriptors: no path is that long.
    fn chain(path: &Path, depth: usize) {
        fs::create_dir(path).unwrap();
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = openat(CWD, path, flags, Mode::empty()).unwrap();
        for _ in 0..depth {
            mkdirat(&at, c"d", Mode::RWXU).unwrap();
            at = openat(&at, c"d", flags, Mode::empty()).unwrap();
        }
        openat(&at, c"file", OFlags::CREATE | OFlags::CLOEXEC, Mode::RUSR).unwrap();
    }

    #[test]
    fn a_tree_deeper_than_any_stack_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().join("top");
        chain(&top, 5_000);
        let removed = std::thread::Builder::new()
            .stack_size(64 << 10)
            .spawn(move || remove_tree(&top).map(|()| top))
            .unwrap();
        assert!(!removed.join().unwrap().unwrap().exists());
    }

    #[test]
    fn a_removal_goes_on_where_it_was_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().join("top");
        chain(&top, 3_000);
        fs::create_dir(top.join(".removed-1")).unwrap();
        fs::write(top.join(".removed-2"), "").unwrap();
        let mut stops = 0;
        loop {
            let mut calls = 0;
            let mut few = || {
                calls += 1;
                calls < 10
            };
            match remove_tree_while(&top, &mut few).unwrap() {
                Removal::Done => break,
                Removal::Stopped => stops += 1,
            }
        }
        assert!(stops > 2, "{stops}");
        assert!(!top.exists());
    }

    #[test]
    fn links_are_removed_and_what_they_lead_to_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("kept/below")).unwrap();
        fs::create_dir(path("top")).unwrap();
        symlink(path("kept"), path("top/link")).unwrap();
        symlink(path("kept"), path("outer")).unwrap();
        remove_tree(&path("top")).unwrap();
        remove_tree(&path("outer")).unwrap();
        remove_tree(&path("missing")).unwrap();
        assert!(path("kept/below").exists() && !path("top").exists());
        assert!(fs::symlink_metadata(path("outer")).is_err());
    }

    #[test]
    fn what_cannot_be_removed_is_named_and_the_rest_goes() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().join("top");
        fs::create_dir_all(top.join("a/proc")).unwrap();
        fs::write(top.join("a/file"), "").unwrap();
        fs::write(top.join("z"), "").unwrap();
        let point = top.join("a/proc");
        mount("tmpfs", &point, "tmpfs", MountFlags::empty(), None).unwrap();
        let error = remove_tree(&top).unwrap_err().to_string();
        unmount(&point, UnmountFlags::DETACH).unwrap();
        assert!(error.contains(&point.display().to_string()), "{error}");
        assert!(!top.join("z").exists() && !top.join("a/file").exists());
        remove_tree(&top).unwrap();
        assert!(!top.exists());
    }
}
