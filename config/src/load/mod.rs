//! From the command line and the host to a checked [`NodeConfig`]. All reading of files happens in
//! what this calls.

mod drop_in;
mod layers;

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

pub use layers::parse_configuration;
use layers::{Base, Layers};

use crate::alone::{self, Choices, Standalone, StandaloneFacts};
use crate::credential_providers::{self, CredentialProvider, CredentialProviderPaths};
use crate::error::ConfigError;
use crate::feature_gates::FeatureGates;
use crate::flags::{self, FlagError, KubeletFlags, LowArgs};
use crate::kubelet_configuration::KubeletConfiguration;
use crate::plugins::{self, PluginFile, PluginFolders};
use crate::unsupported_fields::{self, Compared};
use crate::validation::{self, CgroupVersion};
use crate::{defaults, version};

/// Facts of the machine that the configuration depends on.
#[derive(Clone, Debug)]
pub struct HostFacts {
    /// As the machine calls itself.
    pub hostname: String,
    /// Which version of cgroups is mounted.
    pub cgroup: CgroupVersion,
    /// The directory of the agent's own program and its plugins.
    pub program_folder: PathBuf,
    /// What a node alone can use.
    pub standalone: StandaloneFacts,
}

impl HostFacts {
    /// Detects the machine's facts. An unknown one is left empty, for `load` to refuse if needed.
    pub fn detect() -> HostFacts {
        let hostname = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let unified = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        let program = std::env::current_exe().unwrap_or_default();
        HostFacts {
            hostname: hostname.trim().to_owned(),
            cgroup: if unified {
                CgroupVersion::V2
            } else {
                CgroupVersion::V1
            },
            program_folder: program.parent().unwrap_or(Path::new("")).to_owned(),
            standalone: StandaloneFacts::detect(),
        }
    }
}

/// The agent's whole configuration, merged and validated.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// The configuration file with its drop-ins and the flags that go before it.
    pub kubelet: KubeletConfiguration,
    /// The flags that have no field.
    pub flags: KubeletFlags,
    /// The feature gates in force.
    pub gates: FeatureGates,
    /// The plugins, the storage plugins among them.
    pub plugins: PluginFile,
    /// Programs that are asked for registry credentials, in the order of their declaration.
    pub credential_providers: Vec<CredentialProvider>,
    /// The name of the node: `--hostname-override` or the host's, in lower case.
    pub node_name: String,
    /// The addresses of `--node-ip`, at most one a family.
    pub node_ips: Vec<IpAddr>,
    /// The Kubernetes version to report, e.g. `v1.36.0+oxlet.0.1.0`.
    pub version: String,
    /// Warnings for the operator, logged once at start.
    pub warnings: Vec<String>,
    /// Sentences about unknown and repeated fields of the configuration, each with its file.
    pub unknown_fields: Vec<String>,
    /// The directory of the agent's own program and its plugins.
    pub program_folder: PathBuf,
    /// What `--alone` chose; none without it.
    pub alone: Option<Standalone>,
}

/// What a command line asks for: to run the agent, or to print an answer.
#[derive(Clone, Debug)]
pub enum Invocation {
    Run(Box<NodeConfig>),
    /// An answer to print, after which the program ends well.
    Print(String),
}

/// Reads the arguments, the program's own name not among them, and every file that they name.
///
/// # Errors
/// [`ConfigError`] names the flag, or the file and field, and what was expected; the agent ends with it and changes
/// nothing.
pub fn load(
    args: impl IntoIterator<Item = OsString>,
    host: &HostFacts,
) -> Result<Invocation, ConfigError> {
    let low = LowArgs::parse(args)?;
    if low.help {
        return Ok(Invocation::Print(flags::usage()));
    }
    let version = match version::answer(low.version.as_deref()) {
        version::VersionRequest::Print(text) => return Ok(Invocation::Print(text)),
        version::VersionRequest::Report(version) => version,
    };
    let flags = low.kubelet_flags()?;
    let mut warnings = low.warnings();
    let chosen = match flags.alone {
        true => Some(Choices::new(&flags, &host.standalone, host.cgroup)?),
        false => None,
    };
    let base = match &chosen {
        Some(chosen) => Base::Chosen(chosen),
        None if flags.config.is_empty() => Base::Legacy,
        None => Base::File(Path::new(&flags.config)),
    };
    let Layers {
        kubelet,
        baseline,
        unknown_fields,
    } = layers::merge(&low, &flags, base)?;
    if chosen.is_some() {
        alone::check(&kubelet)?;
    }
    let gates = FeatureGates::new(&kubelet.feature_gates)?;
    validation::validate(&kubelet, &gates, host.cgroup)?;
    let (plugins, alone) = plugins_of((&kubelet, &flags), chosen.as_ref(), host, &mut warnings)?;
    let credential_providers = credential_providers::load(
        CredentialProviderPaths {
            config: &flags.image_credential_provider_config,
            bin_dir: &flags.image_credential_provider_bin_dir,
        },
        &gates,
    )?;
    let set = Compared {
        set: &kubelet,
        default: &baseline,
    };
    warnings.extend(without_effect(set, &flags, &gates));
    let node_name = node_name(&flags, host)?;
    let node_ips = node_ips(&flags.node_ip, &mut warnings)?;
    let config = NodeConfig {
        kubelet,
        flags,
        gates,
        plugins,
        credential_providers,
        node_name,
        node_ips,
        version,
        warnings,
        unknown_fields,
        program_folder: host.program_folder.clone(),
        alone,
    };
    Ok(Invocation::Run(Box::new(config)))
}

/// Says what is set and does nothing: settings with the reason, gates together.
fn without_effect(
    kubelet: Compared<'_, KubeletConfiguration>,
    flags: &KubeletFlags,
    gates: &FeatureGates,
) -> Vec<String> {
    let flags = Compared {
        set: flags,
        default: &KubeletFlags::default(),
    };
    let mut sentences = unsupported_fields::without_effect(kubelet, flags);
    let unheeded = gates.unheeded().map(|name| format!("featureGates.{name}"));
    let unheeded = unheeded.collect::<Vec<_>>().join(", ");
    sentences.extend(
        (!unheeded.is_empty())
            .then(|| format!("valid, but not honoured yet by this version: {unheeded}")),
    );
    sentences
}

/// Whether `containerRuntimeEndpoint` is what it is without a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RuntimeEndpoint {
    Default,
    Said,
}

/// The plugins: of the plugin file, else of the endpoint; of a node alone that says neither, of what was chosen.
fn plugins_of(
    (kubelet, flags): (&KubeletConfiguration, &KubeletFlags),
    chosen: Option<&Choices<'_>>,
    host: &HostFacts,
    warnings: &mut Vec<String>,
) -> Result<(PluginFile, Option<Standalone>), ConfigError> {
    let program = host.program_folder.as_path();
    let alone = chosen.map(|_| Standalone::default());
    let open = chosen.and_then(|chosen| chosen.plugins(kubelet));
    let endpoint = match (chosen, &open) {
        (Some(_), Some(_)) => RuntimeEndpoint::Default,
        (Some(_), None) => RuntimeEndpoint::Said,
        (None, _) if kubelet.container_runtime_endpoint == defaults::runtime_endpoint() => {
            RuntimeEndpoint::Default
        }
        (None, _) => RuntimeEndpoint::Said,
    };
    if let Some((fields, chosen)) = open.filter(|_| flags.plugins.is_empty()) {
        let folders = PluginFolders {
            program,
            file: program,
        };
        let file = plugins::from_fields(fields, folders);
        let file = file.expect("the choices are sound plugins: a test makes each of them");
        return Ok((file, Some(chosen)));
    }
    if !flags.plugins.is_empty() && endpoint == RuntimeEndpoint::Said {
        let file = &flags.plugins;
        warnings.push(format!(
            "containerRuntimeEndpoint is not used: {file} declares the runtime"
        ));
    }
    Ok((declared_plugins(kubelet, flags, program)?, alone))
}

fn declared_plugins(
    kubelet: &KubeletConfiguration,
    flags: &KubeletFlags,
    program: &Path,
) -> Result<PluginFile, ConfigError> {
    let endpoint = &kubelet.container_runtime_endpoint;
    let failed = |origin: &str| {
        let origin = origin.to_owned();
        |source| ConfigError::Plugins { origin, source }
    };
    if flags.plugins.is_empty() {
        return plugins::from_endpoint(endpoint, program)
            .map_err(failed("containerRuntimeEndpoint"));
    }
    plugins::load(Path::new(&flags.plugins), program).map_err(failed(&flags.plugins))
}

fn node_name(flags: &KubeletFlags, host: &HostFacts) -> Result<String, ConfigError> {
    let name = match flags.hostname_override.trim() {
        "" if flags.alone => alone::node_name(&host.hostname),
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
