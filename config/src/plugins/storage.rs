//! The storage plugins: there are these two, declared or not.

use std::path::Path;

use super::{PluginConfig, PluginKind, shipped};

/// Each is named as its command.
const NAMES: [&str; 2] = ["storage-local", "storage-csi"];

/// Volumes are assigned to plugins by these names, so they are reserved for storage plugins.
pub(super) fn check_name(kind: PluginKind, name: &str) -> Result<(), String> {
    match (kind, NAMES.contains(&name)) {
        (PluginKind::Storage, true) | (PluginKind::Runtime | PluginKind::Network, false) => Ok(()),
        (PluginKind::Storage, false) => {
            let names = NAMES.join(" or ");
            Err(format!(
                "{name:?} is no storage plugin that this version knows; expected {names}"
            ))
        }
        (PluginKind::Runtime | PluginKind::Network, true) => Err(format!(
            "{name:?} is the name of a storage plugin; expected another one, or kind \"storage\""
        )),
    }
}

/// Adds those that were not declared, from the directory of the agent's own program.
pub(super) fn with_defaults(mut plugins: Vec<PluginConfig>, program: &Path) -> Vec<PluginConfig> {
    for name in NAMES {
        if plugins.iter().any(|plugin| plugin.name == name) {
            continue;
        }
        let start = shipped::start(name, Vec::new(), program);
        plugins.push(PluginConfig::new(name, PluginKind::Storage, start));
    }
    plugins
}
