//! The plugin file: which plugins there are, how each is reached, which is the active runtime. It is
//! ours, not upstream's; without one, the kubelet's own `containerRuntimeEndpoint` decides. The storage
//! plugins are there whether the file names them or not, a network plugin only if it does; but `runtime: native`
//! alone declares both that runtime and its network.

mod confinement;
mod listener;
mod native;
mod network;
mod shipped;
mod storage;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use self::confinement::RawConfinement;
pub use self::confinement::{PluginConfinement, PluginRole};
use crate::document::source::{self, FileError};
use crate::document::{self, DocumentError};
use crate::kubelet_configuration::GoDuration;

const API_VERSION: &str = "oxlet.dev/v1alpha1";
const KIND: &str = "PluginConfiguration";
/// The runtimes that have an adapter, as their processes are called.
const ADAPTED: [&str; 2] = ["crio", "containerd"];
const HEALTH_INTERVAL: GoDuration = GoDuration::from_secs(3);
const START_TIMEOUT: GoDuration = GoDuration::from_secs(10);
const RESTARTS: u32 = 5;
const RESTART_WINDOW: GoDuration = GoDuration::from_secs(60);

/// The declared plugins, checked: names unique, `runtime` a runtime among them, each storage plugin
/// there, one network at most.
#[derive(Clone, Debug, PartialEq)]
pub struct PluginFile {
    /// The name of the active runtime.
    pub runtime: String,
    /// Every declared plugin, and the storage plugins that are not.
    pub plugins: Vec<PluginConfig>,
}

/// One plugin of the plugin file.
#[derive(Clone, Debug, PartialEq)]
pub struct PluginConfig {
    /// Its name for operators, and that of its folder and socket.
    pub name: String,
    /// Which service it serves.
    pub kind: PluginKind,
    /// Where it comes from.
    pub start: PluginStart,
    /// The argument of its `Configure` call; null when the file has none.
    pub configuration: Value,
    /// The longest silence between two reports of its health.
    pub health_interval: Duration,
    /// The longest time from its start to its first healthy report.
    pub start_within: Duration,
    /// How many restarts are taken before it counts as failed,
    pub restarts: u32,
    /// and within which time they are counted.
    pub restarts_within: Duration,
    /// What its processes may do and use; of no meaning for an external one.
    pub confinement: PluginConfinement,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PluginKind {
    Runtime,
    Network,
    Storage,
}

impl PluginConfig {
    /// Declares a plugin of which the file says no more.
    fn new(name: impl Into<String>, kind: PluginKind, start: PluginStart) -> PluginConfig {
        PluginConfig {
            name: name.into(),
            kind,
            confinement: PluginConfinement::of(kind, &start),
            start,
            configuration: Value::Null,
            health_interval: HEALTH_INTERVAL.as_std(),
            start_within: START_TIMEOUT.as_std(),
            restarts: RESTARTS,
            restarts_within: RESTART_WINDOW.as_std(),
        }
    }
}

/// How a plugin comes to be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PluginStart {
    /// The agent starts and supervises it.
    Managed { command: PathBuf, args: Vec<String> },
    /// It is there; the agent only connects to its Unix socket.
    External { endpoint: PathBuf },
}

/// Why a plugin file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    #[error("the file cannot be read")]
    File(#[from] FileError),
    #[error("the file is not a plugin file")]
    Document(#[from] DocumentError),
    #[error("field {field}: {why}")]
    Field { field: String, why: String },
}

impl PluginError {
    fn field(field: impl Into<String>, why: impl Into<String>) -> PluginError {
        PluginError::Field {
            field: field.into(),
            why: why.into(),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawPluginFile {
    runtime: String,
    plugins: Vec<RawPlugin>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct RawPlugin {
    name: String,
    kind: String,
    command: Option<String>,
    args: Vec<String>,
    endpoint: Option<String>,
    configuration: Value,
    health_interval: Option<GoDuration>,
    start_within: Option<GoDuration>,
    restarts: Option<u32>,
    restarts_within: Option<GoDuration>,
    capabilities: Option<Vec<String>>,
    no_new_privileges: Option<bool>,
    seccomp: Option<bool>,
    memory_limit: Option<Value>,
    pids_limit: Option<Value>,
}

/// Where commands of plugins are looked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PluginFolders<'a> {
    /// For a command without a slash: beside the agent's own program.
    pub(crate) program: &'a Path,
    /// For a relative path: beside the plugin file.
    pub(crate) file: &'a Path,
}

/// Reads a plugin file.
pub(crate) fn load(path: &Path, program: &Path) -> Result<PluginFile, PluginError> {
    let text = source::read(path)?;
    let file = std::path::absolute(path).map_err(FileError::Io)?;
    parse(
        &text,
        PluginFolders {
            program,
            file: file.parent().unwrap_or(Path::new("/")),
        },
    )
}

pub(crate) fn parse(text: &str, folders: PluginFolders<'_>) -> Result<PluginFile, PluginError> {
    let mut fields = document::parse_strictly(text)?;
    document::take_kind(&mut fields, API_VERSION, KIND)?;
    from_fields(fields, folders)
}

/// Checks the fields of a plugin file, as if they stood in one.
pub(crate) fn from_fields(
    mut fields: Map<String, Value>,
    folders: PluginFolders<'_>,
) -> Result<PluginFile, PluginError> {
    document::strip_nulls(&mut fields);
    let raw: RawPluginFile = document::decode(fields)?;
    let plugins = raw
        .plugins
        .into_iter()
        .enumerate()
        .map(|(index, raw)| check(raw, &format!("plugins[{index}]"), folders))
        .collect::<Result<Vec<_>, _>>()?;
    let mut names = BTreeSet::new();
    for plugin in &plugins {
        if !names.insert(&plugin.name) {
            return Err(PluginError::field(
                "plugins",
                format!("two are named {:?}", plugin.name),
            ));
        }
    }
    let plugins = native::with_defaults(plugins, &raw.runtime, folders.program);
    check_runtime(&raw.runtime, &plugins)?;
    network::check(&plugins)?;
    Ok(PluginFile {
        runtime: raw.runtime,
        plugins: storage::with_defaults(plugins, folders.program),
    })
}

fn check_runtime(runtime: &str, plugins: &[PluginConfig]) -> Result<(), PluginError> {
    let runtimes = plugins
        .iter()
        .filter(|plugin| plugin.kind == PluginKind::Runtime)
        .map(|plugin| plugin.name.as_str());
    let declared: Vec<_> = runtimes.collect();
    if declared.contains(&runtime) {
        return Ok(());
    }
    let declared = declared.join(", ");
    let why = format!("no runtime plugin is named {runtime:?}; declared are: {declared}");
    Err(PluginError::field("runtime", why))
}

fn check(
    raw: RawPlugin,
    at: &str,
    folders: PluginFolders<'_>,
) -> Result<PluginConfig, PluginError> {
    let refuse = |field: &str, why: String| Err(PluginError::field(format!("{at}.{field}"), why));
    if !is_name(&raw.name) {
        let why = format!(
            "{:?} is no name; expected at most 40 of a-z, 0-9 and '-'",
            raw.name
        );
        return refuse("name", why);
    }
    let kind = match kind(&raw.kind) {
        Ok(kind) => kind,
        Err(why) => return refuse("kind", why),
    };
    if let Err(why) = storage::check_name(kind, &raw.name) {
        return refuse("name", why);
    }
    let start = match check_start(raw.command, raw.args, raw.endpoint, folders) {
        Ok(start) => start,
        Err((field, why)) => return refuse(field, why),
    };
    let said = RawConfinement {
        capabilities: raw.capabilities,
        no_new_privileges: raw.no_new_privileges,
        seccomp: raw.seccomp,
        memory_limit: raw.memory_limit,
        pids_limit: raw.pids_limit,
    };
    if let (PluginStart::External { .. }, Some(field)) = (&start, said.field()) {
        return refuse(
            field,
            "an endpoint's process is not the agent's to confine".to_owned(),
        );
    }
    let confinement = match PluginConfinement::of(kind, &start).with(said) {
        Ok(confinement) => confinement,
        Err((field, why)) => return refuse(field, why),
    };
    if !(raw.configuration.is_null() || raw.configuration.is_object()) {
        return refuse("configuration", "expected a mapping".to_owned());
    }
    let health_interval = raw.health_interval.unwrap_or(HEALTH_INTERVAL);
    let start_within = raw.start_within.unwrap_or(START_TIMEOUT);
    let restarts_within = raw.restarts_within.unwrap_or(RESTART_WINDOW);
    for (field, time) in [
        ("healthInterval", health_interval),
        ("startWithin", start_within),
        ("restartsWithin", restarts_within),
    ] {
        if time <= GoDuration::ZERO {
            return refuse(field, format!("{time} must be greater than zero"));
        }
    }
    Ok(PluginConfig {
        name: raw.name,
        kind,
        start,
        configuration: raw.configuration,
        health_interval: health_interval.as_std(),
        start_within: start_within.as_std(),
        restarts: raw.restarts.unwrap_or(RESTARTS),
        restarts_within: restarts_within.as_std(),
        confinement,
    })
}

/// Returns the kind of this name, or why there is none.
fn kind(name: &str) -> Result<PluginKind, String> {
    match name {
        "runtime" => Ok(PluginKind::Runtime),
        "network" => Ok(PluginKind::Network),
        "storage" => Ok(PluginKind::Storage),
        other => Err(format!(
            "{other:?} is unknown; expected \"runtime\", \"network\" or \"storage\""
        )),
    }
}

/// Returns how the plugin is started, or the field that is wrong and why.
fn check_start(
    command: Option<String>,
    args: Vec<String>,
    endpoint: Option<String>,
    folders: PluginFolders<'_>,
) -> Result<PluginStart, (&'static str, String)> {
    match (command, endpoint) {
        (Some(command), None) if shipped::NAMES.contains(&command.as_str()) => {
            Ok(shipped::start(&command, args, folders.program))
        }
        (Some(command), None) if !command.is_empty() => Ok(PluginStart::Managed {
            command: locate(&command, folders),
            args,
        }),
        (None, Some(_)) if !args.is_empty() => {
            Err(("args", "an endpoint takes no arguments".to_owned()))
        }
        (None, Some(endpoint)) => match socket_path(&endpoint) {
            Some(endpoint) => Ok(PluginStart::External { endpoint }),
            None => Err(("endpoint", not_a_socket(&endpoint))),
        },
        _ => Err((
            "command",
            "expected either a command or an endpoint".to_owned(),
        )),
    }
}

/// A plugin's name is also the name of its directory and of its socket.
fn is_name(name: &str) -> bool {
    let sound = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=40).contains(&name.len()) && name.bytes().all(sound) && !name.starts_with('-')
}

fn locate(command: &str, folders: PluginFolders<'_>) -> PathBuf {
    if command.contains('/') {
        folders.file.join(command)
    } else {
        folders.program.join(command)
    }
}

fn socket_path(endpoint: &str) -> Option<PathBuf> {
    let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
    path.starts_with('/').then(|| PathBuf::from(path))
}

fn not_a_socket(endpoint: &str) -> String {
    format!("{endpoint:?} is no Unix socket; expected one such as unix:///run/crio/crio.sock")
}

/// Returns the plugin for a kubelet's runtime endpoint: CRI-O and containerd, recognised by the socket's name or by the
/// process that listens there, get their adapter; any other endpoint is taken for plain CRI.
pub fn from_endpoint(endpoint: &str, program: &Path) -> Result<PluginFile, PluginError> {
    let Some(path) = socket_path(endpoint) else {
        return Err(PluginError::field(
            "containerRuntimeEndpoint",
            not_a_socket(endpoint),
        ));
    };
    let by_name = ADAPTED.into_iter().find(|name| endpoint.contains(name));
    let name = by_name.or_else(|| {
        let listener = listener::listener(&path)?;
        ADAPTED.into_iter().find(|name| listener == *name)
    });
    let (start, configuration) = match name {
        Some(name) => {
            let start = shipped::start(&format!("runtime-{name}"), Vec::new(), program);
            let endpoint = format!("unix://{}", path.display());
            (start, json!({ "endpoint": endpoint }))
        }
        None => (PluginStart::External { endpoint: path }, Value::Null),
    };
    let name = name.unwrap_or("cri").to_owned();
    let plugin = PluginConfig {
        configuration,
        ..PluginConfig::new(name.clone(), PluginKind::Runtime, start)
    };
    Ok(PluginFile {
        runtime: name,
        plugins: storage::with_defaults(vec![plugin], program),
    })
}

#[cfg(test)]
mod tests;
