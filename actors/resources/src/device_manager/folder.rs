//! The folder of device plugins: their sockets, the agent's own, and the checkpoint.
//!
//! Upstream: devicemanager/plugin/v1beta1/server.go (`Start`) and manager.go (`CleanupPluginDirectory`), 1.36.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::path::{Path, PathBuf};

use logic_placement::devices::checkpoint::FILE_NAME;

/// The name of the agent's socket, which plugins wait for.
const SOCKET: &str = "kubelet.sock";

/// The folder below the agent's root folder.
pub fn plugin_folder(root_dir: &Path) -> PathBuf {
    root_dir.join("device-plugins")
}

/// Whether the node has had devices before; a node without a checkpoint has been made anew, and its extended resources
/// are nought until plugins register. Known only before the device manager starts.
pub fn has_checkpoint(root_dir: &Path) -> bool {
    plugin_folder(root_dir).join(FILE_NAME).exists()
}

pub(super) fn socket(folder: &Path) -> PathBuf {
    folder.join(SOCKET)
}

/// Makes the folder, and removes the sockets of plugins in it: each registers again once the agent's socket is made anew,
/// which is replaced in one step later. No file `DEPRECATION` is written, by which plugins would not register: upstream has
/// the code for it (handler.go, `GetPluginHandler`) and never calls it.
///
/// # Errors
///
/// The folder can't be made or read. A socket that can't be removed is left and logged.
pub(super) fn prepare(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o750).create(folder)?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        // As upstream, what a link points to counts, and the link is what is removed.
        let is_socket = fs::metadata(&path).is_ok_and(|it| it.file_type().is_socket());
        if !is_socket || path == socket(folder) {
            continue;
        }
        if let Err(error) = fs::remove_file(&path) {
            tracing::error!("cannot remove {}: {error}", path.display());
        }
    }
    Ok(())
}
