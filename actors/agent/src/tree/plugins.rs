//! The plugins' hosts: one for each plugin.

use std::collections::BTreeMap;

use clients::storage::StoragePlugin;
use kernel::{ChildSpec, Intensity, Strategy, Supervisor, mailbox};
use plugin_host::{Declaration, PluginClient, PluginHost};

use crate::endpoints::admin::Plugins;
use crate::settings::{AgentSettings, RUNTIME};

/// The plugins' clients; each follows restarts and swaps.
pub(super) struct PluginClients {
    pub(super) runtime: PluginClient,
    pub(super) local: PluginClient,
    pub(super) csi: PluginClient,
}

/// Spawns the hosts.
pub(super) fn spawn(root: &Supervisor, settings: &AgentSettings) -> (PluginClients, Plugins) {
    let group = root.supervisor("plugins", Strategy::OneForOne, Intensity::MANAGERS);
    let folder = settings.folder.join("plugins");
    let mut hosts = BTreeMap::new();
    let mut host = |name: &str, declaration: Declaration| {
        let line = PluginClient::new(name);
        // Room for its own tasks' results and an operator's requests, one at a time.
        let (host, port) = mailbox(64);
        let (folder, hosted) = (folder.clone(), line.clone());
        group.spawn(ChildSpec::permanent(name), port, move || {
            PluginHost::new(declaration.clone(), folder.clone(), hosted.clone())
        });
        hosts.insert(name.to_owned(), host);
        line
    };
    let declared = |plugin: StoragePlugin| settings.storage[plugin.name()].clone();
    let lines = PluginClients {
        runtime: host(RUNTIME, settings.runtimes[&settings.runtime].clone()),
        local: host(StoragePlugin::Local.name(), declared(StoragePlugin::Local)),
        csi: host(StoragePlugin::Csi.name(), declared(StoragePlugin::Csi)),
    };
    let choices = settings.runtimes.clone();
    let plugins = Plugins {
        group,
        hosts,
        choices,
    };
    (lines, plugins)
}
