//! The configuration as sections for the actors, and the facts of the machine that they need.

mod api_server;
mod backoff;
mod containers;
mod enforcement;
mod eviction;
mod garbage;
mod https;
mod node;
mod placement;
mod plugins;
mod programs;
#[cfg(test)]
pub(crate) mod testing;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use config::NodeConfig;
use logic_api::manifest::{ApiReferences, StaticPodContext, UnknownFields};
use logic_pods::PodWorkerConfig;
use logic_pods::images::credentials::docker::DockerConfigDirs;
use logic_pods::images::rate::PullRateLimit;
use logic_pods::images::verification;
use logic_resources::node::NodeFacts;
use logic_resources::node::policy::NodePolicy;
use logic_volumes::resolve::SeLinuxMountPolicy;
use plugin_host::{Confiner, Declaration};
use pods::area::{PodSettings, PullSettings};
use pods::images::{self, credentials};
use pods::pod_manager::PodSource;
use pods::pod_manager::devices::HealthInStatus;
use resources::area::{IptablesUse, ResourceSettings};
use resources::container_manager::ContainerManagerConfig;
use resources::dynamic_resources::DynamicResourcesConfig;
use resources::stats::StatsSource;
use state::area::StateSettings;
use state::assignments::Assignments;
use state::{take_over, user_namespaces};

pub use self::api_server::{ClientCertificate, ClusterSettings, ServingCertificate};

/// The name of the runtime's host, whichever declared runtime is active.
pub const RUNTIME: &str = "runtime";

/// Everything that the tree is built from.
#[derive(Debug)]
pub struct AgentSettings {
    pub node: NodePolicy,
    pub facts: Arc<NodeFacts>,
    pub policy: logic_pods::pod_actions::PodActionPolicy,
    /// The declared runtimes by name; each declaration has the host's name.
    pub runtimes: BTreeMap<String, Declaration>,
    /// The runtime that is active at start.
    pub runtime: String,
    /// The deadline of a call of the runtime.
    pub runtime_within: Duration,
    /// The declared storage plugins by name, under which each is hosted.
    pub storage: BTreeMap<String, Declaration>,
    /// The declared network plugin by name, under which it is hosted; empty without one.
    pub network: BTreeMap<String, Declaration>,
    /// What each plugin confines itself by.
    pub confiner: Arc<Confiner>,
    pub pulls: PullSettings,
    pub sources: BTreeSet<PodSource>,
    pub containers: ContainerManagerConfig,
    /// What pods have to themselves, or why the node cannot be as it is configured.
    assignments: Result<Assignments, String>,
    pub eviction: logic_resources::eviction::EvictionPolicy,
    /// The agent's own folder: checkpoints and plugins.
    pub folder: PathBuf,
    /// None where it is not served.
    pub healthz: Option<SocketAddr>,
    /// None where it is not served.
    pub read_only: Option<SocketAddr>,
    /// None where it is not served.
    pub https: Option<SocketAddr>,
    pub serving: serving::Policy,
    pub serving_certificate: ServingCertificate,
    /// None for a standalone node.
    pub cluster: Option<ClusterSettings>,
    pub shutdown: resources::shutdown::Policy,
    pub image_gc: resources::image_gc::ImageGcConfig,
    pub oom: resources::oom::OomConfig,
    /// Bytes of the machine's swap.
    swap: u64,
    /// The socket's path.
    pub admin: PathBuf,
    pub config: Box<NodeConfig>,
}

impl AgentSettings {
    pub fn new(config: Box<NodeConfig>) -> Self {
        let kubelet = &config.kubelet;
        let folder = PathBuf::from(&config.flags.root_dir).join("oxlet");
        let mut sources = BTreeSet::new();
        if !kubelet.static_pod_path.is_empty() {
            sources.insert(PodSource::File);
        }
        if !kubelet.static_pod_url.is_empty() {
            sources.insert(PodSource::Http);
        }
        if !config.flags.kubeconfig.is_empty() {
            sources.insert(PodSource::Api);
        }
        let machine = host::machine::read(Path::new(&config.flags.root_dir));
        let facts = node::facts(&config, &machine);
        let policy = node::policy(&config, &machine, &facts);
        AgentSettings {
            assignments: placement::assignments(&config, &facts),
            containers: containers::containers(&config, &machine, (&policy, &facts)),
            node: policy,
            facts: Arc::new(facts),
            policy: logic_pods::pod_actions::PodActionPolicy {
                backoff: backoff::policy(&config),
            },
            runtimes: plugins::runtimes(&config),
            runtime: config.plugins.runtime.clone(),
            runtime_within: kubelet.runtime_request_timeout.into(),
            storage: plugins::storage(&config),
            network: plugins::network(&config),
            confiner: Arc::new(plugins::confiner(&config)),
            pulls: pulls(&config),
            sources,
            eviction: eviction::policy(&config),
            image_gc: garbage::images(&config, &folder),
            oom: garbage::oom(&config, &folder),
            folder,
            healthz: address(&kubelet.healthz_bind_address, kubelet.healthz_port),
            read_only: address(&kubelet.address, kubelet.read_only_port),
            https: https::address(&config),
            serving: https::policy(&config),
            serving_certificate: api_server::serving_certificate(&config),
            cluster: api_server::cluster(&config),
            shutdown: shutdown(&config),
            swap: machine.swap,
            admin: PathBuf::from(&config.flags.admin_socket),
            config,
        }
    }

    /// Whether the node can be what it is configured as.
    ///
    /// # Errors
    /// What upstream refuses to start with, in its words; a program of the package that is missing.
    pub fn check(&self) -> Result<(), String> {
        programs::check(&self.config)?;
        containers::check(&self.config, &self.facts, self.swap)?;
        self.assignments.as_ref().map(drop).map_err(String::clone)
    }

    /// What pods have to themselves; nothing on a node that [`AgentSettings::check`] refuses.
    pub fn assignments(&self) -> Assignments {
        self.assignments.clone().unwrap_or_default()
    }

    /// The settings of the manager of dynamic resources.
    pub fn claims(&self) -> DynamicResourcesConfig {
        placement::claims(&self.config, &self.node.root_dir)
    }

    /// What manifests of static pods are read with.
    pub fn static_pod_context(&self) -> StaticPodContext {
        StaticPodContext {
            node_name: self.config.node_name.as_str().into(),
            references: match self.config.gates.enabled("PreventStaticPodAPIReferences") {
                true => ApiReferences::Refused,
                false => ApiReferences::Allowed,
            },
            unknown_fields: match self.config.flags.strict_decoding {
                true => UnknownFields::Refuse,
                false => UnknownFields::Warn,
            },
            residents: take_over::residents(&self.node.root_dir.join("pods")),
        }
    }

    /// The workers' rules and the node's facts.
    pub fn rules(&self) -> Arc<PodWorkerConfig> {
        Arc::new(PodWorkerConfig {
            policy: self.policy,
            node: self.node.clone(),
            facts: self.facts.clone(),
            container_gc_period: self.config.flags.container_gc_period.as_std(),
            container_gc: garbage::policy(&self.config),
        })
    }

    /// The cgroups of system processes that a summary shows beside the pods.
    pub fn system_groups(&self) -> host::stats::SystemGroups {
        host::stats::SystemGroups {
            kubelet: self.config.kubelet.kubelet_cgroups.clone(),
            runtime: self.config.flags.runtime_cgroups.clone(),
            system: self.config.kubelet.system_cgroups.clone(),
        }
    }

    /// Whether pods' statuses show the health of their devices.
    pub fn device_health(&self) -> HealthInStatus {
        match self.config.gates.enabled("ResourceHealthStatus") {
            true => HealthInStatus::Shown,
            false => HealthInStatus::Hidden,
        }
    }

    /// Where the figures of pods come from.
    pub fn stats_source(&self) -> StatsSource {
        match self.config.gates.enabled("PodAndContainerStatsFromCRI") {
            true => StatsSource::Runtime,
            false => StatsSource::Groups,
        }
    }

    /// The state area's settings.
    pub fn state(&self) -> StateSettings {
        StateSettings {
            checkpoint: self.folder.join("pods.checkpoint"),
            root_dir: self.node.root_dir.clone(),
            users: user_namespaces::Policy {
                pods: self.node.root_dir.join("pods"),
                ids_per_pod: ids_per_pod(&self.config.kubelet),
                max_pods: u32::try_from(self.config.kubelet.max_pods).unwrap_or(0),
            },
            assignments: self.assignments(),
        }
    }

    /// The volume manager's settings.
    pub fn volumes(&self) -> volumes::Policy {
        volumes::Policy {
            resync: self.config.kubelet.sync_frequency.into(),
            stats: period(self.config.kubelet.volume_stats_agg_period),
            selinux: selinux(&self.config.gates),
            health: match self.config.gates.enabled("CSIVolumeHealth") {
                true => volumes::VolumeHealthPolicy::Told,
                false => volumes::VolumeHealthPolicy::Ignored,
            },
        }
    }

    /// The settings of the resources' area.
    pub fn resources(&self) -> ResourceSettings {
        ResourceSettings {
            node_name: self.config.node_name.clone(),
            containers: self.containers.clone(),
            container_gc: garbage::containers(&self.config, &self.node),
            image_gc: self.image_gc.clone(),
            oom: self.oom.clone(),
            eviction: self.eviction.clone(),
            shutdown: self.shutdown.clone(),
            iptables: match self.config.kubelet.make_iptables_util_chains {
                true => IptablesUse::Kept,
                false => IptablesUse::LeftAlone,
            },
            pod_cidr: Some(self.config.kubelet.pod_cidr.clone())
                .filter(|pod_cidr| !pod_cidr.is_empty() && self.cluster.is_none()),
        }
    }

    /// The settings of the pods' area.
    pub fn pods(&self, rules: Arc<PodWorkerConfig>) -> PodSettings {
        let kubelet = &self.config.kubelet;
        PodSettings {
            rules,
            assignments: self.assignments(),
            pulls: self.pulls.clone(),
            logs: logic_pods::logs::LogRotationPolicy::new(
                &kubelet.container_log_max_size,
                kubelet.container_log_max_files,
                kubelet.container_log_max_workers,
                kubelet.container_log_monitor_interval.into(),
            ),
            sources: self.sources.clone(),
        }
    }
}

/// A period of the configuration; none for zero or less, which switches it off.
fn period(given: config::GoDuration) -> Option<Duration> {
    (given > config::GoDuration::ZERO).then(|| given.into())
}

/// As upstream: SELinux is on if its file system is mounted and not empty, and `SELinuxMount` has it reach volumes of
/// every access mode.
fn selinux(gates: &config::FeatureGates) -> SeLinuxMountPolicy {
    let is_on = Path::new("/sys/fs/selinux/enforce").exists();
    match (is_on, gates.enabled("SELinuxMount")) {
        (false, _) => SeLinuxMountPolicy::Off,
        (true, false) => SeLinuxMountPolicy::On,
        (true, true) => SeLinuxMountPolicy::OnForAll,
    }
}

/// The IDs of each pod's user namespace; upstream's default if none is configured. Validation has checked it.
fn ids_per_pod(kubelet: &config::KubeletConfiguration) -> u32 {
    const DEFAULT_IDS_PER_POD: u32 = 65_536;
    let section = kubelet.user_namespaces.as_ref();
    let ids = section.and_then(|section| section.ids_per_pod);
    ids.map_or(DEFAULT_IDS_PER_POD, |ids| {
        u32::try_from(ids).unwrap_or(DEFAULT_IDS_PER_POD)
    })
}

/// klog's verbosity as the level of a plugin: at 4 it says what helps to find errors, from 8 on everything.
fn log_level(verbosity: u32) -> &'static str {
    match verbosity {
        0..=3 => "info",
        4..=7 => "debug",
        _ => "trace",
    }
}

fn pulls(config: &NodeConfig) -> PullSettings {
    let (kubelet, root_dir) = (&config.kubelet, PathBuf::from(&config.flags.root_dir));
    let verified = config.gates.enabled("KubeletEnsureSecretPulledImages");
    PullSettings {
        images: images::ImageConfig {
            parallel: parallel_pulls(
                kubelet.serialize_image_pulls,
                kubelet.max_parallel_image_pulls,
            ),
            rate: PullRateLimit::new(kubelet.registry_pull_qps, kubelet.registry_burst),
            verification: verified.then(|| {
                verification::CredentialVerificationPolicy::from_name(
                    &kubelet.image_pull_credentials_verification_policy,
                    &kubelet.preloaded_images_verification_allowlist,
                )
            }),
            root_dir: root_dir.clone(),
        },
        credentials: credentials::CredentialConfig {
            folders: DockerConfigDirs {
                root_dir,
                working: std::env::current_dir().unwrap_or_default(),
                home: std::env::var_os("HOME").unwrap_or_default().into(),
            },
            providers: config.credential_providers.clone(),
        },
    }
}

/// Parallel pulls, as upstream: one if serialised, else the configured limit, else none.
fn parallel_pulls(serialize: bool, max_parallel: Option<i32>) -> Option<usize> {
    if serialize {
        return Some(1);
    }
    max_parallel.and_then(|max| usize::try_from(max).ok())
}

/// The settings of the graceful node shutdown.
fn shutdown(config: &NodeConfig) -> resources::shutdown::Policy {
    let kubelet = &config.kubelet;
    let by_priority = &kubelet.shutdown_grace_period_by_pod_priority;
    let group =
        |entry: &config::ShutdownGracePeriodByPodPriority| logic_node::shutdown::ShutdownGroup {
            priority: entry.priority,
            grace: Duration::from_secs(
                u64::try_from(entry.shutdown_grace_period_seconds).unwrap_or(0),
            ),
        };
    resources::shutdown::Policy {
        order: logic_node::shutdown::ShutdownPolicy::new(
            by_priority.iter().map(group).collect(),
            kubelet.shutdown_grace_period.into(),
            kubelet.shutdown_grace_period_critical_pods.into(),
        ),
        node_name: config.node_name.clone(),
        logind_folder: PathBuf::from("/etc/systemd/logind.conf.d"),
        record: config
            .gates
            .enabled("GracefulNodeShutdownBasedOnPodPriority")
            .then(|| Path::new(&config.flags.root_dir).join(resources::shutdown::record::NAME)),
    }
}

fn address(host: &str, port: i32) -> Option<SocketAddr> {
    let port = u16::try_from(port).ok().filter(|port| *port != 0)?;
    let ip = host.parse().unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    Some(SocketAddr::new(ip, port))
}
