//! Network configurations: a conflist, or a single plugin's configuration taken for a list of one.
//!
//! As libcni reads them (`libcni/conf.go`, 1.3), but stricter: versions, names and types that cannot work are refused
//! here and not at the first pod, and sizes are bounded. A chain that would call this plugin again is refused.

mod folder;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

pub(crate) use self::folder::{Folder, NetworkFile};
pub(crate) use self::watch::{follow, read};
use crate::version::Version;

/// The program that hands CNI calls to a network plugin: in a chain of this plugin it would call itself.
const OWN_CLIENT: &str = "oxlet-cni";
/// A file of a network is a page or two.
pub(crate) const FILE_MAX: u64 = 1 << 20;
/// Chains have two to five plugins.
pub(crate) const PLUGINS_MAX: usize = 32;
const NAME_MAX: usize = 200;

/// A network: a name and a chain of plugins.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// Its name, as a file name may be.
    pub name: String,
    /// The version in which its plugins are spoken to.
    pub version: Version,
    /// CHECK is not to be called.
    pub disable_check: bool,
    /// GC is not to be called.
    pub disable_gc: bool,
    /// Only the plugins of the list itself count, not those in files of the network's own folder.
    pub only_inlined: bool,
    /// In the order of ADD.
    pub plugins: Vec<PluginConf>,
}

/// The configuration of one plugin of a chain.
#[derive(Clone, Debug, PartialEq)]
pub struct PluginConf {
    /// The name of its program.
    pub plugin_type: String,
    /// The capabilities that it declares.
    pub capabilities: BTreeSet<String>,
    /// Everything that its configuration says.
    pub fields: Map<String, Value>,
}

/// Why a text is no network configuration.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfError {
    /// No JSON object.
    #[error("not a JSON object: {0}")]
    Json(String),
    /// A field is missing or wrong.
    #[error("field {field}: {why}")]
    Field {
        /// Its path.
        field: String,
        /// What it is, and what was expected.
        why: String,
    },
    /// The chain is empty, with the network's own folder counted.
    #[error("no plugins in the list")]
    Empty,
}

/// What a file holds, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `.conflist`: a list.
    List,
    /// `.conf` and `.json`: one plugin's configuration.
    Single,
}

fn wrong(field: impl Into<String>, why: impl Into<String>) -> ConfError {
    ConfError::Field {
        field: field.into(),
        why: why.into(),
    }
}

/// Reads a network's configuration. A list may come without plugins if those of its own folder may follow.
///
/// # Errors
/// [`ConfError`] names the field.
pub fn parse(text: &[u8], form: Form) -> Result<Network, ConfError> {
    let fields: Map<String, Value> =
        serde_json::from_slice(text).map_err(|error| ConfError::Json(error.to_string()))?;
    let name = match fields.get("name") {
        Some(Value::String(name)) => name.clone(),
        Some(other) => return Err(wrong("name", format!("{other} is no string"))),
        None => return Err(wrong("name", "missing")),
    };
    check_name(&name).map_err(|why| wrong("name", why))?;
    let plugins = match form {
        Form::Single => vec![PluginConf::new(fields.clone(), "type")?],
        Form::List => inlined(&fields)?,
    };
    let network = Network {
        name,
        version: version(&fields)?,
        disable_check: boolean(&fields, "disableCheck")?,
        disable_gc: boolean(&fields, "disableGC")?,
        only_inlined: form == Form::Single || boolean(&fields, "loadOnlyInlinedPlugins")?,
        plugins,
    };
    if network.only_inlined && network.plugins.is_empty() {
        return Err(ConfError::Empty);
    }
    Ok(network)
}

/// Checks a name of a network or of a sandbox: what the specification allows, and what may be part of a file's name.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let sound = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
    let starts = name
        .bytes()
        .next()
        .is_some_and(|b| b.is_ascii_alphanumeric());
    if starts && name.len() <= NAME_MAX && name.bytes().all(sound) {
        return Ok(());
    }
    let shown: String = name.chars().take(40).collect();
    Err(format!(
        "{shown:?} is no name; expected a letter or digit, then letters, digits, '_', '.', '-', at most {NAME_MAX}"
    ))
}

fn inlined(fields: &Map<String, Value>) -> Result<Vec<PluginConf>, ConfError> {
    let plugins = match fields.get("plugins") {
        None => return Ok(Vec::new()),
        Some(Value::Array(plugins)) => plugins,
        Some(_) => return Err(wrong("plugins", "expected a list")),
    };
    if plugins.is_empty() {
        return Err(ConfError::Empty);
    }
    if plugins.len() > PLUGINS_MAX {
        let why = format!("{} plugins, expected at most {PLUGINS_MAX}", plugins.len());
        return Err(wrong("plugins", why));
    }
    let each = plugins.iter().enumerate().map(|(index, plugin)| {
        let at = format!("plugins[{index}]");
        match plugin.as_object() {
            Some(fields) => PluginConf::new(fields.clone(), &format!("{at}.type")),
            None => Err(wrong(at, "expected an object")),
        }
    });
    each.collect()
}

/// The newest version that the list names and that is spoken here.
fn version(fields: &Map<String, Value>) -> Result<Version, ConfError> {
    let mut named = Vec::new();
    match fields.get("cniVersion") {
        None => {}
        Some(Value::String(text)) => named.push(text.as_str()),
        Some(_) => return Err(wrong("cniVersion", "expected a string")),
    }
    match fields.get("cniVersions") {
        None => {}
        Some(Value::Array(texts)) => {
            for text in texts {
                let text = text.as_str();
                named.push(text.ok_or_else(|| wrong("cniVersions", "expected strings"))?);
            }
        }
        Some(_) => return Err(wrong("cniVersions", "expected a list")),
    }
    let spoken = named.iter().filter_map(|text| Version::parse(text)).max();
    spoken.ok_or_else(|| {
        let named = named.join(", ");
        let why = format!("{named:?}; expected one of 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0");
        wrong("cniVersion", why)
    })
}

/// A boolean, or its name as a string in any case: both are found in the wild.
fn boolean(fields: &Map<String, Value>, field: &str) -> Result<bool, ConfError> {
    match fields.get(field) {
        None => Ok(false),
        Some(Value::Bool(value)) => Ok(*value),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("true") => Ok(true),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("false") => Ok(false),
        Some(other) => Err(wrong(field, format!("{other}; expected true or false"))),
    }
}

impl PluginConf {
    /// Reads one plugin's configuration; `at` names its type in messages.
    pub(crate) fn new(fields: Map<String, Value>, at: &str) -> Result<Self, ConfError> {
        let plugin_type = match fields.get("type") {
            Some(Value::String(plugin_type)) => plugin_type.clone(),
            Some(_) => return Err(wrong(at, "expected a string")),
            None => return Err(wrong(at, "missing")),
        };
        if plugin_type.is_empty()
            || plugin_type.contains(['/', '\0'])
            || matches!(plugin_type.as_str(), "." | "..")
        {
            let why = format!("{plugin_type:?}; expected the name of a program, not a path");
            return Err(wrong(at, why));
        }
        if plugin_type == OWN_CLIENT {
            let why = format!(
                "{OWN_CLIENT} calls a network plugin; in its own chain it would call itself"
            );
            return Err(wrong(at, why));
        }
        let declared = fields.get("capabilities").and_then(Value::as_object);
        let capabilities = declared
            .into_iter()
            .flatten()
            .filter(|(_, declared)| **declared == Value::Bool(true))
            .map(|(name, _)| name.clone())
            .collect();
        Ok(Self {
            plugin_type,
            capabilities,
            fields,
        })
    }
}

impl Network {
    /// Returns the configuration as a conflist that [`parse`] reads as the same network.
    pub fn to_json(&self) -> Vec<u8> {
        let plugins: Vec<_> = self.plugins.iter().map(|plugin| &plugin.fields).collect();
        let list = json!({
            "cniVersion": self.version.as_str(),
            "name": self.name,
            "disableCheck": self.disable_check,
            "disableGC": self.disable_gc,
            "loadOnlyInlinedPlugins": true,
            "plugins": plugins,
        });
        list.to_string().into_bytes()
    }
}
