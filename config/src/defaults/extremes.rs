//! Upstream's TestSetDefaultsKubeletConfiguration: a document in which everything is nought, and one in which
//! everything is set.

use serde_json::json;

use super::tests::{AFTER, completed, completed_with};
use super::*;

/// Its case "all negative".
const NOUGHT: &str = "
enableServer: false
staticPodPath: ''
syncFrequency: 0s
fileCheckFrequency: 0s
httpCheckFrequency: 0s
staticPodURL: ''
staticPodURLHeader: {}
address: ''
port: 0
readOnlyPort: 0
tlsCertFile: ''
tlsPrivateKeyFile: ''
tlsCipherSuites: []
tlsMinVersion: ''
rotateCertificates: false
serverTLSBootstrap: false
authentication:
  x509: {clientCAFile: ''}
  webhook: {enabled: false, cacheTTL: 0s}
  anonymous: {enabled: false}
authorization: {mode: Webhook, webhook: {cacheAuthorizedTTL: 0s, cacheUnauthorizedTTL: 0s}}
registryPullQPS: 0
registryBurst: 0
eventRecordQPS: 0
eventBurst: 0
enableDebuggingHandlers: false
enableContentionProfiling: false
healthzPort: 0
healthzBindAddress: ''
oomScoreAdj: 0
clusterDomain: ''
clusterDNS: []
streamingConnectionIdleTimeout: 0s
nodeStatusUpdateFrequency: 0s
nodeStatusReportFrequency: 0s
nodeLeaseDurationSeconds: 0
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
imageMinimumGCAge: 0s
imagePullCredentialsVerificationPolicy: ''
imageGCHighThresholdPercent: 0
imageGCLowThresholdPercent: 0
volumeStatsAggPeriod: 0s
kubeletCgroups: ''
systemCgroups: ''
cgroupRoot: ''
cgroupsPerQOS: false
cgroupDriver: ''
cpuManagerPolicy: ''
cpuManagerPolicyOptions: {}
cpuManagerReconcilePeriod: 0s
memoryManagerPolicy: ''
topologyManagerPolicy: ''
topologyManagerScope: ''
qosReserved: {}
runtimeRequestTimeout: 0s
hairpinMode: ''
maxPods: 0
podCIDR: ''
podPidsLimit: 0
resolvConf: ''
runOnce: false
cpuCFSQuota: false
cpuCFSQuotaPeriod: 0s
nodeStatusMaxImages: 0
maxOpenFiles: 0
contentType: ''
kubeAPIQPS: 0
kubeAPIBurst: 0
serializeImagePulls: false
evictionHard: {}
evictionSoft: {}
evictionSoftGracePeriod: {}
evictionPressureTransitionPeriod: 0s
evictionMaxPodGracePeriod: 0
evictionMinimumReclaim: {}
mergeDefaultEvictionSettings: false
podsPerCore: 0
enableControllerAttachDetach: false
protectKernelDefaults: false
makeIPTablesUtilChains: false
iptablesMasqueradeBit: 0
iptablesDropBit: 0
featureGates: {}
failSwapOn: false
memorySwap: {swapBehavior: ''}
containerLogMaxSize: ''
containerLogMaxFiles: 0
containerLogMaxWorkers: 1
containerLogMonitorInterval: 10s
configMapAndSecretChangeDetectionStrategy: Watch
systemReserved: {}
kubeReserved: {}
reservedSystemCPUs: ''
showHiddenMetricsForVersion: ''
systemReservedCgroup: ''
kubeReservedCgroup: ''
enforceNodeAllocatable: []
allowedUnsafeSysctls: []
volumePluginDir: ''
providerID: ''
kernelMemcgNotification: false
logging: {format: '', flushFrequency: 5s}
enableSystemLogHandler: false
shutdownGracePeriod: 0s
shutdownGracePeriodCriticalPods: 0s
reservedMemory: []
enableProfilingHandler: false
enableDebugFlagsHandler: false
seccompDefault: false
failCgroupV1: true
memoryThrottlingFactor: 0
memoryReservationPolicy: None
registerNode: false
localStorageCapacityIsolation: false
podLogsDir: ''
singleProcessOOMKill: false
";

/// What stays nought of it: the rest is as in an empty document.
const STAYS_NOUGHT: &str = "
enableServer: false
authentication: {webhook: {enabled: false}}
registryPullQPS: 0
eventRecordQPS: 0
enableDebuggingHandlers: false
healthzPort: 0
oomScoreAdj: 0
imageGCHighThresholdPercent: 0
imageGCLowThresholdPercent: 0
cgroupsPerQOS: false
podPidsLimit: 0
resolvConf: ''
cpuCFSQuota: false
cpuCFSQuotaPeriod: 0s
nodeStatusMaxImages: 0
kubeAPIQPS: 0
serializeImagePulls: false
evictionHard: {}
enableControllerAttachDetach: false
makeIPTablesUtilChains: false
iptablesMasqueradeBit: 0
iptablesDropBit: 0
failSwapOn: false
containerLogMaxFiles: 0
enforceNodeAllocatable: []
enableSystemLogHandler: false
enableProfilingHandler: false
enableDebugFlagsHandler: false
memoryThrottlingFactor: 0
registerNode: false
localStorageCapacityIsolation: false
singleProcessOOMKill: false
";

/// Its case "all positive": nothing is left open.
const SET: &str = "
featureGates: {KubeletCrashLoopBackOffMax: true}
enableServer: true
staticPodPath: static/pod/path
syncFrequency: 60s
fileCheckFrequency: 60s
httpCheckFrequency: 60s
staticPodURL: static-pod-url
staticPodURLHeader: {Static-Pod-URL-Header: ['true']}
address: 192.168.1.2
port: 10250
readOnlyPort: 10251
tlsCertFile: tls-cert-file
tlsPrivateKeyFile: tls-private-key-file
tlsCipherSuites: [TLS_AES_128_GCM_SHA256]
tlsMinVersion: '1.3'
rotateCertificates: true
serverTLSBootstrap: true
authentication:
  x509: {clientCAFile: client-ca-file}
  webhook: {enabled: true, cacheTTL: 60s}
  anonymous: {enabled: true}
authorization: {mode: AlwaysAllow, webhook: {cacheAuthorizedTTL: 60s, cacheUnauthorizedTTL: 60s}}
registryPullQPS: 1
registryBurst: 1
eventRecordQPS: 1
eventBurst: 1
enableDebuggingHandlers: true
enableContentionProfiling: true
healthzPort: 1
healthzBindAddress: 127.0.0.2
oomScoreAdj: 1
clusterDomain: cluster-domain
clusterDNS: [192.168.1.3]
streamingConnectionIdleTimeout: 60s
nodeStatusUpdateFrequency: 60s
nodeStatusReportFrequency: 60s
nodeLeaseDurationSeconds: 1
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
imageMinimumGCAge: 60s
imageGCHighThresholdPercent: 1
imageGCLowThresholdPercent: 1
imagePullCredentialsVerificationPolicy: AlwaysVerify
preloadedImagesVerificationAllowlist: [test.test/repo/image]
volumeStatsAggPeriod: 60s
kubeletCgroups: kubelet-cgroup
systemCgroups: system-cgroup
cgroupRoot: root-cgroup
cgroupsPerQOS: true
cgroupDriver: systemd
cpuManagerPolicy: cpu-manager-policy
cpuManagerPolicyOptions: {key: value}
cpuManagerReconcilePeriod: 60s
memoryManagerPolicy: Static
topologyManagerPolicy: restricted
topologyManagerScope: pod
qosReserved: {memory: 10%}
runtimeRequestTimeout: 60s
hairpinMode: hairpin-veth
maxPods: 1
podCIDR: 192.168.1.0/24
podPidsLimit: 1
resolvConf: resolver-config
runOnce: true
cpuCFSQuota: true
cpuCFSQuotaPeriod: 60s
nodeStatusMaxImages: 1
maxOpenFiles: 1
contentType: application/protobuf
kubeAPIQPS: 1
kubeAPIBurst: 1
serializeImagePulls: true
maxParallelImagePulls: 5
evictionHard: {memory.available: 1Mi, nodefs.available: 1%, imagefs.available: 1%}
evictionSoft: {memory.available: 2Mi, nodefs.available: 2%, imagefs.available: 2%}
evictionSoftGracePeriod: {memory.available: 60s, nodefs.available: 60s, imagefs.available: 60s}
evictionPressureTransitionPeriod: 60s
evictionMaxPodGracePeriod: 1
evictionMinimumReclaim: {imagefs.available: 1Gi}
mergeDefaultEvictionSettings: true
podsPerCore: 1
enableControllerAttachDetach: true
protectKernelDefaults: true
makeIPTablesUtilChains: true
iptablesMasqueradeBit: 1
iptablesDropBit: 1
failSwapOn: true
memorySwap: {swapBehavior: NoSwap}
containerLogMaxSize: 1Mi
containerLogMaxFiles: 1
containerLogMaxWorkers: 1
containerLogMonitorInterval: 10s
configMapAndSecretChangeDetectionStrategy: Cache
systemReserved: {memory: 1Gi}
kubeReserved: {memory: 1Gi}
reservedSystemCPUs: '0,1'
showHiddenMetricsForVersion: '1.16'
systemReservedCgroup: system-reserved-cgroup
kubeReservedCgroup: kube-reserved-cgroup
enforceNodeAllocatable: [system-reserved]
allowedUnsafeSysctls: [kernel.msg*]
volumePluginDir: volume-plugin-dir
providerID: provider-id
kernelMemcgNotification: true
logging: {format: json, flushFrequency: 5s}
enableSystemLogHandler: true
shutdownGracePeriod: 60s
shutdownGracePeriodCriticalPods: 60s
reservedMemory: [{numaNode: 1, limits: {memory: 1Gi}}]
enableProfilingHandler: true
enableDebugFlagsHandler: true
seccompDefault: true
failCgroupV1: true
memoryThrottlingFactor: 1
memoryReservationPolicy: None
registerNode: true
localStorageCapacityIsolation: true
podLogsDir: /custom/path
singleProcessOOMKill: true
crashLoopBackOff: {maxContainerRestartPeriod: 55s}
";

/// An empty document's configuration under the fields of another.
fn after_and(fields: &str) -> KubeletConfiguration {
    let mut all = document::parse_strictly(AFTER).unwrap();
    document::merge(&mut all, document::parse_strictly(fields).unwrap());
    document::decode(all).unwrap()
}

#[test]
fn where_everything_is_nought_only_what_can_be_told_from_absent_stays_so() {
    assert_eq!(completed(NOUGHT), after_and(STAYS_NOUGHT));
}

#[test]
fn where_everything_is_set_nothing_is_defaulted() {
    let mut written = document::parse_strictly(SET).unwrap();
    // Its fields below those that the case sets have defaults of their own.
    document::put(&mut written, "userNamespaces.idsPerPod", json!(65536));
    let written: KubeletConfiguration = document::decode(written).unwrap();
    assert_eq!(completed(SET), written);
}

#[test]
fn one_field_changes_itself_and_what_follows_from_it() {
    let rows = [
        (
            "nodeStatusUpdateFrequency: 1m",
            "{nodeStatusUpdateFrequency: 1m, nodeStatusReportFrequency: 1m}",
        ),
        (
            "maxParallelImagePulls: 5",
            "{maxParallelImagePulls: 5, serializeImagePulls: false}",
        ),
        ("maxParallelImagePulls: 1", "maxParallelImagePulls: 1"),
    ];
    for (written, expected) in rows {
        assert_eq!(completed(written), after_and(expected), "{written}");
    }
    let gate = "featureGates: {KubeletCrashLoopBackOffMax: false}";
    let off = completed_with(gate, &[("KubeletCrashLoopBackOffMax", false)]);
    let mut expected = after_and(gate);
    expected.crash_loop_back_off.max_container_restart_period = None;
    assert_eq!(off, expected);
}
