//! The metrics beside upstream's facts (Kubernetes metrics reference, 1.36).

use std::collections::BTreeSet;

use crate::pods::pod_starts::START;
use crate::registry::{SECONDS, known};

/// Names and labels, the labels in any order.
const FACTS: &[(&str, &[&str])] = &[
    ("apiserver_client_certificate_expiration_seconds", &[]),
    (
        "apiserver_delegated_authn_request_duration_seconds",
        &["code"],
    ),
    ("apiserver_delegated_authn_request_total", &["code"]),
    (
        "apiserver_delegated_authz_request_duration_seconds",
        &["code"],
    ),
    ("apiserver_delegated_authz_request_total", &["code"]),
    ("authentication_token_cache_active_fetch_count", &["status"]),
    ("authentication_token_cache_fetch_total", &["status"]),
    (
        "authentication_token_cache_request_duration_seconds",
        &["status"],
    ),
    ("authentication_token_cache_request_total", &["status"]),
    ("disabled_metrics_total", &[]),
    (
        "dra_grpc_operations_duration_seconds",
        &["driver_name", "grpc_status_code", "method_name"],
    ),
    (
        "dra_operations_duration_seconds",
        &["is_error", "operation_name"],
    ),
    ("dra_resource_claims_in_use", &["driver_name"]),
    ("hidden_metrics_total", &[]),
    ("kubelet_active_pods", &["static"]),
    ("kubelet_admission_rejections_total", &["reason"]),
    (
        "kubelet_certificate_manager_client_expiration_renew_errors",
        &[],
    ),
    ("kubelet_certificate_manager_client_ttl_seconds", &[]),
    ("kubelet_certificate_manager_server_rotation_seconds", &[]),
    ("kubelet_certificate_manager_server_ttl_seconds", &[]),
    (
        "kubelet_cgroup_manager_duration_seconds",
        &["operation_type"],
    ),
    ("kubelet_cgroup_version", &[]),
    (
        "kubelet_container_requested_resizes_total",
        &["operation", "requirement", "resource"],
    ),
    ("kubelet_containers_per_pod_count", &[]),
    (
        "kubelet_credential_provider_plugin_duration",
        &["plugin_name"],
    ),
    (
        "kubelet_credential_provider_plugin_errors_total",
        &["plugin_name"],
    ),
    ("kubelet_desired_pods", &["static"]),
    ("kubelet_evented_pleg_connection_error_count", &[]),
    ("kubelet_evented_pleg_connection_latency_seconds", &[]),
    ("kubelet_evented_pleg_connection_success_count", &[]),
    ("kubelet_eviction_stats_age_seconds", &["eviction_signal"]),
    ("kubelet_evictions", &["eviction_signal"]),
    ("kubelet_first_network_pod_start_sli_duration_seconds", &[]),
    ("kubelet_graceful_shutdown_end_time_seconds", &[]),
    ("kubelet_graceful_shutdown_start_time_seconds", &[]),
    (
        "kubelet_http_inflight_requests",
        &["long_running", "method", "path", "server_type"],
    ),
    (
        "kubelet_http_requests_duration_seconds",
        &["long_running", "method", "path", "server_type"],
    ),
    (
        "kubelet_http_requests_total",
        &["long_running", "method", "path", "server_type"],
    ),
    ("kubelet_image_garbage_collected_total", &["reason"]),
    (
        "kubelet_image_manager_ensure_image_requests_total",
        &["present_locally", "pull_policy", "pull_required"],
    ),
    (
        "kubelet_image_pull_duration_seconds",
        &["image_size_in_bytes"],
    ),
    ("kubelet_image_volume_mounted_errors_total", &[]),
    ("kubelet_image_volume_mounted_succeed_total", &[]),
    ("kubelet_image_volume_requested_total", &[]),
    (
        "kubelet_imagemanager_image_mustpull_checks_total",
        &["result"],
    ),
    ("kubelet_imagemanager_ondisk_pulledrecords", &[]),
    ("kubelet_imagemanager_ondisk_pullintents", &[]),
    ("kubelet_cpu_manager_allocation_per_numa", &["numa_node"]),
    ("kubelet_cpu_manager_exclusive_cpu_allocation_count", &[]),
    (
        "kubelet_container_aligned_compute_resources_count",
        &["boundary", "scope"],
    ),
    (
        "kubelet_container_aligned_compute_resources_failure_count",
        &["boundary", "scope"],
    ),
    ("kubelet_cpu_manager_pinning_errors_total", &[]),
    ("kubelet_cpu_manager_pinning_requests_total", &[]),
    ("kubelet_cpu_manager_shared_pool_size_millicores", &[]),
    ("kubelet_lifecycle_handler_http_fallbacks_total", &[]),
    ("kubelet_memory_manager_pinning_errors_total", &[]),
    ("kubelet_memory_manager_pinning_requests_total", &[]),
    ("kubelet_topology_manager_admission_duration_ms", &[]),
    ("kubelet_topology_manager_admission_errors_total", &[]),
    ("kubelet_topology_manager_admission_requests_total", &[]),
    ("kubelet_managed_ephemeral_containers", &[]),
    ("kubelet_metrics_provider", &["provider"]),
    ("kubelet_mirror_pods", &[]),
    ("kubelet_node_name", &["node"]),
    ("kubelet_node_startup_duration_seconds", &[]),
    (
        "kubelet_node_startup_post_registration_duration_seconds",
        &[],
    ),
    ("kubelet_node_startup_pre_kubelet_duration_seconds", &[]),
    (
        "kubelet_node_startup_pre_registration_duration_seconds",
        &[],
    ),
    ("kubelet_node_startup_registration_duration_seconds", &[]),
    ("kubelet_orphan_pod_cleaned_volumes", &[]),
    ("kubelet_orphan_pod_cleaned_volumes_errors", &[]),
    ("kubelet_orphaned_runtime_pods_total", &[]),
    ("kubelet_pleg_discard_events", &[]),
    ("kubelet_pleg_last_seen_seconds", &[]),
    ("kubelet_pleg_pod_relist_duration_seconds", &[]),
    ("kubelet_pleg_relist_duration_seconds", &[]),
    ("kubelet_pleg_relist_interval_seconds", &[]),
    (
        "kubelet_pod_deferred_accepted_resizes_total",
        &["retry_trigger"],
    ),
    ("kubelet_pod_in_progress_resizes", &[]),
    ("kubelet_pod_infeasible_resizes_total", &["reason_detail"]),
    ("kubelet_pod_pending_resizes", &["reason"]),
    ("kubelet_pod_resize_duration_milliseconds", &["success"]),
    (
        "kubelet_pod_resources_endpoint_errors_get",
        &["server_api_version"],
    ),
    (
        "kubelet_pod_resources_endpoint_errors_get_allocatable",
        &["server_api_version"],
    ),
    (
        "kubelet_pod_resources_endpoint_errors_list",
        &["server_api_version"],
    ),
    (
        "kubelet_pod_resources_endpoint_requests_get",
        &["server_api_version"],
    ),
    (
        "kubelet_pod_resources_endpoint_requests_get_allocatable",
        &["server_api_version"],
    ),
    (
        "kubelet_pod_resources_endpoint_requests_list",
        &["server_api_version"],
    ),
    (
        "kubelet_pod_resources_endpoint_requests_total",
        &["server_api_version"],
    ),
    ("kubelet_pod_start_duration_seconds", &[]),
    ("kubelet_pod_start_sli_duration_seconds", &[]),
    ("kubelet_pod_start_total_duration_seconds", &[]),
    ("kubelet_pod_status_sync_duration_seconds", &[]),
    ("kubelet_pod_worker_duration_seconds", &["operation_type"]),
    ("kubelet_pod_worker_start_duration_seconds", &[]),
    ("kubelet_podcertificate_states", &["signer_name", "state"]),
    ("kubelet_preemptions", &["preemption_signal"]),
    ("kubelet_restarted_pods_total", &["static"]),
    (
        "kubelet_run_podsandbox_duration_seconds",
        &["runtime_handler"],
    ),
    ("kubelet_run_podsandbox_errors_total", &["runtime_handler"]),
    ("kubelet_running_containers", &["container_state"]),
    ("kubelet_running_pods", &[]),
    (
        "kubelet_runtime_operations_duration_seconds",
        &["operation_type"],
    ),
    (
        "kubelet_runtime_operations_errors_total",
        &["operation_type"],
    ),
    ("kubelet_runtime_operations_total", &["operation_type"]),
    ("kubelet_server_expiration_renew_errors", &[]),
    ("kubelet_sleep_action_terminated_early_total", &[]),
    (
        "kubelet_started_containers_errors_total",
        &["code", "container_type"],
    ),
    ("kubelet_started_containers_total", &["container_type"]),
    ("kubelet_started_pods_errors_total", &[]),
    ("kubelet_started_pods_total", &[]),
    ("kubelet_started_user_namespaced_pods_errors_total", &[]),
    ("kubelet_started_user_namespaced_pods_total", &[]),
    (
        "kubelet_terminated_containers_total",
        &["container_type", "exit_code", "reason"],
    ),
    (
        "kubelet_volume_metric_collection_duration_seconds",
        &["metric_source"],
    ),
    (
        "kubelet_websocket_streaming_requests_total",
        &["subresource"],
    ),
    ("kubelet_working_pods", &["config", "lifecycle", "static"]),
    (
        "kubernetes_build_info",
        &[
            "build_date",
            "compiler",
            "git_commit",
            "git_tree_state",
            "git_version",
            "go_version",
            "major",
            "minor",
            "platform",
        ],
    ),
    ("force_cleaned_failed_volume_operation_errors_total", &[]),
    ("force_cleaned_failed_volume_operations_total", &[]),
    ("reconstruct_volume_operations_errors_total", &[]),
    ("reconstruct_volume_operations_total", &[]),
    (
        "resource_manager_allocation_errors_total",
        &["resource_name", "source"],
    ),
    (
        "resource_manager_allocations_total",
        &["resource_name", "source"],
    ),
    (
        "resource_manager_container_assignments",
        &["assignment_type", "resource_name"],
    ),
    (
        "rest_client_exec_plugin_call_total",
        &["call_status", "code"],
    ),
    ("rest_client_exec_plugin_certificate_rotation_age", &[]),
    ("rest_client_exec_plugin_ttl_seconds", &[]),
    (
        "rest_client_rate_limiter_duration_seconds",
        &["host", "verb"],
    ),
    ("rest_client_request_duration_seconds", &["host", "verb"]),
    (
        "rest_client_request_retries_total",
        &["code", "host", "verb"],
    ),
    ("rest_client_request_size_bytes", &["host", "verb"]),
    ("rest_client_response_size_bytes", &["host", "verb"]),
    ("rest_client_transport_cache_entries", &[]),
    ("rest_client_transport_create_calls_total", &["result"]),
    ("rest_client_requests_total", &["code", "host", "method"]),
    ("running_managed_controllers", &["manager", "name"]),
    (
        "storage_operation_duration_seconds",
        &["migrated", "operation_name", "status", "volume_plugin"],
    ),
    (
        "version_info",
        &["binary", "component", "emulation", "min_compat"],
    ),
    ("workqueue_adds_total", &["name"]),
    ("workqueue_depth", &["name"]),
    ("workqueue_longest_running_processor_seconds", &["name"]),
    ("workqueue_queue_duration_seconds", &["name"]),
    ("workqueue_retries_total", &["name"]),
    ("workqueue_unfinished_work_seconds", &["name"]),
    ("workqueue_work_duration_seconds", &["name"]),
];

const STORAGE: &[f64] = &[
    0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0,
];

const REST: &[f64] = &[
    0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0,
];
const BYTES: &[f64] = &[
    64.0,
    256.0,
    512.0,
    1024.0,
    4096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
];
const REVIEWS: &[f64] = &[0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0];
const QUEUES: &[f64] = &[
    1e-8,
    1e-7,
    1e-6,
    9.999_999_999_999_999e-6,
    9.999_999_999_999_999e-5,
    1e-3,
    1e-2,
    1e-1,
    1.0,
    10.0,
];

const BUCKETS: &[(&str, &[f64])] = &[
    (
        "apiserver_client_certificate_expiration_seconds",
        &[
            0.0,
            1800.0,
            3600.0,
            7200.0,
            21_600.0,
            43_200.0,
            86_400.0,
            172_800.0,
            345_600.0,
            604_800.0,
            2_592_000.0,
            7_776_000.0,
            15_552_000.0,
            31_104_000.0,
        ],
    ),
    (
        "apiserver_delegated_authn_request_duration_seconds",
        REVIEWS,
    ),
    (
        "apiserver_delegated_authz_request_duration_seconds",
        REVIEWS,
    ),
    (
        "authentication_token_cache_request_duration_seconds",
        &SECONDS,
    ),
    (
        "kubelet_certificate_manager_server_rotation_seconds",
        &[
            60.0,
            3600.0,
            14_400.0,
            86_400.0,
            604_800.0,
            2_592_000.0,
            7_776_000.0,
            15_552_000.0,
            31_104_000.0,
            124_416_000.0,
        ],
    ),
    ("kubelet_http_requests_duration_seconds", &SECONDS),
    (
        "kubelet_pod_resize_duration_milliseconds",
        &[
            10.0, 50.0, 100.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0, 20_000.0, 30_000.0,
            60_000.0, 120_000.0, 300_000.0, 600_000.0,
        ],
    ),
    (
        "rest_client_exec_plugin_certificate_rotation_age",
        &[
            600.0,
            1800.0,
            3600.0,
            14_400.0,
            86_400.0,
            604_800.0,
            2_592_000.0,
            7_776_000.0,
            15_552_000.0,
            31_104_000.0,
            124_416_000.0,
        ],
    ),
    ("rest_client_rate_limiter_duration_seconds", REST),
    ("rest_client_request_duration_seconds", REST),
    ("rest_client_request_size_bytes", BYTES),
    ("rest_client_response_size_bytes", BYTES),
    ("workqueue_queue_duration_seconds", QUEUES),
    ("workqueue_work_duration_seconds", QUEUES),
    ("kubelet_cgroup_manager_duration_seconds", &SECONDS),
    (
        "kubelet_containers_per_pod_count",
        &[1.0, 2.0, 4.0, 8.0, 16.0],
    ),
    ("kubelet_credential_provider_plugin_duration", &SECONDS),
    ("kubelet_evented_pleg_connection_latency_seconds", &SECONDS),
    ("kubelet_eviction_stats_age_seconds", &SECONDS),
    (
        "kubelet_image_pull_duration_seconds",
        &[
            1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0, 600.0,
            900.0, 1200.0, 1800.0, 2700.0, 3600.0,
        ],
    ),
    ("kubelet_pleg_pod_relist_duration_seconds", &SECONDS),
    ("kubelet_pleg_relist_duration_seconds", &SECONDS),
    ("kubelet_pleg_relist_interval_seconds", &SECONDS),
    ("kubelet_pod_start_duration_seconds", &START),
    ("kubelet_pod_start_sli_duration_seconds", &START),
    ("kubelet_pod_start_total_duration_seconds", &START),
    (
        "kubelet_pod_status_sync_duration_seconds",
        &[0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0],
    ),
    ("kubelet_pod_worker_duration_seconds", &SECONDS),
    ("kubelet_pod_worker_start_duration_seconds", &SECONDS),
    ("kubelet_run_podsandbox_duration_seconds", &SECONDS),
    (
        "kubelet_volume_metric_collection_duration_seconds",
        &SECONDS,
    ),
    (
        "kubelet_topology_manager_admission_duration_ms",
        &[
            0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6, 819.2,
        ],
    ),
    ("storage_operation_duration_seconds", STORAGE),
];

#[test]
fn every_metric_bears_upstreams_name_and_labels() {
    crate::text();
    let known = known::LABELS.lock().unwrap();
    for (name, expected) in FACTS {
        let labels = known
            .get(*name)
            .unwrap_or_else(|| panic!("{name} is missing"));
        let labels: BTreeSet<&str> = labels.iter().map(String::as_str).collect();
        let expected: BTreeSet<&str> = expected.iter().copied().collect();
        assert_eq!(labels, expected, "{name}");
    }
}

#[test]
fn every_histogram_has_upstreams_buckets() {
    crate::text();
    let known = known::BUCKETS.lock().unwrap();
    for (name, expected) in BUCKETS {
        let buckets = known
            .get(*name)
            .unwrap_or_else(|| panic!("{name} is missing"));
        assert_eq!(buckets, expected, "{name}");
    }
    let calls = &known["kubelet_runtime_operations_duration_seconds"];
    assert_eq!((calls[0], calls.len()), (0.005, 14));
    let ratios = calls.windows(2).map(|pair| pair[1] / pair[0]);
    assert!(ratios.into_iter().all(|ratio| (ratio - 2.5).abs() < 1e-9));
}

#[test]
fn the_text_parses_and_shows_noughts_and_stabilities() {
    crate::runtime::called(
        "version",
        std::time::Duration::ZERO,
        crate::runtime::CallResult::Well,
    );
    crate::node::set_provider(crate::node::MetricsProvider::Cri);
    crate::node::set_provider(crate::node::MetricsProvider::Cadvisor);
    let text = crate::text();
    let mut families = BTreeSet::new();
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("# ") {
            let (word, rest) = head.split_once(' ').unwrap();
            assert!(["HELP", "TYPE"].contains(&word), "{line}");
            let name = rest.split(' ').next().unwrap();
            if word == "TYPE" {
                assert!(families.insert(name), "{name} comes twice");
            }
            continue;
        }
        let (sample, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
        let name = sample.split('{').next().unwrap();
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| {
            name.strip_suffix(end)
                .filter(|base| families.contains(base))
        });
        assert!(families.contains(base.unwrap_or(name)), "{line}");
    }
    for line in [
        "# HELP kubelet_started_pods_total [ALPHA] Cumulative number of pods started",
        "kubelet_started_pods_total 0",
        "# HELP kubelet_image_volume_requested_total [BETA] Number of requested image volumes.",
        "kubelet_metrics_provider{provider=\"cadvisor\"} 1",
        "kubelet_runtime_operations_total{operation_type=\"version\"} 1",
    ] {
        assert!(text.lines().any(|there| there == line), "{line}");
    }
}
