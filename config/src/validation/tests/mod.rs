//! Upstream's validation cases, by their names.

mod failures;

use serde_json::Value;

use self::failures::FAILURES;
use super::*;
use crate::kubelet_configuration::*;
use crate::{defaults, document};

/// Upstream's `successConfig`, in which everything that can be set together is set.
const SUCCESS: &str = "
cgroupsPerQOS: true
enforceNodeAllocatable: [pods, system-reserved, kube-reserved]
systemReservedCgroup: /system.slice
kubeReservedCgroup: /kubelet.service
systemCgroups: ''
cgroupRoot: ''
eventBurst: 10
eventRecordQPS: 5
healthzPort: 10248
imageGCHighThresholdPercent: 85
imageGCLowThresholdPercent: 80
iptablesDropBit: 15
iptablesMasqueradeBit: 14
kubeAPIBurst: 10
kubeAPIQPS: 5
maxOpenFiles: 1000000
maxPods: 110
oomScoreAdj: -999
podsPerCore: 100
port: 65535
readOnlyPort: 0
registryBurst: 10
registryPullQPS: 5
maxParallelImagePulls: null
hairpinMode: promiscuous-bridge
nodeLeaseDurationSeconds: 1
cpuCFSQuotaPeriod: 25ms
topologyManagerScope: pod
topologyManagerPolicy: single-numa-node
shutdownGracePeriod: 30s
shutdownGracePeriodCriticalPods: 10s
memoryThrottlingFactor: 0.9
featureGates: {CustomCPUCFSQuotaPeriod: true, GracefulNodeShutdown: true, MemoryQoS: true, KubeletCrashLoopBackOffMax: true}
logging: {format: text}
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
containerLogMaxWorkers: 1
containerLogMaxFiles: 5
containerLogMonitorInterval: 10s
failCgroupV1: true
crashLoopBackOff: {maxContainerRestartPeriod: 3s}
userNamespaces: {idsPerPod: 131072}
";

/// Lays a change over the good configuration, as typed flags would: no defaults for zeros.
fn checked(change: &str, cgroup: CgroupVersion) -> Result<(), String> {
    let success = document::parse_strictly(SUCCESS).unwrap();
    let base = defaults::complete(success, &FeatureGates::default()).unwrap();
    let Value::Object(mut fields) = serde_json::to_value(base).unwrap() else {
        panic!("an object")
    };
    document::merge(&mut fields, document::parse_strictly(change).unwrap());
    let configuration: KubeletConfiguration = document::decode(fields).unwrap();
    let gates = FeatureGates::new(&configuration.feature_gates).map_err(|e| e.to_string())?;
    validate(&configuration, &gates, cgroup).map_err(|error| error.to_string())
}

#[test]
fn upstreams_success_cases_are_valid() {
    for change in [
        "{}",
        "shutdownGracePeriod: 0s\nshutdownGracePeriodCriticalPods: 0s\nshutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: 10}]",
        "{healthzPort: 0}",
        "{maxParallelImagePulls: 1, serializeImagePulls: true}",
        "{maxParallelImagePulls: 5, serializeImagePulls: false}",
        "{enforceNodeAllocatable: [none], cgroupsPerQOS: false}",
        "{enforceNodeAllocatable: []}",
        "{enforceNodeAllocatable: [pods, system-reserved-compressible, kube-reserved-compressible]}",
        "{imageMaximumGCAge: 10m}",
        "{imageMinimumGCAge: 1ns}",
        "{enableSystemLogHandler: true, enableSystemLogQuery: true, featureGates: {NodeLogQuery: true}}",
        "{memorySwap: {swapBehavior: LimitedSwap}}",
        "{reservedSystemCPUs: '0-3,8', systemReservedCgroup: '', kubeReservedCgroup: '', enforceNodeAllocatable: [pods]}",
        "{registerWithTaints: [{key: a, value: b, effect: NoSchedule}, {key: c, effect: ''}]}",
        "{imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages, preloadedImagesVerificationAllowlist: ['example.org/a', 'example.org:5000/*']}",
        "{evictionHard: {memory.available: 0%, nodefs.available: 100%, pid.available: '10'}}",
        "{evictionSoft: {memory.available: 1Gi}, evictionSoftGracePeriod: {memory.available: 30s}, evictionMinimumReclaim: {nodefs.available: '0'}}",
        "{systemReserved: {cpu: 200m, pid: '1000'}, kubeReserved: {memory: 1Gi, ephemeral-storage: '0'}}",
        "{tracing: {endpoint: 'localhost:4317', samplingRatePerMillion: 10}}",
        "{tlsMinVersion: VersionTLS13, tlsCipherSuites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256], tlsCurvePreferences: [29, 4588]}",
        "{logging: {format: json}}",
        "{containerRuntimeEndpoint: /run/containerd/containerd.sock}",
    ] {
        assert_eq!(checked(change, CgroupVersion::V2), Ok(()), "{change}");
    }
}

#[test]
fn upstreams_failure_cases_are_refused_with_the_fields_name() {
    for (name, change, message) in FAILURES {
        let error = checked(change, CgroupVersion::V2).expect_err(name);
        assert!(
            error.starts_with("invalid configuration: ") && error.contains(message),
            "{name}: {error}"
        );
    }
}

/// Upstream's case "invalid FeatureGate".
#[test]
fn an_unknown_gate_is_refused() {
    let error = checked("{featureGates: {invalid: true}}", CgroupVersion::V2).unwrap_err();
    assert!(
        error.contains("unrecognized feature gate: invalid"),
        "{error}"
    );
}

/// Upstream's case "enableSystemLogQuery is enabled without NodeLogQuery feature gate".
#[test]
fn a_locked_gate_is_refused_before_the_fields_are_read() {
    let change = "{enableSystemLogQuery: true, featureGates: {NodeLogQuery: false}}";
    assert_eq!(
        checked(change, CgroupVersion::V2).unwrap_err(),
        "cannot set feature gate NodeLogQuery to false, feature is locked to true"
    );
}

#[test]
fn cgroup_v1_is_refused_unless_allowed() {
    let v1 = CgroupVersion::V1;
    assert!(
        checked("{}", v1)
            .unwrap_err()
            .contains("failCgroupV1 (--fail-cgroupv1) is true and this host uses cgroup v1")
    );
    assert_eq!(
        checked("{failCgroupV1: false, singleProcessOOMKill: true}", v1),
        Ok(())
    );
    assert!(
        checked("{failCgroupV1: false, singleProcessOOMKill: false}", v1)
            .unwrap_err()
            .contains("singleProcessOOMKill must not be false")
    );
    assert_eq!(
        checked("{singleProcessOOMKill: false}", CgroupVersion::V2),
        Ok(())
    );
}

#[test]
fn all_violations_are_reported_together() {
    let error = checked("{maxPods: -1, port: 0, hairpinMode: x}", CgroupVersion::V2).unwrap_err();
    assert_eq!(
        error,
        "invalid configuration: maxPods (--max-pods) is -1; it must not be negative; \
         port (--port) is 0; it must be between 1 and 65535, inclusive; \
         hairpinMode (--hairpin-mode) is \"x\"; it must be one of \"none\", \"hairpin-veth\", \"promiscuous-bridge\""
    );
}
