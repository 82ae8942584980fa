//! The KubeletConfiguration, v1beta1, as of Kubernetes 1.36: every field under its own name, in groups of our own. A
//! field that upstream can leave unset but always gives a default is plain here, since a configuration is only read
//! with its defaults; an [`Option`] is one where absence means something. What the fields mean is documented upstream
//! and not repeated.

mod sections;

use std::collections::BTreeMap;

pub use logic_api::go_duration::{DurationError, GoDuration};
pub use logic_api::quantity::{Quantity, QuantityError};
pub use sections::*;
use serde::{Deserialize, Serialize};

pub const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
pub const KIND: &str = "KubeletConfiguration";

/// All settings of the agent that live in upstream's configuration file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeletConfiguration {
    // Where pods come from.
    pub static_pod_path: String,
    #[serde(rename = "staticPodURL")]
    pub static_pod_url: String,
    #[serde(rename = "staticPodURLHeader")]
    pub static_pod_url_header: BTreeMap<String, Vec<String>>,
    pub sync_frequency: GoDuration,
    pub file_check_frequency: GoDuration,
    pub http_check_frequency: GoDuration,
    pub run_once: bool,
    pub max_pods: i32,
    pub pods_per_core: i32,
    #[serde(rename = "podCIDR")]
    pub pod_cidr: String,
    pub pod_pids_limit: i64,

    // Servers.
    pub enable_server: bool,
    pub address: String,
    pub port: i32,
    pub read_only_port: i32,
    pub healthz_port: i32,
    pub healthz_bind_address: String,
    pub tls_cert_file: String,
    pub tls_private_key_file: String,
    pub tls_cipher_suites: Vec<String>,
    pub tls_curve_preferences: Vec<i32>,
    pub tls_min_version: String,
    pub rotate_certificates: bool,
    #[serde(rename = "serverTLSBootstrap")]
    pub server_tls_bootstrap: bool,
    pub authentication: KubeletAuthentication,
    pub authorization: KubeletAuthorization,
    pub streaming_connection_idle_timeout: GoDuration,
    pub enable_debugging_handlers: bool,
    pub enable_contention_profiling: bool,
    pub enable_profiling_handler: bool,
    pub enable_debug_flags_handler: bool,
    pub enable_system_log_handler: bool,
    pub enable_system_log_query: bool,
    pub show_hidden_metrics_for_version: String,

    // The container runtime and its images.
    pub container_runtime_endpoint: String,
    pub image_service_endpoint: String,
    pub runtime_request_timeout: GoDuration,
    #[serde(rename = "registryPullQPS")]
    pub registry_pull_qps: i32,
    pub registry_burst: i32,
    pub serialize_image_pulls: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_parallel_image_pulls: Option<i32>,
    pub image_pull_credentials_verification_policy: String,
    pub preloaded_images_verification_allowlist: Vec<String>,
    #[serde(rename = "imageMinimumGCAge")]
    pub image_minimum_gc_age: GoDuration,
    #[serde(rename = "imageMaximumGCAge")]
    pub image_maximum_gc_age: GoDuration,
    #[serde(rename = "imageGCHighThresholdPercent")]
    pub image_gc_high_threshold_percent: i32,
    #[serde(rename = "imageGCLowThresholdPercent")]
    pub image_gc_low_threshold_percent: i32,
    pub crash_loop_back_off: CrashLoopBackOff,

    // The API server and the node object.
    pub register_node: bool,
    pub register_with_taints: Vec<Taint>,
    #[serde(rename = "providerID")]
    pub provider_id: String,
    pub node_status_update_frequency: GoDuration,
    pub node_status_report_frequency: GoDuration,
    pub node_lease_duration_seconds: i32,
    pub node_status_max_images: i32,
    pub content_type: String,
    #[serde(rename = "kubeAPIQPS")]
    pub kube_api_qps: i32,
    #[serde(rename = "kubeAPIBurst")]
    pub kube_api_burst: i32,
    #[serde(rename = "eventRecordQPS")]
    pub event_record_qps: i32,
    pub event_burst: i32,
    pub config_map_and_secret_change_detection_strategy: String,

    // Names and networks.
    pub cluster_domain: String,
    #[serde(rename = "clusterDNS")]
    pub cluster_dns: Vec<String>,
    #[serde(rename = "resolvConf")]
    pub resolver_config: String,
    pub hairpin_mode: String,
    #[serde(rename = "makeIPTablesUtilChains")]
    pub make_iptables_util_chains: bool,
    pub iptables_masquerade_bit: i32,
    pub iptables_drop_bit: i32,

    // Cgroups and resources.
    pub cgroup_driver: String,
    pub cgroup_root: String,
    #[serde(rename = "cgroupsPerQOS")]
    pub cgroups_per_qos: bool,
    pub kubelet_cgroups: String,
    pub system_cgroups: String,
    pub fail_cgroup_v1: bool,
    #[serde(
        rename = "singleProcessOOMKill",
        skip_serializing_if = "Option::is_none"
    )]
    pub single_process_oom_kill: Option<bool>,
    pub cpu_manager_policy: String,
    pub cpu_manager_policy_options: BTreeMap<String, String>,
    pub cpu_manager_reconcile_period: GoDuration,
    pub memory_manager_policy: String,
    pub topology_manager_policy: String,
    pub topology_manager_scope: String,
    pub topology_manager_policy_options: BTreeMap<String, String>,
    pub qos_reserved: BTreeMap<String, String>,
    #[serde(rename = "cpuCFSQuota")]
    pub cpu_cfs_quota: bool,
    #[serde(rename = "cpuCFSQuotaPeriod")]
    pub cpu_cfs_quota_period: GoDuration,
    pub system_reserved: BTreeMap<String, String>,
    pub kube_reserved: BTreeMap<String, String>,
    #[serde(rename = "reservedSystemCPUs")]
    pub reserved_system_cpus: String,
    pub system_reserved_cgroup: String,
    pub kube_reserved_cgroup: String,
    pub enforce_node_allocatable: Vec<String>,
    pub reserved_memory: Vec<ReservedMemory>,
    pub memory_swap: MemorySwap,
    pub fail_swap_on: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_throttling_factor: Option<f64>,
    pub memory_reservation_policy: String,
    pub oom_score_adj: i32,
    pub max_open_files: i64,
    pub protect_kernel_defaults: bool,
    pub allowed_unsafe_sysctls: Vec<String>,
    pub seccomp_default: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_namespaces: Option<UserNamespacesConfiguration>,
    pub local_storage_capacity_isolation: bool,

    // Eviction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eviction_hard: Option<BTreeMap<String, String>>,
    pub eviction_soft: BTreeMap<String, String>,
    pub eviction_soft_grace_period: BTreeMap<String, String>,
    pub eviction_pressure_transition_period: GoDuration,
    pub eviction_max_pod_grace_period: i32,
    pub eviction_minimum_reclaim: BTreeMap<String, String>,
    pub merge_default_eviction_settings: bool,
    pub kernel_memcg_notification: bool,

    // Volumes and logs.
    pub volume_stats_agg_period: GoDuration,
    pub volume_plugin_dir: String,
    pub enable_controller_attach_detach: bool,
    pub pod_logs_dir: String,
    pub container_log_max_size: String,
    pub container_log_max_files: i32,
    pub container_log_max_workers: i32,
    pub container_log_monitor_interval: GoDuration,

    // The agent itself.
    pub feature_gates: BTreeMap<String, bool>,
    pub logging: Logging,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracing: Option<Tracing>,
    pub shutdown_grace_period: GoDuration,
    pub shutdown_grace_period_critical_pods: GoDuration,
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
