//! Requests by tables, and what is signed as others read it.

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::*;
use crate::{Server, ServerOptions};

const PATH: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

fn pem(name: &str, organization: &str, alternatives: &[&str]) -> String {
    let key = KeyPair::generate().unwrap();
    let names: Vec<String> = alternatives
        .iter()
        .map(|name| (*name).to_string())
        .collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::OrganizationName, organization);
    params.distinguished_name.push(DnType::CommonName, name);
    params.serialize_request(&key).unwrap().pem().unwrap()
}

fn request(name: &str, signer: &str, pem: &str) -> Value {
    let usage = if signer.ends_with("serving") {
        "server auth"
    } else {
        "client auth"
    };
    json!({"metadata": {"name": name}, "spec": {
        "request": BASE64.encode(pem.as_bytes()), "signerName": format!("kubernetes.io/{signer}"),
        "usages": ["digital signature", usage],
    }})
}

const CLIENT: &str = "kube-apiserver-client-kubelet";
const SERVING: &str = "kubelet-serving";

fn server() -> Server {
    Server::start_now(ServerOptions::default()).unwrap()
}

fn signed(request: &Value) -> Vec<u8> {
    let pem = BASE64
        .decode(request["status"]["certificate"].as_str().unwrap())
        .unwrap();
    x509_parser::pem::parse_x509_pem(&pem).unwrap().1.contents
}

#[test]
fn a_nodes_request_is_approved_and_signed_at_once() {
    let server = server();
    let mut asked = request("a", CLIENT, &pem("system:node:a", "system:nodes", &[]));
    asked["spec"]["expirationSeconds"] = json!(7200);
    let kept = server.post(PATH, &asked).unwrap();
    assert_eq!(kept["status"]["conditions"][0]["type"], "Approved");
    let der = signed(&kept);
    let (_, certificate) = X509Certificate::from_der(&der).unwrap();
    assert_eq!(
        certificate.subject().to_string(),
        "O=system:nodes, CN=system:node:a"
    );
    let validity = certificate.validity();
    assert_eq!(
        validity.not_after.timestamp() - validity.not_before.timestamp(),
        7200 + 300
    );
    assert!(
        certificate
            .extended_key_usage()
            .unwrap()
            .unwrap()
            .value
            .client_auth
    );
    let authority = x509_parser::pem::parse_x509_pem(server.authority().as_bytes())
        .unwrap()
        .1
        .contents;
    let (_, authority) = X509Certificate::from_der(&authority).unwrap();
    certificate
        .verify_signature(Some(authority.public_key()))
        .unwrap();
}

#[test]
fn certificates_may_be_shorter_than_upstreams() {
    let server = server();
    server.issue_for(5);
    let kept = server
        .post(
            PATH,
            &request(
                "a",
                SERVING,
                &pem("system:node:a", "system:nodes", &["127.0.0.1", "a"]),
            ),
        )
        .unwrap();
    let der = signed(&kept);
    let (_, certificate) = X509Certificate::from_der(&der).unwrap();
    let validity = certificate.validity();
    assert_eq!(
        validity.not_after.timestamp() - validity.not_before.timestamp(),
        5
    );
    assert_eq!(
        certificate
            .subject_alternative_name()
            .unwrap()
            .unwrap()
            .value
            .general_names
            .len(),
        2
    );
}

#[test]
fn a_request_waits_until_somebody_has_decided() {
    let server = server();
    server.sign(SigningPolicy::Hold);
    let asked = |name: &str| request(name, CLIENT, &pem("system:node:a", "system:nodes", &[]));
    let kept = server.post(PATH, &asked("a")).unwrap();
    assert!(kept["status"]["conditions"].is_null() && kept["status"]["certificate"].is_null());
    server.approve("a").unwrap();
    signed(&server.get(&format!("{PATH}/a")).unwrap());

    server.post(PATH, &asked("b")).unwrap();
    server.deny("b").unwrap();
    let denied = server.get(&format!("{PATH}/b")).unwrap();
    assert_eq!(denied["status"]["conditions"][0]["type"], "Denied");
    assert!(denied["status"]["certificate"].is_null());

    server.sign(SigningPolicy::Fail);
    let failed = server.post(PATH, &asked("c")).unwrap();
    assert_eq!(failed["status"]["conditions"][1]["type"], "Failed");
}

/// Upstream's TestValidateKubeletClientCSR and TestValidateKubeletServingCSR.
#[test]
fn a_signer_takes_only_what_a_node_may_be() {
    let server = server();
    let cases = [
        (
            CLIENT,
            pem("system:node:a", "x", &[]),
            "subject organization is not system:nodes",
        ),
        (
            CLIENT,
            pem("a", "system:nodes", &[]),
            "subject common name does not begin with system:node:",
        ),
        (
            CLIENT,
            pem("system:node:a", "system:nodes", &["a"]),
            "DNS or IP subjectAltNames are not allowed",
        ),
        (
            SERVING,
            pem("system:node:a", "system:nodes", &[]),
            "at least one DNS or IP subjectAltName is required",
        ),
        (SERVING, "nonsense".to_string(), "unable to parse csr"),
    ];
    for (number, (signer, pem, why)) in cases.into_iter().enumerate() {
        let kept = server
            .post(PATH, &request(&format!("r{number}"), signer, &pem))
            .unwrap();
        let failed = &kept["status"]["conditions"][1];
        assert_eq!(failed["type"], "Failed", "{why}");
        assert!(
            failed["message"].as_str().unwrap().contains(why),
            "{failed}"
        );
    }
    let mut asked = request("usage", CLIENT, &pem("system:node:a", "system:nodes", &[]));
    asked["spec"]["usages"] = json!(["client auth", "server auth"]);
    assert_eq!(
        server.post(PATH, &asked).unwrap()["status"]["conditions"][1]["message"],
        "usages did not match"
    );
    let other = server
        .post(
            PATH,
            &request("other", "kube-apiserver-client", &pem("me", "us", &[])),
        )
        .unwrap();
    assert!(other["status"]["conditions"].is_null());
}
