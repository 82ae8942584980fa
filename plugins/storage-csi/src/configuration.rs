//! The plugin's section of the plugin file: where the node keeps its pods, and what it is called.

use std::path::PathBuf;

use serde::Deserialize;

/// The section as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Section {
    root_dir: String,
    node_name: String,
    registration_dir: Option<String>,
}

/// The section, checked, with defaults for what it leaves out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Configuration {
    /// Upstream's `/var/lib/kubelet`.
    pub(crate) root: PathBuf,
    pub(crate) node: String,
    /// The folder in which drivers put their registration sockets.
    pub(crate) registration: PathBuf,
}

/// Why a section cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum ConfigurationError {
    #[error("field \"{field}\" is {found:?}, expected an absolute path without \"..\"")]
    Path { field: &'static str, found: String },
    #[error("field \"nodeName\" is empty, expected the node's name")]
    NoNode,
}

impl Configuration {
    pub(crate) fn read(section: Section) -> Result<Self, ConfigurationError> {
        let root = absolute("rootDir", &section.root_dir)?;
        let registration = match &section.registration_dir {
            Some(folder) => absolute("registrationDir", folder)?,
            None => root.join("plugins_registry"),
        };
        if section.node_name.is_empty() {
            return Err(ConfigurationError::NoNode);
        }
        Ok(Self {
            root,
            node: section.node_name,
            registration,
        })
    }
}

fn absolute(field: &'static str, path: &str) -> Result<PathBuf, ConfigurationError> {
    let wrong = || ConfigurationError::Path {
        field,
        found: path.to_owned(),
    };
    let upwards = path.split('/').any(|part| part == "..");
    if !path.starts_with('/') || upwards || path.contains('\0') {
        return Err(wrong());
    }
    let plain: PathBuf = PathBuf::from(path).components().collect();
    match plain.parent() {
        Some(_) => Ok(plain),
        None => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: serde_json::Value) -> Result<Configuration, String> {
        let section = serde_json::from_value(json).map_err(|error| error.to_string())?;
        Configuration::read(section).map_err(|error| error.to_string())
    }

    #[test]
    fn drivers_introduce_themselves_below_the_root_unless_said_otherwise() {
        let usual = read(serde_json::json!({"rootDir": "/var/lib/kubelet/", "nodeName": "n"}));
        let usual = usual.unwrap();
        assert_eq!(usual.root, PathBuf::from("/var/lib/kubelet"));
        assert_eq!(
            usual.registration,
            PathBuf::from("/var/lib/kubelet/plugins_registry")
        );
        let json =
            serde_json::json!({"rootDir": "/r", "nodeName": "n", "registrationDir": "/run/reg"});
        let other = read(json).unwrap();
        assert_eq!(other.registration, PathBuf::from("/run/reg"));
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_its_field() {
        for (json, field) in [
            (serde_json::json!({"rootDir": "/r"}), "nodeName"),
            (serde_json::json!({"nodeName": "n"}), "rootDir"),
            (
                serde_json::json!({"rootDir": "/r", "nodeName": ""}),
                "nodeName",
            ),
            (
                serde_json::json!({"rootDir": "r", "nodeName": "n"}),
                "rootDir",
            ),
            (
                serde_json::json!({"rootDir": "/", "nodeName": "n"}),
                "rootDir",
            ),
            (
                serde_json::json!({"rootDir": "/a/../b", "nodeName": "n"}),
                "rootDir",
            ),
            (
                serde_json::json!({"rootDir": "/r", "nodeName": "n", "registrationDir": ""}),
                "registrationDir",
            ),
            (
                serde_json::json!({"rootDir": "/r", "nodeName": "n", "rootdir": ""}),
                "rootdir",
            ),
        ] {
            let why = read(json.clone()).unwrap_err();
            assert!(why.contains(field), "{json}: {why}");
        }
    }
}
