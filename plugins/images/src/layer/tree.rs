//! The folder of one layer in the making: every path is resolved below it, by descriptors.
//!
//! Links to folders within the layer are followed as a process in a chroot of it would (`RESOLVE_IN_ROOT`); in the last
//! place nothing is followed. The folder is this process's alone, so what was looked at doesn't change before its use.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, Uid,
    XattrFlags, chmodat, chownat, fchmod, fchown, fsetxattr, futimens, mkdirat, openat, openat2,
    readlinkat, renameat, statat, unlinkat, utimensat,
};
use rustix::io::Errno;

use super::LayerError;
use super::entry::{Entry, Inside, MAX_LINKS, refused, steps};
use crate::disk::DiskError;

/// The mark of a folder that hides what the layers below have in it.
const OPAQUE: &str = "trusted.overlay.opaque";
/// The capabilities that a program gets with its file.
const CAPABILITY: &[u8] = b"security.capability";
/// What a folder has whose entry isn't in the layer, and that no layer below has either.
const FOLDER_MODE: u32 = 0o755;

pub(super) struct Tree {
    root: OwnedFd,
    root_path: PathBuf,
    /// Where what is replaced goes, beside the root.
    replaced: OwnedFd,
    replaced_count: u64,
    /// The folder of the last entry: most entries follow others of their folder.
    last: Option<LastFolder>,
    lost: RefCell<LostAttributes>,
}

struct LastFolder {
    asked: Inside,
    /// Where it is, with links followed.
    path: Inside,
    folder: OwnedFd,
}

/// Attributes that the store's file system does not keep.
#[derive(Default)]
struct LostAttributes {
    count: u64,
    capabilities: u64,
    /// The first file that lost its capabilities.
    first: Option<Inside>,
}

impl LostAttributes {
    fn count(&mut self, name: &[u8], path: &Inside) {
        self.count += 1;
        if name == CAPABILITY {
            self.capabilities += 1;
            self.first.get_or_insert_with(|| path.clone());
        }
    }

    fn report(&self, layer: &Path) {
        if let Some(first) = &self.first {
            let (count, first) = (self.capabilities, String::from_utf8_lossy(first.bytes()));
            tracing::error!(?layer, count, %first, "the store's file system keeps no extended attributes: \
                programs of this layer lack the capabilities that their files give them");
        }
        if self.count > self.capabilities {
            let count = self.count - self.capabilities;
            tracing::warn!(
                ?layer,
                count,
                "the store's file system keeps no extended attributes: \
                those of this layer are left out"
            );
        }
    }
}

/// Who owns something and who may use it.
#[derive(Clone, Copy)]
pub(super) struct Owner {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mode: u32,
}

/// A step of a walk to a folder.
enum Step {
    Found(OwnedFd),
    Made(OwnedFd, Made),
    /// A link, which leads to this.
    Link(Vec<u8>),
}

/// How a folder without an entry was made.
#[derive(Clone, Copy)]
pub(super) enum Made {
    /// The layers below may have it.
    Implied,
    /// In place of what the layer removes: what the layers below have in it is hidden.
    Replaced {
        /// The file system keeps the mark of that.
        is_marked: bool,
    },
}

impl Tree {
    /// Makes the folders `files` and `replaced` in `scratch`, which is there and empty.
    pub(super) fn create(scratch: &Path) -> Result<Self, DiskError> {
        let root_path = scratch.join("files");
        let make = |path: &Path| -> Result<OwnedFd, DiskError> {
            let made = || {
                mkdirat(CWD, path, Mode::RWXU)?;
                let root = openat(CWD, path, FOLDER, Mode::empty())?;
                fchmod(&root, Mode::from_raw_mode(FOLDER_MODE))?;
                Ok(root)
            };
            made().map_err(|error: Errno| DiskError::new("create", path, error))
        };
        Ok(Self {
            root: make(&root_path)?,
            replaced: make(&scratch.join("replaced"))?,
            root_path,
            replaced_count: 0,
            last: None,
            lost: RefCell::default(),
        })
    }

    /// Opens what [`create`](Self::create) made.
    pub(super) fn reopen(scratch: &Path) -> Result<Self, DiskError> {
        let open = |path: &Path| {
            let opened = openat(CWD, path, FOLDER, Mode::empty());
            opened.map_err(|error| DiskError::new("open", path, error))
        };
        let root_path = scratch.join("files");
        Ok(Self {
            root: open(&root_path)?,
            replaced: open(&scratch.join("replaced"))?,
            root_path,
            replaced_count: 0,
            last: None,
            lost: RefCell::default(),
        })
    }

    pub(super) fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// Opens the folder at `path`, and returns where it is: links of the layer are followed inside it. Folders that are
    /// missing on the way are made, and told to `made`.
    ///
    /// A link may lead to a folder that only layers below have: here it is made, and `settle` finds the rest.
    pub(super) fn folder(
        &mut self,
        path: &Inside,
        made: &mut dyn FnMut(&Inside, Made),
    ) -> Result<(OwnedFd, Inside), LayerError> {
        if let Some(last) = &self.last
            && last.asked == *path
        {
            let folder = last.folder.try_clone();
            let folder = folder.map_err(|error| self.failed("open", path, error))?;
            return Ok((folder, last.path.clone()));
        }
        let (folder, found) = self.follow(path, made)?;
        let kept = folder
            .try_clone()
            .map_err(|e| self.failed("open", path, e))?;
        self.last = Some(LastFolder {
            asked: path.clone(),
            path: found.clone(),
            folder: kept,
        });
        Ok((folder, found))
    }

    fn follow(
        &self,
        path: &Inside,
        made: &mut dyn FnMut(&Inside, Made),
    ) -> Result<(OwnedFd, Inside), LayerError> {
        let long = |reason| refused(path.bytes(), reason);
        let mut folder = self.open_root(path)?;
        let (mut at, mut links) = (Inside::default(), 0);
        let mut rest = steps(path.bytes());
        while let Some(name) = rest.pop() {
            if name == b".." {
                at = at.parent();
                folder = self.open_inside(&at)?;
                continue;
            }
            let next = at.child(&name).map_err(long)?;
            match self.step(&folder, &next, &name)? {
                Step::Found(found) => folder = found,
                Step::Made(found, how) => {
                    made(&next, how);
                    folder = found;
                }
                Step::Link(target) => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(long("links in its path lead in a circle"));
                    }
                    if target.starts_with(b"/") {
                        at = Inside::default();
                        folder = self.open_root(path)?;
                    }
                    rest.extend(steps(&target));
                    continue;
                }
            }
            at = next;
        }
        Ok((folder, at))
    }

    fn open_root(&self, path: &Inside) -> Result<OwnedFd, LayerError> {
        self.root
            .try_clone()
            .map_err(|error| self.failed("open", path, error))
    }

    /// Opens a folder at a path without links.
    fn open_inside(&self, path: &Inside) -> Result<OwnedFd, LayerError> {
        if path.bytes().is_empty() {
            return self.open_root(path);
        }
        openat2(&self.root, path.bytes(), HANDLE, Mode::empty(), BENEATH)
            .map_err(|error| self.failed("open", path, error))
    }

    /// Opens `name` in `folder`, whose whole path is `whole`: a folder, or one that is made here, or a link's text.
    fn step(&self, folder: &OwnedFd, whole: &Inside, name: &[u8]) -> Result<Step, LayerError> {
        let failed = |step, error: Errno| self.failed(step, whole, error);
        match openat2(folder, name, HANDLE, Mode::empty(), BENEATH) {
            Ok(next) => return Ok(Step::Found(next)),
            Err(Errno::NOENT) => {}
            Err(Errno::NOTDIR | Errno::LOOP) => return self.step_over(folder, whole, name),
            Err(error) => return Err(failed("open", error)),
        }
        self.make_folder(folder, name)
            .map_err(|error| failed("create", error))?;
        let next = openat2(folder, name, HANDLE, Mode::empty(), BENEATH);
        let next = next.map_err(|error| failed("open", error))?;
        Ok(Step::Made(next, Made::Implied))
    }

    /// Goes on where `name` is no folder: through a link, or in place of a whiteout.
    fn step_over(&self, folder: &OwnedFd, whole: &Inside, name: &[u8]) -> Result<Step, LayerError> {
        let failed = |step, error: Errno| self.failed(step, whole, error);
        let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
        let stat = stat.map_err(|error| failed("look at", error))?;
        if is_whiteout(&stat) {
            unlinkat(folder, name, AtFlags::empty()).map_err(|error| failed("replace", error))?;
            self.make_folder(folder, name)
                .map_err(|error| failed("create", error))?;
            let is_marked = self
                .make_opaque(folder, name)
                .map_err(|error| failed("mark", error))?;
            let next = openat2(folder, name, HANDLE, Mode::empty(), BENEATH);
            let next = next.map_err(|error| failed("open", error))?;
            return Ok(Step::Made(next, Made::Replaced { is_marked }));
        }
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            return Err(refused(
                whole.bytes(),
                "it is no folder, and something lies in it",
            ));
        }
        let target = readlinkat(folder, name, Vec::new());
        let target = target.map_err(|error| failed("read", error))?;
        Ok(Step::Link(target.into_bytes()))
    }

    fn make_folder(&self, folder: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
        mkdirat(folder, name, Mode::RWXU)?;
        // The process's umask has no say.
        chmodat(
            folder,
            name,
            Mode::from_raw_mode(FOLDER_MODE),
            AtFlags::empty(),
        )
    }

    /// Hides what the layers below have in the folder `name`; false where the file system keeps no such mark.
    pub(super) fn make_opaque(&self, folder: &OwnedFd, name: &[u8]) -> Result<bool, Errno> {
        let target = openat2(folder, name, FOLDER, Mode::empty(), BENEATH)?;
        match fsetxattr(&target, OPAQUE, b"y", XattrFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns what has the name, links not followed; none for nothing.
    pub(super) fn look(&self, folder: &OwnedFd, path: &Inside) -> Result<Option<Stat>, LayerError> {
        let name = last(path);
        match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(self.failed("look at", path, error)),
        }
    }

    /// Takes away what `stat` tells of, so that something else can have its name.
    pub(super) fn clear(
        &mut self,
        folder: &OwnedFd,
        path: &Inside,
        stat: &Stat,
    ) -> Result<(), LayerError> {
        let name = last(path);
        self.last = None;
        let cleared = match FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            true => {
                self.replaced_count += 1;
                let away = self.replaced_count.to_string();
                renameat(folder, name, &self.replaced, away)
            }
            false => unlinkat(folder, name, AtFlags::empty()),
        };
        cleared.map_err(|error| self.failed("replace", path, error))
    }

    /// Makes a file that isn't there yet.
    pub(super) fn create_file(&self, folder: &OwnedFd, path: &Inside) -> Result<File, LayerError> {
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat2(folder, last(path), flags, Mode::RUSR | Mode::WUSR, BENEATH);
        file.map(File::from)
            .map_err(|error| self.failed("create", path, error))
    }

    /// Opens a folder of the layer to set what it has.
    pub(super) fn open_folder(&self, path: &Inside) -> Result<OwnedFd, LayerError> {
        let opened = match path.bytes() {
            b"" => self
                .root
                .try_clone()
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO)),
            bytes => openat2(&self.root, bytes, FOLDER, Mode::empty(), IN_ROOT),
        };
        opened.map_err(|error| self.failed("open", path, error))
    }

    /// Sets owner, mode and attributes of what is open: in this order, since a new owner takes setuid and
    /// capabilities away.
    pub(super) fn set(
        &self,
        opened: impl AsFd,
        path: &Inside,
        entry: &Entry,
    ) -> Result<(), LayerError> {
        let set = || {
            fchown(
                &opened,
                Some(Uid::from_raw(entry.uid)),
                Some(Gid::from_raw(entry.gid)),
            )?;
            fchmod(&opened, Mode::from_raw_mode(entry.mode))?;
            for (name, value) in &entry.xattrs {
                if is_kept(name) {
                    self.set_attribute(&opened, path, (name, value))?;
                }
            }
            Ok(())
        };
        set().map_err(|error: Errno| self.failed("set owner and attributes of", path, error))
    }

    /// Sets one attribute; where the file system has none, it is left out and counted.
    pub(super) fn set_attribute(
        &self,
        opened: impl AsFd,
        path: &Inside,
        (name, value): (&[u8], &[u8]),
    ) -> Result<(), Errno> {
        match fsetxattr(&opened, name, value, XattrFlags::empty()) {
            Err(Errno::OPNOTSUPP) => {
                self.lost.borrow_mut().count(name, path);
                Ok(())
            }
            set => set,
        }
    }

    /// Tells the log what was left out.
    pub(super) fn report_lost(&self) {
        self.lost.borrow().report(&self.root_path);
    }

    /// Takes a folder out of the tree; returns its name beside the root, in [`replaced`](Self::replaced).
    pub(super) fn take_out(&mut self, path: &Inside) -> Result<String, LayerError> {
        self.last = None;
        self.replaced_count += 1;
        let away = format!("moved-{}", self.replaced_count);
        renameat(&self.root, path.bytes(), &self.replaced, &away)
            .map_err(|error| self.failed("move", path, error))?;
        Ok(away)
    }

    pub(super) fn replaced(&self) -> &OwnedFd {
        &self.replaced
    }

    /// Sets the time of what is open.
    pub(super) fn set_time(
        &self,
        opened: impl AsFd,
        path: &Inside,
        mtime: (i64, u32),
    ) -> Result<(), LayerError> {
        futimens(opened, &times(mtime)).map_err(|error| self.failed("set the time of", path, error))
    }

    /// Sets owner, mode and time of a link, device or FIFO that was just made; it is never opened.
    pub(super) fn set_node(
        &self,
        folder: &OwnedFd,
        path: &Inside,
        owner: Owner,
        mtime: (i64, u32),
    ) -> Result<(), LayerError> {
        let name = last(path);
        let set = || {
            let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
            chownat(
                folder,
                name,
                Some(uid),
                Some(gid),
                AtFlags::SYMLINK_NOFOLLOW,
            )?;
            let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
                chmodat(
                    folder,
                    name,
                    Mode::from_raw_mode(owner.mode),
                    AtFlags::empty(),
                )?;
            }
            utimensat(folder, name, &times(mtime), AtFlags::SYMLINK_NOFOLLOW)
        };
        set().map_err(|error: Errno| self.failed("set owner and time of", path, error))
    }

    /// Returns the error of a step with `path`.
    pub(super) fn failed(
        &self,
        step: &'static str,
        path: &Inside,
        error: impl Into<io::Error>,
    ) -> LayerError {
        self.failed_at(step, path.bytes(), error)
    }

    fn failed_at(
        &self,
        step: &'static str,
        path: &[u8],
        error: impl Into<io::Error>,
    ) -> LayerError {
        use std::os::unix::ffi::OsStrExt;
        let path = self.root_path.join(std::ffi::OsStr::from_bytes(path));
        LayerError::Disk(DiskError::new(step, &path, error))
    }
}

/// A folder to read or set attributes of; and one to go through alone.
pub(super) const FOLDER: OFlags = OFlags::DIRECTORY
    .union(OFlags::RDONLY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
pub(super) const HANDLE: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
pub(super) const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);
const IN_ROOT: ResolveFlags = ResolveFlags::IN_ROOT
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// Returns the last name of a path that isn't the root's.
pub(super) fn last(path: &Inside) -> &[u8] {
    path.split().map_or(b".".as_slice(), |(_, name)| name)
}

/// Tells whether it is overlayfs's sign that nothing is here: the character device 0/0.
pub(super) fn is_whiteout(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == 0
}

/// Tells whether an attribute of a layer is kept: overlayfs's own would let an image forge what lies below, labels of
/// security modules and ACLs are the node's.
pub(super) fn is_kept(name: &[u8]) -> bool {
    (name.starts_with(b"user.") && !name.starts_with(b"user.overlay.") && !name.contains(&0))
        || name == CAPABILITY
}

fn times((seconds, nanos): (i64, u32)) -> Timestamps {
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: nanos.into(),
    };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}
