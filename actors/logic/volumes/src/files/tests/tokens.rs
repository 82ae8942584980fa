//! Tokens of service accounts.

use jiff::SignedDuration;
use logic_api::objects::ServiceAccountToken;
use logic_api::testing::PodBuilder;

use super::super::refresh::look_at;
use super::*;

const NO_JITTER: SignedDuration = SignedDuration::ZERO;

fn token(audiences: &[&str], text: &str, expires: Timestamp) -> Value {
    object(
        "authentication.k8s.io/v1",
        "TokenRequest",
        "foo",
        json!({
            "spec": {"audiences": audiences},
            "status": {"token": text, "expirationTimestamp": expires.to_string()},
        }),
    )
}

fn volume(audience: &str) -> Value {
    let source = json!({"audience": audience, "expirationSeconds": 3600, "path": "token"});
    json!({"name": "v", "projected": {"defaultMode": 0o644, "sources": [{"serviceAccountToken": source}]}})
}

fn two() -> Rig {
    rig(&[
        token(&[], "own", at(3600)),
        token(&["https://example.com"], "other", at(3600)),
    ])
}

/// Upstream's TestCollectDataWithServiceAccountToken.
#[test]
fn a_token_is_that_of_its_audience() {
    let rig = two();
    assert_eq!(rig.made(volume("")), expected(&[("token", "own", 0o644)]));
    let other = volume("https://example.com");
    assert_eq!(rig.made(other), expected(&[("token", "other", 0o644)]));
}

/// Upstream's TestCollectDataWithServiceAccountToken: fsUser and fsGroup.
#[test]
fn a_token_is_for_the_pods_user_or_group_alone() {
    let cases = [
        (json!({}), None, None, 0o644),
        (json!({"fsGroup": 1000}), None, None, 0o600),
        (json!({"runAsUser": 1000}), Some(1000), None, 0o600),
        (
            json!({"fsGroup": 1, "runAsUser": 1000}),
            Some(1000),
            None,
            0o600,
        ),
        (json!({}), Some(7), Some(7), 0o600),
    ];
    for (security, owner, own, mode) in cases {
        let mut rig = two();
        rig.pod = rig.pod.spec_with(|spec| {
            spec.security_context = Some(serde_json::from_value(security.clone()).unwrap());
        });
        rig.pod = rig.pod.app_with("c", |container| {
            let own = own.map(|user: u32| json!({"runAsUser": user}));
            container.security_context = own.map(|given| serde_json::from_value(given).unwrap());
        });
        let made = rig.make(volume("")).unwrap();
        let file = &made.set.files["token"];
        assert_eq!((file.owner, file.mode), (owner, mode), "{security}");
    }
}

#[test]
fn without_a_token_it_is_said_which_one_is_missing() {
    let rig = two();
    let (message, until) = rig.refused(volume("vault"));
    assert_eq!(
        message,
        "failed to fetch token: there is no token of service account default/foo for audience vault"
    );
    assert_eq!(until, RetryWhen::Changed);
    let error = rig.make(volume("vault")).unwrap_err();
    let used = error.uses.first().unwrap();
    assert_eq!((used.kind, used.name.as_str()), ("TokenRequest", "foo"));
}

#[test]
fn an_expired_token_is_given_to_nobody() {
    let mut rig = two();
    rig.now = at(3600);
    let (message, _) = rig.refused(volume("https://example.com"));
    let key = "\"foo\"/\"default\"/[]string{\"https://example.com\"}/3600/v1.BoundObjectReference{Kind:\"Pod\", APIVersion:\"v1\", Name:\"p\", UID:\"p-uid\"}";
    assert!(
        message.starts_with(&format!("token {key} expired and refresh failed: ")),
        "{message}"
    );
    let (message, _) = rig.refused(volume(""));
    assert!(message.contains("/[]string(nil)/"), "{message}");
}

#[test]
fn of_several_tokens_the_one_that_lasts_longest_is_taken() {
    let rig = rig(&[
        token(&[], "short", at(60)),
        token(&[], "long", at(7200)),
        token(&[], "middle", at(3600)),
    ]);
    assert_eq!(rig.made(volume("")), expected(&[("token", "long", 0o644)]));
}

#[test]
fn a_token_that_is_bound_to_a_pod_is_for_that_pod() {
    let bound = |kind: &str, name: &str, uid: &str| {
        let mut token = token(&[], "own", at(3600));
        token["spec"]["boundObjectRef"] = json!({"kind": kind, "name": name, "uid": uid});
        rig(&[token]).make(volume("")).is_ok()
    };
    assert!(bound("Pod", "p", "p-uid") && bound("Pod", "p", "") && bound("Node", "n", ""));
    assert!(!bound("Pod", "q", "") && !bound("Pod", "p", "other"));
}

/// Upstream's TestRequiresRefresh, and when TestTokenCachingAndExpiration has one renewed.
#[test]
fn a_token_is_renewed_after_four_fifths_of_its_life_or_a_day() {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 3600;
    let cases = [
        (10 * MINUTE, 60 * MINUTE, false),
        (47 * MINUTE, 60 * MINUTE, false),
        (50 * MINUTE, 60 * MINUTE, true),
        (23 * HOUR, 60 * HOUR, false),
        (25 * HOUR, 60 * HOUR, true),
        (25 * HOUR, 40 * HOUR, true),
        (70 * MINUTE, 60 * MINUTE, true),
    ];
    for (now, expires, due) in cases {
        let with = |issued| ServiceAccountToken {
            token: "t".to_owned(),
            expires: at(expires),
            issued,
        };
        // As asked for, or as it was given.
        let by_request = with(None).renew_at(expires, NO_JITTER);
        let by_birth = with(Some(at(0))).renew_at(HOUR, NO_JITTER);
        assert_eq!(by_request, by_birth);
        assert_eq!(at(now) > by_request, due, "{now} of {expires}");
    }
}

#[test]
fn what_is_overdue_is_looked_at_soon_and_when_it_ends() {
    assert_eq!(look_at(at(0), at(100), at(200)), at(100));
    assert_eq!(look_at(at(100), at(100), at(200)), at(160));
    assert_eq!(look_at(at(150), at(100), at(200)), at(200));
    let far = Timestamp::MAX;
    assert_eq!(look_at(far, far, far), far);
}

#[test]
fn pods_do_not_renew_their_tokens_all_at_once() {
    let mut rig = two();
    let mut times = BTreeSet::new();
    for number in 0..50 {
        rig.pod.metadata.uid = Some(format!("uid-{number}"));
        let first = rig.make(volume("")).unwrap().refresh_at.unwrap();
        assert_eq!(rig.make(volume("")).unwrap().refresh_at, Some(first));
        assert!(first > at(2870) && first <= at(2880), "{first}");
        times.insert(first);
    }
    assert!(times.len() > 40);
}

#[test]
fn any_life_is_reckoned_without_overflow() {
    let edges = [Timestamp::MIN, at(0), Timestamp::MAX];
    for expires in edges {
        for issued in edges.into_iter().map(Some).chain([None]) {
            let token = ServiceAccountToken {
                token: String::new(),
                expires,
                issued,
            };
            let renew = token.renew_at(i64::MAX, SignedDuration::from_secs(10));
            drop(look_at(at(0), renew, expires).to_string());
        }
    }
}
