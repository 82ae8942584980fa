//! The structures inside a KubeletConfiguration.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use logic_api::quantity::Quantity;
use logic_api::text::go_duration::{GoDuration, text_or_nanos};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeletAuthentication {
    /// By client certificates.
    pub x509: X509Authentication,
    /// By TokenReviews of the API.
    pub webhook: WebhookAuthentication,
    /// Whether callers without any are let in.
    pub anonymous: AnonymousAuthentication,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct X509Authentication {
    /// Authorities of client certificates; empty for none.
    #[serde(rename = "clientCAFile")]
    pub client_ca_file: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WebhookAuthentication {
    /// Has the API review bearer tokens.
    pub enabled: bool,
    /// For which an answer is kept.
    #[serde(rename = "cacheTTL")]
    pub cache_ttl: GoDuration,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AnonymousAuthentication {
    /// Lets them in as `system:anonymous`.
    pub enabled: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeletAuthorization {
    /// `AlwaysAllow` or `Webhook`.
    pub mode: String,
    /// By SubjectAccessReviews of the API.
    pub webhook: WebhookAuthorization,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WebhookAuthorization {
    /// For which a permission is kept.
    #[serde(rename = "cacheAuthorizedTTL")]
    pub cache_authorized_ttl: GoDuration,
    /// For which a refusal is kept.
    #[serde(rename = "cacheUnauthorizedTTL")]
    pub cache_unauthorized_ttl: GoDuration,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CrashLoopBackOff {
    /// The longest wait; none for five minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_container_restart_period: Option<GoDuration>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MemorySwap {
    /// `NoSwap` or `LimitedSwap`; empty for the former.
    pub swap_behavior: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ReservedMemory {
    /// The node's number.
    pub numa_node: i32,
    /// Reserved quantities, by resource.
    pub limits: BTreeMap<String, Quantity>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ShutdownGracePeriodByPodPriority {
    /// Pods from this priority on, up to the next group's.
    pub priority: i32,
    /// How long these pods get.
    pub shutdown_grace_period_seconds: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct UserNamespacesConfiguration {
    /// Ids of one pod, a multiple of 65536; none for that many.
    #[serde(rename = "idsPerPod", skip_serializing_if = "Option::is_none")]
    pub ids_per_pod: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Tracing {
    /// The collector's address; none for the local one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Of requests without a trace of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling_rate_per_million: Option<i32>,
}

/// A taint to register the node with; core/v1's type, of which only this much is a setting.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Taint {
    /// The taint's key.
    pub key: String,
    /// The taint's value.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
    /// When it was added, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_added: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Logging {
    /// `text` or `json`.
    pub format: String,
    /// Between two flushes of a log that is buffered.
    #[serde(deserialize_with = "text_or_nanos")]
    pub flush_frequency: GoDuration,
    /// From 0 up; more says more.
    pub verbosity: u32,
    /// Verbosity of single files.
    pub vmodule: Vec<VModule>,
    /// By format.
    pub options: LoggingOptions,
}

/// A verbosity of its own for the source files that match a pattern.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct VModule {
    /// A pattern of file names.
    pub file_pattern: String,
    /// From 0 up.
    pub verbosity: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LoggingOptions {
    /// For the text format.
    pub text: LogStream,
    /// For the JSON format.
    pub json: LogStream,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LogStream {
    /// Writes errors to standard error and the rest to standard output.
    pub split_stream: bool,
    /// Bytes that are buffered of standard output then.
    pub info_buffer_size: Quantity,
}
