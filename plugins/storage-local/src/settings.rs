//! The plugin's settings, as the agent configures it.

use std::path::PathBuf;

use serde::Deserialize;
use tonic::Status;

/// The plugin's section of the plugin file.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Settings {
    /// The kubelet's folder: that of `pods` and `plugins`.
    pub(crate) root_dir: PathBuf,
    #[serde(default)]
    pub(crate) root_propagation: Propagation,
    /// The program that mounts what is on the network, in the place of mount(8) (`--experimental-mounter-path`).
    pub(crate) mounter_path: Option<PathBuf>,
}

/// Whether mounts below the folder are seen in containers that want to see them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Propagation {
    /// As the node has it.
    #[default]
    AsItIs,
    /// They are: the folder is made a shared mount unless it lies on one.
    Shared,
}

impl Settings {
    /// Checks what has a form.
    pub(crate) fn check(&self) -> Result<(), Status> {
        let root = self.root_dir.to_string_lossy();
        mounts::requests::absolute("rootDir", &root)?;
        match &self.mounter_path {
            Some(mounter) => {
                mounts::requests::absolute("mounterPath", &mounter.to_string_lossy()).map(drop)
            }
            None => Ok(()),
        }
    }
}
