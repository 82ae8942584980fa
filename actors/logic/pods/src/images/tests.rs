//! Names, policies and words.

use std::time::Duration;

use logic_api::text::image_reference::{repository, with_default_tag, without_tag};
use proptest::prelude::*;

use super::*;

const DIGEST: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/// Upstream's TestShouldPullImage, by the answer.
#[test]
fn pulling_follows_policy_and_presence() {
    let cases = [
        (
            PullPolicy::Always,
            ImagePresence::Present,
            PullDecision::Needed,
        ),
        (
            PullPolicy::Always,
            ImagePresence::Absent,
            PullDecision::Needed,
        ),
        (
            PullPolicy::IfNotPresent,
            ImagePresence::Present,
            PullDecision::NotNeeded,
        ),
        (
            PullPolicy::IfNotPresent,
            ImagePresence::Absent,
            PullDecision::Needed,
        ),
        (
            PullPolicy::Never,
            ImagePresence::Present,
            PullDecision::NotNeeded,
        ),
        (
            PullPolicy::Never,
            ImagePresence::Absent,
            PullDecision::Forbidden,
        ),
    ];
    for (policy, presence, pull) in cases {
        assert_eq!(
            should_pull(policy, presence),
            pull,
            "{policy:?} {presence:?}"
        );
    }
}

#[test]
fn latest_is_pulled_each_time_unless_the_pod_says_otherwise() {
    let digest = format!("localhost/a@{DIGEST}");
    let cases = [
        (None, "localhost/a", PullPolicy::Always),
        (None, "localhost/a:latest", PullPolicy::Always),
        (None, "localhost/a:1", PullPolicy::IfNotPresent),
        (None, digest.as_str(), PullPolicy::IfNotPresent),
        (Some("Never"), "localhost/a", PullPolicy::Never),
        (Some(""), "localhost/a:1", PullPolicy::IfNotPresent),
    ];
    for (given, image, policy) in cases {
        assert_eq!(pull_policy(given, image), policy, "{given:?} {image}");
    }
}

/// Upstream's TestApplyDefaultImageTag, and the reference grammar's own cases.
#[test]
fn names_get_latest_where_neither_tag_nor_digest_is_given() {
    let tagged_digest = format!("root:tag@{DIGEST}");
    let digest = format!("root@{DIGEST}");
    let cases = [
        ("root", Some("root:latest")),
        ("root:tag", Some("root:tag")),
        ("root:latest", Some("root:latest")),
        (digest.as_str(), Some(digest.as_str())),
        (tagged_digest.as_str(), Some(tagged_digest.as_str())),
        ("localhost:5000/a/b", Some("localhost:5000/a/b:latest")),
        ("[fd00::1]:5000/a", Some("[fd00::1]:5000/a:latest")),
        ("example.org/A", None),
        ("UPPER/lower", Some("UPPER/lower:latest")),
        ("a__b/c-d.e", Some("a__b/c-d.e:latest")),
        ("a___b", None),
        ("-a", None),
        ("a:-tag", None),
        ("a:", None),
        ("a@sha256:short", None),
        ("a@md5:aaaa", None),
        ("a b", None),
        ("", None),
        ("/a", None),
        ("a//b", None),
        ("example.org:port/a", None),
        ("http://url", None),
        (
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            None,
        ),
    ];
    for (image, expected) in cases {
        assert_eq!(with_default_tag(image).ok().as_deref(), expected, "{image}");
    }
}

#[test]
fn a_refusal_names_the_image_and_its_wrong_part() {
    let text = |image: &str| with_default_tag(image).unwrap_err().to_string();
    assert_eq!(
        text("a:-"),
        "couldn't parse image name \"a:-\": tag \"-\" is not valid"
    );
    assert_eq!(
        text("localhost/A"),
        "couldn't parse image name \"localhost/A\": repository name must be lowercase"
    );
}

/// Upstream's TestEvalCRIPullErr.
#[test]
fn pull_failures_are_named_as_upstream() {
    let cases = [
        ("no route", ERR_IMAGE_PULL, "no route"),
        (
            "RegistryUnavailable",
            REGISTRY_UNAVAILABLE,
            "image pull failed for a because the registry is unavailable",
        ),
        (
            "RegistryUnavailable: foo",
            REGISTRY_UNAVAILABLE,
            "image pull failed for a because the registry is unavailable: foo",
        ),
        (
            "SignatureValidationFailed: bar",
            SIGNATURE_VALIDATION_FAILED,
            "image pull failed for a because the signature validation failed: bar",
        ),
    ];
    for (error, reason, message) in cases {
        let failure = pull_failure("a", error);
        assert_eq!(
            (failure.reason.as_str(), failure.message.as_str()),
            (reason, message)
        );
    }
}

#[test]
fn events_are_worded_as_upstream() {
    let millis = Duration::from_micros;
    assert_eq!(messages::pulling("a"), "Pulling image \"a\"");
    assert_eq!(
        messages::pulled("a", millis(1_234_567), millis(2_000_999), 42),
        "Successfully pulled image \"a\" in 1.234s (2s including waiting). Image size: 42 bytes."
    );
    assert_eq!(
        messages::accessible("a"),
        "Container image \"a\" already present on machine and can be accessed by the pod"
    );
    assert_eq!(
        messages::back_off_because("a", ERR_IMAGE_PULL, "x"),
        "Back-off pulling image \"a\": ErrImagePull: x"
    );
}

/// Upstream's TestParseImageName, by the name.
#[test]
fn a_repository_is_named_in_full() {
    let digest = format!("localhost/a@{DIGEST}");
    let cases = [
        ("root", "docker.io/library/root"),
        ("root:tag", "docker.io/library/root"),
        ("team/app", "docker.io/team/app"),
        ("docker.io/app", "docker.io/library/app"),
        ("index.docker.io/team/app:1", "docker.io/team/app"),
        ("example.com:5000/a/b:1", "example.com:5000/a/b"),
        (digest.as_str(), "localhost/a"),
    ];
    for (image, expected) in cases {
        assert_eq!(repository(image).as_deref(), Ok(expected), "{image}");
    }
    assert!(repository("UPPER").is_err());
}

/// Upstream's TestTrimImageTagDigest.
#[test]
fn an_image_is_recorded_under_the_name_that_was_written() {
    const HASH: &str = "38a8906435c4dd5f4258899d46621bfd8eea3ad6ff494ee3c2f17ef0321625bd";
    let with_tag = [
        ("myimage", vec!["", ":latest", "@", ":v1@"]),
        ("registry.io/myimage", vec!["", ":v1.0", "@", ":latest@"]),
        ("registry.io/myorg/myimage", vec!["", ":v2", "@", ":v2@"]),
        ("registry.io/a/b/c/myimage", vec![":latest"]),
        ("localhost:5000/myimage", vec![":v1"]),
        ("myregistry:5000/myorg/myimage", vec![":v1"]),
        ("docker.io/taghere/image", vec![":taghere"]),
    ];
    for (name, ends) in with_tag {
        for end in ends {
            let image = format!("{name}{}", end.replace('@', &format!("@sha256:{HASH}")));
            assert_eq!(without_tag(&image).as_deref(), Ok(name), "{image}");
        }
    }
    let twice = format!("registry.io/{HASH}/myorg/image");
    assert_eq!(without_tag(&format!("{twice}@sha256:{HASH}")), Ok(twice));
    for end in ["", ":tag", &format!("@sha256:{HASH}")] {
        let image = format!("registry.io/myorg/{end}");
        assert!(without_tag(&image).is_err(), "{image}");
    }
}

#[test]
fn several_errors_are_one_line_and_each_stands_once() {
    let errors = |list: &[&str]| list.iter().map(|e| (*e).to_owned()).collect::<Vec<_>>();
    assert_eq!(messages::aggregate(&errors(&["a"])), "a");
    assert_eq!(messages::aggregate(&errors(&["a", "a"])), "a");
    assert_eq!(messages::aggregate(&errors(&["a", "b", "a"])), "[a, b]");
}

proptest! {
    #[test]
    fn any_text_is_a_name_or_refused(image in any::<String>()) {
        if let Ok(full) = with_default_tag(&image) {
            prop_assert_eq!(with_default_tag(&full), Ok(full.clone()), "naming twice changes nothing");
        }
    }
}
