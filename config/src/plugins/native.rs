//! The native runtime: `runtime: native` alone is a whole plugin file.

use std::path::Path;

use super::{PluginConfig, PluginKind, shipped};

/// The runtime's name, for a file that declares none of this name.
const NAME: &str = "native";
const NETWORK: &str = "network";

/// Adds the native runtime where it is the active one and not declared, and with it a network plugin where none is
/// declared: no daemon brings the pods' network along.
pub(super) fn with_defaults(
    mut plugins: Vec<PluginConfig>,
    active: &str,
    program: &Path,
) -> Vec<PluginConfig> {
    if active != NAME || plugins.iter().any(|plugin| plugin.name == NAME) {
        return plugins;
    }
    let start = shipped::start("runtime-native", Vec::new(), program);
    plugins.push(PluginConfig::new(NAME, PluginKind::Runtime, start));
    let has_network = plugins
        .iter()
        .any(|plugin| plugin.kind == PluginKind::Network);
    if !has_network && !plugins.iter().any(|plugin| plugin.name == NETWORK) {
        let start = shipped::start("network-native", Vec::new(), program);
        plugins.push(PluginConfig::new(NETWORK, PluginKind::Network, start));
    }
    plugins
}
