//! What providers are told, what they answer, and how long it holds.

use super::*;

const V1: &str = "credentialprovider.kubelet.k8s.io/v1";

fn config(user: &str) -> DockerConfig {
    let auth = AuthConfig {
        username: user.into(),
        password: "password".into(),
        email: String::new(),
    };
    [("*.registry.io".to_owned(), auth)].into()
}

/// Upstream's Test_encodeRequest.
#[test]
fn a_request_is_what_upstream_writes() {
    let text = request(V1, "test.registry.io/foobar");
    assert_eq!(
        String::from_utf8(text).unwrap(),
        "{\"kind\":\"CredentialProviderRequest\",\"apiVersion\":\"credentialprovider.kubelet.k8s.io/v1\",\"image\":\"test.registry.io/foobar\"}\n"
    );
}

/// Upstream's Test_decodeResponse.
#[test]
fn an_answer_reads_in_every_version_that_was_asked_for() {
    for version in ["v1", "v1beta1", "v1alpha1"] {
        let api_version = format!("credentialprovider.kubelet.k8s.io/{version}");
        let text = format!(
            r#"{{"kind":"CredentialProviderResponse","apiVersion":"{api_version}","cacheKeyType":"Registry","cacheDuration":"1m0s","auth":{{"*.registry.io":{{"username":"user","password":"password"}}}}}}"#
        );
        let expected = ProviderResponse {
            cache_key: CacheKeyType::Registry,
            cache_for: Some(Duration::from_secs(60)),
            auth: config("user"),
        };
        assert_eq!(response(text.as_bytes(), &api_version), Ok(expected));
    }
}

/// Upstream's Test_ProvideWithCacheKeyType's refusals, and the checks of ExecPlugin.
#[test]
fn an_answer_that_says_nothing_is_refused_and_never_shown() {
    let full = |rest: &str| {
        format!(r#"{{"kind":"CredentialProviderResponse","apiVersion":"{V1}"{rest}}}"#)
    };
    let other_version = full("").replace("/v1", "/v1beta1");
    let other_kind = full(r#","cacheKeyType":"Image""#).replace("Response", "Request");
    let cases = [
        ("hunter2".to_owned(), "error reading GVK from response"),
        ("[]".to_owned(), "did not match expected apiVersion"),
        (other_version, "did not match expected apiVersion"),
        (other_kind, "error decoding credential provider"),
        (
            full(r#","cacheKeyType":"Image","unknown":"hunter2""#),
            "error decoding",
        ),
        (
            full(r#","cacheKeyType":"Image","cacheDuration":"hunter2""#),
            "error decoding",
        ),
        (full(""), "did not return a valid cacheKeyType: \"\""),
        (
            full(r#","cacheKeyType":"Pod""#),
            "did not return a valid cacheKeyType: \"Pod\"",
        ),
        (full("") + "hunter2", "error reading GVK"),
    ];
    for (text, expected) in cases {
        let error = response(text.as_bytes(), V1).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}

fn answer(cache_key: CacheKeyType, cache_for: Option<u64>) -> ProviderResponse {
    ProviderResponse {
        cache_key,
        cache_for: cache_for.map(Duration::from_secs),
        auth: config("user"),
    }
}

/// Upstream's Test_ProvideParallel and Test_getCachedCredentials, by the key.
#[test]
fn an_answer_holds_for_its_image_its_registry_or_all() {
    let now = logic_api::testing::at(1_000);
    let (asked, same, other) = ("a.io/x", "a.io/y", "b.io/x");
    let cases = [
        (CacheKeyType::Image, [true, false, false]),
        (CacheKeyType::Registry, [true, true, false]),
        (CacheKeyType::Global, [true, true, true]),
    ];
    for (key, expected) in cases {
        let mut cache = ProviderCache::default();
        cache.put(asked, &answer(key, Some(60)), Duration::ZERO, now);
        let known = [asked, same, other].map(|image| cache.get(image, now).is_some());
        assert_eq!(known, expected, "{key:?}");
    }
}

/// Upstream's Test_CacheKeyGeneration's times: the answer's own, the default, and none.
#[test]
fn an_answer_holds_until_its_time_is_over() {
    let now = logic_api::testing::at(1_000);
    let second = Duration::from_secs(1);
    let cases = [
        (Some(10), 60, Some(10)),
        (None, 60, Some(60)),
        (None, 0, None),
        (Some(0), 60, None),
    ];
    for (own, default, holds) in cases {
        let mut cache = ProviderCache::default();
        let default = Duration::from_secs(default);
        cache.put("a.io/x", &answer(CacheKeyType::Image, own), default, now);
        let until = holds.map(|seconds| now + Duration::from_secs(seconds));
        assert_eq!(cache.get("a.io/x", now).is_some(), holds.is_some());
        if let Some(until) = until {
            assert!(cache.get("a.io/x", until).is_some());
            assert!(cache.get("a.io/x", until + second).is_none());
        }
    }
}

#[test]
fn only_so_many_answers_are_kept() {
    let now = logic_api::testing::at(1_000);
    let mut cache = ProviderCache::default();
    for number in 0..MAX_CACHED + 10 {
        let image = format!("a.io/{number}");
        let length = 60 + u64::try_from(number).unwrap();
        let answer = answer(CacheKeyType::Image, Some(length));
        cache.put(&image, &answer, Duration::ZERO, now);
    }
    assert_eq!(cache.len(), MAX_CACHED);
    assert!(cache.get("a.io/0", now).is_none());
    assert!(
        cache
            .get(&format!("a.io/{}", MAX_CACHED + 9), now)
            .is_some()
    );
}

#[test]
fn a_provider_is_for_the_images_that_it_names() {
    let patterns = [
        "*.registry.io".to_owned(),
        "example.com:5000/team".to_owned(),
    ];
    assert!(is_for(&patterns, "a.registry.io/x"));
    assert!(is_for(&patterns, "example.com:5000/team/x"));
    assert!(!is_for(&patterns, "example.com/team/x"));
}
