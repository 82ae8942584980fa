//! The defaults against upstream's own list, and what gates and presence change about them.

use std::collections::BTreeSet;

use super::*;
use crate::kubelet_configuration::specimen;

pub(super) fn completed(yaml: &str) -> KubeletConfiguration {
    completed_with(yaml, &[])
}

pub(super) fn completed_with(yaml: &str, gates: &[(&str, bool)]) -> KubeletConfiguration {
    let gates = gates
        .iter()
        .map(|(name, on)| ((*name).to_owned(), *on))
        .collect();
    complete(
        document::parse_strictly(yaml).unwrap(),
        &FeatureGates::new(&gates).unwrap(),
    )
    .unwrap()
}

/// What upstream's scheme makes of an empty v1beta1 document (`testdata/KubeletConfiguration/after`),
/// brought to 1.36. Empty texts, lists and switches that are off are left out there.
pub(super) const AFTER: &str = "
address: 0.0.0.0
authentication:
  anonymous: {enabled: false}
  webhook: {cacheTTL: 2m0s, enabled: true}
authorization:
  mode: Webhook
  webhook: {cacheAuthorizedTTL: 5m0s, cacheUnauthorizedTTL: 30s}
cgroupDriver: cgroupfs
cgroupsPerQOS: true
configMapAndSecretChangeDetectionStrategy: Watch
containerLogMaxFiles: 5
containerLogMaxSize: 10Mi
containerLogMaxWorkers: 1
containerLogMonitorInterval: 10s
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
contentType: application/vnd.kubernetes.protobuf
cpuCFSQuota: true
cpuCFSQuotaPeriod: 100ms
cpuManagerPolicy: none
cpuManagerReconcilePeriod: 10s
crashLoopBackOff: {maxContainerRestartPeriod: 5m0s}
enableControllerAttachDetach: true
enableDebugFlagsHandler: true
enableDebuggingHandlers: true
enableProfilingHandler: true
enableServer: true
enableSystemLogHandler: true
enforceNodeAllocatable: [pods]
eventBurst: 100
eventRecordQPS: 50
evictionPressureTransitionPeriod: 5m0s
failCgroupV1: true
failSwapOn: true
fileCheckFrequency: 20s
hairpinMode: promiscuous-bridge
healthzBindAddress: 127.0.0.1
healthzPort: 10248
httpCheckFrequency: 20s
imageGCHighThresholdPercent: 85
imageGCLowThresholdPercent: 80
imageMaximumGCAge: 0s
imageMinimumGCAge: 2m0s
imagePullCredentialsVerificationPolicy: NeverVerifyPreloadedImages
iptablesDropBit: 15
iptablesMasqueradeBit: 14
kubeAPIBurst: 100
kubeAPIQPS: 50
localStorageCapacityIsolation: true
logging:
  flushFrequency: 5s
  format: text
  options:
    json: {infoBufferSize: '0'}
    text: {infoBufferSize: '0'}
  verbosity: 0
makeIPTablesUtilChains: true
maxOpenFiles: 1000000
maxPods: 110
memoryManagerPolicy: None
memoryReservationPolicy: None
memoryThrottlingFactor: 0.9
mergeDefaultEvictionSettings: false
nodeLeaseDurationSeconds: 40
nodeStatusMaxImages: 50
nodeStatusReportFrequency: 5m0s
nodeStatusUpdateFrequency: 10s
oomScoreAdj: -999
podLogsDir: /var/log/pods
podPidsLimit: -1
port: 10250
registerNode: true
registryBurst: 10
registryPullQPS: 5
resolvConf: /etc/resolv.conf
runtimeRequestTimeout: 2m0s
seccompDefault: false
serializeImagePulls: true
shutdownGracePeriod: 0s
shutdownGracePeriodCriticalPods: 0s
streamingConnectionIdleTimeout: 4h0m0s
syncFrequency: 1m0s
topologyManagerPolicy: none
topologyManagerScope: container
userNamespaces: {idsPerPod: 65536}
volumePluginDir: /usr/libexec/kubernetes/kubelet-plugins/volume/exec/
volumeStatsAggPeriod: 1m0s
";

#[test]
fn an_empty_document_becomes_what_upstreams_scheme_makes_of_it() {
    let expected: KubeletConfiguration =
        document::decode(document::parse_strictly(AFTER).unwrap()).unwrap();
    assert_eq!(completed("{}"), expected);
}

#[test]
fn upstreams_defaulted_document_is_a_fixed_point() {
    assert_eq!(completed(AFTER), completed("{}"));
    let written = serde_json::to_string(&completed("{}")).unwrap();
    assert_eq!(completed(&written), completed("{}"));
}

#[test]
fn zero_means_the_default_only_where_go_cannot_tell_it_from_absent() {
    let zeros = completed(
        "{syncFrequency: 0s, maxPods: 0, address: '', containerLogMaxSize: '', registryBurst: 0, \
          authorization: {mode: '', webhook: {cacheAuthorizedTTL: 0s}}, logging: {flushFrequency: 0}}",
    );
    assert_eq!(zeros, completed("{}"));

    let zeros = completed(
        "{registryPullQPS: 0, eventRecordQPS: 0, healthzPort: 0, oomScoreAdj: 0, resolvConf: '', \
          kubeAPIQPS: 0, podPidsLimit: 0, cpuCFSQuotaPeriod: 0s, enableServer: false, \
          enforceNodeAllocatable: [], evictionHard: {}}",
    );
    assert_eq!(
        (
            zeros.registry_pull_qps,
            zeros.event_record_qps,
            zeros.healthz_port
        ),
        (0, 0, 0)
    );
    assert_eq!(
        (
            zeros.oom_score_adj,
            zeros.kube_api_qps,
            zeros.pod_pids_limit
        ),
        (0, 0, 0)
    );
    assert_eq!(
        (zeros.resolver_config.as_str(), zeros.enable_server),
        ("", false)
    );
    assert_eq!(zeros.cpu_cfs_quota_period, GoDuration::ZERO);
    assert!(zeros.enforce_node_allocatable.is_empty());
    assert_eq!(zeros.eviction_hard, Some(Default::default()));
}

#[test]
fn null_is_absent() {
    assert_eq!(
        completed(
            "{maxPods: null, logging: null, authentication: {webhook: null}, evictionHard: null}"
        ),
        completed("{}")
    );
}

#[test]
fn a_negative_pid_limit_is_no_limit() {
    assert_eq!(completed("podPidsLimit: -5").pod_pids_limit, -1);
}

#[test]
fn the_report_frequency_follows_a_set_update_frequency() {
    assert_eq!(
        completed("nodeStatusUpdateFrequency: 30s").node_status_report_frequency,
        GoDuration::from_secs(30)
    );
    let both = completed("{nodeStatusUpdateFrequency: 30s, nodeStatusReportFrequency: 1m}");
    assert_eq!(both.node_status_report_frequency, GoDuration::from_secs(60));
}

#[test]
fn pulls_are_serial_unless_several_may_run_in_parallel() {
    for (yaml, serial) in [
        ("{}", true),
        ("maxParallelImagePulls: 1", true),
        ("maxParallelImagePulls: 2", false),
        (
            "{maxParallelImagePulls: 2, serializeImagePulls: true}",
            true,
        ),
        ("serializeImagePulls: false", false),
    ] {
        assert_eq!(completed(yaml).serialize_image_pulls, serial, "{yaml}");
    }
}

#[test]
fn gates_decide_about_some_defaults() {
    let off = completed_with(
        "{}",
        &[
            ("KubeletCrashLoopBackOffMax", false),
            ("KubeletEnsureSecretPulledImages", false),
        ],
    );
    assert_eq!(off.crash_loop_back_off.max_container_restart_period, None);
    assert_eq!(off.image_pull_credentials_verification_policy, "");
}

#[test]
fn without_a_file_the_old_doors_are_open() {
    let legacy = legacy(&FeatureGates::default());
    assert!(legacy.authentication.anonymous.enabled && !legacy.authentication.webhook.enabled);
    assert_eq!(
        (legacy.authorization.mode.as_str(), legacy.read_only_port),
        ("AlwaysAllow", 10255)
    );
}

#[test]
fn an_error_names_the_field_and_what_it_takes() {
    let gates = FeatureGates::default();
    for (yaml, message) in [
        (
            "maxPods: many",
            "field maxPods: invalid type: string \"many\", expected i32",
        ),
        (
            "maxPods: 9999999999",
            "field maxPods: invalid value: integer `9999999999`, expected i32",
        ),
        (
            "enableServer: 1",
            "field enableServer: invalid type: integer `1`, expected a boolean",
        ),
        (
            "clusterDNS: 10.0.0.1",
            "field clusterDNS: invalid type: string \"10.0.0.1\", expected a sequence",
        ),
        (
            "clusterDNS: [a, 3]",
            "field clusterDNS[1]: invalid type: integer `3`, expected a string",
        ),
        (
            "authentication: {webhook: {enabled: nope}}",
            "field authentication.webhook.enabled: invalid type: string \"nope\", expected a boolean",
        ),
        (
            "logging: text",
            "field logging: invalid type: string \"text\", expected struct Logging",
        ),
        (
            "reservedMemory: [{numaNode: 0, limits: {memory: lots}}]",
            "field reservedMemory[0].limits.memory: \"lots\" is not a quantity; expected a number with an optional suffix, as in \"100Mi\", \"500m\" or \"2\"",
        ),
        (
            "syncFrequency: 10",
            "field syncFrequency: invalid type: integer `10`, expected a string",
        ),
        (
            "syncFrequency: soon",
            "field syncFrequency: \"soon\" is not a duration; expected a number with a unit, as in \"90s\", \"1m30s\" or \"100ms\"",
        ),
        (
            "evictionHard: [a]",
            "field evictionHard: invalid type: sequence, expected a map",
        ),
    ] {
        let error = complete(document::parse_strictly(yaml).unwrap(), &gates).unwrap_err();
        assert_eq!(error.to_string(), message, "{yaml}");
    }
}

/// Upstream's field names (`config/v1beta1/types.go`, v0.36.0).
const UPSTREAM: &str = "
enableServer staticPodPath podLogsDir syncFrequency fileCheckFrequency httpCheckFrequency staticPodURL
staticPodURLHeader address port readOnlyPort tlsCertFile tlsPrivateKeyFile tlsCipherSuites
tlsCurvePreferences tlsMinVersion rotateCertificates serverTLSBootstrap authentication authorization
registryPullQPS registryBurst imagePullCredentialsVerificationPolicy
preloadedImagesVerificationAllowlist eventRecordQPS eventBurst enableDebuggingHandlers
enableContentionProfiling healthzPort healthzBindAddress oomScoreAdj clusterDomain clusterDNS
streamingConnectionIdleTimeout nodeStatusUpdateFrequency nodeStatusReportFrequency
nodeLeaseDurationSeconds imageMinimumGCAge imageMaximumGCAge imageGCHighThresholdPercent
imageGCLowThresholdPercent volumeStatsAggPeriod kubeletCgroups systemCgroups cgroupRoot cgroupsPerQOS
cgroupDriver cpuManagerPolicy singleProcessOOMKill cpuManagerPolicyOptions cpuManagerReconcilePeriod
memoryManagerPolicy topologyManagerPolicy topologyManagerScope topologyManagerPolicyOptions qosReserved
runtimeRequestTimeout hairpinMode maxPods podCIDR podPidsLimit resolvConf runOnce cpuCFSQuota
cpuCFSQuotaPeriod nodeStatusMaxImages maxOpenFiles contentType kubeAPIQPS kubeAPIBurst
serializeImagePulls maxParallelImagePulls evictionHard evictionSoft evictionSoftGracePeriod
evictionPressureTransitionPeriod evictionMaxPodGracePeriod evictionMinimumReclaim
mergeDefaultEvictionSettings podsPerCore enableControllerAttachDetach protectKernelDefaults
makeIPTablesUtilChains iptablesMasqueradeBit iptablesDropBit featureGates failSwapOn memorySwap
containerLogMaxSize containerLogMaxFiles containerLogMaxWorkers containerLogMonitorInterval
configMapAndSecretChangeDetectionStrategy systemReserved kubeReserved reservedSystemCPUs
showHiddenMetricsForVersion systemReservedCgroup kubeReservedCgroup enforceNodeAllocatable
allowedUnsafeSysctls volumePluginDir providerID kernelMemcgNotification logging enableSystemLogHandler
enableSystemLogQuery shutdownGracePeriod shutdownGracePeriodCriticalPods
shutdownGracePeriodByPodPriority crashLoopBackOff reservedMemory enableProfilingHandler
enableDebugFlagsHandler seccompDefault memoryThrottlingFactor memoryReservationPolicy
registerWithTaints registerNode tracing localStorageCapacityIsolation containerRuntimeEndpoint
imageServiceEndpoint failCgroupV1 userNamespaces";

#[test]
fn the_fields_are_upstreams() {
    let specimen = specimen();
    let ours: BTreeSet<_> = specimen
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(ours, UPSTREAM.split_whitespace().collect());
}
