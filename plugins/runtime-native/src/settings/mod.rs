//! The plugin's configuration: its section of the plugin file.

pub(crate) mod host;

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::spec::{CgroupDriver, PassedOn, Pattern};

/// Where CDI files are without a word of it: what is installed, and what is generated, which stands before it.
const CDI_FOLDERS: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];

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
///   "cdiSpecDirs": ["/etc/cdi", "/var/run/cdi"],
///   "podAnnotations": {"kata": ["io.katacontainers.*"]},
///   "containerAnnotations": {"kata": ["io.katacontainers.*"]},
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
    /// The folders of CDI files, the one of the highest priority last; containerd's own where there is no word of it.
    pub(crate) cdi_spec_dirs: Option<Vec<PathBuf>>,
    /// Which annotations of pods a handler's containers are given, as patterns by the handlers' names; the default one
    /// has the empty name where it has no other.
    pub(crate) pod_annotations: BTreeMap<String, Vec<String>>,
    /// Which of the containers' own.
    pub(crate) container_annotations: BTreeMap<String, Vec<String>>,
    /// Where containers in user namespaces are set up; each folder above it can be passed through by everybody.
    pub(crate) user_namespace_folder: Option<PathBuf>,
}

impl NativeSettings {
    /// Returns the folders of CDI files.
    pub(crate) fn cdi_folders(&self) -> Vec<PathBuf> {
        let named = self.cdi_spec_dirs.clone();
        named.unwrap_or_else(|| CDI_FOLDERS.map(PathBuf::from).into())
    }
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
    #[error("field {field}: no handler is named {handler:?}")]
    UnknownHandler {
        field: &'static str,
        handler: String,
    },
    #[error("field {field}: {found:?} is no pattern")]
    Pattern { field: &'static str, found: String },
    #[error("the plugin's own program is not known")]
    Program(#[source] std::io::Error),
}

const OWN_RUNTIME: &str = "oxlet-oci";

/// The programs that containers are run by.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    /// By name; the default one is also there under the empty name.
    handlers: BTreeMap<String, PathBuf>,
    passed_on: BTreeMap<String, PassedOn>,
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
        let passed_on = passed_on(settings, &handlers)?;
        let monitor = settings.monitor.clone();
        Ok(Programs {
            handlers,
            passed_on,
            monitor: monitor.unwrap_or_else(|| beside.join("oxlet-monitor")),
        })
    }

    /// Returns the program of a handler.
    pub(crate) fn handler(&self, name: &str) -> Option<&Path> {
        self.handlers.get(name).map(PathBuf::as_path)
    }

    /// The `oxlet-oci` that came with the monitor.
    pub(crate) fn own_runtime(&self) -> PathBuf {
        self.monitor.with_file_name(OWN_RUNTIME)
    }

    /// Whether a handler's program is the `oxlet-oci` that came with the monitor.
    pub(crate) fn is_own(&self, program: &Path) -> bool {
        program == self.own_runtime()
    }

    /// Returns which annotations a handler is given.
    pub(crate) fn passed_on(&self, name: &str) -> PassedOn {
        self.passed_on.get(name).cloned().unwrap_or_default()
    }

    /// Returns every handler, the default one first under the empty name.
    pub(crate) fn handlers(&self) -> impl Iterator<Item = (&str, &Path)> {
        self.handlers
            .iter()
            .map(|(name, path)| (name.as_str(), path.as_path()))
    }
}

/// Reads the patterns of all handlers. Pods without a RuntimeClass have those of the default handler's name.
fn passed_on(
    settings: &NativeSettings,
    handlers: &BTreeMap<String, PathBuf>,
) -> Result<BTreeMap<String, PassedOn>, SettingsError> {
    let (pod, container) = (&settings.pod_annotations, &settings.container_annotations);
    for (field, lists) in [("podAnnotations", pod), ("containerAnnotations", container)] {
        let unknown = lists.keys().find(|name| !handlers.contains_key(*name));
        if let Some(handler) = unknown.cloned() {
            return Err(SettingsError::UnknownHandler { field, handler });
        }
    }
    let list = |lists: &BTreeMap<String, Vec<String>>, name| lists.get(name).cloned();
    let mut all = BTreeMap::new();
    for name in handlers.keys() {
        let default = settings.default_handler.as_ref();
        let named = default.filter(|_| name.is_empty()).unwrap_or(name);
        let read = |field, lists| {
            let texts = list(lists, named).unwrap_or_default();
            Pattern::read_all(&texts).map_err(|found| SettingsError::Pattern { field, found })
        };
        let own = PassedOn {
            pod: read("podAnnotations", pod)?,
            container: read("containerAnnotations", container)?,
        };
        all.insert(name.clone(), own);
    }
    Ok(all)
}

fn found(beside: &Path) -> Option<PathBuf> {
    let own = beside.join(OWN_RUNTIME);
    let path = env::var_os("PATH").unwrap_or_default();
    let in_path = env::split_paths(&path).map(|folder| folder.join("runc"));
    [own].into_iter().chain(in_path).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn settings(more: &str) -> NativeSettings {
        let text = format!(
            r#"{{"handlers": {{"kata": "/k", "runc": "/r"}}, "defaultHandler": "kata", {more}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    /// Upstream's TestPassThroughAnnotationsFilter.
    #[test]
    fn a_handler_is_given_the_annotations_that_its_patterns_name() {
        let settings = settings(
            r#""podAnnotations": {"kata": ["io.k.*", "a"]}, "containerAnnotations": {"kata": ["c?"]}"#,
        );
        let programs = Programs::find(&settings).unwrap();
        let map = |pairs: &[(&str, &str)]| -> HashMap<String, String> {
            let owned = pairs
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            owned.collect()
        };
        let pod = map(&[("io.k.x", "1"), ("a", "2"), ("b", "3"), ("c1", "4")]);
        let container = map(&[("c1", "5"), ("io.k.y", "6")]);
        let expected = [("a", "2"), ("c1", "5"), ("io.k.x", "1")];
        let expected = BTreeMap::from(expected.map(|(key, value)| (key, value.to_owned())));
        for handler in ["kata", ""] {
            assert_eq!(programs.passed_on(handler).of(&pod, &container), expected);
        }
        assert!(programs.passed_on("runc").of(&pod, &container).is_empty());
    }

    #[test]
    fn lists_of_unknown_handlers_and_malformed_patterns_are_refused() {
        let refusal = |more: &str| Programs::find(&settings(more)).unwrap_err().to_string();
        let unknown = refusal(r#""podAnnotations": {"gvisor": ["x"]}"#);
        assert_eq!(
            unknown,
            "field podAnnotations: no handler is named \"gvisor\""
        );
        let malformed = refusal(r#""containerAnnotations": {"runc": ["[x"]}"#);
        assert_eq!(
            malformed,
            "field containerAnnotations: \"[x\" is no pattern"
        );
    }
}
