//! The KubeletConfiguration, v1beta1, as of Kubernetes 1.36: every field under its own name, in groups of our own. A
//! field that upstream can leave unset but always gives a default is plain here, since a configuration is only read
//! with its defaults; an [`Option`] is one where absence means something. What the fields mean is documented upstream
//! and not repeated.

mod secret;
mod sections;

use std::collections::BTreeMap;

pub use logic_api::quantity::{Quantity, QuantityError};
pub use logic_api::text::go_duration::{DurationError, GoDuration};
pub use secret::Secret;
pub use sections::*;
use serde::{Deserialize, Serialize};

pub const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
pub const KIND: &str = "KubeletConfiguration";

/// All settings of the agent that live in upstream's configuration file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeletConfiguration {
    // Where pods come from.
    /// A manifest file or a folder of them; empty for none.
    pub static_pod_path: String,
    /// Where manifests of static pods are fetched over HTTP; empty for none.
    #[serde(rename = "staticPodURL")]
    pub static_pod_url: Secret<String>,
    /// Headers of that request, by name.
    #[serde(rename = "staticPodURLHeader")]
    pub static_pod_url_header: Secret<BTreeMap<String, Vec<String>>>,
    /// The longest time between two syncs of a pod and its volumes.
    pub sync_frequency: GoDuration,
    /// Between two scans of `static_pod_path`, besides those that a change brings.
    pub file_check_frequency: GoDuration,
    /// Between two fetches of `static_pod_url`.
    pub http_check_frequency: GoDuration,
    /// Runs the static pods once and ends; upstream has removed the mode.
    pub run_once: bool,
    /// How many pods may be on the node; part of its capacity.
    pub max_pods: i32,
    /// The same by CPU, where that is less; 0 for no such limit.
    pub pods_per_core: i32,
    /// Pod addresses of a node without an API server.
    #[serde(rename = "podCIDR")]
    pub pod_cidr: String,
    /// Processes of one pod at most; -1 for no limit.
    pub pod_pids_limit: i64,

    // Servers.
    /// Serves the HTTPS API.
    pub enable_server: bool,
    /// Where the HTTPS API and the read-only port listen.
    pub address: String,
    /// The HTTPS API's port; upstream's is 10250.
    pub port: i32,
    /// The port without authentication; 0 for none.
    pub read_only_port: i32,
    /// The port of `/healthz`; 0 for none.
    pub healthz_port: i32,
    /// Where `/healthz` listens.
    pub healthz_bind_address: String,
    /// The serving certificate, with its chain; empty for one of the node's own making.
    pub tls_cert_file: String,
    /// Its key.
    pub tls_private_key_file: String,
    /// Names of suites, as in Go's crypto/tls; empty for its defaults.
    pub tls_cipher_suites: Vec<String>,
    /// Numbers of key exchanges, as in Go's crypto/tls; empty for its defaults.
    pub tls_curve_preferences: Vec<i32>,
    /// `VersionTLS12` or `VersionTLS13`; empty for the former.
    pub tls_min_version: String,
    /// Asks for a new client certificate before the old one ends.
    pub rotate_certificates: bool,
    /// Asks the API for the serving certificate.
    #[serde(rename = "serverTLSBootstrap")]
    pub server_tls_bootstrap: bool,
    /// Who a caller of the HTTPS API is.
    pub authentication: KubeletAuthentication,
    /// What that caller may do.
    pub authorization: KubeletAuthorization,
    /// After which a connection of exec, attach or port-forward without traffic ends; 0 for never.
    pub streaming_connection_idle_timeout: GoDuration,
    /// Serves logs, exec and the other paths that reach into pods.
    pub enable_debugging_handlers: bool,
    /// Profiles contention, of Go's runtime alone.
    pub enable_contention_profiling: bool,
    /// Serves `/debug/pprof/`, of Go's runtime alone.
    pub enable_profiling_handler: bool,
    /// Serves `/debug/flags/v`.
    pub enable_debug_flags_handler: bool,
    /// Serves `/logs/`.
    pub enable_system_log_handler: bool,
    /// Serves queries of the node's logs at `/logs/?query=`.
    pub enable_system_log_query: bool,
    /// A version whose hidden metrics are shown; empty for none.
    pub show_hidden_metrics_for_version: String,

    // The container runtime and its images.
    /// The runtime's socket, as `unix:///...`.
    pub container_runtime_endpoint: String,
    /// The image service's socket; empty for the runtime's own.
    pub image_service_endpoint: String,
    /// For calls of the runtime, but for those that are long by nature.
    pub runtime_request_timeout: GoDuration,
    /// Pulls a second; 0 for no limit.
    #[serde(rename = "registryPullQPS")]
    pub registry_pull_qps: i32,
    /// Pulls at once, where `registry_pull_qps` is set.
    pub registry_burst: i32,
    /// One pull at a time.
    pub serialize_image_pulls: bool,
    /// Pulls at a time, where they are not serialized; none for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_parallel_image_pulls: Option<i32>,
    /// Which present images a pod may use only with credentials.
    pub image_pull_credentials_verification_policy: String,
    /// Images that need none, where that policy goes by a list.
    pub preloaded_images_verification_allowlist: Vec<String>,
    /// How long an unused image is kept at least.
    #[serde(rename = "imageMinimumGCAge")]
    pub image_minimum_gc_age: GoDuration,
    /// How long an unused image is kept at most; 0 for no such limit.
    #[serde(rename = "imageMaximumGCAge")]
    pub image_maximum_gc_age: GoDuration,
    /// Usage of the images' file system from which unused images are removed.
    #[serde(rename = "imageGCHighThresholdPercent")]
    pub image_gc_high_threshold_percent: i32,
    /// Usage to which they are removed.
    #[serde(rename = "imageGCLowThresholdPercent")]
    pub image_gc_low_threshold_percent: i32,
    /// How long restarts wait at most.
    pub crash_loop_back_off: CrashLoopBackOff,

    // The API server and the node object.
    /// Makes the node's object in the API.
    pub register_node: bool,
    /// Taints of a node that registers.
    pub register_with_taints: Vec<Taint>,
    /// The cloud's name of the machine.
    #[serde(rename = "providerID")]
    pub provider_id: String,
    /// Between two looks at the node's status.
    pub node_status_update_frequency: GoDuration,
    /// Between two reports of a status that has not changed.
    pub node_status_report_frequency: GoDuration,
    /// For which the node's lease holds; it is renewed four times in that.
    pub node_lease_duration_seconds: i32,
    /// Images in the node's status at most; -1 for no limit.
    pub node_status_max_images: i32,
    /// Of requests to the API; bodies are JSON whatever it says.
    pub content_type: String,
    /// Requests to the API a second.
    #[serde(rename = "kubeAPIQPS")]
    pub kube_api_qps: i32,
    /// Requests to the API at once.
    #[serde(rename = "kubeAPIBurst")]
    pub kube_api_burst: i32,
    /// Events to the API a second; 0 for no limit.
    #[serde(rename = "eventRecordQPS")]
    pub event_record_qps: i32,
    /// Events to the API at once.
    pub event_burst: i32,
    /// `Watch`, `Cache` or `Get`.
    pub config_map_and_secret_change_detection_strategy: String,

    // Names and networks.
    /// The search domain that pods get besides the node's.
    pub cluster_domain: String,
    /// Addresses of name servers for pods with `ClusterFirst`.
    #[serde(rename = "clusterDNS")]
    pub cluster_dns: Vec<String>,
    /// The node's resolv.conf, from which pods' are made; empty for none.
    #[serde(rename = "resolvConf")]
    pub resolver_config: String,
    /// Of the removed network plugins; it changes nothing.
    pub hairpin_mode: String,
    /// Makes the rules that the kubelet owns.
    #[serde(rename = "makeIPTablesUtilChains")]
    pub make_iptables_util_chains: bool,
    /// Of a removed feature; it changes nothing.
    pub iptables_masquerade_bit: i32,
    /// Of a removed feature; it changes nothing.
    pub iptables_drop_bit: i32,

    // Cgroups and resources.
    /// `cgroupfs` or `systemd`; a runtime that knows goes before it.
    pub cgroup_driver: String,
    /// Below which pods' cgroups are made; empty for the top.
    pub cgroup_root: String,
    /// Makes a cgroup for each class of pods, and one for each pod.
    #[serde(rename = "cgroupsPerQOS")]
    pub cgroups_per_qos: bool,
    /// The cgroup of the agent itself; empty for where it is.
    pub kubelet_cgroups: String,
    /// The cgroup of processes that are in none; empty for none.
    pub system_cgroups: String,
    /// Does not start on a machine with cgroups of version 1.
    pub fail_cgroup_v1: bool,
    #[serde(
        rename = "singleProcessOOMKill",
        skip_serializing_if = "Option::is_none"
    )]
    /// A container that runs out of memory loses one process, not all; none for what the cgroup version brings.
    pub single_process_oom_kill: Option<bool>,
    /// `none` or `static`.
    pub cpu_manager_policy: String,
    /// Of the static policy, by name.
    pub cpu_manager_policy_options: BTreeMap<String, String>,
    /// Between two comparisons of containers' CPUs with what they were given.
    pub cpu_manager_reconcile_period: GoDuration,
    /// `None` or `Static`.
    pub memory_manager_policy: String,
    /// How NUMA hints are joined: `none`, `best-effort`, `restricted`, `single-numa-node`.
    pub topology_manager_policy: String,
    /// `container` or `pod`: for what hints are joined.
    pub topology_manager_scope: String,
    /// Of that policy, by name.
    pub topology_manager_policy_options: BTreeMap<String, String>,
    /// The share of guaranteed pods' memory that others must leave, in percent, by resource.
    pub qos_reserved: BTreeMap<String, String>,
    /// Enforces CPU limits by quota.
    #[serde(rename = "cpuCFSQuota")]
    pub cpu_cfs_quota: bool,
    /// The period of that quota; 1 ms to 1 s.
    #[serde(rename = "cpuCFSQuotaPeriod")]
    pub cpu_cfs_quota_period: GoDuration,
    /// Quantities kept for the system, by resource.
    pub system_reserved: BTreeMap<String, String>,
    /// Quantities kept for Kubernetes' own processes, by resource.
    pub kube_reserved: BTreeMap<String, String>,
    /// CPUs kept for both, as `0-3,8`; goes before their amounts.
    #[serde(rename = "reservedSystemCPUs")]
    pub reserved_system_cpus: String,
    /// The cgroup on which `system_reserved` is enforced.
    pub system_reserved_cgroup: String,
    /// The cgroup on which `kube_reserved` is enforced.
    pub kube_reserved_cgroup: String,
    /// On what reservations are enforced: `none`, `pods`, `system-reserved`, `kube-reserved` and their `-compressible`
    /// forms.
    pub enforce_node_allocatable: Vec<String>,
    /// Memory kept by NUMA node, for the static memory manager.
    pub reserved_memory: Vec<ReservedMemory>,
    /// Whether pods may swap.
    pub memory_swap: MemorySwap,
    /// Does not start on a machine that swaps.
    pub fail_swap_on: bool,
    /// Of `memory.high` between a container's request and limit; from above 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_throttling_factor: Option<f64>,
    /// Whether requests of memory are protected by the kernel (`memory.min`).
    pub memory_reservation_policy: String,
    /// Of the agent's own process; -1000 to 1000.
    pub oom_score_adj: i32,
    /// Of the agent's own process.
    pub max_open_files: i64,
    /// Does not start where kernel settings differ from those that are wanted, instead of changing them.
    pub protect_kernel_defaults: bool,
    /// Names, or prefixes with `*`, of sysctls that pods may set although they are unsafe.
    pub allowed_unsafe_sysctls: Vec<String>,
    /// Gives pods without a profile the runtime's own.
    pub seccomp_default: bool,
    /// Ids for pods' user namespaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_namespaces: Option<UserNamespacesConfiguration>,
    /// Limits of ephemeral storage are honoured.
    pub local_storage_capacity_isolation: bool,

    // Eviction.
    /// Thresholds by signal at which pods go at once; a quantity or a percentage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eviction_hard: Option<BTreeMap<String, String>>,
    /// Thresholds at which pods go after a grace period.
    pub eviction_soft: BTreeMap<String, String>,
    /// That period by signal, a duration.
    pub eviction_soft_grace_period: BTreeMap<String, String>,
    /// How long a pressure is reported on after it has gone.
    pub eviction_pressure_transition_period: GoDuration,
    /// Seconds that pods get at most at a soft threshold.
    pub eviction_max_pod_grace_period: i32,
    /// What is reclaimed beyond a threshold, by signal.
    pub eviction_minimum_reclaim: BTreeMap<String, String>,
    /// Thresholds that are not named keep their defaults.
    pub merge_default_eviction_settings: bool,
    /// Lets the kernel report that a threshold of memory is passed.
    pub kernel_memcg_notification: bool,

    // Volumes and logs.
    /// Between two measurements of a volume; 0 or less for none.
    pub volume_stats_agg_period: GoDuration,
    /// Where flex volume plugins lie.
    pub volume_plugin_dir: String,
    /// The controller attaches volumes, not the node.
    pub enable_controller_attach_detach: bool,
    /// Where the runtime writes containers' logs.
    pub pod_logs_dir: String,
    /// A quantity, beyond which a log is rotated.
    pub container_log_max_size: String,
    /// Files of one container's log at most.
    pub container_log_max_files: i32,
    /// Logs that are rotated at once.
    pub container_log_max_workers: i32,
    /// Between two looks at the sizes of logs.
    pub container_log_monitor_interval: GoDuration,

    // The agent itself.
    /// Settings of gates by name.
    pub feature_gates: BTreeMap<String, bool>,
    /// Format and verbosity of the agent's log.
    pub logging: Logging,
    /// Where traces go; none for nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracing: Option<Tracing>,
    /// How long a shutdown of the machine is held up for pods; 0 for not at all.
    pub shutdown_grace_period: GoDuration,
    /// The part of it that is kept for critical pods.
    pub shutdown_grace_period_critical_pods: GoDuration,
    /// The same by priorities; goes before both.
    pub shutdown_grace_period_by_pod_priority: Vec<ShutdownGracePeriodByPodPriority>,
}

/// Returns a configuration in which every field is present, as JSON: the list of known fields.
pub(crate) fn specimen() -> serde_json::Value {
    let configuration = KubeletConfiguration {
        max_parallel_image_pulls: Some(0),
        crash_loop_back_off: CrashLoopBackOff {
            max_container_restart_period: Some(GoDuration::ZERO),
        },
        register_with_taints: vec![Taint {
            time_added: Some(String::new()),
            ..Taint::default()
        }],
        single_process_oom_kill: Some(false),
        reserved_memory: vec![ReservedMemory::default()],
        memory_throttling_factor: Some(0.0),
        user_namespaces: Some(UserNamespacesConfiguration {
            ids_per_pod: Some(0),
        }),
        eviction_hard: Some(BTreeMap::new()),
        logging: Logging {
            vmodule: vec![VModule::default()],
            ..Logging::default()
        },
        tracing: Some(Tracing {
            endpoint: Some(String::new()),
            sampling_rate_per_million: Some(0),
        }),
        shutdown_grace_period_by_pod_priority: vec![ShutdownGracePeriodByPodPriority::default()],
        ..KubeletConfiguration::default()
    };
    serde_json::to_value(configuration).expect("settings are plain data")
}
