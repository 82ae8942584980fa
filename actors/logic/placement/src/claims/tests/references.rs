//! Which objects a pod's claims are.

use super::*;
use crate::claims::references::{base_request, claim_reference};

fn named(name: &str) -> Option<ClaimReference> {
    let (name, origin) = (name.to_owned(), ClaimOrigin::Named);
    Some(ClaimReference { name, origin })
}

fn made(name: &str) -> Option<ClaimReference> {
    let (name, origin) = (name.to_owned(), ClaimOrigin::Template);
    Some(ClaimReference { name, origin })
}

#[test]
fn a_claim_is_named_by_the_pod_or_by_what_was_made_of_its_template() {
    let statuses = json!([
        {"name": "template-claim", "resourceClaimName": "created-claim"},
        {"name": "needless"},
    ]);
    let pod: Pod = read(json!({
        "metadata": {"namespace": "default", "name": "test-pod"},
        "status": {"resourceClaimStatuses": statuses},
    }));
    let template = |name: &str| json!({"name": name, "resourceClaimTemplateName": "template"});
    let cases = [
        (
            json!({"name": "a", "resourceClaimName": "existing-claim"}),
            Ok(named("existing-claim")),
        ),
        (template("template-claim"), Ok(made("created-claim"))),
        (template("needless"), Ok(None)),
        (
            template("other"),
            Err("pod \"default/test-pod\": ResourceClaim not created yet"),
        ),
        (
            json!({"name": "invalid-claim"}),
            Err(
                "pod \"default/test-pod\", spec.resourceClaim \"invalid-claim\": none of the supported fields are set",
            ),
        ),
    ];
    for (claim, expected) in cases {
        let found = claim_reference(&pod, &read(claim.clone())).map_err(|error| error.to_string());
        assert_eq!(found, expected.map_err(str::to_owned), "{claim}");
    }
}

#[test]
fn only_a_claim_that_is_still_to_be_made_may_be_known_later() {
    let pod = |claim: Value| -> Pod {
        read(json!({"spec": {"containers": [], "resourceClaims": [claim]}}))
    };
    let waiting = pod(json!({"name": "a", "resourceClaimTemplateName": "t"}));
    assert!(needed_claims(&waiting, GATES).unwrap_err().transient());
    let unknown = pod(json!({"name": "a"}));
    assert!(!needed_claims(&unknown, GATES).unwrap_err().transient());
}

#[test]
fn a_pod_needs_each_of_its_claims_once_and_that_of_its_extended_resources() {
    let mut pod = extended_pod();
    let spec = pod.spec.as_mut().unwrap();
    spec.resource_claims = read(json!([
        {"name": "a", "resourceClaimName": "shared"},
        {"name": "b", "resourceClaimName": "own"},
        {"name": "c", "resourceClaimName": "shared"},
    ]));
    let names = |gates| -> Vec<String> {
        let needed = needed_claims(&pod, gates).unwrap().into_iter();
        needed.map(|reference| reference.name).collect()
    };
    assert_eq!(names(GATES), ["shared", "own", "claim"]);
    let without = ClaimGates {
        extended_resources: false,
        ..GATES
    };
    assert_eq!(names(without), ["shared", "own"]);
}

#[test]
fn a_subrequest_belongs_to_its_request() {
    for (reference, base) in [("foo", "foo"), ("foo/bar", "foo")] {
        assert_eq!(base_request(reference), base);
    }
}
