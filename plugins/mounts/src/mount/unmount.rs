//! Unmounting: all layers at one path, as often as one likes.

use std::path::Path;
use std::{fs, io};

use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use tonic::{Code, Status};

use crate::{answer, table};

/// More mounts on top of each other than any node has at one path.
const LAYERS_MAX: usize = 1024;

/// The force of an unmount: the flags of umount2(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Fails with EBUSY where the mount is in use.
    Plain,
    /// MNT_FORCE: aborts pending requests to a server that does not answer (NFS, FUSE); fails where it is in use.
    Force,
    /// MNT_DETACH: removes it from the tree at once; it ends when its last user has closed it.
    Detach,
}

impl How {
    fn flags(self) -> UnmountFlags {
        let how = match self {
            Self::Plain => UnmountFlags::empty(),
            Self::Force => UnmountFlags::FORCE,
            Self::Detach => UnmountFlags::DETACH,
        };
        how | UnmountFlags::NOFOLLOW
    }
}

/// Unmounts all that is mounted at exactly this path. Nothing mounted, or nothing there at all, is fine.
///
/// The path itself is looked at when nothing is mounted there any more, or the kernel refuses to unmount what is: a
/// volume whose server is gone does not hang this by itself.
pub fn unmount(target: &Path) -> Result<(), Status> {
    unmount_with(target, How::Plain)
}

/// As [`unmount`], with more force.
pub fn unmount_with(target: &Path, how: How) -> Result<(), Status> {
    for _ in 0..LAYERS_MAX {
        match rustix::mount::unmount(target, how.flags()) {
            Ok(()) | Err(Errno::INTR) => {}
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            // Nothing (more) is mounted there; or, rarely, the kernel refuses to unmount it.
            Err(Errno::INVAL) => return gone(target),
            Err(error) => return Err(refused(target, error)),
        }
    }
    Err(Status::internal(format!(
        "{} still has something mounted after {LAYERS_MAX} unmounts",
        target.display()
    )))
}

fn gone(target: &Path) -> Result<(), Status> {
    match table::is_mount_root(target) {
        Ok(true) => Err(refused(target, Errno::INVAL)),
        Ok(false) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(answer::failed(
            format!("cannot tell whether {} is mounted", target.display()),
            error,
        )),
    }
}

// The words of upstream, which runs umount(8) and passes on what that says.
fn refused(target: &Path, error: Errno) -> Status {
    let target = target.display();
    let (code, why) = match error {
        Errno::BUSY => (Code::FailedPrecondition, "target is busy".to_owned()),
        Errno::INVAL => (Code::FailedPrecondition, "not mounted".to_owned()),
        _ => (
            answer::code(&error.into()),
            answer::os_error_text(&error.into()),
        ),
    };
    Status::new(
        code,
        format!(
            "unmount failed: exit status 32\nUnmounting arguments: {target}\n\
             Output: umount: {target}: {why}."
        ),
    )
}

/// Unmounts a path and removes the empty folder or empty file that is left; nothing there is fine.
pub fn clean_up(target: &Path) -> Result<(), Status> {
    unmount(target)?;
    let failed = |error| answer::failed(format!("cannot remove {}", target.display()), error);
    let removed = match fs::symlink_metadata(target) {
        Ok(found) if found.is_dir() => fs::remove_dir(target),
        Ok(found) if found.is_file() && found.len() > 0 => {
            return Err(Status::failed_precondition(format!(
                "cannot remove {}: file not empty",
                target.display()
            )));
        }
        Ok(_) => fs::remove_file(target),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}
