//! The signer by tables, and what a node may ask of it.

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};

use super::*;
use crate::ServerOptions;

const PATH: &str = "/apis/certificates.k8s.io/v1beta1/namespaces/default/podcertificaterequests";

fn server(signing: SigningPolicy) -> Server {
    let server = Server::start_now(ServerOptions::default()).unwrap();
    server.sign_for_pods(signing);
    server
}

fn request(name: &str, change: impl FnOnce(&mut Value)) -> Value {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let der = params.serialize_request(&key).unwrap();
    let mut request = json!({"metadata": {"name": name}, "spec": {
        "signerName": "example.com/a", "podName": "p", "podUID": "u", "serviceAccountName": "default",
        "serviceAccountUID": "s", "nodeName": "n", "nodeUID": "nu",
        "stubPKCS10Request": BASE64.encode(der.der()),
    }});
    change(&mut request["spec"]);
    request
}

async fn decided(server: &Server, name: &str) -> Value {
    let within = std::time::Duration::from_secs(20);
    let path = format!("{PATH}/{name}");
    let found = server
        .wait(&path, within, |seen| seen.is_some_and(is_decided))
        .await;
    found.flatten().unwrap()
}

#[tokio::test]
async fn a_pod_gets_a_chain_with_the_times_of_its_leaf() {
    let server = server(SigningPolicy::Approve);
    server.issue_to_pods(7200, 60);
    let before = clock::now();
    let kept = server.post(PATH, &request("a", |_| {})).unwrap();
    assert_eq!(kept["spec"]["maxExpirationSeconds"], 86_400);
    assert!(!is_decided(&kept), "{kept}");
    let status = &decided(&server, "a").await["status"];
    assert_eq!(status["conditions"][0]["type"], "Issued");
    let chain = status["certificateChain"].as_str().unwrap();
    assert_eq!(chain.matches("BEGIN CERTIFICATE").count(), 2);
    let (_, leaf) = x509_parser::pem::parse_x509_pem(chain.as_bytes()).unwrap();
    let (_, leaf) = X509Certificate::from_der(&leaf.contents).unwrap();
    let time = |field: &str| clock::parse(status[field].as_str().unwrap()).unwrap();
    assert_eq!(
        time("notAfter").as_second(),
        leaf.validity().not_after.timestamp()
    );
    assert_eq!(
        time("notBefore").as_second(),
        leaf.validity().not_before.timestamp()
    );
    let fresh = time("beginRefreshAt").as_second() - before.as_second();
    assert!((60..70).contains(&fresh), "{fresh}");
}

#[tokio::test]
async fn the_signer_denies_fails_and_says_nothing_as_it_is_told() {
    for (signing, word) in [
        (SigningPolicy::Deny, "Denied"),
        (SigningPolicy::Fail, "Failed"),
    ] {
        let server = server(signing);
        server.post(PATH, &request("a", |_| {})).unwrap();
        let status = &decided(&server, "a").await["status"];
        assert_eq!(status["conditions"][0]["type"], word);
        assert!(status.get("certificateChain").is_none());
    }
    let server = server(SigningPolicy::Hold);
    server.post(PATH, &request("a", |_| {})).unwrap();
    assert!(!is_decided(&server.get(&format!("{PATH}/a")).unwrap()));
    server.sign_for_pods(SigningPolicy::Approve);
    assert!(is_decided(&server.get(&format!("{PATH}/a")).unwrap()));
}

#[test]
fn what_is_no_request_is_refused_by_its_field() {
    let server = server(SigningPolicy::Hold);
    type Change = fn(&mut Value);
    let cases: [(&str, Change); 8] = [
        ("spec.podUID", |spec| spec["podUID"] = json!("")),
        ("spec.signerName", |spec| spec["signerName"] = Value::Null),
        ("spec.maxExpirationSeconds", |spec| {
            spec["maxExpirationSeconds"] = json!(60);
        }),
        ("spec.maxExpirationSeconds", |spec| {
            spec["signerName"] = json!("kubernetes.io/x");
            spec["maxExpirationSeconds"] = json!(86_401);
        }),
        ("spec.unverifiedUserAnnotations", |spec| {
            spec["unverifiedUserAnnotations"] = json!({"plain": "x"});
        }),
        ("spec.pkixPublicKey", |spec| {
            spec["pkixPublicKey"] = json!("aaaa")
        }),
        ("spec.stubPKCS10Request", |spec| {
            spec["stubPKCS10Request"] = Value::Null;
        }),
        ("spec.stubPKCS10Request", |spec| {
            spec["stubPKCS10Request"] = json!("aaaa");
        }),
    ];
    for (field, change) in cases {
        let refused = server.post(PATH, &request("a", change)).unwrap_err();
        assert_eq!(refused.code, 422, "{field}");
        assert!(
            refused.message.contains(field),
            "{field}: {}",
            refused.message
        );
    }
}

#[test]
fn the_last_word_is_one_and_the_spec_is_as_it_was_asked() {
    let server = server(SigningPolicy::Hold);
    let path = format!("{PATH}/a");
    let kept = server.post(PATH, &request("a", |_| {})).unwrap();
    let mut other = kept.clone();
    other["spec"]["podName"] = json!("q");
    assert_eq!(server.put(&path, &other).unwrap_err().code, 422);
    server.sign_for_pods(SigningPolicy::Deny);
    let mut denied = server.get(&path).unwrap();
    condition(&mut denied, ("Failed", "R", "M"));
    let status = format!("{path}/status");
    assert_eq!(server.put(&status, &denied).unwrap_err().code, 422);
}
