//! What upstream's validateCredentialProviderConfig checks (plugin/config.go, v1.36).

use super::{RawProvider, RawToken};
use crate::feature_gates::FeatureGates;
use crate::kubelet_configuration::GoDuration;

const TOKEN_GATE: &str = "KubeletServiceAccountTokenForCredentialProviders";
const V1: &str = "credentialprovider.kubelet.k8s.io/v1";
const API_VERSIONS: [&str; 3] = [
    V1,
    "credentialprovider.kubelet.k8s.io/v1alpha1",
    "credentialprovider.kubelet.k8s.io/v1beta1",
];
const CACHE_TYPES: [&str; 2] = ["ServiceAccount", "Token"];

/// Returns everything that is wrong, each with its field.
pub(super) fn check(providers: &[RawProvider], gates: &FeatureGates) -> Vec<String> {
    let mut wrong = Vec::new();
    if providers.is_empty() {
        wrong.push("providers: Required value: at least 1 item in plugins is required".to_owned());
    }
    for provider in providers {
        name(&provider.name, &mut wrong);
        images(provider, &mut wrong);
        versions(provider, &mut wrong);
        if let Some(token) = &provider.token_attributes {
            attributes(provider, token, gates, &mut wrong);
        }
    }
    wrong
}

fn name(name: &str, wrong: &mut Vec<String>) {
    let cases = [
        (name.contains('/'), "provider name cannot contain '/'"),
        (name.contains(' '), "provider name cannot contain spaces"),
        (name == ".", "provider name cannot be '.'"),
        (name == "..", "provider name cannot be '..'"),
        // Upstream reports this when it looks for the program.
        (name.is_empty(), "provider name cannot be empty"),
    ];
    for (_, why) in cases.into_iter().filter(|(is_wrong, _)| *is_wrong) {
        wrong.push(format!("providers.name: Invalid value: {name:?}: {why}"));
    }
}

fn versions(provider: &RawProvider, wrong: &mut Vec<String>) {
    let version = provider.api_version.as_str();
    if version.is_empty() {
        wrong.push("providers.apiVersion: Required value".to_owned());
    } else if !API_VERSIONS.contains(&version) {
        wrong.push(format!(
            "providers.apiVersion: Unsupported value: {version:?}: supported values: {}",
            quoted(&API_VERSIONS)
        ));
    }
    match provider.default_cache_duration {
        None => wrong.push("providers.defaultCacheDuration: Required value".to_owned()),
        Some(duration) if duration < GoDuration::ZERO => wrong.push(format!(
            "providers.defaultCacheDuration: Invalid value: \"{duration}\": must be greater than or equal to 0"
        )),
        Some(_) => {}
    }
}

fn images(provider: &RawProvider, wrong: &mut Vec<String>) {
    if provider.match_images.is_empty() {
        wrong.push(
            "providers.matchImages: Required value: at least 1 item in matchImages is required"
                .to_owned(),
        );
    }
    for image in &provider.match_images {
        if let Some(why) = wrong_pattern(image) {
            wrong.push(format!(
                "providers.matchImages: Invalid value: {image:?}: match image is invalid: {why}"
            ));
        }
    }
}

/// Why a pattern is no URL without its scheme.
fn wrong_pattern(pattern: &str) -> Option<&'static str> {
    let (host, path) = pattern.split_once('/').unwrap_or((pattern, ""));
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let allowed =
        |c: char| c.is_ascii_alphanumeric() || !c.is_ascii() || "-_.~!$&'()*+,;=:[]".contains(c);
    let after = host.rfind(']').map_or(0, |at| at + 1);
    let port = host[after..].rsplit_once(':').map_or("", |(_, port)| port);
    let mut escapes = path.split('%').skip(1);
    if pattern.chars().any(char::is_control) {
        Some("invalid control character in URL")
    } else if host.contains('%') {
        Some("invalid URL escape")
    } else if !host.chars().all(allowed) {
        Some("invalid character in host name")
    } else if !port.bytes().all(|b| b.is_ascii_digit()) {
        Some("invalid port after host")
    } else if escapes.any(|rest| {
        let digits = rest.as_bytes().get(..2).unwrap_or_default();
        digits.len() < 2 || !digits.iter().all(u8::is_ascii_hexdigit)
    }) {
        Some("invalid URL escape")
    } else {
        None
    }
}

fn attributes(
    provider: &RawProvider,
    token: &RawToken,
    gates: &FeatureGates,
    wrong: &mut Vec<String>,
) {
    let required = &token.required_service_account_annotation_keys;
    let optional = &token.optional_service_account_annotation_keys;
    let cache = token.cache_type.as_str();
    let unsupported = format!(
        "cacheType: Unsupported value: {cache:?}: supported values: {}",
        quoted(&CACHE_TYPES)
    );
    let cases = [
        (
            !gates.enabled(TOKEN_GATE),
            "Forbidden: tokenAttributes is not supported when KubeletServiceAccountTokenForCredentialProviders feature gate is disabled",
        ),
        (
            token.service_account_token_audience.is_empty(),
            "serviceAccountTokenAudience: Required value",
        ),
        (
            token.require_service_account.is_none(),
            "requireServiceAccount: Required value",
        ),
        (
            provider.api_version != V1,
            "Forbidden: tokenAttributes is only supported for credentialprovider.kubelet.k8s.io/v1 API version",
        ),
        (
            token.require_service_account == Some(false) && !required.is_empty(),
            "requiredServiceAccountAnnotationKeys: Forbidden: requireServiceAccount cannot be false when requiredServiceAccountAnnotationKeys is set",
        ),
        (
            required.iter().any(|key| optional.contains(key)),
            "Invalid value: annotation keys cannot be both required and optional",
        ),
        (
            cache.is_empty(),
            "cacheType: Required value: cacheType is required to be set when tokenAttributes is specified. Supported values are: ServiceAccount, Token",
        ),
        (
            !cache.is_empty() && !CACHE_TYPES.contains(&cache),
            &unsupported,
        ),
    ];
    for (_, why) in cases.into_iter().filter(|(is_wrong, _)| *is_wrong) {
        wrong.push(format!("providers.tokenAttributes.{why}"));
    }
}

fn quoted(values: &[&str]) -> String {
    let quoted: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
    quoted.join(", ")
}
