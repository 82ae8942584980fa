//! The network plugin: one at most, because a node has one network for its pods.

use super::{PluginConfig, PluginError, PluginKind};

/// The active runtime is hosted under this name, whatever its own.
const TAKEN: &str = "runtime";

/// Refuses a second network plugin, and one with the runtime's name.
pub(super) fn check(plugins: &[PluginConfig]) -> Result<(), PluginError> {
    let networks = plugins
        .iter()
        .filter(|plugin| plugin.kind == PluginKind::Network);
    let names: Vec<_> = networks.map(|plugin| plugin.name.as_str()).collect();
    if names.len() > 1 {
        let names = names.join(", ");
        let why = format!("expected at most one of kind \"network\", found {names}");
        return Err(PluginError::field("plugins", why));
    }
    if names == [TAKEN] {
        let why =
            format!("a network plugin cannot be named {TAKEN:?}, which is the active runtime's");
        return Err(PluginError::field("plugins", why));
    }
    Ok(())
}
