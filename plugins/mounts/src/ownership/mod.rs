//! The group of a volume's files (fsGroup), with upstream's masks (pkg/volume/volume_linux.go, 1.36).

#[cfg(test)]
mod tests;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use proto::storage::{ChangePolicy, Ownership};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat, chmod, chownat, fstat, openat};
use rustix::io::Errno;
use tonic::Status;

use crate::answer;
use crate::mount::by_number;
use blocking_pool::Cancel;
use files::walk::{self, Crossing, Spot, Visitor};

const READ_WRITE: u32 = 0o660;
const READ_ONLY: u32 = 0o440;
const FOLDER: u32 = 0o110;
const SET_GROUP: u32 = 0o2000;
const PERMISSIONS: u32 = 0o7777;

/// A change that takes longer than this is worth a warning, see [`slow`].
pub const SLOW: Duration = Duration::from_secs(30);

/// The result of [`apply`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// So many files and folders were visited.
    Changed(u64),
    /// The root's group and mode matched already (`OnRootMismatch`).
    Skipped,
}

/// Gives the volume at `path` to a group. Folders come after their content and the root comes last, so that a change
/// that was interrupted is not taken for one that was made.
///
/// What refuses to be changed is left as it is, as upstream leaves it; the log says how many.
pub fn apply(path: &Path, ownership: &Ownership, read_only: bool) -> Result<Applied, Status> {
    let failed = |error| answer::failed(format!("cannot look at {}", path.display()), error);
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?;
    let stat = fstat(&root).map_err(failed)?;
    let change = Change::new(ownership.fs_group, read_only);
    if ownership.policy() == ChangePolicy::ChangeOnRootMismatch && change.root_is_right(&stat) {
        return Ok(Applied::Skipped);
    }
    let mut work = Work {
        change,
        visited: 0,
        refused: 0,
    };
    if is(&stat, FileType::Directory) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(&root, c".", flags, Mode::empty()).map_err(failed)?;
        walk::walk(folder, path, Crossing::Allowed, &mut work)?;
    }
    work.change(&root, &stat, path);
    if work.refused > 0 {
        let (refused, path) = (work.refused, path.display());
        tracing::warn!("{refused} files of {path} refused the change of their group or mode");
    }
    Ok(Applied::Changed(work.visited))
}

/// Returns the warning about a change that takes longer than [`SLOW`], in upstream's words.
pub fn slow(path: &Path, pod_uid: &str) -> String {
    let path = path.to_string_lossy();
    let from = path.find(pod_uid).unwrap_or(0);
    format!(
        "Setting volume ownership for {} is taking longer than expected, consider using OnRootMismatch - \
         https://kubernetes.io/docs/tasks/configure-pod-container/security-context/\
         #configure-volume-permission-and-ownership-change-policy-for-pods",
        &path[from..]
    )
}

/// The group and modes that every file is to have.
#[derive(Clone, Copy, Debug)]
struct Change {
    group: u32,
    mask: u32,
}

impl Change {
    fn new(group: u32, read_only: bool) -> Self {
        let mask = if read_only { READ_ONLY } else { READ_WRITE };
        Self { group, mask }
    }

    fn mode(self, stat: &Stat) -> u32 {
        let before = stat.st_mode & PERMISSIONS;
        match is(stat, FileType::Directory) {
            true => before | self.mask | FOLDER | SET_GROUP,
            false => before | self.mask,
        }
    }

    /// A root that is no folder never is.
    fn root_is_right(self, stat: &Stat) -> bool {
        let wanted = self.mask | FOLDER | SET_GROUP;
        is(stat, FileType::Directory)
            && stat.st_gid == self.group
            && stat.st_mode & wanted == wanted
    }
}

fn is(stat: &Stat, kind: FileType) -> bool {
    FileType::from_raw_mode(stat.st_mode) == kind
}

struct Work {
    change: Change,
    visited: u64,
    refused: u64,
}

impl Work {
    fn change(&mut self, opened: &OwnedFd, stat: &Stat, path: &Path) {
        self.visited += 1;
        if let Err(error) = self.try_change(opened, stat) {
            if self.refused == 0 {
                tracing::warn!("{} refused the change: {error}", path.display());
            }
            self.refused += 1;
        }
    }

    fn try_change(&self, opened: &OwnedFd, stat: &Stat) -> Result<(), Errno> {
        let mode = self.change.mode(stat);
        if stat.st_gid == self.change.group && stat.st_mode & PERMISSIONS == mode {
            return Ok(());
        }
        let group = Some(Gid::from_raw(self.change.group));
        let owned = chownat(opened, c"", None, group, AtFlags::EMPTY_PATH);
        // The permissions of a link mean nothing, and a change of them would change what it leads to. For the others,
        // the number leads to what was looked at, even if its name leads elsewhere by now.
        if !is(stat, FileType::Symlink) {
            // Also gives back the setuid bit that a change of the group takes.
            chmod(by_number(opened), Mode::from_raw_mode(mode))?;
        }
        owned
    }

    fn spot(&mut self, spot: &Spot<'_>) {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(spot.folder, spot.name, flags, Mode::empty());
        let opened = opened.and_then(|opened| Ok((fstat(&opened)?, opened)));
        match opened {
            Ok((stat, opened)) => self.change(&opened, &stat, spot.path),
            Err(Errno::NOENT) => {}
            Err(_) => self.refused += 1,
        }
    }
}

impl Visitor for Work {
    type Error = Status;

    fn check(&mut self) -> Result<(), Status> {
        Cancel::current().check()
    }

    fn thing(&mut self, spot: &Spot<'_>) -> Result<(), Status> {
        self.spot(spot);
        Ok(())
    }

    fn leave(&mut self, spot: &Spot<'_>) -> Result<(), Status> {
        self.spot(spot);
        Ok(())
    }

    fn failed(&mut self, path: &Path, error: Errno) -> Result<(), Status> {
        let path = path.display();
        Err(answer::failed(format!("cannot look at {path}"), error))
    }

    fn lost(&mut self, path: &Path, error: Errno) -> Status {
        answer::lost(path, error)
    }
}
