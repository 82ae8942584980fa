//! Upstream's failure cases.

/// Upstream's failure cases by name (`TestValidateKubeletConfiguration`), then those of its
/// start-up: what each changes, and what the error says.
pub(super) const FAILURES: &[(&str, &str, &str)] = &[
    (
        "invalid NodeLeaseDurationSeconds",
        "{nodeLeaseDurationSeconds: 0}",
        "nodeLeaseDurationSeconds must be greater than 0",
    ),
    (
        "specify EnforceNodeAllocatable without enabling CgroupsPerQOS",
        "{cgroupsPerQOS: false}",
        "cgroupsPerQOS (--cgroups-per-qos) must be true when enforceNodeAllocatable holds \"pods\"",
    ),
    (
        "specify SystemCgroups without CgroupRoot",
        "{systemCgroups: /, cgroupRoot: ''}",
        "systemCgroups (--system-cgroups) needs cgroupRoot (--cgroup-root)",
    ),
    (
        "invalid EventBurst",
        "{eventBurst: -1}",
        "eventBurst (--event-burst) is -1; it must not be negative",
    ),
    (
        "invalid EventRecordQPS",
        "{eventRecordQPS: -1}",
        "eventRecordQPS (--event-qps) is -1",
    ),
    (
        "invalid HealthzPort",
        "{healthzPort: 65536}",
        "healthzPort (--healthz-port) is 65536; it must be between 1 and 65535, inclusive",
    ),
    (
        "specify CPUCFSQuotaPeriod without enabling CPUCFSQuotaPeriod",
        "{featureGates: {CustomCPUCFSQuotaPeriod: false}, cpuCFSQuotaPeriod: 200ms}",
        "requires feature gate CustomCPUCFSQuotaPeriod",
    ),
    (
        "invalid CPUCFSQuotaPeriod",
        "{cpuCFSQuotaPeriod: 2s}",
        "cpuCFSQuotaPeriod (--cpu-cfs-quota-period) is 2s; it must be between 1ms and 1s, inclusive",
    ),
    (
        "invalid ImageGCHighThresholdPercent",
        "{imageGCHighThresholdPercent: 101}",
        "imageGCHighThresholdPercent (--image-gc-high-threshold) is 101",
    ),
    (
        "invalid ImageGCLowThresholdPercent",
        "{imageGCLowThresholdPercent: -1}",
        "imageGCLowThresholdPercent (--image-gc-low-threshold) is -1",
    ),
    (
        "ImageGCLowThresholdPercent is equal to ImageGCHighThresholdPercent",
        "{imageGCHighThresholdPercent: 0, imageGCLowThresholdPercent: 0}",
        "must be less than imageGCHighThresholdPercent, which is 0",
    ),
    (
        "ImageGCLowThresholdPercent is greater than ImageGCHighThresholdPercent",
        "{imageGCHighThresholdPercent: 0, imageGCLowThresholdPercent: 1}",
        "must be less than imageGCHighThresholdPercent",
    ),
    (
        "invalid IPTablesDropBit",
        "{iptablesDropBit: 32}",
        "iptablesDropBit is 32; it must be between 0 and 31",
    ),
    (
        "invalid IPTablesMasqueradeBit",
        "{iptablesMasqueradeBit: 32}",
        "iptablesMasqueradeBit is 32",
    ),
    (
        "invalid KubeAPIBurst",
        "{kubeAPIBurst: -1}",
        "kubeAPIBurst (--kube-api-burst) is -1",
    ),
    (
        "invalid KubeAPIQPS",
        "{kubeAPIQPS: -1}",
        "kubeAPIQPS (--kube-api-qps) is -1",
    ),
    (
        "invalid NodeStatusMaxImages",
        "{nodeStatusMaxImages: -2}",
        "nodeStatusMaxImages (--node-status-max-images) must be -1 or greater",
    ),
    (
        "invalid MaxOpenFiles",
        "{maxOpenFiles: -1}",
        "maxOpenFiles (--max-open-files) is -1",
    ),
    (
        "invalid MaxPods",
        "{maxPods: -1}",
        "maxPods (--max-pods) is -1",
    ),
    (
        "invalid OOMScoreAdj",
        "{oomScoreAdj: -1001}",
        "oomScoreAdj (--oom-score-adj) is -1001; it must be between -1000 and 1000",
    ),
    (
        "invalid OOMScoreAdj",
        "{oomScoreAdj: 1001}",
        "oomScoreAdj (--oom-score-adj) is 1001; it must be between -1000 and 1000",
    ),
    (
        "invalid PodsPerCore",
        "{podsPerCore: -1}",
        "podsPerCore (--pods-per-core) is -1",
    ),
    ("invalid Port", "{port: 65536}", "port (--port) is 65536"),
    (
        "invalid ReadOnlyPort",
        "{readOnlyPort: 65536}",
        "readOnlyPort (--read-only-port) is 65536",
    ),
    (
        "invalid RegistryBurst",
        "{registryBurst: -1}",
        "registryBurst (--registry-burst) is -1",
    ),
    (
        "invalid RegistryPullQPS",
        "{registryPullQPS: -1}",
        "registryPullQPS (--registry-qps) is -1",
    ),
    (
        "invalid MaxParallelImagePulls",
        "{maxParallelImagePulls: 0}",
        "maxParallelImagePulls is 0; it must be positive",
    ),
    (
        "invalid MaxParallelImagePulls and SerializeImagePulls combination",
        "{maxParallelImagePulls: 3, serializeImagePulls: true}",
        "cannot be larger than 1 unless serializeImagePulls (--serialize-image-pulls) is false",
    ),
    (
        "specify ServerTLSBootstrap without enabling RotateKubeletServerCertificate",
        "{serverTLSBootstrap: true, featureGates: {RotateKubeletServerCertificate: false}}",
        "serverTLSBootstrap (--rotate-server-certificates) requires feature gate RotateKubeletServerCertificate",
    ),
    (
        "invalid TopologyManagerPolicy",
        "{topologyManagerPolicy: invalid-policy}",
        "is \"invalid-policy\"; it must be one of \"none\", \"best-effort\", \"restricted\", \"single-numa-node\"",
    ),
    (
        "invalid TopologyManagerScope",
        "{topologyManagerScope: invalid-scope}",
        "topologyManagerScope (--topology-manager-scope) is \"invalid-scope\"",
    ),
    (
        "ShutdownGracePeriodCriticalPods is greater than ShutdownGracePeriod",
        "{shutdownGracePeriod: 1s, shutdownGracePeriodCriticalPods: 2s}",
        "shutdownGracePeriodCriticalPods is 2s; it must not exceed shutdownGracePeriod, which is 1s",
    ),
    (
        "ShutdownGracePeriod is less than 1 sec",
        "{shutdownGracePeriod: 1ms, shutdownGracePeriodCriticalPods: 0s}",
        "shutdownGracePeriod is 1ms; it must be zero, or at least 1s",
    ),
    (
        "ShutdownGracePeriodCriticalPods is less than 1 sec",
        "{shutdownGracePeriodCriticalPods: 1ms}",
        "shutdownGracePeriodCriticalPods is 1ms; it must be zero, or at least 1s",
    ),
    (
        "specify ShutdownGracePeriod without enabling GracefulNodeShutdown",
        "{featureGates: {GracefulNodeShutdown: false, GracefulNodeShutdownBasedOnPodPriority: false, WindowsGracefulNodeShutdown: false}}",
        "requires feature gate GracefulNodeShutdown",
    ),
    (
        "specify ShutdownGracePeriodCriticalPods without enabling GracefulNodeShutdown",
        "{shutdownGracePeriod: 0s, shutdownGracePeriodCriticalPods: 1s, featureGates: {GracefulNodeShutdown: false, GracefulNodeShutdownBasedOnPodPriority: false, WindowsGracefulNodeShutdown: false}}",
        "requires feature gate GracefulNodeShutdown",
    ),
    (
        "specify ShutdownGracePeriodByPodPriority and ShutdownGracePeriod",
        "{shutdownGracePeriodByPodPriority: [{priority: 0}]}",
        "cannot be set together with shutdownGracePeriod",
    ),
    (
        "specify ShutdownGracePeriodByPodPriority without enabling its gate",
        "{shutdownGracePeriodByPodPriority: [{priority: 0}], featureGates: {GracefulNodeShutdownBasedOnPodPriority: false}}",
        "requires feature gate GracefulNodeShutdownBasedOnPodPriority",
    ),
    (
        "invalid MemorySwap.SwapBehavior",
        "{memorySwap: {swapBehavior: invalid}}",
        "memorySwap.swapBehavior is \"invalid\"",
    ),
    (
        "specify SystemReservedEnforcementKey without specifying SystemReservedCgroup",
        "{systemReservedCgroup: ''}",
        "systemReservedCgroup (--system-reserved-cgroup) must be set when enforceNodeAllocatable holds \"system-reserved\"",
    ),
    (
        "specify KubeReservedEnforcementKey without specifying KubeReservedCgroup",
        "{kubeReservedCgroup: ''}",
        "kubeReservedCgroup (--kube-reserved-cgroup) must be set",
    ),
    (
        "specify SystemReservedCompressibleEnforcementKey without specifying SystemReservedCgroup",
        "{enforceNodeAllocatable: [system-reserved-compressible], systemReservedCgroup: ''}",
        "systemReservedCgroup (--system-reserved-cgroup) must be set",
    ),
    (
        "specify KubeReservedCompressibleEnforcementKey without specifying KubeReservedCgroup",
        "{enforceNodeAllocatable: [kube-reserved-compressible], kubeReservedCgroup: ''}",
        "kubeReservedCgroup (--kube-reserved-cgroup) must be set",
    ),
    (
        "specify SystemReservedCompressibleEnforcementKey with SystemReservedEnforcementKey",
        "{enforceNodeAllocatable: [system-reserved-compressible, system-reserved]}",
        "cannot hold both \"system-reserved\" and \"system-reserved-compressible\"",
    ),
    (
        "specify NodeAllocatableNoneKey with additional enforcements",
        "{enforceNodeAllocatable: [none, kube-reserved]}",
        "cannot hold anything beside \"none\"",
    ),
    (
        "duplicated EnforceNodeAllocatable",
        "{enforceNodeAllocatable: [none, none]}",
        "holds \"none\" twice",
    ),
    (
        "invalid EnforceNodeAllocatable",
        "{enforceNodeAllocatable: [invalid]}",
        "enforceNodeAllocatable (--enforce-node-allocatable) is \"invalid\"; it must be one of",
    ),
    (
        "both a reservation and its compressible part",
        "{enforceNodeAllocatable: [kube-reserved, kube-reserved-compressible]}",
        "cannot hold both \"kube-reserved\" and \"kube-reserved-compressible\"",
    ),
    (
        "invalid HairpinMode",
        "{hairpinMode: invalid}",
        "hairpinMode (--hairpin-mode) is \"invalid\"",
    ),
    (
        "specify ReservedSystemCPUs with SystemReservedCgroup",
        "{reservedSystemCPUs: 0-3}",
        "cannot be set together with systemReservedCgroup",
    ),
    (
        "specify ReservedSystemCPUs with KubeReservedCgroup",
        "{reservedSystemCPUs: 0-3, systemReservedCgroup: ''}",
        "kubeReservedCgroup",
    ),
    (
        "invalid ReservedSystemCPUs",
        "{reservedSystemCPUs: invalid}",
        "reservedSystemCPUs (--reserved-cpus) is \"invalid\"; expected CPUs and ranges",
    ),
    (
        "enable MemoryQoS without specifying MemoryThrottlingFactor",
        "{memoryThrottlingFactor: null}",
        "memoryThrottlingFactor is required by feature gate MemoryQoS",
    ),
    (
        "invalid MemoryThrottlingFactor",
        "{memoryThrottlingFactor: 1.1}",
        "memoryThrottlingFactor is 1.1; it must be greater than 0 and at most 1.0",
    ),
    (
        "invalid Taint.TimeAdded",
        "{registerWithTaints: [{key: a, effect: NoSchedule, timeAdded: '2026-01-01T00:00:00Z'}]}",
        "has a taint whose timeAdded is set",
    ),
    (
        "invalid taint key",
        "{registerWithTaints: [{key: '', effect: NoSchedule}]}",
        "has an invalid taint",
    ),
    (
        "invalid taint effect",
        "{registerWithTaints: [{key: a, effect: Sometimes}]}",
        "effect \"Sometimes\" must be one of",
    ),
    (
        "specify tracing with an invalid sampling rate",
        "{tracing: {samplingRatePerMillion: -1}}",
        "tracing.samplingRatePerMillion is -1",
    ),
    (
        "specify tracing with an invalid scheme",
        "{tracing: {endpoint: 'dsk://a'}}",
        "tracing.endpoint has the scheme \"dsk\"",
    ),
    (
        "specify tracing invalid endpoint",
        "{tracing: {endpoint: 'dn%2s://localhost:4317'}}",
        "tracing.endpoint",
    ),
    (
        "invalid ContainerRuntimeEndpoint",
        "{containerRuntimeEndpoint: ''}",
        "containerRuntimeEndpoint (--container-runtime-endpoint) was not specified or empty",
    ),
    (
        "a runtime endpoint of another kind",
        "{containerRuntimeEndpoint: 'tcp://localhost:1'}",
        "expected a Unix socket",
    ),
    (
        "invalid Logging configuration",
        "{logging: {format: invalid}}",
        "logging.format (--logging-format) is \"invalid\"",
    ),
    (
        "invalid FeatureGate for logging options",
        "{logging: {options: {json: {splitStream: true}}}}",
        "requires feature gate LoggingAlphaOptions",
    ),
    (
        "JSON log format, disabled gates",
        "{logging: {format: json}, featureGates: {LoggingBetaOptions: false}}",
        "logging.format (--logging-format) json is disabled, see LoggingBetaOptions feature",
    ),
    (
        "vmodule with json",
        "{logging: {format: json, vmodule: [{filePattern: a, verbosity: 1}]}}",
        "logging.vmodule (--vmodule) is only supported for text",
    ),
    (
        "vmodule with a bad pattern",
        "{logging: {vmodule: [{filePattern: 'a=b', verbosity: 1}]}}",
        "needs file patterns",
    ),
    (
        "verbosity beyond klog's",
        "{logging: {verbosity: 4294967295}}",
        "it must be at most 2147483647",
    ),
    (
        "logging without a flush frequency",
        "{logging: {flushFrequency: 0s}}",
        "logging.flushFrequency (--log-flush-frequency) must be greater than zero",
    ),
    (
        "invalid ContainerLogMaxWorkers",
        "{containerLogMaxWorkers: 0}",
        "containerLogMaxWorkers must be greater than or equal to 1",
    ),
    (
        "invalid ContainerLogMonitorInterval",
        "{containerLogMonitorInterval: 1s}",
        "containerLogMonitorInterval must be greater than or equal to 3s",
    ),
    (
        "containerLogMonitorInterval must be a positive time duration",
        "{containerLogMonitorInterval: -1s}",
        "containerLogMonitorInterval must be greater than or equal to 3s",
    ),
    (
        "containerLogMonitorInterval must be at least 3s or higher",
        "{containerLogMonitorInterval: 2s}",
        "containerLogMonitorInterval must be greater than or equal to 3s",
    ),
    (
        "invalid ContainerLogMaxFiles",
        "{containerLogMaxFiles: 1}",
        "containerLogMaxFiles (--container-log-max-files) must be greater than 1",
    ),
    (
        "pod logs path must be not empty",
        "{podLogsDir: ''}",
        "podLogsDir was not specified",
    ),
    (
        "pod logs path must be absolute",
        "{podLogsDir: ./test}",
        "podLogsDir must be an absolute path",
    ),
    (
        "pod logs path must be normalized",
        "{podLogsDir: /path/../}",
        "podLogsDir must be normalized",
    ),
    (
        "pod logs path must not end with a slash",
        "{podLogsDir: /path/}",
        "podLogsDir must be normalized",
    ),
    (
        "pod logs path must be ascii",
        "{podLogsDir: /🧪}",
        "podLogsDir must contain ASCII characters only",
    ),
    (
        "enableSystemLogQuery is enabled without enableSystemLogHandler",
        "{enableSystemLogQuery: true, enableSystemLogHandler: false}",
        "requires enableSystemLogHandler",
    ),
    (
        "invalid imageMaximumGCAge",
        "{imageMaximumGCAge: -1s}",
        "imageMaximumGCAge is -1000000000; it must not be negative",
    ),
    (
        "imageMaximumGCAge should not be negative",
        "{imageMaximumGCAge: -1ns}",
        "imageMaximumGCAge is",
    ),
    (
        "imageMaximumGCAge should not be less than imageMinimumGCAge",
        "{imageMaximumGCAge: 1ns, imageMinimumGCAge: 2ns}",
        "must be greater than imageMinimumGCAge, which is 2ns",
    ),
    (
        "imageMaximumGCAge is not greater than imageMinimumGCAge",
        "{imageMaximumGCAge: 1m, imageMinimumGCAge: 2m}",
        "must be greater than imageMinimumGCAge, which is 2m0s",
    ),
    (
        "negative imageMinimumGCAge",
        "{imageMinimumGCAge: -1s}",
        "imageMinimumGCAge (--minimum-image-ttl-duration) is",
    ),
    (
        "CrashLoopBackOff.MaxContainerRestartPeriod just a little too low",
        "{crashLoopBackOff: {maxContainerRestartPeriod: 999ms}}",
        "crashLoopBackOff.maxContainerRestartPeriod is 999ms; it must be between 1s and 300s",
    ),
    (
        "CrashLoopBackOff.MaxContainerRestartPeriod just a little too high",
        "{crashLoopBackOff: {maxContainerRestartPeriod: 301s}}",
        "it must be between 1s and 300s",
    ),
    (
        "CrashLoopBackOff.MaxContainerRestartPeriod just a little too high",
        "{crashLoopBackOff: {maxContainerRestartPeriod: 300900ms}}",
        "crashLoopBackOff.maxContainerRestartPeriod is 5m0.9s; it must be between 1s and 300s",
    ),
    (
        "CrashLoopBackOff.MaxContainerRestartPeriod too low",
        "{crashLoopBackOff: {maxContainerRestartPeriod: 0s}}",
        "crashLoopBackOff.maxContainerRestartPeriod is 0s",
    ),
    (
        "CrashLoopBackOff.MaxContainerRestartPeriod without its gate",
        "{featureGates: {KubeletCrashLoopBackOffMax: false}}",
        "requires feature gate KubeletCrashLoopBackOffMax",
    ),
    (
        "CrashLoopBackOff.MaxContainerRestartPeriod missing with its gate",
        "{crashLoopBackOff: null}",
        "must be set: feature gate KubeletCrashLoopBackOffMax is on",
    ),
    (
        "invalid ImagePullCredentialsVerificationPolicy",
        "{imagePullCredentialsVerificationPolicy: invalid}",
        "imagePullCredentialsVerificationPolicy is \"invalid\"",
    ),
    (
        "invalid PreloadedImagesVerificationAllowlist configuration - featuregate disabled",
        "{preloadedImagesVerificationAllowlist: [a], featureGates: {KubeletEnsureSecretPulledImages: false}}",
        "preloadedImagesVerificationAllowlist requires feature gate",
    ),
    (
        "a verification policy without its gate",
        "{imagePullCredentialsVerificationPolicy: NeverVerify, featureGates: {KubeletEnsureSecretPulledImages: false}}",
        "imagePullCredentialsVerificationPolicy requires feature gate",
    ),
    (
        "invalid PreloadedImagesVerificationAllowlist configuration - policy not set",
        "{preloadedImagesVerificationAllowlist: [a]}",
        "cannot be set unless imagePullCredentialsVerificationPolicy is \"NeverVerifyAllowlistedImages\"",
    ),
    (
        "invalid PreloadedImagesVerificationAllowlist pattern",
        "{imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages, preloadedImagesVerificationAllowlist: ['*']}",
        "has a wildcard that is not \"/*\" at its end",
    ),
    (
        "an allowlist pattern with a tag",
        "{imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages, preloadedImagesVerificationAllowlist: ['example.org/a:b']}",
        "has a tag or digest",
    ),
    (
        "invalid MemoryReservationPolicy",
        "{memoryReservationPolicy: Some}",
        "memoryReservationPolicy is \"Some\"",
    ),
    (
        "MemoryReservationPolicy without MemoryQoS",
        "{memoryReservationPolicy: TieredReservation, featureGates: {MemoryQoS: false}}",
        "requires feature gate MemoryQoS",
    ),
    (
        "user namespace ids that are no multiple",
        "{userNamespaces: {idsPerPod: 65537}}",
        "userNamespaces.idsPerPod is 65537; it must be a multiple of 65536",
    ),
    (
        "too many user namespace ids",
        "{userNamespaces: {idsPerPod: 4294967296}}",
        "less than 1<<32",
    ),
    (
        "runOnce",
        "{runOnce: true}",
        "runOnce (--runonce) must not be set",
    ),
    (
        "reserved memory: the limit type is not supported",
        "{reservedMemory: [{numaNode: 0, limits: {cpu: 1}}]}",
        "has \"cpu\" for NUMA node 0; expected memory or hugepages-<size>",
    ),
    (
        "reserved memory: the limit is zero",
        "{reservedMemory: [{numaNode: 0, limits: {memory: 0}}]}",
        "may not be zero for NUMA node 0 and \"memory\"",
    ),
    (
        "reserved memory: a duplicate",
        "{reservedMemory: [{numaNode: 1, limits: {memory: 1}}, {numaNode: 1, limits: {memory: 2}}]}",
        "has NUMA node 1 and \"memory\" twice",
    ),
    (
        "hidden metrics of any but the last version",
        "{showHiddenMetricsForVersion: '1.16'}",
        "showHiddenMetricsForVersion is \"1.16\"",
    ),
    (
        "an unknown eviction signal",
        "{evictionHard: {memory.free: 1Gi}}",
        "evictionHard (--eviction-hard) has the unsupported eviction signal \"memory.free\"",
    ),
    (
        "an eviction threshold of nothing",
        "{evictionHard: {memory.available: '0'}}",
        "for memory.available: \"0\" must be positive",
    ),
    (
        "an eviction threshold beyond the whole",
        "{evictionHard: {memory.available: 101%}}",
        "\"101%\" is out of range",
    ),
    (
        "an eviction threshold that is no quantity",
        "{evictionSoft: {memory.available: lots}, evictionSoftGracePeriod: {memory.available: 1s}}",
        "is not a quantity",
    ),
    (
        "a soft threshold without a grace period",
        "{evictionSoft: {memory.available: 1Gi}}",
        "evictionSoftGracePeriod (--eviction-soft-grace-period) must have a time for memory.available",
    ),
    (
        "a negative grace period",
        "{evictionSoftGracePeriod: {memory.available: -1s}}",
        "must not be negative",
    ),
    (
        "a reclaim of zero percent",
        "{evictionMinimumReclaim: {memory.available: 0%}}",
        "out of range",
    ),
    (
        "a reservation of an unknown resource",
        "{systemReserved: {gpu: '1'}}",
        "systemReserved (--system-reserved) cannot reserve \"gpu\"",
    ),
    (
        "a negative reservation",
        "{kubeReserved: {cpu: '-1'}}",
        "has -1 for \"cpu\"",
    ),
    (
        "a QoS reservation of cpu",
        "{qosReserved: {cpu: 50%}}",
        "cannot reserve \"cpu\", only memory",
    ),
    (
        "a QoS reservation without its sign",
        "{qosReserved: {memory: '50'}}",
        "has \"50\"; expected a percentage",
    ),
    (
        "a negative QoS reservation",
        "{qosReserved: {memory: -1%}}",
        "has \"-1%\"; expected a percentage",
    ),
    (
        "a QoS reservation of more than all",
        "{qosReserved: {memory: 101%}}",
        "has \"101%\"; expected a percentage",
    ),
    (
        "a QoS reservation of no number",
        "{qosReserved: {memory: abc%}}",
        "has \"abc%\"; expected a percentage",
    ),
    (
        "an empty QoS reservation",
        "{qosReserved: {memory: ''}}",
        "has \"\"; expected a percentage",
    ),
    (
        "an address that is none",
        "{address: localhost}",
        "address (--address) is \"localhost\"; expected an IP address",
    ),
    (
        "an unknown cipher suite",
        "{tlsCipherSuites: [TLS_NONE]}",
        "has \"TLS_NONE\", which does not exist",
    ),
    (
        "an unknown TLS version",
        "{tlsMinVersion: TLS1.2}",
        "tlsMinVersion (--tls-min-version) is \"TLS1.2\"",
    ),
    (
        "a curve twice",
        "{tlsCurvePreferences: [29, 29]}",
        "has 29 twice",
    ),
    (
        "an unknown curve",
        "{tlsCurvePreferences: [1]}",
        "has 1, which is not supported",
    ),
    (
        "an unknown authorization mode",
        "{authorization: {mode: RBAC}}",
        "authorization.mode (--authorization-mode) is \"RBAC\"",
    ),
    (
        "a period that would spin",
        "{syncFrequency: 0s}",
        "syncFrequency (--sync-frequency) must be greater than zero",
    ),
    (
        "an unsafe sysctl of no namespace",
        "{allowedUnsafeSysctls: [kernel.*]}",
        "allowedUnsafeSysctls (--allowed-unsafe-sysctls) is wrong: the sysctls \"kernel.\" are not known to be namespaced",
    ),
    (
        "an unsafe sysctl that is no pattern",
        "{allowedUnsafeSysctls: ['net.*.x']}",
        "allowedUnsafeSysctls (--allowed-unsafe-sysctls) is wrong: sysctl \"net.*.x\" must have at most",
    ),
];
