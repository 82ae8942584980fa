//! What of a layer depends on the layers below: hard links to their files, and folders without an entry of their own.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, SeekFrom, Stat, Uid, fchmod, fchown, fgetxattr,
    flistxattr, fstat, ioctl_ficlone, linkat, mknodat, openat, openat2, readlinkat, seek, statat,
    symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::entry::{Inside, refused};
use super::tree::{BENEATH, FOLDER, HANDLE, Owner, Tree, is_kept, is_whiteout, last};
use super::unpack::{LowerLink, Unpacked, on_disk};
use super::{LayerError, UnpackContext, bounds};
use crate::disk::DiskError;

const BUFFER_BYTES: usize = 64 << 10;
const XATTR_BYTES_MAX: usize = 64 << 10;

impl Unpacked {
    /// Does what is still to be done, with the layers `below`, the topmost first.
    pub(crate) fn finish(
        &mut self,
        context: &UnpackContext,
        below: &[PathBuf],
    ) -> Result<(), LayerError> {
        let tree = Tree::reopen(&context.scratch)?;
        let is_unmarked = self.opaque_folders.values().any(|is_marked| !is_marked);
        if !self.links.is_empty() || !self.implied.is_empty() || is_unmarked {
            let below = if self.opaque { &[] } else { below };
            let mut finishing = Finishing {
                stack: open_stack(tree.root(), below)?,
                tree,
                context,
                copied: HashMap::new(),
                left: context.limits.layer_bytes,
                bytes: 0,
            };
            finishing.settle(self)?;
            self.inodes += finishing.hide_unmarked(self)?;
            for (path, mut link) in std::mem::take(&mut self.links) {
                context.check_time()?;
                link.target = finishing.resolve_parent(self, &link.target)?;
                finishing.link(&path, &link)?;
            }
            for path in std::mem::take(&mut self.implied) {
                context.check_time()?;
                finishing.folder(&path)?;
            }
            self.bytes = self.bytes.saturating_add(finishing.bytes);
            finishing.tree.report_lost();
            return self.set_times(&finishing.tree);
        }
        self.set_times(&tree)
    }

    fn set_times(&mut self, tree: &Tree) -> Result<(), LayerError> {
        for (path, mtime) in std::mem::take(&mut self.times) {
            tree.set_time(tree.open_folder(&path)?, &path, mtime)?;
        }
        Ok(())
    }
}

/// The last steps of a layer, with the layers below at hand.
pub(super) struct Finishing<'a> {
    pub(super) tree: Tree,
    /// The layer's own root, and those below it, down to one that hides the rest.
    pub(super) stack: Vec<OwnedFd>,
    pub(super) context: &'a UnpackContext,
    /// Files of layers below that were copied, by device and inode: further links to them are links to the copy.
    copied: HashMap<(u64, u64), Inside>,
    /// Bytes that may still be copied.
    left: u64,
    bytes: u64,
}

/// Something of a layer below; never opened for reading unless it is a file or a folder.
pub(super) struct Found {
    pub(super) handle: OwnedFd,
    pub(super) stat: Stat,
}

impl Found {
    pub(super) fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }
}

impl Finishing<'_> {
    /// Puts a copy of the link's target in place of the file that stands in for it.
    fn link(&mut self, path: &Inside, link: &LowerLink) -> Result<(), LayerError> {
        let Some((parent, name)) = path.split() else {
            return Ok(());
        };
        let folder = self.tree.open_folder(&parent)?;
        let there = self.tree.look(&folder, path)?;
        let Some(there) = there.filter(|stat| stat.st_ino == link.inode) else {
            return Ok(());
        };
        let missing = || refused(path.bytes(), "a hard link to what no layer has");
        let found = self.find(&link.target)?.ok_or_else(missing)?;
        let kind = FileType::from_raw_mode(found.stat.st_mode);
        if kind == FileType::Directory {
            return Err(refused(path.bytes(), "a hard link to a folder"));
        }
        if there.st_nlink > 1 && kind != FileType::RegularFile {
            return Err(refused(
                path.bytes(),
                "hard links to a link or device of a layer below",
            ));
        }
        let failed = |tree: &Tree, error: Errno| tree.failed("copy", path, error);
        if kind != FileType::RegularFile {
            unlinkat(&folder, name, AtFlags::empty()).map_err(|error| failed(&self.tree, error))?;
            return self.copy_node(&folder, path, &found);
        }
        let source = (found.stat.st_dev, found.stat.st_ino);
        if there.st_nlink == 1
            && let Some(copy) = self.copied.get(&source)
        {
            unlinkat(&folder, name, AtFlags::empty()).map_err(|error| failed(&self.tree, error))?;
            let root = self.tree.root();
            let linked = linkat(root, copy.bytes(), &folder, name, AtFlags::empty());
            return linked.map_err(|error| failed(&self.tree, error));
        }
        self.copied.insert(source, path.clone());
        self.copy_file(&folder, path, &found)
    }

    fn copy_file(
        &mut self,
        folder: &OwnedFd,
        path: &Inside,
        found: &Found,
    ) -> Result<(), LayerError> {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let target = openat2(folder, last(path), flags, Mode::empty(), BENEATH);
        let mut target = target
            .map(File::from)
            .map_err(|error| self.tree.failed("open", path, error))?;
        // It was seen to be a file: opening it waits for nothing.
        let mut source = reopen(&found.handle, OFlags::RDONLY)
            .map(File::from)
            .map_err(|error| self.tree.failed("open what is linked by", path, error))?;
        if ioctl_ficlone(&target, &source).is_err() {
            let bytes = self.copy_data(&mut source, &mut target, path, found)?;
            self.bytes = self.bytes.saturating_add(on_disk(bytes));
        }
        copy_attributes(&self.tree, &source, (&target, path), &found.stat)
            .map_err(|error| self.tree.failed("set owner and attributes of", path, error))?;
        self.tree.set_time(&target, path, mtime(&found.stat))
    }

    /// Copies the data of a file and leaves its holes; what it copies counts as the layer's own bytes.
    fn copy_data(
        &mut self,
        source: &mut File,
        target: &mut File,
        path: &Inside,
        found: &Found,
    ) -> Result<u64, LayerError> {
        let failed = |tree: &Tree, error: io::Error| tree.failed("copy", path, error);
        let size = u64::try_from(found.stat.st_size).unwrap_or(0);
        target
            .set_len(size)
            .map_err(|error| failed(&self.tree, error))?;
        let mut buffer = vec![0; BUFFER_BYTES];
        let (mut at, mut bytes) = (0, 0);
        while at < size {
            let start = match seek(&*source, SeekFrom::Data(at)) {
                Ok(start) => start,
                Err(Errno::NXIO) => break,
                Err(error) => return Err(failed(&self.tree, error.into())),
            };
            let end =
                seek(&*source, SeekFrom::Hole(start)).map_err(|e| failed(&self.tree, e.into()))?;
            self.spend(end - start)?;
            // One long stretch is copied without a look at the clock; it has a bound in bytes.
            self.context.check_time()?;
            for file in [&*source, &*target] {
                seek(file, SeekFrom::Start(start)).map_err(|e| failed(&self.tree, e.into()))?;
            }
            copy_range(source, target, end - start, &mut buffer)
                .map_err(|e| failed(&self.tree, e))?;
            bytes += end - start;
            at = end;
        }
        Ok(bytes)
    }

    fn spend(&mut self, bytes: u64) -> Result<(), LayerError> {
        let exceeded = |limit| LayerError::TooLarge {
            what: "bytes copied for hard links",
            limit,
        };
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or_else(|| exceeded(self.context.limits.layer_bytes))?;
        bounds::take(&self.context.image_left, bytes).map_err(exceeded)
    }

    /// Makes a second one of a link, device or FIFO, which has no content.
    fn copy_node(&self, folder: &OwnedFd, path: &Inside, found: &Found) -> Result<(), LayerError> {
        let failed = |error: Errno| self.tree.failed("copy", path, error);
        let name = last(path);
        let stat = &found.stat;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::Symlink {
            let target = readlinkat(&found.handle, "", Vec::new()).map_err(failed)?;
            symlinkat(&target, folder, name).map_err(failed)?;
        } else {
            let mode = Mode::RUSR | Mode::WUSR;
            mknodat(folder, name, kind, mode, stat.st_rdev).map_err(failed)?;
        }
        let owner = Owner {
            uid: stat.st_uid,
            gid: stat.st_gid,
            mode: stat.st_mode & 0o7777,
        };
        self.tree.set_node(folder, path, owner, mtime(stat))
    }

    /// Gives a folder without an entry what the folder of the layers below has.
    fn folder(&self, path: &Inside) -> Result<(), LayerError> {
        let below = match self.find_in(&self.stack[1..], path)? {
            Some(found) if FileType::from_raw_mode(found.stat.st_mode) == FileType::Directory => {
                found
            }
            _ => return Ok(()),
        };
        let set = || {
            let source = openat(&below.handle, ".", FOLDER, Mode::empty())?;
            let target = match self.tree.open_folder(path) {
                Ok(target) => target,
                Err(_) => return Ok(()),
            };
            copy_attributes(&self.tree, &source, (&target, path), &below.stat)
        };
        set().map_err(|error: Errno| self.tree.failed("set owner and attributes of", path, error))
    }

    fn find(&self, path: &Inside) -> Result<Option<Found>, LayerError> {
        self.find_in(&self.stack, path)
    }

    /// Looks for what overlayfs would show at `path` of a stack.
    pub(super) fn find_in(
        &self,
        stack: &[OwnedFd],
        path: &Inside,
    ) -> Result<Option<Found>, LayerError> {
        for layer in stack {
            let seen =
                look_in(layer, path).map_err(|error| self.tree.failed("look for", path, error))?;
            match seen {
                Seen::Here(found) => return Ok(Some(found)),
                Seen::Hidden => return Ok(None),
                Seen::Below => {}
            }
        }
        Ok(None)
    }
}

pub(super) enum Seen {
    Here(Found),
    /// It isn't there, and the layers below aren't seen at this path.
    Hidden,
    /// The layers below may have it.
    Below,
}

pub(super) fn look_in(layer: &OwnedFd, path: &Inside) -> Result<Seen, Errno> {
    let mut folder: Option<OwnedFd> = None;
    let mut hides = false;
    let mut start = 0;
    for end in path.ends() {
        let name = &path.bytes()[start..end];
        start = end + 1;
        let at = folder.as_ref().unwrap_or(layer);
        let stat = match statat(at, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) if hides => return Ok(Seen::Hidden),
            Err(Errno::NOENT) => return Ok(Seen::Below),
            Err(error) => return Err(error),
        };
        if is_whiteout(&stat) {
            return Ok(Seen::Hidden);
        }
        if end == path.bytes().len() {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let handle = openat2(at, name, flags, Mode::empty(), BENEATH)?;
            let stat = fstat(&handle)?;
            return Ok(Seen::Here(Found { handle, stat }));
        }
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return Ok(Seen::Hidden);
        }
        let next = openat2(at, name, HANDLE, Mode::empty(), BENEATH)?;
        hides |= is_opaque(&next)?;
        folder = Some(next);
    }
    Ok(Seen::Below)
}

pub(super) fn is_opaque(folder: &OwnedFd) -> Result<bool, Errno> {
    let folder = openat(folder, ".", FOLDER, Mode::empty())?;
    let mut value = [0; 1];
    match fgetxattr(&folder, "trusted.overlay.opaque", &mut value) {
        Ok(count) => Ok(count == 1 && value == *b"y"),
        Err(Errno::NODATA | Errno::RANGE | Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Opens what is open as a handle alone; only for what was seen to be a file.
fn reopen(handle: &OwnedFd, flags: OFlags) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
    openat(
        CWD,
        path,
        flags | OFlags::NONBLOCK | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

fn open_stack(own: &OwnedFd, below: &[PathBuf]) -> Result<Vec<OwnedFd>, DiskError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error: Errno| DiskError::new("open", &path, error)
    };
    let own = openat(own, ".", HANDLE, Mode::empty()).map_err(failed(Path::new("files")))?;
    let mut stack = vec![own];
    for path in below {
        let layer = openat(CWD, path, HANDLE, Mode::empty()).map_err(failed(path))?;
        stack.push(layer);
    }
    Ok(stack)
}

/// Copies owner, mode and the attributes that layers may have to what is at `path`.
fn copy_attributes(
    tree: &Tree,
    source: impl std::os::fd::AsFd,
    (target, path): (impl std::os::fd::AsFd, &Inside),
    stat: &Stat,
) -> Result<(), Errno> {
    fchown(
        &target,
        Some(Uid::from_raw(stat.st_uid)),
        Some(Gid::from_raw(stat.st_gid)),
    )?;
    fchmod(&target, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
    let mut names = vec![0; XATTR_BYTES_MAX];
    let count = match flistxattr(&source, names.as_mut_slice()) {
        Ok(count) => count,
        Err(Errno::OPNOTSUPP) => 0,
        Err(error) => return Err(error),
    };
    for name in names[..count]
        .split(|byte| *byte == 0)
        .filter(|name| is_kept(name))
    {
        let mut value = vec![0; XATTR_BYTES_MAX];
        let count = fgetxattr(&source, name, value.as_mut_slice())?;
        tree.set_attribute(&target, path, (name, &value[..count]))?;
    }
    Ok(())
}

fn copy_range(
    source: &mut File,
    target: &mut File,
    bytes: u64,
    buffer: &mut [u8],
) -> io::Result<()> {
    let mut source = source.take(bytes);
    loop {
        let count = source.read(buffer)?;
        if count == 0 {
            return Ok(());
        }
        target.write_all(&buffer[..count])?;
    }
}

fn mtime(stat: &Stat) -> (i64, u32) {
    (
        stat.st_mtime,
        u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
    )
}
