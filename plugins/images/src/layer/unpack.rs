//! The entries of a layer put into its folder, one after the other.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Stat};
use rustix::fs::{FileType, Mode, linkat, makedev, mkdirat, mknodat, symlinkat};

use super::archive::Archive;
use super::entry::{Entry, Inside, Kind, refused};
use super::tar_split::TarSplit;
use super::tree::{Made, Owner, Tree, is_whiteout, last};
use super::whiteout::{Meaning, meaning};
use super::{LayerError, UnpackContext};
use crate::disk::DiskError;

const BUFFER_BYTES: usize = 64 << 10;
/// What one deferred thing takes in memory beside its names, about.
const DEFERRED_BYTES: u64 = 96;
/// Files take whole blocks on disk.
pub(super) const DISK_BLOCK: u64 = 4096;

/// A layer whose own entries are in place; what depends on the layers below is still to be done.
#[derive(Debug, Default)]
pub(crate) struct Unpacked {
    /// Folders that have no entry: they are as the layers below have them.
    pub(super) implied: BTreeSet<Inside>,
    /// Hard links to files of the layers below, by their paths.
    pub(super) links: BTreeMap<Inside, LowerLink>,
    /// Times of folders, which change as long as something is put into them.
    pub(super) times: BTreeMap<Inside, (i64, u32)>,
    /// Folders that hide what the layers below have in them, and whether the file system keeps the mark of that.
    pub(super) opaque_folders: BTreeMap<Inside, bool>,
    /// What of the tar's paths lies elsewhere, in the order of the moves.
    pub(crate) moved: Vec<Moved>,
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
    pub(crate) opaque: bool,
    /// Of the tar.
    pub(crate) tar_bytes: u64,
}

/// A hard link to a file of a layer below, for which an empty file stands in.
#[derive(Debug)]
pub(super) struct LowerLink {
    pub(super) target: Inside,
    /// The inode of the file that stands in: another one was put there by a later entry.
    pub(super) inode: u64,
}

/// A folder of the tar whose entries lie elsewhere: the layers below have a link in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) from: Inside,
    pub(crate) to: Inside,
}

impl Unpacked {
    /// Forgets a folder that has been taken away, and what was below it: in as many steps as there are of those.
    fn forget(&mut self, path: &Inside) {
        let implied = self.implied.range(path.below()).cloned();
        let times = self.times.range(path.below()).map(|(path, _)| path.clone());
        let links = self.links.range(path.below()).map(|(path, _)| path.clone());
        let opaque = self.opaque_folders.range(path.below());
        let opaque = opaque.map(|(path, _)| path.clone());
        let below = implied.chain(times).chain(links).chain(opaque);
        let mut gone: Vec<Inside> = below.collect();
        gone.push(path.clone());
        for path in &gone {
            self.opaque_folders.remove(path);
            self.implied.remove(path);
            self.times.remove(path);
            self.links.remove(path);
        }
    }
}

/// Unpacks the tar in `reader` into the scratch folder of `context`, up to the tar's end. `split` sees all that is read,
/// and is told which of it is content of files.
pub(super) fn unpack(
    reader: impl Read,
    context: &UnpackContext,
    split: &RefCell<TarSplit>,
) -> Result<Unpacked, LayerError> {
    let mut archive = Archive::new(reader, context.limits.header_bytes);
    let mut unpacking = Unpacking {
        tree: Tree::create(&context.scratch)?,
        context,
        split,
        done: Unpacked {
            inodes: 1,
            bytes: DISK_BLOCK,
            ..Unpacked::default()
        },
        metadata: 0,
        entries: 0,
        components: 0,
    };
    context.disk.unsynced(&context.scratch.join("files"));
    while let Some(entry) = archive.next_entry()? {
        unpacking.entry(&entry, &mut archive)?;
        split.borrow_mut().check()?;
    }
    unpacking.tree.report_lost();
    Ok(unpacking.done)
}

struct Unpacking<'a> {
    tree: Tree,
    context: &'a UnpackContext,
    split: &'a RefCell<TarSplit>,
    done: Unpacked,
    /// Bytes that `done` has in memory, about.
    metadata: u64,
    entries: u64,
    /// Components of the paths of all entries.
    components: u64,
}

impl Unpacking<'_> {
    fn entry(&mut self, entry: &Entry, archive: &mut Archive<impl Read>) -> Result<(), LayerError> {
        self.entries += 1;
        if self.entries > self.context.limits.entries {
            let limit = self.context.limits.entries;
            return Err(LayerError::TooLarge {
                what: "entries",
                limit,
            });
        }
        self.context.check_time()?;
        let path = Inside::new(&entry.path).map_err(|reason| refused(&entry.path, reason))?;
        self.count_components(&path)?;
        let step = self.context.disk.step();
        step.map_err(|error| self.tree.failed("unpack", &path, error))?;
        let Some((parent, name)) = path.split() else {
            return self.root(entry, &path);
        };
        match meaning(&entry.path, name)? {
            Meaning::Itself => {}
            Meaning::Nothing => return Ok(()),
            Meaning::HidesAll => return self.hide_all(&parent),
            Meaning::Hides(hidden) => return self.hide(&parent, hidden),
        }
        let (folder, parent) = self.parent(&parent)?;
        // Links on the way were followed: from here on it is called by where it is.
        let path = parent
            .child(name)
            .map_err(|reason| refused(&entry.path, reason))?;
        let there = self.tree.look(&folder, &path)?;
        match entry.kind {
            Kind::Folder => self.folder(entry, &folder, &path, there.as_ref()),
            Kind::HardLink => self.hard_link(entry, &folder, &path, there.as_ref()),
            Kind::File => {
                self.make_way(&folder, &path, there.as_ref())?;
                self.done.inodes += 1;
                self.file(entry, &folder, &path, archive)
            }
            Kind::Symlink | Kind::CharDevice | Kind::BlockDevice | Kind::Fifo => {
                self.make_way(&folder, &path, there.as_ref())?;
                self.done.inodes += 1;
                self.node(entry, &folder, &path)
            }
        }
    }

    /// Counts entries times depth: each component of a path is a step on the disk.
    fn count_components(&mut self, path: &Inside) -> Result<(), LayerError> {
        let limits = &self.context.limits;
        let depth = path.ends().count();
        if depth > limits.depth {
            return Err(refused(path.bytes(), "it lies too deep"));
        }
        self.components = self
            .components
            .saturating_add(u64::try_from(depth).unwrap_or(u64::MAX));
        match self.components > limits.path_components {
            true => Err(LayerError::TooLarge {
                what: "components of paths",
                limit: limits.path_components,
            }),
            false => Ok(()),
        }
    }

    /// Opens the folder that an entry lies in, and returns where that is.
    fn parent(&mut self, parent: &Inside) -> Result<(OwnedFd, Inside), LayerError> {
        let mut made = Vec::new();
        let found = self
            .tree
            .folder(parent, &mut |path, how| made.push((path.clone(), how)))?;
        for (path, how) in made {
            self.remember(path.bytes().len())?;
            self.done.inodes += 1;
            self.done.bytes += DISK_BLOCK;
            match how {
                Made::Implied => drop(self.done.implied.insert(path)),
                Made::Replaced { is_marked } => {
                    self.done.opaque_folders.insert(path, is_marked);
                }
            }
        }
        Ok(found)
    }

    /// Hides what the layers below have in the folder `name`, which is at `path`.
    fn make_opaque(
        &mut self,
        folder: &OwnedFd,
        name: &[u8],
        path: &Inside,
    ) -> Result<(), LayerError> {
        let is_marked = self
            .tree
            .make_opaque(folder, name)
            .map_err(|error| self.tree.failed("mark", path, error))?;
        self.remember(path.bytes().len())?;
        self.done.opaque_folders.insert(path.clone(), is_marked);
        Ok(())
    }

    /// Counts what is kept in memory until the layer is done.
    fn remember(&mut self, bytes: usize) -> Result<(), LayerError> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.metadata = self
            .metadata
            .saturating_add(bytes)
            .saturating_add(DEFERRED_BYTES);
        let limit = self.context.limits.metadata_bytes;
        match self.metadata > limit {
            true => Err(LayerError::TooLarge {
                what: "bytes of names",
                limit,
            }),
            false => Ok(()),
        }
    }

    fn root(&mut self, entry: &Entry, path: &Inside) -> Result<(), LayerError> {
        if entry.kind != Kind::Folder {
            return Err(refused(&entry.path, "the root of a layer is a folder"));
        }
        self.tree.set(self.tree.root(), path, entry)?;
        self.set_later(path, entry)
    }

    fn set_later(&mut self, path: &Inside, entry: &Entry) -> Result<(), LayerError> {
        self.remember(path.bytes().len())?;
        self.done.times.insert(path.clone(), entry.mtime);
        Ok(())
    }

    fn make_way(
        &mut self,
        folder: &OwnedFd,
        path: &Inside,
        there: Option<&Stat>,
    ) -> Result<(), LayerError> {
        let Some(stat) = there else { return Ok(()) };
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            self.done.forget(path);
        }
        self.tree.clear(folder, path, stat)
    }

    fn folder(
        &mut self,
        entry: &Entry,
        parent: &OwnedFd,
        path: &Inside,
        there: Option<&Stat>,
    ) -> Result<(), LayerError> {
        let is_folder = |stat: &Stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if !there.is_some_and(is_folder) {
            self.make_way(parent, path, there)?;
            let made = mkdirat(parent, last(path), Mode::RWXU);
            made.map_err(|error| self.tree.failed("create", path, error))?;
            self.done.inodes += 1;
            self.done.bytes += DISK_BLOCK;
        }
        if there.is_some_and(is_whiteout) {
            self.make_opaque(parent, last(path), path)?;
        }
        self.done.implied.remove(path);
        let opened = rustix::fs::openat2(
            parent,
            last(path),
            super::tree::FOLDER,
            Mode::empty(),
            super::tree::BENEATH,
        );
        let opened = opened.map_err(|error| self.tree.failed("open", path, error))?;
        self.tree.set(&opened, path, entry)?;
        self.set_later(path, entry)
    }

    fn file(
        &mut self,
        entry: &Entry,
        folder: &OwnedFd,
        path: &Inside,
        archive: &mut Archive<impl Read>,
    ) -> Result<(), LayerError> {
        let mut file = self.tree.create_file(folder, path)?;
        let limit = self.context.limits.layer_bytes;
        if entry.sparse.is_some() && entry.logical_size() > limit {
            let what = "bytes in a sparse file";
            return Err(LayerError::TooLarge { what, limit });
        }
        let mut buffer =
            vec![0; BUFFER_BYTES.min(usize::try_from(entry.size).unwrap_or(BUFFER_BYTES))];
        for part in entry.parts() {
            if part.offset > 0 {
                let sought = file.seek(SeekFrom::Start(part.offset));
                sought.map_err(|error| self.tree.failed("write", path, error))?;
            }
            self.split.borrow_mut().begin_content();
            self.content((&mut file, path), part.length, archive, &mut buffer)?;
            self.split.borrow_mut().end_content(path, part.offset);
            let bytes = on_disk(part.length);
            self.done.bytes = self.done.bytes.saturating_add(bytes);
        }
        if entry.sparse.is_some() {
            let sized = file.set_len(entry.logical_size());
            sized.map_err(|error| self.tree.failed("write", path, error))?;
        }
        self.tree.set(&file, path, entry)?;
        self.tree.set_time(&file, path, entry.mtime)
    }

    /// Writes the next `length` bytes of an entry's content.
    fn content(
        &self,
        (file, path): (&mut File, &Inside),
        length: u64,
        archive: &mut Archive<impl Read>,
        buffer: &mut [u8],
    ) -> Result<(), LayerError> {
        let mut content = archive.content().take(length);
        let mut written = 0;
        loop {
            self.context.check_time()?;
            let count = match content.read(buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            let wrote = file.write_all(&buffer[..count]);
            wrote.map_err(|error| self.tree.failed("write", path, error))?;
            written += u64::try_from(count).expect("a buffer's length fits");
        }
        match written == length {
            true => Ok(()),
            false => Err(archive.malformed("it ends within a file")),
        }
    }

    /// Makes what is never opened: links, devices, FIFOs.
    fn node(&mut self, entry: &Entry, folder: &OwnedFd, path: &Inside) -> Result<(), LayerError> {
        let name = last(path);
        let (major, minor) = entry.device;
        let made = match entry.kind {
            Kind::Symlink if entry.link.is_empty() => {
                return Err(refused(&entry.path, "a link to nothing"));
            }
            Kind::Symlink => symlinkat(entry.link.as_slice(), folder, name),
            Kind::CharDevice if entry.device == (0, 0) => {
                return Err(refused(
                    &entry.path,
                    "the character device 0/0 is overlayfs's whiteout",
                ));
            }
            Kind::CharDevice => make_node(
                folder,
                name,
                FileType::CharacterDevice,
                makedev(major, minor),
            ),
            Kind::BlockDevice => {
                make_node(folder, name, FileType::BlockDevice, makedev(major, minor))
            }
            Kind::Fifo => make_node(folder, name, FileType::Fifo, 0),
            Kind::File | Kind::HardLink | Kind::Folder => {
                unreachable!("those are made elsewhere")
            }
        };
        made.map_err(|error| self.tree.failed("create", path, error))?;
        let owner = Owner {
            uid: entry.uid,
            gid: entry.gid,
            mode: entry.mode,
        };
        self.tree.set_node(folder, path, owner, entry.mtime)
    }

    fn hard_link(
        &mut self,
        entry: &Entry,
        folder: &OwnedFd,
        path: &Inside,
        there: Option<&Stat>,
    ) -> Result<(), LayerError> {
        let target = Inside::new(&entry.link).map_err(|reason| refused(&entry.path, reason))?;
        let Some((parent, name)) = target.split() else {
            return Err(refused(&entry.path, "a hard link to the root"));
        };
        if target == *path {
            return Err(refused(&entry.path, "a hard link to itself"));
        }
        if let Some(target_folder) = self.existing(&parent)?
            && let Some(stat) = self.tree.look(&target_folder, &target)?
        {
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                return Err(refused(&entry.path, "a hard link to a folder"));
            }
            if is_whiteout(&stat) {
                return Err(refused(
                    &entry.path,
                    "a hard link to what the layer removes",
                ));
            }
            if there.is_some_and(|there| there.st_ino == stat.st_ino) {
                return Ok(());
            }
            self.make_way(folder, path, there)?;
            let linked = linkat(&target_folder, name, folder, last(path), AtFlags::empty());
            return linked.map_err(|error| self.tree.failed("link", path, error));
        }
        self.make_way(folder, path, there)?;
        let stand_in = self.tree.create_file(folder, path)?;
        let stat = rustix::fs::fstat(&stand_in);
        let inode = stat
            .map_err(|error| self.tree.failed("look at", path, error))?
            .st_ino;
        self.remember(path.bytes().len() + target.bytes().len())?;
        self.done.inodes += 1;
        let link = LowerLink { target, inode };
        self.done.links.insert(path.clone(), link);
        Ok(())
    }

    /// Opens a folder if the layer has it.
    fn existing(&self, path: &Inside) -> Result<Option<OwnedFd>, LayerError> {
        match self.tree.open_folder(path) {
            Ok(folder) => Ok(Some(folder)),
            Err(LayerError::Disk(DiskError { source, .. }))
                if matches!(
                    source.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) || source.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Hides `name` of the layers below; what this layer itself has of that name stays.
    fn hide(&mut self, parent: &Inside, name: &[u8]) -> Result<(), LayerError> {
        let (folder, parent) = self.parent(parent)?;
        let hidden = parent
            .child(name)
            .map_err(|reason| refused(parent.bytes(), reason))?;
        match self.tree.look(&folder, &hidden)? {
            None => {
                self.done.inodes += 1;
                make_node(&folder, name, FileType::CharacterDevice, 0)
                    .map_err(|error| self.tree.failed("hide", &hidden, error))
            }
            Some(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                self.make_opaque(&folder, name, &hidden)
            }
            // It hides what lies below by being there.
            Some(_) => Ok(()),
        }
    }

    fn hide_all(&mut self, parent: &Inside) -> Result<(), LayerError> {
        if parent.bytes().is_empty() {
            // overlayfs doesn't look for the mark on the roots of layers: those below are left out of the stack.
            self.done.opaque = true;
            return Ok(());
        }
        let (folder, parent) = self.parent(parent)?;
        if parent.bytes().is_empty() {
            // A link of the layer leads to the root.
            self.done.opaque = true;
            return Ok(());
        }
        self.make_opaque(&folder, b".", &parent)
    }
}

/// Returns the bytes of the disk that a file takes.
pub(super) fn on_disk(size: u64) -> u64 {
    size.div_ceil(DISK_BLOCK).saturating_mul(DISK_BLOCK)
}

pub(super) fn make_node(
    folder: &OwnedFd,
    name: &[u8],
    kind: FileType,
    device: u64,
) -> Result<(), rustix::io::Errno> {
    mknodat(folder, name, kind, Mode::RUSR | Mode::WUSR, device)
}
