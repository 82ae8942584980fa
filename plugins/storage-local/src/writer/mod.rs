//! Files that change all at once: upstream's AtomicWriter (pkg/volume/util/atomic_writer.go, 1.36).
//!
//! The files lie in `..TIME.NUMBER`, `..data` links to that folder, and every name at the top of the volume links to
//! `..data/NAME`. A new version is made beside the old one and seen by one rename. A write that fails takes its
//! traces away and leaves the old version as it was; what a crash leaves is swept by the next write.
//!
//! Unlike upstream, a version is also replaced when a mode or an owner differs, and a failed write does not take
//! the volume away.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use mounts::answer::failed;
use mounts::ownership;
use proto::storage::Ownership;
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid, fchmod, fchown, fstat, mkdirat, open, openat,
    readlinkat, renameat, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;
use tonic::Status;

use crate::payload::{Payload, PayloadEntry};
use crate::state::stamp;
use crate::state::tree::{self, FileNode};

const DATA: &str = "..data";
const DATA_NEW: &str = "..data_tmp";
/// Upstream's: every user may enter.
const FOLDER_MODE: u32 = 0o755;
/// What an ownership adds to a file of a volume that only the node writes to.
const GROUP_READS: u32 = 0o440;
/// How many names of a new version are tried while they exist already.
const TRIES: usize = 16;
const CHUNK: usize = 16 << 10;

/// Points at which a test stops a write, in the order in which they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Swept,
    FolderMade,
    FileWritten,
    Owned,
    LinkMade,
    Swapped,
    NameLinked,
    NamePruned,
    OldRemoved,
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteOutcome {
    /// The files were as they should be.
    Unchanged,
    Replaced,
}

/// One volume that is written to.
pub(crate) struct Writer<'a> {
    path: &'a Path,
    root: OwnedFd,
    payload: &'a Payload,
    ownership: Option<&'a Ownership>,
    step: &'a dyn Fn(Step) -> Result<(), Status>,
}

/// Makes the volume hold exactly these files.
pub(crate) fn write(
    path: &Path,
    payload: &Payload,
    ownership: Option<&Ownership>,
) -> Result<WriteOutcome, Status> {
    Writer::open(path, payload, ownership, &|_| Ok(()))?.write()
}

/// Tells whether a version has been written.
pub(crate) fn written(path: &Path) -> bool {
    path.join(DATA).is_dir()
}

impl<'a> Writer<'a> {
    fn open(
        path: &'a Path,
        payload: &'a Payload,
        ownership: Option<&'a Ownership>,
        step: &'a dyn Fn(Step) -> Result<(), Status>,
    ) -> Result<Self, Status> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = open(path, flags, Mode::empty())
            .map_err(|error| failed(format!("open {}", path.display()), error))?;
        Ok(Self {
            path,
            root,
            payload,
            ownership,
            step,
        })
    }

    fn write(&self) -> Result<WriteOutcome, Status> {
        let old = self.version();
        self.sweep(old.as_deref())?;
        (self.step)(Step::Swept)?;
        let unchanged = old.as_deref().is_some_and(|version| self.holds(version));
        if !unchanged {
            self.replace()?;
            (self.step)(Step::Swapped)?;
        }
        self.link_names()?;
        self.prune_names()?;
        if unchanged {
            return Ok(WriteOutcome::Unchanged);
        }
        self.sweep(self.version().as_deref())?;
        (self.step)(Step::OldRemoved)?;
        Ok(WriteOutcome::Replaced)
    }

    /// The version that is seen now, if it is a folder of this volume.
    fn version(&self) -> Option<String> {
        let link = readlinkat(&self.root, DATA, Vec::new()).ok()?;
        let name = link.into_string().ok()?;
        let ours = name.starts_with("..") && !name.contains('/') && name != ".." && name != DATA;
        let stat = statat(&self.root, name.as_str(), AtFlags::SYMLINK_NOFOLLOW).ok()?;
        (ours && kind(&stat) == FileType::Directory).then_some(name)
    }

    /// Removes every version but this one, and every other trace of a write that was cut off.
    fn sweep(&self, keep: Option<&str>) -> Result<(), Status> {
        for node in self.entries()? {
            let data = node.path == DATA && node.kind == FileType::Symlink;
            if !node.path.starts_with("..") || data || Some(node.path.as_str()) == keep {
                continue;
            }
            // A process may have mounted something in it. That must not keep the new version from being seen.
            if let Err(error) = tree::remove(&self.root, &node) {
                let path = self.path.join(&node.path);
                tracing::warn!(%error, path = %path.display(), "cannot remove an old version");
            }
        }
        Ok(())
    }

    /// Makes the new version and lets it be seen.
    fn replace(&self) -> Result<(), Status> {
        let version = self.make_version()?;
        let made = self.fill(&version).and_then(|()| self.swap(&version));
        if made.is_err() {
            self.take_back(&version);
        }
        made
    }

    fn make_version(&self) -> Result<String, Status> {
        for _ in 0..TRIES {
            let version = stamp::version();
            match mkdirat(&self.root, version.as_str(), Mode::RWXU) {
                Ok(()) => return Ok(version),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(self.failed("mkdir", &version, error)),
            }
        }
        Err(self.failed("mkdir", DATA_NEW, Errno::EXIST))
    }

    fn fill(&self, version: &str) -> Result<(), Status> {
        let cannot = |what, path: &str, error: io::Error| {
            self.failed(what, &format!("{version}/{path}"), error)
        };
        let folder = tree::folder(&self.root, version).map_err(|e| cannot("open", "", e))?;
        open_to_all(&folder).map_err(|e| cannot("chmod", "", e))?;
        (self.step)(Step::FolderMade)?;
        for path in self.payload.folders() {
            make_folder(&folder, path).map_err(|e| cannot("mkdir", path, e))?;
        }
        for (path, entry) in self.payload.files() {
            write_file(&folder, path, entry).map_err(|e| cannot("write", path, e))?;
            (self.step)(Step::FileWritten)?;
        }
        if let Some(ownership) = self.ownership {
            ownership::apply(&self.path.join(version), ownership, true)?;
        }
        (self.step)(Step::Owned)
    }

    fn swap(&self, version: &str) -> Result<(), Status> {
        symlinkat(version, &self.root, DATA_NEW)
            .map_err(|error| self.failed("symlink", DATA_NEW, error))?;
        (self.step)(Step::LinkMade)?;
        renameat(&self.root, DATA_NEW, &self.root, DATA)
            .map_err(|error| self.failed("rename", DATA_NEW, error))
    }

    fn take_back(&self, version: &str) {
        for (name, kind) in [
            (DATA_NEW, FileType::Symlink),
            (version, FileType::Directory),
        ] {
            let node = FileNode {
                path: name.to_owned(),
                kind,
            };
            if let Err(error) = tree::remove(&self.root, &node) {
                let path = self.path.join(name);
                tracing::warn!(%error, path = %path.display(), "cannot remove a half-made version");
            }
        }
    }

    /// Tells whether a version is what it should be. One that cannot be read is not.
    fn holds(&self, version: &str) -> bool {
        let same = || -> io::Result<bool> {
            let folder = tree::folder(&self.root, version)?;
            let nodes = tree::walk(&folder)?;
            let folders = self.payload.folders();
            if nodes.len() != folders.len() + self.payload.count() {
                return Ok(false);
            }
            for node in &nodes {
                let as_it_should = match self.payload.file(&node.path) {
                    Some(entry) => self.same_file(&folder, &node.path, entry)?,
                    None => {
                        node.kind == FileType::Directory && folders.contains(node.path.as_str())
                    }
                };
                if !as_it_should {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        same().unwrap_or_else(|error| {
            let path = self.path.join(version);
            tracing::warn!(%error, path = %path.display(), "cannot read the old version");
            false
        })
    }

    fn same_file(&self, folder: &OwnedFd, path: &str, entry: &PayloadEntry) -> io::Result<bool> {
        let opened = match tree::file(folder, path) {
            // A link, or something that cannot be opened at all.
            Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                return Ok(false);
            }
            opened => opened?,
        };
        let stat = fstat(&opened)?;
        let (mode, group) = match self.ownership {
            Some(ownership) => (entry.mode | GROUP_READS, ownership.fs_group),
            None => (entry.mode, stat.st_gid),
        };
        let same = kind(&stat) == FileType::RegularFile
            && (stat.st_mode & 0o7777, stat.st_uid, stat.st_gid) == (mode, entry.owner, group)
            && u64::try_from(stat.st_size).is_ok_and(|size| size == entry.data.len() as u64);
        Ok(same && same_bytes(File::from(opened), &entry.data)?)
    }

    /// Makes the names at the top that are missing or lead elsewhere. What is no link is left: a folder that another
    /// volume is mounted on.
    fn link_names(&self) -> Result<(), Status> {
        for name in self.payload.tops() {
            let to = format!("{DATA}/{name}");
            match readlinkat(&self.root, name, Vec::new()) {
                Ok(link) if link.to_bytes() == to.as_bytes() => continue,
                Err(Errno::INVAL) => continue,
                Ok(_) => unlinkat(&self.root, name, AtFlags::empty())
                    .map_err(|error| self.failed("remove", name, error))?,
                Err(Errno::NOENT) => {}
                Err(error) => return Err(self.failed("readlink", name, error)),
            }
            symlinkat(&to, &self.root, name)
                .map_err(|error| self.failed("symlink", name, error))?;
            (self.step)(Step::NameLinked)?;
        }
        Ok(())
    }

    /// Removes the names at the top that are links of ours to what is no longer there.
    fn prune_names(&self) -> Result<(), Status> {
        let tops: BTreeSet<&str> = self.payload.tops();
        for node in self.entries()? {
            let name = node.path.as_str();
            if node.kind != FileType::Symlink || name.starts_with("..") || tops.contains(name) {
                continue;
            }
            let to = format!("{DATA}/{name}");
            match readlinkat(&self.root, name, Vec::new()) {
                Ok(link) if link.to_bytes() == to.as_bytes() => {}
                Ok(_) | Err(_) => continue,
            }
            unlinkat(&self.root, name, AtFlags::empty())
                .map_err(|error| self.failed("remove", name, error))?;
            (self.step)(Step::NamePruned)?;
        }
        Ok(())
    }

    fn entries(&self) -> Result<Vec<FileNode>, Status> {
        tree::entries(&self.root)
            .map_err(|error| failed(format!("open {}", self.path.display()), error))
    }

    fn failed(&self, what: &str, name: &str, error: impl Into<io::Error>) -> Status {
        failed(format!("{what} {}", self.path.join(name).display()), error)
    }
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

// Modes are set, not asked for: the umask takes nothing away then.
fn open_to_all(folder: &OwnedFd) -> io::Result<()> {
    Ok(fchmod(folder, Mode::from_raw_mode(FOLDER_MODE))?)
}

fn make_folder(version: &OwnedFd, path: &str) -> io::Result<()> {
    mkdirat(version, path, Mode::RWXU)?;
    open_to_all(&tree::folder(version, path)?)
}

fn write_file(version: &OwnedFd, path: &str, entry: &PayloadEntry) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(version, path, flags, Mode::RUSR | Mode::WUSR)?);
    file.write_all(&entry.data)?;
    fchown(&file, Some(Uid::from_raw(entry.owner)), None::<Gid>)?;
    Ok(fchmod(&file, Mode::from_raw_mode(entry.mode))?)
}

fn same_bytes(mut file: File, data: &[u8]) -> io::Result<bool> {
    let mut chunk = vec![0; CHUNK.min(data.len() + 1)];
    let mut rest = data;
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(rest.is_empty()),
            read => match rest.split_at_checked(read) {
                Some((part, after)) if part == &chunk[..read] => rest = after,
                Some(_) | None => return Ok(false),
            },
        }
    }
}
