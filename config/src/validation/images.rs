//! The runtime's endpoints, image pulls, and access to present images.

use super::FieldErrors;
use crate::feature_gates::FeatureGates;
use crate::kubelet_configuration::{GoDuration, KubeletConfiguration};

const ALLOWLISTED: &str = "NeverVerifyAllowlistedImages";

pub(super) fn check(c: &KubeletConfiguration, gates: &FeatureGates, checks: &mut FieldErrors) {
    endpoint(
        "containerRuntimeEndpoint",
        &c.container_runtime_endpoint,
        checks,
    );
    if !c.image_service_endpoint.is_empty() {
        endpoint("imageServiceEndpoint", &c.image_service_endpoint, checks);
    }
    if c.image_maximum_gc_age != GoDuration::ZERO && !gates.enabled("ImageMaximumGCAge") {
        checks.refuse(
            "imageMaximumGCAge",
            "requires feature gate ImageMaximumGCAge",
        );
    }
    match c.max_parallel_image_pulls {
        Some(pulls) if pulls < 1 => {
            checks.refuse(
                "maxParallelImagePulls",
                format!("is {pulls}; it must be positive"),
            );
        }
        Some(2..) if c.serialize_image_pulls => checks.refuse(
            "maxParallelImagePulls",
            "cannot be larger than 1 unless serializeImagePulls (--serialize-image-pulls) is false",
        ),
        _ => {}
    }
    verification(c, gates, checks);
}

fn endpoint(field: &'static str, endpoint: &str, checks: &mut FieldErrors) {
    if endpoint.is_empty() {
        checks.refuse(field, "was not specified or empty");
    } else if !endpoint
        .strip_prefix("unix://")
        .unwrap_or(endpoint)
        .starts_with('/')
    {
        checks.refuse(
            field,
            format!("is {endpoint:?}; expected a Unix socket such as unix:///run/containerd/containerd.sock"),
        );
    }
}

fn verification(c: &KubeletConfiguration, gates: &FeatureGates, checks: &mut FieldErrors) {
    let (policy, list) = (
        &c.image_pull_credentials_verification_policy,
        &c.preloaded_images_verification_allowlist,
    );
    let policy_field = "imagePullCredentialsVerificationPolicy";
    let list_field = "preloadedImagesVerificationAllowlist";
    if !gates.enabled("KubeletEnsureSecretPulledImages") {
        let why = "requires feature gate KubeletEnsureSecretPulledImages";
        checks.require(policy.is_empty(), policy_field, why);
        checks.require(list.is_empty(), list_field, why);
        return;
    }
    let policies = [
        "NeverVerify",
        "NeverVerifyPreloadedImages",
        ALLOWLISTED,
        "AlwaysVerify",
    ];
    checks.one_of(policy_field, policy, &policies);
    if !list.is_empty() && policy != ALLOWLISTED {
        let why = format!("cannot be set unless {policy_field} is {ALLOWLISTED:?}");
        checks.refuse(list_field, why);
        return;
    }
    for pattern in list {
        if let Some(why) = wrong_pattern(pattern) {
            checks.refuse(list_field, format!("has {pattern:?}, which {why}"));
        }
    }
}

/// An image name without tag or digest, or such a prefix with `/*` at its end.
fn wrong_pattern(pattern: &str) -> Option<&'static str> {
    let name = pattern.strip_suffix("/*").unwrap_or(pattern);
    let last = name.rsplit('/').next().unwrap_or(name);
    if pattern.trim() != pattern {
        Some("begins or ends with a space")
    } else if name.is_empty() {
        Some("names no image")
    } else if name.contains('*') {
        Some("has a wildcard that is not \"/*\" at its end")
    } else if name.ends_with('/') || name.contains("//") {
        Some("is not an image name")
    } else if pattern == name && (last.contains(':') || name.contains('@')) {
        Some("has a tag or digest")
    } else {
        None
    }
}
