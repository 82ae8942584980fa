//! The same by hand, name after name: for kernels without openat2 (before 5.6), and for paths with ".." in which
//! openat2 gives up because something is renamed, anywhere.
//!
//! Every folder on the way is held open. ".." goes back to the one that we came from, whatever is its parent by now,
//! so nothing that others do leads out.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path};

use rustix::fs::{FileType, Mode, OFlags, fstat, openat, readlinkat};
use rustix::io::Errno;

use crate::mount::by_number;

/// As the kernel's own bound.
const LINKS_MAX: usize = 40;
/// So many folders are held open at most.
const DEPTH_MAX: usize = 256;

const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens `path` below `root`; XDEV means that it leads out.
pub(super) fn open(
    root: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    let mut walk = HandWalk {
        root,
        held: Vec::new(),
        ahead: VecDeque::new(),
        links: 0,
    };
    walk.put(path)?;
    while let Some(name) = walk.ahead.pop_front() {
        let last = walk.ahead.is_empty();
        if name == ".." {
            walk.held.pop().ok_or(Errno::XDEV)?;
        } else if last && flags.contains(OFlags::CREATE) {
            return openat(walk.here(), name, flags | OFlags::NOFOLLOW, mode);
        } else {
            walk.step(&name, last && flags.contains(OFlags::NOFOLLOW))?;
        }
    }
    let here = walk.here();
    if flags.contains(OFlags::PATH) && !flags.contains(OFlags::DIRECTORY) {
        return here.try_clone_to_owned().map_err(|_| Errno::MFILE);
    }
    // The same file again, with what is wanted of it; the number leads to it and nowhere else.
    rustix::fs::open(by_number(here), flags.difference(OFlags::NOFOLLOW), mode)
}

struct HandWalk<'a> {
    root: BorrowedFd<'a>,
    held: Vec<OwnedFd>,
    ahead: VecDeque<OsString>,
    links: usize,
}

impl HandWalk<'_> {
    fn here(&self) -> BorrowedFd<'_> {
        self.held.last().map_or(self.root, AsFd::as_fd)
    }

    /// Puts the parts of a path in front of what lies ahead.
    fn put(&mut self, path: &Path) -> Result<(), Errno> {
        for part in path.components().rev() {
            match part {
                Component::Normal(name) => self.ahead.push_front(name.to_owned()),
                Component::ParentDir => self.ahead.push_front("..".into()),
                Component::CurDir => {}
                Component::RootDir | Component::Prefix(_) => return Err(Errno::XDEV),
            }
        }
        Ok(())
    }

    fn step(&mut self, name: &OsStr, links_stay: bool) -> Result<(), Errno> {
        let opened = openat(self.here(), name, LOOK, Mode::empty())?;
        let stat = fstat(&opened)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink || links_stay {
            if self.held.len() >= DEPTH_MAX {
                return Err(Errno::NAMETOOLONG);
            }
            self.held.push(opened);
            return Ok(());
        }
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Errno::LOOP);
        }
        let aim = readlinkat(&opened, c"", Vec::new())?;
        let aim = OsString::from_vec(aim.into_bytes());
        if aim.is_empty() {
            return Err(Errno::NOENT);
        }
        self.put(Path::new(&aim))
    }
}
