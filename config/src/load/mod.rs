//! From the command line and the host to a checked [`NodeConfig`]: flags over drop-ins over the file
//! over defaults, as the kubelet does it. All reading of files happens here and in what this calls.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Component, Path, PathBuf};

use serde_json::{Map, Value};

use crate::document::{self, DocumentError};
use crate::drop_in;
use crate::error::ConfigError;
use crate::feature_gates::FeatureGates;
use crate::flags::{self, FlagError, KubeletFlags, LowArgs};
use crate::honoured::{self, Compared};
use crate::kubelet_configuration::{API_VERSION, KIND, KubeletConfiguration, specimen};
use crate::plugins::{self, PluginFile};
use crate::validation::{self, CgroupVersion};
use crate::version;
use crate::{defaults, source};

/// What the configuration must know of the machine that it runs on.
#[derive(Clone, Debug)]
pub struct Host {
    pub hostname: String,
    pub cgroup: CgroupVersion,
    /// The folder of the agent's own program, where its plugins are as well.
    pub program_folder: PathBuf,
}

impl Host {
    /// Looks at the machine. What cannot be found out is left empty, for `load` to refuse if needed.
    pub fn detect() -> Host {
        let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let unified = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        let program = std::env::current_exe().unwrap_or_default();
        Host {
            hostname: hostname.trim().to_owned(),
            cgroup: if unified {
                CgroupVersion::V2
            } else {
                CgroupVersion::V1
            },
            program_folder: program.parent().unwrap_or(Path::new("")).to_owned(),
        }
    }
}

/// Everything that the agent is told, checked.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    pub kubelet: KubeletConfiguration,
    pub flags: KubeletFlags,
    pub gates: FeatureGates,
    pub plugins: PluginFile,
    /// The name of the node: `--hostname-override` or the host's, in lower case.
    pub node_name: String,
    /// The addresses of `--node-ip`, at most one a family.
    pub node_ips: Vec<IpAddr>,
    /// The Kubernetes version to report, e.g. `v1.36.0+oxlet.0.1.0`.
    pub version: String,
    /// What an operator should read once, at start.
    pub warnings: Vec<String>,
}

/// What a command line asks for.
#[derive(Clone, Debug)]
pub enum Outcome {
    Run(Box<NodeConfig>),
    /// An answer to print, after which the program ends well.
    Print(String),
}

/// Reads the arguments, the program's own name not among them, and every file that they name.
pub fn load(args: impl IntoIterator<Item = OsString>, host: &Host) -> Result<Outcome, ConfigError> {
    let low = LowArgs::parse(args)?;
    if low.help {
        return Ok(Outcome::Print(flags::usage()));
    }
    let version = match version::answer(low.version.as_deref()) {
        version::Answer::Print(text) => return Ok(Outcome::Print(text)),
        version::Answer::Report(version) => version,
    };
    let flags = low.kubelet_flags()?;
    let mut warnings = low.warnings();
    let Layers { kubelet, baseline } = layers(&low, &flags, &mut warnings)?;
    let gates = FeatureGates::new(&kubelet.feature_gates)?;
    validation::validate(&kubelet, &gates, host.cgroup)?;
    let plugins = plugins_of(&kubelet, &flags, host, &mut warnings)?;
    let unused = honoured::not_honoured(
        Compared {
            set: &kubelet,
            default: &baseline,
        },
        Compared {
            set: &flags,
            default: &KubeletFlags::default(),
        },
    );
    if !unused.is_empty() {
        let unused = unused.join(", ");
        warnings.push(format!(
            "valid, but not honoured yet by this version: {unused}"
        ));
    }
    let node_name = node_name(&flags, host)?;
    let node_ips = node_ips(&flags.node_ip, &mut warnings)?;
    let config = NodeConfig {
        kubelet,
        flags,
        gates,
        plugins,
        node_name,
        node_ips,
        version,
        warnings,
    };
    Ok(Outcome::Run(Box::new(config)))
}

/// The merged configuration, and what it would be had nobody set anything.
struct Layers {
    kubelet: KubeletConfiguration,
    baseline: KubeletConfiguration,
}

fn layers(
    low: &LowArgs,
    flags: &KubeletFlags,
    warnings: &mut Vec<String>,
) -> Result<Layers, ConfigError> {
    let typed = typed_gates(low, &Map::new())?;
    let (mut kubelet, mut baseline) = if flags.config.is_empty() {
        (
            apply(low, &defaults::legacy(&typed)),
            defaults::legacy(&typed),
        )
    } else {
        let file = read_file(low, Path::new(&flags.config), warnings)?;
        let mut baseline = defaults::complete(Map::new(), &typed)
            .expect("defaults alone always fit: a test completes them");
        default_eviction(&mut baseline);
        (file, baseline)
    };
    if !flags.config_dir.is_empty() {
        let folder = Path::new(&flags.config_dir);
        kubelet = merge_drop_ins(low, &kubelet, folder, warnings)?;
    }
    let mut kubelet = apply(low, &kubelet);
    if kubelet.merge_default_eviction_settings {
        merge_default_eviction(&mut kubelet);
        baseline.merge_default_eviction_settings = true;
    }
    Ok(Layers { kubelet, baseline })
}

/// The gates that decide about defaults: those typed, and over them those of the document at hand.
fn typed_gates(low: &LowArgs, fields: &Map<String, Value>) -> Result<FeatureGates, ConfigError> {
    let mut set = std::collections::BTreeMap::new();
    for gates in [
        low.configuration.get("featureGates"),
        fields.get("featureGates"),
    ] {
        let gates = gates.and_then(Value::as_object).into_iter().flatten();
        set.extend(gates.filter_map(|(name, on)| Some((name.clone(), on.as_bool()?))));
    }
    Ok(FeatureGates::new(&set)?)
}

fn read_file(
    low: &LowArgs,
    path: &Path,
    warnings: &mut Vec<String>,
) -> Result<KubeletConfiguration, ConfigError> {
    let text = source::read(path).map_err(ConfigError::file(path))?;
    let mut document = document::parse(&text).map_err(ConfigError::document(path))?;
    let fields = &mut document.fields;
    document::take_kind(fields, API_VERSION, KIND).map_err(ConfigError::document(path))?;
    if let Some(duplicate) = document.duplicate {
        warnings.push(format!(
            "{}: {duplicate}; the last one counts",
            path.display()
        ));
    }
    warn_unknown(path, fields, warnings);
    let gates = typed_gates(low, fields)?;
    let mut kubelet =
        defaults::complete(document.fields, &gates).map_err(ConfigError::document(path))?;
    if kubelet.eviction_hard.is_none() {
        default_eviction(&mut kubelet);
    }
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    resolve_paths(&mut kubelet, absolute.parent().unwrap_or(Path::new("/")));
    Ok(kubelet)
}

/// Drops the fields that nobody knows and says so. Upstream decodes v1beta1 strictly, and when that
/// fails leniently with a warning (`DecodeKubeletConfiguration`): so do we, lest a node that the
/// kubelet would start does not start here.
fn warn_unknown(path: &Path, fields: &mut Map<String, Value>, warnings: &mut Vec<String>) {
    let unknown = document::take_unknown(fields, &specimen());
    if !unknown.is_empty() {
        warnings.push(format!(
            "{}: unknown fields, ignored: {}; expected fields of {API_VERSION} {KIND}, spelt exactly so",
            path.display(),
            unknown.join(", ")
        ));
    }
}

fn merge_drop_ins(
    low: &LowArgs,
    base: &KubeletConfiguration,
    folder: &Path,
    warnings: &mut Vec<String>,
) -> Result<KubeletConfiguration, ConfigError> {
    let mut fields = to_fields(base);
    let mut last = folder.to_owned();
    for path in drop_in::find(folder)? {
        let mut patch = drop_in::read(&path)?;
        warn_unknown(&path, &mut patch, warnings);
        document::merge(&mut fields, patch);
        // Each is decoded as it comes, so that an error names the file that brought it.
        decode_merged(low, fields.clone()).map_err(|error| in_file(&path, error))?;
        last = path;
    }
    decode_merged(low, fields).map_err(|error| in_file(&last, error))
}

enum MergeError {
    Document(DocumentError),
    Other(ConfigError),
}

fn in_file(path: &Path, error: MergeError) -> ConfigError {
    match error {
        MergeError::Document(error) => ConfigError::document(path)(error),
        MergeError::Other(error) => error,
    }
}

fn decode_merged(
    low: &LowArgs,
    fields: Map<String, Value>,
) -> Result<KubeletConfiguration, MergeError> {
    let gates = typed_gates(low, &fields).map_err(MergeError::Other)?;
    defaults::complete(fields, &gates).map_err(MergeError::Document)
}

fn to_fields(kubelet: &KubeletConfiguration) -> Map<String, Value> {
    match serde_json::to_value(kubelet) {
        Ok(Value::Object(fields)) => fields,
        _ => unreachable!("a structure of plain data is a JSON object"),
    }
}

/// Lays the typed flags over a configuration. Gates add to those that are there; all else replaces.
fn apply(low: &LowArgs, kubelet: &KubeletConfiguration) -> KubeletConfiguration {
    let mut fields = to_fields(kubelet);
    for (path, value) in &low.configuration {
        match (*path, value) {
            ("featureGates", Value::Object(gates)) => {
                let patch =
                    Map::from_iter([("featureGates".to_owned(), Value::Object(gates.clone()))]);
                document::merge(&mut fields, patch);
            }
            (path, value) => document::put(&mut fields, path, value.clone()),
        }
    }
    document::decode(fields)
        .expect("every kind of flag gives what its field takes: a test sets each of them")
}

fn default_eviction(kubelet: &mut KubeletConfiguration) {
    kubelet.eviction_hard = Some(Default::default());
    merge_default_eviction(kubelet);
}

/// Adds the default thresholds of signals that have none.
fn merge_default_eviction(kubelet: &mut KubeletConfiguration) {
    let hard = kubelet.eviction_hard.get_or_insert_default();
    for (signal, amount) in defaults::EVICTION_HARD {
        hard.entry(signal.to_owned())
            .or_insert_with(|| amount.to_owned());
    }
}

/// Makes the paths of a file absolute: they are relative to the file's folder.
fn resolve_paths(kubelet: &mut KubeletConfiguration, folder: &Path) {
    for path in [
        &mut kubelet.static_pod_path,
        &mut kubelet.authentication.x509.client_ca_file,
        &mut kubelet.tls_cert_file,
        &mut kubelet.tls_private_key_file,
        &mut kubelet.resolver_config,
        &mut kubelet.volume_plugin_dir,
        &mut kubelet.pod_logs_dir,
    ] {
        if !path.is_empty() && !path.starts_with('/') {
            *path = clean(&folder.join(&*path)).to_string_lossy().into_owned();
        }
    }
}

fn clean(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                clean.pop();
            }
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) | Component::Normal(_) => {
                clean.push(component)
            }
        }
    }
    clean
}

fn plugins_of(
    kubelet: &KubeletConfiguration,
    flags: &KubeletFlags,
    host: &Host,
    warnings: &mut Vec<String>,
) -> Result<PluginFile, ConfigError> {
    let endpoint = &kubelet.container_runtime_endpoint;
    let failed = |origin: &str| {
        let origin = origin.to_owned();
        |source| ConfigError::Plugins { origin, source }
    };
    if flags.plugins.is_empty() {
        return plugins::from_endpoint(endpoint, &host.program_folder)
            .map_err(failed("containerRuntimeEndpoint"));
    }
    if *endpoint != defaults::runtime_endpoint() {
        let file = &flags.plugins;
        warnings.push(format!(
            "containerRuntimeEndpoint is not used: {file} declares the runtime"
        ));
    }
    plugins::load(Path::new(&flags.plugins), &host.program_folder).map_err(failed(&flags.plugins))
}

fn node_name(flags: &KubeletFlags, host: &Host) -> Result<String, ConfigError> {
    let name = match flags.hostname_override.trim() {
        "" => host.hostname.trim(),
        name => name,
    };
    if name.is_empty() {
        Err(ConfigError::NoNodeName)
    } else {
        Ok(name.to_lowercase())
    }
}

fn node_ips(text: &str, warnings: &mut Vec<String>) -> Result<Vec<IpAddr>, ConfigError> {
    let bad = |why| {
        ConfigError::Flags(FlagError::NodeIp {
            node_ip: text.to_owned(),
            why,
        })
    };
    let mut ips: Vec<IpAddr> = Vec::new();
    for part in text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        match part.parse() {
            Ok(ip) => ips.push(ip),
            Err(_) => warnings.push(format!("--node-ip: {part:?} is no IP address, ignored")),
        }
    }
    match ips.as_slice() {
        [] | [_] => Ok(ips),
        [first, second] if first.is_ipv4() == second.is_ipv4() => {
            Err(bad("expected one address of each family"))
        }
        [first, second] if first.is_unspecified() || second.is_unspecified() => {
            Err(bad("an unspecified address cannot be one of two"))
        }
        [_, _] => Ok(ips),
        _ => Err(bad("expected at most two addresses")),
    }
}

#[cfg(test)]
mod tests;
