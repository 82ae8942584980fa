//! Certificates of the pod's own.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PodCertificateProjection;
use logic_api::objects::{
    CertificateCredentials, Issuance, PendingCertificateRequest, PodCertificateSpec, pem,
};

use super::*;

const KEY: &str = "-----BEGIN PRIVATE KEY-----\na2V5\n-----END PRIVATE KEY-----\n";

fn request(conditions: Value, chain: &str) -> Value {
    object(
        "certificates.k8s.io/v1beta1",
        "PodCertificateRequest",
        "req",
        json!({
            "spec": {"signerName": "example.com/a", "podName": "p"},
            "status": {
                "conditions": conditions,
                "certificateChain": chain,
                "notBefore": at(0).to_string(),
                "beginRefreshAt": at(7200).to_string(),
                "notAfter": at(10800).to_string(),
            },
        }),
    )
}

fn condition(kind: &str) -> Value {
    json!([{"type": kind, "status": "True", "reason": "R", "message": "M", "lastTransitionTime": at(0).to_string()}])
}

fn chain() -> String {
    pem::certificates([&b"leaf"[..], b"middle"])
}

fn issued() -> Rig {
    rig(&[
        request(condition("Issued"), &format!("comment\n{}", chain())),
        object(
            "v1",
            "Secret",
            "req",
            json!({"stringData": {"tls.key": KEY}}),
        ),
    ])
}

fn volume(paths: Value) -> Value {
    let mut source = paths;
    source["signerName"] = "example.com/a".into();
    source["keyType"] = "ED25519".into();
    json!({"name": "v", "projected": {"defaultMode": 0o644, "sources": [{"podCertificate": source}]}})
}

#[test]
fn key_and_chain_are_written_together_or_apart() {
    let rig = issued();
    let both = format!("{KEY}{}", chain());
    let together = rig.made(volume(json!({"credentialBundlePath": "bundle.pem"})));
    assert_eq!(together, expected(&[("bundle.pem", &both, 0o644)]));
    let apart = rig.made(volume(
        json!({"keyPath": "key.pem", "certificateChainPath": "chain.pem"}),
    ));
    let files = [("key.pem", KEY, 0o644), ("chain.pem", &chain(), 0o644)];
    assert_eq!(apart, expected(&files));
}

#[test]
fn a_certificate_is_looked_at_again_when_a_new_one_is_due() {
    let mut rig = issued();
    let wanted = volume(json!({"keyPath": "key.pem"}));
    let first = rig.make(wanted.clone()).unwrap().refresh_at.unwrap();
    assert!(first >= at(7200) && first < at(7500), "{first}");
    rig.now = at(10_790);
    assert_eq!(rig.make(wanted).unwrap().refresh_at, Some(at(10_800)));
}

#[test]
fn what_is_not_issued_is_told_with_what_is_missing() {
    let secret = || {
        object(
            "v1",
            "Secret",
            "req",
            json!({"stringData": {"tls.key": KEY}}),
        )
    };
    let of_another = {
        let mut request = request(condition("Issued"), &chain());
        request["spec"]["podUID"] = "other".into();
        request
    };
    let pending = "credential bundle is not issued yet: ";
    let cases = [
        (
            vec![],
            format!(
                "{pending}there is no PodCertificateRequest of pod default/p for signer \"example.com/a\""
            ),
        ),
        (
            vec![of_another, secret()],
            format!(
                "{pending}there is no PodCertificateRequest of pod default/p for signer \"example.com/a\""
            ),
        ),
        (
            vec![request(json!([]), ""), secret()],
            format!("{pending}PodCertificateRequest default/req is not answered"),
        ),
        (
            vec![request(condition("Issued"), &chain())],
            format!(
                "{pending}secret default/req with the entry tls.key, the key of the PodCertificateRequest of that name"
            ),
        ),
        (
            vec![request(condition("Denied"), "")],
            "PodCertificateRequest was permanently denied: reason=\"R\" message=\"M\"".to_owned(),
        ),
        (
            vec![request(condition("Failed"), "")],
            "PodCertificateRequest was permanently failed: reason=\"R\" message=\"M\"".to_owned(),
        ),
    ];
    for (objects, text) in cases {
        let refused = rig(&objects).refused(volume(json!({"keyPath": "key.pem"})));
        assert_eq!(refused, (text, RetryWhen::Changed));
    }
    let mut late = issued();
    late.now = at(10_800);
    let (message, _) = late.refused(volume(json!({"keyPath": "key.pem"})));
    assert!(message.starts_with("PodCertificate expired: "), "{message}");
}

#[test]
fn a_request_without_a_pods_uid_is_for_whichever_has_the_name() {
    let mut rig = issued();
    rig.pod.metadata.uid = Some("any".to_owned());
    assert!(rig.make(volume(json!({"keyPath": "k"}))).is_ok());
    rig.pod.metadata.namespace = Some("elsewhere".to_owned());
    assert!(rig.make(volume(json!({"keyPath": "k"}))).is_err());
}

/// Asked of the API, for the volume `v` of the pod.
fn asked_of_the_api(rig: &mut Rig, issuance: Issuance) {
    let source = PodCertificateProjection {
        signer_name: "example.com/a".into(),
        key_type: "ED25519".into(),
        ..PodCertificateProjection::default()
    };
    let wanted = PodCertificateSpec::projected(&rig.pod, "v", (0, &source));
    rig.objects.issuances.insert(wanted, Arc::new(issuance));
}

#[test]
fn a_certificate_that_the_api_was_asked_for_is_written_like_one_of_a_manifest() {
    let mut rig = rig(&[]);
    asked_of_the_api(
        &mut rig,
        Issuance {
            held: Some(CertificateCredentials {
                key_pem: KEY.into(),
                chain_pem: chain().into_bytes(),
                renew_at: at(7200),
                expires: at(10_800),
            }),
            ..Issuance::default()
        },
    );
    let files = [("key.pem", KEY, 0o644), ("chain.pem", &chain(), 0o644)];
    let volume = volume(json!({"keyPath": "key.pem", "certificateChainPath": "chain.pem"}));
    assert_eq!(rig.made(volume.clone()), expected(&files));
    let mut elsewhere = volume;
    elsewhere["projected"]["sources"][0]["podCertificate"]["keyType"] = json!("ECDSAP256");
    assert!(rig.make(elsewhere).is_err());
}

#[test]
fn what_keeps_the_api_from_giving_a_certificate_is_told() {
    let mut rig = rig(&[]);
    let asked = PendingCertificateRequest {
        name: "req-1".into(),
        key_pem: KEY.into(),
        request: Vec::new(),
    };
    let issuance = Issuance {
        asked: Some(asked),
        ..Issuance::default()
    };
    asked_of_the_api(&mut rig, issuance);
    let told = |rig: &Rig| rig.refused(volume(json!({"keyPath": "key.pem"}))).0;
    let pending = "credential bundle is not issued yet: ";
    assert_eq!(
        told(&rig),
        format!("{pending}PodCertificateRequest default/req-1 is not answered")
    );
    let place = ("PodCertificateRequest".into(), "default".into(), "p".into());
    rig.objects.refused.insert(place, "forbidden".into());
    assert_eq!(told(&rig), format!("{pending}forbidden"));
}
