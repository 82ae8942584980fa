//! Upstream's defaults (`SetDefaults_KubeletConfiguration`, 1.36). Most are plain data, in `defaults.yaml`; here is
//! what depends on other fields or on feature gates.
//!
//! Where Go cannot tell 0 from absent, 0 means "the default"; where it can, 0 is a value like any.

use serde_json::{Map, Value, json};

use crate::document::{self, DocumentError};
use crate::feature_gates::FeatureGates;
use crate::kubelet_configuration::{GoDuration, KubeletConfiguration};

/// The fields that have a default and can be set to 0, "" or "0s" all the same.
const ZERO_IS_A_VALUE: [&str; 19] = [
    "containerLogMaxFiles",
    "containerLogMaxWorkers",
    "containerLogMonitorInterval",
    "cpuCFSQuotaPeriod",
    "crashLoopBackOff.maxContainerRestartPeriod",
    "eventRecordQPS",
    "healthzPort",
    "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent",
    "iptablesDropBit",
    "iptablesMasqueradeBit",
    "kubeAPIQPS",
    "memoryThrottlingFactor",
    "nodeStatusMaxImages",
    "oomScoreAdj",
    "podPidsLimit",
    "registryPullQPS",
    "resolvConf",
    "userNamespaces.idsPerPod",
];

/// The default `evictionHard`.
pub(crate) const EVICTION_HARD: [(&str, &str); 5] = [
    ("imagefs.available", "15%"),
    ("imagefs.inodesFree", "5%"),
    ("memory.available", "100Mi"),
    ("nodefs.available", "10%"),
    ("nodefs.inodesFree", "5%"),
];

/// Returns fields as a configuration, with defaults where they leave something open.
pub(crate) fn complete(
    mut fields: Map<String, Value>,
    gates: &FeatureGates,
) -> Result<KubeletConfiguration, DocumentError> {
    document::strip_nulls(&mut fields);
    // First as it stands, so that an error is about what was written and not about a default.
    let written: KubeletConfiguration = document::decode(fields.clone())?;
    let mut defaults = plain();
    conditional(&mut defaults, &fields, &written, gates);
    fill(&mut fields, &defaults, "");
    if written.pod_pids_limit < 0 {
        document::put(&mut fields, "podPidsLimit", json!(-1));
    }
    document::decode(fields)
}

/// Returns the configuration that the kubelet has before it reads any file: the defaults, but with
/// the open doors of old that only a file closes.
pub(crate) fn legacy(gates: &FeatureGates) -> KubeletConfiguration {
    let mut configuration =
        complete(Map::new(), gates).expect("defaults alone always fit: a test completes them");
    configuration.authentication.anonymous.enabled = true;
    configuration.authentication.webhook.enabled = false;
    "AlwaysAllow".clone_into(&mut configuration.authorization.mode);
    configuration.read_only_port = 10255;
    configuration
}

/// Returns the runtime endpoint of a configuration that names none.
pub(crate) fn runtime_endpoint() -> String {
    let defaults = plain();
    let endpoint = defaults
        .get("containerRuntimeEndpoint")
        .and_then(Value::as_str);
    endpoint.unwrap_or_default().to_owned()
}

fn plain() -> Map<String, Value> {
    let text = include_str!("defaults.yaml");
    document::parse_strictly(text).expect("the built-in defaults parse: a test reads them")
}

fn conditional(
    defaults: &mut Map<String, Value>,
    fields: &Map<String, Value>,
    written: &KubeletConfiguration,
    gates: &FeatureGates,
) {
    let mut default = |path, value| document::put(defaults, path, value);
    if written.node_status_update_frequency != GoDuration::ZERO {
        default(
            "nodeStatusReportFrequency",
            json!(written.node_status_update_frequency),
        );
    }
    if !fields.contains_key("serializeImagePulls") {
        let parallel = written
            .max_parallel_image_pulls
            .is_some_and(|pulls| pulls >= 2);
        default("serializeImagePulls", json!(!parallel));
    }
    if gates.enabled("KubeletCrashLoopBackOffMax") {
        default("crashLoopBackOff.maxContainerRestartPeriod", json!("5m0s"));
    }
    if gates.enabled("KubeletEnsureSecretPulledImages") {
        default(
            "imagePullCredentialsVerificationPolicy",
            json!("NeverVerifyPreloadedImages"),
        );
    }
    if gates.enabled("UserNamespacesSupport") {
        default("userNamespaces.idsPerPod", json!(65536));
    }
}

fn fill(fields: &mut Map<String, Value>, defaults: &Map<String, Value>, prefix: &str) {
    for (key, default) in defaults {
        let path = format!("{prefix}{key}");
        match (fields.get_mut(key), default) {
            (Some(Value::Object(inner)), Value::Object(defaults)) => {
                fill(inner, defaults, &format!("{path}."));
            }
            (Some(value), default) if !is_unset(value, default, &path) => {}
            _ => {
                fields.insert(key.clone(), default.clone());
            }
        }
    }
}

fn is_unset(value: &Value, default: &Value, path: &str) -> bool {
    let is_duration = |value: &Value| value.as_str()?.parse::<GoDuration>().ok();
    let zero = match value {
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) if text.is_empty() => true,
        Value::String(_) => {
            is_duration(default).is_some() && is_duration(value) == Some(GoDuration::ZERO)
        }
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
    };
    zero && !ZERO_IS_A_VALUE.contains(&path)
}

#[cfg(test)]
mod extremes;
#[cfg(test)]
mod tests;
