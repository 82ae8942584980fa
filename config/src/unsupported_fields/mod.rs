//! What this version does with each setting. A change that makes a setting work changes its row here; a test holds the
//! table and the types together, so none is forgotten.

use Honour::{Honoured, NoEffect, Partly, Refused};
use serde_json::Value;

use crate::document;
use crate::flags::KubeletFlags;
use crate::flags::table::{Flag, Sets};
use crate::kubelet_configuration::KubeletConfiguration;

/// Whether a setting has an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Honour {
    /// It does what it does in the kubelet.
    Honoured,
    /// Set to another value than its default it does what it does in the kubelet; the default does not, for this reason.
    Partly(&'static str),
    /// It is checked, and has no effect here by design, or none in the kubelet either, for this reason: an operator who
    /// sets it gets a warning.
    NoEffect(&'static str),
    /// Validation refuses it, as upstream's does.
    Refused,
}

/// Every field of the KubeletConfiguration, in the order of the structure. A path stands for all
/// that is below it.
#[rustfmt::skip]
pub(crate) const FIELDS: [(&str, Honour); 132] = [
    // Where pods come from.
    ("staticPodPath", Honoured),
    ("staticPodURL", Honoured),
    ("staticPodURLHeader", Honoured),
    ("syncFrequency", Honoured),
    ("fileCheckFrequency", Honoured),
    ("httpCheckFrequency", Honoured),
    ("runOnce", Refused),
    ("maxPods", Honoured),
    ("podsPerCore", Honoured),
    ("podCIDR", Honoured),
    ("podPidsLimit", Honoured),
    // Servers.
    ("enableServer", Honoured),
    ("address", Honoured),
    ("port", Honoured),
    ("readOnlyPort", Honoured),
    ("healthzPort", Honoured),
    ("healthzBindAddress", Honoured),
    ("tlsCertFile", Honoured),
    ("tlsPrivateKeyFile", Honoured),
    ("tlsCipherSuites", Honoured),
    ("tlsCurvePreferences", Honoured),
    ("tlsMinVersion", Honoured),
    ("rotateCertificates", Honoured),
    ("serverTLSBootstrap", Honoured),
    ("authentication", Honoured),
    ("authorization", Honoured),
    ("streamingConnectionIdleTimeout", Honoured),
    ("enableDebuggingHandlers", Honoured),
    ("enableContentionProfiling", NoEffect("it profiles the locks of Go's runtime")),
    ("enableProfilingHandler", Partly("there are no profiles: what is not disabled answers 501")),
    ("enableDebugFlagsHandler", Honoured),
    ("enableSystemLogHandler", Honoured),
    ("enableSystemLogQuery", Honoured),
    ("showHiddenMetricsForVersion", NoEffect("no metric of 1.36 that is served here is hidden")),
    // The container runtime and its images.
    ("containerRuntimeEndpoint", Honoured),
    ("imageServiceEndpoint", NoEffect("images are the runtime's, whose plugin serves both services of CRI")),
    ("runtimeRequestTimeout", Honoured),
    ("registryPullQPS", Honoured),
    ("registryBurst", Honoured),
    ("serializeImagePulls", Honoured),
    ("maxParallelImagePulls", Honoured),
    ("imagePullCredentialsVerificationPolicy", Honoured),
    ("preloadedImagesVerificationAllowlist", Honoured),
    ("imageMinimumGCAge", Honoured),
    ("imageMaximumGCAge", Honoured),
    ("imageGCHighThresholdPercent", Honoured),
    ("imageGCLowThresholdPercent", Honoured),
    ("crashLoopBackOff", Honoured),
    // The API server and the node object.
    ("registerNode", Honoured),
    ("registerWithTaints", Honoured),
    ("providerID", Honoured),
    ("nodeStatusUpdateFrequency", Honoured),
    ("nodeStatusReportFrequency", Honoured),
    ("nodeLeaseDurationSeconds", Honoured),
    ("nodeStatusMaxImages", Honoured),
    ("contentType", NoEffect("bodies are JSON, which every API server speaks")),
    ("kubeAPIQPS", Honoured),
    ("kubeAPIBurst", Honoured),
    ("eventRecordQPS", Honoured),
    ("eventBurst", Honoured),
    ("configMapAndSecretChangeDetectionStrategy", Honoured),
    // Names and networks.
    ("clusterDomain", Honoured),
    ("clusterDNS", Honoured),
    ("resolvConf", Honoured),
    ("hairpinMode", NoEffect("the kubelet only checks it, bridges are the runtime's and CNI's")),
    ("makeIPTablesUtilChains", Honoured),
    ("iptablesMasqueradeBit", NoEffect("the kubelet makes no rules of masquerading any more")),
    ("iptablesDropBit", NoEffect("the kubelet makes no rules that mark packets any more")),
    // Cgroups and resources.
    ("cgroupDriver", Honoured),
    ("cgroupRoot", Honoured),
    ("cgroupsPerQOS", Honoured),
    ("kubeletCgroups", Honoured),
    ("systemCgroups", Honoured),
    ("failCgroupV1", Honoured),
    ("singleProcessOOMKill", Honoured),
    ("cpuManagerPolicy", Honoured),
    ("cpuManagerPolicyOptions", Honoured),
    (
        "cpuManagerReconcilePeriod",
        NoEffect("containers are moved as soon as their CPUs are others"),
    ),
    ("memoryManagerPolicy", Honoured),
    ("topologyManagerPolicy", Honoured),
    ("topologyManagerScope", Honoured),
    ("topologyManagerPolicyOptions", Honoured),
    ("qosReserved", Honoured),
    ("cpuCFSQuota", Honoured),
    ("cpuCFSQuotaPeriod", Honoured),
    ("systemReserved", Honoured),
    ("kubeReserved", Honoured),
    ("reservedSystemCPUs", Honoured),
    ("systemReservedCgroup", Honoured),
    ("kubeReservedCgroup", Honoured),
    ("enforceNodeAllocatable", Honoured),
    ("reservedMemory", Honoured),
    ("memorySwap", Honoured),
    ("failSwapOn", Honoured),
    ("memoryThrottlingFactor", Honoured),
    ("memoryReservationPolicy", Honoured),
    ("oomScoreAdj", Honoured),
    ("maxOpenFiles", Honoured),
    ("protectKernelDefaults", Honoured),
    ("allowedUnsafeSysctls", Honoured),
    ("seccompDefault", Honoured),
    ("userNamespaces", Honoured),
    ("localStorageCapacityIsolation", Honoured),
    // Eviction.
    ("evictionHard", Honoured),
    ("evictionSoft", Honoured),
    ("evictionSoftGracePeriod", Honoured),
    ("evictionPressureTransitionPeriod", Honoured),
    ("evictionMaxPodGracePeriod", Honoured),
    ("evictionMinimumReclaim", Honoured),
    ("mergeDefaultEvictionSettings", Honoured),
    ("kernelMemcgNotification", Honoured),
    // Volumes and logs.
    ("volumeStatsAggPeriod", Honoured),
    ("volumePluginDir", NoEffect("flex volumes are not mounted, as the event FailedMount says of a pod that has one")),
    ("enableControllerAttachDetach", Honoured),
    ("podLogsDir", Honoured),
    ("containerLogMaxSize", Honoured),
    ("containerLogMaxFiles", Honoured),
    ("containerLogMaxWorkers", Honoured),
    ("containerLogMonitorInterval", Honoured),
    // The agent itself.
    ("featureGates", Honoured),
    ("logging.format", Honoured),
    ("logging.verbosity", Honoured),
    ("logging.flushFrequency", NoEffect("the log is not buffered")),
    ("logging.vmodule", Honoured),
    ("logging.options.text.splitStream", Honoured),
    ("logging.options.text.infoBufferSize", NoEffect("the log is not buffered, so that a crash loses no line")),
    ("logging.options.json.splitStream", Honoured),
    ("logging.options.json.infoBufferSize", NoEffect("the log is not buffered, so that a crash loses no line")),
    ("tracing", Honoured),
    ("shutdownGracePeriod", Honoured),
    ("shutdownGracePeriodCriticalPods", Honoured),
    ("shutdownGracePeriodByPodPriority", Honoured),
];

/// Every field of [`KubeletFlags`].
pub(crate) const FLAGS: [(&str, Honour); 29] = [
    ("admin-socket", Honoured),
    ("alone", Honoured),
    ("bootstrap-kubeconfig", Honoured),
    ("cert-dir", Honoured),
    ("cloud-provider", Honoured),
    ("config", Honoured),
    ("config-dir", Honoured),
    ("console", Honoured),
    ("container-gc-period", Honoured),
    ("exit-on-lock-contention", Honoured),
    ("experimental-allocatable-ignore-eviction", Honoured),
    ("experimental-mounter-path", Honoured),
    ("hostname-override", Honoured),
    (
        "housekeeping-interval",
        NoEffect("cgroups are read when they are asked for, not each so often"),
    ),
    ("image-credential-provider-bin-dir", Honoured),
    ("image-credential-provider-config", Honoured),
    ("kubeconfig", Honoured),
    ("lock-file", Honoured),
    ("maximum-dead-containers", Honoured),
    ("maximum-dead-containers-per-container", Honoured),
    ("minimum-container-ttl-duration", Honoured),
    ("node-ip", Honoured),
    ("node-labels", Honoured),
    ("object-manifests", Honoured),
    ("plugins", Honoured),
    ("register-schedulable", Honoured),
    ("root-dir", Honoured),
    ("runtime-cgroups", Honoured),
    ("strict-decoding", Honoured),
];

/// The configuration, and its defaults without any setting.
#[derive(Clone, Copy, Debug)]
pub struct Compared<'a, T> {
    pub set: &'a T,
    pub default: &'a T,
}

/// Returns a sentence about each setting that differs from its default and has no effect: fields by their path, flags
/// with their dashes.
pub fn without_effect(
    configuration: Compared<'_, KubeletConfiguration>,
    flags: Compared<'_, KubeletFlags>,
) -> Vec<String> {
    let set = configuration.set;
    // The kubelet's own default: images are where the runtime is.
    let is_the_runtimes = set.image_service_endpoint == set.container_runtime_endpoint;
    let fields = as_value(&configuration);
    let fields = changed(&FIELDS, &fields)
        .filter(|(path, _)| *path != "imageServiceEndpoint" || !is_the_runtimes)
        .map(|(path, reason)| format!("{path} has no effect: {reason}"));
    let flags = as_value(&flags);
    let flags =
        changed(&FLAGS, &flags).map(|(name, reason)| format!("--{name} has no effect: {reason}"));
    fields.chain(flags).collect()
}

/// Returns what the flag's help says of its effect: nothing where it does what it does in the kubelet.
pub(crate) fn effect_note(flag: &Flag) -> Option<String> {
    let row = match flag.sets {
        Sets::Configuration(path) => FIELDS.iter().find(|(row, _)| *row == path),
        Sets::Own => FLAGS.iter().find(|(row, _)| *row == flag.name),
        Sets::Nothing | Sets::Answer => None,
    };
    match row?.1 {
        NoEffect(reason) => Some(format!("no effect: {reason}")),
        Partly(reason) => Some(reason.to_owned()),
        Honoured | Refused => None,
    }
}

fn as_value<T: serde::Serialize>(compared: &Compared<'_, T>) -> (Value, Value) {
    let value = |settings| serde_json::to_value(settings).expect("settings are plain data");
    (value(compared.set), value(compared.default))
}

fn changed<'a>(
    table: &'a [(&'static str, Honour)],
    (set, default): &'a (Value, Value),
) -> impl Iterator<Item = (&'static str, &'static str)> + 'a {
    let get = |value: &'a Value, path| document::get(value.as_object()?, path);
    table
        .iter()
        .filter_map(|(path, honour)| match honour {
            NoEffect(reason) => Some((*path, *reason)),
            Honoured | Partly(_) | Refused => None,
        })
        .filter(move |(path, _)| get(set, path) != get(default, path))
}

#[cfg(test)]
mod tests;
