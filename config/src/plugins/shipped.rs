//! The plugins that ship: one program beside the agent's own, told by its first argument which of them it is to be.

use std::path::Path;

use super::PluginStart;

pub(super) const PROGRAM: &str = "oxlet-plugins";

/// The commands of the plugin file that mean a shipped plugin; a path means any other program.
pub(super) const NAMES: [&str; 7] = [
    "network-cni",
    "network-native",
    "runtime-containerd",
    "runtime-crio",
    "runtime-native",
    "storage-csi",
    "storage-local",
];

/// Starts the shipped plugin of this name with these arguments; `program` is the folder of the agent's own program.
pub(super) fn start(name: &str, args: Vec<String>, program: &Path) -> PluginStart {
    PluginStart::Managed {
        command: program.join(PROGRAM),
        args: [name.to_owned()].into_iter().chain(args).collect(),
    }
}
