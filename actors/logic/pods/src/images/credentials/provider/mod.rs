//! Credential providers: for which images each is called, its request, its response, and how long that is cached.
//!
//! Mirrors upstream's pkg/credentialprovider/plugin/plugin.go (v1.36).

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use logic_api::text::go_duration::GoDuration;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::docker::DockerConfig;
use super::{AuthConfig, matching};

/// The API group of requests and responses.
const GROUP: &str = "credentialprovider.kubelet.k8s.io";
/// Responses cached for one provider; beyond that, the one that expires first is dropped.
const MAX_CACHED: usize = 1024;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ProviderRequest<'a> {
    kind: &'static str,
    api_version: &'a str,
    image: &'a str,
}

/// The `CredentialProviderRequest` for a provider's standard input.
pub fn request(api_version: &str, image: &str) -> Vec<u8> {
    let request = ProviderRequest {
        kind: "CredentialProviderRequest",
        api_version,
        image,
    };
    let mut text = serde_json::to_vec(&request).expect("three texts make JSON");
    text.push(b'\n');
    text
}

/// By what a response is cached: its `cacheKeyType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum CacheKeyType {
    Image,
    Registry,
    Global,
}

/// A provider's `CredentialProviderResponse`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderResponse {
    /// For which images the answer holds.
    pub cache_key: CacheKeyType,
    /// None: the provider's `defaultCacheDuration`.
    pub cache_for: Option<Duration>,
    pub auth: DockerConfig,
}

/// Why a response is not usable. The text shows nothing of the response, which may hold a password.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ProviderResponseError {
    #[error("error reading GVK from response: it is not a JSON object with kind and apiVersion")]
    NoKind,
    #[error(
        "apiVersion from credential plugin response did not match expected apiVersion:{expected}, actual apiVersion:{found}"
    )]
    ApiVersion { expected: String, found: String },
    #[error("error decoding credential provider plugin response from stdout")]
    Undecodable,
    #[error("credential provider plugin did not return a valid cacheKeyType: {0:?}")]
    CacheKeyType(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProviderTypeMeta {
    #[serde(default)]
    api_version: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawProviderResponse {
    kind: String,
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(default)]
    cache_key_type: String,
    #[serde(default)]
    cache_duration: Option<String>,
    #[serde(default)]
    auth: Option<BTreeMap<String, RawAuth>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAuth {
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
}

/// Reads what a provider wrote; it must be of the version that it was asked in.
pub fn response(text: &[u8], api_version: &str) -> Result<ProviderResponse, ProviderResponseError> {
    let head: ProviderTypeMeta =
        serde_json::from_slice(text).map_err(|_| ProviderResponseError::NoKind)?;
    if head.api_version != api_version {
        return Err(ProviderResponseError::ApiVersion {
            expected: api_version.to_owned(),
            found: shortened(&head.api_version),
        });
    }
    let raw: RawProviderResponse =
        serde_json::from_slice(text).map_err(|_| ProviderResponseError::Undecodable)?;
    let group = api_version.split('/').next();
    if raw.kind != "CredentialProviderResponse" || group != Some(GROUP) {
        return Err(ProviderResponseError::Undecodable);
    }
    let cache_for = match raw.cache_duration {
        Some(text) => Some(
            text.parse::<GoDuration>()
                .map_err(|_| ProviderResponseError::Undecodable)?
                .as_std(),
        ),
        None => None,
    };
    let cache_key = match raw.cache_key_type.as_str() {
        "Image" => CacheKeyType::Image,
        "Registry" => CacheKeyType::Registry,
        "Global" => CacheKeyType::Global,
        other => return Err(ProviderResponseError::CacheKeyType(shortened(other))),
    };
    let auth = raw.auth.unwrap_or_default().into_iter();
    let auth = auth.map(|(place, auth)| {
        let auth = AuthConfig {
            username: auth.username,
            password: auth.password,
            email: String::new(),
        };
        (place, auth)
    });
    Ok(ProviderResponse {
        cache_key,
        cache_for,
        auth: auth.collect(),
    })
}

fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}

/// Whether a provider is for an image.
pub fn is_for(match_images: &[String], image: &str) -> bool {
    match_images
        .iter()
        .any(|pattern| matching::matches(pattern, image))
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CredentialCacheKey {
    Image(String),
    Registry(String),
    Global,
}

/// A provider's responses, each until it expires.
#[derive(Clone, Debug, Default)]
pub struct ProviderCache(BTreeMap<CredentialCacheKey, (DockerConfig, Timestamp)>);

impl ProviderCache {
    /// The cached response for an image: one for it alone, else for its registry, else for all.
    pub fn get(&self, image: &str, now: Timestamp) -> Option<&DockerConfig> {
        let keys = [
            CredentialCacheKey::Image(image.to_owned()),
            CredentialCacheKey::Registry(registry(image)),
            CredentialCacheKey::Global,
        ];
        keys.iter().find_map(|key| {
            let (config, until) = self.0.get(key)?;
            (now <= *until).then_some(config)
        })
    }

    /// Caches a response for its own duration; `default` where it has none. A duration of zero is not cached.
    pub fn put(
        &mut self,
        image: &str,
        response: &ProviderResponse,
        default: Duration,
        now: Timestamp,
    ) {
        let length = response.cache_for.unwrap_or(default);
        self.0.retain(|_, (_, until)| now <= *until);
        let until = now.checked_add(length).ok();
        let Some(until) = until.filter(|_| !length.is_zero()) else {
            return;
        };
        let first = self.0.iter().min_by_key(|(_, (_, until))| *until);
        if let Some(first) = first
            .map(|(key, _)| key.clone())
            .filter(|_| self.0.len() >= MAX_CACHED)
        {
            self.0.remove(&first);
        }
        let key = match response.cache_key {
            CacheKeyType::Image => CredentialCacheKey::Image(image.to_owned()),
            CacheKeyType::Registry => CredentialCacheKey::Registry(registry(image)),
            CacheKeyType::Global => CredentialCacheKey::Global,
        };
        self.0.insert(key, (response.auth.clone(), until));
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The registry of an image, with its port.
fn registry(image: &str) -> String {
    image.split('/').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
