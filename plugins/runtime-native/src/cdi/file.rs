//! One CDI file: its form, and what makes it invalid. Versions 0.3.0 to 1.1.0.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::spec::{Gid, Uid};

/// Versions of the specification, oldest first. The first two are known, and too old for any file.
const VERSIONS: [&str; 10] = [
    "0.1.0", "0.2.0", "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0",
];
/// When a hook runs, by OCI's names.
const HOOKS: [&str; 6] = [
    "prestart",
    "createRuntime",
    "createContainer",
    "startContainer",
    "poststart",
    "poststop",
];
/// Permissions that are none.
pub(super) const NO_PERMISSIONS: &str = "none";

/// Why a file is no CDI file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error("it is not YAML, nor JSON")]
    Text(#[source] Box<serde_saphyr::Error>),
    #[error("it is not of the form of the CDI specification")]
    Form(#[source] serde_json::Error),
    #[error("cdiVersion is {found:?}, expected {expected}")]
    Version { found: String, expected: String },
    #[error("{what} is {found:?}, expected {expected}")]
    Name {
        what: &'static str,
        found: String,
        expected: &'static str,
    },
    #[error("{0}")]
    Empty(&'static str),
    #[error("device {0:?} is there twice")]
    Twice(String),
    #[error("device {0:?} says nothing: its containerEdits are empty")]
    Nothing(String),
}

/// A file's content. Annotations are for who reads the file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CdiFile {
    cdi_version: String,
    /// Vendor and class: `vendor.com/net`.
    pub(super) kind: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) devices: Vec<CdiDevice>,
    /// For every container that gets any device of the file.
    #[serde(default)]
    pub(super) container_edits: Edits,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CdiDevice {
    pub(super) name: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) container_edits: Edits,
}

/// What a container is given.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Edits {
    /// `NAME=value`.
    pub(super) env: Vec<String>,
    pub(super) device_nodes: Vec<Node>,
    pub(super) net_devices: Vec<Value>,
    pub(super) hooks: Vec<Hook>,
    pub(super) mounts: Vec<CdiMount>,
    pub(super) intel_rdt: Option<Value>,
    pub(super) additional_gids: Vec<Gid>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Node {
    /// In the container.
    pub(super) path: String,
    /// On the node; the same one where it is empty.
    pub(super) host_path: String,
    /// `b`, `c`, `u`, `p`, or empty: as the node's is.
    pub(super) r#type: String,
    pub(super) major: i64,
    pub(super) minor: i64,
    pub(super) file_mode: Option<u32>,
    pub(super) permissions: String,
    pub(super) uid: Option<Uid>,
    pub(super) gid: Option<Gid>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CdiMount {
    pub(super) host_path: String,
    pub(super) container_path: String,
    pub(super) options: Vec<String>,
    pub(super) r#type: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Hook {
    pub(super) hook_name: String,
    pub(super) path: String,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<String>,
    /// Seconds.
    pub(super) timeout: Option<i64>,
}

impl CdiFile {
    /// Reads a file's text, YAML or JSON, and checks it.
    pub(super) fn parse(text: &str) -> Result<CdiFile, FileError> {
        // As Go's YAML reads numbers: a file mode of 0660 is octal.
        let options = serde_saphyr::options! { legacy_octal_numbers: true, with_snippet: false };
        let mut value: Value = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| FileError::Text(Box::new(error)))?;
        drop_nulls(&mut value);
        let file: CdiFile = serde_json::from_value(value).map_err(FileError::Form)?;
        file.check()?;
        Ok(file)
    }

    fn check(&self) -> Result<(), FileError> {
        self.check_version()?;
        let (vendor, class) = self.kind.split_once('/').unwrap_or(("", &self.kind));
        for (what, found) in [("the vendor of kind", vendor), ("the class of kind", class)] {
            if !is_word(found, |first| first.is_ascii_alphabetic(), "_-.") {
                return Err(FileError::Name {
                    what,
                    found: found.to_owned(),
                    expected: "a letter, then letters, digits, and _-. between them",
                });
            }
        }
        self.container_edits.check()?;
        let mut known: Vec<&str> = Vec::new();
        for device in &self.devices {
            if !is_device(&device.name) {
                return Err(FileError::Name {
                    what: "a device's name",
                    found: device.name.clone(),
                    expected: "letters and digits, and _-.: between them",
                });
            }
            if device.container_edits == Edits::default() {
                return Err(FileError::Nothing(device.name.clone()));
            }
            device.container_edits.check()?;
            if known.contains(&device.name.as_str()) {
                return Err(FileError::Twice(device.name.clone()));
            }
            known.push(&device.name);
        }
        match known.is_empty() {
            true => Err(FileError::Empty("it has no devices")),
            false => Ok(()),
        }
    }

    fn check_version(&self) -> Result<(), FileError> {
        let place = |version: &str| VERSIONS.iter().position(|known| *known == version);
        let said = self
            .cdi_version
            .strip_prefix('v')
            .unwrap_or(&self.cdi_version);
        let needed = self.needed_version();
        let expected = match place(said) {
            None => format!("one of {}", VERSIONS.join(", ")),
            Some(said) if Some(said) < place(needed) => format!("at least {needed}"),
            Some(_) => return Ok(()),
        };
        Err(FileError::Version {
            found: self.cdi_version.clone(),
            expected,
        })
    }

    /// Returns the first version that has everything which the file uses.
    fn needed_version(&self) -> &'static str {
        let devices = || self.devices.iter();
        let edits: Vec<_> = devices()
            .map(|device| &device.container_edits)
            .chain([&self.container_edits])
            .collect();
        let any = |uses: fn(&Edits) -> bool| edits.iter().any(|edits| uses(edits));
        let noted =
            !self.annotations.is_empty() || devices().any(|device| !device.annotations.is_empty());
        let class = self.kind.split_once('/').map_or("", |(_, class)| class);
        let digit = |device: &CdiDevice| device.name.starts_with(|c: char| c.is_ascii_digit());
        if any(|edits| !edits.net_devices.is_empty() || edits.has_new_rdt()) {
            "1.1.0"
        } else if any(|edits| edits.intel_rdt.is_some() || !edits.additional_gids.is_empty()) {
            "0.7.0"
        } else if noted || class.contains('.') {
            "0.6.0"
        } else if devices().any(digit)
            || any(|edits| {
                edits
                    .device_nodes
                    .iter()
                    .any(|node| !node.host_path.is_empty())
            })
        {
            "0.5.0"
        } else if any(|edits| edits.mounts.iter().any(|mount| !mount.r#type.is_empty())) {
            "0.4.0"
        } else {
            "0.3.0"
        }
    }
}

impl Edits {
    fn has_new_rdt(&self) -> bool {
        let rdt = self.intel_rdt.as_ref();
        rdt.is_some_and(|rdt| rdt.get("schemata").is_some() || rdt["enableMonitoring"] == true)
    }

    fn check(&self) -> Result<(), FileError> {
        let wrong = |what, found: &str, expected| {
            let found = found.to_owned();
            Err(FileError::Name {
                what,
                found,
                expected,
            })
        };
        let variables = self
            .env
            .iter()
            .chain(self.hooks.iter().flat_map(|hook| &hook.env));
        if let Some(variable) = variables.into_iter().find(|one| !is_variable(one)) {
            return wrong("an environment variable", variable, "NAME=value");
        }
        for node in &self.device_nodes {
            if node.path.is_empty() {
                return Err(FileError::Empty("a device node has no path"));
            }
            if !["", "b", "c", "u", "p"].contains(&node.r#type.as_str()) {
                return wrong("a device node's type", &node.r#type, "b, c, u or p");
            }
            let letters = node
                .permissions
                .chars()
                .all(|letter| "rwm".contains(letter));
            if !letters && node.permissions != NO_PERMISSIONS {
                return wrong(
                    "a device node's permissions",
                    &node.permissions,
                    "letters of rwm, or none",
                );
            }
        }
        for hook in &self.hooks {
            if !HOOKS.contains(&hook.hook_name.as_str()) {
                return wrong("a hook's hookName", &hook.hook_name, "one of OCI's hooks");
            }
            if hook.path.is_empty() {
                return Err(FileError::Empty("a hook has no path"));
            }
        }
        let whole =
            |mount: &CdiMount| !(mount.host_path.is_empty() || mount.container_path.is_empty());
        match self.mounts.iter().all(whole) {
            true => Ok(()),
            false => Err(FileError::Empty(
                "a mount has no hostPath, or no containerPath",
            )),
        }
    }
}

fn is_variable(text: &str) -> bool {
    text.find('=').is_some_and(|place| place > 0)
}

/// Whether a name is a device's with its vendor and class: `vendor.com/net=eth0`.
pub(super) fn is_qualified(name: &str) -> bool {
    let Some((kind, device)) = name.split_once('=') else {
        return false;
    };
    let letter = |first: char| first.is_ascii_alphabetic();
    let word = |text: &str| is_word(text, letter, "_-.");
    kind.split_once('/')
        .is_some_and(|(vendor, class)| word(vendor) && word(class))
        && is_device(device)
}

fn is_device(name: &str) -> bool {
    is_word(name, |first| first.is_ascii_alphanumeric(), "_-.:")
}

/// Whether a text begins as it should, ends with a letter or digit, and has these and some others between.
fn is_word(text: &str, first: fn(char) -> bool, others: &str) -> bool {
    text.starts_with(first)
        && text.ends_with(|last: char| last.is_ascii_alphanumeric())
        && text
            .chars()
            .all(|one| one.is_ascii_alphanumeric() || others.contains(one))
}

/// A field that is null is one that isn't there.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
