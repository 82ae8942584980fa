//! Going through all that is below a folder, from open folder to open folder, never following a link.
//!
//! Whatever others rename, replace or remove meanwhile, what is visited was below the folder when it was. Of a deep tree
//! only the innermost folders are open; the others are opened again on the way back, and checked to be what they
//! were. Each level costs some 100 bytes, and there is a bound on the levels.

#[cfg(test)]
mod tests;

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, SeekFrom, Stat, fstat, openat, openat2,
    statat,
};
use rustix::io::Errno;

/// How many folders are open at once.
const MAX_OPEN: usize = 24;
/// How many levels below its folder a walk goes, which takes some 13 MiB: what is deeper is reported as ENAMETOOLONG.
const MAX_LEVELS: usize = 1 << 17;
/// The longest path of a walk, in bytes: what has a longer one is reported as ENAMETOOLONG.
const MAX_PATH_BYTES: usize = 4 << 20;
/// How many entries are visited between two calls of [`Visitor::check`].
const CHECK_EACH: u32 = 64;

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Whether a walk goes on where something else is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crossing {
    Allowed,
    /// The visitor gets a mount point as a failure, XDEV.
    Refused,
}

/// Whether a walk goes into a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Go {
    In,
    Past,
}

/// The current entry of a walk.
#[derive(Debug)]
pub struct Spot<'a> {
    /// The folder that it is in.
    pub folder: BorrowedFd<'a>,
    /// The entry's name in the folder.
    pub name: &'a CStr,
    /// What the kernel says of it.
    pub stat: &'a Stat,
    /// For messages only.
    pub path: &'a Path,
}

/// The visitor of a walk. An error ends the walk.
pub trait Visitor {
    /// Why a visitor ends a walk.
    type Error;
    /// Is asked every 64 entries, so that a long walk can be cancelled.
    ///
    /// # Errors
    /// Ends the walk.
    fn check(&mut self) -> Result<(), Self::Error>;
    /// Visits something that is not a folder.
    ///
    /// # Errors
    /// Ends the walk.
    fn thing(&mut self, spot: &Spot<'_>) -> Result<(), Self::Error>;
    /// Visits a folder before its content.
    ///
    /// # Errors
    /// Ends the walk.
    fn enter(&mut self, spot: &Spot<'_>) -> Result<Go, Self::Error> {
        let _ = spot;
        Ok(Go::In)
    }
    /// Visits a folder after its content.
    ///
    /// # Errors
    /// Ends the walk.
    fn leave(&mut self, spot: &Spot<'_>) -> Result<(), Self::Error>;
    /// A path could not be looked at, opened, or read to its end.
    ///
    /// # Errors
    /// Ends the walk.
    fn failed(&mut self, path: &Path, error: Errno) -> Result<(), Self::Error>;
    /// The walk cannot return from the folder at `path`, which was moved meanwhile, and ends with this error.
    fn lost(&mut self, path: &Path, error: Errno) -> Self::Error;
}

struct Frame {
    /// Closed while the walk is far below.
    open: Option<Dir>,
    /// The offset at which reading continues.
    offset: u64,
    name: Box<CStr>,
    device: u64,
    inode: u64,
}

/// Goes through everything below an open folder, without the folder itself. `path` is where it is, for messages.
///
/// # Errors
/// The visitor's.
pub fn walk<V: Visitor>(
    folder: OwnedFd,
    path: &Path,
    crossing: Crossing,
    visitor: &mut V,
) -> Result<(), V::Error> {
    let opened = fstat(&folder).and_then(|stat| Frame::new(folder, c"", &stat));
    let frame = match opened {
        Ok(frame) => frame,
        Err(error) => return Err(visitor.lost(path, error)),
    };
    let mut walk = Walk {
        frames: vec![frame],
        path: path.to_owned(),
        crossing,
        visitor,
    };
    walk.run()
}

struct Walk<'v, V> {
    frames: Vec<Frame>,
    path: PathBuf,
    crossing: Crossing,
    visitor: &'v mut V,
}

impl Frame {
    fn new(folder: OwnedFd, name: &CStr, stat: &Stat) -> Result<Self, Errno> {
        Ok(Self {
            open: Some(Dir::new(folder)?),
            offset: 0,
            name: name.into(),
            device: stat.st_dev,
            inode: stat.st_ino,
        })
    }

    fn fd(&self) -> BorrowedFd<'_> {
        let open = self.open.as_ref().expect("the innermost frame is open");
        open.fd().expect("it always has one")
    }

    /// The next name, with what the folder says of its type.
    fn next(&mut self) -> Option<Result<(CString, FileType), Errno>> {
        let open = self.open.as_mut().expect("the innermost frame is open");
        loop {
            let entry = match open.read()? {
                Ok(entry) => entry,
                Err(error) => return Some(Err(error)),
            };
            self.offset = entry.offset().cast_unsigned();
            let name = entry.file_name();
            if name != c"." && name != c".." {
                return Some(Ok((name.to_owned(), entry.file_type())));
            }
        }
    }

    /// Opens it again from a folder in it.
    fn reopen(&mut self, child: BorrowedFd<'_>) -> Result<(), Errno> {
        if self.open.is_some() {
            return Ok(());
        }
        let folder = openat(child, c"..", FOLDER, Mode::empty())?;
        let stat = fstat(&folder)?;
        if (stat.st_dev, stat.st_ino) != (self.device, self.inode) {
            // The child was moved elsewhere: nothing there is ours to visit.
            return Err(Errno::STALE);
        }
        rustix::fs::seek(&folder, SeekFrom::Start(self.offset))?;
        self.open = Some(Dir::new(folder)?);
        Ok(())
    }
}

impl<V: Visitor> Walk<'_, V> {
    fn run(&mut self) -> Result<(), V::Error> {
        let mut count = 0_u32;
        while let Some(top) = self.frames.last_mut() {
            if count.is_multiple_of(CHECK_EACH) {
                self.visitor.check()?;
            }
            count = count.wrapping_add(1);
            match top.next() {
                Some(Ok((name, kind))) => {
                    self.path.push(OsStr::from_bytes(name.to_bytes()));
                    if self.visit(&name, kind)? == Go::Past {
                        self.path.pop();
                    }
                }
                Some(Err(error)) => {
                    self.visitor.failed(&self.path, error)?;
                    self.up()?;
                }
                None => self.up()?,
            }
        }
        Ok(())
    }

    fn visit(&mut self, name: &CStr, kind: FileType) -> Result<Go, V::Error> {
        let folder = self.frames.last().expect("the one that was read").fd();
        let opened = if matches!(kind, FileType::Directory | FileType::Unknown) {
            self.open(folder, name)
        } else {
            Err(Errno::NOTDIR)
        };
        match opened {
            Ok((opened, stat)) => {
                let spot = Spot {
                    folder,
                    name,
                    stat: &stat,
                    path: &self.path,
                };
                if self.visitor.enter(&spot)? == Go::Past {
                    return Ok(Go::Past);
                }
                let too_deep =
                    self.frames.len() > MAX_LEVELS || self.path.as_os_str().len() > MAX_PATH_BYTES;
                let frame = if too_deep {
                    Err(Errno::NAMETOOLONG)
                } else {
                    Frame::new(opened, name, &stat)
                };
                match frame {
                    Ok(frame) => self.down(frame),
                    Err(error) => {
                        self.visitor.failed(&self.path, error)?;
                        return Ok(Go::Past);
                    }
                }
                Ok(Go::In)
            }
            Err(Errno::NOTDIR | Errno::LOOP) => self.thing(name).map(|()| Go::Past),
            // Gone meanwhile.
            Err(Errno::NOENT) => Ok(Go::Past),
            Err(error) => self.visitor.failed(&self.path, error).map(|()| Go::Past),
        }
    }

    fn open(&self, folder: BorrowedFd<'_>, name: &CStr) -> Result<(OwnedFd, Stat), Errno> {
        let opened = match self.crossing {
            Crossing::Allowed => openat(folder, name, FOLDER, Mode::empty())?,
            Crossing::Refused => open_here(folder, name)?,
        };
        let stat = fstat(&opened)?;
        Ok((opened, stat))
    }

    fn thing(&mut self, name: &CStr) -> Result<(), V::Error> {
        let folder = self.frames.last().expect("the one that was read").fd();
        match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => self.visitor.thing(&Spot {
                folder,
                name,
                stat: &stat,
                path: &self.path,
            }),
            Err(Errno::NOENT) => Ok(()),
            Err(error) => self.visitor.failed(&self.path, error),
        }
    }

    fn down(&mut self, frame: Frame) {
        self.frames.push(frame);
        let innermost = self.frames.len().checked_sub(MAX_OPEN + 1);
        if let Some(far) = innermost.and_then(|index| self.frames.get_mut(index)) {
            far.open = None;
        }
    }

    /// Leaves the innermost folder.
    fn up(&mut self) -> Result<(), V::Error> {
        let done = self.frames.pop().expect("the one that was read");
        let Some(parent) = self.frames.last_mut() else {
            return Ok(());
        };
        if let Err(error) = parent.reopen(done.fd()) {
            return Err(self.visitor.lost(&self.path, error));
        }
        match fstat(done.fd()) {
            Ok(stat) => self.visitor.leave(&Spot {
                folder: parent.fd(),
                name: &done.name,
                stat: &stat,
                path: &self.path,
            })?,
            Err(error) => self.visitor.failed(&self.path, error)?,
        }
        self.path.pop();
        Ok(())
    }
}

/// Opens a folder in another one, unless something is mounted on it.
///
/// # Errors
/// The kernel's; XDEV for a mount point, LOOP or NOTDIR for what is not a folder.
pub fn open_here(folder: impl AsFd, name: &CStr) -> Result<OwnedFd, Errno> {
    let folder = folder.as_fd();
    let resolve = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    match openat2(folder, name, FOLDER, Mode::empty(), resolve) {
        Err(Errno::NOSYS | Errno::PERM) => {}
        result => return result,
    }
    // An old kernel: a bind of the same device is not seen here. Callers look into the table of mounts, too.
    let opened = openat(folder, name, FOLDER, Mode::empty())?;
    if fstat(&opened)?.st_dev != fstat(folder)?.st_dev {
        return Err(Errno::XDEV);
    }
    Ok(opened)
}

/// Opens a folder by its path to walk through it; a link at its end is not followed.
///
/// # Errors
/// The kernel's.
pub fn open(path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, FOLDER, Mode::empty())
}
