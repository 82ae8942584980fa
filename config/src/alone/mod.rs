//! `--alone`: a node that has a folder of manifests, and neither an API server nor a configuration file. What the machine
//! has decides the rest; drop-ins and flags go before it, as before a configuration file.
//!
//! Nothing of it is open to the network: the HTTPS API and the read-only port are off, and on the loopback address where
//! they are switched on. Without an API server there is nobody to ask who may, so nobody may by default.

mod facts;
mod runtime;

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

pub use self::facts::StandaloneFacts;
pub use self::runtime::StandaloneRuntime;
use crate::defaults;
use crate::feature_gates::FeatureGates;
use crate::flags::KubeletFlags;
use crate::kubelet_configuration::KubeletConfiguration;
use crate::validation::CgroupVersion;

/// Where manifests are, unless `staticPodPath` says otherwise.
const MANIFESTS: &str = "/etc/oxlet/manifests";
/// The name of a machine that has none.
const NODE_NAME: &str = "localhost";
/// What the kernel calls a machine that was given no name.
const NO_HOSTNAME: &str = "(none)";
/// Folders of CNI programs, for steps of a network that are not built in: upstream's, Debian's and Fedora's.
const CNI_PROGRAMS: [&str; 3] = ["/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"];

/// The network that ships, a conflist: a bridge of its own, masqueraded.
pub const SHIPPED_NETWORK: &str = include_str!("../../service/10-oxlet.conflist");

/// Settings or files that a node alone cannot be with.
#[derive(Debug, thiserror::Error)]
pub enum AloneError {
    #[error("--{flag} cannot be given with --alone, {why}")]
    Flag {
        flag: &'static str,
        why: &'static str,
    },
    #[error("{field} cannot be {found} with --alone: {why}")]
    Setting {
        field: &'static str,
        found: String,
        why: &'static str,
    },
    #[error("cannot read which runtime this node has, {}", .path.display())]
    Choice {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(
        "{} says that this node's runtime is {found:?}; expected containerd, crio or native", .path.display()
    )]
    UnknownChoice { path: PathBuf, found: String },
}

/// What `--alone` chose where nothing else was said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standalone {
    /// The runtime; none where `--plugins` or `containerRuntimeEndpoint` names it.
    pub runtime: Option<KeptRuntime>,
    /// The agent's own folder of networks, which holds the network that ships unless another one is put there; none where
    /// the machine has networks, or the runtime brings its own.
    pub networks: Option<PathBuf>,
}

/// The machine's runtime, and where the choice is to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptRuntime {
    pub runtime: StandaloneRuntime,
    pub file: PathBuf,
}

/// The choices on the way to a configuration: what it is before drop-ins and flags.
#[derive(Debug)]
pub(crate) struct Choices<'a> {
    facts: &'a StandaloneFacts,
    cgroup: CgroupVersion,
    root_dir: PathBuf,
    runtime: KeptRuntime,
    has_objects: bool,
}

impl<'a> Choices<'a> {
    /// Chooses by what an earlier life of the node has kept and what the machine has.
    ///
    /// # Errors
    /// A flag that contradicts `--alone`; a kept choice that cannot be read.
    pub(crate) fn new(
        flags: &KubeletFlags,
        facts: &'a StandaloneFacts,
        cgroup: CgroupVersion,
    ) -> Result<Choices<'a>, AloneError> {
        check_flags(flags)?;
        let file = runtime::choice_file(&flags.root_dir);
        let root_dir = Path::new(&flags.root_dir);
        Ok(Choices {
            facts,
            cgroup,
            root_dir: std::path::absolute(root_dir).unwrap_or_else(|_| root_dir.to_owned()),
            runtime: KeptRuntime {
                runtime: runtime::choose(&file, facts)?,
                file,
            },
            has_objects: !flags.object_manifests.is_empty(),
        })
    }

    /// The configuration before drop-ins and flags, in the place of a file's.
    pub(crate) fn configuration(&self, gates: &FeatureGates) -> KubeletConfiguration {
        let mut chosen = defaults::complete(Map::new(), gates)
            .expect("defaults alone always fit: a test completes them");
        MANIFESTS.clone_into(&mut chosen.static_pod_path);
        chosen.enable_server = false;
        "127.0.0.1".clone_into(&mut chosen.address);
        chosen.read_only_port = 0;
        chosen.authentication.anonymous.enabled = false;
        chosen.authentication.webhook.enabled = false;
        "AlwaysAllow".clone_into(&mut chosen.authorization.mode);
        chosen.container_runtime_endpoint = self.own_endpoint();
        self.cgroup_driver().clone_into(&mut chosen.cgroup_driver);
        self.facts
            .resolver()
            .clone_into(&mut chosen.resolver_config);
        // The machine is taken as it is, and its firewall is left alone.
        chosen.fail_cgroup_v1 = false;
        chosen.fail_swap_on = false;
        chosen.make_iptables_util_chains = false;
        if self.has_objects {
            // Pods may refer to what the folder has.
            let gate = "PreventStaticPodAPIReferences".to_owned();
            chosen.feature_gates.insert(gate, false);
        }
        chosen
    }

    /// systemd's slices where systemd and cgroup v2 are. A containerd of today tells its driver by itself, and one that
    /// does not has cgroupfs unless its file says otherwise.
    fn cgroup_driver(&self) -> &'static str {
        let has_slices = self.facts.is_systemd && self.cgroup == CgroupVersion::V2;
        match self.runtime.runtime {
            StandaloneRuntime::Crio | StandaloneRuntime::Native if has_slices => "systemd",
            StandaloneRuntime::Containerd | StandaloneRuntime::Crio | StandaloneRuntime::Native => {
                "cgroupfs"
            }
        }
    }

    /// Where the agent's own plugin serves CRI, whichever runtime it is: what `containerRuntimeEndpoint` is while nothing
    /// else is said.
    fn own_endpoint(&self) -> String {
        let socket = self.root_dir.join("oxlet/plugins/runtime.sock");
        format!("unix://{}", socket.display())
    }

    /// The fields of a plugin file, and what was chosen for it. None where the configuration names a runtime.
    pub(crate) fn plugins(
        &self,
        kubelet: &KubeletConfiguration,
    ) -> Option<(Map<String, Value>, Standalone)> {
        if kubelet.container_runtime_endpoint != self.own_endpoint() {
            return None;
        }
        let runtime = self.runtime.runtime;
        let command = format!("runtime-{}", runtime.name());
        let mut plugins =
            vec![json!({ "name": runtime.name(), "kind": "runtime", "command": command })];
        let mut networks = None;
        match runtime.socket() {
            Some(socket) => {
                plugins[0]["configuration"] = json!({ "endpoint": format!("unix://{socket}") });
            }
            None => {
                let own = self.root_dir.join("oxlet/net.d");
                let folder = self.facts.networks.as_ref().unwrap_or(&own);
                plugins.push(json!({
                    "name": "network",
                    "kind": "network",
                    "command": "network-native",
                    "configuration": { "confDir": folder, "binDirs": CNI_PROGRAMS },
                }));
                networks = self.facts.networks.is_none().then_some(own);
            }
        }
        let file = Map::from_iter([
            ("runtime".to_owned(), json!(runtime.name())),
            ("plugins".to_owned(), Value::Array(plugins)),
        ]);
        let runtime = Some(self.runtime.clone());
        Some((file, Standalone { runtime, networks }))
    }
}

/// The machine's name, or one where it has none: the names of static pods end with it.
pub(crate) fn node_name(hostname: &str) -> &str {
    match hostname.trim() {
        "" | NO_HOSTNAME => NODE_NAME,
        name => name,
    }
}

fn check_flags(flags: &KubeletFlags) -> Result<(), AloneError> {
    let cluster = "which is a node without an API server";
    let file = "which chooses what that file would say; single settings go into a *.conf file of --config-dir";
    for (flag, given, why) in [
        ("kubeconfig", &flags.kubeconfig, cluster),
        ("bootstrap-kubeconfig", &flags.bootstrap_kubeconfig, cluster),
        ("cloud-provider", &flags.cloud_provider, cluster),
        ("config", &flags.config, file),
    ] {
        if !given.is_empty() {
            return Err(AloneError::Flag { flag, why });
        }
    }
    Ok(())
}

/// Checks the merged configuration: nothing in it may need an API server, and nobody may come in from the network unasked.
pub(crate) fn check(kubelet: &KubeletConfiguration) -> Result<(), AloneError> {
    let refuse = |field, found: &dyn std::fmt::Display, why| {
        Err(AloneError::Setting {
            field,
            found: found.to_string(),
            why,
        })
    };
    let nobody = "there is no API server to ask";
    if kubelet.authentication.webhook.enabled {
        return refuse("authentication.webhook.enabled", &true, nobody);
    }
    if kubelet.authorization.mode == "Webhook" {
        return refuse("authorization.mode", &"Webhook", nobody);
    }
    if kubelet.server_tls_bootstrap {
        return refuse("serverTLSBootstrap", &true, nobody);
    }
    if kubelet.rotate_certificates {
        return refuse("rotateCertificates", &true, nobody);
    }
    let is_here = |address: &str| {
        let address = address.parse::<IpAddr>();
        address.is_ok_and(|address| address.is_loopback())
    };
    let is_open = kubelet.enable_server && kubelet.authentication.anonymous.enabled;
    if is_open && !is_here(&kubelet.address) {
        let why = "whoever reaches the HTTPS API could run commands in pods; expected address 127.0.0.1, or \
                   authentication.x509.clientCAFile in its place";
        return refuse("authentication.anonymous.enabled", &true, why);
    }
    Ok(())
}
