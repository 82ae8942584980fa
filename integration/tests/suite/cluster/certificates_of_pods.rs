//! Certificates of pods: asked of the API, written into the volume, refused, and there again after a reboot alone.

use std::path::{Path, PathBuf};

use apiserver::SigningPolicy;
use integration::agent::Node;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::*;

const REQUESTS: &str =
    "/apis/certificates.k8s.io/v1beta1/namespaces/default/podcertificaterequests";

fn gate() -> Value {
    json!({ "featureGates": { "PodCertificateRequest": true } })
}

async fn gated() -> Cluster {
    start(Node::builder().config(&gate())).await
}

fn certified(name: &str, key_type: &str) -> Value {
    let mut pod = pod(name);
    let source = json!({
        "signerName": "example.com/a", "keyType": key_type, "credentialBundlePath": "bundle.pem",
        "keyPath": "key.pem", "certificateChainPath": "chain.pem",
        "userAnnotations": { "example.com/b": "c" },
    });
    pod["spec"]["volumes"] =
        json!([{ "name": "own", "projected": { "sources": [{ "podCertificate": source }] } }]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{ "name": "own", "mountPath": "/own" }]);
    pod
}

fn volume(cluster: &Cluster, pod: &Value) -> PathBuf {
    let volumes = cluster
        .node
        .root()
        .join("pods")
        .join(uid(pod))
        .join("volumes");
    volumes.join("kubernetes.io~projected/own")
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// Whether the leaf of the chain is of the key.
fn belongs(key: &str, chain: &str) -> bool {
    let chain = CertificateDer::pem_slice_iter(chain.as_bytes());
    let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
    assert_eq!(chain.len(), 2);
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let key = any_supported_type(&key).unwrap();
    CertifiedKey::new(chain, key).keys_match().is_ok()
}

/// Waits for an event about the pod with these words.
async fn until_told(cluster: &Cluster, pod: &str, reason: &str, words: &str) {
    let told = || {
        let events = cluster
            .server
            .list("/api/v1/namespaces/default/events")
            .unwrap();
        events.iter().any(|event| {
            event["involvedObject"]["name"] == pod
                && event["reason"] == reason
                && event["message"]
                    .as_str()
                    .unwrap_or_default()
                    .contains(words)
        })
    };
    let what = format!("{pod} is told {reason}: {words}");
    cluster.wait(&what, async || told()).await.unwrap();
}

#[tokio::test]
async fn a_pod_gets_the_certificate_and_the_key_that_it_asks_for() {
    let cluster = gated().await;
    for (name, key_type) in [
        ("one", "ED25519"),
        ("two", "ECDSAP256"),
        ("three", "ECDSAP384"),
    ] {
        cluster.apply(&certified(name, key_type)).unwrap();
        let found = cluster
            .until_pod(name, CONVERGENCE_TIMEOUT, is_running)
            .await
            .unwrap();
        let folder = volume(&cluster, &found);
        let (key, chain) = (read(&folder, "key.pem"), read(&folder, "chain.pem"));
        assert_eq!(read(&folder, "bundle.pem"), format!("{key}{chain}"));
        assert!(belongs(&key, &chain), "{key_type}");
    }
    let requests = cluster.server.list(REQUESTS).unwrap();
    assert_eq!(requests.len(), 3);
    let annotations = json!({ "example.com/b": "c" });
    assert_eq!(
        requests[0]["spec"]["unverifiedUserAnnotations"],
        annotations
    );
}

#[tokio::test]
async fn what_the_signer_refuses_and_what_nobody_can_make_is_told_to_whoever_looks_at_the_pod() {
    let cluster = gated().await;
    cluster.double().sign_for_pods(SigningPolicy::Deny);
    cluster.apply(&certified("denied", "ED25519")).unwrap();
    cluster.apply(&certified("rsa", "RSA3072")).unwrap();
    until_told(&cluster, "denied", "Denied", "reason=\"DeniedByTest\"").await;
    let words = "PodCertificateRequest was permanently denied: reason=\"DeniedByTest\"";
    until_told(&cluster, "denied", "FailedMount", words).await;
    until_told(&cluster, "rsa", "UnsupportedKeyType", "\"RSA3072\"").await;
    until_told(
        &cluster,
        "rsa",
        "FailedMount",
        "makes no keys of type \"RSA3072\"",
    )
    .await;
    assert_eq!(cluster.server.list(REQUESTS).unwrap().len(), 1);
    for name in ["denied", "rsa"] {
        assert!(!is_running(&cluster.pod(name).unwrap()), "{name}");
    }
}

#[tokio::test]
async fn where_the_gate_is_off_the_pod_waits_and_says_why() {
    let cluster = started().await;
    cluster.apply(&certified("web", "ED25519")).unwrap();
    let words =
        "credential bundle is not issued yet: the feature gate PodCertificateRequest is off";
    until_told(&cluster, "web", "FailedMount", words).await;
    assert!(cluster.server.list(REQUESTS).unwrap().is_empty());
}

#[tokio::test]
async fn a_late_signer_is_waited_for_over_a_restart_and_asked_once() {
    let mut cluster = gated().await;
    cluster.double().sign_for_pods(SigningPolicy::Hold);
    cluster.apply(&certified("web", "ED25519")).unwrap();
    let words = "is not answered";
    until_told(&cluster, "web", "FailedMount", words).await;
    cluster.node.kill9().unwrap();
    cluster.node.begin().await.unwrap();
    cluster.until_ready(CONVERGENCE_TIMEOUT).await.unwrap();
    cluster.double().sign_for_pods(SigningPolicy::Approve);
    let found = cluster
        .until_pod("web", CONVERGENCE_TIMEOUT, is_running)
        .await
        .unwrap();
    let folder = volume(&cluster, &found);
    assert!(belongs(
        &read(&folder, "key.pem"),
        &read(&folder, "chain.pem")
    ));
    assert_eq!(cluster.server.list(REQUESTS).unwrap().len(), 1);
}

#[tokio::test]
async fn a_machine_that_reboots_without_its_server_brings_the_pod_back_with_its_certificate() {
    let mut cluster = gated().await;
    cluster.apply(&certified("web", "ED25519")).unwrap();
    let before = cluster
        .until_pod("web", CONVERGENCE_TIMEOUT, is_running)
        .await
        .unwrap();
    let folder = volume(&cluster, &before);
    let key = read(&folder, "key.pem");
    // What must not be forgotten is written within a second.
    let kept = cluster.node.root().join("oxlet/alone.checkpoint");
    let first = std::fs::read(&kept).unwrap_or_default();
    cluster.apply(&pod("later")).unwrap();
    cluster
        .until_pod("later", CONVERGENCE_TIMEOUT, is_running)
        .await
        .unwrap();
    cluster
        .wait("both pods are kept", async || {
            std::fs::read(&kept).is_ok_and(|bytes| bytes.len() > 1000 && bytes != first)
        })
        .await
        .unwrap();
    let secret = key.lines().nth(1).unwrap().as_bytes();
    let sealed = std::fs::read(&kept).unwrap();
    assert!(!sealed.windows(secret.len()).any(|part| part == secret));
    cluster.server.stop();
    cluster.node.kill9().unwrap();
    cluster.node.forget_containers().unwrap();
    for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
        let path = entry.path();
        drop(std::fs::remove_file(&path).or_else(|_| std::fs::remove_dir_all(&path)));
    }
    assert!(!folder.join("key.pem").exists());
    cluster.node.begin().await.unwrap();
    cluster
        .wait("the pod has its key again", async || {
            std::fs::read_to_string(folder.join("key.pem")).is_ok_and(|again| again == key)
        })
        .await
        .unwrap();
    cluster.server.resume().unwrap();
    cluster.until_ready(CONVERGENCE_TIMEOUT).await.unwrap();
    let container = |pod: &Value| pod["status"]["containerStatuses"][0]["containerID"].clone();
    let again = |pod: &Value| is_running(pod) && container(pod) != container(&before);
    let after = cluster
        .until_pod("web", CONVERGENCE_TIMEOUT, again)
        .await
        .unwrap();
    assert_eq!(uid(&before), uid(&after));
    assert_eq!(cluster.server.list(REQUESTS).unwrap().len(), 1);
}

mod containerd {
    use super::super::kubectl::on_containerd_of;
    use super::*;

    #[tokio::test]
    async fn a_container_reads_its_certificate() {
        let Some(rig) = on_containerd_of(ServerKind::Double, gate()).await else {
            return;
        };
        let cluster = &rig.cluster;
        cluster.apply(&certified("own", "ECDSAP256")).unwrap();
        cluster
            .until_pod("own", CONVERGENCE_TIMEOUT, is_running)
            .await
            .unwrap();
        let read = ["exec", "own", "--", "cat", "/own/bundle.pem"];
        let bundle = cluster.kubectl_ok(&read).await.unwrap();
        let (key, chain) = bundle.split_at(bundle.find("-----BEGIN CERTIFICATE").unwrap());
        assert!(belongs(key, chain), "{chain}");
    }
}
