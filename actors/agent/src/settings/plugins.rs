//! The declared plugins, with the settings of their hosts.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use config::{NodeConfig, PluginConfinement, PluginKind, PluginRole, PluginStart};
use kernel::Intensity;
use plugin_host::{
    Capabilities, Confinement, Confiner, Declaration, LaunchMethod, MountVisibility, ServiceKind,
    SystemCalls,
};
use serde_json::{Map, Value, json};

use super::{RUNTIME, log_level};

const LOCAL: &str = "storage-local";
const CSI: &str = "storage-csi";
const NATIVE: &str = "runtime-native";
/// The program by which plugins confine themselves, beside the agent's own.
pub(super) const CONFINE: &str = "oxlet-confine";

/// The runtimes by name, each with the host's name of their kind: one is active at a time.
pub(super) fn runtimes(config: &NodeConfig) -> BTreeMap<String, Declaration> {
    let runtimes = of(config, PluginKind::Runtime);
    runtimes
        .map(|plugin| {
            let hosted = Declaration {
                configuration: runtime_configuration(plugin, config),
                ..declaration(plugin, RUNTIME, ServiceKind::Runtime, config)
            };
            (plugin.name.clone(), hosted)
        })
        .collect()
}

/// The storage plugins by name.
///
/// A thread of theirs may hang in the kernel, and their process with it: such a process is given up soon, so that
/// the volumes of other pods need not wait for it.
pub(super) fn storage(config: &NodeConfig) -> BTreeMap<String, Declaration> {
    of(config, PluginKind::Storage)
        .map(|plugin| {
            let name = &plugin.name;
            let hosted = Declaration {
                configuration: plugin_configuration(plugin, config),
                confinement: storage_confinement(plugin, config),
                drain_within: Duration::from_secs(2),
                term_within: Duration::from_millis(500),
                abandon_within: Some(Duration::from_secs(1)),
                ..declaration(plugin, name, ServiceKind::Storage, config)
            };
            (name.clone(), hosted)
        })
        .collect()
}

/// The network plugin by its name, if one is declared. Runtimes call it at its socket; the agent keeps it alive.
///
/// A CNI plugin may hang in the kernel, and this process with it; whatever it has begun its successor takes up.
pub(super) fn network(config: &NodeConfig) -> BTreeMap<String, Declaration> {
    of(config, PluginKind::Network)
        .map(|plugin| {
            let name = &plugin.name;
            let hosted = Declaration {
                drain_within: Duration::from_secs(10),
                abandon_within: Some(Duration::from_secs(1)),
                ..declaration(plugin, name, ServiceKind::Network, config)
            };
            (name.clone(), hosted)
        })
        .collect()
}

fn of(config: &NodeConfig, kind: PluginKind) -> impl Iterator<Item = &config::PluginConfig> {
    let plugins = config.plugins.plugins.iter();
    plugins.filter(move |plugin| plugin.kind == kind)
}

/// A runtime's section of the plugin file. The one that has no daemon is told where the network plugin is.
fn runtime_configuration(plugin: &config::PluginConfig, config: &NodeConfig) -> Value {
    let PluginStart::Managed { args, .. } = &plugin.start else {
        return plugin.configuration.clone();
    };
    let network = of(config, PluginKind::Network).next();
    let Some(network) = network.filter(|_| args.first().is_some_and(|name| name == NATIVE)) else {
        return plugin.configuration.clone();
    };
    let socket = match &network.start {
        // Where the host of a managed plugin keeps its socket.
        PluginStart::Managed { .. } => Path::new(&config.flags.root_dir)
            .join("oxlet/plugins")
            .join(format!("{}.sock", network.name)),
        PluginStart::External { endpoint } => endpoint.clone(),
    };
    let mut fields = Map::from_iter([("network".to_owned(), json!({ "socket": socket }))]);
    let said = plugin.configuration.as_object().cloned();
    fields.extend(said.unwrap_or_default());
    Value::Object(fields)
}

/// What a storage plugin may do; a mounter goes into a root of its own.
fn storage_confinement(plugin: &config::PluginConfig, config: &NodeConfig) -> Confinement {
    let has_mounter = plugin.name == LOCAL && !config.flags.experimental_mounter_path.is_empty();
    let mut declared = plugin.confinement.clone();
    if let Some(names) = declared.capabilities.as_mut().filter(|_| has_mounter) {
        names.push("SYS_CHROOT");
    }
    confinement(&declared)
}

/// A storage plugin's section of the plugin file, with defaults from the node's configuration.
fn plugin_configuration(plugin: &config::PluginConfig, config: &NodeConfig) -> Value {
    let root = &config.flags.root_dir;
    let mut fields = Map::from_iter([("rootDir".to_owned(), root.as_str().into())]);
    if plugin.name == LOCAL {
        // As the kubelet's: mounts below the root folder propagate to containers that ask for it.
        fields.insert("rootPropagation".to_owned(), "shared".into());
        let mounter = &config.flags.experimental_mounter_path;
        if !mounter.is_empty() {
            fields.insert("mounterPath".to_owned(), mounter.as_str().into());
        }
    }
    if plugin.name == CSI {
        let registration = Path::new(root).join("plugins_registry");
        let registration = registration.to_string_lossy().into_owned();
        fields.insert("nodeName".to_owned(), config.node_name.as_str().into());
        fields.insert("registrationDir".to_owned(), registration.into());
    }
    let said = plugin.configuration.as_object().cloned();
    fields.extend(said.unwrap_or_default());
    Value::Object(fields)
}

fn declaration(
    plugin: &config::PluginConfig,
    name: &str,
    kind: ServiceKind,
    config: &NodeConfig,
) -> Declaration {
    let start = match &plugin.start {
        PluginStart::Managed { command, args } => LaunchMethod::Managed {
            command: command.clone(),
            args: args.clone(),
        },
        PluginStart::External { endpoint } => LaunchMethod::External {
            endpoint: endpoint.clone(),
        },
    };
    Declaration {
        configuration: plugin.configuration.clone(),
        health_interval: plugin.health_interval,
        start_within: plugin.start_within,
        intensity: Intensity {
            restarts: plugin.restarts,
            within: plugin.restarts_within,
        },
        log: log_level(config.kubelet.logging.verbosity).to_owned(),
        confinement: confinement(&plugin.confinement),
        ..Declaration::new(name, kind, start)
    }
}

/// How the node's plugins are confined: by the program beside the agent's own, in cgroups that are this node's alone.
pub(super) fn confiner(config: &NodeConfig) -> Confiner {
    let root = config
        .flags
        .root_dir
        .split('/')
        .filter(|part| !part.is_empty());
    let node: Vec<_> = root.collect();
    Confiner {
        program: config.program_folder.join(CONFINE),
        group: format!(
            "/oxlet/{}",
            if node.is_empty() {
                "root".to_owned()
            } else {
                node.join("-")
            }
        ),
    }
}

fn confinement(declared: &PluginConfinement) -> Confinement {
    let (system_calls, mounts) = match declared.role {
        PluginRole::Client => (SystemCalls::Client, MountVisibility::Own),
        PluginRole::Network => (SystemCalls::Network, MountVisibility::Machine),
        PluginRole::Storage => (SystemCalls::Storage, MountVisibility::Machine),
        PluginRole::Containers => (SystemCalls::All, MountVisibility::Machine),
    };
    let named = |names: &Vec<&str>| {
        let set = Capabilities::named(names.iter().copied());
        set.expect("the configuration knows the kernel's names alone")
    };
    Confinement {
        capabilities: declared
            .capabilities
            .as_ref()
            .map_or(Capabilities::ALL, named),
        no_new_privileges: declared.no_new_privileges,
        system_calls: match declared.seccomp {
            true => system_calls,
            false => SystemCalls::All,
        },
        mounts,
        memory_limit: declared.memory_limit,
        pids_limit: declared.pids_limit,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::settings::testing::load;

    #[test]
    fn storage_plugins_are_there_undeclared_and_told_where_they_work() {
        let config = load("--root-dir=/srv/node");
        let storage = storage(&config);
        let names: Vec<_> = storage.keys().map(String::as_str).collect();
        assert_eq!(names, ["storage-csi", "storage-local"]);
        for (name, declared) in &storage {
            let start = LaunchMethod::Managed {
                command: "/opt/oxlet/oxlet-plugins".into(),
                args: vec![name.clone()],
            };
            let identity = (declared.name.as_str(), declared.kind, &declared.start);
            assert_eq!(identity, (name.as_str(), ServiceKind::Storage, &start));
            assert_eq!(declared.abandon_within, Some(Duration::from_secs(1)));
            assert_eq!(declared.check(), Ok(()));
        }
        assert_eq!(
            storage["storage-local"].configuration,
            json!({ "rootDir": "/srv/node", "rootPropagation": "shared" })
        );
        assert_eq!(
            storage["storage-csi"].configuration,
            json!({
                "rootDir": "/srv/node",
                "nodeName": "node",
                "registrationDir": "/srv/node/plugins_registry",
            })
        );
        let runtimes = runtimes(&config);
        assert_eq!(runtimes.keys().collect::<Vec<_>>(), ["containerd"]);
        assert_eq!(runtimes["containerd"].abandon_within, None);
    }

    #[test]
    fn a_network_plugin_is_there_only_where_it_is_declared() {
        assert!(network(&load("")).is_empty());
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("plugins.yaml");
        let text = "apiVersion: oxlet.dev/v1alpha1\nkind: PluginConfiguration\nruntime: fake\nplugins:\n\
            - {name: fake, kind: runtime, command: runtime-fake}\n\
            - {name: network, kind: network, command: network-cni, configuration: {confDir: /etc/net}}\n";
        fs::write(&file, text).unwrap();
        let declared = network(&load(&format!("--plugins={}", file.display())));
        let hosted = &declared["network"];
        let start = LaunchMethod::Managed {
            command: "/opt/oxlet/oxlet-plugins".into(),
            args: vec!["network-cni".to_owned()],
        };
        assert_eq!((hosted.kind, &hosted.start), (ServiceKind::Network, &start));
        assert_eq!(hosted.configuration, json!({ "confDir": "/etc/net" }));
        assert_eq!(hosted.check(), Ok(()));
    }

    #[test]
    fn the_runtime_without_a_daemon_is_told_where_the_network_plugin_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("plugins.yaml");
        let configured = |native: &str, network: &str| {
            let text = format!(
                "apiVersion: oxlet.dev/v1alpha1\nkind: PluginConfiguration\nruntime: native\nplugins:\n\
                - {{name: native, kind: runtime, command: runtime-native{native}}}\n\
                - {{name: fake, kind: runtime, command: runtime-fake}}\n{network}"
            );
            fs::write(&file, text).unwrap();
            let flags = format!("--plugins={} --root-dir=/r", file.display());
            let runtimes = runtimes(&load(&flags));
            assert_eq!(runtimes["fake"].configuration, Value::Null);
            runtimes["native"].configuration.clone()
        };
        let network = "- {name: pods, kind: network, command: network-cni}\n";
        assert_eq!(configured("", ""), Value::Null);
        let socket = json!({ "network": { "socket": "/r/oxlet/plugins/pods.sock" } });
        assert_eq!(configured("", network), socket);
        let own = ", configuration: {network: {socket: /own.sock}}";
        let said = json!({ "network": { "socket": "/own.sock" } });
        assert_eq!(configured(own, network), said);
    }

    #[test]
    fn what_the_plugin_file_says_of_a_storage_plugin_wins() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("plugins.yaml");
        let text = "apiVersion: oxlet.dev/v1alpha1\nkind: PluginConfiguration\nruntime: fake\nplugins:\n\
            - {name: fake, kind: runtime, command: runtime-fake}\n\
            - {name: storage-csi, kind: storage, command: /csi, restarts: 1, configuration: {registrationDir: /run/csi}}\n";
        fs::write(&file, text).unwrap();
        let config = load(&format!("--plugins={}", file.display()));
        let csi = &storage(&config)["storage-csi"];
        assert_eq!(csi.configuration["registrationDir"], "/run/csi");
        assert_eq!(csi.configuration["nodeName"], "node");
        assert_eq!(csi.intensity.restarts, 1);
        assert_eq!(runtimes(&config).len(), 1);
    }

    #[test]
    fn a_mounter_is_told_to_the_plugin_that_mounts_and_may_change_its_root() {
        let chroot = Capabilities::named(["SYS_CHROOT"]).unwrap();
        for (line, mounter) in [
            ("", Value::Null),
            (
                "--experimental-mounter-path=/m/mounter",
                "/m/mounter".into(),
            ),
        ] {
            let storage = storage(&load(line));
            let local = &storage["storage-local"];
            assert_eq!(local.configuration["mounterPath"], mounter);
            let may = local.confinement.capabilities.contains(chroot);
            assert_eq!(may, !mounter.is_null());
            let csi = &storage["storage-csi"].confinement.capabilities;
            assert!(!csi.contains(chroot));
        }
    }

    #[test]
    fn plugins_are_confined_by_what_they_do_or_as_the_file_says() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("plugins.yaml");
        let every: Vec<String> = (0..41)
            .map(|bit| Capabilities::from_mask(1 << bit).to_string())
            .collect();
        let text = format!(
            "apiVersion: oxlet.dev/v1alpha1\nkind: PluginConfiguration\nruntime: crio\nplugins:\n\
            - {{name: crio, kind: runtime, command: runtime-crio}}\n\
            - {{name: native, kind: runtime, command: runtime-native}}\n\
            - {{name: network, kind: network, command: ./vendor, capabilities: [{}], memoryLimit: 64Mi}}\n",
            every.join(", ")
        );
        fs::write(&file, text).unwrap();
        let config = load(&format!("--plugins={}", file.display()));
        let runtimes = runtimes(&config);
        let client = &runtimes["crio"].confinement;
        assert_eq!(client.capabilities, Capabilities::NONE);
        assert!(client.no_new_privileges);
        assert_eq!(
            (client.system_calls, client.mounts),
            (SystemCalls::Client, MountVisibility::Own)
        );
        // What it starts may be allowed everything, and must outlive it.
        assert_eq!(runtimes["native"].confinement, Confinement::default());
        let network = network(&config)["network"].confinement.clone();
        assert_eq!(network.capabilities, Capabilities::from_mask((1 << 41) - 1));
        assert_eq!(
            (network.memory_limit, network.mounts),
            (Some(64 << 20), MountVisibility::Machine)
        );
        let storage = storage(&config)["storage-csi"].confinement.clone();
        let mounts = Capabilities::named(["SYS_ADMIN"]).unwrap();
        assert!(storage.capabilities.contains(mounts));
        assert!(
            !storage
                .capabilities
                .contains(Capabilities::named(["NET_ADMIN"]).unwrap())
        );
    }

    #[test]
    fn nodes_of_one_machine_have_groups_of_their_own() {
        let group = |flags: &str| confiner(&load(flags));
        assert_eq!(group("").group, "/oxlet/var-lib-kubelet");
        assert_eq!(group("--root-dir=/srv/node").group, "/oxlet/srv-node");
        assert_eq!(group("").program, Path::new("/opt/oxlet/oxlet-confine"));
    }
}
