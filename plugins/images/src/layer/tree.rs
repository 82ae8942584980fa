//! The folder of one layer in the making: every path is resolved below it, by descriptors.
//!
//! Links to folders within the layer are followed as a process in a chroot of it would (`RESOLVE_IN_ROOT`); in the last
//! place nothing is followed. The folder is this process's alone, so what was looked at doesn't change before its use.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, Uid,
    XattrFlags, chmodat, chownat, fchmod, fchown, fsetxattr, futimens, mkdirat, openat, openat2,
    renameat, statat, unlinkat, utimensat,
};
use rustix::io::Errno;

use super::LayerError;
use super::entry::{Entry, Inside, refused};
use crate::disk::DiskError;

/// The mark of a folder that hides what the layers below have in it.
const OPAQUE: &str = "trusted.overlay.opaque";
/// What a folder has whose entry isn't in the layer, and that no layer below has either.
const FOLDER_MODE: u32 = 0o755;

pub(super) struct Tree {
    root: OwnedFd,
    root_path: PathBuf,
    /// Where what is replaced goes, beside the root.
    replaced: OwnedFd,
    replaced_count: u64,
    /// The folder of the last entry: most entries follow others of their folder.
    last: Option<(Inside, OwnedFd)>,
}

/// Who owns something and who may use it.
#[derive(Clone, Copy)]
pub(super) struct Owner {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mode: u32,
}

/// What a walk to a folder did on its way.
pub(super) enum Walked {
    Found,
    /// The folder at this length of the path had no entry and was made.
    Made(usize),
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
        })
    }

    pub(super) fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// Opens the folder at `path`; folders that are missing on the way are made, and told to `walked`.
    pub(super) fn folder(
        &mut self,
        path: &Inside,
        walked: &mut dyn FnMut(&[u8]),
    ) -> Result<OwnedFd, LayerError> {
        if let Some((last, folder)) = &self.last
            && last == path
        {
            return folder
                .try_clone()
                .map_err(|error| self.failed("open", path, error));
        }
        let mut folder = self
            .root
            .try_clone()
            .map_err(|e| self.failed("open", path, e))?;
        let mut start = 0;
        for end in path.ends() {
            let name = &path.bytes()[start..end];
            let (next, made) = self.step(&folder, &path.bytes()[..end], name)?;
            if let Walked::Made(end) = made {
                walked(&path.bytes()[..end]);
            }
            folder = next;
            start = end + 1;
        }
        let kept = folder
            .try_clone()
            .map_err(|e| self.failed("open", path, e))?;
        self.last = Some((path.clone(), kept));
        Ok(folder)
    }

    /// Opens the folder `name` in `folder`, whose whole path is `whole`.
    fn step(
        &self,
        folder: &OwnedFd,
        whole: &[u8],
        name: &[u8],
    ) -> Result<(OwnedFd, Walked), LayerError> {
        let failed = |step, error: Errno| self.failed_at(step, whole, error);
        match openat2(folder, name, HANDLE, Mode::empty(), BENEATH) {
            Ok(next) => return Ok((next, Walked::Found)),
            Err(Errno::NOENT) => {}
            Err(Errno::NOTDIR | Errno::LOOP) => return self.step_over(folder, whole, name),
            Err(error) => return Err(failed("open", error)),
        }
        self.make_folder(folder, name)
            .map_err(|error| failed("create", error))?;
        let next = openat2(folder, name, HANDLE, Mode::empty(), BENEATH);
        let next = next.map_err(|error| failed("open", error))?;
        Ok((next, Walked::Made(whole.len())))
    }

    /// Goes on where `name` is no folder: through a link that stays inside, or in place of a whiteout.
    fn step_over(
        &self,
        folder: &OwnedFd,
        whole: &[u8],
        name: &[u8],
    ) -> Result<(OwnedFd, Walked), LayerError> {
        let failed = |step, error: Errno| self.failed_at(step, whole, error);
        let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
        let stat = stat.map_err(|error| failed("look at", error))?;
        if is_whiteout(&stat) {
            unlinkat(folder, name, AtFlags::empty()).map_err(|error| failed("replace", error))?;
            self.make_folder(folder, name)
                .map_err(|error| failed("create", error))?;
            self.make_opaque(folder, name)
                .map_err(|error| failed("mark", error))?;
            let next = openat2(folder, name, HANDLE, Mode::empty(), BENEATH);
            let next = next.map_err(|error| failed("open", error))?;
            return Ok((next, Walked::Made(whole.len())));
        }
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            return Err(refused(whole, "it is no folder, and something lies in it"));
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let next = openat2(&self.root, whole, flags, Mode::empty(), IN_ROOT);
        let next = next.map_err(|_| {
            refused(
                whole,
                "something lies below it, and it is a link to no folder of the layer",
            )
        })?;
        Ok((next, Walked::Found))
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

    /// Hides what the layers below have in the folder `name`.
    pub(super) fn make_opaque(&self, folder: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
        let target = openat2(folder, name, FOLDER, Mode::empty(), BENEATH)?;
        fsetxattr(&target, OPAQUE, b"y", XattrFlags::empty())
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
                    fsetxattr(&opened, name.as_slice(), value, XattrFlags::empty())?;
                }
            }
            Ok(())
        };
        set().map_err(|error: Errno| self.failed("set owner and attributes of", path, error))
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
        || name == b"security.capability"
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
