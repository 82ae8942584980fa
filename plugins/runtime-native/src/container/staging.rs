//! Where an OCI runtime finds what a container in a user namespace is made of.
//!
//! The runtime sets such a container up as the namespace's root, which on the node is nobody: it cannot reach the
//! plugin's own folders. So what it needs is mounted a second time in a folder that this root may pass through, each
//! mount with the ids of its files mapped where that is asked for. The folder lies below one that everybody may pass
//! through, whatever the modes of the plugin's folders are.

use std::fs::{self, DirBuilder, File, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use id_mapped_mounts::{Depth, copy, map_ids, place};
use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::mount::{UnmountFlags, unmount};

use crate::error::CallError;
use crate::sandbox::namespaces::NamespaceError;
use crate::spec::UserIds;

/// Mounts of one container; what a request has at most is far more than the kernel takes.
const MAX_MOUNTS: usize = 4096;

/// Tells which folder above the stages not everybody may pass through, if there is one.
pub(crate) fn reached(stages: &Path) -> Result<(), String> {
    for folder in stages.ancestors() {
        let mode = fs::metadata(folder).map(|meta| meta.permissions().mode());
        match mode {
            Ok(mode) if mode & 0o001 != 0 => {}
            Ok(_) => {
                let folder = folder.display();
                return Err(format!("not everybody may pass through {folder}"));
            }
            Err(error) => return Err(format!("{}: {error}", folder.display())),
        }
    }
    Ok(())
}

/// The staged mounts of a container, or of a sandbox.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    folder: PathBuf,
}

/// Whose the files of a staged mount are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Owners<'a> {
    /// As on the disk.
    Disk,
    /// As the user namespace with this pin maps them.
    Mapped(&'a Path),
}

/// What is staged.
#[derive(Clone, Debug)]
pub(crate) struct Staged {
    pub(crate) path: String,
    /// Options that the source's mount has, and that cannot be taken from it in a user namespace.
    pub(crate) kept: Vec<&'static str>,
}

impl Stage {
    /// Makes the folder, which root of the namespace may pass through, and nobody else.
    pub(crate) fn make(folder: PathBuf, ids: &UserIds) -> Result<Stage, CallError> {
        let failed = || CallError::file("make", &folder);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .map_err(failed())?;
        chown(&folder, None, Some(ids.root().1)).map_err(failed())?;
        fs::set_permissions(&folder, Permissions::from_mode(0o710)).map_err(failed())?;
        Ok(Stage { folder })
    }

    /// Mounts a file or a folder, with the mounts below it, as `NAME` in the stage.
    pub(crate) fn put(
        &self,
        name: &str,
        source: &Path,
        owners: Owners<'_>,
    ) -> Result<Staged, CallError> {
        let target = self.folder.join(name);
        let made = match fs::metadata(source).map_err(CallError::file("find", source))? {
            meta if meta.is_dir() => fs::create_dir(&target),
            _ => File::create(&target).map(drop),
        };
        made.map_err(CallError::file("make", &target))?;
        let kept = kept(source)?;
        let mounted = copy(source, Depth::Recursive).and_then(|mount| {
            if let Owners::Mapped(namespace) = owners {
                map_ids(&mount, File::open(namespace)?)?;
            }
            place(mount, &target)
        });
        mounted.map_err(match owners {
            Owners::Disk => CallError::file("mount", source),
            Owners::Mapped(_) => CallError::file("mount, with mapped ids,", source),
        })?;
        let path = target.to_str().ok_or_else(|| CallError::Invalid {
            field: "userNamespaceFolder",
            found: target.display().to_string(),
            expected: "UTF-8",
        })?;
        Ok(Staged {
            path: path.to_owned(),
            kept,
        })
    }

    /// Unmounts everything in a stage, and removes it. Nothing there is right.
    pub(crate) fn remove(folder: &Path) -> Result<(), CallError> {
        Stage::remove_but(folder, None)?;
        match fs::remove_dir(folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(CallError::file("remove", folder)(error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Unmounts and removes everything in a stage but the entry of this name. Nothing there is right.
    pub(crate) fn remove_but(folder: &Path, name: Option<&str>) -> Result<(), CallError> {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(CallError::file("read", folder)(error)),
        };
        for entry in entries {
            let path = entry.map_err(CallError::file("read", folder))?.path();
            if name.is_none_or(|name| !path.ends_with(name)) {
                take_away(&path)?;
            }
        }
        Ok(())
    }
}

/// With everything below it: the kernel takes away what nobody else has.
fn take_away(path: &Path) -> Result<(), CallError> {
    for _ in 0..MAX_MOUNTS {
        match unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
            Ok(()) => {}
            Err(rustix::io::Errno::INVAL) => break,
            Err(error) => {
                return Err(NamespaceError::Unmount(path.to_owned(), error.into()).into());
            }
        }
    }
    let meta = fs::symlink_metadata(path).map_err(CallError::file("find", path))?;
    let removed = match meta.is_dir() {
        true => fs::remove_dir(path),
        false => fs::remove_file(path),
    };
    removed.map_err(CallError::file("remove", path))
}

/// The kernel locks these options of a mount that comes into a user namespace.
fn kept(source: &Path) -> Result<Vec<&'static str>, CallError> {
    let found = statvfs(source);
    let found = found.map_err(|error| CallError::file("find", source)(error.into()))?;
    let all = [
        (StatVfsMountFlags::NOSUID, "nosuid"),
        (StatVfsMountFlags::NODEV, "nodev"),
        (StatVfsMountFlags::NOEXEC, "noexec"),
        (StatVfsMountFlags::NOATIME, "noatime"),
        (StatVfsMountFlags::NODIRATIME, "nodiratime"),
    ];
    let has = all
        .into_iter()
        .filter(|(flag, _)| found.f_flag.contains(*flag));
    Ok(has.map(|(_, word)| word).collect())
}
