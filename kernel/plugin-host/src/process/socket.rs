//! The listening socket of a plugin: bound here, kept here, handed to each generation.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::{fs, io};

use interprocess::local_socket::{GenericFilePath, Listener, ListenerOptions, ToFsName};

/// A bound, listening socket. Connections to it wait in its backlog until a process accepts them.
///
/// SO_PEERCRED tells a client who called `listen`, whichever process accepts: so each of our connections is checked to
/// be to a socket of this very process, and not to one that somebody has put in its place. That the right process
/// accepts follows from the rest: the directory is ours alone (0700), the descriptor is handed to the process that we
/// started and to no other, and `Info` names the plugin that answers. The plugin checks the uid of each caller.
#[derive(Debug)]
pub(crate) struct PluginSocket {
    listener: OwnedFd,
    path: Mutex<PathBuf>,
    /// Device and number of its file.
    file: (u64, u64),
}

impl PluginSocket {
    /// Binds `path`, replacing what a dead agent left there.
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        let name = path.to_fs_name::<GenericFilePath>()?;
        let options = ListenerOptions::new()
            .name(name)
            .reclaim_name(false)
            .try_overwrite(true);
        let Listener::UdSocket(listener) = options.create_sync()?;
        Ok(Self {
            listener: listener.into(),
            path: Mutex::new(path.to_owned()),
            file: file(path)?,
        })
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.path
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Takes over the name of another socket: new connections to that name reach this one.
    pub(crate) fn rename(&self, to: &Path) -> io::Result<()> {
        let mut path = self.path.lock().unwrap_or_else(PoisonError::into_inner);
        fs::rename(&*path, to)?;
        to.clone_into(&mut path);
        Ok(())
    }

    /// Whether the name still leads here: a cleaner of old files may have removed it, or another process taken it.
    pub(crate) fn reachable(&self) -> bool {
        file(&self.path()).is_ok_and(|file| file == self.file)
    }

    /// Makes another descriptor of the same socket, for a plugin to inherit.
    pub(super) fn hand_over(&self) -> io::Result<OwnedFd> {
        self.listener.as_fd().try_clone_to_owned()
    }
}

fn file(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Makes a directory of mode 0700; one that exists gets that mode.
pub(crate) fn private_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))
}
