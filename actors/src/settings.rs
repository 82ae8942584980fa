//! The configuration, cut into the sections that actors are given; and what must be known of the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use config::{NodeConfig, PluginStart};
use kernel::Intensity;
use kernel::plugin::{Declaration, Kind, Start};
use logic::backoff::BackoffPolicy;
use logic::dns::Dns;
use logic::pressure::{Limit, Signal, Threshold};
use logic::quantity::Quantity;
use logic::sandbox::{NodePolicy, Seccomp};

use crate::directory::Source;
use crate::worker::Rules;

/// The runtime's host: whichever runtime is declared active, it is reached under this name.
pub const RUNTIME: &str = "runtime";

/// Everything that the tree is wired with.
#[derive(Debug)]
pub struct Settings {
    pub node: NodePolicy,
    pub policy: logic::worker::Policy,
    /// The declared runtimes by name, each as it is hosted: under the name of its kind.
    pub runtimes: BTreeMap<String, Declaration>,
    /// Which of them is active at start.
    pub runtime: String,
    pub runtime_within: Duration,
    /// Pulls at a time; none for no limit.
    pub pulls: Option<usize>,
    pub sources: BTreeSet<Source>,
    pub eviction: logic::eviction::Policy,
    /// The agent's own folder: checkpoints and plugins.
    pub folder: PathBuf,
    pub healthz: Option<SocketAddr>,
    pub read_only: Option<SocketAddr>,
    pub admin: PathBuf,
    pub config: Box<NodeConfig>,
}

impl Settings {
    pub fn new(config: Box<NodeConfig>) -> Self {
        let kubelet = &config.kubelet;
        let folder = PathBuf::from(&config.flags.root_dir).join("oxlet");
        let runtimes = config
            .plugins
            .plugins
            .iter()
            .map(|plugin| (plugin.name.clone(), declaration(plugin, &config)));
        let mut sources = BTreeSet::new();
        if !kubelet.static_pod_path.is_empty() {
            sources.insert(Source::File);
        }
        if !kubelet.static_pod_url.is_empty() {
            sources.insert(Source::Http);
        }
        let max = kubelet
            .crash_loop_back_off
            .max_container_restart_period
            .map(Duration::from);
        Settings {
            node: node_policy(&config),
            policy: logic::worker::Policy {
                backoff: backoff(max),
            },
            runtimes: runtimes.collect(),
            runtime: config.plugins.runtime.clone(),
            runtime_within: kubelet.runtime_request_timeout.into(),
            pulls: pulls(
                kubelet.serialize_image_pulls,
                kubelet.max_parallel_image_pulls,
            ),
            sources,
            eviction: eviction(kubelet),
            folder,
            healthz: address(&kubelet.healthz_bind_address, kubelet.healthz_port),
            read_only: address(&kubelet.address, kubelet.read_only_port),
            admin: PathBuf::from(&config.flags.admin_socket),
            config,
        }
    }

    /// The pod workers' section.
    pub fn rules(&self) -> Arc<Rules> {
        Arc::new(Rules {
            policy: self.policy,
            node: self.node.clone(),
        })
    }
}

fn declaration(plugin: &config::Plugin, config: &NodeConfig) -> Declaration {
    let start = match &plugin.start {
        PluginStart::Managed { command, args } => Start::Managed {
            command: command.clone(),
            args: args.clone(),
        },
        PluginStart::External { endpoint } => Start::External {
            endpoint: endpoint.clone(),
        },
    };
    Declaration {
        configuration: plugin.configuration.clone(),
        health_interval: plugin.health_interval,
        start_within: plugin.start_within,
        intensity: Intensity {
            restarts: plugin.restarts,
            within: plugin.restarts_within,
        },
        log: log_level(config.kubelet.logging.verbosity).to_owned(),
        ..Declaration::new(RUNTIME, Kind::Runtime, start)
    }
}

/// klog's verbosity as a level: 0 to 1 is info, 2 to 4 is what an operator wants to see, above is for developers.
pub fn log_level(verbosity: u32) -> &'static str {
    match verbosity {
        0..=4 => "info",
        5..=7 => "debug",
        _ => "trace",
    }
}

/// Upstream: one at a time when serialised, otherwise the limit, otherwise none.
fn pulls(serialize: bool, max_parallel: Option<i32>) -> Option<usize> {
    if serialize {
        return Some(1);
    }
    max_parallel.and_then(|max| usize::try_from(max).ok())
}

/// A shorter longest period shortens the first one too (KEP-4603).
fn backoff(max: Option<Duration>) -> BackoffPolicy {
    let default = BackoffPolicy::default();
    let max = max.unwrap_or(default.max);
    BackoffPolicy {
        initial: default.initial.min(max),
        max,
        ..default
    }
}

/// The thresholds that this version acts on; the file's validation has read the quantities before.
fn eviction(kubelet: &config::KubeletConfiguration) -> logic::eviction::Policy {
    const SIGNAL: &str = "memory.available";
    let reclaim = kubelet
        .eviction_minimum_reclaim
        .get(SIGNAL)
        .and_then(|text| limit(text));
    let threshold = |text: &String, grace| {
        Some(Threshold {
            signal: Signal::MemoryAvailable,
            grace,
            limit: limit(text)?,
            min_reclaim: reclaim.unwrap_or(Limit::Amount(0)),
        })
    };
    let hard = kubelet
        .eviction_hard
        .iter()
        .flatten()
        .filter(|(signal, _)| *signal == SIGNAL);
    let hard = hard.filter_map(|(_, text)| threshold(text, Duration::ZERO));
    let soft = kubelet.eviction_soft.get(SIGNAL).and_then(|text| {
        let grace: config::GoDuration = kubelet
            .eviction_soft_grace_period
            .get(SIGNAL)?
            .parse()
            .ok()?;
        threshold(text, grace.into())
    });
    logic::eviction::Policy {
        pressure: logic::pressure::Policy {
            thresholds: hard.chain(soft).collect(),
            transition: kubelet.eviction_pressure_transition_period.into(),
        },
        max_pod_grace: Duration::from_secs(
            u64::try_from(kubelet.eviction_max_pod_grace_period).unwrap_or(0),
        ),
    }
}

/// A quantity, or a share such as `10%`.
fn limit(text: &str) -> Option<Limit> {
    if let Some(percent) = text.strip_suffix('%') {
        let thousandths = Quantity::parse(percent).ok()?.milli_value();
        return u32::try_from(thousandths.checked_mul(10)?)
            .ok()
            .map(Limit::PerMillion);
    }
    let bytes = Quantity::parse(text).ok()?.value();
    u64::try_from(bytes).ok().map(Limit::Amount)
}

fn node_policy(config: &NodeConfig) -> NodePolicy {
    let kubelet = &config.kubelet;
    NodePolicy {
        node_name: config.node_name.clone(),
        host_ips: host_ips(&config.node_ips),
        cluster_dns: kubelet.cluster_dns.clone(),
        cluster_domain: kubelet.cluster_domain.clone(),
        resolv_conf: resolver(&kubelet.resolver_config),
        root_dir: PathBuf::from(&config.flags.root_dir),
        pod_logs_dir: PathBuf::from(&kubelet.pod_logs_dir),
        container_logs_dir: PathBuf::from(logic::labels::CONTAINER_LOGS_DIR),
        // The QoS tree comes with resource management; until then the runtime chooses.
        cgroups: None,
        memory_capacity: memory_capacity(),
        cpu_quota_period: kubelet
            .cpu_cfs_quota
            .then(|| kubelet.cpu_cfs_quota_period.into()),
        seccomp_default: match kubelet.seccomp_default {
            true => Seccomp::RuntimeDefault,
            false => Seccomp::Unconfined,
        },
    }
}

/// The configured addresses, or the one that the default route would send from.
fn host_ips(configured: &[IpAddr]) -> Vec<String> {
    let chosen: Vec<String> = configured
        .iter()
        .filter(|ip| !ip.is_unspecified())
        .map(IpAddr::to_string)
        .collect();
    if !chosen.is_empty() {
        return chosen;
    }
    // Connecting a datagram socket sends nothing: it only asks for the route (192.0.2.1 is for documents).
    let routed = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    vec![routed().unwrap_or(Ipv4Addr::LOCALHOST.into()).to_string()]
}

fn resolver(path: &str) -> Dns {
    if path.is_empty() {
        return Dns::default();
    }
    match fs::read_to_string(path) {
        Ok(text) => Dns::parse(&text),
        Err(error) => {
            tracing::warn!(
                "resolvConf {path} cannot be read, pods get no name servers of the node: {error}"
            );
            Dns::default()
        }
    }
}

/// `MemTotal` in bytes; nought if the machine does not tell.
fn memory_capacity() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kibibytes = total.and_then(|total| {
        total
            .trim()
            .trim_end_matches("kB")
            .trim()
            .parse::<u64>()
            .ok()
    });
    kibibytes.unwrap_or(0) * 1024
}

fn address(host: &str, port: i32) -> Option<SocketAddr> {
    let port = u16::try_from(port).ok().filter(|port| *port != 0)?;
    let ip = host.parse().unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    Some(SocketAddr::new(ip, port))
}
