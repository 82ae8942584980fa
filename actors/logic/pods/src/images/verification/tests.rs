//! Who may use an image that is here.

use logic_api::testing::at;

use super::super::records::PullCredentials;
use super::*;
use crate::images::credentials::{AuthConfig, CredentialSource, SecretId};

const IMAGE: &str = "example.com/testing/test:latest";

/// Upstream's TestNeverVerifyPreloadedPullPolicy and TestNewNeverVerifyAllowListedPullPolicy.
#[test]
fn the_policy_says_which_images_are_verified() {
    let listed = |patterns: &[&str]| {
        let patterns: Vec<String> = patterns.iter().map(|p| (*p).to_owned()).collect();
        CredentialVerificationPolicy::from_name("NeverVerifyAllowlistedImages", &patterns)
    };
    let policy = |name: &str| CredentialVerificationPolicy::from_name(name, &[]);
    let cases = [
        (policy("NeverVerify"), [false, false]),
        (policy("NeverVerifyPreloadedImages"), [false, true]),
        (policy("AlwaysVerify"), [true, true]),
        (
            listed(&["test.io/test/image1", "test.io/test/image2"]),
            [true, true],
        ),
        (
            listed(&["test.io/test/image1", "test.io/test/test-image"]),
            [false, false],
        ),
        (
            listed(&["test.io/test/image1", "different.repo/test/*"]),
            [true, true],
        ),
        (listed(&["test.io/test/*"]), [false, false]),
        (listed(&["test.io/*"]), [false, false]),
        (listed(&["test.io/te/*"]), [true, true]),
    ];
    for (policy, expected) in cases {
        let found =
            [false, true].map(|tracked| policy.requires("test.io/test/test-image:tag", tracked));
        assert_eq!(found, expected, "{policy:?}");
    }
    // A name is compared as it is written.
    let short = listed(&["busybox"]);
    assert!(!short.requires("busybox:1.36", false));
    assert!(short.requires("docker.io/library/busybox:1.36", false));
}

fn auth(password: &str) -> AuthConfig {
    AuthConfig {
        username: "user".into(),
        password: password.into(),
        email: String::new(),
    }
}

fn credential(name: &str, password: &str) -> Credential {
    Credential {
        auth: auth(password),
        source: CredentialSource::Secret(SecretId {
            uid: format!("uid-{name}"),
            namespace: "default".into(),
            name: name.into(),
        }),
    }
}

fn pulled(repository: &str, credentials: &PullCredentials) -> PullRecordState {
    let mut record = PulledRecord::new("sha256:1", at(0));
    record.merge(repository, credentials, at(0));
    PullRecordState::Pulled(Box::new(record))
}

/// Upstream's TestFileBasedImagePullManager_MustAttemptImagePull, as far as no secrets are compared.
#[test]
fn records_decide_where_policy_verifies() {
    let never = CredentialVerificationPolicy::NeverVerify;
    let preloaded = CredentialVerificationPolicy::NeverVerifyPreloadedImages;
    let always = CredentialVerificationPolicy::AlwaysVerify;
    let by_secret = PullCredentials::of(Some(&credential("a", "1")));
    let name = "example.com/testing/test";
    let needed = ImageAccess::Depends(by_secret.kubernetes_secrets.clone());
    let cases = [
        (&preloaded, PullRecordState::Unknown, ImageAccess::Granted),
        (&always, PullRecordState::Unknown, ImageAccess::Denied),
        (&preloaded, PullRecordState::Begun, ImageAccess::Denied),
        (&never, PullRecordState::Begun, ImageAccess::Granted),
        (&preloaded, PullRecordState::Damaged, ImageAccess::Denied),
        (&never, PullRecordState::Damaged, ImageAccess::Denied),
        (
            &preloaded,
            pulled(name, &PullCredentials::of(None)),
            ImageAccess::Granted,
        ),
        (
            &always,
            pulled(name, &PullCredentials::of(None)),
            ImageAccess::Granted,
        ),
        (
            &preloaded,
            pulled(name, &PullCredentials::default()),
            ImageAccess::Denied,
        ),
        (
            &preloaded,
            pulled("example.com/other/test", &PullCredentials::of(None)),
            ImageAccess::Denied,
        ),
        (&preloaded, pulled(name, &by_secret), needed),
        (
            &preloaded,
            pulled(
                "docker.io/example.com/testing/test",
                &PullCredentials::of(None),
            ),
            ImageAccess::Denied,
        ),
        (&never, pulled(name, &by_secret), ImageAccess::Granted),
    ];
    for (policy, tracked, expected) in cases {
        assert_eq!(
            access(policy, IMAGE, &tracked),
            expected,
            "{policy:?} {tracked:?}"
        );
    }
}

/// Upstream's TestFileBasedImagePullManager_MustAttemptImagePull, the secrets.
#[test]
fn a_secret_opens_an_image_by_its_content_or_by_being_the_same_secret() {
    let known = PullCredentials::of(Some(&credential("a", "1"))).kubernetes_secrets;
    let own = |name: &str, password: &str| PullSecret::of(&credential(name, password)).unwrap();
    let granted = |learn| CredentialMatch::Granted { learn };
    let cases = [
        (vec![credential("a", "1")], granted(None)),
        (vec![credential("b", "1")], granted(Some(own("b", "1")))),
        (vec![credential("a", "2")], granted(Some(own("a", "2")))),
        (vec![credential("b", "2")], CredentialMatch::Denied),
        (
            vec![credential("b", "2"), credential("a", "1")],
            granted(None),
        ),
        (vec![], CredentialMatch::Denied),
        (
            vec![Credential {
                auth: auth("1"),
                source: CredentialSource::Node,
            }],
            CredentialMatch::Denied,
        ),
    ];
    for (credentials, expected) in cases {
        assert_eq!(
            with_credentials(&known, &credentials),
            expected,
            "{credentials:?}"
        );
    }
}

/// Upstream's writeRecordWhileMatchingLimit.
#[test]
fn beyond_a_hundred_secrets_nothing_is_learnt() {
    let known: Vec<PullSecret> = (0..MAX_RECORDED_CREDENTIALS)
        .map(|number| PullSecret::of(&credential(&format!("s{number}"), "1")).unwrap())
        .collect();
    assert_eq!(
        with_credentials(&known, &[credential("new", "1")]),
        CredentialMatch::Granted { learn: None }
    );
    assert_eq!(
        with_credentials(&known, &[credential("s0", "2")]),
        CredentialMatch::Denied
    );
}

#[test]
fn a_hash_that_is_not_known_equals_no_other() {
    let mut known = PullCredentials::of(Some(&credential("a", "1"))).kubernetes_secrets;
    known[0].credential_hash.clear();
    assert_eq!(
        with_credentials(&known, &[credential("b", "1")]),
        CredentialMatch::Denied
    );
}
