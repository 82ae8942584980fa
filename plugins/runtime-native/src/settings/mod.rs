//! The plugin's configuration: its section of the plugin file.

pub(crate) mod host;

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::spec::CgroupDriver;

/// The configuration. Every field is optional.
///
/// ```json
/// {
///   "root": "/var/lib/oxlet/native",
///   "handlers": {"runc": "/usr/bin/runc", "kata": "/opt/kata/bin/kata-runtime"},
///   "defaultHandler": "runc",
///   "monitor": "/usr/libexec/oxlet-monitor",
///   "cgroupDriver": "cgroupfs",
///   "network": {"socket": "/run/oxlet/plugins/network.sock"},
///   "rlimits": {"RLIMIT_NOFILE": [1024, 1048576]},
///   "import": ["/var/lib/oxlet/images/sample.tar"],
///   "ignoreImageDefinedVolumes": false,
///   "registries": "/etc/containerd/certs.d",
///   "userNamespaceFolder": "/run/oxlet-native"
/// }
/// ```
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct NativeSettings {
    /// Where everything is kept; `native` in the plugin's own folder without a word.
    pub(crate) root: Option<PathBuf>,
    /// OCI runtimes by the names that RuntimeClasses give them.
    pub(crate) handlers: BTreeMap<String, PathBuf>,
    /// Which of them runs pods without a RuntimeClass; without a word `oxlet-oci` beside the program, else `runc`.
    pub(crate) default_handler: Option<String>,
    /// The program `oxlet-monitor`; beside the plugin's own without a word.
    pub(crate) monitor: Option<PathBuf>,
    pub(crate) cgroup_driver: CgroupDriver,
    pub(crate) network: NetworkSettings,
    /// Resource limits of every container's process, by OCI's names: soft and hard.
    pub(crate) rlimits: BTreeMap<String, (u64, u64)>,
    /// Archives of images (`docker save`, OCI layouts) that are taken into the store at the start, for nodes without a
    /// registry.
    pub(crate) import: Vec<PathBuf>,
    /// An image's volumes are left on the writable layer; by default each is a folder of the container's own.
    pub(crate) ignore_image_defined_volumes: bool,
    /// The folder with a folder of `hosts.toml` a registry.
    pub(crate) registries: Option<PathBuf>,
    /// Where containers in user namespaces are set up; each folder above it can be passed through by everybody.
    pub(crate) user_namespace_folder: Option<PathBuf>,
}

/// Where the network plugin is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct NetworkSettings {
    /// The Unix socket of a plugin of `oxlet.network.v1`; the agent fills in that of its own one. Without it there are pods on the node's network only.
    pub(crate) socket: Option<PathBuf>,
}

/// Why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    #[error("field defaultHandler: no handler is named {0:?}")]
    UnknownDefault(String),
    #[error(
        "no OCI runtime: expected oxlet-oci beside {0}, runc in the PATH, or defaultHandler with handlers"
    )]
    NoRuntime(String),
    #[error("field handlers: {0:?} is no absolute path of a program")]
    NotAbsolute(PathBuf),
    #[error("the plugin's own program is not known")]
    Program(#[source] std::io::Error),
}

/// The programs that containers are run by.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    /// By name; the default one is also there under the empty name.
    handlers: BTreeMap<String, PathBuf>,
    pub(crate) monitor: PathBuf,
}

impl Programs {
    /// Finds the programs that the configuration names or leaves to be found.
    pub(crate) fn find(settings: &NativeSettings) -> Result<Programs, SettingsError> {
        let own = env::current_exe().map_err(SettingsError::Program)?;
        let beside = own.parent().unwrap_or(Path::new("/"));
        let mut handlers = settings.handlers.clone();
        if let Some(wrong) = handlers.values().find(|path| !path.is_absolute()) {
            return Err(SettingsError::NotAbsolute(wrong.clone()));
        }
        let default = match &settings.default_handler {
            Some(name) => handlers
                .get(name)
                .cloned()
                .ok_or_else(|| SettingsError::UnknownDefault(name.clone()))?,
            None => found(beside)
                .ok_or_else(|| SettingsError::NoRuntime(beside.display().to_string()))?,
        };
        handlers.insert(String::new(), default);
        let monitor = settings.monitor.clone();
        Ok(Programs {
            handlers,
            monitor: monitor.unwrap_or_else(|| beside.join("oxlet-monitor")),
        })
    }

    /// Returns the program of a handler.
    pub(crate) fn handler(&self, name: &str) -> Option<&Path> {
        self.handlers.get(name).map(PathBuf::as_path)
    }

    /// Returns every handler, the default one first under the empty name.
    pub(crate) fn handlers(&self) -> impl Iterator<Item = (&str, &Path)> {
        self.handlers
            .iter()
            .map(|(name, path)| (name.as_str(), path.as_path()))
    }
}

fn found(beside: &Path) -> Option<PathBuf> {
    let own = beside.join("oxlet-oci");
    let path = env::var_os("PATH").unwrap_or_default();
    let in_path = env::split_paths(&path).map(|folder| folder.join("runc"));
    [own].into_iter().chain(in_path).find(|path| path.is_file())
}
