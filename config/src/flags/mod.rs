//! The command line, as pflag reads it: `--flag value`, `--flag=value`, `--switch`, `-v 2`, `-v=2`,
//! `_` as good as `-`. This is stage one: what was typed, nothing read from anywhere, nothing merged.

#[cfg(test)]
mod manual;
pub(crate) mod table;
mod usage;
mod value;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use table::{Flag, FlagStatus, Sets};
pub(crate) use usage::usage;

use crate::kubelet_configuration::GoDuration;
use crate::names;

/// The kubelet's settings that are flags only, and ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct KubeletFlags {
    /// The configuration file; empty for defaults.
    pub config: String,
    /// The folder of drop-ins; empty for none.
    pub config_dir: String,
    /// How to reach the API server; empty for a node that is alone.
    pub kubeconfig: String,
    /// With which a node asks for its first certificate.
    pub bootstrap_kubeconfig: String,
    /// Where certificates are kept.
    pub cert_dir: String,
    /// Upstream's `/var/lib/kubelet`.
    pub root_dir: String,
    /// The node's name; empty for the machine's.
    pub hostname_override: String,
    /// The node's addresses, separated by commas; empty for those that are found.
    pub node_ip: String,
    /// Labels of a node that registers.
    pub node_labels: BTreeMap<String, String>,
    /// `external`, or empty.
    pub cloud_provider: String,
    /// The runtime's cgroup, for its stats.
    pub runtime_cgroups: String,
    /// The file that declares credential providers.
    pub image_credential_provider_config: String,
    /// Where their programs lie.
    pub image_credential_provider_bin_dir: String,
    /// Held while the agent runs; empty for none.
    pub lock_file: String,
    /// Ends when another process wants that file.
    pub exit_on_lock_contention: bool,
    /// Between two samples of stats.
    pub housekeeping_interval: GoDuration,
    /// How long an ended container is kept at least.
    pub minimum_container_ttl_duration: GoDuration,
    /// Ended instances that are kept of each container.
    pub maximum_dead_containers_per_container: i32,
    /// Ended containers that are kept on the node; -1 for no limit.
    pub maximum_dead_containers: i32,
    /// A node that registers takes pods.
    pub register_schedulable: bool,
    /// A program that mounts what is on the network, in the place of mount(8); empty for that.
    pub experimental_mounter_path: String,
    /// Hard thresholds of eviction are not taken off allocatable.
    pub experimental_allocatable_ignore_eviction: bool,

    // Ours.
    /// A node of a folder of manifests, without an API server and without a configuration file.
    pub alone: bool,
    /// The plugin file; empty for the adapter of the runtime's endpoint.
    pub plugins: String,
    /// Where `oxctl` finds the agent.
    pub admin_socket: String,
    /// The console's page is served at `/console/` of the HTTPS API too.
    pub console: bool,
    /// A folder of objects for a node without an API server; empty for none.
    pub object_manifests: String,
    /// How long the logs of a pod that is gone are kept, and the ended containers of a static one; zero removes them at once.
    pub container_gc_period: GoDuration,
    /// Manifests and configuration with unknown or repeated fields are refused; otherwise each such field is a warning.
    pub strict_decoding: bool,
}

impl Default for KubeletFlags {
    fn default() -> Self {
        KubeletFlags {
            config: String::new(),
            config_dir: String::new(),
            kubeconfig: String::new(),
            bootstrap_kubeconfig: String::new(),
            cert_dir: "/var/lib/kubelet/pki".to_owned(),
            root_dir: "/var/lib/kubelet".to_owned(),
            hostname_override: String::new(),
            node_ip: String::new(),
            node_labels: BTreeMap::new(),
            cloud_provider: String::new(),
            runtime_cgroups: String::new(),
            image_credential_provider_config: String::new(),
            image_credential_provider_bin_dir: String::new(),
            lock_file: String::new(),
            exit_on_lock_contention: false,
            housekeeping_interval: GoDuration::from_secs(10),
            minimum_container_ttl_duration: GoDuration::ZERO,
            maximum_dead_containers_per_container: 1,
            maximum_dead_containers: -1,
            register_schedulable: true,
            experimental_mounter_path: String::new(),
            experimental_allocatable_ignore_eviction: false,
            alone: false,
            plugins: String::new(),
            admin_socket: "/run/oxlet/admin.sock".to_owned(),
            console: false,
            object_manifests: String::new(),
            container_gc_period: GoDuration::from_secs(60),
            strict_decoding: false,
        }
    }
}

/// Why a command line cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FlagError {
    #[error("unknown flag: --{0}")]
    Unknown(String),
    #[error("unknown shorthand flag: {short:?} in -{shorts}")]
    UnknownShort { short: char, shorts: String },
    #[error("bad flag syntax: {0}")]
    Syntax(String),
    #[error("flag needs an argument: {0}")]
    NoValue(String),
    #[error("invalid argument {text:?} for \"--{flag}\" flag: {expected}")]
    Value {
        flag: &'static str,
        text: String,
        expected: String,
    },
    #[error("unknown command {0}")]
    Command(String),
    #[error("argument {0:?} is not UTF-8")]
    NotText(OsString),
    #[error("--exit-on-lock-contention needs --lock-file")]
    NoLockFile,
    #[error(
        "unknown 'kubernetes.io' or 'k8s.io' labels in --node-labels: {}; a node may set those \
         under kubelet.kubernetes.io and node.kubernetes.io, and {}",
        .0.join(", "), names::NODE_LABELS.join(", ")
    )]
    ReservedLabels(Vec<String>),
    #[error("invalid node labels in --node-labels: {}", .0.join("; "))]
    Labels(Vec<String>),
    #[error("bad --node-ip {node_ip:?}: {why}")]
    NodeIp { node_ip: String, why: &'static str },
}

/// The parsed command line, unmerged.
#[derive(Debug, Default)]
pub(crate) struct LowArgs {
    /// Values for fields of the KubeletConfiguration, by path.
    pub(crate) configuration: BTreeMap<&'static str, Value>,
    /// Values for [`KubeletFlags`], by flag name.
    pub(crate) own: Map<String, Value>,
    /// Every flag that was typed.
    used: BTreeSet<&'static str>,
    pub(crate) help: bool,
    pub(crate) version: Option<String>,
}

impl LowArgs {
    /// Reads arguments, the program's own name not among them.
    pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<LowArgs, FlagError> {
        let mut low = LowArgs::default();
        let mut args = args
            .into_iter()
            .map(|arg| arg.into_string().map_err(FlagError::NotText));
        let mut first_word = None;
        while let Some(arg) = args.next().transpose()? {
            if arg == "--" {
                first_word = first_word.or(args.next().transpose()?);
                break;
            } else if let Some(long) = arg.strip_prefix("--") {
                low.long(long, &mut args)?;
            } else if arg.len() > 1 && arg.starts_with('-') {
                low.shorts(&arg[1..], &mut args)?;
            } else {
                first_word.get_or_insert(arg);
            }
        }
        match first_word {
            Some(word) => Err(FlagError::Command(word)),
            None => Ok(low),
        }
    }

    fn long(
        &mut self,
        text: &str,
        rest: &mut impl Iterator<Item = Result<String, FlagError>>,
    ) -> Result<(), FlagError> {
        if text.starts_with(['-', '=']) {
            return Err(FlagError::Syntax(format!("--{text}")));
        }
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text, None),
        };
        let flag = table::by_name(name).ok_or_else(|| FlagError::Unknown(name.to_owned()))?;
        let value = match (value, flag.kind.alone()) {
            (Some(value), _) => value,
            (None, Some(alone)) => alone.to_owned(),
            (None, None) => rest
                .next()
                .transpose()?
                .ok_or_else(|| FlagError::NoValue(format!("--{}", flag.name)))?,
        };
        self.set(flag, &value)
    }

    fn shorts(
        &mut self,
        shorts: &str,
        rest: &mut impl Iterator<Item = Result<String, FlagError>>,
    ) -> Result<(), FlagError> {
        let mut left = shorts;
        while let Some(short) = left.chars().next() {
            left = &left[short.len_utf8()..];
            let flag = table::by_short(short).ok_or_else(|| FlagError::UnknownShort {
                short,
                shorts: shorts.to_owned(),
            })?;
            if let Some(value) = left.strip_prefix('=') {
                return self.set(flag, value);
            } else if let Some(alone) = flag.kind.alone() {
                self.set(flag, alone)?;
            } else if left.is_empty() {
                let missing = || FlagError::NoValue(format!("{short:?} in -{shorts}"));
                let value = rest.next().transpose()?.ok_or_else(missing)?;
                return self.set(flag, &value);
            } else {
                return self.set(flag, left);
            }
        }
        Ok(())
    }

    fn set(&mut self, flag: &'static Flag, text: &str) -> Result<(), FlagError> {
        self.used.insert(flag.name);
        let so_far = match flag.sets {
            Sets::Configuration(path) => self.configuration.remove(path),
            Sets::Own => self.own.remove(flag.name),
            Sets::Nothing | Sets::Answer => None,
        };
        let value = flag
            .kind
            .read(text, so_far)
            .map_err(|expected| FlagError::Value {
                flag: flag.name,
                text: text.to_owned(),
                expected,
            })?;
        match (flag.sets, value) {
            (Sets::Configuration(path), Some(value)) => {
                self.configuration.insert(path, value);
            }
            (Sets::Own, Some(value)) => {
                self.own.insert(flag.name.to_owned(), value);
            }
            (Sets::Answer, Some(Value::Bool(help))) => self.help = help,
            (Sets::Answer, Some(Value::String(version))) => self.version = Some(version),
            _ => {}
        }
        Ok(())
    }

    /// Returns the flags-only settings, checked.
    pub(crate) fn kubelet_flags(&self) -> Result<KubeletFlags, FlagError> {
        let flags: KubeletFlags = serde_json::from_value(Value::Object(self.own.clone()))
            .expect("every kind of flag gives what its field takes: a test sets each of them");
        check_labels(&flags.node_labels)?;
        if flags.exit_on_lock_contention && flags.lock_file.is_empty() {
            return Err(FlagError::NoLockFile);
        }
        Ok(flags)
    }

    /// Returns what an operator should know about the flags that were typed.
    pub(crate) fn warnings(&self) -> Vec<String> {
        // A node alone has no file in which a setting would stand better.
        let is_alone = self.own.get("alone") == Some(&Value::Bool(true));
        let typed = |wanted: fn(FlagStatus) -> bool| {
            let names = table::all().filter(|flag| self.used.contains(flag.name));
            let names = names
                .filter(|flag| wanted(flag.status))
                .filter(|flag| !(is_alone && matches!(flag.sets, Sets::Configuration(_))))
                .map(|flag| format!("--{}", flag.name));
            names
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect::<Vec<_>>()
                .join(", ")
        };
        let deprecated = typed(|status| status == FlagStatus::Deprecated);
        let removed = typed(|status| matches!(status, FlagStatus::Removed(_)));
        let mut warnings = Vec::new();
        if !deprecated.is_empty() {
            warnings.push(format!(
                "deprecated flags, better set in the file that --config names: {deprecated}"
            ));
        }
        if !removed.is_empty() {
            warnings.push(format!(
                "flags without effect, removed from the kubelet before 1.36: {removed}"
            ));
        }
        warnings
    }
}

fn check_labels(labels: &BTreeMap<String, String>) -> Result<(), FlagError> {
    let reserved: Vec<_> = labels
        .keys()
        .filter(|key| names::reserved_label(key))
        .cloned()
        .collect();
    if !reserved.is_empty() {
        return Err(FlagError::ReservedLabels(reserved));
    }
    let wrong: Vec<_> = labels
        .iter()
        .flat_map(|(key, value)| [names::qualified_name(key), names::label_value(value)])
        .filter_map(Result::err)
        .collect();
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(FlagError::Labels(wrong))
    }
}

#[cfg(test)]
mod tests;
